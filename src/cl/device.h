/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device inside: what pools, frames, the worker and preprocessing share.
 *
 * Locks, outermost first; none but `work_lock` is ever held across an OpenCL call:
 *   work_lock      one pass of the worker at a time; taken by no callback, alloc, free or unref
 *   privq.lock     an enqueue on a private queue and its clFlush
 *   device.lock    registered queues, list of pools, end of the device
 *   pool.lock      states of slots, free list, frames (pool.h)
 *
 * Lifetime: a pool exists while its handle, an allocator copy, a frame or a buffer is out; the device
 * exists while its handle or a pool exists. Threads that may drop the last reference are counted in
 * `inside` while they touch the device, callbacks that the runtime holds in `callbacks` (which has one
 * more for the device itself); both as their last action. A callback that comes after the end of the
 * device finds its memory there, and the last one frees it.
 */
#ifndef CLBI_CL_DEVICE_H
#define CLBI_CL_DEVICE_H

#include <clbridge/cl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cl_fns.h"

#define CLBI_CL_MAX_QUEUES 16
#define CLBI_CL_GRACE_NS INT64_C(2000000000) /* for what is retired when a device or pool ends */

/* A queue of our own with the lock for enqueue + flush. A queue that saw a failure may be dead
 * (OPENCL runtimes differ), so the worker replaces it; gen tells old failures from new ones. */
struct clbi_privq {
    pthread_mutex_t lock;
    cl_command_queue queue;
    uint64_t gen;
    atomic_bool broken;
    bool mend_logged; /* the worker's */
};

struct clbi_reg {
    cl_command_queue queue;
    unsigned users; /* 1 for being registered, 1 while the worker enqueues */
    bool removed;
    bool logged; /* one line per queue about failing markers */
};

enum clbi_cl_end { CLBI_CL_OPEN, CLBI_CL_JOIN, CLBI_CL_DETACHED };

struct clb_cl_device {
    const struct clbi_cl_fns *fns;
    struct clb_log log;
    bool caller_driven;
    cl_context context;
    cl_device_id id;
    cl_command_queue queue; /* for kernels: imported or own */
    clb_cl_device_info info;
    struct clbi_compiler *compiler; /* of the kernels; recipes hold it too */

    struct clbi_privq unmapq, remapq;

    pthread_mutex_t lock;
    pthread_cond_t home; /* something retired came home, or a pool went */
    struct clbi_reg reg[CLBI_CL_MAX_QUEUES];
    struct clb_cl_pool *pools; /* new ones at the head; removed by the worker alone */
    enum clbi_cl_end end;      /* not OPEN: the handle is gone */
    bool closing;              /* the handle is going: grace periods run */
    int64_t closing_at;
    bool freeing; /* somebody frees the device */

    sem_t wake;                    /* posted by callbacks, unref, free: "have a look" */
    atomic_uint inside, callbacks; /* see above */
    pthread_t thread;

    pthread_mutex_t work_lock;
    struct clbi_worker *worker; /* of the pass, see worker.c */
};

/* As clb_cl_device_create() with a given table, which must outlive the device. */
int clbi_cl_device_create_with(const struct clbi_cl_fns *fns, clb_cl_device **out,
                               const clb_cl_device_params *params);
int clbi_cl_device_list_with(const struct clbi_cl_fns *fns, clb_cl_device_info *out,
                             size_t elem_size, size_t cap, size_t *count,
                             struct clb_status *status);

/* For preprocessing. */
const struct clbi_cl_fns *clbi_cl_device_fns(const clb_cl_device *dev);
const struct clb_log *clbi_cl_device_log(const clb_cl_device *dev);
struct clbi_compiler *clbi_cl_device_compiler(const clb_cl_device *dev); /* borrowed */

/* info.c: finds the device that params select; fills info, platform and device ids included. */
int clbi_cl_select(const struct clbi_cl_fns *fns, const clb_cl_device_params *params,
                   clb_cl_device_info *info);
void clbi_cl_fill_info(const struct clbi_cl_fns *fns, cl_platform_id platform, cl_device_id id,
                       clb_cl_device_info *info);

/* Every thread that may drop a last reference goes through these two. leave() may free the device. */
void clbi_cl_device_enter(clb_cl_device *dev);
void clbi_cl_device_leave(clb_cl_device *dev);

/* Releases everything; by the last one. */
void clbi_cl_device_free(clb_cl_device *dev);
/* Drops one count of `callbacks`; the last one frees the memory and calls no OpenCL. */
void clbi_cl_device_put(clb_cl_device *dev);

/* "Have a look." Between enter and leave. On a caller-driven device whose handle is gone this does
 * the work here and now (the exception to "unref makes no OpenCL call"). */
void clbi_cl_device_wake(clb_cl_device *dev);

/* Sleeps until a wake, at most until deadline. */
void clbi_cl_device_sleep(clb_cl_device *dev, int64_t deadline);

int clbi_cl_privq_init(clb_cl_device *dev, struct clbi_privq *q, cl_int *code);
/* Replaces the queue when it is marked broken; what was enqueued is flushed by that. False: it still is
 * broken, to be tried again. */
bool clbi_cl_privq_mend(clb_cl_device *dev, struct clbi_privq *q, const char *name);

/* True when the caller-driven device has lost its handle: nothing is mapped any more. */
bool clbi_cl_device_is_over(clb_cl_device *dev);

#endif
