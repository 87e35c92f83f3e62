/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool, frames and worker on the double, one step at a time: no thread but this one (caller-driven),
 * so that every count is exact.
 */
#include "pool_kit.h"

#define SIZE 10000

static unsigned mem_live(void)
{
    return dbl_mem_live();
}

static void finish(void)
{
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void life_of_a_frame(void)
{
    struct kit k;
    struct kit_seen seen = {0};
    clb_cl_frame *frame;
    clb_cl_pool_stats s;
    clb_packet_info info;
    void *first = NULL;
    int i, moved = 0;

    dbl_start(false);
    kit_open(&k, true, 3, SIZE, CLB_CL_FENCE_ALL);
    s = kit_stats(&k);
    CHECK_EQ(s.free, 3);
    CHECK_EQ(s.slots, 3);
    CHECK_EQ(s.mem, CLB_CL_MEM_ALLOC_HOST);
    CHECK_EQ(s.slot_bytes, (SIZE + 63) / 64 * 64);
    CHECK_EQ(dbl_mapped(), 3);
    for (i = 0; i < 20; i++) {
        struct clb_buf buf;

        seen.n = (uint64_t)i;
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
        CHECK_EQ((uintptr_t)buf.data % 64, 0);
        moved += buf.data != first;
        first = buf.data;
        kit_fill(&buf, seen.n, SIZE);
        CHECK_EQ(kit_stats(&k).filling, 1);
        CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE - 1), CLB_OK);
        CHECK_EQ(kit_stats(&k).held, 1);
        CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
        CHECK_EQ(kit_stats(&k).device, 1);
        CHECK_EQ(clb_cl_frame_size(frame), SIZE - 1);
        clb_cl_frame_get_info(frame, &info, sizeof(info));
        CHECK_EQ(info.size, SIZE - 1);
        kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
        CHECK(clb_cl_frame_ref(frame) == frame);
        {
            clb_cl_frame *second = frame;

            clb_cl_frame_unref(&second);
        }
        CHECK_EQ(kit_stats(&k).device, 1);
        clb_cl_frame_unref(&frame);
        CHECK(!frame);
        CHECK_EQ(kit_stats(&k).retired, 1);
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).free, 3);
    }
    CHECK_EQ(seen.good, 20);
    CHECK_EQ(seen.bad, 0);
    CHECK_GT(moved, 10); /* the double moves them, and nobody minds */
    s = kit_stats(&k);
    CHECK_EQ(s.created, 3);
    CHECK_EQ(s.allocs, 20);
    CHECK_EQ(s.renewed + s.poisoned, 0);
    for (i = 0; i < 32; i++)
        s.allocs -= s.hist[i];
    CHECK_EQ(s.allocs, 0);
    kit_close(&k);
    CHECK_EQ(dbl_events_live(), 0);
    finish();
}

/* The referee itself: a consumer that does not wait for `ready` is seen. */
static void the_double_sees_a_missing_wait(void)
{
    struct kit k;
    clb_cl_frame *frame;
    struct dbl_kernel kernel = {0};

    dbl_start(false);
    kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
    dbl_set_eager(false);
    frame = kit_frame(&k, 1);
    kernel.arg = clb_cl_frame_mem(frame);
    CHECK_EQ(dbl_enqueue(k.queue, &kernel, NULL), CL_SUCCESS);
    dbl_fns.Flush(k.queue);
    dbl_settle();
    CHECK_GE(dbl_violations(), 1);
    clb_cl_frame_unref(&frame);
    kit_settle(&k);
    dbl_set_eager(true);
    kit_close(&k);
    CHECK_EQ(dbl_finish(), 0);
}

/* host_readable: the host sees what was there; else it sees garbage. */
static void readable_maps_keep_the_content(void)
{
    int readable;

    for (readable = 0; readable < 2; readable++) {
        struct kit k;
        clb_cl_frame *frame;
        struct clb_buf buf;
        int same;

        dbl_start(false);
        kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
        clb_cl_pool_destroy(&k.pool);
        CHECK_EQ(clb_cl_pool_create(
                     &k.pool, k.dev,
                     clb_cl_pool_params(.buf_size = SIZE, .count = 1, .host_readable = readable)),
                 CLB_OK);
        k.a = clb_cl_pool_allocator(k.pool);
        frame = kit_frame(&k, 1);
        clb_cl_frame_unref(&frame);
        kit_settle(&k);
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
        same = ((unsigned char *)buf.data)[77] == kit_byte(1, 77);
        CHECK_EQ(same, readable);
        clb_buf_free(&k.a, &buf);
        kit_close(&k);
        finish();
    }
}

/* ---- exact counts ---------------------------------------------------------------------------- */

static uint64_t by_name[DBL_FN_COUNT];

static uint64_t counted(void)
{
    return dbl_total();
}

static void note_names(void)
{
    int i;

    for (i = 0; i < DBL_FN_COUNT; i++)
        by_name[i] = dbl_calls((enum dbl_fn)i);
}

/* Exactly these calls since note_names(). */
static void check_release_calls(void)
{
    int i;

    for (i = 0; i < DBL_FN_COUNT; i++) {
        uint64_t want = i == DBL_EnqueueUnmapMemObject || i == DBL_Flush ? 1 : 0;

        if (dbl_calls((enum dbl_fn)i) - by_name[i] != want)
            fprintf(stderr, "release: %s\n", dbl_fn_name((enum dbl_fn)i));
        CHECK_EQ(dbl_calls((enum dbl_fn)i) - by_name[i], want);
    }
}

static void calls_per_frame(void)
{
    enum { SLOTS = 3, FRAMES = 400 };
    struct kit k;
    struct kit_seen seen[SLOTS] = {0};
    clb_cl_frame *frame[SLOTS] = {0};
    uint64_t before, worker = 0, created = 0, heap = 0, worst = 0;
    int i, j;

    dbl_start(false);
    kit_open(&k, true, SLOTS, SIZE, CLB_CL_FENCE_ALL);
    dbl_set_eager(false); /* every event is pending when it is first looked at: the dearest case */
    for (i = 0; i < FRAMES; i++) {
        struct clb_buf buf;
        cl_event ev;
        int s = i % SLOTS;

        if (i == 100) {
            heap = kit_stats(&k).heap_allocs;
            created = dbl_calls(DBL_CreateBuffer) + dbl_calls(DBL_CreateCommandQueue);
            worker = 0;
        }
        before = counted();
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
        if (i % 5 == 0) { /* a dropped packet */
            clb_buf_free(&k.a, &buf);
            CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
        }
        kit_fill(&buf, (uint64_t)i, SIZE);
        CHECK_EQ(counted() - before, 0); /* alloc, drop */
        note_names();
        CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE), CLB_OK);
        check_release_calls();
        before = counted();
        CHECK_EQ(clb_cl_frame_from_buf(&frame[s], k.pool, &buf), CLB_OK);
        CHECK_EQ(counted() - before, 0);
        seen[s].n = (uint64_t)i;
        kit_consume(&k, k.queue, frame[s], &seen[s], NULL, &ev);
        CHECK_EQ(clb_cl_frame_used(frame[s], 1, &ev), CLB_OK);
        dbl_fns.ReleaseEvent(ev);
        before = counted();
        clb_cl_frame_unref(&frame[s]);
        CHECK_EQ(counted() - before, 0); /* unref */
        before = counted();
        /* the worker, interleaved with single steps of the runtime */
        for (j = 0; j < 40 && kit_stats(&k).free < SLOTS - 1u; j++) {
            clb_cl_device_poll(k.dev, 0);
            dbl_step();
        }
        if (i % SLOTS == SLOTS - 1)
            kit_settle(&k);
        worker += counted() - before;
        if (counted() - before > worst && i >= 100)
            worst = counted() - before;
    }
    kit_settle(&k);
    printf("calls of the worker per frame: %.2f, at most %u\n", (double)worker / (FRAMES - 100),
           (unsigned)worst);
    CHECK_LE(worker, 18 * (FRAMES - 100));
    CHECK_LE(worst, 18 * SLOTS);
    CHECK_EQ(kit_stats(&k).heap_allocs, heap);
    CHECK_EQ(dbl_calls(DBL_CreateBuffer) + dbl_calls(DBL_CreateCommandQueue), created);
    before = counted(); /* idle */
    for (i = 0; i < 10; i++)
        CHECK_EQ(clb_cl_device_poll(k.dev, i < 5 ? 0 : 10 * MS),
                 i < 5 ? CLB_ERR_AGAIN : CLB_ERR_TIMEOUT);
    CHECK_EQ(counted() - before, 0);
    for (i = 0; i < SLOTS; i++)
        CHECK_EQ(seen[i].bad, 0);
    dbl_set_eager(true);
    kit_close(&k);
    finish();
}

/* ---- fences ---------------------------------------------------------------------------------- */

/* A kernel that runs holds its buffer: told by an event, by a marker on our queue or on a registered
 * one. */
static void a_running_kernel_holds_its_buffer(void)
{
    int how;

    for (how = 0; how < 5; how++) {
        struct kit k;
        struct kit_seen seen = {.n = 7};
        struct dbl_gate *gate;
        cl_command_queue other;
        clb_cl_frame *frame;
        struct clb_buf buf;
        cl_int code;
        cl_event ev;
        int i;

        dbl_start(false);
        gate = dbl_gate_new();
        kit_open(&k, true, 1, SIZE,
                 how == 1 || how == 3 ? CLB_CL_FENCE_EXPLICIT : CLB_CL_FENCE_ALL);
        other = dbl_fns.CreateCommandQueue(clb_cl_device_context(k.dev), clb_cl_device_id(k.dev), 0,
                                           &code);
        frame = kit_frame(&k, 7);
        switch (how) {
        case 0: /* the marker on the device's queue */
            kit_consume(&k, k.queue, frame, &seen, gate, NULL);
            break;
        case 1: /* the event alone */
            kit_consume(&k, k.queue, frame, &seen, gate, &ev);
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
            dbl_fns.ReleaseEvent(ev);
            break;
        case 2: /* the marker on a registered queue */
            CHECK_EQ(clb_cl_device_add_queue(k.dev, other), CLB_OK);
            CHECK_EQ(clb_cl_device_add_queue(k.dev, other), CLB_ERR_BUSY);
            kit_consume(&k, other, frame, &seen, gate, NULL);
            break;
        case 3: /* a marker for what is enqueued so far */
            kit_consume(&k, other, frame, &seen, gate, NULL);
            CHECK_EQ(clb_cl_frame_used_on(frame, other), CLB_OK);
            break;
        default: /* many events, only the first of them pending */
            kit_consume(&k, other, frame, &seen, gate, &ev);
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
            dbl_fns.ReleaseEvent(ev);
            for (i = 0; i < 20; i++) {
                struct dbl_kernel none = {0};

                CHECK_EQ(dbl_enqueue(k.queue, &none, &ev), CL_SUCCESS);
                dbl_fns.Flush(k.queue);
                CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
                dbl_fns.ReleaseEvent(ev);
            }
            break;
        }
        clb_cl_frame_unref(&frame);
        kit_settle(&k);
        check_sleep_ms(5); /* the net looks too */
        kit_settle(&k);
        CHECK_EQ(kit_stats(&k).retired, 1);
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
        CHECK_EQ(kit_alloc(&k, &buf, 2 * MS), CLB_ERR_NOBUFS);
        CHECK_EQ(clb_cl_device_drain(k.dev, 2 * MS), CLB_ERR_TIMEOUT);
        CHECK_EQ(clb_cl_device_drain(k.dev, 0), CLB_ERR_AGAIN);
        dbl_gate_open(gate);
        kit_settle(&k);
        CHECK_EQ(clb_cl_device_drain(k.dev, 0), CLB_OK);
        CHECK_EQ(kit_stats(&k).free, 1);
        CHECK_EQ(seen.good, 1);
        CHECK_EQ(seen.bad, 0);
        CHECK_EQ(kit_stats(&k).renewed, 0);
        if (how == 2) {
            CHECK_EQ(clb_cl_device_remove_queue(k.dev, other), CLB_OK);
            CHECK_EQ(clb_cl_device_remove_queue(k.dev, other), CLB_ERR_INVAL);
        }
        dbl_fns.ReleaseCommandQueue(other);
        kit_close(&k);
        finish();
    }
}

/* Slots that are retired together share their markers. */
static void markers_are_shared(void)
{
    struct kit k;
    struct kit_seen seen[3] = {0};
    clb_cl_frame *frame[3];
    uint64_t markers, flushes;
    int i;

    dbl_start(false);
    kit_open(&k, true, 3, SIZE, CLB_CL_FENCE_ALL);
    for (i = 0; i < 3; i++) {
        frame[i] = kit_frame(&k, (uint64_t)i);
        seen[i].n = (uint64_t)i;
        kit_consume(&k, k.queue, frame[i], &seen[i], NULL, NULL);
    }
    markers = dbl_calls(DBL_EnqueueMarkerWithWaitList);
    flushes = dbl_calls(DBL_Flush);
    for (i = 0; i < 3; i++)
        clb_cl_frame_unref(&frame[i]);
    kit_settle(&k);
    CHECK_EQ(dbl_calls(DBL_EnqueueMarkerWithWaitList) - markers, 1);
    CHECK_EQ(dbl_calls(DBL_Flush) - flushes, 2); /* the marker's and one for three maps */
    CHECK_EQ(kit_stats(&k).free, 3);
    kit_close(&k);
    finish();
}

/* ---- images and events ---------------------------------------------------------------------- */

static void images_of_frames(void)
{
    struct kit k;
    clb_cl_frame *frame;
    struct clb_image img;

    dbl_start(false);
    kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
    frame = kit_frame(&k, 0);
    CHECK(clb_cl_frame_image(frame) == NULL);
    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_GRAY8, 100, 100, 1, 1), CLB_OK);
    CHECK_EQ(clb_cl_frame_set_image(frame, &img), CLB_OK);
    CHECK_EQ(clb_cl_frame_image(frame)->width, 100);
    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_GRAY8, 100, 101, 1, 1), CLB_OK);
    CHECK_EQ(clb_cl_frame_set_image(frame, &img), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_cl_frame_image(frame)->height, 100);
    CHECK_EQ(clb_cl_frame_set_image(frame, NULL), CLB_OK);
    CHECK(clb_cl_frame_image(frame) == NULL && clb_cl_frame_metadata(frame, NULL) == NULL);
    clb_cl_frame_unref(&frame);
    clb_cl_frame_unref(&frame);
    clb_cl_frame_unref(NULL);
    CHECK(clb_cl_frame_mem(NULL) == NULL && clb_cl_frame_ready(NULL) == NULL);
    kit_close(&k);
    finish();
}

/* More events than fit: one more heap allocation, and none the second time. */
static void many_events_per_frame(void)
{
    struct kit k;
    cl_event ev[40];
    uint64_t heap = 0;
    int i, j;

    dbl_start(false);
    kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
    for (i = 0; i < 3; i++) {
        clb_cl_frame *frame = kit_frame(&k, 0);

        for (j = 0; j < 40; j++)
            CHECK_EQ(dbl_enqueue(k.queue, &(struct dbl_kernel){0}, &ev[j]), CL_SUCCESS);
        dbl_fns.Flush(k.queue);
        CHECK_EQ(clb_cl_frame_used(frame, 3, ev), CLB_OK);
        CHECK_EQ(clb_cl_frame_used(frame, 37, ev + 3), CLB_OK);
        for (j = 0; j < 40; j++)
            dbl_fns.ReleaseEvent(ev[j]);
        clb_cl_frame_unref(&frame);
        kit_settle(&k);
        if (i == 0)
            heap = kit_stats(&k).heap_allocs;
        CHECK_EQ(kit_stats(&k).heap_allocs, heap);
    }
    kit_close(&k);
    CHECK_EQ(dbl_events_live(), 0);
    finish();
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Frame, released buffer, unreleased buffer, pool and device end in every order. */
static void ends_in_every_order(void)
{
    int order[5], count = 0, a, b, c, e, f, i;

    for (a = 0; a < 5; a++)
        for (b = 0; b < 5; b++)
            for (c = 0; c < 5; c++)
                for (e = 0; e < 5; e++) {
                    struct kit k;
                    struct kit_seen seen = {.n = 9};
                    struct clb_buf released, filling;
                    clb_cl_frame *frame;

                    f = 10 - a - b - c - e;
                    if (a == b || a == c || a == e || b == c || b == e || c == e)
                        continue;
                    order[0] = a, order[1] = b, order[2] = c, order[3] = e, order[4] = f;
                    dbl_start(false);
                    kit_open(&k, true, 3, SIZE, CLB_CL_FENCE_ALL);
                    frame = kit_frame(&k, 9);
                    kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
                    CHECK_EQ(kit_alloc(&k, &released, 0), CLB_OK);
                    CHECK_EQ(k.a.release(k.a.opaque, &released, SIZE), CLB_OK);
                    CHECK_EQ(kit_alloc(&k, &filling, 0), CLB_OK);
                    for (i = 0; i < 5; i++) {
                        switch (order[i]) {
                        case 0: clb_cl_frame_unref(&frame); break;
                        case 1: clb_buf_free(&k.a, &released); break;
                        case 2: kit_fill(&filling, 1, SIZE), clb_buf_free(&k.a, &filling); break;
                        case 3: clb_cl_pool_destroy(&k.pool); break;
                        default: clb_cl_device_destroy(&k.dev); break;
                        }
                    }
                    kit_wait_gone(mem_live);
                    CHECK_EQ(seen.bad, 0);
                    CHECK_EQ(dbl_events_live(), 0);
                    finish();
                    count++;
                }
    CHECK_EQ(count, 120);
}

/* After the end of a caller-driven device nobody works for it: the last unref releases the memory
 * object itself, and nothing is given out any more. */
static void last_unref_after_the_end(void)
{
    struct kit k;
    clb_cl_frame *frame;
    struct clb_buf buf;

    dbl_start(false);
    kit_open(&k, true, 2, SIZE, CLB_CL_FENCE_ALL);
    frame = kit_frame(&k, 1);
    clb_cl_device_destroy(&k.dev);
    CHECK_EQ(dbl_mem_live(), 1); /* the idle one is gone */
    CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_CLOSED);
    CHECK_EQ(kit_alloc(&k, &buf, SEC), CLB_ERR_CLOSED);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(dbl_mem_live(), 0);
    clb_cl_pool_destroy(&k.pool);
    finish();
}

/* A consumer that never finishes: bounded, said, and nothing hangs. */
static void a_consumer_that_never_finishes(void)
{
    struct kit k;
    struct kit_seen seen = {.n = 2};
    struct dbl_gate *gate;
    clb_cl_frame *frame;
    struct clb_buf buf;
    int64_t start;

    dbl_start(false);
    gate = dbl_gate_new();
    kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
    frame = kit_frame(&k, 2);
    kit_consume(&k, k.queue, frame, &seen, gate, NULL);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clb_cl_device_drain(k.dev, 20 * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(kit_alloc(&k, &buf, 20 * MS), CLB_ERR_NOBUFS);
    clb_cl_pool_destroy(&k.pool);
    start = check_ms();
    clb_cl_device_destroy(&k.dev);
    CHECK_GE(check_ms() - start, 1900);
    CHECK_LE(check_ms() - start, 20000);
    dbl_gate_open(gate); /* and its memory is still there */
    dbl_settle();
    CHECK_EQ(seen.good, 1);
    CHECK_EQ(seen.bad, 0);
    finish();
}

static void imported_objects_are_given_back(void)
{
    clb_cl_device *dev, *partly;
    clb_cl_pool *pool;
    cl_context context, foreign;
    cl_command_queue queue, strange;
    clb_cl_device_info info;
    struct clb_status st;
    cl_device_id id = dbl_device();
    cl_int code;

    dbl_start(false);
    context = dbl_fns.CreateContext(NULL, 1, &id, NULL, NULL, &code);
    foreign = dbl_fns.CreateContext(NULL, 1, &id, NULL, NULL, &code);
    queue = dbl_fns.CreateCommandQueue(context, id, 0, &code);
    strange = dbl_fns.CreateCommandQueue(foreign, id, 0, &code);
    CHECK_EQ(clbi_cl_device_create_with(&dbl_fns, &partly,
                                        clb_cl_device_params(.context = context, .status = &st)),
             CLB_ERR_INVAL);
    CHECK_EQ(clbi_cl_device_create_with(&dbl_fns, &partly,
                                        clb_cl_device_params(.context = context, .device = id,
                                                             .queue = strange, .status = &st)),
             CLB_ERR_INVAL);
    CHECK_EQ(dbl_context_refs(context), 2);
    CHECK_EQ(
        clbi_cl_device_create_with(
            &dbl_fns, &dev, clb_cl_device_params(.context = context, .device = id, .queue = queue)),
        CLB_OK);
    CHECK(clb_cl_device_queue(dev) == queue && clb_cl_device_context(dev) == context);
    clb_cl_device_get_info(dev, &info, sizeof(info));
    CHECK_EQ(info.index, UINT32_MAX);
    CHECK_EQ(clb_cl_device_add_queue(dev, strange), CLB_ERR_INVAL);
    CHECK_EQ(clb_cl_device_add_queue(dev, queue), CLB_ERR_BUSY);
    dbl_set_eager(true);
    CHECK_EQ(clb_cl_pool_create(&pool, dev, clb_cl_pool_params(.buf_size = SIZE)), CLB_OK);
    clb_cl_device_destroy(&dev);
    clb_cl_pool_destroy(&pool);
    kit_wait_gone(mem_live);
    {
        int64_t end = check_ms() + 5000;

        while (dbl_context_refs(context) > 2 && check_ms() < end)
            check_sleep_ms(1);
    }
    CHECK_EQ(dbl_context_refs(context), 2);
    CHECK_EQ(dbl_queue_refs(queue), 1);
    dbl_fns.ReleaseCommandQueue(queue);
    dbl_fns.ReleaseCommandQueue(strange);
    dbl_fns.ReleaseContext(context);
    dbl_fns.ReleaseContext(foreign);
    finish();
}

int main(void)
{
    static const struct kit_test tests[] = {
        KIT_TEST(life_of_a_frame),
        KIT_TEST(the_double_sees_a_missing_wait),
        KIT_TEST(readable_maps_keep_the_content),
        KIT_TEST(calls_per_frame),
        KIT_TEST(a_running_kernel_holds_its_buffer),
        KIT_TEST(markers_are_shared),
        KIT_TEST(images_of_frames),
        KIT_TEST(many_events_per_frame),
        KIT_TEST(ends_in_every_order),
        KIT_TEST(last_unref_after_the_end),
        KIT_TEST(a_consumer_that_never_finishes),
        KIT_TEST(imported_objects_are_given_back),
    };

    check_watchdog(240);
    kit_run(tests, sizeof(tests) / sizeof(tests[0]));
    return 0;
}
