/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the double. */
#include "double_int.h"

#include <time.h>

static int the_platform;

/* ---- commands -------------------------------------------------------------------------------- */

struct event *dbli_command(struct queue *q, enum command what, enum dbl_fn fn, struct mem *m,
                           cl_uint num_wait, const cl_event *wait, cl_event *ev)
{
    struct event *e = dbli_obj_new(KIND_EVENT, sizeof(*e));
    cl_uint i;

    dbl.events_created++;
    dbl.events_live++;
    e->queue = q;
    q->obj.refs++;
    e->command = what;
    e->status = CL_QUEUED;
    e->seq = ++dbl.seq;
    e->mem = m;
    if (m)
        m->obj.refs++;
    if (fn < DBL_FN_COUNT && dbl.fail_event[fn].times > 0 &&
        dbl.calls[fn] >= dbl.fail_event[fn].at &&
        dbl.calls[fn] < dbl.fail_event[fn].at + dbl.fail_event[fn].times)
        e->fail = dbl.fail_event[fn].code;
    if (num_wait > 0) {
        e->wait = calloc(num_wait, sizeof(*e->wait));
        if (!e->wait)
            abort();
        for (i = 0; i < num_wait; i++) {
            if (!dbli_obj_is(wait[i], KIND_EVENT, "wait list"))
                abort();
            e->wait[e->num_wait++] = (struct event *)(void *)wait[i];
            ((struct obj *)(void *)wait[i])->refs++;
        }
    }
    if (q->tail)
        q->tail->next_cmd = e;
    else
        q->head = e;
    q->tail = e;
    if (ev) {
        e->obj.refs++; /* one for the caller, one for the queue */
        *ev = (cl_event)(void *)e;
    }
    return e;
}

cl_int dbl_enqueue(cl_command_queue queue, const struct dbl_kernel *kernel, cl_event *ev)
{
    struct event *e;
    struct mem *m = (struct mem *)(void *)kernel->arg;

    pthread_mutex_lock(&dbl.lock);
    if (!dbli_obj_is(queue, KIND_QUEUE, "kernel") ||
        (m && !dbli_obj_is(m, KIND_MEM, "kernel argument"))) {
        pthread_mutex_unlock(&dbl.lock);
        return CL_INVALID_VALUE;
    }
    e = dbli_command((struct queue *)(void *)queue, CMD_KERNEL, DBL_FN_COUNT, m, kernel->num_wait,
                     kernel->wait, ev);
    e->kernel = *kernel;
    e->fail = kernel->fail;
    if (m)
        m->kernels++;
    pthread_mutex_unlock(&dbl.lock);
    return CL_SUCCESS;
}

static void *CL_API_CALL dblEnqueueMapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                             cl_map_flags flags, size_t offset, size_t size,
                                             cl_uint num_wait, const cl_event *wait, cl_event *ev,
                                             cl_int *err)
{
    struct queue *q = (struct queue *)(void *)queue;
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = dbli_enter(DBL_EnqueueMapBuffer);
    void *ptr = NULL;

    if (blocking)
        dbli_violation("a blocking map");
    if (num_wait > 0 || wait)
        dbli_violation("a wait list on a map");
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!dbli_obj_is(q, KIND_QUEUE, "map") || !dbli_obj_is(m, KIND_MEM, "map") ||
            offset + size > m->size) {
            code = CL_INVALID_VALUE;
        } else if (q->dead) {
            code = q->dead;
        } else {
            size_t align = dbl.align ? dbl.align : 1, odd;

            if (m->ptr)
                dbli_violation("a second map of one buffer");
            if (m->kernels > 0)
                dbli_violation("a map under %u kernels", m->kernels);
            m->block = malloc(m->size + 4 * align);
            if (!m->block)
                abort();
            odd = ((uintptr_t)m->block + align - 1) / align | 1; /* an odd multiple, no more */
            m->ptr = (unsigned char *)(odd * align);
            if (flags & CL_MAP_READ)
                memcpy(m->ptr, m->device, m->size);
            else
                memset(m->ptr, 0xA5, dbl.cheap && m->size > 4096 ? 4096 : m->size);
            dbl.mapped++;
            ptr = m->ptr + offset;
            dbli_command(q, CMD_MAP, DBL_EnqueueMapBuffer, m, 0, NULL, ev);
        }
    }
    dbli_leave();
    if (err)
        *err = code;
    return ptr;
}

static cl_int CL_API_CALL dblEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem, void *ptr,
                                                   cl_uint num_wait, const cl_event *wait,
                                                   cl_event *ev)
{
    struct queue *q = (struct queue *)(void *)queue;
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = dbli_enter(DBL_EnqueueUnmapMemObject);

    if (code != CL_SUCCESS && m)
        m->doubt = true;
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!dbli_obj_is(q, KIND_QUEUE, "unmap") || !dbli_obj_is(m, KIND_MEM, "unmap")) {
            code = CL_INVALID_VALUE;
        } else if (!m->ptr || m->unmapping || ptr != m->ptr) {
            dbli_violation("an unmap of what is not mapped there");
            code = CL_INVALID_VALUE;
        } else {
            struct event *e =
                dbli_command(q, CMD_UNMAP, DBL_EnqueueUnmapMemObject, m, num_wait, wait, ev);

            e->block = m->block;
            e->ptr = m->ptr;
            m->unmapping = true;
        }
    }
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint num_wait,
                                                       const cl_event *wait, cl_event *ev)
{
    cl_int code = dbli_enter(DBL_EnqueueMarkerWithWaitList);

    if (code == DBL_NULL_SUCCESS)
        code = CL_SUCCESS;
    else if (code == CL_SUCCESS && !dbli_obj_is(queue, KIND_QUEUE, "marker"))
        code = CL_INVALID_COMMAND_QUEUE;
    else if (code == CL_SUCCESS)
        dbli_command((struct queue *)(void *)queue, CMD_MARKER, DBL_EnqueueMarkerWithWaitList, NULL,
                     num_wait, wait, ev);
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblFlush(cl_command_queue queue)
{
    struct queue *q = (struct queue *)(void *)queue;
    cl_int code = dbli_enter(DBL_Flush);
    struct event *e;

    if (code == CL_SUCCESS && !dbli_obj_is(q, KIND_QUEUE, "flush")) {
        code = CL_INVALID_COMMAND_QUEUE;
    } else if (code == CL_SUCCESS) {
        for (e = q->head; e; e = e->next_cmd)
            e->flushed = true;
        while (dbl.eager && dbli_step_locked())
            ;
        pthread_cond_broadcast(&dbl.cond);
    }
    dbli_leave();
    return code;
}

/* ---- events ---------------------------------------------------------------------------------- */

static cl_int CL_API_CALL dblGetEventInfo(cl_event ev, cl_event_info what, size_t size, void *out,
                                          size_t *ret)
{
    struct event *e = (struct event *)(void *)ev;
    cl_int code = dbli_enter(DBL_GetEventInfo);

    (void)ret;
    if (code == CL_SUCCESS && !dbli_obj_is(e, KIND_EVENT, "event status"))
        code = CL_INVALID_EVENT;
    else if (code == CL_SUCCESS && what == CL_EVENT_COMMAND_EXECUTION_STATUS &&
             size == sizeof(cl_int))
        memcpy(out, &e->status, sizeof(cl_int));
    else if (code == CL_SUCCESS)
        code = CL_INVALID_VALUE;
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblRetainEvent(cl_event ev)
{
    cl_int code = dbli_enter(DBL_RetainEvent);

    if (code == CL_SUCCESS && !dbli_obj_is(ev, KIND_EVENT, "retain event"))
        code = CL_INVALID_EVENT;
    else if (code == CL_SUCCESS)
        ((struct obj *)(void *)ev)->refs++;
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblReleaseEvent(cl_event ev)
{
    cl_int code = dbli_enter(DBL_ReleaseEvent);

    if (code == CL_SUCCESS && !dbli_obj_is(ev, KIND_EVENT, "release event"))
        code = CL_INVALID_EVENT;
    else if (code == CL_SUCCESS)
        dbli_event_unref((struct event *)(void *)ev);
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblSetEventCallback(cl_event ev, cl_int type,
                                              void(CL_CALLBACK *fn)(cl_event, cl_int, void *),
                                              void *priv)
{
    struct event *e = (struct event *)(void *)ev;
    cl_int code = dbli_enter(DBL_SetEventCallback);
    struct callback *cb;

    if (code == CL_SUCCESS && (!dbli_obj_is(e, KIND_EVENT, "callback") || type != CL_COMPLETE))
        code = CL_INVALID_EVENT;
    if (code == CL_SUCCESS) {
        cb = calloc(1, sizeof(*cb));
        if (!cb)
            abort();
        cb->fn = fn;
        cb->priv = priv;
        cb->next = e->callbacks;
        e->callbacks = cb;
        e->obj.refs++;
        if (dbl.callbacks == DBL_CB_INLINE)
            while (e->status > 0 && dbli_step_locked())
                ;
        if (e->status <= 0)
            dbli_run_callbacks(e);
        dbli_event_unref(e);
    }
    dbli_leave();
    return code;
}

/* ---- buffers, queues, contexts --------------------------------------------------------------- */

static cl_mem CL_API_CALL dblCreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                                          void *host, cl_int *err)
{
    cl_int code = dbli_enter(DBL_CreateBuffer);
    struct timespec time = {0};
    struct mem *m = NULL;

    if (flags &
        ((cl_mem_flags)(CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY)))
        dbli_violation("a CL_MEM_HOST_ flag");
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        const bool copies = (flags & CL_MEM_COPY_HOST_PTR) != 0;

        if (!dbli_obj_is(context, KIND_CONTEXT, "create buffer") || copies != (host != NULL)) {
            code = CL_INVALID_VALUE;
        } else if (size == 0 || size > dbl.max_alloc) {
            code = CL_INVALID_BUFFER_SIZE;
        } else {
            m = dbli_obj_new(KIND_MEM, sizeof(*m));
            m->context = (struct context *)(void *)context;
            m->context->obj.refs++;
            m->size = size;
            m->device = calloc(1, size);
            if (!m->device)
                abort();
            if (copies)
                memcpy(m->device, host, size);
            dbl.mems++;
        }
    }
    time.tv_nsec = (long)dbl.create_time;
    dbli_leave();
    if (time.tv_nsec > 0)
        nanosleep(&time, NULL);
    if (err)
        *err = code;
    return (cl_mem)(void *)m;
}

static cl_int CL_API_CALL dblReleaseMemObject(cl_mem mem)
{
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = dbli_enter(DBL_ReleaseMemObject);

    if (code == CL_SUCCESS && !dbli_obj_is(m, KIND_MEM, "release buffer")) {
        code = CL_INVALID_MEM_OBJECT;
    } else if (code == CL_SUCCESS) {
        if (m->unmapping)
            dbli_violation("a buffer is released before its unmap has ended");
        else if (m->ptr && !m->doubt)
            dbli_violation("a mapped buffer is released");
        dbli_mem_unref(m);
    }
    dbli_leave();
    return code;
}

static cl_command_queue CL_API_CALL dblCreateCommandQueue(cl_context context, cl_device_id device,
                                                          cl_command_queue_properties props,
                                                          cl_int *err)
{
    cl_int code = dbli_enter(DBL_CreateCommandQueue);
    struct queue *q = NULL, **link;

    (void)device;
    (void)props;
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS && dbli_obj_is(context, KIND_CONTEXT, "create queue")) {
        q = dbli_obj_new(KIND_QUEUE, sizeof(*q));
        q->context = (struct context *)(void *)context;
        q->context->obj.refs++;
        link = &dbl.queues;
        while (*link)
            link = &(*link)->next_queue;
        *link = q;
        dbl.num_queues++;
    }
    dbli_leave();
    if (err)
        *err = code;
    return (cl_command_queue)(void *)q;
}

static cl_int CL_API_CALL dblRetainCommandQueue(cl_command_queue queue)
{
    cl_int code = dbli_enter(DBL_RetainCommandQueue);

    if (code == CL_SUCCESS && !dbli_obj_is(queue, KIND_QUEUE, "retain queue"))
        code = CL_INVALID_COMMAND_QUEUE;
    else if (code == CL_SUCCESS)
        ((struct obj *)(void *)queue)->refs++;
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblReleaseCommandQueue(cl_command_queue queue)
{
    struct queue *q = (struct queue *)(void *)queue;
    cl_int code = dbli_enter(DBL_ReleaseCommandQueue);
    struct event *e;

    if (code == CL_SUCCESS && !dbli_obj_is(q, KIND_QUEUE, "release queue")) {
        code = CL_INVALID_COMMAND_QUEUE;
    } else if (code == CL_SUCCESS) {
        for (e = q->head; e; e = e->next_cmd) /* an implicit flush */
            e->flushed = true;
        dbli_queue_unref(q);
        while (dbl.eager && dbli_step_locked())
            ;
        pthread_cond_broadcast(&dbl.cond);
    }
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info what,
                                                 size_t size, void *out, size_t *ret)
{
    struct queue *q = (struct queue *)(void *)queue;
    cl_int code = dbli_enter(DBL_GetCommandQueueInfo);
    cl_context context;
    cl_device_id id = dbl_device();

    (void)ret;
    if (code == CL_SUCCESS && !dbli_obj_is(q, KIND_QUEUE, "queue info"))
        code = CL_INVALID_COMMAND_QUEUE;
    if (code == CL_SUCCESS && size == sizeof(void *)) {
        context = (cl_context)(void *)q->context;
        if (what == CL_QUEUE_CONTEXT)
            memcpy(out, &context, sizeof(context));
        else
            memcpy(out, &id, sizeof(id));
    }
    dbli_leave();
    return code;
}

static cl_context CL_API_CALL dblCreateContext(
    const cl_context_properties *props, cl_uint n, const cl_device_id *devices,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *priv, cl_int *err)
{
    cl_int code = dbli_enter(DBL_CreateContext);
    struct context *c = NULL;

    (void)props, (void)n, (void)devices, (void)notify, (void)priv;
    if (code == CL_SUCCESS)
        c = dbli_obj_new(KIND_CONTEXT, sizeof(*c));
    dbli_leave();
    if (err)
        *err = code == DBL_NULL_SUCCESS ? CL_SUCCESS : code;
    return (cl_context)(void *)c;
}

static cl_int CL_API_CALL dblRetainContext(cl_context context)
{
    cl_int code = dbli_enter(DBL_RetainContext);

    if (code == CL_SUCCESS && dbli_obj_is(context, KIND_CONTEXT, "retain context"))
        ((struct obj *)(void *)context)->refs++;
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblReleaseContext(cl_context context)
{
    cl_int code = dbli_enter(DBL_ReleaseContext);

    if (code == CL_SUCCESS && dbli_obj_is(context, KIND_CONTEXT, "release context"))
        dbli_context_unref((struct context *)(void *)context);
    dbli_leave();
    return code;
}

/* ---- platform and device --------------------------------------------------------------------- */

static cl_int CL_API_CALL dblGetPlatformIDs(cl_uint cap, cl_platform_id *out, cl_uint *n)
{
    cl_int code = dbli_enter(DBL_GetPlatformIDs);

    if (code == CL_SUCCESS) {
        if (cap > 0 && out)
            out[0] = (cl_platform_id)(void *)&the_platform;
        if (n)
            *n = 1;
    }
    dbli_leave();
    return code;
}

static cl_int give(size_t size, void *out, size_t *ret, const void *value, size_t len)
{
    if (ret)
        *ret = len;
    if (!out)
        return CL_SUCCESS;
    if (size < len)
        return CL_INVALID_VALUE;
    memcpy(out, value, len);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL dblGetPlatformInfo(cl_platform_id platform, cl_platform_info what,
                                             size_t size, void *out, size_t *ret)
{
    cl_int code = dbli_enter(DBL_GetPlatformInfo);

    (void)platform, (void)what;
    if (code == CL_SUCCESS)
        code = give(size, out, ret, "Double", 7);
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint cap,
                                          cl_device_id *out, cl_uint *n)
{
    cl_int code = dbli_enter(DBL_GetDeviceIDs);

    (void)platform, (void)type;
    if (code == CL_SUCCESS && dbl.no_device)
        code = CL_DEVICE_NOT_FOUND;
    if (code == CL_SUCCESS) {
        if (cap > 0 && out)
            out[0] = dbl_device();
        if (n)
            *n = 1;
    }
    dbli_leave();
    return code;
}

static cl_int CL_API_CALL dblGetDeviceInfo(cl_device_id id, cl_device_info what, size_t size,
                                           void *out, size_t *ret)
{
    cl_int code = dbli_enter(DBL_GetDeviceInfo);
    cl_platform_id platform = (cl_platform_id)(void *)&the_platform;
    cl_device_type type = CL_DEVICE_TYPE_CPU;
    cl_ulong bytes = dbl.max_alloc;
    cl_bool yes = CL_TRUE;
    cl_uint bits = 1024;

    (void)id;
    if (code == CL_SUCCESS) {
        switch (what) {
        case CL_DEVICE_NAME: code = give(size, out, ret, "double", 7); break;
        case CL_DEVICE_VENDOR: code = give(size, out, ret, "tests", 6); break;
        case CL_DRIVER_VERSION: code = give(size, out, ret, "1", 2); break;
        case CL_DEVICE_VERSION: code = give(size, out, ret, "OpenCL 1.2", 11); break;
        case CL_DEVICE_EXTENSIONS: code = give(size, out, ret, "cl_khr_fp16 cl_x", 17); break;
        case CL_DEVICE_TYPE: code = give(size, out, ret, &type, sizeof(type)); break;
        case CL_DEVICE_PLATFORM: code = give(size, out, ret, &platform, sizeof(platform)); break;
        case CL_DEVICE_AVAILABLE:
        case CL_DEVICE_HOST_UNIFIED_MEMORY: code = give(size, out, ret, &yes, sizeof(yes)); break;
        case CL_DEVICE_MEM_BASE_ADDR_ALIGN: code = give(size, out, ret, &bits, sizeof(bits)); break;
        case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        case CL_DEVICE_GLOBAL_MEM_SIZE: code = give(size, out, ret, &bytes, sizeof(bytes)); break;
        default: code = CL_INVALID_VALUE; break;
        }
    }
    dbli_leave();
    return code;
}

const struct clbi_cl_fns dbl_fns = {.GetPlatformIDs = dblGetPlatformIDs,
                                    .GetPlatformInfo = dblGetPlatformInfo,
                                    .GetDeviceIDs = dblGetDeviceIDs,
                                    .GetDeviceInfo = dblGetDeviceInfo,
                                    .CreateContext = dblCreateContext,
                                    .RetainContext = dblRetainContext,
                                    .ReleaseContext = dblReleaseContext,
                                    .CreateCommandQueue = dblCreateCommandQueue,
                                    .RetainCommandQueue = dblRetainCommandQueue,
                                    .ReleaseCommandQueue = dblReleaseCommandQueue,
                                    .GetCommandQueueInfo = dblGetCommandQueueInfo,
                                    .CreateBuffer = dblCreateBuffer,
                                    .ReleaseMemObject = dblReleaseMemObject,
                                    .EnqueueMapBuffer = dblEnqueueMapBuffer,
                                    .EnqueueUnmapMemObject = dblEnqueueUnmapMemObject,
                                    .EnqueueMarkerWithWaitList = dblEnqueueMarkerWithWaitList,
                                    .Flush = dblFlush,
                                    .GetEventInfo = dblGetEventInfo,
                                    .RetainEvent = dblRetainEvent,
                                    .ReleaseEvent = dblReleaseEvent,
                                    .SetEventCallback = dblSetEventCallback,
#define DBL_ENTRY_(name) .name = dbli_##name,
                                    CLBI_CL_KERNEL_FNS_MAP(DBL_ENTRY_)
#undef DBL_ENTRY_
};
