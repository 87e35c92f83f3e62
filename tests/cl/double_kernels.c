/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and kernels of the double: enough for a recipe of clbridge/preprocess.h. */
#include "double_int.h"

#define ARGS 64

struct program {
    struct obj obj;
    struct context *context;
    bool built;
};

struct kernel {
    struct obj obj;
    struct program *program;
    bool set[ARGS];
    cl_mem buffer[2]; /* arguments 0 and 1; not referenced, as in OpenCL */
};

static void program_unref(struct program *p)
{
    if (!dbli_unref(&p->obj))
        return;
    dbli_context_unref(p->context);
    dbli_bury(&p->obj);
}

cl_program CL_API_CALL dbli_CreateProgramWithSource(cl_context context, cl_uint n,
                                                    const char **source, const size_t *length,
                                                    cl_int *err)
{
    cl_int code = dbli_enter(DBL_CreateProgramWithSource);
    struct program *p = NULL;

    (void)length;
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!dbli_obj_is(context, KIND_CONTEXT, "create program") || n == 0 || !source) {
            code = CL_INVALID_VALUE;
        } else {
            p = dbli_obj_new(KIND_PROGRAM, sizeof(*p));
            p->context = (struct context *)(void *)context;
            p->context->obj.refs++;
        }
    }
    dbli_leave();
    if (err)
        *err = code;
    return (cl_program)(void *)p;
}

cl_int CL_API_CALL dbli_BuildProgram(cl_program program, cl_uint n, const cl_device_id *devices,
                                     const char *options,
                                     void(CL_CALLBACK *notify)(cl_program, void *), void *priv)
{
    struct program *p = (struct program *)(void *)program;
    cl_int code = dbli_enter(DBL_BuildProgram);

    (void)n, (void)devices, (void)options, (void)notify, (void)priv;
    if (code == CL_SUCCESS && !dbli_obj_is(p, KIND_PROGRAM, "build"))
        code = CL_INVALID_PROGRAM;
    else if (code == CL_SUCCESS)
        p->built = true;
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_GetProgramBuildInfo(cl_program program, cl_device_id device,
                                            cl_program_build_info what, size_t size, void *out,
                                            size_t *ret)
{
    static const char text[] = "line 1: no\n";
    cl_int code = dbli_enter(DBL_GetProgramBuildInfo);

    (void)device;
    if (code == CL_SUCCESS && !dbli_obj_is(program, KIND_PROGRAM, "build info")) {
        code = CL_INVALID_PROGRAM;
    } else if (code == CL_SUCCESS &&
               (what != CL_PROGRAM_BUILD_LOG || (out && size < sizeof(text)))) {
        code = CL_INVALID_VALUE;
    } else if (code == CL_SUCCESS) {
        if (ret)
            *ret = sizeof(text);
        if (out)
            memcpy(out, text, sizeof(text));
    }
    dbli_leave();
    return code;
}

/* A binary of the double: a word that only the double writes. */
static const char binary[] = "double's program";

cl_program CL_API_CALL dbli_CreateProgramWithBinary(cl_context context, cl_uint n,
                                                    const cl_device_id *devices,
                                                    const size_t *length,
                                                    const unsigned char **bytes, cl_int *status,
                                                    cl_int *err)
{
    cl_int code = dbli_enter(DBL_CreateProgramWithBinary);
    struct program *p = NULL;

    (void)devices;
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        const bool good = n == 1 && length && bytes && length[0] == sizeof(binary) &&
                          memcmp(bytes[0], binary, sizeof(binary)) == 0;

        if (!dbli_obj_is(context, KIND_CONTEXT, "create program")) {
            code = CL_INVALID_VALUE;
        } else if (!good) {
            code = CL_INVALID_BINARY;
        } else {
            p = dbli_obj_new(KIND_PROGRAM, sizeof(*p));
            p->context = (struct context *)(void *)context;
            p->context->obj.refs++;
        }
        if (status)
            *status = code;
    }
    dbli_leave();
    if (err)
        *err = code;
    return (cl_program)(void *)p;
}

cl_int CL_API_CALL dbli_GetProgramInfo(cl_program program, cl_program_info what, size_t size,
                                       void *out, size_t *ret)
{
    cl_int code = dbli_enter(DBL_GetProgramInfo);
    const size_t bytes = sizeof(binary);
    const cl_uint one = 1;
    const cl_device_id device = dbl_device();

    (void)ret;
    if (code == CL_SUCCESS && !dbli_obj_is(program, KIND_PROGRAM, "program info"))
        code = CL_INVALID_PROGRAM;
    else if (code == CL_SUCCESS && what == CL_PROGRAM_NUM_DEVICES && size == sizeof(one))
        memcpy(out, &one, sizeof(one));
    else if (code == CL_SUCCESS && what == CL_PROGRAM_DEVICES && size == sizeof(device))
        memcpy(out, &device, sizeof(device));
    else if (code == CL_SUCCESS && what == CL_PROGRAM_BINARY_SIZES && size == sizeof(bytes))
        memcpy(out, &bytes, sizeof(bytes));
    else if (code == CL_SUCCESS && what == CL_PROGRAM_BINARIES && size == sizeof(unsigned char *))
        memcpy(*(unsigned char **)out, binary, sizeof(binary));
    else if (code == CL_SUCCESS)
        code = CL_INVALID_VALUE;
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_RetainProgram(cl_program program)
{
    cl_int code = dbli_enter(DBL_RetainProgram);

    if (code == CL_SUCCESS && !dbli_obj_is(program, KIND_PROGRAM, "retain program"))
        code = CL_INVALID_PROGRAM;
    else if (code == CL_SUCCESS)
        ((struct program *)(void *)program)->obj.refs++;
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_ReleaseProgram(cl_program program)
{
    cl_int code = dbli_enter(DBL_ReleaseProgram);

    if (code == CL_SUCCESS && !dbli_obj_is(program, KIND_PROGRAM, "release program"))
        code = CL_INVALID_PROGRAM;
    else if (code == CL_SUCCESS)
        program_unref((struct program *)(void *)program);
    dbli_leave();
    return code;
}

cl_kernel CL_API_CALL dbli_CreateKernel(cl_program program, const char *name, cl_int *err)
{
    struct program *p = (struct program *)(void *)program;
    cl_int code = dbli_enter(DBL_CreateKernel);
    struct kernel *k = NULL;

    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!dbli_obj_is(p, KIND_PROGRAM, "create kernel") || !p->built || !name) {
            dbli_violation("a kernel of a program that is not built");
            code = CL_INVALID_PROGRAM_EXECUTABLE;
        } else {
            k = dbli_obj_new(KIND_KERNEL, sizeof(*k));
            k->program = p;
            p->obj.refs++;
        }
    }
    dbli_leave();
    if (err)
        *err = code;
    return (cl_kernel)(void *)k;
}

cl_int CL_API_CALL dbli_ReleaseKernel(cl_kernel kernel)
{
    struct kernel *k = (struct kernel *)(void *)kernel;
    cl_int code = dbli_enter(DBL_ReleaseKernel);

    if (code == CL_SUCCESS && !dbli_obj_is(k, KIND_KERNEL, "release kernel")) {
        code = CL_INVALID_KERNEL;
    } else if (code == CL_SUCCESS && dbli_unref(&k->obj)) {
        program_unref(k->program);
        dbli_bury(&k->obj);
    }
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_SetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *arg)
{
    struct kernel *k = (struct kernel *)(void *)kernel;
    cl_int code = dbli_enter(DBL_SetKernelArg);

    if (code == CL_SUCCESS && !dbli_obj_is(k, KIND_KERNEL, "kernel argument")) {
        code = CL_INVALID_KERNEL;
    } else if (code == CL_SUCCESS && (index >= ARGS || !arg)) {
        code = CL_INVALID_ARG_INDEX;
    } else if (code == CL_SUCCESS) {
        k->set[index] = true;
        if (index < 2 && size == sizeof(cl_mem)) {
            memcpy(&k->buffer[index], arg, sizeof(cl_mem));
            if (!dbli_obj_is(k->buffer[index], KIND_MEM, "kernel argument"))
                code = CL_INVALID_MEM_OBJECT;
        }
    }
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_GetMemObjectInfo(cl_mem mem, cl_mem_info what, size_t size, void *out,
                                         size_t *ret)
{
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = dbli_enter(DBL_GetMemObjectInfo);
    cl_mem_object_type type = CL_MEM_OBJECT_BUFFER;

    (void)ret;
    if (code == CL_SUCCESS && !dbli_obj_is(m, KIND_MEM, "buffer info"))
        code = CL_INVALID_MEM_OBJECT;
    else if (code == CL_SUCCESS && what == CL_MEM_SIZE && size == sizeof(m->size))
        memcpy(out, &m->size, sizeof(m->size));
    else if (code == CL_SUCCESS && what == CL_MEM_TYPE && size == sizeof(type))
        memcpy(out, &type, sizeof(type));
    else if (code == CL_SUCCESS && what == CL_MEM_CONTEXT && size == sizeof(m->context))
        memcpy(out, &m->context, sizeof(m->context));
    else if (code == CL_SUCCESS)
        code = CL_INVALID_VALUE;
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_GetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                               cl_kernel_work_group_info what, size_t size,
                                               void *out, size_t *ret)
{
    const size_t most = 32;
    cl_int code = dbli_enter(DBL_GetKernelWorkGroupInfo);

    (void)device, (void)ret;
    if (code == CL_SUCCESS && !dbli_obj_is(kernel, KIND_KERNEL, "kernel info"))
        code = CL_INVALID_KERNEL;
    else if (code == CL_SUCCESS && what == CL_KERNEL_WORK_GROUP_SIZE && size == sizeof(most))
        memcpy(out, &most, sizeof(most));
    else if (code == CL_SUCCESS)
        code = CL_INVALID_VALUE;
    dbli_leave();
    return code;
}

cl_int CL_API_CALL dbli_EnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dim,
                                             const size_t *offset, const size_t *global,
                                             const size_t *local, cl_uint num_wait,
                                             const cl_event *wait, cl_event *ev)
{
    struct kernel *k = (struct kernel *)(void *)kernel;
    cl_int code = dbli_enter(DBL_EnqueueNDRangeKernel);
    struct event *e;
    struct mem *m;

    (void)dim, (void)offset, (void)global, (void)local;
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!dbli_obj_is(queue, KIND_QUEUE, "run kernel") ||
            !dbli_obj_is(k, KIND_KERNEL, "run kernel")) {
            code = CL_INVALID_VALUE;
        } else if (!k->set[0] || !k->set[1] || !dbli_obj_is(k->buffer[0], KIND_MEM, "source") ||
                   !dbli_obj_is(k->buffer[1], KIND_MEM, "target")) {
            dbli_violation("a kernel without its arguments");
            code = CL_INVALID_KERNEL_ARGS;
        } else {
            m = (struct mem *)(void *)k->buffer[0];
            e = dbli_command((struct queue *)(void *)queue, CMD_KERNEL, DBL_EnqueueNDRangeKernel, m,
                             num_wait, wait, ev);
            e->kernel = (struct dbl_kernel){.fn = dbl.kernel_fn, .priv = dbl.kernel_priv};
            m->kernels++;
        }
    }
    dbli_leave();
    return code;
}
