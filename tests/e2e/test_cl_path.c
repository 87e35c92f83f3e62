/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole path on a real runtime: scripted peer, link, stream, pool, frame, kernel. Run once per
 * runtime; Oclgrind gets the single-threaded case alone (it is not thread-safe).
 */
#include <clbridge/cl.h>
#include <clbridge/clbridge.h>
#include <pthread.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)

/* Copies a frame, so that what the kernel saw can be looked at afterwards. */
static const char source[] = "__kernel void copy(__global const uchar *restrict in,\n"
                             "                   __global uchar *restrict out, uint n)\n"
                             "{\n"
                             "    uint i = get_global_id(0);\n"
                             "    if (i < n) {\n"
                             "        out[i] = in[i];\n"
                             "    }\n"
                             "}\n";

struct rig {
    clb_cl_device *dev;
    cl_command_queue queue;
    cl_program program;
    cl_kernel kernel;
    cl_mem out;
    uint32_t bytes;
    size_t local;
};

static void rig_init(struct rig *r, uint32_t bytes, int caller_driven)
{
    struct clb_status st = {0};
    cl_int err;
    memset(r, 0, sizeof *r);
    if (clb_cl_device_create(&r->dev,
                             clb_cl_device_params(.caller_driven = caller_driven, .status = &st,
                                                  .log = {.cb = clb_log_stderr})) < 0) {
        fprintf(stderr, "%s\n", st.text);
        _Exit(1);
    }
    const char *src = source;
    cl_device_id id = clb_cl_device_id(r->dev);
    cl_context ctx = clb_cl_device_context(r->dev);
    r->queue = clb_cl_device_queue(r->dev);
    r->program = clCreateProgramWithSource(ctx, 1, &src, NULL, &err);
    CHECK_EQ(err, CL_SUCCESS);
    CHECK_EQ(clBuildProgram(r->program, 1, &id, "", NULL, NULL), CL_SUCCESS);
    r->kernel = clCreateKernel(r->program, "copy", &err);
    CHECK_EQ(err, CL_SUCCESS);
    r->out = clCreateBuffer(ctx, CL_MEM_READ_WRITE, bytes, NULL, &err);
    CHECK_EQ(err, CL_SUCCESS);
    r->bytes = bytes;
    r->local = 64;
}

static void rig_end(struct rig *r)
{
    clReleaseMemObject(r->out);
    clReleaseKernel(r->kernel);
    clReleaseProgram(r->program);
    clb_cl_device_destroy(&r->dev);
}

/* Enqueues the copy behind `ready` (and the gate), records it. *done is the caller's. */
static void enqueue_copy(struct rig *r, clb_cl_frame *f, cl_mem out, cl_event gate, cl_event *done)
{
    cl_event wait[2] = {clb_cl_frame_ready(f), gate};
    size_t global = (r->bytes + r->local - 1) / r->local * r->local;
    CHECK_EQ(clb_cl_frame_set_arg(f, r->kernel, 0), CLB_OK);
    CHECK_EQ(clSetKernelArg(r->kernel, 1, sizeof out, &out), CL_SUCCESS);
    CHECK_EQ(clSetKernelArg(r->kernel, 2, sizeof(cl_uint), &r->bytes), CL_SUCCESS);
    CHECK_EQ(clEnqueueNDRangeKernel(r->queue, r->kernel, 1, NULL, &global, &r->local, gate ? 2 : 1,
                                    wait, done),
             CL_SUCCESS);
    CHECK_EQ(clb_cl_frame_used(f, 1, done), CLB_OK);
    CHECK_EQ(clFlush(r->queue), CL_SUCCESS);
}

static void check_result(struct rig *r, cl_mem out, cl_event done, int value)
{
    uint8_t *got = malloc(r->bytes);
    CHECK(got != NULL);
    CHECK_EQ(clEnqueueReadBuffer(r->queue, out, CL_TRUE, 0, r->bytes, got, 1, &done, NULL),
             CL_SUCCESS);
    for (uint32_t i = 0; i < r->bytes; i++) {
        if (got[i] != (uint8_t)value) {
            fprintf(stderr, "byte %u is %u, expected %d\n", i, got[i], value & 255);
            _Exit(1);
        }
    }
    free(got);
}

/* ---- the peer --------------------------------------------------------------------------------- */

struct script {
    uint32_t window, packets, bytes;
};

static void run_script(struct peer *p, void *arg)
{
    const struct script *sc = arg;
    CHECK(peer_handshake(p));
    int s = peer_create(p, "v", sc->window * sc->bytes);
    for (uint32_t i = 0; i < sc->packets; i++) {
        if (!peer_write_fill(p, s, (int)(i & 255), sc->bytes, 30000)) {
            break;
        }
    }
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static clb_link *adopt(int fd, clb_loop *loop)
{
    clb_link *link = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST,
                            clb_link_params(.loop = loop, .log = {.cb = clb_log_stderr})),
             CLB_OK);
    return link;
}

static clb_cl_pool *make_pool(struct rig *r, uint32_t count, size_t align)
{
    struct clb_status st = {0};
    clb_cl_pool *pool = NULL;
    clb_cl_pool_params p = {.struct_size = sizeof p, .buf_size = r->bytes, .count = count};
    p.align = align;
    p.status = &st;
    if (clb_cl_pool_create(&pool, r->dev, &p) < 0) {
        fprintf(stderr, "%s\n", st.text);
        _Exit(1);
    }
    return pool;
}

static clb_stream *open_on(clb_link *link, clb_cl_pool *pool, size_t align)
{
    clb_stream *s = NULL;
    clb_stream_params p = {.struct_size = sizeof p, .name = "v", .align = align};
    p.allocator = clb_cl_pool_allocator(pool);
    CHECK_EQ(clb_stream_open(&s, link, &p), CLB_OK);
    return s;
}

static clb_cl_frame *next_frame(clb_stream *s)
{
    clb_packet *p = NULL;
    clb_cl_frame *f = NULL;
    CHECK_EQ(clb_stream_read(s, &p, 20 * SEC), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_packet(&f, &p), CLB_OK);
    CHECK(p == NULL);
    return f;
}

/* ---- cases ------------------------------------------------------------------------------------ */

/* Every frame reaches the kernel whole and in order; nothing is copied, spilled or created. */
static void stream_frames(void)
{
    struct rig r;
    struct script sc = {.window = 3, .packets = 120, .bytes = 200000};
    struct peer p;
    rig_init(&r, sc.bytes, 0);
    clb_cl_pool *pool = make_pool(&r, 5, 0);
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_on(link, pool, 0);
    uint64_t heap = 0;
    for (uint32_t i = 0; i < sc.packets; i++) {
        clb_cl_frame *f = next_frame(s);
        cl_event done;
        clb_packet_info info;
        clb_cl_frame_get_info(f, &info, sizeof info);
        CHECK_EQ(info.seq, i);
        CHECK_EQ(info.spilled, 0);
        enqueue_copy(&r, f, r.out, NULL, &done);
        clb_cl_frame_unref(&f);
        check_result(&r, r.out, done, (int)i);
        clReleaseEvent(done);
        /* Slots = window + frames beyond release + 1: with one at a time, nothing can spill. */
        CHECK_EQ(clb_cl_device_drain(r.dev, 10 * SEC), CLB_OK);
        clb_link_stats ls;
        clb_cl_pool_stats ps;
        clb_link_get_stats(link, &ls, sizeof ls);
        clb_cl_pool_get_stats(pool, &ps, sizeof ps);
        if (i == 100) {
            heap = ls.heap_allocs + ps.heap_allocs;
        }
        /* A callback that comes later than ever before needs a record more, so the number may still
         * grow a little under load; what is allocated per frame would be seen. */
        if (i > 100 && ls.heap_allocs + ps.heap_allocs > heap + 4) {
            fprintf(stderr, "frame %u: %llu allocations, %llu at frame 100\n", i,
                    (unsigned long long)(ls.heap_allocs + ps.heap_allocs),
                    (unsigned long long)heap);
            _Exit(1);
        }
    }
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    CHECK_EQ(st.spilled, 0);
    CHECK_EQ(st.spill_bytes, 0);
    CHECK_EQ(st.packets, sc.packets);
    clb_stream_close(&s);
    clb_link_close(&link);
    peer_join(&p);
    CHECK_EQ(clb_cl_device_drain(r.dev, 10 * SEC), CLB_OK);
    clb_cl_pool_stats ps;
    clb_cl_pool_get_stats(pool, &ps, sizeof ps);
    CHECK_EQ(ps.free, 5);
    CHECK_EQ(ps.poisoned + ps.renewed, 0);
    clb_cl_pool_destroy(&pool);
    rig_end(&r);
}

/* Kernels that start late, held by a user event: the transport must not write into their frames. */
static void gated_kernels(void)
{
    struct rig r;
    struct script sc = {.window = 2, .packets = 40, .bytes = 100000};
    struct peer p;
    rig_init(&r, sc.bytes, 0);
    clb_cl_pool *pool = make_pool(&r, 3, 0);
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_on(link, pool, 0);
    for (uint32_t i = 0; i < sc.packets; i++) {
        clb_cl_frame *f = next_frame(s);
        cl_int err;
        cl_event done, gate = clCreateUserEvent(clb_cl_device_context(r.dev), &err);
        CHECK_EQ(err, CL_SUCCESS);
        enqueue_copy(&r, f, r.out, gate, &done);
        clb_cl_frame_unref(&f); /* the kernel has not started */
        check_sleep_ms(3);      /* the peer goes on: it has credit */
        CHECK_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
        check_result(&r, r.out, done, (int)i);
        clReleaseEvent(done);
        clReleaseEvent(gate);
    }
    clb_stream_close(&s);
    clb_link_close(&link);
    peer_join(&p);
    clb_cl_pool_destroy(&pool);
    rig_end(&r);
}

/* No thread of ours: loop and device are driven by the calls of this thread. Window 1, pool 1: each
 * read with a deadline does the worker's work, or nothing would ever come home. */
static void caller_driven(size_t align, uint32_t bytes, uint32_t packets)
{
    struct rig r;
    struct script sc = {.window = 1, .packets = packets, .bytes = bytes};
    struct peer p;
    rig_init(&r, sc.bytes, 1);
    r.local = 16;
    clb_cl_pool *pool = make_pool(&r, 1, align);
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_loop *loop = NULL;
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    clb_link *link = adopt(fd, loop);
    clb_stream *s = open_on(link, pool, align);
    for (uint32_t i = 0; i < packets; i++) {
        clb_cl_frame *f = next_frame(s);
        cl_event done;
        enqueue_copy(&r, f, r.out, NULL, &done);
        clb_cl_frame_unref(&f);
        check_result(&r, r.out, done, (int)i);
        clReleaseEvent(done);
    }
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    CHECK_EQ(st.packets, packets);
    CHECK_EQ(st.spill_bytes, st.spilled * bytes);
    clb_stream_close(&s);
    clb_link_close(&link);
    clb_loop_destroy(&loop);
    peer_join(&p);
    CHECK_EQ(clb_cl_device_drain(r.dev, 10 * SEC), CLB_OK);
    clb_cl_pool_destroy(&pool);
    rig_end(&r);
}

/* Packet, frame, stream, link, pool and device are destroyed in every order, with the device's objects
 * imported: afterwards the context has the user's reference alone. */
static void destroy_in_every_order(void)
{
    struct rig r;
    struct script sc = {.window = 3, .packets = 3, .bytes = 4096};
    rig_init(&r, sc.bytes, 0);
    cl_context ctx = clb_cl_device_context(r.dev);
    cl_device_id id = clb_cl_device_id(r.dev);
    cl_int err;
    cl_context own = clCreateContext(NULL, 1, &id, NULL, NULL, &err);
    CHECK_EQ(err, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(own, id, 0, &err);
    CHECK_EQ(err, CL_SUCCESS);
    (void)ctx;
    cl_uint before, after = 0;
    CHECK_EQ(clGetContextInfo(own, CL_CONTEXT_REFERENCE_COUNT, sizeof before, &before, NULL), 0);
    int order[6] = {0, 1, 2, 3, 4, 5};
    int count = 0;
    for (;;) {
        clb_cl_device *dev = NULL;
        struct peer p;
        CHECK_EQ(clb_cl_device_create(
                     &dev, clb_cl_device_params(.context = own, .device = id, .queue = queue)),
                 CLB_OK);
        struct rig tmp = r;
        tmp.dev = dev;
        clb_cl_pool *pool = make_pool(&tmp, 4, 0);
        int fd = peer_pair(&p, false);
        peer_start(&p, run_script, &sc);
        clb_link *link = adopt(fd, NULL);
        clb_stream *s = open_on(link, pool, 0);
        clb_cl_frame *f = next_frame(s);
        clb_packet *pk = NULL;
        CHECK_EQ(clb_stream_read(s, &pk, 20 * SEC), CLB_OK);
        for (int k = 0; k < 6; k++) {
            switch (order[k]) {
            case 0:
                CHECK_EQ(((uint8_t *)clb_packet_data(pk))[100], 1); /* still there */
                clb_packet_free(&pk);
                break;
            case 1: clb_cl_frame_unref(&f); break;
            case 2: clb_stream_close(&s); break;
            case 3: clb_link_close(&link); break;
            case 4: clb_cl_pool_destroy(&pool); break;
            default: clb_cl_device_destroy(&dev); break;
            }
        }
        peer_join(&p);
        count++;
        /* The next permutation in lexicographic order. */
        int i = 4;
        while (i >= 0 && order[i] > order[i + 1]) {
            i--;
        }
        if (i < 0) {
            break;
        }
        int j = 5;
        while (order[j] < order[i]) {
            j--;
        }
        int t = order[i];
        order[i] = order[j];
        order[j] = t;
        for (int a = i + 1, b = 5; a < b; a++, b--) {
            t = order[a];
            order[a] = order[b];
            order[b] = t;
        }
    }
    CHECK_EQ(count, 720);
    for (int i = 0; i < 2000; i++) {
        CHECK_EQ(clGetContextInfo(own, CL_CONTEXT_REFERENCE_COUNT, sizeof after, &after, NULL), 0);
        if (after == before) {
            break;
        }
        check_sleep_ms(10);
    }
    CHECK_EQ(after, before);
    clReleaseCommandQueue(queue);
    clReleaseContext(own);
    rig_end(&r);
}

int main(void)
{
    const char *runtime = getenv("CLB_TEST_RUNTIME");
    check_watchdog(280);
    if (runtime && strcmp(runtime, "oclgrind") == 0) {
        caller_driven(16, 1024, 12);
        return 0;
    }
#define RUN(f)                                                                                     \
    do {                                                                                           \
        const int64_t start = check_ms();                                                          \
        f;                                                                                         \
        fprintf(stderr, "%s %d ms\n", #f, (int)(check_ms() - start));                              \
    } while (0)
    RUN(stream_frames());
    RUN(gated_kernels());
    RUN(caller_driven(64, 65536, 40));
    RUN(destroy_in_every_order());
    return 0;
}
