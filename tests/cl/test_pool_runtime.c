/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool, frames and worker on a real runtime, whose calls are counted on the way. Kernels are gated by
 * user events: without a gate some runtimes hide a missing fence. On Oclgrind (one thread only, a
 * clFlush runs the commands) everything is caller-driven and nothing is gated.
 */
#include <unistd.h>

#include "pool_kit.h"

#define SIZE ((size_t)64 << 10)

static bool oclgrind;

/* ---- counted calls --------------------------------------------------------------------------- */

static atomic_ullong calls, creates, releases, maps, unmaps, events, events_gone;
static struct clbi_cl_fns fns;

static cl_mem CL_API_CALL count_create(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *e)
{
    calls++;
    creates++;
    return clCreateBuffer(c, f, n, p, e);
}

static cl_int CL_API_CALL count_release(cl_mem m)
{
    calls++;
    releases++;
    return clReleaseMemObject(m);
}

static void *CL_API_CALL count_map(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f,
                                   size_t o, size_t n, cl_uint nw, const cl_event *w, cl_event *ev,
                                   cl_int *e)
{
    void *p = clEnqueueMapBuffer(q, m, b, f, o, n, nw, w, ev, e);

    calls++;
    maps++;
    events += p != NULL;
    CHECK(!b && nw == 0 && !w);
    return p;
}

static cl_int CL_API_CALL count_unmap(cl_command_queue q, cl_mem m, void *p, cl_uint nw,
                                      const cl_event *w, cl_event *ev)
{
    calls++;
    unmaps++;
    events++;
    return clEnqueueUnmapMemObject(q, m, p, nw, w, ev);
}

static cl_int CL_API_CALL count_marker(cl_command_queue q, cl_uint nw, const cl_event *w,
                                       cl_event *ev)
{
    calls++;
    events++;
    return clEnqueueMarkerWithWaitList(q, nw, w, ev);
}

static cl_int CL_API_CALL count_flush(cl_command_queue q)
{
    calls++;
    return clFlush(q);
}

static cl_int CL_API_CALL count_status(cl_event e, cl_event_info i, size_t n, void *p, size_t *r)
{
    calls++;
    return clGetEventInfo(e, i, n, p, r);
}

static cl_int CL_API_CALL count_retain(cl_event e)
{
    calls++;
    events++;
    return clRetainEvent(e);
}

static cl_int CL_API_CALL count_gone(cl_event e)
{
    calls++;
    events_gone++;
    return clReleaseEvent(e);
}

static cl_int CL_API_CALL count_callback(cl_event e, cl_int t,
                                         void(CL_CALLBACK *f)(cl_event, cl_int, void *), void *p)
{
    calls++;
    return clSetEventCallback(e, t, f, p);
}

/* ---- a consumer that checks content ---------------------------------------------------------- */

static const char source[] =
    "__kernel void look(__global const uchar *p, uint n, uint size, __global int *out)\n"
    "{\n"
    "    uint i = get_global_id(0);\n"
    "    uchar want = (uchar)(7 * i + 13 * (i >> 8) + 31 * n + 5);\n"
    "    if (i < size && p[i] != want)\n"
    "        atomic_inc(out);\n"
    "    if (i == 0)\n"
    "        atomic_inc(out + 1);\n"
    "}\n";

static cl_context context;
static cl_device_id device;
static cl_command_queue queue, second;
static cl_program program;
static cl_kernel kernel;
static cl_mem result;

static void open_runtime(void)
{
    clb_cl_device *dev;
    cl_int zero[2] = {0, 0}, code;
    clb_cl_device_info info;

    CHECK_EQ(clb_cl_device_create(
                 &dev, clb_cl_device_params(.caller_driven = 1, .log.cb = clb_log_stderr)),
             CLB_OK);
    clb_cl_device_get_info(dev, &info, sizeof(info));
    printf("%s, %s, %s\n", info.platform, info.name, info.driver_version);
    oclgrind = strstr(info.platform, "grind") != NULL;
    device = clb_cl_device_id(dev);
    clb_cl_device_destroy(&dev);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    CHECK_EQ(code, CL_SUCCESS);
    queue = clCreateCommandQueue(context, device, 0, &code);
    CHECK_EQ(code, CL_SUCCESS);
    second = clCreateCommandQueue(context, device, 0, &code);
    CHECK_EQ(code, CL_SUCCESS);
    program = clCreateProgramWithSource(context, 1, &(const char *){source}, NULL, &code);
    CHECK_EQ(code, CL_SUCCESS);
    CHECK_EQ(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_SUCCESS);
    kernel = clCreateKernel(program, "look", &code);
    CHECK_EQ(code, CL_SUCCESS);
    result = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(zero), zero,
                            &code);
    CHECK_EQ(code, CL_SUCCESS);
    fns = clbi_cl_loader_fns;
    fns.CreateBuffer = count_create;
    fns.ReleaseMemObject = count_release;
    fns.EnqueueMapBuffer = count_map;
    fns.EnqueueUnmapMemObject = count_unmap;
    fns.EnqueueMarkerWithWaitList = count_marker;
    fns.Flush = count_flush;
    fns.GetEventInfo = count_status;
    fns.RetainEvent = count_retain;
    fns.ReleaseEvent = count_gone;
    fns.SetEventCallback = count_callback;
}

static void close_runtime(void)
{
    clReleaseMemObject(result);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(second);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
}

/* Wrong bytes so far; *looks = kernels that ran. Waits for both queues. */
static int wrong_bytes(int *looks)
{
    cl_int out[2];

    clFinish(second);
    CHECK_EQ(clEnqueueReadBuffer(queue, result, CL_TRUE, 0, sizeof(out), out, 0, NULL, NULL),
             CL_SUCCESS);
    *looks = out[1];
    return out[0];
}

static cl_event look(struct kit *k, clb_cl_frame *frame, cl_command_queue q, uint64_t n,
                     cl_event gate)
{
    cl_event wait[2] = {clb_cl_frame_ready(frame), gate}, ev;
    cl_uint number = (cl_uint)n, size = (cl_uint)k->size;
    size_t global = (k->size + 255) & ~(size_t)255; /* odd numbers make groups of one, and slow */

    CHECK_EQ(clb_cl_frame_set_arg(frame, kernel, 0), CLB_OK);
    CHECK_EQ(clSetKernelArg(kernel, 1, sizeof(number), &number), CL_SUCCESS);
    CHECK_EQ(clSetKernelArg(kernel, 2, sizeof(size), &size), CL_SUCCESS);
    CHECK_EQ(clSetKernelArg(kernel, 3, sizeof(result), &result), CL_SUCCESS);
    CHECK_EQ(clEnqueueNDRangeKernel(q, kernel, 1, NULL, &global, NULL, gate ? 2 : 1, wait, &ev),
             CL_SUCCESS);
    clFlush(q);
    return ev;
}

static void kit_open_here(struct kit *k, uint32_t count, size_t size, enum clb_cl_fence fence)
{
    struct clb_status st = {0};

    k->size = size;
    calls = creates = releases = maps = unmaps = events = events_gone = 0;
    CHECK_EQ(clbi_cl_device_create_with(
                 &fns, &k->dev,
                 clb_cl_device_params(.context = context, .device = device, .queue = queue,
                                      .caller_driven = oclgrind, .log.cb = clb_log_stderr)),
             CLB_OK);
    if (clb_cl_pool_create(&k->pool, k->dev,
                           clb_cl_pool_params(.buf_size = size, .count = count, .fence = fence,
                                              .align = oclgrind ? 16 : 0, .status = &st)) !=
        CLB_OK) {
        fprintf(stderr, "%s\n", st.text);
        exit(1);
    }
    k->a = clb_cl_pool_allocator(k->pool);
    k->queue = queue;
    k->align = oclgrind ? 16 : 64;
}

/* Everything came home: the counts say so, and the context is the test's alone again. */
static void kit_close_here(struct kit *k, cl_uint refs)
{
    int64_t end = check_ms() + 10000;
    cl_uint now = 0;

    /* rusticl's kernels keep what they had as an argument. */
    CHECK_EQ(clSetKernelArg(kernel, 0, sizeof(result), &result), CL_SUCCESS);
    kit_close(k);
    do {
        CHECK_EQ(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(now), &now, NULL),
                 CL_SUCCESS);
        check_sleep_ms(1);
    } while (now > refs && check_ms() < end);
    CHECK_EQ(now, refs);
    CHECK_EQ(creates, releases);
    CHECK_EQ(events, events_gone);
}

static cl_uint context_refs(void)
{
    cl_uint now = 0;

    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(now), &now, NULL);
    return now;
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

/* A frame of k->size bytes and a kernel that looks at all of them. */
static void look_once(struct kit *k, uint64_t n)
{
    clb_cl_frame *frame;
    struct clb_buf buf;
    cl_event ev;

    CHECK_EQ(kit_alloc(k, &buf, 60 * SEC), CLB_OK);
    kit_fill(&buf, n, k->size);
    CHECK_EQ(k->a.release(k->a.opaque, &buf, k->size), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k->pool, &buf), CLB_OK);
    ev = look(k, frame, queue, n, NULL);
    CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
    clReleaseEvent(ev);
    clb_cl_frame_unref(&frame);
}

/* ---- the cases ------------------------------------------------------------------------------- */

/* A-08 (kernel on a second queue) and A-09 (constant memory) in one run. */
static void frames_one_after_the_other(void)
{
    const uint64_t frames = oclgrind ? 8 : 1500;
    cl_uint refs = context_refs();
    struct kit k;
    uint64_t i, before;
    long rss = 0;
    int looks0, looks, wrong0 = wrong_bytes(&looks0);
    clb_cl_pool_stats s;

    kit_open_here(&k, 4, oclgrind ? 1024 : SIZE, CLB_CL_FENCE_ALL);
    CHECK_EQ(clb_cl_device_add_queue(k.dev, second), CLB_OK);
    for (i = 0; i < frames; i++) {
        clb_cl_frame *frame;
        struct clb_buf buf;
        cl_event ev;

        CHECK_EQ(kit_alloc(&k, &buf, 10 * SEC), CLB_OK);
        kit_fill(&buf, i, k.size);
        CHECK_EQ(k.a.release(k.a.opaque, &buf, k.size), CLB_OK);
        CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
        ev = look(&k, frame, i % 2 ? second : queue, i, NULL);
        if (i % 3)
            CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
        clReleaseEvent(ev);
        clb_cl_frame_unref(&frame);
        if (i == frames / 3)
            rss = rss_kib();
    }
    CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
    CHECK_EQ(wrong_bytes(&looks) - wrong0, 0);
    CHECK_EQ(looks - looks0, frames);
    s = kit_stats(&k);
    printf("calls per frame: %.1f, RSS grew by %ld KiB\n", (double)calls / (double)frames,
           rss_kib() - rss);
    CHECK_EQ(s.poisoned + s.renewed, 0);
    CHECK_EQ(s.free, 4);
    CHECK_EQ(creates, 4);
    CHECK_EQ(maps - unmaps, 4);
    before = calls;
    check_sleep_ms(50);
    CHECK_EQ(calls - before, 0); /* idle */
    kit_close_here(&k, refs);
}

/* A pool that learns: sizes from 1 KiB to 8 MiB, then mixed ones, all of them looked at by a kernel. */
static void learned_sizes(void)
{
    const size_t most = (size_t)(oclgrind ? 8 : 8192) << 10;
    const uint64_t mixed = oclgrind ? 4 : 40;
    cl_uint refs = context_refs();
    int looks0, looks, wrong0 = wrong_bytes(&looks0);
    struct kit k;
    uint64_t n = 0;
    unsigned long long made;
    size_t size;
    unsigned r = 1;
    clb_cl_pool_stats s;

    kit_open_here(&k, 3, 0, CLB_CL_FENCE_ALL);
    CHECK_EQ(creates, 0);
    for (size = 1024; size <= most; size *= 2, n++) {
        struct clb_buf buf;

        k.size = size - 3;
        if (n == 0 || size > (size_t)sysconf(_SC_PAGESIZE))
            CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
        look_once(&k, n); /* before the others have grown, for all we know */
    }
    CHECK_EQ(clb_cl_device_drain(k.dev, 60 * SEC), CLB_OK);
    s = kit_stats(&k);
    CHECK_EQ(s.free, 3);
    CHECK_EQ(s.slot_bytes, most);
    CHECK_EQ(s.bytes, 3 * most);
    made = creates;
    for (; n < mixed; n++) {
        r = r * 1103515245 + 12345;
        k.size = 1 + (r >> 4) % (n % 8 ? most / 64 : most);
        look_once(&k, n);
    }
    CHECK_EQ(clb_cl_device_drain(k.dev, 60 * SEC), CLB_OK);
    CHECK_EQ(creates, made);
    CHECK_EQ(maps - unmaps, 3);
    CHECK_EQ(wrong_bytes(&looks) - wrong0, 0);
    CHECK_EQ(looks - looks0, n);
    CHECK_EQ(kit_stats(&k).poisoned + kit_stats(&k).renewed, 0);
    kit_close_here(&k, refs);
}

/* Exact counts, on average (what is pending at a look differs from run to run): 2 in release, at most
 * 18 in the worker, none elsewhere; no heap allocation, no object but events. */
static void calls_per_frame(void)
{
    const uint64_t frames = oclgrind ? 20 : 600, warm = frames / 6;
    cl_uint refs = context_refs();
    uint64_t i, before, worker = 0, heap = 0;
    struct kit k;

    kit_open_here(&k, 3, oclgrind ? 1024 : SIZE, CLB_CL_FENCE_ALL);
    for (i = 0; i < frames; i++) {
        clb_cl_frame *frame;
        struct clb_buf buf;
        cl_event ev;

        if (i == warm) {
            CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
            heap = kit_stats(&k).heap_allocs;
            worker = calls;
        }
        CHECK_EQ(kit_alloc(&k, &buf, 10 * SEC), CLB_OK);
        kit_fill(&buf, i, k.size);
        CHECK_EQ(k.a.release(k.a.opaque, &buf, k.size), CLB_OK);
        CHECK_EQ(clb_cl_frame_from_buf(&frame, k.pool, &buf), CLB_OK);
        ev = look(&k, frame, queue, i, NULL);
        CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
        clReleaseEvent(ev);
        clb_cl_frame_unref(&frame);
    }
    CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
    worker = calls - worker - 3 * (frames - warm); /* release: 2, used: 1 */
    printf("calls of the worker per frame: %.1f\n", (double)worker / (double)(frames - warm));
    CHECK_LE(worker, 18 * (frames - warm));
    CHECK_EQ(kit_stats(&k).heap_allocs, heap);
    CHECK_EQ(creates, 3);
    before = calls;
    check_sleep_ms(50);
    CHECK_EQ(calls - before, 0); /* idle */
    kit_close_here(&k, refs);
}

/* The buffer is not written again while a gated kernel may still read it, whatever tells of it. */
static void gated_kernel_holds_its_buffer(void)
{
    cl_uint refs = context_refs();
    int how;

    for (how = 0; how < 4; how++) {
        struct kit k;
        clb_cl_frame *frame;
        struct clb_buf buf;
        cl_event gate, ev;
        cl_int code;
        int i, wrong, looks0, looks, wrong0 = wrong_bytes(&looks0);

        kit_open_here(&k, 1, SIZE, how == 1 || how == 2 ? CLB_CL_FENCE_EXPLICIT : CLB_CL_FENCE_ALL);
        for (i = 0; i < 20; i++) {
            gate = clCreateUserEvent(context, &code);
            CHECK_EQ(code, CL_SUCCESS);
            frame = kit_frame(&k, (uint64_t)i);
            if (how == 3)
                CHECK_EQ(clb_cl_device_add_queue(k.dev, second), CLB_OK);
            ev = look(&k, frame, how >= 2 ? second : queue, (uint64_t)i, gate);
            if (how == 1)
                CHECK_EQ(clb_cl_frame_used(frame, 1, &ev), CLB_OK);
            if (how == 2)
                CHECK_EQ(clb_cl_frame_used_on(frame, second), CLB_OK);
            clReleaseEvent(ev);
            clb_cl_frame_unref(&frame);
            /* Nothing to fill while the kernel has not ended; without the fence this would be its
             * buffer, and what is written into it would be seen. */
            code = kit_alloc(&k, &buf, 20 * MS);
            if (code == CLB_OK) {
                memset(buf.data, 0xEE, k.size);
                CHECK_EQ(k.a.release(k.a.opaque, &buf, k.size), CLB_OK);
                clb_buf_free(&k.a, &buf);
                check_sleep_ms(10);
            }
            CHECK_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
            clReleaseEvent(gate);
            CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
            wrong = wrong_bytes(&looks) - wrong0;
            CHECK_EQ(wrong, 0);
            CHECK_EQ(code, CLB_ERR_NOBUFS);
            if (how == 3)
                CHECK_EQ(clb_cl_device_remove_queue(k.dev, second), CLB_OK);
        }
        CHECK_EQ(looks - looks0, 20);
        CHECK_EQ(kit_stats(&k).renewed + kit_stats(&k).poisoned, 0);
        kit_close_here(&k, refs);
    }
}

/* An event that fails: the buffer is replaced, at once, and the kernel that still runs keeps the old. */
static void failed_event_renews(void)
{
    cl_uint refs = context_refs();
    int looks0, looks, wrong0 = wrong_bytes(&looks0), i;
    struct kit k;

    kit_open_here(&k, 1, SIZE, CLB_CL_FENCE_EXPLICIT);
    for (i = 0; i < 20; i++) {
        clb_cl_frame *frame = kit_frame(&k, (uint64_t)i), *next;
        cl_event gate, bad, ev;
        cl_int code;

        gate = clCreateUserEvent(context, &code);
        CHECK_EQ(code, CL_SUCCESS);
        bad = clCreateUserEvent(context, &code);
        CHECK_EQ(code, CL_SUCCESS);
        ev = look(&k, frame, queue, (uint64_t)i, gate); /* nobody tells of this one */
        CHECK_EQ(clb_cl_frame_used(frame, 1, &bad), CLB_OK);
        CHECK_EQ(clSetUserEventStatus(bad, -5), CL_SUCCESS);
        clReleaseEvent(bad);
        clb_cl_frame_unref(&frame);
        next = kit_frame(&k, 1000); /* the new buffer */
        CHECK_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
        clReleaseEvent(gate);
        CHECK_EQ(clWaitForEvents(1, &ev), CL_SUCCESS);
        clReleaseEvent(ev);
        clb_cl_frame_unref(&next);
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
        CHECK_EQ(kit_stats(&k).renewed, i + 1);
        CHECK_EQ(kit_stats(&k).free, 1);
    }
    CHECK_EQ(wrong_bytes(&looks) - wrong0, 0);
    CHECK_EQ(looks - looks0, 20);
    kit_close_here(&k, refs);
}

/* frame, buffer, pool and device in every order; the references go back to the test's own. */
static void a17_every_order(void)
{
    cl_uint refs = context_refs();
    int a, b, c, d, i;

    for (a = 0; a < 4; a++)
        for (b = 0; b < 4; b++)
            for (c = 0; c < 4; c++) {
                int order[4];
                struct kit k;
                struct clb_buf filling;
                clb_cl_frame *frame;
                cl_event ev;

                d = 6 - a - b - c;
                if (a == b || a == c || b == c)
                    continue;
                order[0] = a, order[1] = b, order[2] = c, order[3] = d;
                kit_open_here(&k, 2, 4096, CLB_CL_FENCE_ALL);
                frame = kit_frame(&k, 1);
                ev = look(&k, frame, queue, 1, NULL);
                clReleaseEvent(ev);
                CHECK_EQ(kit_alloc(&k, &filling, 0), CLB_OK);
                for (i = 0; i < 4; i++) {
                    switch (order[i]) {
                    case 0: clb_cl_frame_unref(&frame); break;
                    case 1: clb_buf_free(&k.a, &filling); break;
                    case 2: clb_cl_pool_destroy(&k.pool); break;
                    default: clb_cl_device_destroy(&k.dev); break;
                    }
                }
                kit_close_here(&k, refs);
            }
}

/* A consumer that never finishes: the device ends all the same. */
static void a_consumer_that_never_finishes(void)
{
    struct kit k;
    clb_cl_frame *frame;
    struct clb_buf buf;
    cl_event gate, ev;
    cl_int code;
    int64_t start;

    kit_open_here(&k, 1, SIZE, CLB_CL_FENCE_ALL);
    gate = clCreateUserEvent(context, &code);
    CHECK_EQ(code, CL_SUCCESS);
    frame = kit_frame(&k, 5);
    ev = look(&k, frame, queue, 5, gate);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clb_cl_device_drain(k.dev, 50 * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(kit_alloc(&k, &buf, 0), CLB_ERR_NOBUFS);
    clb_cl_pool_destroy(&k.pool);
    start = check_ms();
    clb_cl_device_destroy(&k.dev);
    CHECK_GE(check_ms() - start, 1900);
    CHECK_LE(check_ms() - start, 20000);
    CHECK_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    CHECK_EQ(clWaitForEvents(1, &ev), CL_SUCCESS);
    clReleaseEvent(ev);
    clReleaseEvent(gate);
}

int main(void)
{
    clb_cl_device_info info[4];
    struct clb_status st;
    size_t n;

    check_watchdog(280);
    CHECK_EQ(clb_cl_device_list(info, sizeof(info[0]), 4, &n, &st), CLB_OK);
    CHECK_GE(n, 1);
    open_runtime();
#define RUN(name) printf(#name "\n"), fflush(stdout), name()
    RUN(frames_one_after_the_other);
    RUN(learned_sizes);
    RUN(calls_per_frame);
    RUN(a17_every_order);
    if (!oclgrind) {
        RUN(gated_kernel_holds_its_buffer);
        RUN(failed_event_renews);
        RUN(a_consumer_that_never_finishes);
    }
    close_runtime();
    return 0;
}
