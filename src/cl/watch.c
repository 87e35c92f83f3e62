/* SPDX-License-Identifier: Apache-2.0 */
/* Events: their status, the callbacks armed on them, and the fences of a pass. */
#include "worker_int.h"

#include <stdlib.h>

cl_int clbi_event_status(clb_cl_device *dev, cl_event ev)
{
    cl_int status = -1;
    int tries;

    for (tries = 0; tries < 3; tries++)
        if (dev->fns->GetEventInfo(ev, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
                                   NULL) == CL_SUCCESS)
            return status;
    return CLBI_EVENT_UNKNOWN;
}

/* Runs on any thread, also inside clSetEventCallback(): marks and wakes, no more. */
static void CL_CALLBACK event_fired(cl_event ev, cl_int status, void *priv)
{
    struct clbi_armed *armed = priv;
    clb_cl_device *dev = armed->dev;

    (void)ev;
    (void)status;
    atomic_store(&armed->fired, true); /* the worker may recycle it from here on */
    sem_post(&dev->wake);
    clbi_cl_device_put(dev); /* the last touch */
}

/* Returns NULL when the callback could not be set: the net will find it. */
static struct clbi_armed *arm(clb_cl_device *dev, cl_event ev, struct clbi_slot *slot,
                              struct clbi_fence *fence)
{
    struct clbi_worker *w = dev->worker;
    struct clbi_armed *armed = w->free_armed;

    if (armed) {
        w->free_armed = armed->next;
    } else {
        armed = calloc(1, sizeof(*armed));
        if (!armed)
            return NULL;
        if (slot)
            atomic_fetch_add(&slot->pool->heap_allocs, 1);
    }
    armed->dev = dev;
    armed->slot = slot;
    armed->fence = fence;
    armed->missed_at = 0;
    atomic_store(&armed->fired, false);
    atomic_fetch_add(&dev->callbacks, 1);
    if (dev->fns->SetEventCallback(ev, CL_COMPLETE, event_fired, armed) != CL_SUCCESS) {
        atomic_fetch_sub(&dev->callbacks, 1);
        armed->next = w->free_armed;
        w->free_armed = armed;
        return NULL;
    }
    armed->next = w->armed;
    w->armed = armed;
    return armed;
}

/* The event was seen ended: its callback need not mark anybody any more. */
static void disarm(struct clbi_worker *w, struct clbi_armed **slot)
{
    struct clbi_armed *armed = *slot;

    *slot = NULL;
    if (!armed)
        return;
    armed->slot = NULL;
    armed->fence = NULL;
    if (!atomic_load(&armed->fired))
        armed->missed_at = w->now;
}

static cl_int watch(clb_cl_device *dev, cl_event ev, struct clbi_armed **armed,
                    struct clbi_slot *slot, struct clbi_fence *fence)
{
    struct clbi_worker *w = dev->worker;
    cl_int status = clbi_event_status(dev, ev);

    if (status > 0 && !*armed && !w->polling) {
        *armed = arm(dev, ev, slot, fence);
        if (*armed && atomic_load(&(*armed)->fired)) /* inline: it ended in between */
            status = clbi_event_status(dev, ev);
    }
    if (status <= 0)
        disarm(w, armed);
    return status;
}

cl_int clbi_watch_slot(struct clbi_slot *slot, cl_event ev)
{
    return watch(slot->pool->dev, ev, &slot->armed, slot, NULL);
}

cl_int clbi_watch_fence(clb_cl_device *dev, struct clbi_fence *fence)
{
    while (fence->left > 0) {
        cl_int status = watch(dev, fence->ev[fence->left - 1], &fence->armed, NULL, fence);

        if (status > 0)
            return status;
        if (status < 0)
            fence->failed = true;
        fence->left--;
    }
    return CL_COMPLETE;
}

void clbi_watch_collect(clb_cl_device *dev)
{
    struct clbi_worker *w = dev->worker;
    struct clbi_armed **link = &w->armed, *armed;

    while ((armed = *link) != NULL) {
        if (!atomic_load(&armed->fired)) {
            if (armed->missed_at && !w->polling &&
                w->now - armed->missed_at > CLBI_CALLBACK_SLACK) {
                w->polling = true;
                clbi_cl_log(&dev->log, CLB_LOG_WARN,
                            "%s: event callbacks come late or never: polling from now on",
                            dev->info.name);
            }
            link = &armed->next;
            continue;
        }
        *link = armed->next;
        if (armed->slot) {
            armed->slot->marked = true;
            armed->slot->armed = NULL;
        }
        if (armed->fence) {
            armed->fence->woken = true;
            armed->fence->armed = NULL;
        }
        armed->next = w->free_armed;
        w->free_armed = armed;
    }
}

/* ---- fences ---------------------------------------------------------------------------------- */

struct clbi_fence *clbi_fence_alloc(clb_cl_device *dev)
{
    struct clbi_worker *w = dev->worker;
    struct clbi_fence *fence = w->free_fences;

    if (fence)
        w->free_fences = fence->next;
    else
        fence = calloc(1, sizeof(*fence));
    if (!fence)
        return NULL;
    fence->refs = 1;
    fence->n = fence->left = 0;
    fence->failed = fence->woken = false;
    fence->armed = NULL;
    return fence;
}

void clbi_fence_unref(clb_cl_device *dev, struct clbi_fence *fence)
{
    struct clbi_worker *w = dev->worker;

    if (--fence->refs > 0)
        return;
    if (fence->armed) { /* abandoned while pending */
        fence->armed->fence = NULL;
        fence->armed = NULL;
    }
    while (fence->n > 0)
        dev->fns->ReleaseEvent(fence->ev[--fence->n]);
    fence->next = w->free_fences;
    w->free_fences = fence;
}

/* A marker that is not surely on its way is none: the slot will be renewed. */
static bool put_marker(clb_cl_device *dev, struct clbi_fence *fence, struct clbi_reg *reg)
{
    cl_event ev = NULL;
    cl_int code = dev->fns->EnqueueMarkerWithWaitList(reg->queue, 0, NULL, &ev);

    if (code == CL_SUCCESS && ev) {
        code = dev->fns->Flush(reg->queue);
        if (code == CL_SUCCESS) {
            fence->ev[fence->n++] = ev;
            return true;
        }
    }
    if (ev)
        dev->fns->ReleaseEvent(ev);
    if (!reg->logged)
        clbi_cl_log(
            &dev->log, CLB_LOG_WARN,
            "a registered queue takes no markers, its frames' buffers are replaced: %s (%d)",
            clbi_cl_error_name(code), code);
    reg->logged = true;
    return false;
}

struct clbi_fence *clbi_fence_make(clb_cl_device *dev)
{
    struct clbi_fence *fence = clbi_fence_alloc(dev);
    unsigned i;

    if (!fence)
        return NULL;
    for (i = 0; i < CLBI_CL_MAX_QUEUES; i++) {
        struct clbi_reg *reg = &dev->reg[i];
        cl_command_queue gone = NULL;
        bool use;

        pthread_mutex_lock(&dev->lock);
        use = reg->users > 0 && !reg->removed;
        if (use)
            reg->users++;
        pthread_mutex_unlock(&dev->lock);
        if (!use)
            continue;
        if (!put_marker(dev, fence, reg))
            fence->failed = true;
        pthread_mutex_lock(&dev->lock);
        if (--reg->users == 0) {
            gone = reg->queue;
            reg->queue = NULL;
        }
        pthread_mutex_unlock(&dev->lock);
        if (gone)
            dev->fns->ReleaseCommandQueue(gone);
    }
    fence->left = fence->n;
    return fence;
}
