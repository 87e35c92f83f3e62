/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots (memory), frames (what a consumer holds) and the pool that owns both.
 *
 * A slot has one owner at any instant, told by its state. Each edge is one function; the states in
 * capitals are those of the pool, the others belong to a moment inside the worker.
 *
 *                       slot_create          map_begin
 *              EMPTY ---------------> UNMAPPED ---------> REMAPPING ------------------+
 *                ^                      ^                                             | map_done
 *     slot_drop  |        all succeeded |   (fresh while the pool is created: TOUCH)  v
 *   (poison,     +------------------ RETIRED                                        MAPPED <--+
 *    renew,      |                   ^     ^                                    alloc |       | free
 *    close)      |           last unref    | free                                     v       |
 *              CLOSING            DEVICE <- HELD <------------------------------- FILLING ----+
 *                ^                   claim            release: unmap + flush
 *                +---- close of a MAPPED slot: unmap + flush
 *
 * EMPTY, UNMAPPED, RETIRED, REMAPPING and CLOSING slots belong to the worker (device.work_lock), the
 * state field itself to pool.lock.
 *
 * A pool that learns its size begins with EMPTY slots. alloc only notes the size that it misses; the
 * worker, which learn.c tells what next, gives larger buffers to slots that are EMPTY, that come home
 * (RETIRED), or that it has taken from the free list (CLOSING). A buffer that is out is never touched.
 */
#ifndef CLBI_CL_POOL_H
#define CLBI_CL_POOL_H

#include "device.h"

enum clbi_slot_state {
    CLBI_SLOT_EMPTY,
    CLBI_SLOT_UNMAPPED,
    CLBI_SLOT_REMAPPING,
    CLBI_SLOT_TOUCH, /* mapped for the first time; the creating thread touches its pages */
    CLBI_SLOT_MAPPED,
    CLBI_SLOT_FILLING,
    CLBI_SLOT_HELD,
    CLBI_SLOT_DEVICE,
    CLBI_SLOT_RETIRED,
    CLBI_SLOT_CLOSING,
};

struct clbi_fence;
struct clbi_armed;

struct clbi_slot {
    struct clb_cl_pool *pool;
    enum clbi_slot_state state; /* pool.lock */
    struct clbi_slot *next_free;
    struct clbi_slot *next_work; /* list of one pass of the worker */

    cl_mem mem;         /* of the owner */
    size_t bytes;       /* its size, 0 = none; written by the worker under pool.lock */
    void *ptr;          /* valid from MAPPED to the release; may change at every map */
    cl_event ready;     /* of the unmap */
    uint64_t ready_gen; /* of the unmap queue */
    size_t written;
    bool broken; /* the unmap could not be enqueued: mapped or not, nobody knows */
    struct clb_cl_frame *frame;
    int64_t retired_at;

    /* the worker's */
    enum clbi_slot_state w_state; /* the state as of this pass */
    bool chosen;                  /* for the enqueue that is under way */
    bool taken;                   /* RETIRED and seen: the fence is set */
    bool fresh;                   /* never mapped before: pages must be touched */
    bool leaving;                 /* taken from the free list for its size */
    bool failed;                  /* a command that used it failed, or may have */
    bool ready_failed;
    bool ready_done;
    bool marked;       /* look at it in this pass */
    cl_uint used_left; /* events of the frame not yet seen ended */
    struct clbi_fence *fence;
    struct clbi_armed *armed; /* callback that will mark this slot */
    cl_event event;           /* of the map or of the closing unmap */
    uint64_t event_gen;
    cl_int map_code; /* why there is no event */
};

#define CLBI_FRAME_EVENTS 8

struct clb_cl_frame {
    struct clb_cl_pool *pool;
    struct clbi_slot *slot;
    clb_packet *packet; /* released; NULL when made of a buffer */
    atomic_uint refs;
    size_t size;
    struct clb_image image;
    bool has_image;
    struct clb_cl_frame *next_free;

    pthread_mutex_t lock; /* the events */
    bool unsure;          /* an event could not be recorded */
    cl_uint n_used, cap_used;
    cl_event *used;
    cl_event used_inline[CLBI_FRAME_EVENTS];
};

struct clb_cl_pool {
    clb_cl_device *dev;
    struct clb_cl_pool *next; /* device.lock */
    atomic_uint refs;         /* handle, allocator copies, buffers, frames */
    bool learning;            /* buf_size 0 */
    size_t max_payload;       /* the buf_size that was asked for; learned: what max_bytes allows */
    size_t slot_bytes;        /* that buf_size, rounded up to align */
    size_t unit;              /* buffers are whole units: a page, or align */
    size_t max_bytes;         /* of all buffers */
    size_t align;
    cl_map_flags map_flags;
    enum clb_cl_fence fence;
    uint32_t count;
    struct clbi_slot *slot;

    pthread_mutex_t lock;
    pthread_cond_t cond; /* a slot is free, or one step of the creation is done */
    struct clbi_slot *free_list;
    struct clb_cl_frame *free_frames, *frames;
    bool creating, closing;
    int create_err;
    cl_int create_code;
    const char *create_what;
    uint64_t poisoned, renewed, allocs, alloc_misses, created, hist[32], request_hist[32];
    atomic_ullong heap_allocs;
    int64_t refill_at; /* an EMPTY slot is tried again from then on; 0 = none is empty */
    int64_t refill_wait;

    size_t wanted;   /* bytes that a buffer should have; grows, never shrinks */
    size_t good;     /* the largest that was mapped; more than that is an attempt */
    bool growing;    /* the worker has buffers to replace that nobody uses */
    size_t failed;   /* the attempt that failed last, 0 = none */
    size_t below;    /* the largest asked for that is smaller, and more than `good`; 0 = none */
    int64_t grow_at; /* an attempt failed: `below` or `good` is enough until then */
    int64_t grow_wait;

    bool w_closing; /* as of the running pass: closing, or the device is over; set under lock */
    bool poison_logged, renew_logged, refill_logged, grow_logged, align_logged; /* the worker's */
};

/* pool.c: the reference counts behind handles, allocators and frames. */
void clbi_cl_pool_ref(clb_cl_pool *pool);
void clbi_cl_pool_unref(clb_cl_pool *pool);
/* The pool behind an allocator, NULL when it is none of ours. */
clb_cl_pool *clbi_cl_pool_of(const struct clb_allocator *allocator);
/* A slot is free; under pool.lock. */
void clbi_cl_pool_signal(clb_cl_pool *pool);
/* The slot behind a context, NULL when it is none of this pool. Does not look into context. */
struct clbi_slot *clbi_cl_pool_slot(clb_cl_pool *pool, const void *context);
/* Frees the memory of a pool without slots. The worker. */
void clbi_cl_pool_free(clb_cl_pool *pool);

/* Edges. retire: HELD or DEVICE (or FILLING that is broken) -> RETIRED, then wakes the worker. */
void clbi_slot_retire(struct clbi_slot *slot);

/* learn.c: sizes. */
/* Fills unit, max_bytes, max_payload, slot_bytes, wanted. CLB_OK, or TOOBIG: no buffer is possible. */
int clbi_learn_init(clb_cl_pool *pool, const clb_cl_pool_params *p);
/* A request, under pool.lock. True: wake the worker. */
bool clbi_learn_note(clb_cl_pool *pool, size_t bytes);
/* A slot is back on the free list, under pool.lock. True: wake the worker. */
bool clbi_learn_back(const struct clbi_slot *slot);
/* The entry of a histogram of powers of two. */
unsigned clbi_learn_log2(uint64_t n);

/* frame.c */
struct clb_cl_frame *clbi_cl_frame_take(clb_cl_pool *pool);
void clbi_cl_frame_init(struct clb_cl_frame *frame, clb_cl_pool *pool);
void clbi_cl_frame_put(struct clb_cl_frame *frame);  /* without its lock, to the free list */
void clbi_cl_frame_fini(struct clb_cl_frame *frame); /* frees what an object owns */

#endif
