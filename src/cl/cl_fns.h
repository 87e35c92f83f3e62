/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL entry points that this library calls, as a table: a device holds a pointer to one, so
 * that tests can put a double in the place of a runtime. Nothing in src/cl calls OpenCL otherwise.
 *
 * OpenCL 1.2 only. The list is the one place that names the functions; members have the name of the
 * function without "cl".
 */
#ifndef CLBI_CL_FNS_H
#define CLBI_CL_FNS_H

#include <clbridge/cl.h>

/* What preprocessing needs beyond what a pool does. */
#define CLBI_CL_KERNEL_FNS_MAP(X)                                                                  \
    X(CreateProgramWithSource)                                                                     \
    X(CreateProgramWithBinary)                                                                     \
    X(BuildProgram)                                                                                \
    X(GetProgramBuildInfo)                                                                         \
    X(GetProgramInfo)                                                                              \
    X(RetainProgram)                                                                               \
    X(ReleaseProgram)                                                                              \
    X(CreateKernel)                                                                                \
    X(ReleaseKernel)                                                                               \
    X(SetKernelArg)                                                                                \
    X(GetMemObjectInfo)                                                                            \
    X(GetKernelWorkGroupInfo)                                                                      \
    X(EnqueueNDRangeKernel)

#define CLBI_CL_FNS_MAP(X)                                                                         \
    X(GetPlatformIDs)                                                                              \
    X(GetPlatformInfo)                                                                             \
    X(GetDeviceIDs)                                                                                \
    X(GetDeviceInfo)                                                                               \
    X(CreateContext)                                                                               \
    X(RetainContext)                                                                               \
    X(ReleaseContext)                                                                              \
    X(GetContextInfo)                                                                              \
    X(CreateCommandQueue)                                                                          \
    X(RetainCommandQueue)                                                                          \
    X(ReleaseCommandQueue)                                                                         \
    X(GetCommandQueueInfo)                                                                         \
    X(CreateBuffer)                                                                                \
    X(ReleaseMemObject)                                                                            \
    X(EnqueueMapBuffer)                                                                            \
    X(EnqueueUnmapMemObject)                                                                       \
    X(EnqueueMarkerWithWaitList)                                                                   \
    X(Flush)                                                                                       \
    X(GetEventInfo)                                                                                \
    X(RetainEvent)                                                                                 \
    X(ReleaseEvent)                                                                                \
    X(SetEventCallback)                                                                            \
    CLBI_CL_KERNEL_FNS_MAP(X)

struct clbi_cl_fns {
#define CLBI_CL_FN_MEMBER_(name) __typeof__(&cl##name) name;
    CLBI_CL_FNS_MAP(CLBI_CL_FN_MEMBER_)
#undef CLBI_CL_FN_MEMBER_
};

/* The functions of the ICD loader that the library is linked with. */
extern const struct clbi_cl_fns clbi_cl_loader_fns;

/* Name of an OpenCL error code, e.g. "CL_OUT_OF_RESOURCES"; "unknown error" otherwise. */
const char *clbi_cl_error_name(cl_int code);

/* The runtime is out of memory: it says so in several ways, and no single code can be relied on. */
int clbi_cl_is_nomem(cl_int code);

/* CLB_ERR_NOMEM for these, else CLB_ERR_CL. */
int clbi_cl_err(cl_int code);

#endif
