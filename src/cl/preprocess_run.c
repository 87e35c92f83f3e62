/* SPDX-License-Identifier: Apache-2.0 */
/* A recipe applied to frames: checks, arguments, enqueue, record, flush. See preprocess_int.h. */
#include "preprocess_int.h"

#include <string.h>

#include "pool.h"
#include "util.h"

/* For a kernel whose use could not be recorded. */
#define FINISH_NS (2 * CLBI_CL_SEC)

/* One call of the user's. */
struct run {
    clb_preprocess *pp;
    cl_command_queue queue;
    clb_cl_frame *const *frames;
    cl_uint n;
    cl_mem tensor;
    size_t byte_offset;
    size_t stride;
};

static const struct clb_image *layout_of(const clb_preprocess *pp, const clb_cl_frame *frame)
{
    return pp->params.src ? pp->params.src : clb_cl_frame_image(frame);
}

/* The frames by themselves and against one another. *available: bytes that all of them have. */
static int check_frames(const struct run *run, size_t *available)
{
    const clb_preprocess *pp = run->pp;
    const struct clb_image *first = layout_of(pp, run->frames[0]);

    *available = SIZE_MAX;
    for (cl_uint i = 0; i < run->n; i++) {
        clb_cl_frame *frame = run->frames[i];
        const struct clb_image *img = layout_of(pp, frame);

        if (frame->pool->dev->context != pp->context)
            return clbi_pp_refuse(pp, CLB_ERR_INVAL,
                                  "the frame's device and the recipe's are different");
        if (clb_cl_frame_mem(frame) == run->tensor)
            return clbi_pp_refuse(pp, CLB_ERR_INVAL, "the tensor is the frame itself");
        for (cl_uint k = 0; k < i; k++)
            if (run->frames[k] == frame ||
                clb_cl_frame_mem(run->frames[k]) == clb_cl_frame_mem(frame))
                return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                                    "preprocess: frames %u and %u are the same", (unsigned)k,
                                    (unsigned)i);
        if (!img != !first || (img && memcmp(img, first, sizeof *img) != 0))
            return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                                "preprocess: frame %u has another layout than the first",
                                (unsigned)i);
        if (clb_cl_frame_size(frame) < *available)
            *available = clb_cl_frame_size(frame);
    }
    return CLB_OK;
}

/* A stride of 0 becomes what it stands for. */
static int check_tensor(struct run *run, size_t bytes)
{
    const clb_preprocess *pp = run->pp;
    const struct clbi_cl_fns *fns = pp->fns;
    const size_t unit = clbi_type_bytes(pp->params.type);
    cl_mem_object_type type = 0;
    cl_context context = NULL;
    size_t size = 0;
    cl_int rc;

    rc = fns->GetMemObjectInfo(run->tensor, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (rc == CL_SUCCESS)
        rc = fns->GetMemObjectInfo(run->tensor, CL_MEM_TYPE, sizeof type, &type, NULL);
    if (rc == CL_SUCCESS)
        rc = fns->GetMemObjectInfo(run->tensor, CL_MEM_CONTEXT, sizeof context, &context, NULL);
    if (rc != CL_SUCCESS)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, rc,
                            "preprocess: the tensor is unusable");
    if (type != CL_MEM_OBJECT_BUFFER)
        return clbi_pp_refuse(pp, CLB_ERR_INVAL, "the tensor is not a buffer");
    if (context != pp->context)
        return clbi_pp_refuse(pp, CLB_ERR_INVAL,
                              "the tensor's context is not that of the recipe's device");
    if (!run->stride)
        run->stride = bytes;
    if (run->byte_offset % unit || run->stride % unit)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: offset %zu or stride %zu is no multiple of a value's %zu "
                            "bytes",
                            run->byte_offset, run->stride, unit);
    if (run->stride < bytes)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: results of %zu bytes overlap with a stride of %zu", bytes,
                            run->stride);
    if (run->byte_offset > size || bytes > size - run->byte_offset ||
        (run->n - 1) > (size - run->byte_offset - bytes) / run->stride)
        return clbi_cl_fail(
            NULL, &pp->log, CLB_ERR_TOOBIG, 0,
            "preprocess: %u x %zu bytes, each %zu behind the last, at offset %zu do "
            "not fit a tensor of %zu",
            (unsigned)run->n, bytes, run->stride, run->byte_offset, size);
    return CLB_OK;
}

/* pp->lock is held. Parameters for frames beyond n get the first: nothing reads them. */
static int enqueue(const struct run *run, struct clbi_plan *plan, int which, cl_event *event)
{
    clb_preprocess *pp = run->pp;
    struct clbi_launch *launch = &plan->launch[which];
    cl_event ready[CLB_PREPROCESS_MAX_BATCH];
    cl_int err;

    for (uint32_t i = 0; i < launch->sources; i++) {
        const cl_uint at = i ? launch->more_at + i - 1 : CLBI_ARG_SRC;
        const int rc = clb_cl_frame_set_arg(run->frames[i < run->n ? i : 0], launch->kernel, at);

        if (rc < 0)
            return rc;
    }
    for (cl_uint i = 0; i < run->n; i++)
        ready[i] = clb_cl_frame_ready(run->frames[i]);
    err = clbi_plan_enqueue(pp, plan, which, run->n, run->queue, run->tensor, run->byte_offset,
                            run->stride, run->n, ready, event);
    if (err != CL_SUCCESS)
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(err), err,
                            "preprocess: the kernel was not enqueued");
    return CLB_OK;
}

/* The kernel is on its way: whatever happens now, no frame may go home before it has ended. */
static int record(const struct run *run, cl_event event)
{
    const clb_preprocess *pp = run->pp;
    bool recorded = true;
    cl_int err;

    for (cl_uint i = 0; i < run->n; i++)
        if (clb_cl_frame_used(run->frames[i], 1, &event) < 0)
            recorded = false;
    err = pp->fns->Flush(run->queue);
    if (!event) /* the frames know that they must not trust their buffers */
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_CL, CL_INVALID_EVENT,
                            "preprocess: the kernel was enqueued, but without an event");
    if (!recorded) {
        clbi_cl_log(&pp->log, CLB_LOG_WARN, "preprocess: the use was not recorded: waiting for it");
        (void)clbi_pp_wait(pp->fns, event, FINISH_NS);
    }
    if (err != CL_SUCCESS)
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(err), err, "preprocess: clFlush failed");
    return CLB_OK;
}

static int apply(struct run *run, cl_event *done)
{
    clb_preprocess *pp = run->pp;
    const int which = run->n > 1 ? CLBI_BATCH : CLBI_SINGLE;
    const struct clb_image *img = layout_of(pp, run->frames[0]);
    struct clbi_geometry g;
    struct clbi_plan *plan;
    cl_event event = NULL;
    size_t available;
    int rc = check_frames(run, &available);

    if (rc == CLB_OK)
        rc = clbi_plan_geometry(pp, img, available, &g);
    if (rc == CLB_OK)
        rc = check_tensor(run, g.out.bytes);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&pp->lock);
    rc = clbi_plan_get(pp, img, &g, which, &plan);
    if (rc == CLB_OK)
        rc = enqueue(run, plan, which, &event);
    pthread_mutex_unlock(&pp->lock);
    if (rc < 0)
        return rc;
    rc = record(run, event);
    if (rc == CLB_OK && done)
        *done = event;
    else if (event)
        pp->fns->ReleaseEvent(event);
    return rc;
}

int clb_preprocess_run(clb_preprocess *pp, cl_command_queue queue, clb_cl_frame *frame,
                       cl_mem tensor, size_t byte_offset, cl_event *done)
{
    return clb_preprocess_run_batch(pp, queue, &frame, 1, tensor, byte_offset, 0, done);
}

int clb_preprocess_run_batch(clb_preprocess *pp, cl_command_queue queue,
                             clb_cl_frame *const *frames, cl_uint n, cl_mem tensor,
                             size_t byte_offset, size_t stride, cl_event *done)
{
    struct run run = {.pp = pp,
                      .queue = queue,
                      .frames = frames,
                      .n = n,
                      .tensor = tensor,
                      .byte_offset = byte_offset,
                      .stride = stride};

    if (!pp)
        return CLB_ERR_INVAL;
    if (!queue || !frames || !tensor)
        return clbi_pp_refuse(pp, CLB_ERR_INVAL, "queue, frame or tensor is missing");
    if (n < 1 || n > (pp->params.batch ? pp->params.batch : 1))
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: %u frames: the recipe's batch is %u", (unsigned)n,
                            (unsigned)(pp->params.batch ? pp->params.batch : 1));
    for (cl_uint i = 0; i < n; i++)
        if (!frames[i])
            return clbi_pp_refuse(pp, CLB_ERR_INVAL, "queue, frame or tensor is missing");
    return apply(&run, done);
}
