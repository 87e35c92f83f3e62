/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool, frames and worker with threads: the worker's own, those of the double, and consumers. Also the
 * field cases, A-17 (OpenCL half) and A-25.
 */
#include <pthread.h>
#include <unistd.h>

#include "pool_kit.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define SIZE 5000

static int threads; /* before a test begins */

static unsigned mem_live(void)
{
    return dbl_mem_live();
}

static unsigned events_live(void)
{
    return (unsigned)dbl_events_live();
}

/* Things may end a moment after the last handle. */
static void finish(void)
{
    int64_t end = check_ms() + 10000;

    kit_wait_gone(mem_live);
    kit_wait_gone(events_live);
    while (check_threads() > threads + 1 && check_ms() < end) /* the double's */
        check_sleep_ms(1);
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
}

static void run_frames(struct kit *k, struct kit_seen *seen, unsigned slots, uint64_t n)
{
    uint64_t i;

    for (i = 0; i < n; i++) {
        struct kit_seen *s = &seen[i % slots];
        clb_cl_frame *frame;
        cl_event ev;

        frame = kit_frame(k, i); /* waits until the frame `slots` before this one is done */
        s->n = i;
        kit_consume(k, k->queue, frame, s, NULL, &ev);
        if (i % 2)
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
        dbl_fns.ReleaseEvent(ev);
        clb_cl_frame_unref(&frame);
    }
}

/* no real work in callbacks, and none needed: they may come inline, late or never. */
static void a25_callbacks_inline_late_never(void)
{
    static const enum dbl_callbacks modes[] = {DBL_CB_NORMAL, DBL_CB_INLINE, DBL_CB_LATE,
                                               DBL_CB_NEVER};
    int m;

    for (m = 0; m < 4; m++) {
        struct kit k;
        struct kit_seen seen[1] = {{0}};

        dbl_start(true);
        dbl_set_callbacks(modes[m]);
        dbl_set_delay(100000);
        kit_open(&k, false, 1, SIZE, CLB_CL_FENCE_ALL);
        run_frames(&k, seen, 1, 200);
        CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
        CHECK_EQ(seen[0].good, 200);
        CHECK_EQ(seen[0].bad, 0);
        CHECK_EQ(kit_stats(&k).created, 1);
        kit_close(&k);
        finish();
    }
}

/* the kernel sits on another queue than the unmap, and the unmap takes its time. The double
 * checks that no argument is mapped when a kernel starts. */
static void a08_kernel_on_a_second_queue(void)
{
    struct kit k;
    struct kit_seen seen[2] = {{0}, {0}};
    cl_command_queue second, own;
    cl_int code;

    dbl_start(true);
    dbl_set_delay(300000);
    kit_open(&k, false, 2, SIZE, CLB_CL_FENCE_ALL);
    second =
        dbl_fns.CreateCommandQueue(clb_cl_device_context(k.dev), clb_cl_device_id(k.dev), 0, &code);
    CHECK_EQ(clb_cl_device_add_queue(k.dev, second), CLB_OK);
    own = k.queue;
    k.queue = second;
    run_frames(&k, seen, 2, 200);
    k.queue = own;
    CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
    CHECK_EQ(seen[0].good + seen[1].good, 200);
    CHECK_EQ(seen[0].bad + seen[1].bad, 0);
    dbl_fns.ReleaseCommandQueue(second);
    kit_close(&k);
    finish();
}

static long rss_kib(void)
{
    long pages = 0, skip;
    FILE *f = fopen("/proc/self/statm", "r");

    CHECK(f != NULL);
    CHECK_EQ(fscanf(f, "%ld %ld", &skip, &pages), 2);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* constant memory, every map paired, every event released, buffers created once. */
static void a09_constant_memory(void)
{
    enum { SLOTS = 4 };
    const uint64_t frames = SANITIZED ? 1500 : 20000;
    struct kit k;
    struct kit_seen seen[SLOTS] = {{0}};
    clb_cl_pool_stats s;
    uint64_t i, heap;
    long before;

    dbl_start(true);
    dbl_set_cheap(true);
    kit_open(&k, false, SLOTS, (size_t)1 << 20, CLB_CL_FENCE_ALL);
    before = rss_kib();
    heap = kit_stats(&k).heap_allocs;
    for (i = 0; i < frames; i++) {
        struct kit_seen *seen_by = &seen[i % SLOTS];
        clb_cl_frame *frame;
        struct clb_buf buf;
        cl_event ev;

        CHECK_EQ(kit_alloc(&k, &buf, 5 * SEC), CLB_OK);
        kit_fill(&buf, i, 4096);
        CHECK_EQ(k.a.release(k.a.opaque, &buf, k.size), CLB_OK);
        CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
        seen_by->n = i;
        seen_by->size = 4096; /* only this much was filled */
        kit_consume(&k, k.queue, frame, seen_by, NULL, &ev);
        CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
        dbl_fns.ReleaseEvent(ev);
        clb_cl_frame_unref(&frame);
        if (i == 1000) {
            before = rss_kib();
            heap = kit_stats(&k).heap_allocs;
        }
    }
    CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
    if (!SANITIZED)
        CHECK_LE(rss_kib() - before, 8 * 1024);
    s = kit_stats(&k);
    CHECK_EQ(s.heap_allocs, heap);
    CHECK_EQ(s.allocs, frames);
    CHECK_EQ(dbl_calls(DBL_CreateBuffer), SLOTS);
    CHECK_EQ(dbl_calls(DBL_EnqueueMapBuffer) - dbl_calls(DBL_EnqueueUnmapMemObject), SLOTS);
    for (i = 0; i < SLOTS; i++)
        CHECK_EQ(seen[i].bad, 0);
    kit_close(&k);
    finish(); /* all events are released */
}

/* ---- consumers ------------------------------------------------------------------------------- */

struct consumer {
    struct kit *k;
    cl_command_queue queue;
    bool tells; /* records its events */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    clb_cl_frame *in[8];
    uint64_t n[8];
    unsigned head, tail;
    bool end;
    atomic_uint good, bad;
};

struct job {
    struct kit_seen seen;
    struct consumer *c;
};

static void job_done(void *priv, const unsigned char *bytes, size_t size)
{
    struct job *job = priv;
    size_t i;

    for (i = 0; i < SIZE && i < size && bytes[i] == kit_byte(job->seen.n, i); i++)
        ;
    atomic_fetch_add(i == SIZE ? &job->c->good : &job->c->bad, 1);
    free(job);
}

static void *consume(void *arg)
{
    struct consumer *c = arg;

    for (;;) {
        struct job *job = calloc(1, sizeof(*job));
        struct dbl_kernel kernel = {0};
        clb_cl_frame *frame;
        cl_event ready, ev;

        CHECK(job != NULL);
        pthread_mutex_lock(&c->lock);
        while (c->head == c->tail && !c->end)
            pthread_cond_wait(&c->cond, &c->lock);
        if (c->head == c->tail) {
            pthread_mutex_unlock(&c->lock);
            free(job);
            return NULL;
        }
        frame = c->in[c->tail % 8];
        job->seen.n = c->n[c->tail++ % 8];
        pthread_mutex_unlock(&c->lock);
        job->c = c;
        ready = clb_cl_frame_ready(frame);
        kernel.fn = job_done;
        kernel.priv = job;
        kernel.arg = clb_cl_frame_mem(frame);
        kernel.num_wait = 1;
        kernel.wait = &ready;
        CHECK_EQ(dbl_enqueue(c->queue, &kernel, &ev), CL_SUCCESS);
        dbl_fns.Flush(c->queue);
        if (c->tells)
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
        dbl_fns.ReleaseEvent(ev);
        clb_cl_frame_unref(&frame);
    }
}

static void hand(struct consumer *c, clb_cl_frame *frame, uint64_t n)
{
    pthread_mutex_lock(&c->lock);
    CHECK(c->head - c->tail < 8);
    c->in[c->head % 8] = clb_cl_frame_ref(frame);
    c->n[c->head++ % 8] = n;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->lock);
}

/* Two threads with a queue each hold every frame; one of them does not know of events, so that the
 * markers alone protect what it reads. Slow kernels on one of the queues. */
static void two_consumer_queues(void)
{
    const uint64_t frames = 2000;
    struct kit k;
    struct consumer c[2];
    pthread_t thread[2];
    cl_int code;
    uint64_t i;
    int j;

    dbl_start(true);
    kit_open(&k, false, 3, SIZE, CLB_CL_FENCE_ALL);
    memset(c, 0, sizeof(c));
    for (j = 0; j < 2; j++) {
        c[j].k = &k;
        c[j].tells = j == 1;
        pthread_mutex_init(&c[j].lock, NULL);
        pthread_cond_init(&c[j].cond, NULL);
        c[j].queue = dbl_fns.CreateCommandQueue(clb_cl_device_context(k.dev),
                                                clb_cl_device_id(k.dev), 0, &code);
        if (j == 0)
            CHECK_EQ(clb_cl_device_add_queue(k.dev, c[j].queue), CLB_OK);
        CHECK_EQ(pthread_create(&thread[j], NULL, consume, &c[j]), 0);
    }
    for (i = 0; i < frames; i++) {
        clb_cl_frame *frame = kit_frame(&k, i);

        if (i == frames / 2)
            dbl_set_delay(100000);
        if (i == frames / 2 + 200)
            dbl_set_delay(0);
        hand(&c[0], frame, i);
        hand(&c[1], frame, i);
        clb_cl_frame_unref(&frame);
    }
    for (j = 0; j < 2; j++) {
        pthread_mutex_lock(&c[j].lock);
        c[j].end = true;
        pthread_cond_signal(&c[j].cond);
        pthread_mutex_unlock(&c[j].lock);
        pthread_join(thread[j], NULL);
    }
    CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
    for (j = 0; j < 2; j++) {
        CHECK_EQ(c[j].good, frames);
        CHECK_EQ(c[j].bad, 0);
        dbl_fns.ReleaseCommandQueue(c[j].queue);
        pthread_mutex_destroy(&c[j].lock);
        pthread_cond_destroy(&c[j].cond);
    }
    kit_close(&k);
    finish();
}

struct waiter {
    struct kit *k;
    int err;
};

static void *wait_for_slot(void *arg)
{
    struct waiter *w = arg;
    struct clb_buf buf;

    w->err = kit_alloc(w->k, &buf, 20 * SEC);
    if (w->err == CLB_OK)
        clb_buf_free(&w->k->a, &buf);
    return NULL;
}

/* alloc that may wait is woken by the worker when the kernel has ended, and by the pool's end. */
static void waiting_alloc_is_woken(void)
{
    struct kit k;
    struct kit_seen seen = {0};
    struct dbl_gate *gate;
    clb_cl_frame *frame;
    struct waiter w;
    pthread_t thread;
    struct clb_buf buf;
    int64_t start;
    int round;

    for (round = 0; round < 2; round++) {
        dbl_start(true);
        gate = dbl_gate_new();
        kit_open(&k, false, 1, SIZE, CLB_CL_FENCE_ALL);
        frame = kit_frame(&k, 0);
        kit_consume(&k, k.queue, frame, &seen, gate, NULL);
        clb_cl_frame_unref(&frame);
        CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
        CHECK_EQ(kit_alloc(&k, &buf, 10 * MS), CLB_ERR_NOBUFS);
        w.k = &k;
        k.a.ref(k.a.opaque); /* as a stream does that may be inside alloc */
        CHECK_EQ(pthread_create(&thread, NULL, wait_for_slot, &w), 0);
        check_sleep_ms(20);
        start = check_ms();
        if (round == 0)
            dbl_gate_open(gate);
        else
            clb_cl_pool_destroy(&k.pool);
        pthread_join(thread, NULL);
        CHECK_LE(check_ms() - start, 10000);
        CHECK_EQ(w.err, round == 0 ? CLB_OK : CLB_ERR_CLOSED);
        dbl_gate_open(gate);
        k.a.unref(k.a.opaque);
        kit_close(&k);
        finish();
    }
}

/* A consumer that never finishes: within 2 s and a little the worker has ended all the same, and what
 * the kernel reads is still there when it goes on. */
static void a_consumer_that_never_finishes(void)
{
    struct kit k;
    struct kit_seen seen = {.n = 2};
    struct dbl_gate *gate;
    clb_cl_frame *frame;
    struct clb_buf buf;
    int64_t start, end;

    dbl_start(true);
    gate = dbl_gate_new();
    kit_open(&k, false, 2, SIZE, CLB_CL_FENCE_ALL);
    frame = kit_frame(&k, 2);
    kit_consume(&k, k.queue, frame, &seen, gate, NULL);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clb_cl_device_drain(k.dev, 20 * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_OK); /* the other one */
    clb_buf_free(&k.a, &buf);
    clb_cl_pool_destroy(&k.pool);
    start = check_ms();
    clb_cl_device_destroy(&k.dev);
    CHECK_GE(check_ms() - start, 1900);
    CHECK_LE(check_ms() - start, 20000);
    end = check_ms() + 10000;
    while (check_threads() > threads + 1 && check_ms() < end)
        check_sleep_ms(1);
    CHECK_EQ(check_threads(), threads + 1);
    dbl_gate_open(gate);
    kit_wait_gone(mem_live);
    CHECK_EQ(seen.good, 1);
    CHECK_EQ(seen.bad, 0);
    finish();
}

/* ---- safe after close, in any order, from any thread ----------------------------------- */

struct ender {
    int what;
    struct kit *k;
    pthread_barrier_t *barrier;
    clb_cl_frame **frame;
    struct clb_buf *released, *filling;
};

static void *end_one(void *arg)
{
    struct ender *e = arg;

    pthread_barrier_wait(e->barrier);
    switch (e->what) {
    case 0: clb_cl_frame_unref(e->frame); break;
    case 1: clb_buf_free(&e->k->a, e->released); break;
    case 2: clb_buf_free(&e->k->a, e->filling); break;
    case 3: clb_cl_pool_destroy(&e->k->pool); break;
    default: clb_cl_device_destroy(&e->k->dev); break;
    }
    return NULL;
}

static void a17_ends_from_all_threads_at_once(void)
{
    int round, i;

    for (round = 0; round < (SANITIZED ? 40 : 200); round++) {
        struct kit k;
        struct kit_seen seen = {.n = 1};
        struct clb_buf released, filling;
        clb_cl_frame *frame;
        pthread_barrier_t barrier;
        struct ender e[5];
        pthread_t thread[5];

        dbl_start(true);
        dbl_set_delay(round % 3 * 50000);
        if (round % 7 == 3)
            dbl_set_callbacks(DBL_CB_LATE);
        /* Every other time the device has no thread, and whoever comes last does the work. */
        kit_open(&k, round % 2, 3, SIZE, CLB_CL_FENCE_ALL);
        frame = kit_frame(&k, 1);
        kit_consume(&k, k.queue, frame, &seen, NULL, NULL);
        CHECK_EQ(kit_alloc(&k, &released, 0), CLB_OK);
        CHECK_EQ(k.a.release(k.a.opaque, &released, SIZE), CLB_OK);
        CHECK_EQ(kit_alloc(&k, &filling, 0), CLB_OK);
        pthread_barrier_init(&barrier, NULL, 5);
        for (i = 0; i < 5; i++) {
            e[i] = (struct ender){i, &k, &barrier, &frame, &released, &filling};
            CHECK_EQ(pthread_create(&thread[i], NULL, end_one, &e[i]), 0);
        }
        for (i = 0; i < 5; i++)
            pthread_join(thread[i], NULL);
        pthread_barrier_destroy(&barrier);
        CHECK_EQ(seen.bad, 0);
        finish();
    }
}

static void *live_and_die(void *arg)
{
    int i;

    for (i = 0; i < 25; i++) {
        struct kit k;
        struct kit_seen seen[2] = {{0}, {0}};

        kit_open(&k, false, 2, SIZE, CLB_CL_FENCE_ALL);
        run_frames(&k, seen, 2, 4);
        if (i % 2)
            CHECK_EQ(clb_cl_device_drain(k.dev, 5 * SEC), CLB_OK);
        kit_close(&k); /* waits for what is retired, so the kernels have ended */
        CHECK_EQ(seen[0].bad + seen[1].bad, 0);
    }
    return arg;
}

static void a17_four_threads_create_and_destroy(void)
{
    pthread_t thread[4];
    int i;

    dbl_start(true);
    for (i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, live_and_die, NULL), 0);
    for (i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    finish();
}

/* Everything fails now and then: no corruption, no loss, no leak. */
static void failures_under_load(void)
{
    static const enum dbl_fn events[] = {DBL_EnqueueMapBuffer, DBL_EnqueueUnmapMemObject,
                                         DBL_EnqueueMarkerWithWaitList};
    int mode;

    for (mode = 0; mode < 3; mode++) {
        struct kit k;
        struct kit_seen seen[3] = {{0}};
        unsigned i, done = 0;
        clb_cl_pool_stats s;

        dbl_start(true);
        dbl_set_failure((enum dbl_failure)mode);
        kit_open(&k, false, 3, SIZE, CLB_CL_FENCE_ALL);
        for (i = 0; i < 600; i++) {
            clb_cl_frame *frame;
            struct clb_buf buf;
            cl_event ready, ev;
            struct dbl_kernel bad = {.fail = -5};

            if (i % 20 == 3)
                dbl_fail_event(events[i / 20 % 3], 1, 1, -5);
            if (i % 20 == 13)
                dbl_fail(events[i / 20 % 3], 1, 1, i % 40 == 13 ? -5 : DBL_NULL_SUCCESS);
            CHECK_EQ(kit_alloc(&k, &buf, 10 * SEC), CLB_OK);
            kit_fill(&buf, i, SIZE);
            if (k.a.release(k.a.opaque, &buf, SIZE) != CLB_OK) {
                clb_buf_free(&k.a, &buf);
                continue;
            }
            CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
            ready = clb_cl_frame_ready(frame);
            (void)ready;
            /* On the double's terms a failed queue stays usable but for KILL: take a fresh one. */
            if (mode == DBL_KILL) {
                cl_int code;
                cl_command_queue q = dbl_fns.CreateCommandQueue(clb_cl_device_context(k.dev),
                                                                clb_cl_device_id(k.dev), 0, &code);

                CHECK_EQ(dbl_enqueue(q, &(struct dbl_kernel){.num_wait = 1, .wait = &ready}, &ev),
                         CL_SUCCESS);
                dbl_fns.Flush(q);
                dbl_fns.ReleaseCommandQueue(q);
            } else {
                seen[i % 3].n = i;
                kit_consume(&k, k.queue, frame, &seen[i % 3], NULL, &ev);
            }
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
            dbl_fns.ReleaseEvent(ev);
            if (i % 50 == 7) {
                CHECK_EQ(dbl_enqueue(k.queue, &bad, NULL), CL_SUCCESS);
                dbl_fns.Flush(k.queue);
            }
            clb_cl_frame_unref(&frame);
            done++;
            /* a slot may be renewed while its kernel runs: its place in seen[] too */
            CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
            dbl_settle();
        }
        /* Buffers that could not be replaced at once are tried again, by time alone. */
        for (i = 0; i < 5000 && kit_stats(&k).free < 3; i++)
            check_sleep_ms(1);
        s = kit_stats(&k);
        CHECK_GT(s.poisoned, 5);
        CHECK_GT(s.renewed, mode == DBL_CUT ? 5 : 1);
        CHECK_EQ(s.free, 3);
        CHECK_GT(done, 500);
        CHECK_EQ(seen[0].bad + seen[1].bad + seen[2].bad, 0);
        kit_close(&k);
        finish();
    }
}

int main(void)
{
    static const struct kit_test tests[] = {
        KIT_TEST(a25_callbacks_inline_late_never),
        KIT_TEST(a08_kernel_on_a_second_queue),
        KIT_TEST(a09_constant_memory),
        KIT_TEST(two_consumer_queues),
        KIT_TEST(waiting_alloc_is_woken),
        KIT_TEST(a_consumer_that_never_finishes),
        KIT_TEST(a17_ends_from_all_threads_at_once),
        KIT_TEST(a17_four_threads_create_and_destroy),
        KIT_TEST(failures_under_load),
    };

    check_watchdog(SANITIZED ? 400 : 110);
    threads = check_threads();
    kit_run(tests, sizeof(tests) / sizeof(tests[0]));
    return 0;
}
