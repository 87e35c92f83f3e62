/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker share: watch.c (events), slot.c (edges), worker.c (the pass). */
#ifndef CLBI_CL_WORKER_INT_H
#define CLBI_CL_WORKER_INT_H

#include "util.h"
#include "worker.h"

#define CLBI_NET_MIN (4 * CLBI_CL_MS)
#define CLBI_NET_MAX (32 * CLBI_CL_MS)
#define CLBI_POLL_MIN (100 * CLBI_CL_US)
#define CLBI_POLL_MAX (2 * CLBI_CL_MS)
/* A callback may be this much later than what the status says before it counts as lost: the runtimes
 * give no order between the two. */
#define CLBI_CALLBACK_SLACK (20 * CLBI_CL_MS)

/* Markers that were put into all registered queues in one pass, shared by the slots of that pass. */
struct clbi_fence {
    struct clbi_fence *next; /* free list */
    unsigned refs;           /* slots */
    unsigned n, left;        /* markers; those not yet seen ended are [0, left) */
    bool failed, woken;
    struct clbi_armed *armed;
    cl_event ev[CLBI_CL_MAX_QUEUES];
};

/* One callback that the runtime holds. It may come late or never, so it points at nothing but the
 * device, and is given up only when it has fired. */
struct clbi_armed {
    struct clbi_armed *next;
    clb_cl_device *dev;
    atomic_bool fired;
    struct clbi_slot *slot; /* whom to mark; NULL once the event was seen ended */
    struct clbi_fence *fence;
    int64_t missed_at; /* the status told first, at this time; 0 = no */
};

struct clbi_worker {
    struct clbi_fence *free_fences;
    struct clbi_armed *free_armed, *armed;
    uint32_t slots;    /* of all pools */
    uint32_t reserved; /* slots that there was made room for */
    bool polling;      /* callbacks do not come: look by time */
    int64_t net_next;  /* when to look at everything; NEVER = nothing is outstanding */
    int64_t net_interval;
    int64_t now; /* of the running pass */
    bool net;    /* this pass looks at everything */
    bool did;    /* something changed in this pass */
    bool again;  /* another pass has work already */
    bool over;   /* clbi_cl_device_is_over() */
    bool ending; /* the device's handle is going: grace periods run */
    int64_t ending_at;
};

/* ---- watch.c --------------------------------------------------------------------------------- */

/* An event that cannot be asked proves nothing: a command that reads counts as failed, the buffer of a
 * map or an unmap is not even released, for that may still be running. */
#define CLBI_EVENT_UNKNOWN INT32_MIN

/* Status of an event: > 0 pending, 0 complete, < 0 failed or CLBI_EVENT_UNKNOWN. */
cl_int clbi_event_status(clb_cl_device *dev, cl_event ev);

/* The same for the event that a slot waits for; arms a callback when it is pending. */
cl_int clbi_watch_slot(struct clbi_slot *slot, cl_event ev);

/* All markers of a fence: > 0 pending, else ended (fence->failed tells how). */
cl_int clbi_watch_fence(clb_cl_device *dev, struct clbi_fence *fence);

/* Marks whom the fired callbacks are for; notices callbacks that do not come. */
void clbi_watch_collect(clb_cl_device *dev);

/* One marker and flush per registered queue (perhaps none); NULL = out of memory. */
struct clbi_fence *clbi_fence_make(clb_cl_device *dev);
struct clbi_fence *clbi_fence_alloc(clb_cl_device *dev);
void clbi_fence_unref(clb_cl_device *dev, struct clbi_fence *fence);

/* ---- learn.c --------------------------------------------------------------------------------- */

/* What becomes of a buffer that is home and unmapped. */
enum clbi_learn_plan {
    CLBI_LEARN_KEEP,  /* it is large enough, or the best there is */
    CLBI_LEARN_SWAP,  /* a larger one is created first, then it goes */
    CLBI_LEARN_RENEW, /* it goes first: max_bytes has no room for both */
    CLBI_LEARN_DROP,  /* it goes: others are large enough, or need its room */
};

/* *bytes = what SWAP and RENEW create. */
enum clbi_learn_plan clbi_learn_plan(struct clbi_slot *slot, int64_t now, size_t *bytes);
/* Under pool.lock: the next slot to be worked on, EMPTY or taken from the free list; NULL = none. */
struct clbi_slot *clbi_learn_take(clb_cl_pool *pool, int64_t now);
/* Under pool.lock, at the end of a pass: is there more to do? *due = when else, at the latest;
 * *changed = who waits for the growth may look. */
bool clbi_learn_settle(clb_cl_pool *pool, int64_t now, int64_t *due, bool *changed);
/* The size of a buffer that is created for an EMPTY slot; 0 = none now. */
size_t clbi_learn_bytes(clb_cl_pool *pool, int64_t now);

/* ---- slot.c: the worker's edges -------------------------------------------------------------- */

/* Sets the state under the pool's lock. */
void clbi_slot_set(struct clbi_slot *slot, enum clbi_slot_state state);

/* RETIRED -> UNMAPPED or EMPTY when everything that used it has ended. */
void clbi_slot_look_retired(struct clbi_slot *slot);
/* UNMAPPED -> REMAPPING: enqueues the map; the queue's lock is held, the caller flushes. */
void clbi_slot_map_begin(struct clbi_slot *slot);
/* REMAPPING -> MAPPED (or TOUCH), or poisoned. */
void clbi_slot_look_map(struct clbi_slot *slot);
/* MAPPED -> CLOSING: enqueues the unmap; the queue's lock is held, the caller flushes. */
void clbi_slot_close_begin(struct clbi_slot *slot);
/* CLOSING -> EMPTY; a slot that was taken for its size: or UNMAPPED. */
void clbi_slot_look_close(struct clbi_slot *slot);
/* EMPTY -> UNMAPPED; false: it stays, and is tried again later. */
bool clbi_slot_refill(struct clbi_slot *slot);

#endif
