/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: what a consumer holds. The last unref gives the slot to the worker and calls no OpenCL. */
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "util.h"

/* ---- objects --------------------------------------------------------------------------------- */

void clbi_cl_frame_init(struct clb_cl_frame *frame, clb_cl_pool *pool)
{
    frame->pool = pool;
    frame->used = frame->used_inline;
    frame->cap_used = CLBI_FRAME_EVENTS;
    pthread_mutex_init(&frame->lock, NULL);
}

void clbi_cl_frame_fini(struct clb_cl_frame *frame)
{
    pthread_mutex_destroy(&frame->lock);
    if (frame->used != frame->used_inline)
        free(frame->used);
}

struct clb_cl_frame *clbi_cl_frame_take(clb_cl_pool *pool)
{
    struct clb_cl_frame *frame;

    pthread_mutex_lock(&pool->lock);
    frame = pool->free_frames;
    if (frame)
        pool->free_frames = frame->next_free;
    pthread_mutex_unlock(&pool->lock);
    if (!frame) {
        frame = calloc(1, sizeof(*frame));
        if (!frame)
            return NULL;
        clbi_cl_frame_init(frame, pool);
        atomic_fetch_add(&pool->heap_allocs, 1);
    }
    frame->slot = NULL;
    frame->packet = NULL;
    frame->size = 0;
    frame->has_image = false;
    frame->unsure = false;
    frame->n_used = 0;
    atomic_store(&frame->refs, 1);
    return frame;
}

void clbi_cl_frame_put(struct clb_cl_frame *frame)
{
    clb_cl_pool *pool = frame->pool;

    pthread_mutex_lock(&pool->lock);
    frame->next_free = pool->free_frames;
    pool->free_frames = frame;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- claim ----------------------------------------------------------------------------------- */

/* HELD -> DEVICE. */
static int claim(struct clb_cl_frame *frame, struct clbi_slot *slot)
{
    clb_cl_pool *pool = frame->pool;
    int err = CLB_ERR_STATE;

    pthread_mutex_lock(&pool->lock);
    if (slot->state == CLBI_SLOT_HELD) {
        slot->state = CLBI_SLOT_DEVICE;
        slot->frame = frame;
        frame->slot = slot;
        frame->size = slot->written;
        err = CLB_OK;
    }
    pthread_mutex_unlock(&pool->lock);
    return err;
}

int clb_cl_frame_from_buf(clb_cl_frame **out, clb_cl_pool *pool, const struct clb_buf *buf)
{
    struct clb_cl_frame *frame;
    struct clbi_slot *slot;
    int err;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    if (!pool || !buf)
        return CLB_ERR_INVAL;
    slot = clbi_cl_pool_slot(pool, buf->context);
    if (!slot)
        return clbi_cl_fail(NULL, &pool->dev->log, CLB_ERR_INVAL, 0,
                            "the buffer does not come from this pool");
    frame = clbi_cl_frame_take(pool);
    if (!frame)
        return clbi_cl_fail(NULL, &pool->dev->log, CLB_ERR_NOMEM, 0, "no memory for a frame");
    err = claim(frame, slot);
    if (err != CLB_OK) {
        clbi_cl_frame_put(frame);
        return clbi_cl_fail(NULL, &pool->dev->log, err, 0,
                            "the buffer was not released, or is a frame already");
    }
    *out = frame;
    return CLB_OK;
}

int clb_cl_frame_from_packet(clb_cl_frame **out, clb_packet **packet)
{
    struct clb_allocator allocator;
    const struct clb_image *image;
    struct clb_cl_frame *frame;
    struct clb_buf buf;
    clb_cl_pool *pool;
    size_t size;
    int err;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    if (!packet || !*packet)
        return CLB_ERR_INVAL;
    allocator = clb_packet_allocator(*packet);
    pool = clbi_cl_pool_of(&allocator);
    if (!pool)
        return CLB_ERR_INVAL;
    frame = clbi_cl_frame_take(pool);
    if (!frame)
        return clbi_cl_fail(NULL, &pool->dev->log, CLB_ERR_NOMEM, 0, "no memory for a frame");
    size = clb_packet_size(*packet);
    err = clb_packet_release(*packet, &buf);
    if (err == CLB_OK) {
        /* Cannot fail: the buffer was released a moment ago and nobody else has it. */
        err = claim(frame, clbi_cl_pool_slot(pool, buf.context));
        if (err != CLB_OK)
            clb_buf_free(&allocator, &buf);
    }
    if (err != CLB_OK) {
        clbi_cl_frame_put(frame);
        return err;
    }
    frame->size = size;
    image = clb_packet_image(*packet);
    frame->has_image = image != NULL;
    if (image)
        frame->image = *image;
    frame->packet = *packet;
    *packet = NULL;
    *out = frame;
    return CLB_OK;
}

/* ---- references ------------------------------------------------------------------------------ */

clb_cl_frame *clb_cl_frame_ref(clb_cl_frame *frame)
{
    if (frame)
        atomic_fetch_add(&frame->refs, 1);
    return frame;
}

void clb_cl_frame_unref(clb_cl_frame **handle)
{
    clb_cl_frame *frame;
    clb_cl_pool *pool;

    if (!handle || !*handle)
        return;
    frame = *handle;
    *handle = NULL;
    if (atomic_fetch_sub(&frame->refs, 1) != 1)
        return;
    pool = frame->pool;
    /* The packet's memory is of the host and its buffer was released: nothing of OpenCL here. */
    clb_packet_free(&frame->packet);
    clbi_slot_retire(frame->slot);
    clbi_cl_pool_unref(pool); /* the reference that came with the buffer */
}

/* ---- what a frame knows ---------------------------------------------------------------------- */

cl_mem clb_cl_frame_mem(const clb_cl_frame *frame)
{
    return frame ? frame->slot->mem : NULL;
}

size_t clb_cl_frame_size(const clb_cl_frame *frame)
{
    return frame ? frame->size : 0;
}

cl_event clb_cl_frame_ready(const clb_cl_frame *frame)
{
    return frame ? frame->slot->ready : NULL;
}

int clb_cl_frame_set_arg(const clb_cl_frame *frame, cl_kernel kernel, cl_uint index)
{
    clb_cl_device *dev;
    cl_int code;

    if (!frame || !kernel)
        return CLB_ERR_INVAL;
    dev = frame->pool->dev;
    code = dev->fns->SetKernelArg(kernel, index, sizeof(cl_mem), &frame->slot->mem);
    return code == CL_SUCCESS ? CLB_OK
                              : clbi_cl_fail(NULL, &dev->log, CLB_ERR_CL, code,
                                             "cannot set kernel argument %u", index);
}

const struct clb_image *clb_cl_frame_image(const clb_cl_frame *frame)
{
    return frame && frame->has_image ? &frame->image : NULL;
}

int clb_cl_frame_set_image(clb_cl_frame *frame, const struct clb_image *image)
{
    int err;

    if (!frame)
        return CLB_ERR_INVAL;
    if (!image) {
        frame->has_image = false;
        return CLB_OK;
    }
    err = clb_image_check(image, frame->size);
    if (err != CLB_OK)
        return err;
    frame->image = *image;
    frame->has_image = true;
    return CLB_OK;
}

void clb_cl_frame_get_info(const clb_cl_frame *frame, clb_packet_info *out, size_t size)
{
    clb_packet_info info;

    if (frame && frame->packet) {
        clb_packet_get_info(frame->packet, out, size);
        return;
    }
    memset(&info, 0, sizeof(info));
    if (frame)
        info.size = frame->size;
    clbi_cl_output_copy(out, size, &info, sizeof(info));
}

const void *clb_cl_frame_metadata(const clb_cl_frame *frame, size_t *size)
{
    if (frame && frame->packet)
        return clb_packet_metadata(frame->packet, size);
    if (size)
        *size = 0;
    return NULL;
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Room for n more events; frame->lock is held. */
static bool make_room(struct clb_cl_frame *frame, cl_uint n)
{
    cl_uint cap = frame->cap_used;
    cl_event *used;

    if (n > UINT32_MAX / 4 - frame->n_used)
        return false;
    while (cap < frame->n_used + n)
        cap *= 2;
    if (cap == frame->cap_used)
        return true;
    used = calloc(cap, sizeof(*used));
    if (!used)
        return false;
    memcpy(used, frame->used, frame->n_used * sizeof(*used));
    if (frame->used != frame->used_inline)
        free(frame->used);
    frame->used = used;
    frame->cap_used = cap; /* kept when the frame is recycled */
    atomic_fetch_add(&frame->pool->heap_allocs, 1);
    return true;
}

static int unsure(struct clb_cl_frame *frame, int err, cl_int code)
{
    frame->unsure = true;
    return clbi_cl_fail(NULL, &frame->pool->dev->log, err, code,
                        "the use of a frame could not be recorded: its buffer will be replaced");
}

int clb_cl_frame_used(clb_cl_frame *frame, cl_uint n, const cl_event *events)
{
    const struct clbi_cl_fns *fns;
    int err = CLB_OK;
    cl_uint i;

    if (!frame || (n > 0 && !events))
        return CLB_ERR_INVAL;
    fns = frame->pool->dev->fns;
    pthread_mutex_lock(&frame->lock);
    if (!make_room(frame, n)) {
        err = unsure(frame, CLB_ERR_NOMEM, 0);
    } else {
        for (i = 0; i < n; i++) {
            cl_int code = events[i] ? fns->RetainEvent(events[i]) : CL_INVALID_EVENT;

            if (code == CL_SUCCESS)
                frame->used[frame->n_used++] = events[i];
            else
                err = unsure(frame, CLB_ERR_CL, code);
        }
    }
    pthread_mutex_unlock(&frame->lock);
    return err;
}

int clb_cl_frame_used_on(clb_cl_frame *frame, cl_command_queue queue)
{
    const struct clbi_cl_fns *fns;
    cl_event ev = NULL;
    cl_int code;
    int err = CLB_OK;

    if (!frame || !queue)
        return CLB_ERR_INVAL;
    fns = frame->pool->dev->fns;
    code = fns->EnqueueMarkerWithWaitList(queue, 0, NULL, &ev);
    if (code == CL_SUCCESS && ev)
        code = fns->Flush(queue);
    pthread_mutex_lock(&frame->lock);
    if (code != CL_SUCCESS || !ev)
        err = unsure(frame, CLB_ERR_CL, code);
    else if (!make_room(frame, 1))
        err = unsure(frame, CLB_ERR_NOMEM, 0);
    else
        frame->used[frame->n_used++] = ev; /* its creation reference */
    pthread_mutex_unlock(&frame->lock);
    if (err != CLB_OK && ev)
        fns->ReleaseEvent(ev);
    return err;
}
