/* SPDX-License-Identifier: Apache-2.0 */
/* A program's binary for one device: taken out of a program, and made a program again. */
#ifndef CLBI_CL_PROGRAM_BINARY_H
#define CLBI_CL_PROGRAM_BINARY_H

#include "cl_fns.h"

/* Its size in bytes; 0 = the runtime does not tell, or has none. */
size_t clbi_binary_size(const struct clbi_cl_fns *fns, cl_program program, cl_device_id device);

/* Its bytes, by the caller (free); NULL = no memory, or the runtime does not give them. */
unsigned char *clbi_binary_of(const struct clbi_cl_fns *fns, cl_program program,
                              cl_device_id device, size_t *size);

/* A built program that has the kernel; NULL and why otherwise. */
cl_program clbi_binary_build(const struct clbi_cl_fns *fns, cl_context context, cl_device_id device,
                             const unsigned char *bytes, size_t size, const char *options,
                             const char *kernel, cl_int *code);

#endif
