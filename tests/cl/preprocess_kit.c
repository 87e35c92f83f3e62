/* SPDX-License-Identifier: Apache-2.0 */
/* See preprocess_kit.h. */
#include "preprocess_kit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cl_fns.h"
#include "device.h"

bool small_only;
clb_cl_device *dev;
clb_cl_pool *pool;
size_t pool_bytes;
static struct clbi_cl_fns fns;

/* ---- failing and logging --------------------------------------------------------------------- */

void fail_at(const char *file, int line, const char *fmt, ...)
{
    const char *base = strrchr(file, '/');
    va_list ap;

    fprintf(stderr, "%s:%d: ", base ? base + 1 : file, line);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

atomic_int lines;
char last_line[512];

static void count_line(void *priv, enum clb_log_level level, const char *msg)
{
    (void)priv;
    (void)level;
    snprintf(last_line, sizeof last_line, "%s", msg);
    lines++;
}

/* What the library enqueues, seen from between. */
atomic_int launches;
static _Thread_local cl_event expect_ready;
static _Thread_local bool waits_on_ready;

static cl_int spy_ndrange(cl_command_queue queue, cl_kernel kernel, cl_uint dim,
                          const size_t *offset, const size_t *global, const size_t *local,
                          cl_uint num_wait, const cl_event *wait, cl_event *event)
{
    launches++;
    /* A recipe without `src` warms up in the first run, on a queue and buffers of its own. */
    if (expect_ready && num_wait != 0 && (num_wait != 1 || wait[0] != expect_ready))
        fail(__LINE__, "the kernel waits on %u events, not on the frame's ready alone", num_wait);
    waits_on_ready = num_wait == 1 && wait[0] == expect_ready;
    if (!local || local[0] % 16 != 0)
        fail(__LINE__, "work-groups of %zu along x: left open (0), or no multiple of 16",
             local ? local[0] : 0);
    return clEnqueueNDRangeKernel(queue, kernel, dim, offset, global, local, num_wait, wait, event);
}

/* Between two arguments of one thread, time for those of another. */
atomic_bool dawdle;

static cl_int spy_set_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    if (dawdle)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return clSetKernelArg(kernel, index, size, value);
}

/* ---- pictures -------------------------------------------------------------------------------- */

static uint32_t noise_state = 1;

static uint8_t noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (uint8_t)(noise_state >> 24);
}

unsigned row_bytes(const struct clb_image *img, unsigned plane)
{
    if (img->fmt == CLB_PIXFMT_RGB24 || img->fmt == CLB_PIXFMT_BGR24)
        return img->width * 3;
    return plane ? (img->width + 1) / 2 * 2 : img->width;
}

unsigned rows(const struct clb_image *img, unsigned plane)
{
    return plane ? (img->height + 1) / 2 : img->height;
}

uint8_t *make_pixels(const struct clb_image *img, uint8_t padding)
{
    const size_t bytes = clb_image_bytes(img);
    uint8_t *px = malloc(bytes);

    if (!px)
        fail(__LINE__, "out of memory");
    memset(px, padding, bytes);
    noise_state = img->width * 31 + img->height;
    for (unsigned p = 0; p < img->num_planes; p++)
        for (unsigned y = 0; y < rows(img, p); y++)
            for (unsigned x = 0; x < row_bytes(img, p); x++)
                px[img->plane[p].offset + img->plane[p].pitch * y + x] = noise();
    return px;
}

static double clamp255(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* R, G, B of one pixel by the formulas of preprocess.h, before rounding. */
static void reference(const struct clb_image *img, const uint8_t *px, unsigned x, unsigned y,
                      double rgb[3])
{
    const uint8_t *p = px + img->plane[0].offset + img->plane[0].pitch * y;

    if (img->fmt == CLB_PIXFMT_NV12) {
        const uint8_t *c = px + img->plane[1].offset + img->plane[1].pitch * (y / 2) + x / 2 * 2;
        const bool full = img->range == CLB_RANGE_FULL;
        const double kr = img->matrix == CLB_MATRIX_709 ? 0.2126 : 0.299;
        const double kb = img->matrix == CLB_MATRIX_709 ? 0.0722 : 0.114;
        const double luma = full ? p[x] / 255.0 : (p[x] - 16) / 219.0;
        const double u = (c[0] - 128) / (full ? 255.0 : 224.0);
        const double v = (c[1] - 128) / (full ? 255.0 : 224.0);
        const double r = luma + 2 * (1 - kr) * v;
        const double b = luma + 2 * (1 - kb) * u;

        rgb[0] = clamp255(255 * r);
        rgb[2] = clamp255(255 * b);
        rgb[1] = clamp255(255 * (luma - kr * r - kb * b) / (1 - kr - kb));
    } else if (img->fmt == CLB_PIXFMT_GRAY8) {
        rgb[0] = rgb[1] = rgb[2] = p[x];
    } else {
        const unsigned first = img->fmt == CLB_PIXFMT_BGR24 ? 2 : 0;
        rgb[0] = p[3 * x + first];
        rgb[1] = p[3 * x + 1];
        rgb[2] = p[3 * x + 2 - first];
    }
}

/* ---- frames and tensors ---------------------------------------------------------------------- */

clb_cl_frame *make_frame(clb_cl_pool *from, const void *px, size_t bytes)
{
    const struct clb_allocator a = clb_cl_pool_allocator(from);
    const struct clb_alloc_req req = {.payload = bytes,
                                      .capacity = bytes,
                                      .align = 16,
                                      .stream_name = "test",
                                      .wait_ns = 20 * SEC};
    struct clb_buf buf = {0};
    clb_cl_frame *frame = NULL;

    CHECK_EQ(a.alloc(a.opaque, &req, &buf), CLB_OK);
    a.ref(a.opaque);
    memcpy(buf.data, px, bytes);
    CHECK_EQ(a.release(a.opaque, &buf, bytes), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, from, &buf), CLB_OK);
    return frame;
}

cl_mem make_tensor(size_t bytes)
{
    cl_int rc;
    cl_mem mem = clCreateBuffer(clb_cl_device_context(dev), CL_MEM_READ_WRITE, bytes, NULL, &rc);

    CHECK_EQ(rc, CL_SUCCESS);
    return mem;
}

void wait_done(cl_event done)
{
    const time_t end = time(NULL) + 60;
    cl_int status = CL_QUEUED;

    /* Looking alone: only a run that flushes its queue gets done on every runtime. */
    while (status > CL_COMPLETE) {
        CHECK_EQ(
            clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL),
            CL_SUCCESS);
        if (time(NULL) > end)
            fail(__LINE__, "the kernel did not end within 60 s: status %d", status);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    CHECK_EQ(status, CL_COMPLETE);
    clReleaseEvent(done);
}

void run_into(clb_preprocess *pp, cl_command_queue queue, const struct clb_image *img,
              const void *px, bool image_by_frame, size_t offset, uint8_t *out, size_t out_bytes)
{
    clb_cl_frame *frame = make_frame(pool, px, clb_image_bytes(img));
    cl_mem tensor = make_tensor(out_bytes);
    cl_event done = NULL;

    memset(out, GUARD, out_bytes);
    CHECK_EQ(clEnqueueWriteBuffer(queue, tensor, CL_TRUE, 0, out_bytes, out, 0, NULL, NULL),
             CL_SUCCESS);
    if (image_by_frame)
        CHECK_EQ(clb_cl_frame_set_image(frame, img), CLB_OK);
    expect_ready = clb_cl_frame_ready(frame);
    waits_on_ready = false;
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, tensor, offset, &done), CLB_OK);
    expect_ready = NULL;
    CHECK_EQ(waits_on_ready, true);
    clb_cl_frame_unref(&frame);
    wait_done(done);
    CHECK_EQ(clEnqueueReadBuffer(queue, tensor, CL_TRUE, 0, out_bytes, out, 0, NULL, NULL),
             CL_SUCCESS);
    clReleaseMemObject(tensor);
}

double worst;

void compare(const struct clb_image *img, const uint8_t *px, enum clb_preprocess_order order,
             const uint8_t *out, size_t offset, size_t out_bytes)
{
    const size_t result = (size_t)img->width * img->height * 3;

    for (size_t i = 0; i < out_bytes; i++)
        if ((i < offset || i >= offset + result) && out[i] != GUARD)
            fail(__LINE__, "%s %ux%u: byte %zu of the tensor was written, the result is %zu..%zu",
                 clb_pixfmt_name(img->fmt), img->width, img->height, i, offset, offset + result);
    for (unsigned y = 0; y < img->height; y++)
        for (unsigned x = 0; x < img->width; x++) {
            double rgb[3];

            reference(img, px, x, y, rgb);
            for (int c = 0; c < 3; c++) {
                const int got = out[offset + ((size_t)y * img->width + x) * 3 + (size_t)c];
                const double want = rgb[order == CLB_ORDER_BGR ? 2 - c : c];
                const double diff = got > want ? got - want : want - got;

                if (diff > worst)
                    worst = diff;
                if (diff >= 1)
                    fail(__LINE__,
                         "%s %ux%u matrix %d range %d order %d: (%u,%u) channel %d is %d, not %.3f",
                         clb_pixfmt_name(img->fmt), img->width, img->height, img->matrix,
                         img->range, order, x, y, c, got, want);
            }
        }
}

void open_device(void)
{
    const char *runtime = getenv("CLB_TEST_RUNTIME");
    struct clb_status st = {0};

    small_only = runtime && strcmp(runtime, "oclgrind") == 0;
    pool_bytes = small_only ? 64 * 1024 : (1920 + 64) * 1200 * 3;
    fns = clbi_cl_loader_fns;
    fns.EnqueueNDRangeKernel = spy_ndrange;
    fns.SetKernelArg = spy_set_arg;
    if (clbi_cl_device_create_with(&fns, &dev,
                                   clb_cl_device_params(.caller_driven = small_only, .status = &st,
                                                        .log = {.cb = count_line})) != CLB_OK)
        fail(__LINE__, "no device: %s", st.text);
    if (clb_cl_pool_create(&pool, dev,
                           clb_cl_pool_params(.buf_size = pool_bytes, .count = 6, .align = 16,
                                              .status = &st)) != CLB_OK)
        fail(__LINE__, "no pool: %s", st.text);
}
