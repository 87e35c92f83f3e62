/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames and recipes on the double, again and again: each time another OpenCL call fails, the n-th of
 * each kind for every n, while frames are made, handed to kernels, recorded as used and preprocessed.
 * A call that fails says so in its result and with a line in the log; whatever fails, every kernel that
 * runs sees a whole frame, every buffer comes home, nothing is misused or left.
 */
#include <clbridge/preprocess.h>

#include <unistd.h>

#include "pool_kit.h"
#include "sweep.h"
#include "tempdir.h"

#define SIZE 3000u /* NV12 of 50 x 40, and as much of the others */
#define SLOTS 2
#define FRAMES 6

static atomic_uint lines;
static atomic_uint bad_frames, good_frames;
static char cache[TEMPDIR_PATH];
static unsigned doubts; /* uses that were not recorded */

/* A call that may fail: then there is a line in the log. */
#define MAY_FAIL(err, call)                                                                        \
    do {                                                                                           \
        const unsigned lines_before_ = atomic_load(&lines);                                        \
        (err) = (call);                                                                            \
        HOLDS((err) == CLB_OK || (err) == CLB_ERR_CL || (err) == CLB_ERR_NOMEM ||                  \
              (err) == CLB_ERR_INVAL);                                                             \
        HOLDS((err) == CLB_OK || atomic_load(&lines) > lines_before_);                             \
    } while (0)

/* A kernel sees its source: a frame, or the empty buffer of a recipe's first run. */
static void look_at(void *priv, const unsigned char *bytes, size_t size)
{
    uint64_t n = 0;

    (void)priv;
    if (bytes[0] == 0 || size < SIZE)
        return;
    while (n < FRAMES && kit_byte(n, 0) != bytes[0])
        n++;
    for (size_t i = 0; i < SIZE; i++) {
        if (n == FRAMES || bytes[i] != kit_byte(n, i)) {
            atomic_fetch_add(&bad_frames, 1);
            return;
        }
    }
    atomic_fetch_add(&good_frames, 1);
}

/* What the application itself needs, made before anything fails. */
struct app {
    cl_context context;
    cl_mem tensor;
    cl_program program;
    cl_kernel kernel;
};

static void make_app(struct app *a)
{
    const char *source = "";
    cl_int err;

    a->context = dbl_fns.CreateContext(NULL, 0, NULL, NULL, NULL, &err);
    a->program = dbl_fns.CreateProgramWithSource(a->context, 1, &source, NULL, &err);
    dbl_fns.BuildProgram(a->program, 0, NULL, "", NULL, NULL);
    a->kernel = dbl_fns.CreateKernel(a->program, "own", &err);
    a->tensor = NULL;
}

/* In the device's context; a call that fails is made again. */
static void make_tensor(struct app *a, const clb_cl_device *dev)
{
    cl_int err;

    while (!a->tensor)
        a->tensor = dbl_fns.CreateBuffer(clb_cl_device_context(dev), 0, 3 * SIZE, NULL, &err);
    while (dbl_fns.SetKernelArg(a->kernel, 1, sizeof a->tensor, &a->tensor) != CL_SUCCESS)
        ;
}

static void drop_app(struct app *a)
{
    dbl_fns.ReleaseKernel(a->kernel);
    dbl_fns.ReleaseProgram(a->program);
    if (a->tensor)
        dbl_fns.ReleaseMemObject(a->tensor);
    dbl_fns.ReleaseContext(a->context);
}

static void wait_end(struct kit *k, bool caller_driven, cl_event ev)
{
    const int64_t end = check_ms() + 10000;

    while (dbl_status(ev) > 0 && check_ms() < end) {
        if (caller_driven)
            clb_cl_device_poll(k->dev, 0);
        else
            check_sleep_ms(1);
        dbl_settle();
    }
    HOLDS(dbl_status(ev) <= 0);
}

/* The frame goes to a kernel of the application's, in one of the ways that cl.h knows. */
static void use_frame(struct kit *k, struct app *a, clb_cl_frame *frame, uint64_t n)
{
    cl_event ready = clb_cl_frame_ready(frame), ev = NULL;
    const size_t one = 1;
    int err;

    MAY_FAIL(err, clb_cl_frame_set_arg(frame, a->kernel, 0));
    if (err < 0)
        return;
    if (dbl_fns.EnqueueNDRangeKernel(k->queue, a->kernel, 1, NULL, &one, NULL, 1, &ready, &ev) !=
            CL_SUCCESS ||
        !ev)
        return;
    if (n % 2) {
        const cl_event twice[2] = {ev, ev};
        MAY_FAIL(err, clb_cl_frame_used(frame, 2, twice));
    } else {
        MAY_FAIL(err, clb_cl_frame_used_on(frame, k->queue));
    }
    while (dbl_fns.Flush(k->queue) != CL_SUCCESS)
        ;
    /* Not recorded: it is for the application to keep the frame until its kernel has ended. */
    if (err < 0) {
        doubts++;
        wait_end(k, true, ev);
    }
    while (dbl_fns.ReleaseEvent(ev) != CL_SUCCESS)
        ;
}

static void preprocess(struct kit *k, struct app *a, clb_preprocess *pp, clb_cl_frame *frame,
                       bool caller_driven, bool want_done)
{
    cl_event done = NULL;
    int err;

    MAY_FAIL(err, clb_preprocess_run(pp, k->queue, frame, a->tensor, 0, want_done ? &done : NULL));
    HOLDS(err == CLB_OK || !done);
    if (!done)
        return;
    wait_end(k, caller_driven, done);
    while (dbl_fns.ReleaseEvent(done) != CL_SUCCESS)
        ;
}

static void frame_of(struct kit *k, struct app *a, clb_preprocess *pp, bool caller_driven,
                     uint64_t n)
{
    static const enum clb_pixfmt formats[] = {CLB_PIXFMT_NV12, CLB_PIXFMT_RGB24, CLB_PIXFMT_GRAY8};
    clb_cl_frame *frame = NULL;
    struct clb_image img;
    struct clb_buf buf;
    int err;

    HOLDS(kit_alloc(k, &buf, 10 * SEC) == CLB_OK);
    kit_fill(&buf, n, SIZE);
    err = k->a.release(k->a.opaque, &buf, SIZE);
    if (err != CLB_OK) {
        clb_buf_free(&k->a, &buf);
        return;
    }
    HOLDS(clb_cl_frame_from_buf(&frame, k->pool, &buf) == CLB_OK);
    HOLDS(clb_image_init(&img, formats[n % 3], n % 3 == 1 ? 25 : 50, 40, 1, 1) == CLB_OK);
    HOLDS(clb_cl_frame_set_image(frame, &img) == CLB_OK);
    if (n % 2 == 0)
        preprocess(k, a, pp, frame, caller_driven, n % 4 == 0);
    else
        use_frame(k, a, frame, n / 2);
    clb_cl_frame_unref(&frame);
    if (caller_driven)
        kit_settle(k);
}

static void use_pool(struct kit *k, struct app *a, bool caller_driven)
{
    clb_preprocess *pp = NULL;
    clb_cl_pool_stats s;
    int err;

    MAY_FAIL(err, clb_preprocess_create(&pp, k->dev, NULL));
    HOLDS((err == CLB_OK) == (pp != NULL));
    for (uint64_t i = 0; pp && i < FRAMES; i++)
        frame_of(k, a, pp, caller_driven, i);
    HOLDS(clb_cl_device_drain(k->dev, 10 * SEC) == CLB_OK);
    for (int i = 0; i < 400 && kit_stats(k).free < SLOTS; i++) { /* one may be made again */
        if (caller_driven)
            clb_cl_device_poll(k->dev, 5 * MS);
        else
            check_sleep_ms(5);
    }
    s = kit_stats(k);
    HOLDS(s.free == SLOTS && s.slots == SLOTS);
    HOLDS(s.created == SLOTS + s.poisoned + s.renewed);
    HOLDS(s.renewed >= doubts);
    clb_preprocess_destroy(&pp);
}

/* Of the programs that the last session kept, one has to be compiled again. */
static void forget_one(void)
{
    char name[TEMPDIR_PATH], path[2 * TEMPDIR_PATH];

    if (tempdir_count(cache, ".clbin", name) == 0)
        return;
    snprintf(path, sizeof path, "%s/%s", cache, name);
    HOLDS(unlink(path) == 0);
}

/* Tells whether the fault has come to pass, that is, whether there may be another. */
static bool session(const struct sweep_fault *f)
{
    const bool leaves = strncmp(dbl_fn_name(f->fn), "clRelease", 9) == 0;
    struct clb_status st = {0};
    struct kit k = {.size = SIZE, .align = 64};
    struct app a;
    uint64_t calls;
    int err;

    atomic_store(&bad_frames, 0);
    atomic_store(&good_frames, 0);
    doubts = 0;
    dbl_start(!f->caller_driven);
    dbl_set_quiet(leaves);
    dbl_set_kernel(look_at, NULL);
    make_app(&a);
    forget_one();
    calls = dbl_calls(f->fn);
    sweep_arm(f);
    err = clbi_cl_device_create_with(&dbl_fns, &k.dev,
                                     clb_cl_device_params(.caller_driven = f->caller_driven,
                                                          .cache_dir = cache, .status = &st,
                                                          .log.cb = kit_log, .log.priv = &lines));
    if (err == CLB_OK)
        err = clb_cl_pool_create(
            &k.pool, k.dev, clb_cl_pool_params(.buf_size = SIZE, .count = SLOTS, .status = &st));
    if (err == CLB_OK) {
        k.a = clb_cl_pool_allocator(k.pool);
        k.queue = clb_cl_device_queue(k.dev);
        make_tensor(&a, k.dev);
        use_pool(&k, &a, f->caller_driven);
    } else {
        HOLDS(st.err == err && st.text[0]);
    }
    clb_cl_pool_destroy(&k.pool);
    clb_cl_device_destroy(&k.dev);
    calls = dbl_calls(f->fn) - calls;
    dbl_fail(f->fn, 1, 0, CL_SUCCESS);
    drop_app(&a);
    dbl_settle();
    HOLDS(dbl_violations() == 0);
    HOLDS(atomic_load(&bad_frames) == 0);
    if (f->n > calls)
        HOLDS(atomic_load(&good_frames) == FRAMES);
    if (dbl_finish() != 0)
        HOLDS(leaves);
    /* What fails early keeps later calls from being made: they come with a later n. */
    return f->n <= calls;
}

int main(void)
{
    static const enum dbl_fn makers[] = {DBL_CreateBuffer,
                                         DBL_CreateCommandQueue,
                                         DBL_CreateProgramWithSource,
                                         DBL_CreateProgramWithBinary,
                                         DBL_CreateKernel,
                                         DBL_EnqueueMarkerWithWaitList,
                                         DBL_EnqueueNDRangeKernel,
                                         DBL_FN_COUNT};
    static const enum dbl_fn commands[] = {DBL_EnqueueMarkerWithWaitList, DBL_EnqueueNDRangeKernel,
                                           DBL_FN_COUNT};
    const struct sweep s = {makers, commands, false, session};

    check_watchdog(240);
    tempdir_make(cache);
    printf("%u sessions\n", sweep_run(&s));
    CHECK_EQ(tempdir_count(cache, ".clbtmp", NULL), 0);
    tempdir_remove(cache);
    return 0;
}
