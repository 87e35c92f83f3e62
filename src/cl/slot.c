/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's edges of a slot's life (pool.h has the picture). */
#include "worker_int.h"

#include <string.h>
#include <unistd.h>

#define REFILL_MIN (10 * CLBI_CL_MS)
#define REFILL_MAX CLBI_CL_SEC

void clbi_slot_set(struct clbi_slot *slot, enum clbi_slot_state state)
{
    pthread_mutex_lock(&slot->pool->lock);
    slot->state = state;
    pthread_mutex_unlock(&slot->pool->lock);
    slot->pool->dev->worker->did = true;
}

/* Takes the buffer of a slot that is home and unmapped, if it has one, after the new one has come. */
cl_int clbi_slot_create(struct clbi_slot *slot, size_t bytes)
{
    clb_cl_pool *pool = slot->pool;
    clb_cl_device *dev = pool->dev;
    cl_int code = CL_SUCCESS;
    /* No CL_MEM_HOST_* flag: read-backs and OpenCV need it so. Never a plain buffer: PoCL allocates
     * those late and aborts when memory is gone. */
    cl_mem mem = dev->fns->CreateBuffer(dev->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                        bytes, NULL, &code);

    if (code != CL_SUCCESS)
        return code;
    if (!mem)
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (slot->mem)
        dev->fns->ReleaseMemObject(slot->mem);
    slot->mem = mem;
    slot->fresh = true;
    pthread_mutex_lock(&pool->lock);
    pool->created++;
    slot->bytes = bytes;
    slot->state = CLBI_SLOT_UNMAPPED;
    pthread_mutex_unlock(&pool->lock);
    return CL_SUCCESS;
}

/* The runtime keeps the memory until the last command that uses it has ended. */
static void forget(struct clbi_slot *slot)
{
    if (slot->mem)
        slot->pool->dev->fns->ReleaseMemObject(slot->mem);
    slot->mem = NULL;
    slot->ptr = NULL;
    slot->broken = slot->failed = slot->ready_failed = slot->ready_done = slot->taken = false;
    slot->leaving = false;
    pthread_mutex_lock(&slot->pool->lock);
    slot->bytes = 0;
    pthread_mutex_unlock(&slot->pool->lock);
}

/* -> EMPTY. */
static void drop(struct clbi_slot *slot)
{
    forget(slot);
    clbi_slot_set(slot, CLBI_SLOT_EMPTY);
}

/* What failed with `bytes` is tried again later, less and less often. A size that never worked does
 * not hold up those that did. */
static void later(clb_cl_pool *pool, size_t bytes)
{
    bool attempt = bytes > pool->good;
    int64_t *wait = attempt ? &pool->grow_wait : &pool->refill_wait;

    pthread_mutex_lock(&pool->lock);
    *wait = *wait ? *wait * 2 : REFILL_MIN;
    if (*wait > REFILL_MAX)
        *wait = REFILL_MAX;
    *(attempt ? &pool->grow_at : &pool->refill_at) = pool->dev->worker->now + *wait;
    if (attempt) {
        pool->failed = bytes;
        if (pool->below >= bytes)
            pool->below = 0;
    }
    pthread_mutex_unlock(&pool->lock);
}

/* A new buffer for a slot that is EMPTY or home: -> UNMAPPED, or false and later. */
static bool renew_as(struct clbi_slot *slot, size_t bytes)
{
    clb_cl_pool *pool = slot->pool;
    bool attempt = bytes > pool->good;
    bool *logged = attempt ? &pool->grow_logged : &pool->refill_logged;
    cl_int code = clbi_slot_create(slot, bytes);

    if (code == CL_SUCCESS) {
        pool->dev->worker->did = true;
        return true;
    }
    if (!*logged)
        clbi_cl_log(&pool->dev->log, CLB_LOG_WARN, "a pool cannot %s a buffer%s: %s (%d)",
                    attempt ? "enlarge" : "replace", attempt ? ", smaller ones stay" : "",
                    clbi_cl_error_name(code), code);
    *logged = true;
    later(pool, bytes);
    return false;
}

bool clbi_slot_refill(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    size_t bytes = pool->w_closing ? 0 : clbi_learn_bytes(pool, pool->dev->worker->now);

    return bytes > 0 && renew_as(slot, bytes);
}

/* -> UNMAPPED, or EMPTY. Not by way of EMPTY: who waits until the buffers are home would miss it. */
static void replace(struct clbi_slot *slot)
{
    forget(slot);
    if (!clbi_slot_refill(slot))
        clbi_slot_set(slot, CLBI_SLOT_EMPTY);
}

/* Given up: an unmap or a map failed, so nobody knows whether the buffer is mapped. */
static void poison(struct clbi_slot *slot, const char *what, cl_int code)
{
    clb_cl_pool *pool = slot->pool;
    bool creating, fresh = slot->fresh;

    if (!pool->poison_logged)
        clbi_cl_log(&pool->dev->log, CLB_LOG_WARN, "a buffer is given up: %s failed: %s (%d)", what,
                    clbi_cl_error_name(code), code);
    pool->poison_logged = true;
    pthread_mutex_lock(&pool->lock);
    pool->poisoned++;
    creating = pool->creating;
    if (creating && pool->create_err == CLB_OK) {
        pool->create_err = clbi_cl_err(code);
        pool->create_code = code;
        pool->create_what = what;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!creating && !fresh) {
        replace(slot);
        return;
    }
    if (!creating) /* the replacement failed as well: not again at once */
        later(pool, slot->bytes);
    drop(slot);
    if (creating)
        pthread_cond_broadcast(&pool->cond);
}

static void renew(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;

    if (!pool->renew_logged)
        clbi_cl_log(&pool->dev->log, CLB_LOG_WARN,
                    "a command that used a frame failed: its buffer is replaced");
    pool->renew_logged = true;
    pthread_mutex_lock(&pool->lock);
    pool->renewed++;
    pthread_mutex_unlock(&pool->lock);
    replace(slot);
}

/* A buffer that is home and unmapped goes on in the size that the pool wants: -> UNMAPPED or EMPTY.
 * A smaller one is kept when a larger one cannot be had. */
static void go_on(struct clbi_slot *slot)
{
    size_t bytes = 0;

    switch (clbi_learn_plan(slot, slot->pool->dev->worker->now, &bytes)) {
    case CLBI_LEARN_DROP: drop(slot); return;
    case CLBI_LEARN_RENEW:
        forget(slot);
        if (!renew_as(slot, bytes))
            clbi_slot_set(slot, CLBI_SLOT_EMPTY);
        return;
    case CLBI_LEARN_SWAP:
        if (renew_as(slot, bytes))
            return;
        break;
    case CLBI_LEARN_KEEP: break;
    }
    clbi_slot_set(slot, CLBI_SLOT_UNMAPPED);
}

/* ---- RETIRED --------------------------------------------------------------------------------- */

/* Everything that the slot waited for is let go: events, fence, frame. */
static void let_go(struct clbi_slot *slot)
{
    clb_cl_device *dev = slot->pool->dev;
    struct clb_cl_frame *frame = slot->frame;

    if (slot->fence)
        clbi_fence_unref(dev, slot->fence);
    slot->fence = NULL;
    if (frame) {
        while (frame->n_used > 0)
            dev->fns->ReleaseEvent(frame->used[--frame->n_used]);
        slot->frame = NULL;
        clbi_cl_frame_put(frame);
    }
    if (slot->ready)
        dev->fns->ReleaseEvent(slot->ready);
    slot->ready = NULL;
    slot->taken = false;
}

/* > 0 pending, else all ended. The fence first: it was enqueued last, so that when it has ended the
 * others mostly have, and a frame costs one callback. */
static cl_int look_events(struct clbi_slot *slot)
{
    clb_cl_device *dev = slot->pool->dev;
    struct clb_cl_frame *frame = slot->frame;
    cl_int status;

    if (slot->fence) {
        status = clbi_watch_fence(dev, slot->fence);
        if (status > 0)
            return status;
        if (slot->fence->failed)
            slot->failed = true;
    }
    while (slot->used_left > 0) {
        status = clbi_watch_slot(slot, frame->used[slot->used_left - 1]);
        if (status > 0)
            return status;
        if (status < 0)
            slot->failed = true;
        slot->used_left--;
    }
    if (slot->ready && !slot->ready_done) {
        status = clbi_watch_slot(slot, slot->ready);
        if (status > 0)
            return status;
        if (status < 0)
            slot->ready_failed = true;
        if (status == CLBI_EVENT_UNKNOWN)
            slot->mem = NULL; /* lost */
        slot->ready_done = true;
    }
    return CL_COMPLETE;
}

/* The device's handle is going, and this slot had its time. */
static bool is_late(const struct clbi_slot *slot)
{
    const struct clbi_worker *w = slot->pool->dev->worker;
    int64_t since = slot->retired_at > w->ending_at ? slot->retired_at : w->ending_at;

    return w->ending && w->now - since >= CLBI_CL_GRACE_NS;
}

static void unhook(struct clbi_slot *slot)
{
    if (slot->armed)
        slot->armed->slot = NULL;
    slot->armed = NULL;
}

/* A map or unmap that does not end, or does not tell: the buffer cannot be released while it runs
 * (rusticl and Oclgrind would free the memory at once), so it is lost. */
static void lose(struct clbi_slot *slot)
{
    unhook(slot);
    slot->pool->dev->fns->ReleaseEvent(slot->event);
    slot->event = NULL;
    slot->mem = NULL;
    drop(slot);
}

/* The time is over: what has not ended is left to the runtime, which keeps the memory of released
 * objects until then. As for lose(), the unmap must have ended. */
static void abandon(struct clbi_slot *slot)
{
    clb_cl_device *dev = slot->pool->dev;
    cl_int status;

    unhook(slot);
    if (slot->ready && !slot->ready_done) {
        status = clbi_event_status(dev, slot->ready);
        if (status > 0 || status == CLBI_EVENT_UNKNOWN)
            slot->mem = NULL;
    }
    let_go(slot);
    drop(slot);
}

void clbi_slot_look_retired(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    clb_cl_device *dev = pool->dev;
    bool ready_failed, failed;

    if (pool->w_closing && dev->worker->over) {
        /* Nobody will look again: the memory goes as soon as it is unmapped. */
        if (is_late(slot) || !slot->ready || clbi_event_status(dev, slot->ready) <= 0)
            abandon(slot);
        return;
    }
    if (look_events(slot) > 0) {
        if (pool->w_closing && is_late(slot))
            abandon(slot);
        return;
    }
    ready_failed = slot->ready_failed || slot->broken;
    failed = slot->failed || (slot->frame && slot->frame->unsure);
    if (slot->ready_failed && slot->ready_gen == dev->unmapq.gen)
        atomic_store(&dev->unmapq.broken, true);
    let_go(slot);
    if (pool->w_closing) {
        drop(slot);
    } else if (ready_failed) {
        poison(slot, "unmap", CL_MAP_FAILURE);
    } else if (failed) {
        renew(slot);
    } else {
        slot->ready_done = false;
        go_on(slot);
    }
}

/* ---- mapping --------------------------------------------------------------------------------- */

void clbi_slot_map_begin(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    clb_cl_device *dev = pool->dev;
    cl_int code = CL_SUCCESS;
    cl_event ev = NULL;
    void *ptr = dev->fns->EnqueueMapBuffer(dev->remapq.queue, slot->mem, CL_FALSE, pool->map_flags,
                                           0, slot->bytes, 0, NULL, &ev, &code);

    if (code != CL_SUCCESS || !ptr || !ev) { /* also NULL with CL_SUCCESS: rusticl under pressure */
        if (code == CL_SUCCESS)
            code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        if (ev)
            dev->fns->ReleaseEvent(ev);
        atomic_store(&dev->remapq.broken, true);
        slot->event = NULL;
        slot->ptr = NULL;
        slot->map_code = code; /* poisoned by clbi_slot_look_map(), without the queue's lock */
        slot->marked = true;
        clbi_slot_set(slot, CLBI_SLOT_REMAPPING);
        return;
    }
    slot->ptr = ptr;
    slot->event = ev;
    slot->event_gen = dev->remapq.gen;
    slot->map_code = CL_SUCCESS;
    slot->marked = true;
    clbi_slot_set(slot, CLBI_SLOT_REMAPPING);
}

/* Every page once, or the first frames would pay for the faults inside recv(). */
static void touch(struct clbi_slot *slot)
{
    long page = sysconf(_SC_PAGESIZE);
    size_t step = page > 0 ? (size_t)page : 4096, i;

    for (i = 0; i < slot->bytes; i += step)
        ((volatile unsigned char *)slot->ptr)[i] = 0;
}

/* Also the creating thread's edge for TOUCH slots. */
static void mapped(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    bool fresh = slot->fresh;

    slot->fresh = false;
    slot->failed = slot->ready_failed = slot->broken = slot->ready_done = false;
    pthread_mutex_lock(&pool->lock);
    if (slot->retired_at)
        pool->hist[clbi_learn_log2((uint64_t)(clbi_cl_now() - slot->retired_at))]++;
    slot->retired_at = 0;
    slot->state = CLBI_SLOT_MAPPED;
    slot->next_free = pool->free_list;
    pool->free_list = slot;
    if (fresh) {
        pool->refill_wait = 0;
        if (slot->bytes > pool->good) {
            pool->good = slot->bytes;
            if (pool->good >= pool->failed)
                pool->grow_at = pool->grow_wait = 0;
        }
    }
    clbi_cl_pool_signal(pool);
    pthread_mutex_unlock(&pool->lock);
}

void clbi_slot_look_map(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    clb_cl_device *dev = pool->dev;
    struct clbi_worker *w = dev->worker;
    bool misaligned, creating;
    cl_int status;

    if (!slot->event) {
        poison(slot, "map", slot->map_code);
        return;
    }
    status = clbi_watch_slot(slot, slot->event);
    if (status > 0) {
        if (pool->w_closing && is_late(slot))
            lose(slot);
        return;
    }
    dev->fns->ReleaseEvent(slot->event);
    slot->event = NULL;
    w->did = true;
    if (status < 0) {
        if (slot->event_gen == dev->remapq.gen)
            atomic_store(&dev->remapq.broken, true);
        if (status == CLBI_EVENT_UNKNOWN) {
            slot->mem = NULL; /* lost */
            status = CL_MAP_FAILURE;
        }
        poison(slot, "map", status);
        return;
    }
    misaligned = ((uintptr_t)slot->ptr & (pool->align - 1)) != 0;
    pthread_mutex_lock(&pool->lock);
    creating = pool->creating;
    if (creating && misaligned && pool->create_err == CLB_OK) {
        pool->create_err = CLB_ERR_INVAL;
        pool->create_what = "align";
    }
    if (creating) {
        slot->state = CLBI_SLOT_TOUCH;
        pthread_cond_broadcast(&pool->cond);
    }
    pthread_mutex_unlock(&pool->lock);
    if (creating)
        return;
    /* A pointer may move at every map; alloc checks again what its caller needs. */
    if (misaligned && !pool->align_logged) {
        clbi_cl_log(&dev->log, CLB_LOG_WARN,
                    "%s maps at an address that is not aligned to %zu bytes", dev->info.name,
                    pool->align);
        pool->align_logged = true;
    }
    if (slot->fresh)
        touch(slot);
    mapped(slot);
    if (pool->w_closing)
        w->again = true;
}

void clbi_slot_first_touch(struct clbi_slot *slot)
{
    touch(slot);
    mapped(slot);
}

/* ---- closing --------------------------------------------------------------------------------- */

void clbi_slot_close_begin(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    clb_cl_device *dev = pool->dev;
    cl_event ev = NULL;
    cl_int code =
        dev->fns->EnqueueUnmapMemObject(dev->unmapq.queue, slot->mem, slot->ptr, 0, NULL, &ev);

    slot->ptr = NULL;
    if (code != CL_SUCCESS || !ev) {
        if (ev)
            dev->fns->ReleaseEvent(ev);
        if (!pool->w_closing) { /* taken for its size: given up as any other */
            atomic_store(&dev->unmapq.broken, true);
            pthread_mutex_lock(&pool->lock);
            pool->poisoned++;
            pthread_mutex_unlock(&pool->lock);
        }
        drop(slot);
        return;
    }
    slot->event = ev;
    slot->event_gen = dev->unmapq.gen;
    slot->retired_at = dev->worker->now;
    slot->marked = true;
    clbi_slot_set(slot, CLBI_SLOT_CLOSING);
}

void clbi_slot_look_close(struct clbi_slot *slot)
{
    clb_cl_device *dev = slot->pool->dev;
    cl_int status = clbi_watch_slot(slot, slot->event);

    if (status > 0 || status == CLBI_EVENT_UNKNOWN) {
        if (status < 0 || is_late(slot))
            lose(slot);
        return;
    }
    dev->fns->ReleaseEvent(slot->event);
    slot->event = NULL;
    slot->retired_at = 0; /* that was no unref */
    if (!slot->leaving || slot->pool->w_closing) {
        drop(slot);
        return;
    }
    slot->leaving = false;
    if (status == CL_COMPLETE) {
        go_on(slot);
        return;
    }
    if (slot->event_gen == dev->unmapq.gen)
        atomic_store(&dev->unmapq.broken, true);
    poison(slot, "unmap", status);
}
