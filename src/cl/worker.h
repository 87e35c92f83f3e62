/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: the one place that retires. It watches the events of retired slots, maps again,
 * replaces buffers and dead queues, and takes pools apart. One pass looks at everything that has
 * something to tell and never waits for the runtime.
 *
 * A look that finds an event pending arms one callback on it, which marks and wakes; a safety net
 * looks at everything after 4 ms, doubling to 32 ms, while anything is outstanding. When the net finds
 * what a callback should have told, the worker polls from then on.
 */
#ifndef CLBI_CL_WORKER_H
#define CLBI_CL_WORKER_H

#include "pool.h"

int clbi_worker_init(clb_cl_device *dev);
void clbi_worker_fini(clb_cl_device *dev);

/* Makes room for n more slots, so that steady state allocates nothing. Returns CLB_OK or NOMEM; n is
 * taken back in both cases: by the worker when the pool goes, or by unreserve when it never came to
 * be. The room stays for later pools. */
int clbi_worker_reserve(clb_cl_device *dev, uint32_t n, clb_cl_pool *pool);
void clbi_worker_unreserve(clb_cl_device *dev, uint32_t n);

/* One pass. Returns when the next one is due at the latest; *did tells whether anything changed. */
int64_t clbi_worker_run(clb_cl_device *dev, bool *did);

/* The thread of a device that is not caller-driven. */
void *clbi_worker_main(void *dev);

/* slot.c: creates the memory object of an EMPTY slot, which becomes UNMAPPED. */
cl_int clbi_slot_create(struct clbi_slot *slot, size_t bytes);
/* slot.c: TOUCH -> MAPPED, by the thread that creates the pool. */
void clbi_slot_first_touch(struct clbi_slot *slot);

#endif
