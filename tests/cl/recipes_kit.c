/* SPDX-License-Identifier: Apache-2.0 */
/* See recipes_kit.h. */
#include "recipes_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preprocess_kit.h"

/* ---- pictures -------------------------------------------------------------------------------- */

static void *need(void *p)
{
    if (!p)
        fail(__LINE__, "out of memory");
    return p;
}

/* Bytes of one sample. */
static unsigned sample_bytes(enum clb_pixfmt fmt)
{
    switch (fmt) {
    case CLB_PIXFMT_GRAY16:
    case CLB_PIXFMT_RAW10:
    case CLB_PIXFMT_RAW12:
    case CLB_PIXFMT_RAW16: return 2;
    case CLB_PIXFMT_RGBPF32: return 4;
    default: return 1;
    }
}

void kit_image(struct clb_image *img, enum clb_pixfmt fmt, unsigned w, unsigned h,
               struct kit_pads pads)
{
    const unsigned unit = sample_bytes(fmt);
    size_t at = 0;

    CHECK_EQ(clb_image_init(img, fmt, w, h, 0, 0), CLB_OK);
    for (unsigned i = 0; i < img->num_planes; i++) {
        img->plane[i].pitch = (ref_row_bytes(img, i) + pads.pitch[i] + unit - 1) / unit * unit;
        img->plane[i].offset = (at + pads.gap[i] + unit - 1) / unit * unit;
        at = img->plane[i].offset + img->plane[i].pitch * ref_rows(img, i);
    }
    if (ref_is_raw(fmt))
        img->bayer = CLB_BAYER_RGGB;
    CHECK_EQ(clb_image_check(img, clb_image_bytes(img)), CLB_OK);
}

static void put10(uint8_t *row, unsigned index, unsigned v)
{
    uint8_t *group = row + index / 4 * 5;
    const unsigned shift = 2 * (index % 4);

    group[index % 4] = (uint8_t)(v >> 2);
    group[4] = (uint8_t)((group[4] & ~(3u << shift)) | (v & 3) << shift);
}

uint8_t *kit_picture(const struct clb_image *img, uint8_t padding, kit_sample *fn, void *priv)
{
    const size_t bytes = clb_image_bytes(img);
    uint8_t *px = need(malloc(bytes));

    memset(px, padding, bytes);
    for (unsigned p = 0; p < img->num_planes; p++)
        for (unsigned y = 0; y < ref_rows(img, p); y++) {
            uint8_t *row = px + img->plane[p].offset + img->plane[p].pitch * y;
            const unsigned unit = sample_bytes(img->fmt);
            /* The packed rows: bits of pixels that do not exist stay padding. */
            const size_t n =
                img->fmt == CLB_PIXFMT_RAW10P ? img->width : ref_row_bytes(img, p) / unit;

            for (unsigned i = 0; i < n; i++) {
                const double v = fn(img, p, i, y, priv);

                if (img->fmt == CLB_PIXFMT_RGBPF32) {
                    const float f = (float)v;
                    memcpy(row + 4 * (size_t)i, &f, sizeof f);
                } else if (img->fmt == CLB_PIXFMT_RAW10P) {
                    put10(row, i, (unsigned)v);
                } else if (unit == 2) {
                    row[2 * i] = (uint8_t)(unsigned)v;
                    row[2 * i + 1] = (uint8_t)((unsigned)v >> 8);
                } else {
                    row[i] = (uint8_t)v;
                }
            }
        }
    return px;
}

static double noise_sample(const struct clb_image *img, unsigned plane, unsigned index, unsigned y,
                           void *priv)
{
    uint32_t *state = priv;
    uint32_t bits;

    *state = *state * 1664525u + 1013904223u;
    bits = *state >> 8;
    /* Samples of YUYV and the like that belong to no pixel must not show: they are padding. */
    if ((img->fmt == CLB_PIXFMT_YUYV || img->fmt == CLB_PIXFMT_UYVY) && img->width % 2 == 1 &&
        index / 4 == img->width / 2 && index % 4 == (img->fmt == CLB_PIXFMT_YUYV ? 2u : 3u))
        return img->reserved[0];
    (void)plane;
    (void)y;
    if (img->fmt == CLB_PIXFMT_RGBPF32)
        return bits % 65536 / 65535.0 * 300 - 20;
    if (ref_is_raw(img->fmt))
        return bits & ((1u << ref_raw_bits(img->fmt)) - 1);
    return bits & (img->fmt == CLB_PIXFMT_GRAY16 ? 0xFFFFu : 0xFFu);
}

uint8_t *kit_noise(const struct clb_image *img, uint8_t padding, uint32_t seed)
{
    struct clb_image marked = *img;

    marked.reserved[0] = padding;
    return kit_picture(&marked, padding, noise_sample, &seed);
}

/* ---- runs ------------------------------------------------------------------------------------ */

enum { MAX_W = 1920, MAX_H = 1080 };

void kit_open(void)
{
    struct clb_status st = {0};

    open_device();
    clb_cl_pool_destroy(&pool);
    pool_bytes = small_only ? (size_t)64 * 1024 : (size_t)(MAX_W + 64) * (MAX_H + 8) * 12;
    if (clb_cl_pool_create(&pool, dev,
                           clb_cl_pool_params(.buf_size = pool_bytes, .count = 2, .align = 16,
                                              .status = &st)) != CLB_OK)
        fail(__LINE__, "no pool: %s", st.text);
}

void kit_close(void)
{
    clb_cl_pool_destroy(&pool);
    clb_cl_device_destroy(&dev);
}

bool kit_small(void)
{
    return small_only;
}

clb_preprocess *kit_create(const clb_preprocess_params *p)
{
    clb_preprocess *pp = NULL;
    const int rc = clb_preprocess_create(&pp, dev, p);

    if (rc != CLB_OK) {
        char text[512] = "any source";

        if (p->src)
            kit_describe(p, p->src, text, sizeof text);
        fail(__LINE__, "create is %d (%s): %s", rc, last_line, text);
    }
    return pp;
}

uint8_t *kit_run(clb_preprocess *pp, const clb_preprocess_params *p, const struct clb_image *img,
                 const uint8_t *px, size_t offset)
{
    clb_preprocess_geometry g;

    ref_geometry(p, img, &g);
    if (clb_image_bytes(img) > pool_bytes)
        fail(__LINE__, "the test's pool is too small");
    const size_t all = offset + g.bytes + GUARD_BYTES;
    uint8_t *out = need(malloc(all));
    run_into(pp, clb_cl_device_queue(dev), img, px, !p->src, offset, out, all);
    for (size_t i = 0; i < all; i++)
        if ((i < offset || i >= offset + g.bytes) && out[i] != GUARD) {
            char text[512];

            kit_describe(p, img, text, sizeof text);
            fail(__LINE__, "byte %zu of the tensor was written, the result is %zu..%zu: %s", i,
                 offset, offset + g.bytes, text);
        }
    memmove(out, out + offset, g.bytes);
    return out;
}

/* ---- comparing ------------------------------------------------------------------------------- */

double kit_element(enum clb_preprocess_type type, const uint8_t *out, size_t i)
{
    if (type == CLB_TYPE_U8)
        return out[i];
    if (type == CLB_TYPE_F16) {
        uint16_t bits;
        memcpy(&bits, out + 2 * i, sizeof bits);
        return ref_from_half(bits);
    }
    float f;
    memcpy(&f, out + 4 * i, sizeof f);
    return (double)f;
}

static double largest[CLB_PIXFMT_COUNT][3];

static double allowed(const clb_preprocess_params *p, unsigned c, double weight, double want)
{
    const double scale = fabs(p->scale[c] != 0 ? (double)p->scale[c] : 1) /
                         fabs(p->dev[c] != 0 ? (double)p->dev[c] : 1);
    /* Depth has no scale on which something became 1: what f32 arithmetic of its range loses. */
    const double f32 = p->depth ? 65535 * scale * 1e-6 / (weight > 1e-6 ? fmin(weight, 1) : 1e-6)
                                : 1e-4 * 255 * scale;

    /* 1 is promised. What is rounded to nearest is nearer, and what is cut is not. */
    if (p->type == CLB_TYPE_U8)
        return 0.75;
    return p->type == CLB_TYPE_F32 ? f32 : ref_half_ulp(want) / 2 + f32;
}

/* As a test reports it: see kit_print_errors(). */
static double error_of(const clb_preprocess_params *p, unsigned c, double got, double want)
{
    const double scale = fabs(p->scale[c] != 0 ? (double)p->scale[c] : 1) /
                         fabs(p->dev[c] != 0 ? (double)p->dev[c] : 1);

    if (p->type == CLB_TYPE_U8)
        return fabs(got - want);
    if (p->type == CLB_TYPE_F16)
        return fmax(0, fabs(got - want) - ref_half_ulp(want) / 2) / scale / 255;
    return fabs(got - want) / scale / 255;
}

static bool near_enough(const clb_preprocess_params *p, const struct ref_result *r, size_t i,
                        unsigned c, double got)
{
    const double want = r->value[i];

    if (isnan(want))
        return isnan(got) || p->type == CLB_TYPE_U8;
    /* A weight that is 0 up to rounding: there is a value, or there is none. */
    if (p->depth && r->weight[i] < 1e-6 && got == (double)p->depth_invalid)
        return true;
    return got == want || fabs(got - want) <= allowed(p, c, p->depth ? r->weight[i] : 1, want);
}

/* Some positions lie on the border between two pixels; rounding decides there. */
static bool on_a_border(const clb_preprocess_params *p, const struct clb_image *img,
                        const uint8_t *px, size_t i, unsigned c, double got)
{
    static struct ref_result nudged[4];
    static const clb_preprocess_params *of;
    bool ok = false;

    if (!p) { /* forget */
        for (int k = 0; k < 4; k++)
            ref_free(&nudged[k]);
        of = NULL;
        return false;
    }
    for (int k = 0; k < 4 && p->filter == CLB_FILTER_NEAREST && !ok; k++) {
        if (of != p && !ref_run(p, img, px, k & 1 ? 1e-9 : -1e-9, k & 2 ? 1e-9 : -1e-9, &nudged[k]))
            fail(__LINE__, "out of memory");
        ok = near_enough(p, &nudged[k], i, c, got);
        if (k == 3)
            of = p;
    }
    return ok;
}

void kit_compare(const clb_preprocess_params *p, const struct clb_image *img, const uint8_t *px,
                 const uint8_t *out, const char *what)
{
    struct ref_result r;

    if (!ref_run(p, img, px, 0, 0, &r))
        fail(__LINE__, "out of memory");
    for (size_t i = 0; i < r.count; i++) {
        const unsigned c = p->layout == CLB_LAYOUT_NHWC
                               ? (unsigned)(i % r.g.channels)
                               : (unsigned)(i / ((size_t)r.g.width * r.g.height));
        const double got = kit_element(p->type, out, i);

        if (!near_enough(p, &r, i, c, got)) {
            const size_t pixel = p->layout == CLB_LAYOUT_NHWC
                                     ? i / r.g.channels
                                     : i % ((size_t)r.g.width * r.g.height);
            char text[512];

            if (on_a_border(p, img, px, i, c, got))
                continue;
            kit_describe(p, img, text, sizeof text);
            fail(__LINE__, "%s: %s: output %ux%u (%zu,%zu) channel %u is %.9g, not %.9g", what,
                 text, r.g.width, r.g.height, pixel % r.g.width, pixel / r.g.width, c, got,
                 r.value[i]);
        }
        if (!p->depth && !isnan(r.value[i])) {
            const double e = error_of(p, c, got, r.value[i]);
            if (e > largest[img->fmt][p->type])
                largest[img->fmt][p->type] = e;
        }
    }
    on_a_border(NULL, NULL, NULL, 0, 0, 0);
    ref_free(&r);
}

static void same_geometry(clb_preprocess *pp, const clb_preprocess_params *p,
                          const struct clb_image *img, const char *what)
{
    clb_preprocess_geometry got, want;
    char text[512];

    memset(&got, 0, sizeof got);
    ref_geometry(p, img, &want);
    CHECK_EQ(clb_preprocess_get_geometry(pp, p->src ? NULL : img, &got, sizeof got), CLB_OK);
    kit_describe(p, img, text, sizeof text);
    if (got.width != want.width || got.height != want.height || got.channels != want.channels ||
        got.bytes != want.bytes || got.left != want.left || got.top != want.top ||
        got.right != want.right || got.bottom != want.bottom ||
        got.inner_width != want.inner_width || got.inner_height != want.inner_height)
        fail(__LINE__,
             "%s: %s: geometry %ux%u, %u channels, %zu bytes, inner %ux%u, pads %u %u %u %u, not "
             "%ux%u, %u, %zu, %ux%u, %u %u %u %u",
             what, text, got.width, got.height, got.channels, got.bytes, got.inner_width,
             got.inner_height, got.left, got.top, got.right, got.bottom, want.width, want.height,
             want.channels, want.bytes, want.inner_width, want.inner_height, want.left, want.top,
             want.right, want.bottom);
    const double pair[][2] = {{got.scale_x, want.scale_x},   {got.scale_y, want.scale_y},
                              {got.source.x, want.source.x}, {got.source.y, want.source.y},
                              {got.source.w, want.source.w}, {got.source.h, want.source.h}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        if (!(fabs(pair[i][0] - pair[i][1]) <= 1e-9 * (1 + fabs(pair[i][1]))))
            fail(__LINE__, "%s: %s: scale_x, scale_y, source[%zu] is %.12g, not %.12g", what, text,
                 i, pair[i][0], pair[i][1]);
}

void kit_check(const clb_preprocess_params *params, const struct clb_image *img, size_t offset,
               bool image_by_frame, uint32_t seed, const char *what)
{
    clb_preprocess_params p = *params;
    uint8_t *out[2];
    clb_preprocess_geometry g;

    p.src = image_by_frame ? NULL : img;
    ref_geometry(&p, img, &g);
    clb_preprocess *pp = kit_create(&p);
    same_geometry(pp, &p, img, what);
    for (int i = 0; i < 2; i++) {
        uint8_t *px = kit_noise(img, i ? 0x55 : 0xAA, seed);

        out[i] = kit_run(pp, &p, img, px, offset);
        if (i == 0)
            kit_compare(&p, img, px, out[0], what);
        free(px);
    }
    if (memcmp(out[0], out[1], g.bytes) != 0) {
        char text[512];

        kit_describe(&p, img, text, sizeof text);
        fail(__LINE__, "%s: %s: the padding shows in the result", what, text);
    }
    free(out[0]);
    free(out[1]);
    clb_preprocess_destroy(&pp);
}

void kit_print_errors(void)
{
    printf(
        "largest errors; f32 where 255 is 1, f16 likewise beyond half a unit in its last place\n");
    for (int f = CLB_PIXFMT_UNKNOWN + 1; f < CLB_PIXFMT_COUNT; f++)
        printf("  %-8s u8 %.3f  f32 %.1e  f16 %.1e\n", clb_pixfmt_name((enum clb_pixfmt)f),
               largest[f][CLB_TYPE_U8], largest[f][CLB_TYPE_F32], largest[f][CLB_TYPE_F16]);
}

void kit_describe(const clb_preprocess_params *p, const struct clb_image *img, char *text,
                  size_t size)
{
    static const char *const order[] = {"RGB", "BGR", "GRAY"};
    static const char *const type[] = {"u8", "f16", "f32"};
    static const char *const filter[] = {"bilinear", "nearest", "area"};
    static const char *const fit[] = {"stretch", "letterbox", "cover"};

    snprintf(text, size,
             "%s %ux%u bayer %d pitch %zu offset %zu -> %ux%u %s %s %s %s %s, crop %g,%g %gx%g, "
             "rotate %d, flip %d, matrix %d/%d, range %d/%d, scale %g, mean %g, dev %g, depth %d%s",
             clb_pixfmt_name(img->fmt), img->width, img->height, img->bayer, img->plane[0].pitch,
             img->plane[0].offset, p->width, p->height, fit[p->fit], filter[p->filter],
             order[p->order], p->layout == CLB_LAYOUT_NCHW ? "NCHW" : "NHWC", type[p->type],
             p->crop.x, p->crop.y, p->crop.w, p->crop.h, (int)p->rotate, (int)p->flip,
             (int)p->matrix, (int)img->matrix, (int)p->range, (int)img->range, (double)p->scale[0],
             (double)p->mean[0], (double)p->dev[0], p->depth, p->src ? "" : ", by frame");
}
