/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for every recipe, whatever the reference says: constant pictures stay constant, ramps
 * monotone, 16 bits do not wrap, a batch is its single runs. And depth against the reference.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

static const struct kit_pads none = {{0, 0, 0}, {0, 0, 0}}, some = {{4, 12, 8}, {32, 4, 20}};

/* The largest sample of a format. */
static double top_of(const struct clb_image *img)
{
    if (ref_is_raw(img->fmt))
        return ldexp(1, (int)ref_raw_bits(img->fmt)) - 1;
    return img->fmt == CLB_PIXFMT_GRAY16 ? 65535 : 255;
}

static bool is_luma(const struct clb_image *img, unsigned plane, unsigned i)
{
    if (img->fmt == CLB_PIXFMT_YUYV)
        return i % 2 == 0;
    if (img->fmt == CLB_PIXFMT_UYVY)
        return i % 2 == 1;
    return !ref_is_yuv(img->fmt) || plane == 0;
}

/* ---- constant -------------------------------------------------------------------------------- */

/* YUV, RGB and mosaics get a colour, the same for all pixels; grey formats a value. */
static double constant(const struct clb_image *img, unsigned plane, unsigned i, unsigned y,
                       void *priv)
{
    (void)y;
    (void)priv;
    switch (img->fmt) {
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24: return 40 + 70 * (i % 3);
    case CLB_PIXFMT_RGBA:
    case CLB_PIXFMT_BGRA: return 40 + 70 * (i % 4);
    case CLB_PIXFMT_RGBP:
    case CLB_PIXFMT_BGRP:
    case CLB_PIXFMT_RGBPF32: return 40 + 70.2 * plane; /* no halves, which rounding decides */
    case CLB_PIXFMT_YUYV: return i % 2 == 0 ? 130 : 90 + 40 * (i % 4 / 2);
    case CLB_PIXFMT_UYVY: return i % 2 == 1 ? 130 : 90 + 40 * (i % 4 / 2);
    case CLB_PIXFMT_NV12:
    case CLB_PIXFMT_NV21: return plane == 0 ? 130 : 90 + 40 * (i % 2);
    case CLB_PIXFMT_I420:
    case CLB_PIXFMT_YV12: return plane == 0 ? 130 : 50 + 40 * plane;
    default: return floor(top_of(img) * 0.7);
    }
}

static void constant_stays(enum clb_pixfmt fmt, int filter, int fit)
{
    clb_preprocess_params p = {.struct_size = sizeof p,
                               .filter = (enum clb_preprocess_filter)filter,
                               .fit = (enum clb_preprocess_fit)fit,
                               .width = 31,
                               .height = 26,
                               .crop = {1.25, 2.5, 30.5, 17.25}};
    clb_preprocess_geometry g;
    struct clb_image img;

    kit_image(&img, fmt, 37, 22, some);
    p.src = &img;
    uint8_t *px = kit_picture(&img, 0xAA, constant, NULL);
    clb_preprocess *pp = kit_create(&p);
    CHECK_EQ(clb_preprocess_get_geometry(pp, NULL, &g, sizeof g), CLB_OK);
    uint8_t *out = kit_run(pp, &p, &img, px, 0);
    const uint8_t *first = out + ((size_t)g.top * g.width + g.left) * 3;
    for (unsigned y = g.top; y < g.top + g.inner_height; y++)
        for (unsigned x = g.left; x < g.left + g.inner_width; x++)
            if (memcmp(out + ((size_t)y * g.width + x) * 3, first, 3) != 0)
                fail(__LINE__, "%s, filter %d, fit %d: (%u,%u) of a constant picture differs",
                     clb_pixfmt_name(fmt), filter, fit, x, y);
    kit_compare(&p, &img, px, out, "constant");
    free(out);
    free(px);
    clb_preprocess_destroy(&pp);
}

/* ---- ramps ----------------------------------------------------------------------------------- */

enum { RAMP = 31 }; /* as wide as the constant pictures: the same kernels */

/* From the smallest to the largest sample, left to right; no colour. */
static double ramp(const struct clb_image *img, unsigned plane, unsigned i, unsigned y, void *priv)
{
    const unsigned per = (unsigned)(ref_row_bytes(img, plane) / img->width);
    unsigned x = i;

    (void)y;
    (void)priv;
    if (!is_luma(img, plane, i))
        return 128;
    if (img->fmt == CLB_PIXFMT_YUYV || img->fmt == CLB_PIXFMT_UYVY)
        x = i / 2;
    else if (per >= 3 && img->fmt != CLB_PIXFMT_RGBPF32)
        x = i / per;
    return floor(top_of(img) * x / (img->width - 1));
}

static void ramp_stays(enum clb_pixfmt fmt, int filter, int rotate, int flip)
{
    const bool turned = rotate == CLB_ROTATE_90 || rotate == CLB_ROTATE_270;
    const bool back = (rotate == CLB_ROTATE_180 || rotate == CLB_ROTATE_270) !=
                      (flip == (turned ? CLB_FLIP_VERTICAL : CLB_FLIP_HORIZONTAL));
    clb_preprocess_params p = {.struct_size = sizeof p,
                               .filter = (enum clb_preprocess_filter)filter,
                               .rotate = (enum clb_preprocess_rotate)rotate,
                               .flip = (enum clb_preprocess_flip)flip,
                               .width = RAMP,
                               .height = RAMP};
    struct clb_image img;

    kit_image(&img, fmt, 100, 10, none);
    p.src = &img;
    uint8_t *px = kit_picture(&img, 0xAA, ramp, NULL);
    clb_preprocess *pp = kit_create(&p);
    uint8_t *out = kit_run(pp, &p, &img, px, 0);
    const size_t step = turned ? RAMP * 3 : 3;
    for (size_t i = 0; i < RAMP; i++)
        for (size_t c = 0; c < 3; c++) {
            const int a = out[(back ? RAMP - 1 - i : i) * step + c];
            const int b = i == RAMP - 1 ? 255 : out[(back ? RAMP - 2 - i : i + 1) * step + c];

            if (b < a)
                fail(__LINE__, "%s, filter %d, rotate %d, flip %d: the ramp falls from %d to %d",
                     clb_pixfmt_name(fmt), filter, rotate, flip, a, b);
        }
    CHECK_EQ(out[(back ? RAMP - 1 : 0) * step] <= 4, 1);
    CHECK_EQ(out[(back ? 0 : RAMP - 1) * step] >= 251, 1);
    free(out);
    free(px);
    clb_preprocess_destroy(&pp);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void batch_is_single_runs(enum clb_pixfmt fmt, enum clb_preprocess_layout layout,
                                 enum clb_preprocess_type type, size_t extra)
{
    enum { N = 3, BEFORE = 64 };
    clb_preprocess_params p = {.struct_size = sizeof p,
                               .width = 21,
                               .height = 17,
                               .fit = CLB_FIT_LETTERBOX,
                               .layout = layout,
                               .type = type,
                               .pad = {1, 2, 3},
                               .batch = 5};
    clb_cl_pool *own = NULL;
    clb_cl_frame *frame[N];
    clb_preprocess_geometry g;
    struct clb_image img;
    uint8_t *px[N];
    cl_event done = NULL;

    kit_image(&img, fmt, 33, 20, some);
    p.src = &img;
    clb_preprocess *pp = kit_create(&p);
    CHECK_EQ(clb_preprocess_get_geometry(pp, NULL, &g, sizeof g), CLB_OK);
    const size_t stride = extra ? g.bytes + extra : 0, each = g.bytes + extra;
    const size_t all = BEFORE + N * each + GUARD_BYTES;
    CHECK_EQ(clb_cl_pool_create(
                 &own, dev,
                 clb_cl_pool_params(.buf_size = clb_image_bytes(&img), .count = N, .align = 16)),
             CLB_OK);
    for (unsigned i = 0; i < N; i++) {
        px[i] = kit_noise(&img, 0xAA, i + 1);
        frame[i] = make_frame(own, px[i], clb_image_bytes(&img));
    }
    uint8_t *out = malloc(all);
    if (!out)
        fail(__LINE__, "out of memory");
    memset(out, GUARD, all);
    cl_mem tensor = make_tensor(all);
    const cl_command_queue queue = clb_cl_device_queue(dev);
    CHECK_EQ(clEnqueueWriteBuffer(queue, tensor, CL_TRUE, 0, all, out, 0, NULL, NULL), CL_SUCCESS);
    const int before = launches;
    CHECK_EQ(clb_preprocess_run_batch(pp, queue, frame, N, tensor, BEFORE, stride, &done), CLB_OK);
    CHECK_EQ(launches, before + 1);
    wait_done(done);
    CHECK_EQ(clEnqueueReadBuffer(queue, tensor, CL_TRUE, 0, all, out, 0, NULL, NULL), CL_SUCCESS);
    clReleaseMemObject(tensor);
    for (unsigned i = 0; i < N; i++) {
        uint8_t *one = kit_run(pp, &p, &img, px[i], 0);

        if (memcmp(out + BEFORE + i * each, one, g.bytes) != 0)
            fail(__LINE__, "%s: result %u of the batch is not that of a single run",
                 clb_pixfmt_name(fmt), i);
        for (size_t k = g.bytes; k < each; k++)
            CHECK_EQ(out[BEFORE + i * each + k], GUARD);
        free(one);
        free(px[i]);
        clb_cl_frame_unref(&frame[i]);
    }
    for (size_t k = 0; k < all; k++)
        if ((k < BEFORE || k >= BEFORE + N * each) && out[k] != GUARD)
            fail(__LINE__, "the batch wrote byte %zu", k);
    free(out);
    clb_cl_pool_destroy(&own);
    clb_preprocess_destroy(&pp);
}

/* ---- numbers that are none ------------------------------------------------------------------- */

static double not_finite(const struct clb_image *img, unsigned plane, unsigned i, unsigned y,
                         void *priv)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e30, -1e30, 1e-40, 100};

    (void)img;
    (void)priv;
    return odd[(plane + i + 3 * y) % 7];
}

static void not_finite_survives(int type)
{
    clb_preprocess_params p = {.struct_size = sizeof p, .type = (enum clb_preprocess_type)type};
    struct clb_image img;

    kit_image(&img, CLB_PIXFMT_RGBPF32, 29, 13, some);
    p.src = &img;
    uint8_t *px = kit_picture(&img, 0, not_finite, NULL);
    for (int filter = CLB_FILTER_BILINEAR; filter <= CLB_FILTER_AREA; filter++) {
        p.filter = (enum clb_preprocess_filter)filter;
        p.width = filter == CLB_FILTER_NEAREST ? 0 : 17;
        clb_preprocess *pp = kit_create(&p);
        uint8_t *out = kit_run(pp, &p, &img, px, 0);

        if (filter == CLB_FILTER_NEAREST) /* the value of one pixel */
            kit_compare(&p, &img, px, out, "not finite");
        free(out);
        clb_preprocess_destroy(&pp);
    }
    free(px);
}

/* ---- depth ----------------------------------------------------------------------------------- */

/* Millimetres with holes, the largest value among them. */
static double holes(const struct clb_image *img, unsigned plane, unsigned i, unsigned y, void *priv)
{
    const unsigned nothing = *(const unsigned *)priv;

    (void)img;
    (void)plane;
    if ((i / 3 + y / 2) % 3 == 0 || (i + 7 * y) % 11 == 0)
        return nothing;
    return (i * y) % 13 == 0 ? 65535 : 400 + (i * 31 + y * 57) % 9000;
}

static void depth(unsigned nothing, int filter, int type, int fit)
{
    static const unsigned outputs[][2] = {{0, 0}, {11, 9}, {60, 50}, {20, 15}};

    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        clb_preprocess_params p = {.struct_size = sizeof p,
                                   .depth = 1,
                                   .depth_none = nothing,
                                   .depth_invalid = -1,
                                   .order = CLB_ORDER_GRAY,
                                   .filter = (enum clb_preprocess_filter)filter,
                                   .type = (enum clb_preprocess_type)type,
                                   .fit = (enum clb_preprocess_fit)fit,
                                   .width = outputs[i][0],
                                   .height = outputs[i][1],
                                   .rotate = (enum clb_preprocess_rotate)(i % 4),
                                   .scale = {0.001f},
                                   .mean = {i == 1 ? 0.5f : 0},
                                   .dev = {i == 1 ? 2 : 0},
                                   .pad = {1234}};
        struct clb_image img;

        kit_image(&img, CLB_PIXFMT_GRAY16, 40, 30, some);
        p.src = &img;
        uint8_t *px = kit_picture(&img, 0xAA, holes, &nothing);
        clb_preprocess *pp = kit_create(&p);
        uint8_t *out = kit_run(pp, &p, &img, px, 4);
        kit_compare(&p, &img, px, out, "depth");
        free(out);
        free(px);
        clb_preprocess_destroy(&pp);
    }
}

int main(void)
{
    kit_open();
    const bool small = kit_small();
    /* A kernel takes a runtime some 0.2 s to compile: not all combinations. The filter NEAREST is one
     * pixel, whose properties are those of the format. */
    for (int f = CLB_PIXFMT_UNKNOWN + 1; f < CLB_PIXFMT_COUNT; f++)
        for (int filter = CLB_FILTER_BILINEAR; filter <= CLB_FILTER_AREA; filter += 2) {
            const enum clb_pixfmt fmt = (enum clb_pixfmt)f;

            constant_stays(fmt, filter, CLB_FIT_STRETCH);
            constant_stays(fmt, filter, CLB_FIT_COVER);
            if (small)
                continue;
            if (filter == f % 2 * 2)
                constant_stays(fmt, filter, CLB_FIT_LETTERBOX);
            for (int rotate = CLB_ROTATE_0; rotate <= CLB_ROTATE_270; rotate++)
                if (rotate % 2 == 0 || filter != f % 2 * 2)
                    ramp_stays(fmt, filter, rotate, (rotate + filter) % 3);
        }
    batch_is_single_runs(CLB_PIXFMT_NV12, CLB_LAYOUT_NHWC, CLB_TYPE_U8, 0);
    batch_is_single_runs(CLB_PIXFMT_BGR24, CLB_LAYOUT_NCHW, CLB_TYPE_F32, 52);
    batch_is_single_runs(CLB_PIXFMT_RAW12, CLB_LAYOUT_NCHW, CLB_TYPE_F16, 6);
    batch_is_single_runs(CLB_PIXFMT_YUYV, CLB_LAYOUT_NHWC, CLB_TYPE_U8, 1);
    for (int type = CLB_TYPE_U8; type <= CLB_TYPE_F32; type++)
        not_finite_survives(type);
    for (int filter = CLB_FILTER_BILINEAR; filter <= CLB_FILTER_AREA; filter++)
        for (int fit = CLB_FIT_STRETCH; fit <= CLB_FIT_COVER; fit++) {
            depth(0, filter, CLB_TYPE_F32, fit);
            depth(65535, filter, CLB_TYPE_F16, fit);
        }
    kit_close();
    return 0;
}
