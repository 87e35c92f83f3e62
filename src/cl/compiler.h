/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of a device: compiled once, shared by all that ask for the same one, and kept in a folder
 * for the next process when the device has one (cache.h). A compiler is counted and outlives the
 * device's handle: recipes hold it.
 */
#ifndef CLBI_CL_COMPILER_H
#define CLBI_CL_COMPILER_H

#include <stddef.h>

#include "cl_fns.h"

struct clbi_compiler;

struct clbi_compiler_params {
    const struct clbi_cl_fns *fns;
    const struct clb_log *log;      /* copied */
    struct clb_status *status;      /* NULL = not wanted */
    cl_context context;             /* retained */
    const clb_cl_device_info *info; /* of the device */
    const char *cache_dir;          /* NULL = nothing on disk */
};

/* @return CLB_OK; INVAL (cache_dir is no folder to trust), NOMEM, CL; logged, and in status. */
int clbi_compiler_create(struct clbi_compiler **out, const struct clbi_compiler_params *p);

struct clbi_compiler *clbi_compiler_ref(struct clbi_compiler *c);

/* The last one lets all programs go. *c becomes NULL. Any thread. */
void clbi_compiler_unref(struct clbi_compiler **c);

/*
 * A program built for the device from `source` with `options`; *out has a reference of the caller's
 * own. `name` is that of the kernel, and in file names; name and source stay valid. Blocks while the runtime compiles; two callers that want
 * the same one compile it once. On failure the compiler's own words are logged.
 * @return CLB_OK; NOMEM, CL.
 */
int clbi_compiler_get(struct clbi_compiler *c, const char *name, const char *source, size_t length,
                      const char *options, cl_program *out);

/*
 * After a launch with a work-group size for the first time: writes the program's binary for the next
 * process, unless it is there. Only then do CPU runtimes have all of it. Failures do no harm.
 */
void clbi_compiler_save(struct clbi_compiler *c, cl_program program);

#endif
