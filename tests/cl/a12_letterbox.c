/* SPDX-License-Identifier: Apache-2.0 */
/* the padding of a letterbox that is reported is the one that is drawn. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

enum { PAD = 114 };

static double white(const struct clb_image *img, unsigned plane, unsigned i, unsigned y, void *priv)
{
    (void)i;
    (void)y;
    (void)priv;
    return img->fmt == CLB_PIXFMT_GRAY8 ? 255 : plane == 0 ? 235 : 128;
}

/* Inner width and height 0: whatever is reported. */
struct expected {
    unsigned inner_w, inner_h, left, right, top, bottom;
};

static void drawn(enum clb_pixfmt fmt, unsigned w, unsigned h, unsigned out_w, unsigned out_h,
                  enum clb_preprocess_filter filter, struct expected e)
{
    static const struct kit_pads none = {{0, 0, 0}, {0, 0, 0}};
    clb_preprocess_params p = {.struct_size = sizeof p,
                               .width = out_w,
                               .height = out_h,
                               .fit = CLB_FIT_LETTERBOX,
                               .filter = filter,
                               .pad = {PAD, PAD, PAD}};
    clb_preprocess_geometry g;
    struct clb_image img;
    unsigned first_x = out_w, last_x = 0, first_y = out_h, last_y = 0;

    kit_image(&img, fmt, w, h, none);
    p.src = &img;
    clb_preprocess *pp = kit_create(&p);
    CHECK_EQ(clb_preprocess_get_geometry(pp, NULL, &g, sizeof g), CLB_OK);
    if (e.inner_w) {
        CHECK_EQ(g.inner_width, e.inner_w);
        CHECK_EQ(g.inner_height, e.inner_h);
        CHECK_EQ(g.left, e.left);
        CHECK_EQ(g.right, e.right);
        CHECK_EQ(g.top, e.top);
        CHECK_EQ(g.bottom, e.bottom);
    }
    if (kit_small() && clb_image_bytes(&img) > pool_bytes) { /* what it reports must do */
        clb_preprocess_destroy(&pp);
        return;
    }
    uint8_t *px = kit_picture(&img, 0xAA, white, NULL);
    uint8_t *out = kit_run(pp, &p, &img, px, 0);
    for (unsigned y = 0; y < out_h; y++)
        for (unsigned x = 0; x < out_w; x++)
            for (unsigned c = 0; c < 3; c++) {
                const uint8_t v = out[((size_t)y * out_w + x) * 3 + c];

                if (v != PAD && v != 255)
                    fail(__LINE__, "%ux%u -> %ux%u: (%u,%u) is %d, neither picture nor padding", w,
                         h, out_w, out_h, x, y, v);
                if (v != 255)
                    continue;
                first_x = x < first_x ? x : first_x;
                last_x = x > last_x ? x : last_x;
                first_y = y < first_y ? y : first_y;
                last_y = y > last_y ? y : last_y;
            }
    if (first_x != g.left || last_x + 1 != out_w - g.right || first_y != g.top ||
        last_y + 1 != out_h - g.bottom)
        fail(__LINE__,
             "%ux%u -> %ux%u: columns %u..%u and rows %u..%u are white, reported are %u..%u and "
             "%u..%u",
             w, h, out_w, out_h, first_x, last_x, first_y, last_y, g.left,
             g.left + g.inner_width - 1, g.top, g.top + g.inner_height - 1);
    free(out);
    free(px);
    clb_preprocess_destroy(&pp);
}

/* What must hold for every size; and the formulas of preprocess.h. */
static void reported(clb_preprocess *pp, const clb_preprocess_params *p, unsigned w, unsigned h)
{
    clb_preprocess_geometry g, want;
    struct clb_image img;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_GRAY8, w, h, 0, 0), CLB_OK);
    CHECK_EQ(clb_preprocess_get_geometry(pp, &img, &g, sizeof g), CLB_OK);
    ref_geometry(p, &img, &want);
    if (g.left != want.left || g.top != want.top || g.right != want.right ||
        g.bottom != want.bottom || g.inner_width != want.inner_width ||
        g.inner_height != want.inner_height)
        fail(__LINE__, "%ux%u -> %ux%u: %u %u %u %u, not %u %u %u %u", w, h, p->width, p->height,
             g.left, g.top, g.right, g.bottom, want.left, want.top, want.right, want.bottom);
    CHECK_EQ(g.left + g.inner_width + g.right, p->width);
    CHECK_EQ(g.top + g.inner_height + g.bottom, p->height);
    CHECK_EQ(g.right - g.left <= 1 && g.bottom - g.top <= 1, 1);
    CHECK_EQ(g.inner_width == p->width || g.inner_height == p->height, 1);
    /* The inner corners are the source's. */
    if (fabs(g.inner_width / g.scale_x - w) > 0.01 || fabs(g.inner_height / g.scale_y - h) > 0.01)
        fail(__LINE__, "%ux%u -> %ux%u: the corner maps back to %g, %g", w, h, p->width, p->height,
             g.inner_width / g.scale_x, g.inner_height / g.scale_y);
}

static void sweep(void)
{
    static const unsigned outputs[][2] = {{640, 640}, {320, 320}, {1280, 1280}, {224, 224},
                                          {640, 384}, {33, 77},   {1, 1}};

    for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++) {
        clb_preprocess_params p = {.struct_size = sizeof p,
                                   .width = outputs[o][0],
                                   .height = outputs[o][1],
                                   .fit = CLB_FIT_LETTERBOX};
        clb_preprocess *pp = kit_create(&p);

        for (unsigned i = 0; i < 200; i++)
            reported(pp, &p, 1 + i * 37 % 4001, 1 + i * i * 11 % 3001);
        reported(pp, &p, 4000, 1);
        reported(pp, &p, 1, 4000);
        clb_preprocess_destroy(&pp);
    }
}

int main(void)
{
    kit_open();
    drawn(CLB_PIXFMT_NV12, 3775, 1571, 1280, 1280, CLB_FILTER_BILINEAR,
          (struct expected){1280, 533, 0, 0, 373, 374});
    drawn(CLB_PIXFMT_NV12, 1600, 2128, 320, 320, CLB_FILTER_AREA,
          (struct expected){241, 320, 39, 40, 0, 0});
    drawn(CLB_PIXFMT_NV12, 641, 480, 640, 640, CLB_FILTER_BILINEAR,
          (struct expected){640, 479, 0, 0, 80, 81});
    for (unsigned i = 0; i < 60; i++)
        drawn(CLB_PIXFMT_GRAY8, 1 + i * 7 % 61, 1 + i * i % 47, 20 + i % 9, 20 + i % 14,
              (enum clb_preprocess_filter)(i % 3), (struct expected){0, 0, 0, 0, 0, 0});
    sweep();
    kit_close();
    return 0;
}
