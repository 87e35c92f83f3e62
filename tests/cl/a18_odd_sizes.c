/* SPDX-License-Identifier: Apache-2.0 */
/* odd sizes have chroma samples of their own in the last column and row, and nothing outside
 * of picture and result is touched. */
#include <stdio.h>
#include <stdlib.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

/* The layout that the report names. Luma is grey; each chroma cell has a colour of its own. */
static double cells(const struct clb_image *img, unsigned plane, unsigned i, unsigned y, void *priv)
{
    (void)img;
    (void)priv;
    return plane == 0 ? 126 : i % 2 == 0 ? 40 + 60 * (i / 2) : 60 + 100 * y;
}

static void third_pair_second_row(void)
{
    clb_preprocess_params p = {.struct_size = sizeof p};
    struct clb_image img;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 5, 3, 0, 0), CLB_OK);
    img.plane[0].pitch = img.plane[1].pitch = 8;
    img.plane[1].offset = 24;
    p.src = &img;
    uint8_t *px = kit_picture(&img, 0xAA, cells, NULL);
    clb_preprocess *pp = kit_create(&p);
    uint8_t *out = kit_run(pp, &p, &img, px, 5);
    kit_compare(&p, &img, px, out, "A-18");
    /* Row 2 has the V of the second chroma row (160: red), the rows above that of the first (60). */
    for (int x = 0; x < 5; x++)
        CHECK_EQ(out[(2 * 5 + x) * 3] > 170 && out[x * 3] < 30 && out[(5 + x) * 3] < 30, 1);
    /* Column 4 has the U of the third pair (160: blue). */
    for (int y = 0; y < 3; y++)
        CHECK_EQ(out[(y * 5 + 4) * 3 + 2] > 185 && out[(y * 5 + 3) * 3 + 2] < 90, 1);
    free(out);
    free(px);
    clb_preprocess_destroy(&pp);
}

int main(void)
{
    static const unsigned sizes[][2] = {{5, 3}, {1, 1}, {4, 3}, {5, 4}, {3, 5}, {1, 7}, {7, 1}};
    static const struct kit_pads pads[] = {{{0, 0, 0}, {0, 0, 0}}, {{3, 2, 5}, {0, 0, 0}}};

    kit_open();
    third_pair_second_row();
    for (int f = CLB_PIXFMT_UNKNOWN + 1; f < CLB_PIXFMT_COUNT; f++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t i = 0; i < sizeof pads / sizeof *pads; i++) {
                const enum clb_pixfmt fmt = (enum clb_pixfmt)f;
                clb_preprocess_params p = {.struct_size = sizeof p};
                struct clb_image img;

                kit_image(&img, fmt, sizes[s][0], sizes[s][1], pads[i]);
                if (ref_is_raw(fmt) && (sizes[s][0] < 2 || sizes[s][1] < 2)) {
                    clb_preprocess *pp = NULL;

                    p.src = &img; /* smaller than a cell of the mosaic */
                    CHECK_EQ(clb_preprocess_create(&pp, dev, &p), CLB_ERR_INVAL);
                    continue;
                }
                kit_check(&p, &img, i * 3, false, (uint32_t)s + 1, "A-18");
            }
    kit_close();
    return 0;
}
