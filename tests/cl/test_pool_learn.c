/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool that learns how large its buffers should be, on the double: mostly one step at a time
 * (caller-driven), so that every count is exact.
 */
#include "learn_kit.h"

/* ---- learning -------------------------------------------------------------------------------- */

static void learns_the_first_size(void)
{
    struct kit k;
    struct kit_seen seen = {0};
    clb_cl_frame *frame;
    clb_cl_pool_stats s;
    uint64_t created, heap, before;
    int i;

    open_learning(&k, true, 3, 0);
    s = kit_stats(&k);
    CHECK_EQ(s.slots + s.slot_bytes + s.wanted_bytes + s.bytes, 0);
    CHECK_EQ(clb_cl_device_poll(k.dev, 0), CLB_ERR_AGAIN); /* nothing to do, nothing due */
    CHECK_EQ(clb_cl_device_drain(k.dev, 0), CLB_OK);
    CHECK_EQ(try_size(&k, 10000), CLB_ERR_NOBUFS);
    CHECK_EQ(dbl_mem_live(), 0);
    CHECK_EQ(kit_stats(&k).wanted_bytes, (10000 + page - 1) / page * page);
    kit_settle(&k);
    s = kit_stats(&k);
    CHECK_EQ(s.free, 3);
    CHECK_EQ(s.slots, 3);
    CHECK_EQ(s.slot_bytes, (10000 + page - 1) / page * page);
    CHECK_EQ(s.wanted_bytes, s.slot_bytes);
    CHECK_EQ(s.bytes, 3 * s.slot_bytes);
    CHECK_EQ(s.created, 3);
    CHECK_EQ(try_size(&k, 10000), CLB_OK);
    CHECK_EQ(try_size(&k, s.slot_bytes), CLB_OK); /* the whole of it */
    CHECK_EQ(try_size(&k, 1), CLB_OK);
    CHECK_EQ(try_size(&k, 0), CLB_OK);
    s = kit_stats(&k);
    CHECK_EQ(s.allocs, 4);
    CHECK_EQ(s.alloc_misses, 1);
    CHECK_EQ(s.request_hist[0], 2);  /* 0 and 1 */
    CHECK_EQ(s.request_hist[13], 3); /* 8192 to 16383 */
    /* From here on it is a pool as any other. */
    created = dbl_calls(DBL_CreateBuffer);
    heap = s.heap_allocs;
    for (i = 0; i < 30; i++) {
        before = dbl_total();
        seen.n = (uint64_t)i;
        seen.size = k.size = 1 + (size_t)i * 321;
        frame = kit_frame(&k, seen.n);
        CHECK_EQ(clb_cl_frame_size(frame), k.size);
        kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
        clb_cl_frame_unref(&frame);
        kit_settle(&k);
        CHECK_LE(dbl_total() - before, 2 + 2 + 18);
    }
    CHECK_EQ(seen.good, 30);
    CHECK_EQ(seen.bad, 0);
    CHECK_EQ(dbl_calls(DBL_CreateBuffer), created);
    CHECK_EQ(kit_stats(&k).heap_allocs, heap);
    CHECK_EQ(clb_cl_device_poll(k.dev, 10 * MS), CLB_ERR_TIMEOUT);
    kit_close(&k);
    finish();
}

/* Buffers that are out stay as they are, and are replaced when they come home. */
static void grows_around_what_is_out(void)
{
    struct kit k;
    struct kit_seen seen = {.n = 4, .size = 5000}, later = {.n = 6};
    struct dbl_gate *gate;
    struct clb_buf filling, buf;
    clb_cl_frame *frame;
    size_t small, large;
    uint64_t created, maps;

    open_learning(&k, true, 4, 0);
    gate = dbl_gate_new();
    CHECK_EQ(try_size(&k, 5000), CLB_ERR_NOBUFS);
    kit_settle(&k);
    small = kit_stats(&k).slot_bytes;
    CHECK_EQ(ask(&k, 5000, &filling), CLB_OK);
    kit_fill(&filling, 3, 5000);
    frame = kit_frame(&k, 4);
    kit_consume(&k, k.queue, frame, &seen, gate, NULL);
    CHECK_EQ(try_size(&k, 50000), CLB_ERR_NOBUFS);
    CHECK_EQ(clb_cl_device_drain(k.dev, 0), CLB_ERR_AGAIN); /* begins, and has not ended */
    kit_settle(&k);
    large = kit_stats(&k).slot_bytes;
    CHECK_GE(large, 50000);
    CHECK_EQ(kit_stats(&k).free, 2); /* both were idle */
    CHECK_EQ(kit_stats(&k).bytes, 2 * small + 2 * large);
    CHECK_EQ(clb_cl_device_drain(k.dev, 0), CLB_OK); /* what is out is not waited for */
    CHECK_EQ(filling.size, small);
    CHECK(!memcmp(filling.data, &(unsigned char){kit_byte(3, 0)}, 1)); /* still mapped there */
    CHECK_EQ(((unsigned char *)filling.data)[4999], kit_byte(3, 4999));
    /* A kernel that runs holds its buffer against growth too. */
    clb_cl_frame_unref(&frame);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).retired, 1);
    CHECK_EQ(kit_stats(&k).bytes, 2 * small + 2 * large);
    created = kit_stats(&k).created;
    maps = dbl_calls(DBL_EnqueueMapBuffer);
    dbl_gate_open(gate);
    kit_settle(&k);
    CHECK_EQ(dbl_calls(DBL_EnqueueMapBuffer) - maps, 1); /* replaced before it is mapped again */
    CHECK_EQ(seen.good, 1);
    CHECK_EQ(kit_stats(&k).bytes, small + 3 * large);
    CHECK_EQ(kit_stats(&k).created, created + 1);
    CHECK_EQ(k.a.release(k.a.opaque, &filling, 5000), CLB_OK);
    clb_buf_free(&k.a, &filling);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).bytes, 4 * large);
    /* One that is dropped unread comes home mapped. */
    CHECK_EQ(ask(&k, 50000, &buf), CLB_OK);
    CHECK_EQ(try_size(&k, 90000), CLB_ERR_NOBUFS);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).bytes, large + 3 * kit_stats(&k).slot_bytes);
    clb_buf_free(&k.a, &buf);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).bytes, 4 * kit_stats(&k).slot_bytes);
    CHECK_EQ(kit_stats(&k).slots, 4);
    CHECK_EQ(kit_stats(&k).poisoned + kit_stats(&k).renewed, 0);
    later.size = k.size = 90000;
    frame = kit_frame(&k, 6);
    kit_consume(&k, k.queue, frame, &later, NULL, NULL);
    clb_cl_frame_unref(&frame);
    kit_settle(&k);
    CHECK_EQ(later.good, 1);
    kit_close(&k);
    finish();
}

/* The warmest that is large enough; one that is too small is not handed out. */
static void takes_what_is_large_enough(void)
{
    struct kit k;
    struct clb_buf old, a, b;
    size_t small;

    open_learning(&k, true, 2, 0);
    CHECK_EQ(try_size(&k, 100), CLB_ERR_NOBUFS);
    kit_settle(&k);
    small = kit_stats(&k).slot_bytes;
    CHECK_EQ(ask(&k, 100, &old), CLB_OK);
    CHECK_EQ(try_size(&k, 3 * page), CLB_ERR_NOBUFS);
    kit_settle(&k);
    clb_buf_free(&k.a, &old); /* the small one is the warmest now */
    CHECK_EQ(ask(&k, 2 * page, &a), CLB_OK);
    CHECK_EQ(a.size, 3 * page);
    CHECK_EQ(try_size(&k, 2 * page), CLB_ERR_NOBUFS);
    CHECK_EQ(ask(&k, 100, &b), CLB_OK);
    CHECK_EQ(b.size, small);
#ifndef CLB_DEBUG_ABORT
    CHECK_EQ(k.a.release(k.a.opaque, &b, small + 1), CLB_ERR_INVAL);
#endif
    CHECK_EQ(k.a.release(k.a.opaque, &a, 3 * page), CLB_OK);
    clb_buf_free(&k.a, &a);
    clb_buf_free(&k.a, &b);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).bytes, 6 * page);
    kit_close(&k);
    finish();
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void max_bytes_is_kept(void)
{
    struct kit k;
    struct clb_buf buf[8];
    size_t max = 10 * page;
    clb_cl_pool_stats s;
    int i;

    open_learning(&k, true, 8, max - 5); /* counts as whole pages */
    CHECK_EQ(try_size(&k, page), CLB_ERR_NOBUFS);
    settle_within(&k, max);
    CHECK_EQ(kit_stats(&k).free, 8);
    CHECK_EQ(try_size(&k, 3 * page + 1), CLB_ERR_NOBUFS);
    settle_within(&k, max);
    s = kit_stats(&k);
    CHECK_EQ(s.slot_bytes, 4 * page);
    CHECK_EQ(s.free, 2); /* fewer when they are large */
    CHECK_EQ(s.slots, 2);
    CHECK_EQ(try_size(&k, max + 1), CLB_ERR_TOOBIG); /* never: not remembered */
    CHECK_EQ(try_size(&k, SIZE_MAX), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_cl_device_poll(k.dev, 0), CLB_ERR_AGAIN);
    CHECK_EQ(kit_stats(&k).wanted_bytes, 4 * page);
    CHECK_EQ(kit_stats(&k).request_hist[31], 1);
    CHECK_EQ(try_size(&k, max), CLB_ERR_NOBUFS);
    settle_within(&k, max);
    CHECK_EQ(try_size(&k, max), CLB_OK);
    CHECK_EQ(kit_stats(&k).slots, 1); /* at least one */
    kit_close(&k);
    finish();

    /* The room is taken by what is out: nothing is given up for nothing. */
    open_learning(&k, true, 8, max);
    CHECK_EQ(try_size(&k, page), CLB_ERR_NOBUFS);
    settle_within(&k, max);
    for (i = 0; i < 7; i++)
        CHECK_EQ(ask(&k, page, &buf[i]), CLB_OK);
    CHECK_EQ(try_size(&k, 9 * page), CLB_ERR_NOBUFS);
    settle_within(&k, max);
    CHECK_EQ(kit_stats(&k).slots, 8);
    CHECK_EQ(try_size(&k, page), CLB_OK);
    for (i = 0; i < 7; i++) {
        if (i % 2)
            CHECK_EQ(k.a.release(k.a.opaque, &buf[i], page), CLB_OK);
        clb_buf_free(&k.a, &buf[i]);
        settle_within(&k, max);
    }
    s = kit_stats(&k);
    CHECK_EQ(s.slots, 1);
    CHECK_EQ(s.free, 1);
    CHECK_EQ(s.slot_bytes, 9 * page);
    CHECK_EQ(clb_cl_device_poll(k.dev, 10 * MS), CLB_ERR_TIMEOUT);
    kit_close(&k);
    finish();
}

static void the_device_has_a_limit_too(void)
{
    struct kit k;
    clb_cl_pool *pool;
    struct clb_status st;

    dbl_start(false);
    dbl_set_max_alloc(5 * page + 100);
    k.dev = kit_device(true);
    k.align = 64;
    CHECK_EQ(clb_cl_pool_create(&k.pool, k.dev, NULL), CLB_OK); /* all defaults */
    k.a = clb_cl_pool_allocator(k.pool);
    CHECK_EQ(try_size(&k, 5 * page + 1), CLB_ERR_TOOBIG); /* not a whole page more */
    CHECK_EQ(try_size(&k, 5 * page), CLB_ERR_NOBUFS);
    kit_settle(&k);
    CHECK_EQ(try_size(&k, 5 * page), CLB_OK);
    CHECK_EQ(kit_stats(&k).slots, 8);
    /* A given size near the limit is not rounded beyond it; others are, where max_bytes allows. */
    CHECK_EQ(clb_cl_pool_create(&pool, k.dev, clb_cl_pool_params(.buf_size = 5 * page + 50)),
             CLB_OK);
    clb_cl_pool_destroy(&pool);
    CHECK_EQ(clb_cl_pool_create(&pool, k.dev,
                                clb_cl_pool_params(.buf_size = 100, .count = 2, .max_bytes = 256)),
             CLB_OK);
    clb_cl_pool_destroy(&pool);
    CHECK_EQ(clb_cl_pool_create(&pool, k.dev, clb_cl_pool_params(.buf_size = 100, .count = 2)),
             CLB_OK);
    {
        clb_cl_pool_stats s;

        clb_cl_pool_get_stats(pool, &s, sizeof(s));
        CHECK_EQ(s.slot_bytes, 128);
        CHECK_EQ(s.wanted_bytes, 128);
        CHECK_EQ(s.bytes, 2 * page);
    }
    clb_cl_pool_destroy(&pool);
    kit_close(&k);
    finish();
    dbl_start(false);
    dbl_set_max_alloc(page - 1);
    k.dev = kit_device(true);
    CHECK_EQ(clb_cl_pool_create(&pool, k.dev, clb_cl_pool_params(.status = &st)), CLB_ERR_TOOBIG);
    CHECK(!pool && st.err == CLB_ERR_TOOBIG && st.text[0]);
    clb_cl_device_destroy(&k.dev);
    finish();
}

/* ---- who waits ------------------------------------------------------------------------------- */

static void waiting_alloc_and_drain(void)
{
    int driven;

    for (driven = 0; driven < 2; driven++) {
        struct kit k;
        struct clb_buf buf, none;

        open_learning(&k, driven, 3, 0);
        dbl_set_create_time(10 * MS);
        k.size = 9000;
        CHECK_EQ(kit_alloc(&k, &buf, 10 * SEC), CLB_OK); /* the first one that is asked for */
        CHECK_GE(buf.size, 9000);
        clb_buf_free(&k.a, &buf);
        k.size = 90000;
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
        CHECK_EQ(kit_stats(&k).free, 3);
        CHECK_GE(kit_stats(&k).bytes, 3 * 90000);
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
        k.size = 200000;
        CHECK_EQ(kit_alloc(&k, &none, 0), CLB_ERR_NOBUFS);
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
        CHECK_EQ(kit_stats(&k).free, 2);
        clb_buf_free(&k.a, &buf); /* too small by now: this wakes the worker */
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
        CHECK_EQ(kit_stats(&k).free, 3);
        CHECK_GE(kit_stats(&k).bytes, 3 * 200000);
        kit_close(&k);
        finish();
    }
}

struct waiter {
    struct kit k;
    pthread_t thread;
    int err;
};

static void *wait_for(void *arg)
{
    struct waiter *w = arg;
    struct clb_buf buf;

    w->err = kit_alloc(&w->k, &buf, 30 * SEC);
    if (w->err == CLB_OK) {
        CHECK_GE(buf.size, w->k.size);
        clb_buf_free(&w->k.a, &buf);
    }
    return NULL;
}

/* A buffer that is of no use to one who waits wakes those to whom it is. */
static void waiters_of_all_sizes_are_woken(void)
{
    struct kit k;
    struct waiter w[3];
    struct clb_buf out[2];
    int i;

    open_learning(&k, false, 2, 0);
    k.size = 100;
    CHECK_EQ(kit_alloc(&k, &out[0], 10 * SEC), CLB_OK);
    CHECK_EQ(kit_alloc(&k, &out[1], 10 * SEC), CLB_OK);
    dbl_fail(DBL_CreateBuffer, 1, 100000, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    for (i = 0; i < 3; i++) {
        w[i].k = k;
        w[i].k.size = i == 2 ? 100 : 50000;
        k.a.ref(k.a.opaque);
        CHECK_EQ(pthread_create(&w[i].thread, NULL, wait_for, &w[i]), 0);
        check_sleep_ms(20); /* those who came first are of no use */
    }
    clb_buf_free(&k.a, &out[0]);
    pthread_join(w[2].thread, NULL);
    CHECK_EQ(w[2].err, CLB_OK);
    clb_cl_pool_destroy(&k.pool); /* and the others by the end */
    for (i = 0; i < 2; i++) {
        pthread_join(w[i].thread, NULL);
        CHECK_EQ(w[i].err, CLB_ERR_CLOSED);
    }
    for (i = 0; i < 3; i++)
        k.a.unref(k.a.opaque);
    clb_buf_free(&k.a, &out[1]);
    kit_close(&k);
    finish();
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Pool and device end at every step of a growth, in both orders. */
static void ends_while_it_grows(void)
{
    int at, order;

    for (order = 0; order < 2; order++) {
        for (at = 0; at < 14; at++) {
            struct kit k;
            struct clb_buf buf;
            int i;

            open_learning(&k, true, 3, 0);
            dbl_set_eager(false);
            CHECK_EQ(ask(&k, 100, &buf), CLB_ERR_NOBUFS);
            for (i = 0; i < at && i < 6; i++) {
                clb_cl_device_poll(k.dev, 0);
                dbl_step();
            }
            CHECK_EQ(try_size(&k, 3 * page), CLB_ERR_NOBUFS);
            for (; i < at; i++) {
                clb_cl_device_poll(k.dev, 0);
                dbl_step();
            }
            dbl_set_eager(true);
            dbl_settle();
            if (order)
                clb_cl_device_destroy(&k.dev);
            clb_cl_pool_destroy(&k.pool);
            if (!order)
                clb_cl_device_destroy(&k.dev);
            finish();
        }
        for (at = 0; at < 10; at++) { /* with a thread */
            struct kit k;
            struct clb_buf buf;

            open_learning(&k, false, 3, 0);
            dbl_set_create_time(MS);
            k.size = 100;
            CHECK_EQ(kit_alloc(&k, &buf, at % 2 ? 10 * SEC : 0), at % 2 ? CLB_OK : CLB_ERR_NOBUFS);
            if (at % 2)
                clb_buf_free(&k.a, &buf);
            k.size = 5 * page;
            CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
            check_sleep_ms(at / 2);
            if (order)
                clb_cl_device_destroy(&k.dev);
            clb_cl_pool_destroy(&k.pool);
            if (!order)
                clb_cl_device_destroy(&k.dev);
            finish();
        }
    }
}

int main(void)
{
    static const struct kit_test tests[] = {
        KIT_TEST(learns_the_first_size),          KIT_TEST(grows_around_what_is_out),
        KIT_TEST(takes_what_is_large_enough),     KIT_TEST(max_bytes_is_kept),
        KIT_TEST(the_device_has_a_limit_too),     KIT_TEST(waiting_alloc_and_drain),
        KIT_TEST(waiters_of_all_sizes_are_woken), KIT_TEST(ends_while_it_grows),
    };

    check_watchdog(110);
    page = (size_t)sysconf(_SC_PAGESIZE);
    kit_run(tests, sizeof(tests) / sizeof(tests[0]));
    return 0;
}
