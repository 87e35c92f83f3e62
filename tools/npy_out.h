/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as NumPy files, format version 1.0 (numpy.lib.format). */
#ifndef TOOLS_NPY_OUT_H
#define TOOLS_NPY_OUT_H

#include <stddef.h>
#include <stdint.h>

/* What the values are, in NumPy's words: "|u1", "<f2", "<f4". */
struct npy_shape {
    const char *type;
    uint32_t size[3]; /* from the slowest to the fastest direction */
};

/* 0, or an errno value; then no file is left behind. */
int npy_write_file(const char *path, const void *values, size_t bytes,
                   const struct npy_shape *shape);

#endif
