/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the buffers of a pool should be, and which of them is replaced next. Decisions only: no
 * OpenCL call here.
 *
 * A pool that learns wants all buffers to be as large as the largest request that it may serve, as
 * many of them (at most `count`) as fit into max_bytes. Until there are so many, smaller ones go on;
 * the rest goes when it is idle. At no time do all buffers together exceed max_bytes.
 *
 * A size that was never mapped before is tried with one buffer first. When that fails, the pool wants
 * no more than what has worked (`good`), or what is asked for between the two (`below`), until it is
 * time for the next attempt.
 */
#include "worker_int.h"

#include <string.h>
#include <unistd.h>

static size_t round_up(size_t n, size_t unit)
{
    return n > SIZE_MAX - (unit - 1) ? SIZE_MAX & ~(unit - 1) : (n + (unit - 1)) & ~(unit - 1);
}

/* Given sizes: the memory is of whole pages where the limits have room for that. */
static void init_fixed(clb_cl_pool *pool, const clb_cl_pool_params *p)
{
    uint64_t max = pool->dev->info.max_alloc_bytes;

    pool->max_payload = p->buf_size;
    pool->slot_bytes = round_up(p->buf_size, p->align);
    pool->wanted = round_up(pool->slot_bytes, pool->unit);
    if ((max && pool->wanted > max) || pool->wanted > p->max_bytes / p->count)
        pool->wanted = pool->slot_bytes;
    pool->good = pool->wanted;
}

int clbi_learn_init(clb_cl_pool *pool, const clb_cl_pool_params *p)
{
    uint64_t max = pool->dev->info.max_alloc_bytes;
    long page = sysconf(_SC_PAGESIZE);

    pool->unit = page > 0 ? (size_t)page : 4096;
    if (p->align > pool->unit)
        pool->unit = p->align;
    /* Rounded like a buffer, so that a limit of exactly one frame allows one. */
    pool->max_bytes = round_up(p->max_bytes, pool->unit);
    pool->learning = p->buf_size == 0;
    if (!pool->learning) {
        init_fixed(pool, p);
        return CLB_OK;
    }
    pool->max_payload = pool->max_bytes;
    if (max && max < pool->max_payload)
        pool->max_payload = (size_t)max & ~(pool->unit - 1);
    return pool->max_payload > 0 ? CLB_OK : CLB_ERR_TOOBIG;
}

unsigned clbi_learn_log2(uint64_t n)
{
    unsigned i = 0;

    while (i < 31 && n >= UINT64_C(2) << i)
        i++;
    return i;
}

bool clbi_learn_note(clb_cl_pool *pool, size_t bytes)
{
    size_t size;

    pool->request_hist[clbi_learn_log2(bytes)]++;
    if (!pool->learning || pool->closing || bytes > pool->max_payload)
        return false; /* what can never be served is not remembered */
    size = round_up(bytes ? bytes : 1, pool->unit);
    if (size > pool->wanted)
        pool->wanted = size;
    else if (size < pool->failed && size > pool->good && size > pool->below)
        pool->below = size;
    else
        return false;
    pool->growing = true;
    return true;
}

static size_t target_at(const clb_cl_pool *pool, int64_t now)
{
    if (now >= pool->grow_at)
        return pool->wanted;
    return pool->below > pool->good ? pool->below : pool->good;
}

bool clbi_learn_back(const struct clbi_slot *slot)
{
    clb_cl_pool *pool = slot->pool;

    if (slot->bytes >= target_at(pool, pool->grow_at ? clbi_cl_now() : 0))
        return false;
    pool->growing = true;
    return true;
}

/* ---- what the worker asks -------------------------------------------------------------------- */

struct survey {
    size_t target; /* what a buffer should have now; 0 = nothing was asked for yet */
    size_t total;  /* bytes of all buffers, at most max_bytes */
    size_t loose;  /* of these: in free buffers that are too small */
    uint32_t goal; /* buffers of the target's size there should be */
    uint32_t big;  /* of at least that size there are */
    uint32_t live; /* buffers there are */
    bool trying;   /* an attempt is under way */
    bool moving;   /* a buffer is being mapped or unmapped */
    bool leaving;  /* one that was taken from the free list */
    struct clbi_slot *empty;
};

static void look_around(const clb_cl_pool *pool, int64_t now, struct survey *s)
{
    uint32_t i;

    memset(s, 0, sizeof(*s));
    s->target = target_at(pool, now);
    if (s->target > 0)
        s->goal = pool->max_bytes / s->target < pool->count
                      ? (uint32_t)(pool->max_bytes / s->target)
                      : pool->count;
    for (i = 0; i < pool->count; i++) {
        struct clbi_slot *slot = &pool->slot[i];

        switch (slot->state) {
        case CLBI_SLOT_EMPTY:
            if (!s->empty)
                s->empty = slot;
            continue;
        case CLBI_SLOT_UNMAPPED:
        case CLBI_SLOT_REMAPPING:
        case CLBI_SLOT_CLOSING: s->moving = true; break;
        case CLBI_SLOT_MAPPED:
            if (slot->bytes < s->target)
                s->loose += slot->bytes;
            break;
        default: break;
        }
        s->live++;
        s->total += slot->bytes;
        s->big += slot->bytes >= s->target;
        s->trying = s->trying || slot->bytes > pool->good;
        s->leaving = s->leaving || slot->leaving;
    }
}

static bool wants_one(const clb_cl_pool *pool, int64_t now, const struct survey *s)
{
    return s->target > 0 && !s->trying && now >= pool->refill_at && s->big < s->goal;
}

/* Has max_bytes room for one more of the target's size when `given_up` bytes go first? */
static bool has_room(const clb_cl_pool *pool, const struct survey *s, size_t given_up)
{
    return s->target <= pool->max_bytes - (s->total - given_up);
}

/* The free buffer used longest ago of those that are too small. */
static struct clbi_slot *coldest(const clb_cl_pool *pool, size_t target)
{
    struct clbi_slot *slot, *found = NULL;

    for (slot = pool->free_list; slot; slot = slot->next_free)
        if (slot->bytes < target)
            found = slot;
    return found;
}

static struct clbi_slot *pick(const clb_cl_pool *pool, int64_t now, const struct survey *s)
{
    if (s->leaving) /* one at a time: the others serve on */
        return NULL;
    if (wants_one(pool, now, s)) {
        if (s->empty && has_room(pool, s, 0))
            return s->empty;
        /* Look before closing anything: what is out cannot be given up. */
        return has_room(pool, s, s->loose) ? coldest(pool, s->target) : NULL;
    }
    return s->goal > 0 && s->big >= s->goal && s->live > s->goal ? coldest(pool, s->target) : NULL;
}

struct clbi_slot *clbi_learn_take(clb_cl_pool *pool, int64_t now)
{
    struct clbi_slot *slot, **link;
    struct survey s;

    if (!pool->learning || pool->wanted == 0)
        return NULL;
    look_around(pool, now, &s);
    slot = pick(pool, now, &s);
    if (!slot || slot->state != CLBI_SLOT_MAPPED)
        return slot;
    for (link = &pool->free_list; *link != slot;)
        link = &(*link)->next_free;
    *link = slot->next_free;
    slot->leaving = true;
    return slot;
}

bool clbi_learn_settle(clb_cl_pool *pool, int64_t now, int64_t *due, bool *changed)
{
    bool more, before = pool->growing;
    struct survey s;

    if (pool->wanted == 0)
        return false;
    look_around(pool, now, &s);
    more = pick(pool, now, &s) != NULL;
    pool->growing = more || (s.moving && (before || s.trying));
    if (before && !pool->growing)
        *changed = true;
    if (pool->wanted > pool->good && pool->grow_at > now && pool->grow_at < *due)
        *due = pool->grow_at;
    if (pool->refill_at > now && pool->refill_at < *due)
        *due = pool->refill_at;
    return more;
}

size_t clbi_learn_bytes(clb_cl_pool *pool, int64_t now)
{
    struct survey s;
    size_t bytes;

    if (!pool->learning)
        return pool->wanted; /* nobody changes it */
    pthread_mutex_lock(&pool->lock);
    look_around(pool, now, &s);
    bytes = wants_one(pool, now, &s) && has_room(pool, &s, 0) ? s.target : 0;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

enum clbi_learn_plan clbi_learn_plan(struct clbi_slot *slot, int64_t now, size_t *bytes)
{
    clb_cl_pool *pool = slot->pool;
    enum clbi_learn_plan plan = CLBI_LEARN_KEEP;
    struct survey s;

    if (!pool->learning)
        return plan;
    pthread_mutex_lock(&pool->lock);
    look_around(pool, now, &s);
    *bytes = s.target;
    if (slot->bytes >= s.target)
        plan = CLBI_LEARN_KEEP;
    else if (s.big >= s.goal)
        plan = s.live > s.goal ? CLBI_LEARN_DROP : CLBI_LEARN_KEEP;
    else if (!wants_one(pool, now, &s))
        plan = CLBI_LEARN_KEEP;
    else if (has_room(pool, &s, 0))
        plan = CLBI_LEARN_SWAP;
    else if (has_room(pool, &s, slot->bytes))
        plan = CLBI_LEARN_RENEW;
    else if (has_room(pool, &s, slot->bytes + s.loose))
        plan = CLBI_LEARN_DROP;
    pthread_mutex_unlock(&pool->lock);
    return plan;
}
