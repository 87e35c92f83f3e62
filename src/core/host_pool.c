/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory for packets: the plain allocator and the recycling pool.
 *
 * A slot is either out (its memory belongs to whoever holds the buffer), idle (on the free list,
 * with memory) or empty (no memory yet). Slots live in one array that is made with the pool, so that
 * handing memory out and taking it back never touches the heap.
 *
 * References: one for the handle, one per clb_allocator.ref(), and one of the pool's own per
 * buffer out, so that a buffer may come home after everything else has gone.
 */
#include <clbridge/buffer.h>

#include "log.h"
#include "os.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MIN_ALIGN ((size_t)64)
#define DEFAULT_COUNT 8
#define DEFAULT_MAX_BYTES ((size_t)256 << 20)
/* The slot array is made at once: this bounds it to a few MiB. */
#define MAX_COUNT 65536

struct slot {
    void *data; /* NULL = empty */
    size_t size, align;
    struct slot *next; /* free or empty list */
    bool out;
};

struct clb_host_pool {
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t cond;   /* a buffer came home, or the pool ended */
    uint64_t refs;
    unsigned waiting; /* threads in alloc() on cond */
    bool ended;       /* no buffer is handed out any more */

    size_t fixed;      /* buf_size as the caller gave it; 0 = learned */
    size_t slot_bytes; /* what a new slot gets */
    size_t align;      /* what a new slot gets */
    size_t max_bytes, total_bytes;

    uint32_t count, existing, idle;
    struct slot *slots; /* count of them */
    struct slot *free;  /* idle ones, last in first out */
    struct slot *empty;

    uint64_t allocs, misses, heap_allocs;
};

static bool is_pow2(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

/* n up to a multiple of align; 0 when that does not fit. */
static size_t round_up(size_t n, size_t align)
{
    if (n == 0)
        n = 1;
    if (n > SIZE_MAX - (align - 1))
        return 0;
    return (n + align - 1) & ~(align - 1);
}

static void misuse(void)
{
#ifdef CLB_DEBUG_ABORT
    abort();
#endif
}

/* ---- plain allocator ------------------------------------------------------------------------- */

static int plain_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    size_t align = req->align > MIN_ALIGN ? req->align : MIN_ALIGN, size;
    void *data;

    (void)opaque;
    if (req->align && !is_pow2(req->align))
        return CLB_ERR_INVAL;
    size = round_up(req->capacity, align); /* metadata in the payload goes elsewhere */
    if (size == 0)
        return CLB_ERR_TOOBIG;
    data = clbi_aligned_alloc(align, size);
    if (!data)
        return CLB_ERR_NOMEM;
    out->data = data;
    out->size = size;
    out->context = data; /* data may be gone from the buffer when it comes home */
    return CLB_OK;
}

static void plain_free(void *opaque, struct clb_buf *buf)
{
    (void)opaque;
    clbi_aligned_free(buf->context);
}

struct clb_allocator clb_host_allocator(void)
{
    return (struct clb_allocator){.alloc = plain_alloc, .free = plain_free};
}

void clb_buf_free(const struct clb_allocator *allocator, struct clb_buf *buf)
{
    struct clb_allocator copy;

    if (!allocator || !buf || (!buf->data && !buf->size && !buf->context))
        return;
    copy = *allocator; /* it may live in what unref takes away */
    if (copy.free)
        copy.free(copy.opaque, buf);
    if (copy.unref)
        copy.unref(copy.opaque);
    memset(buf, 0, sizeof *buf);
}

/* ---- pool: slots (mutex held) ---------------------------------------------------------------- */

static void drop_memory(clb_host_pool *pool, struct slot *slot)
{
    clbi_aligned_free(slot->data);
    pool->total_bytes -= slot->size;
    pool->existing--;
    slot->data = NULL;
    slot->size = 0;
    slot->next = pool->empty;
    pool->empty = slot;
}

static void drop_idle(clb_host_pool *pool)
{
    while (pool->free) {
        struct slot *slot = pool->free;
        pool->free = slot->next;
        pool->idle--;
        drop_memory(pool, slot);
    }
}

/* The idle slot used last among those that are large enough. */
static struct slot *take_idle(clb_host_pool *pool, size_t size, size_t align)
{
    for (struct slot **at = &pool->free; *at; at = &(*at)->next) {
        struct slot *slot = *at;
        if (slot->size < size || slot->align < align)
            continue;
        *at = slot->next;
        pool->idle--;
        return slot;
    }
    return NULL;
}

/* Frees idle slots, which are all too small when this is called, the one used longest ago first,
 * until `size` more bytes are allowed. One goes in any case: it is what gets replaced. */
static bool make_room(clb_host_pool *pool, size_t size)
{
    bool first = true;

    while (pool->free && (first || pool->total_bytes > pool->max_bytes - size)) {
        struct slot **at = &pool->free, *slot;
        while ((*at)->next)
            at = &(*at)->next;
        slot = *at;
        *at = NULL;
        pool->idle--;
        drop_memory(pool, slot);
        first = false;
    }
    return pool->empty && pool->total_bytes <= pool->max_bytes - size;
}

/* A slot of at least `size` bytes, aligned; NULL with the reason in *err. */
static struct slot *take_slot(clb_host_pool *pool, size_t size, size_t align, int *err)
{
    struct slot *slot = take_idle(pool, size, align);
    size_t bytes = pool->slot_bytes, least;

    if (slot)
        return slot;
    *err = CLB_ERR_NOBUFS;
    /* All idle bytes may be given up, those that are out may not: look before freeing anything. */
    least = pool->total_bytes;
    for (struct slot *s = pool->free; s; s = s->next)
        least -= s->size;
    if ((!pool->empty && !pool->free) || least > pool->max_bytes - size)
        return NULL;
    if (bytes > pool->max_bytes || least > pool->max_bytes - bytes) {
        if (pool->fixed)
            return NULL;
        bytes = size; /* no room for the usual size, but for what is asked */
    }
    if (!make_room(pool, bytes))
        return NULL;

    slot = pool->empty;
    slot->data = clbi_aligned_alloc(pool->align, bytes);
    if (!slot->data) {
        *err = CLB_ERR_NOMEM;
        return NULL;
    }
    pool->heap_allocs++;
    pool->empty = slot->next;
    slot->size = bytes;
    slot->align = pool->align;
    pool->total_bytes += bytes;
    pool->existing++;
    return slot;
}

/* Drops a reference; the mutex is released, and the pool may be gone. */
static void unref_unlock(clb_host_pool *pool)
{
    bool last = --pool->refs == 0;

    pthread_mutex_unlock(&pool->mutex);
    if (!last)
        return;
    /* No buffer is out, each would hold a reference. */
    for (uint32_t i = 0; i < pool->count; i++)
        clbi_aligned_free(pool->slots[i].data);
    pthread_cond_destroy(&pool->cond);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->slots);
    free(pool);
}

/* ---- pool: allocator ------------------------------------------------------------------------- */

static int pool_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    clb_host_pool *pool = opaque;
    size_t need = req->capacity, align = req->align > MIN_ALIGN ? req->align : MIN_ALIGN, size;
    int64_t deadline = req->wait_ns == 0 ? 0 : clbi_deadline(req->wait_ns);
    struct slot *slot = NULL;
    int err = CLB_OK;

    if (req->align && !is_pow2(req->align))
        return CLB_ERR_INVAL;

    pthread_mutex_lock(&pool->mutex);
    if (align > pool->align) {
        pool->align = align;
        if (pool->slot_bytes && round_up(pool->slot_bytes, align))
            pool->slot_bytes = round_up(pool->slot_bytes, align);
    }
    size = round_up(need, pool->align);
    if (pool->fixed ? need > pool->fixed || pool->slot_bytes > pool->max_bytes
                    : size == 0 || size > pool->max_bytes) {
        pool->misses++;
        pthread_mutex_unlock(&pool->mutex);
        return CLB_ERR_TOOBIG;
    }
    if (!pool->fixed && size > pool->slot_bytes)
        pool->slot_bytes = size;

    for (;;) {
        int rc;

        if (pool->ended) {
            err = CLB_ERR_CLOSED;
            break;
        }
        slot = take_slot(pool, size, align, &err);
        if (slot || err != CLB_ERR_NOBUFS || req->wait_ns == 0)
            break;
        pool->waiting++;
        rc = clbi_cond_wait_until(&pool->cond, &pool->mutex, deadline);
        pool->waiting--;
        if (rc) {
            /* A buffer may have come home in the same moment. */
            if (!pool->ended)
                slot = take_slot(pool, size, align, &err);
            break;
        }
    }
    if (!slot) {
        if (err == CLB_ERR_NOBUFS)
            pool->misses++;
        pthread_mutex_unlock(&pool->mutex);
        return err;
    }
    slot->out = true;
    slot->next = NULL;
    pool->allocs++;
    pool->refs++;
    out->data = slot->data;
    out->size = slot->size;
    out->context = slot;
    pthread_mutex_unlock(&pool->mutex);
    return CLB_OK;
}

static bool is_slot(const clb_host_pool *pool, const struct slot *slot)
{
    uintptr_t base = (uintptr_t)pool->slots, at = (uintptr_t)slot;

    return at >= base && at - base < pool->count * sizeof *slot && (at - base) % sizeof *slot == 0;
}

static void pool_free(void *opaque, struct clb_buf *buf)
{
    clb_host_pool *pool = opaque;
    struct slot *slot = buf->context;

    if (!is_slot(pool, slot)) {
        misuse();
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    if (!slot->out) {
        pthread_mutex_unlock(&pool->mutex);
        misuse();
        return;
    }
    slot->out = false;
    if (pool->ended) {
        drop_memory(pool, slot);
    } else {
        slot->next = pool->free;
        pool->free = slot;
        pool->idle++;
        if (pool->waiting)
            pthread_cond_broadcast(&pool->cond);
    }
    unref_unlock(pool);
}

static void pool_ref(void *opaque)
{
    clb_host_pool *pool = opaque;

    pthread_mutex_lock(&pool->mutex);
    pool->refs++;
    pthread_mutex_unlock(&pool->mutex);
}

static void pool_unref(void *opaque)
{
    clb_host_pool *pool = opaque;

    pthread_mutex_lock(&pool->mutex);
    unref_unlock(pool);
}

/* ---- pool: public ---------------------------------------------------------------------------- */

int clb_host_pool_create(clb_host_pool **out, const clb_host_pool_params *params)
{
    clb_host_pool_params p;
    clb_host_pool *pool;
    size_t align, size, max_bytes;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    if (clbi_params_copy(&p, sizeof p, params, sizeof p) < 0)
        return CLB_ERR_INVAL;
    align = p.align > MIN_ALIGN ? p.align : MIN_ALIGN;
    if ((p.align && !is_pow2(p.align)) || p.count > MAX_COUNT)
        return CLB_ERR_INVAL;
    size = p.buf_size ? round_up(p.buf_size, align) : 0;
    if (p.buf_size && size == 0)
        return CLB_ERR_INVAL;
    /* Rounded like a slot, so that a limit of exactly one buf_size allows one. */
    max_bytes = p.max_bytes ? p.max_bytes : size > DEFAULT_MAX_BYTES ? size : DEFAULT_MAX_BYTES;
    max_bytes = round_up(max_bytes, align);
    if (max_bytes == 0)
        max_bytes = SIZE_MAX;
    if (size > max_bytes)
        return CLB_ERR_INVAL;

    pool = calloc(1, sizeof *pool);
    if (!pool)
        return CLB_ERR_NOMEM;
    pool->refs = 1;
    pool->fixed = p.buf_size;
    pool->slot_bytes = size;
    pool->align = align;
    pool->count = p.count ? p.count : DEFAULT_COUNT;
    pool->max_bytes = max_bytes;
    pool->slots = calloc(pool->count, sizeof *pool->slots);
    if (!pool->slots)
        goto fail;
    for (uint32_t i = pool->count; i-- > 0;) {
        pool->slots[i].next = pool->empty;
        pool->empty = &pool->slots[i];
    }
    if (pthread_mutex_init(&pool->mutex, NULL))
        goto fail;
    if (clbi_cond_init(&pool->cond)) {
        pthread_mutex_destroy(&pool->mutex);
        goto fail;
    }
    *out = pool;
    return CLB_OK;

fail:
    free(pool->slots);
    free(pool);
    return CLB_ERR_NOMEM;
}

struct clb_allocator clb_host_pool_allocator(clb_host_pool *pool)
{
    if (!pool)
        return (struct clb_allocator){0};
    return (struct clb_allocator){
        .alloc = pool_alloc,
        .free = pool_free,
        .ref = pool_ref,
        .unref = pool_unref,
        .opaque = pool,
    };
}

void clb_host_pool_get_stats(const clb_host_pool *pool, clb_host_pool_stats *out, size_t size)
{
    clb_host_pool_stats st = {0};

    if (pool) {
        pthread_mutex_t *mutex = (pthread_mutex_t *)&pool->mutex;
        pthread_mutex_lock(mutex);
        st.slots = pool->existing;
        st.free = pool->idle;
        st.slot_bytes = pool->slot_bytes;
        st.allocs = pool->allocs;
        st.alloc_misses = pool->misses;
        st.heap_allocs = pool->heap_allocs;
        pthread_mutex_unlock(mutex);
    }
    clbi_output_copy(out, size, &st, sizeof st);
}

void clb_host_pool_destroy(clb_host_pool **pool)
{
    clb_host_pool *p;

    if (!pool || !*pool)
        return;
    p = *pool;
    *pool = NULL;
    pthread_mutex_lock(&p->mutex);
    p->ended = true;
    drop_idle(p);
    pthread_cond_broadcast(&p->cond);
    unref_unlock(p);
}
