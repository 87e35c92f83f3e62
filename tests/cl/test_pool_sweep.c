/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A receive session on the double, again and again: each time another OpenCL call fails, the n-th of
 * each kind for every n. Whatever fails, the session ends: a call gives an error or a buffer is
 * replaced, every consumer's command ends, all buffers come home, nothing is misused or left. A second
 * time with a pool that learns, and frames that become larger.
 */
#include "pool_kit.h"
#include "sweep.h"

#define SIZE 3000
#define SLOTS 3
#define LARGE (5 * SIZE)
#define FRAMES(f) (learning ? 6 : (f)->caller_driven ? 30 : 8)

static bool learning;
static atomic_bool left_behind; /* the end of the device waited in vain */

static void look_at_log(void *priv, enum clb_log_level level, const char *msg)
{
    kit_log(priv, level, msg);
    if (strstr(msg, "left behind") || strstr(msg, "have not come"))
        atomic_store(&left_behind, true);
}

/* The application's own flush is not what is tested. */
static void flush(cl_command_queue queue)
{
    while (dbl_fns.Flush(queue) != CL_SUCCESS)
        ;
}

/* Until the command has ended: not for ever, whatever failed before it. */
static cl_int wait_end(clb_cl_device *dev, bool caller_driven, cl_event ev)
{
    int64_t end = check_ms() + 10000;

    while (dbl_status(ev) > 0 && check_ms() < end) {
        if (caller_driven)
            clb_cl_device_poll(dev, 0);
        else
            check_sleep_ms(1);
        dbl_settle();
    }
    HOLDS(dbl_status(ev) <= 0);
    return dbl_status(ev);
}

static void frame_of(struct kit *k, const struct sweep_fault *f, uint64_t n, clb_cl_frame **kept)
{
    struct kit_seen seen = {.n = n, .size = k->size};
    clb_cl_frame *frame = NULL;
    cl_event done, ready;
    struct clb_buf buf;
    int err;

    HOLDS(kit_alloc(k, &buf, 10 * SEC) == CLB_OK);
    kit_fill(&buf, n, k->size);
    err = k->a.release(k->a.opaque, &buf, k->size);
    if (err != CLB_OK) {
        HOLDS(err == CLB_ERR_CL || err == CLB_ERR_NOMEM);
        clb_buf_free(&k->a, &buf);
        return;
    }
    HOLDS(clb_cl_frame_from_buf(&frame, k->pool, &buf) == CLB_OK);
    ready = clb_cl_frame_ready(frame);
    HOLDS(ready != NULL);
    kit_consume(k, k->queue, frame, &seen, NULL, &done);
    flush(k->queue);
    if (n % 3 == 1)
        (void)clb_cl_frame_used(frame, 1, &done);
    else if (n % 3 == 2)
        (void)clb_cl_frame_used_on(frame, k->queue);
    if (n % 2)
        clb_cl_frame_unref(&frame); /* before the kernel has run, for all we know */
    /* A failed unmap fails the kernel that waits for it: the frame is lost, and it shows. */
    if (wait_end(k->dev, f->caller_driven, done) == CL_COMPLETE)
        HOLDS(seen.good == 1);
    HOLDS(seen.bad == 0);
    dbl_fns.ReleaseEvent(done);
    clb_cl_frame_unref(kept);
    *kept = frame;
}

/* All buffers are there, as large as they should be: one may be made again. */
static bool is_whole(const struct kit *k)
{
    clb_cl_pool_stats s = kit_stats(k);

    return s.free == SLOTS && s.bytes >= SLOTS * s.wanted_bytes;
}

/* Tells whether the fault has come to pass, that is, whether there may be another. */
static bool session(const struct sweep_fault *f)
{
    /* A failed release leaves what it was to release; a buffer whose unmap does not tell whether it
     * has ended is lost, not released under it. */
    bool leaves = strncmp(dbl_fn_name(f->fn), "clRelease", 9) == 0 || f->times > 1;
    clb_cl_frame *kept = NULL;
    struct clb_status st = {0};
    struct kit k = {.size = SIZE, .align = 64};
    clb_cl_pool_stats s;
    uint64_t calls;
    int err, i;

    dbl_start(!f->caller_driven);
    dbl_set_quiet(leaves);
    sweep_arm(f);
    err = clbi_cl_device_create_with(&dbl_fns, &k.dev,
                                     clb_cl_device_params(.caller_driven = f->caller_driven,
                                                          .status = &st, .log.cb = look_at_log));
    if (err == CLB_OK) {
        err = clb_cl_pool_create(
            &k.pool, k.dev,
            clb_cl_pool_params(.buf_size = learning ? 0 : SIZE, .count = SLOTS, .status = &st));
        if (err == CLB_OK) {
            k.a = clb_cl_pool_allocator(k.pool);
            k.queue = clb_cl_device_queue(k.dev);
            for (i = 0; i < FRAMES(f); i++) {
                if (learning && i == FRAMES(f) / 2)
                    k.size = LARGE;
                frame_of(&k, f, (uint64_t)i, &kept);
            }
            clb_cl_frame_unref(&kept);
            HOLDS(clb_cl_device_drain(k.dev, 10 * SEC) == CLB_OK);
            for (i = 0; i < 200 && !is_whole(&k); i++) {
                if (f->caller_driven)
                    clb_cl_device_poll(k.dev, 5 * MS);
                else
                    check_sleep_ms(5);
            }
            s = kit_stats(&k);
            HOLDS(s.free == SLOTS && s.slots == SLOTS);
            HOLDS(is_whole(&k) && s.bytes / SLOTS >= k.size);
            if (!learning)
                HOLDS(s.created == SLOTS + s.poisoned + s.renewed);
        }
    }
    if (err != CLB_OK) {
        HOLDS(err < 0 && st.err == err && st.text[0]);
        HOLDS(!k.pool);
    }
    clb_cl_pool_destroy(&k.pool);
    clb_cl_device_destroy(&k.dev);
    calls = dbl_calls(f->fn);
    HOLDS(!left_behind);
    dbl_settle(); /* what only the release of its queue has flushed */
    HOLDS(dbl_violations() == 0);
    if (dbl_finish() != 0)
        HOLDS(leaves);
    /* What fails early keeps later calls from being made: they come with a later n. */
    return f->n <= calls;
}

int main(void)
{
    static const enum dbl_fn makers[] = {
        DBL_CreateBuffer,          DBL_CreateCommandQueue,        DBL_EnqueueMapBuffer,
        DBL_EnqueueUnmapMemObject, DBL_EnqueueMarkerWithWaitList, DBL_FN_COUNT};
    static const enum dbl_fn commands[] = {DBL_EnqueueMapBuffer, DBL_EnqueueUnmapMemObject,
                                           DBL_EnqueueMarkerWithWaitList, DBL_FN_COUNT};
    const struct sweep s = {makers, commands, true, session};

    check_watchdog(240);
    printf("%u sessions\n", sweep_run(&s));
    learning = true;
    printf("%u sessions of a pool that learns\n", sweep_run(&s));
    return 0;
}
