/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several threads drive one caller-driven device, and ends that come while one of them waits; pools
 * that come and go on one device.
 */
#include <pthread.h>

#include "pool_kit.h"

#define SIZE 4096

struct waiter {
    struct kit *k;
    pthread_t thread;
    struct clb_buf buf;
    int err;
};

static void *wait_for_buffer(void *arg)
{
    struct waiter *w = arg;

    w->err = kit_alloc(w->k, &w->buf, -1); /* for ever: the watchdog ends the test if it is so */
    return NULL;
}

static void start(struct waiter *w, struct kit *k)
{
    w->k = k;
    CHECK_EQ(pthread_create(&w->thread, NULL, wait_for_buffer, w), 0);
    check_sleep_ms(30); /* asleep by now, most likely */
}

static void finish(void)
{
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
}

/* The wake-up of a waiting alloc is taken, and its work done, by another thread's poll. */
static void another_thread_does_the_work(void)
{
    int i;

    for (i = 0; i < 20; i++) {
        struct waiter w = {0};
        struct kit k;
        clb_cl_frame *frame;

        dbl_start(false);
        kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
        frame = kit_frame(&k, 1);
        start(&w, &k);
        clb_cl_frame_unref(&frame);
        kit_settle(&k);
        pthread_join(w.thread, NULL);
        CHECK_EQ(w.err, CLB_OK);
        clb_buf_free(&k.a, &w.buf);
        kit_close(&k);
        finish();
    }
}

/* Nothing will ever come: the device's handle, or the pool's, goes while alloc waits. */
static void the_end_comes_while_alloc_waits(void)
{
    int pool_first;

    for (pool_first = 0; pool_first < 2; pool_first++) {
        struct waiter w = {0};
        struct kit k;
        clb_cl_frame *frame;

        dbl_start(false);
        kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
        frame = kit_frame(&k, 1);
        k.a.ref(k.a.opaque); /* of the waiting thread */
        start(&w, &k);
        if (pool_first)
            clb_cl_pool_destroy(&k.pool);
        else
            clb_cl_device_destroy(&k.dev);
        pthread_join(w.thread, NULL);
        CHECK_EQ(w.err, CLB_ERR_CLOSED);
        k.a.unref(k.a.opaque);
        clb_cl_frame_unref(&frame);
        kit_close(&k);
        finish();
    }
}

/* What the worker keeps ready for a pool's slots is there for the next pool: a device on which pools
 * come and go (a camera that reconnects) does not grow. */
static void pools_come_and_go(void)
{
    uint64_t first = 0;
    struct kit k;
    int i;

    dbl_start(false);
    k.dev = kit_device(true);
    for (i = 0; i < 10; i++) {
        clb_cl_pool *none;

        CHECK_EQ(
            clb_cl_pool_create(&k.pool, k.dev, clb_cl_pool_params(.buf_size = SIZE, .count = 4)),
            CLB_OK);
        if (i == 0)
            first = kit_stats(&k).heap_allocs;
        else
            CHECK_EQ(kit_stats(&k).heap_allocs, 3);
        clb_cl_pool_destroy(&k.pool);
        CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
        dbl_fail(DBL_CreateBuffer, 2, 1, CL_MEM_OBJECT_ALLOCATION_FAILURE);
        CHECK_EQ(clb_cl_pool_create(&none, k.dev, clb_cl_pool_params(.buf_size = SIZE, .count = 4)),
                 CLB_ERR_NOMEM);
    }
    CHECK_EQ(first, 3 + 3 * 4);
    clb_cl_device_destroy(&k.dev);
    finish();
}

int main(void)
{
    check_watchdog(60);
    another_thread_does_the_work();
    the_end_comes_while_alloc_waits();
    pools_come_and_go();
    return 0;
}
