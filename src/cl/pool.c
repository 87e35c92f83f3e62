/* SPDX-License-Identifier: Apache-2.0 */
/* The pool and its allocator: the edges that the transport and the application walk. */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"
#include "worker.h"

#define DEFAULT_COUNT 8
#define MAX_COUNT 4096
#define DEFAULT_ALIGN 64
#define DEFAULT_MAX_BYTES ((size_t)512 << 20)
#define CREATE_NS (20 * CLBI_CL_SEC)
#define LOOK_AGAIN_NS (20 * CLBI_CL_MS)

/* ---- reference counts ------------------------------------------------------------------------ */

void clbi_cl_pool_ref(clb_cl_pool *pool)
{
    atomic_fetch_add(&pool->refs, 1);
}

/* With the last reference the pool belongs to the worker: not to be touched after the decrement. */
void clbi_cl_pool_unref(clb_cl_pool *pool)
{
    clb_cl_device *dev = pool->dev;

    clbi_cl_device_enter(dev);
    if (atomic_fetch_sub(&pool->refs, 1) == 1)
        clbi_cl_device_wake(dev);
    clbi_cl_device_leave(dev);
}

void clbi_cl_pool_free(clb_cl_pool *pool)
{
    struct clb_cl_frame *frame;
    uint32_t i;

    while ((frame = pool->free_frames) != NULL) {
        pool->free_frames = frame->next_free;
        clbi_cl_frame_fini(frame);
        if (frame < pool->frames || frame >= pool->frames + pool->count)
            free(frame);
    }
    for (i = 0; i < pool->count; i++)
        if (pool->slot[i].mem) /* a pool that never came to be */
            pool->dev->fns->ReleaseMemObject(pool->slot[i].mem);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->cond);
    free(pool->frames);
    free(pool->slot);
    free(pool);
}

struct clbi_slot *clbi_cl_pool_slot(clb_cl_pool *pool, const void *context)
{
    uint32_t i;

    for (i = 0; i < pool->count; i++)
        if (context == &pool->slot[i])
            return &pool->slot[i];
    return NULL;
}

static void misuse(clb_cl_pool *pool, const char *what)
{
    clbi_cl_log(&pool->dev->log, CLB_LOG_ERROR, "misuse of a pool's buffer: %s", what);
#ifdef CLB_DEBUG_ABORT
    abort();
#endif
}

/* ---- the allocator --------------------------------------------------------------------------- */

/* MAPPED -> FILLING: the warmest slot that is large enough and aligned enough now (pointers may move
 * at every map). NULL: *err tells whether one could come. Under pool.lock. */
static struct clbi_slot *pop(clb_cl_pool *pool, size_t bytes, size_t align, int *err)
{
    struct clbi_slot **link = &pool->free_list, *slot;

    *err = CLB_ERR_NOBUFS;
    for (; (slot = *link) != NULL; link = &slot->next_free) {
        if (slot->bytes < bytes)
            continue;
        if (align <= 1 || ((uintptr_t)slot->ptr & (align - 1)) == 0) {
            *link = slot->next_free;
            slot->state = CLBI_SLOT_FILLING;
            return slot;
        }
        *err = CLB_ERR_INVAL; /* less aligned than asked: create the pool with that align */
    }
    return NULL;
}

/* All of those who wait when they may want different sizes. */
void clbi_cl_pool_signal(clb_cl_pool *pool)
{
    if (pool->learning)
        pthread_cond_broadcast(&pool->cond);
    else
        pthread_cond_signal(&pool->cond);
}

/* FILLING -> MAPPED: the warmest slot goes out next. Under pool.lock. */
static void push(clb_cl_pool *pool, struct clbi_slot *slot)
{
    slot->state = CLBI_SLOT_MAPPED;
    slot->next_free = pool->free_list;
    pool->free_list = slot;
    clbi_cl_pool_signal(pool);
}

/* One turn of waiting for a slot; pool.lock is held and given up meanwhile. Threads that drive a device
 * together take each other's wake-ups: none sleeps long without looking. */
static void wait_turn(clb_cl_pool *pool, int64_t deadline)
{
    clb_cl_device *dev = pool->dev;
    struct timespec ts;

    if (dev->caller_driven) {
        int64_t until = clbi_cl_now() + LOOK_AGAIN_NS, next;
        bool did;

        pthread_mutex_unlock(&pool->lock);
        next = clbi_worker_run(dev, &did);
        if (next < until)
            until = next;
        if (!did)
            clbi_cl_device_sleep(dev, until < deadline ? until : deadline);
        pthread_mutex_lock(&pool->lock);
        return;
    }
    if (deadline == CLBI_CL_NEVER) {
        pthread_cond_wait(&pool->cond, &pool->lock);
        return;
    }
    clbi_cl_timespec(&ts, deadline);
    pthread_cond_timedwait(&pool->cond, &pool->lock, &ts);
}

static int pool_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    clb_cl_pool *pool = opaque;
    struct clbi_slot *slot = NULL;
    int64_t deadline = clbi_cl_deadline(req->wait_ns);
    int err = CLB_ERR_NOBUFS;

    pthread_mutex_lock(&pool->lock);
    if (clbi_learn_note(pool, req->capacity))
        sem_post(&pool->dev->wake);
    for (;;) {
        if (pool->closing || pool->w_closing) {
            err = CLB_ERR_CLOSED;
            break;
        }
        if (req->capacity > pool->max_payload) { /* metadata in the payload goes elsewhere */
            err = CLB_ERR_TOOBIG;
            break;
        }
        slot = pop(pool, req->capacity, req->align, &err);
        if (slot || err != CLB_ERR_NOBUFS)
            break;
        if (req->wait_ns == 0 || (deadline != CLBI_CL_NEVER && clbi_cl_now() >= deadline))
            break;
        wait_turn(pool, deadline);
    }
    if (slot) {
        pool->allocs++;
        out->data = slot->ptr;
        out->size = pool->learning ? slot->bytes : pool->slot_bytes;
        out->context = slot;
        err = CLB_OK;
    } else {
        pool->alloc_misses++;
    }
    pthread_mutex_unlock(&pool->lock);
    return err;
}

/* FILLING -> HELD: unmap and flush, on the private queue, under its lock. */
static int pool_release(void *opaque, struct clb_buf *buf, size_t written)
{
    clb_cl_pool *pool = opaque;
    clb_cl_device *dev = pool->dev;
    struct clbi_slot *slot = clbi_cl_pool_slot(pool, buf->context);
    enum clbi_slot_state state = CLBI_SLOT_EMPTY;
    cl_event ev = NULL;
    cl_int code, flushed = CL_SUCCESS;

    if (slot) {
        pthread_mutex_lock(&pool->lock);
        state = slot->state;
        pthread_mutex_unlock(&pool->lock);
    }
    /* The pointer tells a copy of a buffer that has gone home and is out again. */
    if (!slot || state != CLBI_SLOT_FILLING || slot->broken || buf->data != slot->ptr ||
        written > pool->max_payload || written > slot->bytes) {
        misuse(pool, "release of a buffer that is not out");
        return CLB_ERR_INVAL;
    }
    pthread_mutex_lock(&dev->unmapq.lock);
    slot->ready_gen = dev->unmapq.gen;
    code = dev->fns->EnqueueUnmapMemObject(dev->unmapq.queue, slot->mem, slot->ptr, 0, NULL, &ev);
    if (code == CL_SUCCESS && ev) {
        flushed = dev->fns->Flush(dev->unmapq.queue);
        if (flushed != CL_SUCCESS) /* replacing the queue flushes what is in it */
            atomic_store(&dev->unmapq.broken, true);
    }
    pthread_mutex_unlock(&dev->unmapq.lock);
    if (code != CL_SUCCESS || !ev) {
        /* Mapped or not, nobody knows: the buffer is given up when it comes home. */
        slot->broken = true;
        atomic_store(&dev->unmapq.broken, true);
        return clbi_cl_fail(NULL, &dev->log, CLB_ERR_CL, code, "a buffer could not be unmapped");
    }
    slot->ptr = NULL;
    slot->written = written;
    buf->data = NULL;
    pthread_mutex_lock(&pool->lock);
    slot->ready = ev;
    slot->state = CLBI_SLOT_HELD;
    pthread_mutex_unlock(&pool->lock);
    if (flushed != CL_SUCCESS) /* now: the consumer may wait for `ready` before it lets go */
        clbi_cl_device_wake(dev);
    return CLB_OK;
}

/* HELD, DEVICE, or FILLING that is broken -> RETIRED. The slot is the worker's from here on. */
void clbi_slot_retire(struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;
    clb_cl_device *dev = pool->dev;

    clbi_cl_device_enter(dev);
    pthread_mutex_lock(&pool->lock);
    slot->retired_at = clbi_cl_now();
    slot->state = CLBI_SLOT_RETIRED;
    pthread_mutex_unlock(&pool->lock);
    clbi_cl_device_wake(dev);
    clbi_cl_device_leave(dev);
}

static void pool_buf_free(void *opaque, struct clb_buf *buf)
{
    clb_cl_pool *pool = opaque;
    struct clbi_slot *slot = clbi_cl_pool_slot(pool, buf->context);
    bool retire = false, wake = false, bad = !slot;

    if (slot) {
        pthread_mutex_lock(&pool->lock);
        if (slot->state == CLBI_SLOT_FILLING && buf->data != slot->ptr) {
            bad = true; /* a copy of a buffer that has gone home and is out again */
        } else if (slot->state == CLBI_SLOT_FILLING && !slot->broken) {
            push(pool, slot); /* still mapped: no OpenCL call */
            wake = clbi_learn_back(slot) || pool->closing;
        } else if (slot->state == CLBI_SLOT_FILLING || slot->state == CLBI_SLOT_HELD) {
            retire = true;
        } else {
            bad = true;
        }
        pthread_mutex_unlock(&pool->lock);
    }
    if (bad) {
        misuse(pool, "free of a buffer that is not out");
        return;
    }
    memset(buf, 0, sizeof(*buf));
    if (retire) {
        clbi_slot_retire(slot);
    } else if (wake || clbi_cl_device_is_over(pool->dev)) {
        clbi_cl_device_enter(pool->dev);
        clbi_cl_device_wake(pool->dev);
        clbi_cl_device_leave(pool->dev);
    }
}

static void pool_opaque_ref(void *opaque)
{
    clbi_cl_pool_ref(opaque);
}

static void pool_opaque_unref(void *opaque)
{
    clbi_cl_pool_unref(opaque);
}

struct clb_allocator clb_cl_pool_allocator(clb_cl_pool *pool)
{
    static const struct clb_allocator none;
    struct clb_allocator a = {pool_alloc,      pool_release,      pool_buf_free,
                              pool_opaque_ref, pool_opaque_unref, pool};

    return pool ? a : none;
}

clb_cl_pool *clbi_cl_pool_of(const struct clb_allocator *allocator)
{
    return allocator->alloc == pool_alloc ? allocator->opaque : NULL;
}

/* ---- create ---------------------------------------------------------------------------------- */

/* Whole units of the alignment: an address and a size that are both aligned are what consumers, and
 * runtimes that take memory as it is, ask for. Less than buf_size when that overflows. */
static size_t slot_bytes_of(const clb_cl_pool_params *p)
{
    return (p->buf_size + (p->align - 1)) & ~(p->align - 1);
}

static int check_params(clb_cl_device *dev, clb_cl_pool_params *p)
{
    const struct clb_log *log = &dev->log;
    size_t slot_bytes;
    uint64_t all;

    if (p->mem != CLB_CL_MEM_AUTO && p->mem != CLB_CL_MEM_ALLOC_HOST)
        return clbi_cl_fail(
            p->status, log, (unsigned)p->mem < CLB_CL_MEM_COUNT ? CLB_ERR_NOSYS : CLB_ERR_INVAL, 0,
            "memory path \"%s\" is not in this version: use alloc-host", clb_cl_mem_name(p->mem));
    if (p->count == 0)
        p->count = DEFAULT_COUNT;
    if (p->align == 0)
        p->align = DEFAULT_ALIGN;
    if ((p->align & (p->align - 1)) != 0)
        return clbi_cl_fail(p->status, log, CLB_ERR_INVAL, 0, "align %zu is no power of two",
                            p->align);
    if (p->count > MAX_COUNT || (unsigned)p->fence > CLB_CL_FENCE_EXPLICIT)
        return clbi_cl_fail(p->status, log, CLB_ERR_INVAL, 0,
                            "count %u or fence %d is out of range", p->count, (int)p->fence);
    slot_bytes = slot_bytes_of(p);
    if (slot_bytes < p->buf_size ||
        (dev->info.max_alloc_bytes && slot_bytes > dev->info.max_alloc_bytes))
        return clbi_cl_fail(
            p->status, log, CLB_ERR_TOOBIG, 0,
            "buf_size %zu is more than the %llu bytes that \"%s\" allows in one buffer",
            p->buf_size, (unsigned long long)dev->info.max_alloc_bytes, dev->info.name);
    if (slot_bytes > SIZE_MAX / p->count)
        return clbi_cl_fail(p->status, log, CLB_ERR_TOOBIG, 0, "buf_size times count overflows");
    all = (uint64_t)slot_bytes * p->count;
    if (p->max_bytes == 0)
        p->max_bytes = all > DEFAULT_MAX_BYTES ? (size_t)all : DEFAULT_MAX_BYTES;
    if (all > p->max_bytes)
        return clbi_cl_fail(p->status, log, CLB_ERR_TOOBIG, 0,
                            "%u buffers of %zu bytes are more than max_bytes %zu", p->count,
                            slot_bytes, p->max_bytes);
    return CLB_OK;
}

static clb_cl_pool *pool_new(clb_cl_device *dev, const clb_cl_pool_params *p)
{
    clb_cl_pool *pool = calloc(1, sizeof(*pool));
    pthread_condattr_t attr;
    uint32_t i;

    if (!pool)
        return NULL;
    pool->slot = calloc(p->count, sizeof(*pool->slot));
    pool->frames = calloc(p->count, sizeof(*pool->frames));
    if (!pool->slot || !pool->frames) {
        free(pool->slot);
        free(pool->frames);
        free(pool);
        return NULL;
    }
    atomic_init(&pool->heap_allocs, 3);
    atomic_init(&pool->refs, 1);
    pool->dev = dev;
    pool->count = p->count;
    pool->align = p->align;
    pool->fence = p->fence;
    pool->map_flags =
        p->host_readable ? CL_MAP_READ | CL_MAP_WRITE : CL_MAP_WRITE_INVALIDATE_REGION;
    pool->creating = p->buf_size > 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->cond, &attr);
    pthread_condattr_destroy(&attr);
    for (i = 0; i < p->count; i++) {
        pool->slot[i].pool = pool;
        clbi_cl_frame_init(&pool->frames[i], pool);
        clbi_cl_frame_put(&pool->frames[i]);
    }
    return pool;
}

/* Waits until the worker (or we, when caller-driven) has mapped every slot. */
static int wait_created(clb_cl_pool *pool)
{
    int64_t deadline = clbi_cl_now() + CREATE_NS;
    int err;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        uint32_t i, away = 0;

        for (i = 0; i < pool->count; i++)
            away += pool->slot[i].state == CLBI_SLOT_UNMAPPED ||
                    pool->slot[i].state == CLBI_SLOT_REMAPPING;
        if (away == 0)
            break;
        if (clbi_cl_now() >= deadline) {
            pool->create_err = CLB_ERR_TIMEOUT;
            break;
        }
        wait_turn(pool, deadline);
    }
    err = pool->create_err;
    pthread_mutex_unlock(&pool->lock);
    return err;
}

static void end_pool(clb_cl_pool *pool)
{
    clb_cl_device *dev = pool->dev;
    uint32_t i;

    clbi_cl_device_enter(dev);
    pthread_mutex_lock(&pool->lock);
    for (i = 0; i < pool->count; i++)
        if (pool->slot[i].state == CLBI_SLOT_TOUCH)
            pool->slot[i].state = CLBI_SLOT_MAPPED;
    pool->creating = false;
    pool->closing = true;
    pthread_cond_broadcast(&pool->cond);
    pthread_mutex_unlock(&pool->lock);
    atomic_fetch_sub(&pool->refs, 1);
    clbi_cl_device_wake(dev);
    if (dev->caller_driven && !clbi_cl_device_is_over(dev)) {
        bool did;

        clbi_worker_run(dev, &did);
    }
    clbi_cl_device_leave(dev);
}

static int fill_pool(clb_cl_pool *pool, const clb_cl_pool_params *p)
{
    clb_cl_device *dev = pool->dev;
    const struct clb_log *log = &dev->log;
    uint32_t i;
    int err;

    pthread_mutex_lock(&dev->lock);
    pool->next = dev->pools;
    dev->pools = pool;
    pthread_mutex_unlock(&dev->lock);
    sem_post(&dev->wake);
    if (pool->learning)
        return CLB_OK; /* no buffer yet */
    err = wait_created(pool);
    if (err == CLB_ERR_INVAL)
        return clbi_cl_fail(
            p->status, log, err, 0,
            "\"%s\" aligns mapped buffers to less than align %zu: create the pool with "
            "a smaller align (and the stream too)",
            dev->info.name, pool->align);
    if (err != CLB_OK)
        return clbi_cl_fail(p->status, log, err, pool->create_code,
                            "cannot map a buffer of %zu bytes%s", pool->slot_bytes,
                            err == CLB_ERR_TIMEOUT ? " within 20 s" : "");
    for (i = 0; i < pool->count; i++)
        clbi_slot_first_touch(&pool->slot[i]);
    pthread_mutex_lock(&pool->lock);
    pool->creating = false;
    pthread_mutex_unlock(&pool->lock);
    return CLB_OK;
}

/* A pool that the worker has not seen. */
static void never_was(clb_cl_pool *pool)
{
    clbi_worker_unreserve(pool->dev, pool->count);
    clbi_cl_pool_free(pool);
}

int clb_cl_pool_create(clb_cl_pool **out, clb_cl_device *dev, const clb_cl_pool_params *params)
{
    clb_cl_pool_params p;
    clb_cl_pool *pool;
    uint32_t i;
    int err;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    if (!dev)
        return CLB_ERR_INVAL;
    err = clbi_cl_params_copy(&p, sizeof(p), params, sizeof(p));
    if (err != CLB_OK)
        return err;
    err = check_params(dev, &p);
    if (err != CLB_OK)
        return err;
    pool = pool_new(dev, &p);
    if (!pool || clbi_worker_reserve(dev, p.count, pool) != CLB_OK) {
        if (pool)
            never_was(pool);
        return clbi_cl_fail(p.status, &dev->log, CLB_ERR_NOMEM, 0, "out of memory for a pool");
    }
    if (clbi_learn_init(pool, &p) != CLB_OK) {
        never_was(pool);
        return clbi_cl_fail(
            p.status, &dev->log, CLB_ERR_TOOBIG, 0,
            "max_bytes %zu, or what \"%s\" allows in one buffer, is less than a page", p.max_bytes,
            dev->info.name);
    }
    for (i = 0; !pool->learning && i < p.count; i++) {
        cl_int code = clbi_slot_create(&pool->slot[i], pool->wanted);

        if (code != CL_SUCCESS) {
            never_was(pool);
            return clbi_cl_fail(p.status, &dev->log, clbi_cl_err(code), code,
                                "cannot create buffer %u of %u, %zu bytes each", i + 1, p.count,
                                p.buf_size);
        }
    }
    err = fill_pool(pool, &p);
    if (err != CLB_OK) {
        end_pool(pool);
        return err;
    }
    *out = pool;
    return CLB_OK;
}

void clb_cl_pool_destroy(clb_cl_pool **pool)
{
    if (!pool || !*pool)
        return;
    end_pool(*pool);
    *pool = NULL;
}

/* ---- statistics ------------------------------------------------------------------------------ */

void clb_cl_pool_get_stats(const clb_cl_pool *cpool, clb_cl_pool_stats *out, size_t size)
{
    clb_cl_pool *pool = (clb_cl_pool *)(uintptr_t)cpool; /* for its lock */
    clb_cl_pool_stats s;
    uint32_t i;

    memset(&s, 0, sizeof(s));
    if (!pool) {
        clbi_cl_output_copy(out, size, &s, sizeof(s));
        return;
    }
    s.mem = CLB_CL_MEM_ALLOC_HOST;
    snprintf(s.reason, sizeof(s.reason), "%s", pool->dev->info.memory_reason);
    pthread_mutex_lock(&pool->lock);
    for (i = 0; i < pool->count; i++) {
        switch (pool->slot[i].state) {
        case CLBI_SLOT_EMPTY: continue;
        case CLBI_SLOT_TOUCH:
        case CLBI_SLOT_UNMAPPED:
        case CLBI_SLOT_REMAPPING: s.remapping++; break;
        case CLBI_SLOT_MAPPED: s.free++; break;
        case CLBI_SLOT_FILLING: s.filling++; break;
        case CLBI_SLOT_HELD: s.held++; break;
        case CLBI_SLOT_DEVICE: s.device++; break;
        case CLBI_SLOT_RETIRED:
        case CLBI_SLOT_CLOSING: s.retired++; break;
        }
        s.slots++;
        s.bytes += pool->slot[i].bytes;
    }
    s.slot_bytes = pool->learning ? pool->good : pool->slot_bytes;
    s.wanted_bytes = pool->learning ? pool->wanted : pool->slot_bytes;
    memcpy(s.request_hist, pool->request_hist, sizeof(s.request_hist));
    s.poisoned = pool->poisoned;
    s.renewed = pool->renewed;
    s.allocs = pool->allocs;
    s.alloc_misses = pool->alloc_misses;
    s.created = pool->created;
    memcpy(s.hist, pool->hist, sizeof(s.hist));
    pthread_mutex_unlock(&pool->lock);
    s.heap_allocs = atomic_load(&pool->heap_allocs);
    clbi_cl_output_copy(out, size, &s, sizeof(s));
}
