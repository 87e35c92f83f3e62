/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool that learns how large its buffers should be, on the double: mostly one step at a time
 * (caller-driven), so that every count is exact.
 */
#include <pthread.h>
#include <unistd.h>

#include "pool_kit.h"

static size_t page;

/* The worker may end a moment after the last handle. */
static void finish(void)
{
    kit_wait_gone(dbl_live);
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
}

static void open_learning(struct kit *k, bool caller_driven, uint32_t count, size_t max_bytes)
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

/* alloc as the I/O thread does it: it makes no OpenCL call, whatever comes out. (The double has no thread of its own
 * when this is used.) */
static int ask(struct kit *k, size_t size, struct clb_buf *buf)
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
static int try_size(struct kit *k, size_t size)
{
    struct clb_buf buf;
    int err = ask(k, size, &buf);

    if (err == CLB_OK)
        clb_buf_free(&k->a, &buf);
    return err;
}

/* Passes of the worker, one by one: the limit holds after each of them. */
static void settle_within(struct kit *k, size_t max_bytes)
{
    int passes = 0;

    do {
        dbl_settle();
        CHECK_LE(kit_stats(k).bytes, max_bytes);
        CHECK_LE(passes++, 1000);
    } while (clb_cl_device_poll(k->dev, 0) == CLB_OK);
}

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

/* ---- failures -------------------------------------------------------------------------------- */

/* No larger buffer is to be had: the small ones go on, and it is tried again, not in a loop. */
static void small_ones_outlive_failed_growth(void)
{
    static const cl_int codes[] = {CL_MEM_OBJECT_ALLOCATION_FAILURE, DBL_NULL_SUCCESS};
    int how;

    for (how = 0; how < 10; how++) {
        uint32_t count = how % 2 ? 1 : 3;
        struct kit k;
        struct clb_buf buf;
        uint64_t created;
        int i;

        /* how 8, 9: max_bytes has no room for old and new */
        open_learning(&k, true, count, how >= 8 ? 7 * page : 0);
        CHECK_EQ(try_size(&k, 2 * page), CLB_ERR_NOBUFS);
        kit_settle(&k);
        created = kit_stats(&k).created;
        switch (how / 2) {
        case 0:
        case 1: dbl_fail(DBL_CreateBuffer, 1, 1000, codes[how / 2]); break;
        case 2: dbl_fail_event(DBL_EnqueueMapBuffer, 1, 1, -5); break;
        case 3: dbl_fail(DBL_EnqueueMapBuffer, 1, 1, DBL_NULL_SUCCESS); break;
        default: dbl_set_max_alloc(5 * page); break;
        }
        CHECK_EQ(try_size(&k, 6 * page), CLB_ERR_NOBUFS);
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).wanted_bytes, 6 * page);
        if (how / 4 == 1 && kit_stats(&k).slot_bytes == 6 * page) {
            CHECK_EQ(kit_stats(&k).poisoned, 1); /* a slow machine: the second attempt has come */
        } else {
            CHECK_EQ(kit_stats(&k).slot_bytes, 2 * page);
            CHECK_EQ(try_size(&k, 6 * page), CLB_ERR_NOBUFS);
        }
        if (how < 4) {
            CHECK_EQ(kit_stats(&k).free, count); /* the same ones */
            CHECK_EQ(kit_stats(&k).created, created);
            for (i = 0; i < 60; i++) { /* tried again all the while */
                clb_cl_device_poll(k.dev, MS);
                CHECK_EQ(try_size(&k, 2 * page),
                         count == 1 && kit_stats(&k).free == 0 ? CLB_ERR_NOBUFS : CLB_OK);
            }
            CHECK_GE(dbl_calls(DBL_CreateBuffer), created + 2);
            CHECK_LE(dbl_calls(DBL_CreateBuffer), created + 12);
            kit_settle(&k);
            CHECK_EQ(kit_stats(&k).free, count);
            dbl_fail(DBL_CreateBuffer, 1, 0, 0);
        } else if (how < 8) {
            CHECK_EQ(kit_stats(&k).free, count); /* one of them is new */
            CHECK_EQ(kit_stats(&k).poisoned, 1);
        }
        CHECK_EQ(try_size(&k, 2 * page), CLB_OK);
        dbl_set_max_alloc((size_t)1 << 30);
        k.size = 6 * page;
        CHECK_EQ(kit_alloc(&k, &buf, 10 * SEC), CLB_OK); /* in time it works */
        clb_buf_free(&k.a, &buf);
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).free, how >= 8 ? 1 : count);
        CHECK_EQ(kit_stats(&k).slot_bytes, 6 * page);
        CHECK_EQ(kit_stats(&k).bytes, kit_stats(&k).slots * 6 * page);
        kit_close(&k);
        finish();
    }
}

/* A size that cannot be had takes nothing from those that can: for ever, and after other failures. */
static void a_lying_peer_costs_nothing(void)
{
    struct kit k;
    struct kit_seen seen[2] = {{.size = 3000}, {.size = 3000}};
    uint64_t i;

    open_learning(&k, false, 2, 0);
    k.size = 3000;
    for (i = 0; i < 400; i++) {
        clb_cl_frame *frame;
        struct clb_buf buf;

        if (i == 100) { /* the buffers that the pool has by then are all it gets */
            CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
            CHECK_EQ(kit_stats(&k).free, 2);
            dbl_fail(DBL_CreateBuffer, 1, 100000, CL_MEM_OBJECT_ALLOCATION_FAILURE);
            k.size = (size_t)400 << 20;
            CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
            k.size = 3000;
        }
        frame = kit_frame(&k, i);
        seen[i % 2].n = i;
        kit_consume(&k, k.queue, frame, &seen[i % 2], NULL, NULL);
        clb_cl_frame_unref(&frame);
        CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
    }
    CHECK_EQ(seen[0].good + seen[1].good, 400);
    CHECK_EQ(seen[0].bad + seen[1].bad, 0);
    CHECK_EQ(kit_stats(&k).created, 2);
    CHECK_EQ(kit_stats(&k).slots, 2);
    CHECK_EQ(kit_stats(&k).wanted_bytes, (size_t)400 << 20);
    kit_close(&k);
    finish();
}

/* What is asked for after a size that cannot be had, and is larger than anything before, is had. */
static void a_failed_size_is_not_the_limit(void)
{
    int known;

    for (known = 0; known < 2; known++) {
        struct kit k;
        uint64_t calls;
        int i;

        open_learning(&k, true, 3, 0);
        dbl_set_max_alloc(20 * page); /* of which the pool does not know */
        if (known) {
            CHECK_EQ(try_size(&k, page), CLB_ERR_NOBUFS);
            kit_settle(&k);
        }
        CHECK_EQ(try_size(&k, 1000 * page), CLB_ERR_NOBUFS);
        kit_settle(&k);
        CHECK_EQ(try_size(&k, 100 * page), CLB_ERR_NOBUFS);
        kit_settle(&k);
        calls = dbl_calls(DBL_CreateBuffer);
        for (i = 0; i < 30; i++) { /* has failed: waits for its turn, which may come meanwhile */
            CHECK_EQ(try_size(&k, (i % 2 ? 100 : 200) * page), CLB_ERR_NOBUFS);
            kit_settle(&k);
        }
        CHECK_LE(dbl_calls(DBL_CreateBuffer), calls + 12);
        CHECK_EQ(try_size(&k, 10 * page), CLB_ERR_NOBUFS);
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).slot_bytes, 10 * page);
        CHECK_EQ(try_size(&k, 10 * page), CLB_OK);
        CHECK_EQ(kit_stats(&k).wanted_bytes, 1000 * page);
        for (i = 0; i < 40; i++) /* attempts come and go */
            clb_cl_device_poll(k.dev, MS);
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).free, 3);
        CHECK_EQ(kit_stats(&k).bytes, 30 * page);
        dbl_set_max_alloc((size_t)1 << 40);
        k.size = 1000 * page;
        {
            struct clb_buf buf;

            CHECK_EQ(kit_alloc(&k, &buf, 10 * SEC), CLB_OK);
            clb_buf_free(&k.a, &buf);
        }
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).bytes, 3000 * page);
        CHECK_EQ(kit_stats(&k).poisoned, 0);
        kit_close(&k);
        finish();
    }
}

/* A size that was never mapped is tried with one buffer; the others serve on meanwhile. */
static void one_buffer_tries(void)
{
    struct kit k;
    int i, j;

    open_learning(&k, true, 4, 0);
    CHECK_EQ(try_size(&k, page), CLB_ERR_NOBUFS);
    kit_settle(&k);
    dbl_set_eager(false);
    CHECK_EQ(try_size(&k, 3 * page), CLB_ERR_NOBUFS);
    for (i = 0; i < 6; i++) {
        for (j = 0; j < 10; j++)
            clb_cl_device_poll(k.dev, 0);
        if (kit_stats(&k).slot_bytes > page)
            break;
        CHECK_GE(kit_stats(&k).free, 3);
        CHECK_LE(kit_stats(&k).created, 5);
        dbl_step();
    }
    CHECK_EQ(kit_stats(&k).slot_bytes, 3 * page);
    dbl_set_eager(true);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).bytes, 12 * page);
    kit_close(&k);
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

/* ---- threads --------------------------------------------------------------------------------- */

struct user {
    struct kit *k;
    pthread_t thread;
    unsigned number;
    uint64_t served;
};

static void *use_sizes(void *arg)
{
    struct user *u = arg;
    struct kit k = *u->k;
    unsigned r = 12345 + u->number;
    uint64_t i;

    for (i = 0; i < 120; i++) {
        struct kit_seen seen = {.n = i + u->number * 1000};
        clb_cl_frame *frame = NULL;
        struct clb_buf buf;
        cl_event ev;

        r = r * 1103515245 + 12345;
        seen.size = k.size = 1 + (r >> 8) % (i % 10 == 9 ? 24000 + i * 400 : 8000);
        if (kit_alloc(&k, &buf, i % 3 ? 20 * SEC : 0) != CLB_OK)
            continue;
        kit_fill(&buf, seen.n, k.size);
        if (i % 7 == 3) {
            clb_buf_free(&k.a, &buf);
            continue;
        }
        CHECK_EQ(k.a.release(k.a.opaque, &buf, k.size), CLB_OK);
        CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
        kit_consume(&k, k.queue, frame, &seen, NULL, &ev);
        CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
        clb_cl_frame_unref(&frame);
        while (dbl_status(ev) > 0)
            check_sleep_ms(0);
        dbl_fns.ReleaseEvent(ev);
        CHECK_EQ(seen.good, 1);
        CHECK_EQ(seen.bad, 0);
        u->served++;
    }
    return NULL;
}

/* Sizes up and down from four threads, in less memory than they could use, and failures on the way. */
static void four_threads_of_all_sizes(void)
{
    int round;

    for (round = 0; round < 2; round++) {
        struct kit k;
        struct user u[4];
        clb_cl_pool_stats s;
        uint64_t served = 0;
        int i;

        open_learning(&k, false, 6, 80 * page);
        for (i = 0; i < 4; i++) {
            u[i] = (struct user){.k = &k, .number = (unsigned)i};
            CHECK_EQ(pthread_create(&u[i].thread, NULL, use_sizes, &u[i]), 0);
        }
        for (i = 0; i < 20 && round == 1; i++) {
            dbl_fail(DBL_CreateBuffer, 1, 1 + (unsigned)i % 3, CL_OUT_OF_RESOURCES);
            check_sleep_ms(5);
        }
        for (i = 0; i < 4; i++) {
            pthread_join(u[i].thread, NULL);
            served += u[i].served;
        }
        dbl_fail(DBL_CreateBuffer, 1, 0, 0);
        for (i = 0; i < 5000 && kit_stats(&k).slot_bytes < kit_stats(&k).wanted_bytes; i++)
            check_sleep_ms(1);
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
        s = kit_stats(&k);
        CHECK_EQ(s.slot_bytes, s.wanted_bytes);
        CHECK_LE(s.bytes, 80 * page);
        CHECK_EQ(s.free, s.slots);
        CHECK_GE(s.slots, 1);
        CHECK_GE(served, 4 * 60);
        kit_close(&k);
        finish();
    }
}

int main(void)
{
    static const struct kit_test tests[] = {
        KIT_TEST(learns_the_first_size),
        KIT_TEST(grows_around_what_is_out),
        KIT_TEST(takes_what_is_large_enough),
        KIT_TEST(max_bytes_is_kept),
        KIT_TEST(the_device_has_a_limit_too),
        KIT_TEST(small_ones_outlive_failed_growth),
        KIT_TEST(a_lying_peer_costs_nothing),
        KIT_TEST(a_failed_size_is_not_the_limit),
        KIT_TEST(one_buffer_tries),
        KIT_TEST(waiting_alloc_and_drain),
        KIT_TEST(waiters_of_all_sizes_are_woken),
        KIT_TEST(ends_while_it_grows),
        KIT_TEST(four_threads_of_all_sizes),
    };

    check_watchdog(110);
    page = (size_t)sysconf(_SC_PAGESIZE);
    kit_run(tests, sizeof(tests) / sizeof(tests[0]));
    return 0;
}
