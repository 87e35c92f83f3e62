/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's pass, its clock, and its thread. */
#include "worker_int.h"

#include <stdlib.h>

int clbi_worker_init(clb_cl_device *dev)
{
    dev->worker = calloc(1, sizeof(*dev->worker));
    if (!dev->worker)
        return CLB_ERR_NOMEM;
    dev->worker->net_next = CLBI_CL_NEVER;
    dev->worker->net_interval = CLBI_NET_MIN;
    return CLB_OK;
}

void clbi_worker_fini(clb_cl_device *dev)
{
    struct clbi_worker *w = dev->worker;

    if (!w)
        return;
    while (w->free_fences) {
        struct clbi_fence *fence = w->free_fences;

        w->free_fences = fence->next;
        free(fence);
    }
    /* All of them have fired: each holds the device's memory until then. */
    while (w->armed) {
        struct clbi_armed *armed = w->armed;

        w->armed = armed->next;
        free(armed);
    }
    while (w->free_armed) {
        struct clbi_armed *armed = w->free_armed;

        w->free_armed = armed->next;
        free(armed);
    }
    free(w);
    dev->worker = NULL;
}

int clbi_worker_reserve(clb_cl_device *dev, uint32_t n, clb_cl_pool *pool)
{
    struct clbi_worker *w = dev->worker;
    int err = CLB_OK;

    pthread_mutex_lock(&dev->work_lock);
    w->slots += n;
    while (w->reserved < w->slots && err == CLB_OK) {
        struct clbi_fence *fence = calloc(1, sizeof(*fence));
        struct clbi_armed *armed = calloc(1, sizeof(*armed)), *late = calloc(1, sizeof(*late));

        if (fence && armed && late) {
            fence->next = w->free_fences;
            w->free_fences = fence;
            armed->next = late;
            late->next = w->free_armed;
            w->free_armed = armed;
            w->reserved++;
            atomic_fetch_add(&pool->heap_allocs, 3);
        } else {
            free(fence);
            free(armed);
            free(late);
            err = CLB_ERR_NOMEM;
        }
    }
    pthread_mutex_unlock(&dev->work_lock);
    return err;
}

void clbi_worker_unreserve(clb_cl_device *dev, uint32_t n)
{
    pthread_mutex_lock(&dev->work_lock);
    dev->worker->slots -= n;
    pthread_mutex_unlock(&dev->work_lock);
}

/* ---- one pass -------------------------------------------------------------------------------- */

/* What there is to do: slots that belong to the worker. */
static struct clbi_slot *scan(clb_cl_device *dev)
{
    struct clbi_worker *w = dev->worker;
    struct clbi_slot *work = NULL;
    clb_cl_pool *pool;
    uint32_t i;

    pthread_mutex_lock(&dev->lock);
    w->ending = dev->closing;
    w->ending_at = dev->closing_at;
    w->over = dev->caller_driven && dev->end != CLBI_CL_OPEN;
    for (pool = dev->pools; pool; pool = pool->next) {
        struct clbi_slot *picked = NULL;

        pthread_mutex_lock(&pool->lock);
        pool->w_closing = pool->closing || w->over;
        if (pool->w_closing)
            pool->free_list = NULL; /* the MAPPED slots are taken below */
        else
            picked = clbi_learn_take(pool, w->now); /* one at a time: others want to go on */
        for (i = 0; i < pool->count; i++) {
            struct clbi_slot *slot = &pool->slot[i];
            bool mine;

            switch (slot->state) {
            case CLBI_SLOT_EMPTY:
                mine = slot == picked || (!pool->learning && !pool->w_closing && !pool->creating &&
                                          w->now >= pool->refill_at);
                break;
            case CLBI_SLOT_MAPPED: mine = slot == picked || pool->w_closing; break;
            case CLBI_SLOT_UNMAPPED:
            case CLBI_SLOT_REMAPPING:
            case CLBI_SLOT_RETIRED:
            case CLBI_SLOT_CLOSING: mine = true; break;
            default: mine = false; break;
            }
            slot->w_state = slot->state;
            if (!mine)
                continue;
            slot->next_work = work;
            work = slot;
        }
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&dev->lock);
    return work;
}

/* One set of markers for all slots that were retired since the last pass. */
static void take(clb_cl_device *dev, struct clbi_slot *work)
{
    struct clbi_fence *fence = NULL;
    bool made = false;
    struct clbi_slot *slot;

    for (slot = work; slot; slot = slot->next_work) {
        if (slot->w_state != CLBI_SLOT_RETIRED || slot->taken)
            continue;
        slot->taken = true;
        slot->marked = true;
        slot->used_left = slot->frame ? slot->frame->n_used : 0;
        dev->worker->did = true;
        if (slot->pool->fence != CLB_CL_FENCE_ALL || slot->broken || dev->worker->over)
            continue;
        if (!made)
            fence = clbi_fence_make(dev);
        made = true;
        if (fence) {
            fence->refs++;
            slot->fence = fence;
        } else {
            slot->failed = true; /* no memory for a fence: as if it had failed */
        }
    }
    if (fence)
        clbi_fence_unref(dev, fence); /* the one of its making */
}

static void look(clb_cl_device *dev, struct clbi_slot *work)
{
    struct clbi_worker *w = dev->worker;
    struct clbi_slot *slot;

    for (slot = work; slot; slot = slot->next_work) {
        bool marked = slot->marked || w->net || w->polling || w->over;

        if ((slot->fence && slot->fence->woken) || slot->w_state == CLBI_SLOT_EMPTY)
            marked = true;
        if (!marked)
            continue;
        slot->marked = false;
        switch (slot->w_state) {
        case CLBI_SLOT_RETIRED: clbi_slot_look_retired(slot); break;
        case CLBI_SLOT_REMAPPING: clbi_slot_look_map(slot); break;
        case CLBI_SLOT_CLOSING: clbi_slot_look_close(slot); break;
        case CLBI_SLOT_EMPTY: clbi_slot_refill(slot); break;
        default: break;
        }
    }
}

/* The fences' marks are used up only when all slots have been asked. */
static void unmark_fences(struct clbi_slot *work)
{
    for (; work; work = work->next_work)
        if (work->fence)
            work->fence->woken = false;
}

/* All maps (or closing unmaps) of a pass under one lock, with one flush, then a first look. */
static void enqueue(clb_cl_device *dev, struct clbi_slot *work, enum clbi_slot_state from,
                    struct clbi_privq *q, void (*begin)(struct clbi_slot *),
                    void (*then)(struct clbi_slot *))
{
    struct clbi_slot *slot;
    bool any = false;

    /* A slot that has just become MAPPED belongs to alloc() unless its pool ends, or it was taken. */
    for (slot = work; slot; slot = slot->next_work) {
        slot->chosen = slot->w_state == from &&
                       (from != CLBI_SLOT_MAPPED || slot->leaving || slot->pool->w_closing);
        any = any || slot->chosen;
    }
    if (!any)
        return;
    pthread_mutex_lock(&q->lock);
    for (slot = work; slot; slot = slot->next_work)
        if (slot->chosen)
            begin(slot);
    if (dev->fns->Flush(q->queue) != CL_SUCCESS) { /* replacing the queue flushes what is in it */
        atomic_store(&q->broken, true);
        dev->worker->again = true;
    }
    pthread_mutex_unlock(&q->lock);
    for (slot = work; slot; slot = slot->next_work) {
        if (slot->chosen && slot->marked) {
            slot->marked = false;
            then(slot);
        }
    }
}

/* Reads back the states that the looks have changed. */
static void reread(struct clbi_slot *work)
{
    for (; work; work = work->next_work) {
        pthread_mutex_lock(&work->pool->lock);
        work->w_state = work->state;
        pthread_mutex_unlock(&work->pool->lock);
    }
}

/* Takes out and frees the pools that are done; tells whether anything is still outstanding, and when
 * a buffer that could not be replaced, or enlarged, is due again. */
static bool sweep(clb_cl_device *dev, int64_t *refill_at)
{
    struct clbi_worker *w = dev->worker;
    struct clb_cl_pool **link, *pool, *dead = NULL;
    bool outstanding = false;
    uint32_t i;

    pthread_mutex_lock(&dev->lock);
    link = &dev->pools;
    while ((pool = *link) != NULL) {
        bool empty = true;

        pthread_mutex_lock(&pool->lock);
        for (i = 0; i < pool->count; i++) {
            switch (pool->slot[i].state) {
            case CLBI_SLOT_UNMAPPED: w->again = true; /* fall through */
            case CLBI_SLOT_REMAPPING:
            case CLBI_SLOT_CLOSING:
            case CLBI_SLOT_RETIRED: outstanding = true; break;
            default: break;
            }
            if (pool->slot[i].state != CLBI_SLOT_EMPTY)
                empty = false;
            else if (!pool->learning && !pool->w_closing && !pool->closing && !pool->creating &&
                     pool->refill_at < *refill_at)
                *refill_at = pool->refill_at;
        }
        if (pool->learning && !pool->w_closing && !pool->closing &&
            clbi_learn_settle(pool, w->now, refill_at, &w->did))
            w->again = true;
        empty = empty && pool->closing && atomic_load(&pool->refs) == 0;
        pthread_mutex_unlock(&pool->lock);
        if (empty) {
            *link = pool->next;
            pool->next = dead;
            dead = pool;
        } else {
            link = &pool->next;
        }
    }
    if (dead)
        w->did = true;
    if (w->did)
        pthread_cond_broadcast(&dev->home);
    pthread_mutex_unlock(&dev->lock);
    while ((pool = dead) != NULL) {
        dead = pool->next;
        w->slots -= pool->count;
        clbi_cl_pool_free(pool);
    }
    return outstanding;
}

static void set_clock(struct clbi_worker *w, bool outstanding)
{
    if (!outstanding) {
        w->net_next = CLBI_CL_NEVER;
        w->net_interval = w->polling ? CLBI_POLL_MIN : CLBI_NET_MIN;
        return;
    }
    if (w->polling) {
        w->net_interval = w->did ? CLBI_POLL_MIN : w->net_interval * 2;
        if (w->net_interval > CLBI_POLL_MAX)
            w->net_interval = CLBI_POLL_MAX;
        w->net_next = w->now + w->net_interval;
    } else if (w->net_next == CLBI_CL_NEVER) {
        w->net_interval = CLBI_NET_MIN;
        w->net_next = w->now + w->net_interval;
    } else if (w->net) {
        w->net_interval = w->net_interval * 2 > CLBI_NET_MAX ? CLBI_NET_MAX : w->net_interval * 2;
        w->net_next = w->now + w->net_interval;
    }
}

int64_t clbi_worker_run(clb_cl_device *dev, bool *did)
{
    struct clbi_worker *w = dev->worker;
    struct clbi_slot *work;
    int64_t next = CLBI_CL_NEVER;
    bool mended, outstanding;

    pthread_mutex_lock(&dev->work_lock);
    while (sem_trywait(&dev->wake) == 0) /* what was posted until here is seen below */
        ;
    w->now = clbi_cl_now();
    w->net = w->now >= w->net_next;
    w->did = w->again = false;
    clbi_watch_collect(dev);
    work = scan(dev);
    if (work) {
        take(dev, work);
        look(dev, work);
        unmark_fences(work);
    }
    /* Whatever the pass is for: a release whose flush failed waits for this. */
    mended = clbi_cl_privq_mend(dev, &dev->unmapq, "unmap");
    mended = clbi_cl_privq_mend(dev, &dev->remapq, "map") && mended;
    if (work) {
        reread(work);
        enqueue(dev, work, CLBI_SLOT_UNMAPPED, &dev->remapq, clbi_slot_map_begin,
                clbi_slot_look_map);
        enqueue(dev, work, CLBI_SLOT_MAPPED, &dev->unmapq, clbi_slot_close_begin,
                clbi_slot_look_close);
    }
    outstanding = sweep(dev, &next);
    set_clock(w, outstanding || !mended);
    *did = w->did;
    if (w->net_next < next)
        next = w->net_next;
    if (w->again)
        next = 0;
    pthread_mutex_unlock(&dev->work_lock);
    return next;
}

void *clbi_worker_main(void *priv)
{
    clb_cl_device *dev = priv;
    enum clbi_cl_end end = CLBI_CL_OPEN;

    for (;;) {
        bool did;
        int64_t next = clbi_worker_run(dev, &did);

        pthread_mutex_lock(&dev->lock);
        if (!dev->pools)
            end = dev->end;
        pthread_mutex_unlock(&dev->lock);
        if (end != CLBI_CL_OPEN)
            break;
        clbi_cl_device_sleep(dev, next);
    }
    if (end == CLBI_CL_DETACHED) {
        pthread_detach(pthread_self());
        clbi_cl_device_free(dev);
    }
    return NULL;
}
