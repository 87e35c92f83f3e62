/* SPDX-License-Identifier: Apache-2.0 */
/* A pool that learns, when larger buffers are not to be had, and when all threads want other sizes. */
#include "learn_kit.h"

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
        KIT_TEST(small_ones_outlive_failed_growth), KIT_TEST(a_lying_peer_costs_nothing),
        KIT_TEST(a_failed_size_is_not_the_limit),   KIT_TEST(one_buffer_tries),
        KIT_TEST(four_threads_of_all_sizes),
    };

    check_watchdog(110);
    page = (size_t)sysconf(_SC_PAGESIZE);
    kit_run(tests, sizeof(tests) / sizeof(tests[0]));
    return 0;
}
