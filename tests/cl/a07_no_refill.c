/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-07: a buffer that is still being read is not filled again. A pool of two; frame n is full
 * of byte n; a slow kernel on a queue that the library does not know copies it, and the frame is given
 * back at once with the kernel's event. The peer sends as fast as it can. No result may hold two values.
 * 200 kernels of 50 ms take 10 s: it is 20 of these, and 200 shorter ones.
 */
#include <clbridge/cl.h>
#include <clbridge/clbridge.h>

#include <check.h>
#include <peer.h>

#define SEC INT64_C(1000000000)
#define BYTES 16384
#define GROUP 16
#define WINDOW 8
#define MOST_FRAMES 200

/* Each byte after a while; the groups run one after the other: what the kernel reads is spread over all of
 * its time. llvmpipe ends every loop after 65535 turns. */
static const char source[] =
    "__kernel void slow(__global const uchar *in, __global uchar *out, uint at, uint spin)\n"
    "{\n"
    "    uint i = get_global_id(0), k, x = i + 1;\n"
    "    for (k = 0; k < spin; k++) {\n"
    "        x ^= x << 13; x ^= x >> 17; x ^= x << 5;\n"
    "    }\n"
    "    out[at * get_global_size(0) + i] = in[i] + (x == 0 ? 1 : 0);\n" /* x is never 0 */
    "}\n";
#define MOST_TURNS 60000

static struct {
    clb_cl_device *dev;
    cl_command_queue queue; /* ours alone: no fence of the library's is put there */
    cl_program program;
    cl_kernel kernel;
    cl_mem results;
} rig;

static void rig_open(void)
{
    struct clb_status st = {0};
    const char *text = source;
    cl_device_id id;
    cl_context context;
    cl_int code;
    int err = clb_cl_device_create(&rig.dev, clb_cl_device_params(.status = &st));

    if (err != CLB_OK)
        fprintf(stderr, "%s\n", st.text);
    CHECK_EQ(err, CLB_OK);
    id = clb_cl_device_id(rig.dev);
    context = clb_cl_device_context(rig.dev);
    rig.queue = clCreateCommandQueue(context, id, 0, &code);
    CHECK_EQ(code, CL_SUCCESS);
    rig.program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    CHECK_EQ(code, CL_SUCCESS);
    CHECK_EQ(clBuildProgram(rig.program, 1, &id, "", NULL, NULL), CL_SUCCESS);
    rig.kernel = clCreateKernel(rig.program, "slow", &code);
    CHECK_EQ(code, CL_SUCCESS);
    rig.results = clCreateBuffer(context, CL_MEM_READ_WRITE, MOST_FRAMES * BYTES, NULL, &code);
    CHECK_EQ(code, CL_SUCCESS);
}

static void rig_close(void)
{
    clReleaseMemObject(rig.results);
    clReleaseKernel(rig.kernel);
    clReleaseProgram(rig.program);
    clReleaseCommandQueue(rig.queue);
    clb_cl_device_destroy(&rig.dev);
}

static void enqueue(cl_mem in, cl_uint at, cl_uint spin, cl_uint num_wait, const cl_event *wait,
                    cl_event *done)
{
    const size_t n = BYTES, group = GROUP;

    CHECK_EQ(clSetKernelArg(rig.kernel, 0, sizeof(in), &in), CL_SUCCESS);
    CHECK_EQ(clSetKernelArg(rig.kernel, 1, sizeof(rig.results), &rig.results), CL_SUCCESS);
    CHECK_EQ(clSetKernelArg(rig.kernel, 2, sizeof(at), &at), CL_SUCCESS);
    CHECK_EQ(clSetKernelArg(rig.kernel, 3, sizeof(spin), &spin), CL_SUCCESS);
    CHECK_EQ(
        clEnqueueNDRangeKernel(rig.queue, rig.kernel, 1, NULL, &n, &group, num_wait, wait, done),
        CL_SUCCESS);
    CHECK_EQ(clFlush(rig.queue), CL_SUCCESS);
}

/* So many turns for a kernel of about ms. */
static cl_uint spin_for(int ms)
{
    cl_uint spin = 10;
    cl_int code;
    cl_mem in =
        clCreateBuffer(clb_cl_device_context(rig.dev), CL_MEM_READ_WRITE, BYTES, NULL, &code);
    int64_t took = 0;
    cl_event done;

    CHECK_EQ(code, CL_SUCCESS);
    enqueue(in, 0, 1, 0, NULL, NULL); /* what is slow once */
    CHECK_EQ(clFinish(rig.queue), CL_SUCCESS);
    while (took < 10 && spin < MOST_TURNS / 4) {
        const int64_t begin = check_ms();

        spin *= 4;
        enqueue(in, 0, spin, 0, NULL, &done);
        /* Not clFinish(): behind a clFlush() rusticl's comes back early. */
        CHECK_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
        clReleaseEvent(done);
        took = check_ms() - begin;
    }
    clReleaseMemObject(in);
    if (took < 10)
        return MOST_TURNS;
    spin = (cl_uint)((uint64_t)spin * (uint64_t)ms / (uint64_t)took) + 1;
    return spin < MOST_TURNS ? spin : MOST_TURNS;
}

static void run(struct peer *p, void *arg)
{
    const uint32_t frames = *(const uint32_t *)arg;
    uint32_t i;
    int a;

    CHECK(peer_handshake(p));
    a = peer_create(p, "a", WINDOW * BYTES);
    for (i = 0; i < frames; i++)
        CHECK(peer_write_fill(p, a, (int)(i & 255), BYTES, 60000));
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* The next one, until all have arrived and none is left. */
static bool next_packet(clb_stream *s, uint32_t frames, clb_packet **packet)
{
    clb_stream_stats st;
    int err;

    do {
        clb_stream_get_stats(s, &st, sizeof(st));
        err = clb_stream_read(s, packet, SEC / 20);
    } while (err != CLB_OK && (st.packets < frames || st.queued > 0));
    return err == CLB_OK;
}

static void slow_reader(enum clb_full full, enum clb_cl_fence fence, uint32_t frames, int ms)
{
    static uint8_t got[MOST_FRAMES * BYTES];
    uint8_t value[MOST_FRAMES];
    struct peer peer;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    clb_cl_pool *pool = NULL;
    clb_packet *packet = NULL;
    const cl_uint spin = spin_for(ms);
    uint32_t n = 0, i;
    size_t b;
    int fd = peer_pair(&peer, false);

    peer_start(&peer, run, &frames);
    CHECK_EQ(clb_cl_pool_create(&pool, rig.dev,
                                clb_cl_pool_params(.buf_size = BYTES, .count = 2, .fence = fence)),
             CLB_OK);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    CHECK_EQ(clb_stream_open(&s, link,
                             clb_stream_params(.name = "a", .on_full = full,
                                               .allocator = clb_cl_pool_allocator(pool))),
             CLB_OK);
    while (next_packet(s, frames, &packet)) {
        clb_packet_info info;
        clb_cl_frame *frame = NULL;
        cl_event ready, done;

        clb_packet_get_info(packet, &info, sizeof(info));
        value[n] = (uint8_t)info.seq;
        CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_OK);
        ready = clb_cl_frame_ready(frame);
        enqueue(clb_cl_frame_mem(frame), n++, spin, 1, &ready, &done);
        CHECK_EQ(clb_cl_frame_used(frame, 1, &done), CLB_OK);
        clReleaseEvent(done);
        clb_cl_frame_unref(&frame);
    }
    CHECK(full == CLB_FULL_BLOCK ? n == frames : n > 0);
    CHECK_EQ(clEnqueueReadBuffer(rig.queue, rig.results, CL_TRUE, 0, (size_t)n * BYTES, got, 0,
                                 NULL, NULL),
             CL_SUCCESS);
    for (i = 0; i < n; i++)
        for (b = 0; b < BYTES; b++)
            if (got[i * BYTES + b] != value[i]) {
                fprintf(stderr, "result %u: byte %zu is %u, not %u\n", i, b, got[i * BYTES + b],
                        value[i]);
                _Exit(1);
            }
    clb_stream_close(&s);
    clb_link_close(&link);
    peer_join(&peer);
    clb_cl_pool_destroy(&pool);
    printf("%u of %u frames, %u turns\n", n, frames, spin);
}

int main(void)
{
    check_watchdog(110);
    rig_open();
    slow_reader(CLB_FULL_BLOCK, CLB_CL_FENCE_EXPLICIT, 20, 50);
    slow_reader(CLB_FULL_BLOCK, CLB_CL_FENCE_ALL, MOST_FRAMES, 5);
    slow_reader(CLB_FULL_DROP_OLDEST, CLB_CL_FENCE_EXPLICIT, MOST_FRAMES, 50);
    rig_close();
    return 0;
}
