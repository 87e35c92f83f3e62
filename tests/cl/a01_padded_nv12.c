/* SPDX-License-Identifier: Apache-2.0 */
/* rows and planes with padding are taken as they lie, and no byte of it becomes a pixel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

static double red(const struct clb_image *img, unsigned plane, unsigned i, unsigned y, void *priv)
{
    (void)img;
    (void)y;
    (void)priv;
    return plane == 0 ? 81 : i % 2 == 0 ? 90 : 240;
}

static void padded_nv12(void)
{
    clb_preprocess_params p = {.struct_size = sizeof p, .order = CLB_ORDER_BGR};
    static const int want[3] = {0, 0, 254};
    struct clb_image img;
    uint8_t *out[2];

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 60, 4, 0, 0), CLB_OK);
    img.plane[0].pitch = 64;
    img.plane[1].pitch = 128;
    img.plane[1].offset = 512;
    p.src = &img;
    clb_preprocess *pp = kit_create(&p);
    for (int i = 0; i < 2; i++) {
        uint8_t *px = kit_picture(&img, i ? 0x55 : 0xAA, red, NULL);

        out[i] = kit_run(pp, &p, &img, px, 0);
        free(px);
    }
    for (int i = 0; i < 60 * 4 * 3; i++)
        if (abs(out[0][i] - want[i % 3]) > 2)
            fail(__LINE__, "pixel %d channel %d is %d, not %d", i / 3, i % 3, out[0][i],
                 want[i % 3]);
    if (memcmp(out[0], out[1], 60 * 4 * 3) != 0)
        fail(__LINE__, "the padding shows in the result");
    free(out[0]);
    free(out[1]);
    clb_preprocess_destroy(&pp);
}

/* The same of all formats, every plane at a place and with a pitch of its own. */
static void every_format(void)
{
    static const struct kit_pads pads[] = {{{0, 0, 0}, {0, 0, 0}},
                                           {{4, 0, 0}, {0, 0, 0}},
                                           {{0, 4, 4}, {0, 0, 0}},
                                           {{0, 0, 0}, {12, 8, 24}},
                                           {{20, 4, 8}, {4, 36, 16}}};

    for (int f = CLB_PIXFMT_UNKNOWN + 1; f < CLB_PIXFMT_COUNT; f++)
        for (size_t i = 0; i < sizeof pads / sizeof *pads; i++) {
            clb_preprocess_params p = {.struct_size = sizeof p};
            struct clb_image img;

            kit_image(&img, (enum clb_pixfmt)f, 60, 4, pads[i]);
            kit_check(&p, &img, 0, i % 2 == 1, 1, "A-01");
        }
}

int main(void)
{
    kit_open();
    padded_nv12();
    every_format();
    kit_close();
    return 0;
}
