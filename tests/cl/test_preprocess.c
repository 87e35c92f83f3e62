/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preprocessing on a real runtime: colours and odd sizes against a plain reference in double
 * precision, padding that must not matter, bytes that must not be touched, what is refused before
 * anything is enqueued, and what a run tells the frame.
 */
#include "preprocess_kit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------- */

struct pads {
    size_t pitch0, gap, pitch1; /* added to the packed layout */
};

static void add_pads(struct clb_image *img, struct pads pads)
{
    img->plane[0].pitch += pads.pitch0;
    img->plane[0].offset += pads.gap;
    if (img->num_planes > 1) {
        img->plane[1].offset = img->plane[0].offset + img->plane[0].pitch * img->height + pads.gap;
        img->plane[1].pitch += pads.pitch1;
    }
}

static void one_picture(enum clb_pixfmt fmt, unsigned w, unsigned h, struct pads pads,
                        enum clb_preprocess_order order, size_t offset)
{
    const size_t out_bytes = offset + (size_t)w * h * 3 + GUARD_BYTES;
    uint8_t *out[2];
    struct clb_image img;
    clb_preprocess *pp = NULL;
    clb_preprocess_geometry g;

    CHECK_EQ(clb_image_init(&img, fmt, w, h, 0, 0), CLB_OK);
    add_pads(&img, pads);
    if (clb_image_bytes(&img) > pool_bytes)
        fail(__LINE__, "the test's pool is too small");
    CHECK_EQ(clb_preprocess_create(&pp, dev, clb_preprocess_params(.src = &img, .order = order)),
             CLB_OK);
    CHECK_EQ(clb_preprocess_get_geometry(pp, NULL, &g, sizeof g), CLB_OK);
    CHECK_EQ(g.bytes, (size_t)w * h * 3);
    CHECK_EQ(g.width, w);
    CHECK_EQ(g.inner_height, h);
    /* Padding of two values: no byte of it may show. */
    for (int i = 0; i < 2; i++) {
        uint8_t *px = make_pixels(&img, i ? 0x55 : 0xAA);

        out[i] = malloc(out_bytes);
        if (!out[i])
            fail(__LINE__, "out of memory");
        run_into(pp, clb_cl_device_queue(dev), &img, px, false, offset, out[i], out_bytes);
        compare(&img, px, order, out[i], offset, out_bytes);
        free(px);
    }
    if (memcmp(out[0], out[1], out_bytes) != 0)
        fail(__LINE__, "%s %ux%u: the padding shows in the result", clb_pixfmt_name(fmt), w, h);
    free(out[0]);
    free(out[1]);
    clb_preprocess_destroy(&pp);
}

static void A_18_sizes(void)
{
    static const struct {
        unsigned w, h;
    } size[] = {{1, 1}, {2, 2},  {3, 5},   {5, 3},     {4, 3},      {5, 4},
                {9, 3}, {15, 4}, {64, 48}, {641, 480}, {1920, 1080}};
    static const enum clb_pixfmt fmt[] = {CLB_PIXFMT_NV12, CLB_PIXFMT_BGR24, CLB_PIXFMT_RGB24,
                                          CLB_PIXFMT_GRAY8};

    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (size_t f = 0; f < sizeof fmt / sizeof *fmt; f++) {
            const struct pads odd = {3, 17, 1};

            if (small_only && size[i].w > 15 && fmt[f] != CLB_PIXFMT_NV12)
                continue;
            if (small_only && size[i].w > 64)
                continue;
            if (size[i].w == 1920 && f > 1)
                continue;
            one_picture(fmt[f], size[i].w, size[i].h, (struct pads){0, 0, 0}, CLB_ORDER_RGB, 0);
            one_picture(fmt[f], size[i].w, size[i].h, odd, CLB_ORDER_BGR, 77);
        }
    /* The layout that the report names: rows of 8 bytes. */
    one_picture(CLB_PIXFMT_NV12, 5, 3, (struct pads){3, 0, 2}, CLB_ORDER_RGB, 64);
}

/* A constant NV12 picture; gives the first pixel and demands that all are alike. */
static void constant(const struct clb_image *img, const uint8_t yuv[3], uint8_t padding,
                     enum clb_preprocess_order order, uint8_t *out, size_t out_bytes)
{
    uint8_t *px = make_pixels(img, padding);
    clb_preprocess *pp = NULL;

    for (unsigned p = 0; p < 2; p++)
        for (unsigned y = 0; y < rows(img, p); y++)
            for (unsigned x = 0; x < row_bytes(img, p); x++)
                px[img->plane[p].offset + img->plane[p].pitch * y + x] =
                    p == 0 ? yuv[0] : yuv[1 + x % 2];
    /* Matrix and range come by the params here, by the frame's image elsewhere. */
    CHECK_EQ(
        clb_preprocess_create(&pp, dev,
                              clb_preprocess_params(.src = img, .order = order,
                                                    .matrix = img->matrix, .range = img->range)),
        CLB_OK);
    run_into(pp, clb_cl_device_queue(dev), img, px, false, 0, out, out_bytes);
    clb_preprocess_destroy(&pp);
    free(px);
    for (size_t i = 0; i < (size_t)img->width * img->height * 3; i++)
        if (out[i] != out[i % 3])
            fail(__LINE__, "a constant picture is not constant: byte %zu is %d, byte %zu is %d", i,
                 out[i], i % 3, out[i % 3]);
}

static void near2(const char *what, const uint8_t *got, int a, int b, int c)
{
    const int want[3] = {a, b, c};

    for (int i = 0; i < 3; i++)
        if (got[i] - want[i] > 2 || want[i] - got[i] > 2)
            fail(__LINE__, "%s: (%d,%d,%d), not (%d,%d,%d)", what, got[0], got[1], got[2], a, b, c);
}

static void A_01_padded_nv12(void)
{
    static const uint8_t yuv[3] = {81, 90, 240};
    uint8_t out[2][60 * 4 * 3 + GUARD_BYTES];
    struct clb_image img;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 60, 4, 0, 0), CLB_OK);
    img.plane[0].pitch = 64;
    img.plane[1].pitch = 128;
    img.plane[1].offset = 512;
    constant(&img, yuv, 0xAA, CLB_ORDER_BGR, out[0], sizeof out[0]);
    constant(&img, yuv, 0x55, CLB_ORDER_BGR, out[1], sizeof out[1]);
    near2("A-01", out[0], 0, 0, 254);
    if (memcmp(out[0], out[1], sizeof out[0]) != 0)
        fail(__LINE__, "A-01: the padding shows in the result");
}

static void A_11_colours(void)
{
    static const struct {
        uint8_t yuv[3];
        enum clb_matrix matrix;
        enum clb_range range;
        int rgb[3];
    } c[] = {
        {{81, 90, 240}, CLB_MATRIX_DEFAULT, CLB_RANGE_DEFAULT, {254, 0, 0}},
        {{81, 90, 240}, CLB_MATRIX_601, CLB_RANGE_LIMITED, {254, 0, 0}},
        {{81, 90, 240}, CLB_MATRIX_709, CLB_RANGE_LIMITED, {255, 24, 0}},
        {{81, 90, 240}, CLB_MATRIX_601, CLB_RANGE_FULL, {238, 14, 14}},
        {{81, 90, 240}, CLB_MATRIX_709, CLB_RANGE_FULL, {255, 36, 10}},
        {{16, 128, 128}, CLB_MATRIX_601, CLB_RANGE_LIMITED, {0, 0, 0}},
        {{16, 128, 128}, CLB_MATRIX_601, CLB_RANGE_FULL, {16, 16, 16}},
        {{235, 128, 128}, CLB_MATRIX_601, CLB_RANGE_LIMITED, {255, 255, 255}},
        {{235, 128, 128}, CLB_MATRIX_601, CLB_RANGE_FULL, {235, 235, 235}},
        {{255, 255, 255}, CLB_MATRIX_601, CLB_RANGE_LIMITED, {255, 125, 255}},
        {{0, 0, 0}, CLB_MATRIX_601, CLB_RANGE_LIMITED, {0, 136, 0}},
    };
    uint8_t out[2 * 2 * 3 + GUARD_BYTES];

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct clb_image img;
        char what[64];

        CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 2, 2, 0, 0), CLB_OK);
        img.matrix = c[i].matrix;
        img.range = c[i].range;
        constant(&img, c[i].yuv, 0, CLB_ORDER_RGB, out, sizeof out);
        snprintf(what, sizeof what, "A-11 row %zu", i);
        near2(what, out, c[i].rgb[0], c[i].rgb[1], c[i].rgb[2]);
    }
}

/* Every pair (U, V), each with four values of Y, for each matrix and range. One recipe for all, which
 * takes the layout from the frames. */
static void every_chroma(void)
{
    const unsigned side = small_only ? 32 : 512; /* the interpreter: every 16th U and V */
    const size_t out_bytes = (size_t)side * side * 3 + GUARD_BYTES;
    uint8_t *out = malloc(out_bytes);
    clb_preprocess *pp = NULL;
    struct clb_image img;
    uint8_t *px;

    if (!out)
        fail(__LINE__, "out of memory");
    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, side, side, 0, 0), CLB_OK);
    px = make_pixels(&img, 0);
    for (unsigned v = 0; v < side / 2; v++)
        for (unsigned u = 0; u < side / 2; u++) {
            px[img.plane[1].offset + (size_t)v * side + u * 2] = (uint8_t)(u * (512 / side));
            px[img.plane[1].offset + (size_t)v * side + u * 2 + 1] = (uint8_t)(v * (512 / side));
        }
    CHECK_EQ(clb_preprocess_create(&pp, dev, NULL), CLB_OK);
    for (int m = CLB_MATRIX_601; m <= CLB_MATRIX_709; m++)
        for (int r = CLB_RANGE_LIMITED; r <= CLB_RANGE_FULL; r++) {
            img.matrix = (enum clb_matrix)m;
            img.range = (enum clb_range)r;
            run_into(pp, clb_cl_device_queue(dev), &img, px, true, 0, out, out_bytes);
            compare(&img, px, CLB_ORDER_RGB, out, 0, out_bytes);
        }
    clb_preprocess_destroy(&pp);
    free(px);
    free(out);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(int line, const clb_preprocess_params *params, int expected)
{
    clb_preprocess *pp = NULL;
    const int before = lines;
    const int rc = clb_preprocess_create(&pp, dev, params);

    if (rc != expected)
        fail(line, "create is %d, not %d (%s)", rc, expected, last_line);
    if (lines != before + 1)
        fail(line, "%d log lines, not 1 (%s)", lines - before, last_line);
}

#define REFUSED(expected, ...) refused(__LINE__, clb_preprocess_params(__VA_ARGS__), expected)

static void refused_recipes(void)
{
    struct clb_image img, bad;
    const int before = launches;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 64, 48, 0, 0), CLB_OK);
    CHECK_EQ(clb_preprocess_create(NULL, dev, NULL), CLB_ERR_INVAL);
    clb_preprocess *pp = (clb_preprocess *)&img;
    CHECK_EQ(clb_preprocess_create(&pp, NULL, NULL), CLB_ERR_INVAL);
    CHECK_EQ(pp == NULL, 1);

    bad = img;
    bad.plane[0].pitch = 63;
    REFUSED(CLB_ERR_INVAL, .src = &bad);
    bad = img;
    bad.width = 0;
    REFUSED(CLB_ERR_INVAL, .src = &bad);
    bad = img;
    bad.plane[1].offset = SIZE_MAX - 10;
    REFUSED(CLB_ERR_TOOBIG, .src = &bad);
    CHECK_EQ(clb_image_init(&bad, CLB_PIXFMT_GRAY8, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0), CLB_OK);
    REFUSED(CLB_ERR_TOOBIG, .src = &bad);
    REFUSED(CLB_ERR_INVAL, .fit = (enum clb_preprocess_fit)3);
    REFUSED(CLB_ERR_INVAL, .type = (enum clb_preprocess_type) - 1);
    REFUSED(CLB_ERR_INVAL, .scale = {0, 0.0f / (float)(img.width - 64)});
    REFUSED(CLB_ERR_INVAL, .crop = {.x = -1, .w = 10, .h = 10});
    REFUSED(CLB_ERR_INVAL, .crop = {.x = 1});
    REFUSED(CLB_ERR_INVAL, .src = &img, .crop = {.x = 60, .w = 5, .h = 48});
    CHECK_EQ(launches, before);
}

static void refused_runs(void)
{
    const cl_command_queue queue = clb_cl_device_queue(dev);
    struct clb_image img;
    clb_preprocess *pp = NULL, *any = NULL;
    clb_cl_frame *frame, *short_frame;
    clb_preprocess_geometry g;
    cl_event done = NULL;
    uint8_t *px;
    cl_mem tensor;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 6, 4, 0, 0), CLB_OK);
    px = make_pixels(&img, 0);
    CHECK_EQ(clb_preprocess_create(&pp, dev,
                                   clb_preprocess_params(.src = &img, .width = 6, .height = 4,
                                                         .crop = {0, 0, 6, 4}, .scale = {1, 1, 1},
                                                         .dev = {1, 1, 1})),
             CLB_OK);
    CHECK_EQ(clb_preprocess_create(&any, dev, clb_preprocess_params(.width = 8)), CLB_OK);
    CHECK_EQ(clb_preprocess_get_geometry(any, NULL, &g, sizeof g), CLB_ERR_INVAL);
    CHECK_EQ(clb_preprocess_get_geometry(NULL, &img, &g, sizeof g), CLB_ERR_INVAL);
    frame = make_frame(pool, px, clb_image_bytes(&img));
    short_frame = make_frame(pool, px, clb_image_bytes(&img) - 1);
    tensor = make_tensor(6 * 4 * 3);

    const int before = launches;
    CHECK_EQ(clb_preprocess_run(NULL, queue, frame, tensor, 0, &done), CLB_ERR_INVAL);
    CHECK_EQ(clb_preprocess_run(pp, NULL, frame, tensor, 0, &done), CLB_ERR_INVAL);
    CHECK_EQ(clb_preprocess_run(pp, queue, NULL, tensor, 0, &done), CLB_ERR_INVAL);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, NULL, 0, &done), CLB_ERR_INVAL);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, clb_cl_frame_mem(frame), 0, &done),
             CLB_ERR_INVAL);
    CHECK_EQ(clb_preprocess_run(pp, queue, short_frame, tensor, 0, &done), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, tensor, 1, &done), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, tensor, SIZE_MAX, &done), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_preprocess_run(any, queue, frame, tensor, 0, &done), CLB_ERR_INVAL);
    CHECK_EQ(clb_cl_frame_set_image(frame, &img), CLB_OK);
    CHECK_EQ(clb_preprocess_run(any, queue, frame, tensor, 0, &done), CLB_ERR_TOOBIG);
    CHECK_EQ(launches, before);
    CHECK_EQ(done == NULL, 1);

    /* The same objects, nothing wrong: exactly the whole tensor; and nobody wants the event. */
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, tensor, 0, NULL), CLB_OK);
    CHECK_EQ(launches, before + 1);
    clFinish(queue);
    clReleaseMemObject(tensor);
    clb_cl_frame_unref(&frame);
    clb_cl_frame_unref(&short_frame);
    clb_preprocess_destroy(&pp);
    clb_preprocess_destroy(&any);
    clb_preprocess_destroy(&any);
    clb_preprocess_destroy(NULL);
    free(px);
}

/* ---- order and threads ----------------------------------------------------------------------- */

/* A pool that fences nothing by itself: only the recorded use holds the buffer behind a kernel
 * that cannot start. */
static void use_is_recorded(void)
{
    const cl_context ctx = clb_cl_device_context(dev);
    clb_cl_pool *own = NULL;
    clb_cl_pool_stats stats;
    struct clb_image img;
    clb_preprocess *pp = NULL;
    cl_event done = NULL;
    cl_int rc;
    uint8_t *px;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 64, 48, 0, 0), CLB_OK);
    px = make_pixels(&img, 0);
    CHECK_EQ(clb_preprocess_create(&pp, dev, clb_preprocess_params(.src = &img)), CLB_OK);
    CHECK_EQ(clb_cl_pool_create(&own, dev,
                                clb_cl_pool_params(.buf_size = clb_image_bytes(&img), .count = 1,
                                                   .fence = CLB_CL_FENCE_EXPLICIT)),
             CLB_OK);
    cl_command_queue queue = clCreateCommandQueue(ctx, clb_cl_device_id(dev), 0, &rc);
    CHECK_EQ(rc, CL_SUCCESS);
    cl_event gate = clCreateUserEvent(ctx, &rc);
    CHECK_EQ(rc, CL_SUCCESS);
    CHECK_EQ(clEnqueueMarkerWithWaitList(queue, 1, &gate, NULL), CL_SUCCESS);

    clb_cl_frame *frame = make_frame(own, px, clb_image_bytes(&img));
    cl_mem tensor = make_tensor(64 * 48 * 3);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, tensor, 0, &done), CLB_OK);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clb_cl_device_drain(dev, SEC / 5), CLB_ERR_TIMEOUT);
    clb_cl_pool_get_stats(own, &stats, sizeof stats);
    CHECK_EQ(stats.retired, 1);
    CHECK_EQ(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    wait_done(done);
    CHECK_EQ(clb_cl_device_drain(dev, 20 * SEC), CLB_OK);
    clb_cl_pool_get_stats(own, &stats, sizeof stats);
    CHECK_EQ(stats.free, 1);
    CHECK_EQ(stats.renewed, 0);

    clReleaseEvent(gate);
    clReleaseMemObject(tensor);
    clReleaseCommandQueue(queue);
    clb_cl_pool_destroy(&own);
    clb_preprocess_destroy(&pp);
    free(px);
}

enum { THREADS = 4, RUNS = 40 };
static clb_preprocess *shared_pp;

static void *runner(void *arg)
{
    const unsigned n = (unsigned)(uintptr_t)arg;
    const struct pads pads = {n, 64 * n, 2 * n}; /* other arguments in each thread */
    struct clb_image img;
    uint8_t out[48 * 3 * 32 + GUARD_BYTES];
    cl_int rc;
    cl_command_queue queue =
        clCreateCommandQueue(clb_cl_device_context(dev), clb_cl_device_id(dev), 0, &rc);

    CHECK_EQ(rc, CL_SUCCESS);
    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 41 + n, 32, 0, 0), CLB_OK);
    add_pads(&img, pads);
    uint8_t *px = malloc(clb_image_bytes(&img));
    if (!px)
        fail(__LINE__, "out of memory");
    for (size_t i = 0; i < clb_image_bytes(&img); i++)
        px[i] = (uint8_t)(i * 13 + n * 50);
    for (int i = 0; i < RUNS; i++) {
        run_into(shared_pp, queue, &img, px, true, n, out, sizeof out);
        compare(&img, px, CLB_ORDER_RGB, out, n, sizeof out);
    }
    free(px);
    clReleaseCommandQueue(queue);
    return NULL;
}

static void threads_share_a_recipe(void)
{
    pthread_t thread[THREADS];

    CHECK_EQ(clb_preprocess_create(&shared_pp, dev, NULL), CLB_OK);
    dawdle = true;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, runner, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
    dawdle = false;
    clb_preprocess_destroy(&shared_pp);
}

/* The handles of device and pool go first: recipe and frame still work. */
static void outlives_the_device(void)
{
    uint8_t out[64 * 48 * 3 + GUARD_BYTES];
    const cl_context ctx = clb_cl_device_context(dev);
    struct clb_image img;
    clb_preprocess *pp = NULL;
    cl_event done = NULL;
    cl_int rc;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_BGR24, 64, 48, 0, 0), CLB_OK);
    uint8_t *px = make_pixels(&img, 0);
    clb_cl_frame *frame = make_frame(pool, px, clb_image_bytes(&img));
    cl_mem tensor = make_tensor(sizeof out);
    cl_command_queue queue = clCreateCommandQueue(ctx, clb_cl_device_id(dev), 0, &rc);
    CHECK_EQ(rc, CL_SUCCESS);
    CHECK_EQ(clb_preprocess_create(&pp, dev, clb_preprocess_params(.src = &img)), CLB_OK);
    memset(out, GUARD, sizeof out);
    CHECK_EQ(clEnqueueWriteBuffer(queue, tensor, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL),
             CL_SUCCESS);
    clb_cl_device_destroy(&dev);
    clb_cl_pool_destroy(&pool);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, tensor, 0, &done), CLB_OK);
    wait_done(done);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clEnqueueReadBuffer(queue, tensor, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL),
             CL_SUCCESS);
    compare(&img, px, CLB_ORDER_RGB, out, 0, sizeof out);
    clb_preprocess_destroy(&pp);
    clReleaseMemObject(tensor);
    clReleaseCommandQueue(queue);
    free(px);
}

int main(void)
{
    open_device();
    A_01_padded_nv12();
    A_11_colours();
    A_18_sizes();
    every_chroma();
    refused_recipes();
    refused_runs();
    if (!small_only) {
        use_is_recorded();
        threads_share_a_recipe();
    }
    outlives_the_device();
    printf("largest difference from the unrounded reference: %.4f\n", worst);
    return 0;
}
