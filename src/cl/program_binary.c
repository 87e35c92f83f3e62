/* SPDX-License-Identifier: Apache-2.0 */
/* Binaries of programs: see program_binary.h. */
#include "program_binary.h"

#include <stdlib.h>

/* More devices in one context than anybody has: such a program's binary is not kept. */
enum { MAX_DEVICES = 64 };

/* OpenCL tells of all devices of the program's context at once. Which of them is `device`; their
 * number, 0 when it is not known. */
static cl_uint place_of(const struct clbi_cl_fns *fns, cl_program program, cl_device_id device,
                        cl_uint *at)
{
    cl_device_id all[MAX_DEVICES];
    cl_uint count = 0;

    if (fns->GetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof count, &count, NULL) !=
            CL_SUCCESS ||
        count == 0 || count > MAX_DEVICES ||
        fns->GetProgramInfo(program, CL_PROGRAM_DEVICES, count * sizeof *all, all, NULL) !=
            CL_SUCCESS)
        return 0;
    for (*at = 0; *at < count; ++*at)
        if (all[*at] == device)
            return count;
    return 0;
}

static size_t size_at(const struct clbi_cl_fns *fns, cl_program program, cl_uint count, cl_uint at)
{
    size_t sizes[MAX_DEVICES] = {0};

    if (count == 0 || fns->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, count * sizeof *sizes,
                                          sizes, NULL) != CL_SUCCESS)
        return 0;
    return sizes[at];
}

size_t clbi_binary_size(const struct clbi_cl_fns *fns, cl_program program, cl_device_id device)
{
    cl_uint at = 0;
    const cl_uint count = place_of(fns, program, device, &at);

    return size_at(fns, program, count, at);
}

unsigned char *clbi_binary_of(const struct clbi_cl_fns *fns, cl_program program,
                              cl_device_id device, size_t *size)
{
    unsigned char *all[MAX_DEVICES] = {0}; /* NULL = not wanted */
    cl_uint at = 0;
    const cl_uint count = place_of(fns, program, device, &at);

    *size = size_at(fns, program, count, at);
    if (*size == 0)
        return NULL;
    all[at] = calloc(1, *size);
    if (all[at] && fns->GetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof *all, all,
                                       NULL) != CL_SUCCESS) {
        free(all[at]);
        all[at] = NULL;
    }
    return all[at];
}

cl_program clbi_binary_build(const struct clbi_cl_fns *fns, cl_context context, cl_device_id device,
                             const unsigned char *bytes, size_t size, const char *options,
                             const char *kernel, cl_int *code)
{
    cl_int status = CL_SUCCESS;
    cl_kernel probe;
    cl_program program =
        fns->CreateProgramWithBinary(context, 1, &device, &size, &bytes, &status, code);

    if (!program) {
        if (*code == CL_SUCCESS)
            *code = CL_INVALID_BINARY;
        return NULL;
    }
    if (*code == CL_SUCCESS)
        *code = fns->BuildProgram(program, 1, &device, options, NULL, NULL);
    if (*code == CL_SUCCESS) {
        probe = fns->CreateKernel(program, kernel, code);
        if (probe)
            fns->ReleaseKernel(probe);
        else if (*code == CL_SUCCESS)
            *code = CL_INVALID_BINARY;
    }
    if (*code == CL_SUCCESS)
        return program;
    fns->ReleaseProgram(program);
    return NULL;
}
