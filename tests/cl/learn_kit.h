/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of pools that learn share. */
#ifndef CLB_TEST_LEARN_KIT_H
#define CLB_TEST_LEARN_KIT_H

#include <pthread.h>
#include <unistd.h>

#include "pool_kit.h"

static size_t page; /* set by main() */

/* The worker may end a moment after the last handle. */
static inline void finish(void)
{
    kit_wait_gone(dbl_live);
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
}

static inline void open_learning(struct kit *k, bool caller_driven, uint32_t count,
                                 size_t max_bytes)
{
    uint64_t before;

    dbl_start(!caller_driven);
    k->dev = kit_device(caller_driven);
    k->size = 0;
    k->align = 64;
    before = dbl_total();
    CHECK_EQ(clb_cl_pool_create(&k->pool, k->dev,
                                clb_cl_pool_params(.count = count, .max_bytes = max_bytes)),
             CLB_OK);
    CHECK_EQ(dbl_total() - before, 0);
    k->a = clb_cl_pool_allocator(k->pool);
    k->queue = clb_cl_device_queue(k->dev);
}

/* alloc as the I/O thread does it: no OpenCL call, whatever comes out. For caller-driven devices: else
 * the worker's calls count. */
static inline int ask(struct kit *k, size_t size, struct clb_buf *buf)
{
    uint64_t before = dbl_total();
    int err;

    k->size = size;
    err = kit_alloc(k, buf, 0);
    CHECK_EQ(dbl_total() - before, 0);
    if (err == CLB_OK)
        CHECK_GE(buf->size, size);
    return err;
}

/* Is there a buffer for this size? */
static inline int try_size(struct kit *k, size_t size)
{
    struct clb_buf buf;
    int err = ask(k, size, &buf);

    if (err == CLB_OK)
        clb_buf_free(&k->a, &buf);
    return err;
}

/* Passes of the worker, one by one: the limit holds after each of them. */
static inline void settle_within(struct kit *k, size_t max_bytes)
{
    int passes = 0;

    do {
        dbl_settle();
        CHECK_LE(kit_stats(k).bytes, max_bytes);
        CHECK_LE(passes++, 1000);
    } while (clb_cl_device_poll(k->dev, 0) == CLB_OK);
}

#endif
