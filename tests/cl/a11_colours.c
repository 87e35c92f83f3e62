/* SPDX-License-Identifier: Apache-2.0 */
/* matrix and range are what the image or the recipe says; both ends are clamped. */
#include <stdio.h>
#include <stdlib.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

static const struct {
    uint8_t yuv[3];
    enum clb_matrix matrix;
    enum clb_range range;
    int rgb[3];
} rows_of[] = {
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

/* Sample i of a plane of a constant picture. */
static double constant(const struct clb_image *img, unsigned plane, unsigned i, unsigned y,
                       void *priv)
{
    const uint8_t *yuv = priv;

    (void)y;
    switch (img->fmt) {
    case CLB_PIXFMT_NV12: return yuv[plane == 0 ? 0 : 1 + i % 2];
    case CLB_PIXFMT_NV21: return yuv[plane == 0 ? 0 : 2 - i % 2];
    case CLB_PIXFMT_I420: return yuv[plane];
    case CLB_PIXFMT_YV12: return yuv[(3 - plane) % 3];
    case CLB_PIXFMT_YUYV: return yuv[i % 2 == 0 ? 0 : i % 4 == 1 ? 1 : 2];
    default: return yuv[i % 2 == 1 ? 0 : i % 4 == 0 ? 1 : 2];
    }
}

/* by_recipe: the image says the opposite, and the recipe has the last word. */
static void one(enum clb_pixfmt fmt, size_t row, bool by_recipe)
{
    static const struct kit_pads none = {{0, 0, 0}, {0, 0, 0}};
    clb_preprocess_params p = {.struct_size = sizeof p};
    uint8_t yuv[3] = {rows_of[row].yuv[0], rows_of[row].yuv[1], rows_of[row].yuv[2]};
    struct clb_image img;

    kit_image(&img, fmt, 2, 2, none);
    img.matrix = rows_of[row].matrix;
    img.range = rows_of[row].range;
    if (by_recipe) {
        p.matrix = img.matrix ? img.matrix : CLB_MATRIX_601;
        p.range = img.range ? img.range : CLB_RANGE_LIMITED;
        img.matrix = p.matrix == CLB_MATRIX_601 ? CLB_MATRIX_709 : CLB_MATRIX_601;
        img.range = p.range == CLB_RANGE_FULL ? CLB_RANGE_LIMITED : CLB_RANGE_FULL;
    }
    p.src = &img;
    uint8_t *px = kit_picture(&img, 0, constant, yuv);
    clb_preprocess *pp = kit_create(&p);
    uint8_t *out = kit_run(pp, &p, &img, px, 0);
    for (int i = 0; i < 12; i++)
        if (abs(out[i] - rows_of[row].rgb[i % 3]) > 2)
            fail(__LINE__, "%s row %zu%s: pixel %d is (%d,%d,%d), not (%d,%d,%d)",
                 clb_pixfmt_name(fmt), row, by_recipe ? " by recipe" : "", i / 3, out[i / 3 * 3],
                 out[i / 3 * 3 + 1], out[i / 3 * 3 + 2], rows_of[row].rgb[0], rows_of[row].rgb[1],
                 rows_of[row].rgb[2]);
    kit_compare(&p, &img, px, out, "A-11");
    free(out);
    free(px);
    clb_preprocess_destroy(&pp);
}

int main(void)
{
    kit_open();
    for (int f = CLB_PIXFMT_UNKNOWN + 1; f < CLB_PIXFMT_COUNT; f++)
        for (size_t row = 0; row < sizeof rows_of / sizeof *rows_of; row++)
            if (ref_is_yuv((enum clb_pixfmt)f)) {
                one((enum clb_pixfmt)f, row, false);
                one((enum clb_pixfmt)f, row, true);
            }
    kit_close();
    return 0;
}
