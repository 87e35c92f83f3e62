/* SPDX-License-Identifier: Apache-2.0 */
/* scale, mean and deviation belong to the channels of the output. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

static double pixel(const struct clb_image *img, unsigned plane, unsigned i, unsigned y, void *priv)
{
    (void)img;
    (void)plane;
    (void)y;
    (void)priv;
    return 10 + 10 * (i % 3);
}

static void one(enum clb_preprocess_order order, enum clb_preprocess_layout layout,
                enum clb_preprocess_type type, unsigned w, unsigned h, double a, double b, double c)
{
    static const struct kit_pads none = {{0, 0, 0}, {0, 0, 0}};
    const double want[3] = {a, b, c};
    clb_preprocess_params p = {.struct_size = sizeof p,
                               .order = order,
                               .layout = layout,
                               .type = type,
                               .scale = {1 / 255.0f, 1 / 255.0f, 1 / 255.0f},
                               .mean = {0.485f, 0.456f, 0.406f},
                               .dev = {0.229f, 0.224f, 0.225f}};
    struct clb_image img;

    kit_image(&img, CLB_PIXFMT_BGR24, w, h, none);
    p.src = &img;
    uint8_t *px = kit_picture(&img, 0, pixel, NULL);
    clb_preprocess *pp = kit_create(&p);
    uint8_t *out = kit_run(pp, &p, &img, px, 0);
    for (unsigned i = 0; i < w * h * 3; i++) {
        const unsigned channel = layout == CLB_LAYOUT_NCHW ? i / (w * h) : i % 3;
        const double got = kit_element(type, out, i);

        if (!(fabs(got - want[channel]) <= (type == CLB_TYPE_F16 ? 2e-3 : 1e-3)))
            fail(__LINE__, "order %d, layout %d, type %d: channel %u is %g, not %g", (int)order,
                 (int)layout, (int)type, channel, got, want[channel]);
    }
    free(out);
    free(px);
    clb_preprocess_destroy(&pp);
}

int main(void)
{
    kit_open();
    for (int layout = CLB_LAYOUT_NHWC; layout <= CLB_LAYOUT_NCHW; layout++)
        for (int type = CLB_TYPE_F16; type <= CLB_TYPE_F32; type++)
            for (unsigned side = 1; side <= 5; side += 4) {
                one(CLB_ORDER_RGB, (enum clb_preprocess_layout)layout,
                    (enum clb_preprocess_type)type, side, side, -1.6042, -1.6856, -1.6302);
                one(CLB_ORDER_BGR, (enum clb_preprocess_layout)layout,
                    (enum clb_preprocess_type)type, side, side, -1.9467, -1.6856, -1.2816);
            }
    kit_close();
    return 0;
}
