/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core asks of whoever understands metadata. Implemented in src/registry.c, which knows the
 * parser; the core knows none.
 */
#ifndef CLBI_METADATA_H
#define CLBI_METADATA_H

#include <clbridge/image.h>
#include <clbridge/stream.h>

struct clbi_metadata {
    struct clb_image image; /* layout of the pixels, fits data_size; fmt 0 = not told */
    enum clb_part part;     /* WHOLE, SPLIT_HEAD, or GROUP_HEAD */
    uint32_t parts;         /* that follow a head */
    uint32_t part_bytes;    /* in all parts of a SPLIT_HEAD */
};

/* Reads `size` bytes of metadata that lie behind data_size bytes of pixels. Bounded; allocates nothing.
 * CLB_OK (also for what is not understood: all zero) or CLB_ERR_PROTO. */
int clbi_metadata_parse(struct clbi_metadata *out, const void *metadata, size_t size,
                        size_t data_size, int32_t object_type);

#endif
