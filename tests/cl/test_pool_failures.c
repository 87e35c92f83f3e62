/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fails, on the double and one step at a time: commands that used a frame, unmaps and maps,
 * memory, parameters, buffers of others.
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

/* ---- failures -------------------------------------------------------------------------------- */

static void failed_use_renews(void)
{
    int how;

    for (how = 0; how < 4; how++) {
        struct kit k;
        struct kit_seen seen = {.n = 3}, later = {.n = 4};
        struct dbl_gate *gate;
        struct dbl_kernel bad = {.fail = -5};
        clb_cl_frame *frame;
        clb_cl_pool_stats s;
        cl_event ev;

        dbl_start(false);
        dbl_set_failure(DBL_CUT);
        gate = dbl_gate_new();
        kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
        frame = kit_frame(&k, 3);
        kit_consume(&k, k.queue, frame, &seen, gate, NULL); /* runs, known by the marker alone */
        if (how == 0) { /* the event of a failed command is recorded */
            CHECK_EQ(dbl_enqueue(k.queue, &bad, &ev), CL_SUCCESS);
            dbl_fns.Flush(k.queue);
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
            dbl_fns.ReleaseEvent(ev);
        } else if (how == 2) { /* no marker to be had */
            dbl_fail(DBL_EnqueueMarkerWithWaitList, 1, 1, CL_OUT_OF_RESOURCES);
        } else if (how == 3) { /* the use cannot be recorded */
            CHECK_EQ(dbl_enqueue(k.queue, &(struct dbl_kernel){0}, &ev), CL_SUCCESS);
            dbl_fail(DBL_RetainEvent, 1, 1, CL_OUT_OF_HOST_MEMORY);
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_ERR_CL);
            dbl_fns.ReleaseEvent(ev);
        }
        clb_cl_frame_unref(&frame);
        kit_settle(&k);
        if (how == 1) { /* the marker is in; a command behind it fails and cuts the order */
            CHECK_EQ(kit_stats(&k).retired, 1);
            CHECK_EQ(dbl_enqueue(k.queue, &bad, NULL), CL_SUCCESS);
            dbl_fns.Flush(k.queue);
            kit_settle(&k);
        }
        if (how == 3) { /* the other fences hold */
            dbl_gate_open(gate);
            kit_settle(&k);
        }
        /* The first kernel still reads the old buffer; the slot has a new one. */
        s = kit_stats(&k);
        CHECK_EQ(s.renewed, 1);
        CHECK_EQ(s.free, 1);
        CHECK_EQ(s.created, 2);
        CHECK_EQ(s.poisoned, 0);
        frame = kit_frame(&k, 4);
        kit_consume(&k, k.queue, frame, &later, NULL, NULL);
        clb_cl_frame_unref(&frame);
        dbl_gate_open(gate);
        kit_settle(&k);
        CHECK_EQ(seen.good, 1);
        CHECK_EQ(seen.bad, 0);
        CHECK_EQ(later.bad, 0);
        CHECK_EQ(kit_stats(&k).free, 1);
        CHECK_EQ(dbl_mem_live(), 1);
        kit_close(&k);
        finish();
    }
}

static void failed_unmap_or_map_poisons(void)
{
    int how;

    for (how = 0; how < 7; how++) {
        struct kit k;
        struct kit_seen seen = {.n = 1};
        clb_cl_frame *frame = NULL;
        clb_cl_pool_stats s;
        struct clb_buf buf;
        uint64_t queues;
        int i;

        dbl_start(false);
        dbl_set_failure(how % 2 ? DBL_KILL : DBL_KEEP);
        kit_open(&k, true, 2, SIZE, CLB_CL_FENCE_ALL);
        queues = dbl_calls(DBL_CreateCommandQueue);
        switch (how) {
        case 0:
        case 1: dbl_fail_event(DBL_EnqueueUnmapMemObject, 1, 1, -1); break;
        case 2: dbl_fail(DBL_EnqueueMapBuffer, 1, 1, CL_MAP_FAILURE); break;
        case 3: dbl_fail(DBL_EnqueueMapBuffer, 1, 1, DBL_NULL_SUCCESS); break;
        case 4:
        case 5: dbl_fail_event(DBL_EnqueueMapBuffer, 1, 1, -5); break;
        default: dbl_fail(DBL_EnqueueUnmapMemObject, 1, 1, CL_INVALID_VALUE); break;
        }
        if (how == 6) { /* the release itself fails: the packet stays as it was */
            CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
            CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE), CLB_ERR_CL);
            CHECK(buf.data != NULL);
            clb_buf_free(&k.a, &buf);
        } else {
            frame = kit_frame(&k, 1);
            if (how > 1)
                kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
            clb_cl_frame_unref(&frame);
        }
        kit_settle(&k);
        s = kit_stats(&k);
        CHECK_EQ(s.poisoned, 1);
        CHECK_EQ(s.renewed, 0);
        CHECK_EQ(s.free, 2); /* refilled */
        CHECK_EQ(s.created, 3);
        CHECK_GE(dbl_calls(DBL_CreateCommandQueue), queues + 1); /* the private queue is new */
        for (i = 0; i < 10; i++) {
            seen.n = (uint64_t)i;
            frame = kit_frame(&k, seen.n);
            kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
            clb_cl_frame_unref(&frame);
            kit_settle(&k);
        }
        CHECK_EQ(seen.bad, 0);
        CHECK_EQ(kit_stats(&k).poisoned, 1);
        CHECK_EQ(kit_stats(&k).free, 2);
        kit_close(&k);
        CHECK_EQ(dbl_events_live(), 0);
        /* Whether the buffer whose unmap could not be enqueued was mapped is not known. */
        finish();
    }
}

/* A slot without memory is tried again, not in a loop, when somebody misses it. */
static void refill_is_tried_again(void)
{
    struct kit k;
    clb_cl_frame *frame;
    struct clb_buf buf;
    uint64_t total;

    dbl_start(false);
    kit_open(&k, true, 1, SIZE, CLB_CL_FENCE_ALL);
    dbl_fail_event(DBL_EnqueueMapBuffer, 1, 1, -5);
    dbl_fail(DBL_CreateBuffer, 1, 2, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    frame = kit_frame(&k, 1);
    clb_cl_frame_unref(&frame);
    kit_settle(&k);
    CHECK_EQ(kit_stats(&k).slots, 0);
    total = dbl_total();
    CHECK_EQ(clb_cl_device_poll(k.dev, 3 * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(dbl_total() - total, 0);
    CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
    CHECK_EQ(kit_alloc(&k, &buf, 5 * SEC), CLB_OK); /* the second try fails, the third does not */
    clb_buf_free(&k.a, &buf);
    CHECK_EQ(kit_stats(&k).free, 1);
    kit_close(&k);
    finish();
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void creation_fails_cleanly(void)
{
    static const cl_int codes[] = {-4, -5, -6, -61, DBL_NULL_SUCCESS};
    clb_cl_device *dev;
    clb_cl_pool *pool;
    struct clb_status st;
    unsigned i, n;

    dbl_start(false);
    dev = kit_device(true);
    for (i = 0; i < 5; i++) {
        for (n = 1; n <= 3; n++) {
            dbl_fail(DBL_CreateBuffer, n, 1, codes[i]);
            CHECK_EQ(
                clb_cl_pool_create(&pool, dev,
                                   clb_cl_pool_params(.buf_size = SIZE, .count = 3, .status = &st)),
                CLB_ERR_NOMEM);
            CHECK(!pool && st.text[0]);
            dbl_fail(DBL_CreateBuffer, 1, 0, 0);
            dbl_fail(DBL_EnqueueMapBuffer, n, 1, codes[i]);
            CHECK_EQ(
                clb_cl_pool_create(&pool, dev,
                                   clb_cl_pool_params(.buf_size = SIZE, .count = 3, .status = &st)),
                CLB_ERR_NOMEM);
            CHECK_EQ(clb_cl_device_drain(dev, SEC), CLB_OK);
            dbl_fail(DBL_EnqueueMapBuffer, 1, 0, 0);
            kit_wait_gone(mem_live);
        }
    }
#define REFUSED(code, ...)                                                                         \
    CHECK_EQ(clb_cl_pool_create(&pool, dev, clb_cl_pool_params(.status = &st, __VA_ARGS__)),       \
             code);                                                                                \
    CHECK(!pool && strlen(st.text) > 10 && st.err == code)
    REFUSED(CLB_ERR_NOSYS, .buf_size = SIZE, .mem = CLB_CL_MEM_STAGED);
    REFUSED(CLB_ERR_INVAL, .buf_size = SIZE, .mem = (enum clb_cl_mem)77);
    REFUSED(CLB_ERR_INVAL, .buf_size = SIZE, .align = 48);
    REFUSED(CLB_ERR_TOOBIG, .buf_size = (size_t)1 << 40);
    REFUSED(CLB_ERR_TOOBIG, .buf_size = SIZE_MAX / 2, .count = 4);
    REFUSED(CLB_ERR_TOOBIG, .buf_size = SIZE, .count = 4, .max_bytes = 3 * SIZE);
    /* The double's pointers are odd multiples of its alignment. */
    dbl_set_align(16);
    REFUSED(CLB_ERR_INVAL, .buf_size = SIZE);
    CHECK(strstr(st.text, "align") != NULL);
    CHECK_EQ(clb_cl_pool_create(&pool, dev, clb_cl_pool_params(.buf_size = SIZE, .align = 16)),
             CLB_OK);
    {
        struct clb_allocator a = clb_cl_pool_allocator(pool);
        struct clb_alloc_req req = {
            .capacity = SIZE, .payload = SIZE, .align = 64, .stream_name = ""};
        struct clb_buf buf;

        CHECK_EQ(a.alloc(a.opaque, &req, &buf), CLB_ERR_NOBUFS + 2); /* INVAL */
        req.align = 16;
        CHECK_EQ(a.alloc(a.opaque, &req, &buf), CLB_OK);
        a.free(a.opaque, &buf);
        req.payload = SIZE + 500; /* with metadata, which goes elsewhere */
        CHECK_EQ(a.alloc(a.opaque, &req, &buf), CLB_OK);
        a.free(a.opaque, &buf);
        req.capacity = SIZE + 1;
        CHECK_EQ(a.alloc(a.opaque, &req, &buf), CLB_ERR_TOOBIG);
    }
    clb_cl_pool_destroy(&pool);
    CHECK_EQ(clb_cl_pool_create(NULL, dev, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_cl_pool_create(&pool, NULL, NULL), CLB_ERR_INVAL);
    clb_cl_pool_destroy(NULL);
    clb_cl_pool_destroy(&pool);
    clb_cl_device_destroy(&dev);
    clb_cl_device_destroy(&dev);
    clb_cl_device_destroy(NULL);
    finish();
}

static void devices_are_found_or_not(void)
{
    clb_cl_device *dev;
    clb_cl_device_info info[2];
    struct clb_status st;
    size_t n;
    enum dbl_fn f;

    dbl_start(false);
    CHECK_EQ(clbi_cl_device_list_with(&dbl_fns, info, sizeof(info[0]), 2, &n, &st), CLB_OK);
    CHECK_EQ(n, 1);
    CHECK(!strcmp(info[0].name, "double") && !strcmp(info[0].platform, "Double"));
    CHECK(!strcmp(info[0].type, "cpu") && info[0].usable && info[0].fp16 && !info[0].usm_host);
    CHECK_EQ(info[0].base_align_bytes, 128);
    CHECK_EQ(clbi_cl_device_create_with(&dbl_fns, &dev,
                                        clb_cl_device_params(.select = "nope", .status = &st)),
             CLB_ERR_NODEV);
    CHECK(strstr(st.text, "nope") && strstr(st.text, "double"));
    CHECK_EQ(clbi_cl_device_create_with(&dbl_fns, &dev, clb_cl_device_params(.select = "OUBL")),
             CLB_OK);
    clb_cl_device_get_info(dev, &info[0], sizeof(info[0]));
    CHECK(!strcmp(info[0].name, "double") && info[0].index == 0);
    CHECK_EQ(clb_cl_device_poll(dev, 0), CLB_ERR_STATE);
    clb_cl_device_destroy(&dev);
    dbl_set_no_device(true);
    CHECK_EQ(clbi_cl_device_list_with(&dbl_fns, NULL, 0, 0, &n, &st), CLB_ERR_NODEV);
    CHECK(strstr(st.text, "/etc/OpenCL/vendors") && strstr(st.text, "POCL_CACHE_DIR"));
    CHECK_EQ(clbi_cl_device_create_with(&dbl_fns, &dev, clb_cl_device_params(.status = &st)),
             CLB_ERR_NODEV);
    CHECK(strstr(st.text, "/etc/OpenCL/vendors") != NULL);
    dbl_set_no_device(false);
    dbl_fail(DBL_GetDeviceIDs, 1, 1, -6); /* a broken platform */
    CHECK_EQ(clbi_cl_device_list_with(&dbl_fns, info, sizeof(info[0]), 2, &n, &st), CLB_OK);
    CHECK(n == 1 && !info[0].usable && strstr(info[0].error, "CL_OUT_OF_HOST_MEMORY"));
    dbl_fail(DBL_GetPlatformIDs, 1, 1, -1001);
    CHECK_EQ(clbi_cl_device_create_with(&dbl_fns, &dev, clb_cl_device_params(.status = &st)),
             CLB_ERR_NODEV);
    for (f = DBL_CreateContext; f <= DBL_CreateCommandQueue; f++) {
        for (n = 1; n <= (f == DBL_CreateCommandQueue ? 3u : 1u); n++) {
            if (f != DBL_CreateContext && f != DBL_CreateCommandQueue)
                continue;
            dbl_fail(f, (unsigned)n, 1, CL_OUT_OF_HOST_MEMORY);
            CHECK_EQ(
                clbi_cl_device_create_with(&dbl_fns, &dev, clb_cl_device_params(.status = &st)),
                CLB_ERR_NOMEM);
            CHECK_EQ(st.domain, CLB_DOMAIN_OPENCL);
            dbl_fail(f, 1, 0, 0);
        }
    }
    finish();
}

static void foreign_buffers_are_refused(void)
{
    struct kit k, other;
    clb_cl_frame *frame, *again;
    struct clb_buf buf, theirs, stale, host;
    struct clb_allocator h = clb_host_allocator();
    struct clb_alloc_req req = {.payload = 64, .capacity = 64, .align = 64, .stream_name = ""};
    int dummy;

    dbl_start(false);
    kit_open(&k, true, 2, SIZE, CLB_CL_FENCE_ALL);
    kit_open(&other, true, 1, SIZE, CLB_CL_FENCE_ALL);
    CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_ERR_STATE); /* not released */
#ifndef CLB_DEBUG_ABORT
    CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE + 1), CLB_ERR_INVAL);
#endif
    CHECK_EQ(kit_alloc(&other, &theirs, 0), CLB_OK);
    CHECK_EQ(other.a.release(other.a.opaque, &theirs, SIZE), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &theirs), CLB_ERR_INVAL);
#ifndef CLB_DEBUG_ABORT
    CHECK_EQ(k.a.release(k.a.opaque, &theirs, SIZE), CLB_ERR_INVAL);
#endif
    CHECK_EQ(h.alloc(h.opaque, &req, &host), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &host), CLB_ERR_INVAL);
    h.free(h.opaque, &host);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &(struct clb_buf){&dummy, 4, &dummy}),
             CLB_ERR_INVAL);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &(struct clb_buf){NULL, 0, NULL}),
             CLB_ERR_INVAL);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, NULL, &buf), CLB_ERR_INVAL);
    CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE), CLB_OK);
#ifndef CLB_DEBUG_ABORT
    CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE), CLB_ERR_INVAL); /* twice */
#endif
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&again, k.pool, &buf), CLB_ERR_STATE);
#ifndef CLB_DEBUG_ABORT
    {
        struct clb_buf copy = buf;

        k.a.free(k.a.opaque, &copy); /* of a frame: refused */
        CHECK_EQ(kit_stats(&k).device, 1);
    }
#endif
    clb_cl_frame_unref(&frame);
    stale = theirs;
    clb_buf_free(&other.a, &theirs); /* released, never a frame: retires */
    kit_settle(&k);
    kit_settle(&other);
    CHECK_EQ(kit_alloc(&other, &theirs, 0), CLB_OK); /* the same slot */
    CHECK(theirs.context == stale.context);
#ifndef CLB_DEBUG_ABORT
    other.a.free(other.a.opaque, &stale); /* a second time: not the one that is out now */
    CHECK_EQ(kit_stats(&other).filling, 1);
    CHECK_EQ(other.a.release(other.a.opaque, &stale, 1), CLB_ERR_INVAL);
#endif
    clb_buf_free(&other.a, &theirs);
    CHECK_EQ(kit_stats(&k).free, 2);
    CHECK_EQ(kit_stats(&other).free, 1);
    kit_close(&k);
    kit_close(&other);
    finish();
}

/* A buffer that is being replaced is not home yet: who drains waits for it. */
static void drain_waits_for_replacements(void)
{
    int how;

    for (how = 0; how < 4; how++) {
        struct kit k;
        clb_cl_frame *frame = NULL;
        struct kit_seen seen = {.n = 1};
        struct clb_buf buf;
        cl_event bad = NULL;

        dbl_start(true);
        kit_open(&k, false, 2, SIZE, CLB_CL_FENCE_ALL);
        dbl_set_create_time(20 * 1000000);
        switch (how) {
        case 0: dbl_fail(DBL_EnqueueUnmapMemObject, 1, 1, CL_INVALID_VALUE); break;
        case 1: dbl_fail_event(DBL_EnqueueUnmapMemObject, 1, 1, -1); break;
        case 2: dbl_fail_event(DBL_EnqueueMapBuffer, 1, 1, -5); break;
        default: break; /* the consumer's command */
        }
        if (how == 0) {
            CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK);
            CHECK_EQ(k.a.release(k.a.opaque, &buf, SIZE), CLB_ERR_CL);
            clb_buf_free(&k.a, &buf);
        } else {
            frame = kit_frame(&k, 1);
            if (how == 3) {
                struct dbl_kernel kernel = {.fail = -5};

                CHECK_EQ(dbl_enqueue(k.queue, &kernel, &bad), CL_SUCCESS);
                CHECK_EQ(clb_cl_frame_used(frame, 1, &bad), CLB_OK);
                dbl_fns.ReleaseEvent(bad);
            } else if (how == 2) {
                kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
            }
            clb_cl_frame_unref(&frame);
        }
        CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
        CHECK_EQ(kit_stats(&k).free, 2);
        CHECK_EQ(kit_stats(&k).poisoned + kit_stats(&k).renewed, 1);
        kit_close(&k);
        kit_wait_gone(mem_live);
        finish();
    }
}

int main(void)
{
    static const struct kit_test tests[] = {
        KIT_TEST(failed_use_renews),
        KIT_TEST(failed_unmap_or_map_poisons),
        KIT_TEST(refill_is_tried_again),
        KIT_TEST(creation_fails_cleanly),
        KIT_TEST(devices_are_found_or_not),
        KIT_TEST(foreign_buffers_are_refused),
        KIT_TEST(drain_waits_for_replacements),
    };

    check_watchdog(240);
    kit_run(tests, sizeof(tests) / sizeof(tests[0]));
    return 0;
}
