/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be drawn is refused by name, before anything is enqueued. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "preprocess_kit.h"
#include "recipes_kit.h"

static const struct kit_pads none = {{0, 0, 0}, {0, 0, 0}};
static struct clb_image nv12, gray16;

static void refused(int line, const clb_preprocess_params *p, int expected)
{
    clb_preprocess *pp = (clb_preprocess *)&nv12;
    const int before = launches;
    const int rc = clb_preprocess_create(&pp, dev, p);

    if (rc != expected)
        fail(line, "create is %d, not %d (%s)", rc, expected, last_line);
    if (pp)
        fail(line, "the handle of a refused recipe is not NULL");
    CHECK_EQ(launches, before);
}

/* Without and with a source. */
#define REFUSED(expected, ...)                                                                     \
    do {                                                                                           \
        refused(__LINE__, clb_preprocess_params(__VA_ARGS__), expected);                           \
        refused(__LINE__, clb_preprocess_params(.src = &nv12, __VA_ARGS__), expected);             \
    } while (0)
/* Only the source tells. */
#define REFUSED_WITH(image, expected, ...)                                                         \
    refused(__LINE__, clb_preprocess_params(.src = (image), __VA_ARGS__), expected)

static void parameters(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};

    for (int i = 0; i < 3; i++) {
        REFUSED(CLB_ERR_INVAL, .scale = {1, bad[i], 1});
        REFUSED(CLB_ERR_INVAL, .mean = {bad[i]});
        REFUSED(CLB_ERR_INVAL, .dev = {1, 1, bad[i]});
        REFUSED(CLB_ERR_INVAL, .pad = {0, 0, bad[i]});
        REFUSED(CLB_ERR_INVAL, .crop = {.x = (double)bad[i], .w = 10, .h = 10});
        REFUSED(CLB_ERR_INVAL, .crop = {.y = (double)bad[i], .w = 10, .h = 10});
        REFUSED(CLB_ERR_INVAL, .crop = {.w = (double)bad[i], .h = 10});
        REFUSED(CLB_ERR_INVAL, .crop = {.w = 10, .h = (double)bad[i]});
    }
    REFUSED(CLB_ERR_INVAL, .crop = {.x = -0.001, .w = 10, .h = 10});
    REFUSED(CLB_ERR_INVAL, .crop = {.y = -10, .w = 10, .h = 10});
    REFUSED(CLB_ERR_INVAL, .crop = {.x = 1});
    REFUSED(CLB_ERR_INVAL, .crop = {.w = 10});
    REFUSED(CLB_ERR_INVAL, .crop = {.w = 10, .h = -10});
    REFUSED(CLB_ERR_INVAL, .crop = {.w = 1e308, .x = 1e308, .h = 1});
    REFUSED(CLB_ERR_INVAL, .fit = (enum clb_preprocess_fit)3);
    REFUSED(CLB_ERR_INVAL, .filter = (enum clb_preprocess_filter)3);
    REFUSED(CLB_ERR_INVAL, .order = (enum clb_preprocess_order) - 1);
    REFUSED(CLB_ERR_INVAL, .layout = (enum clb_preprocess_layout)2);
    REFUSED(CLB_ERR_INVAL, .type = (enum clb_preprocess_type)3);
    REFUSED(CLB_ERR_INVAL, .matrix = (enum clb_matrix)3);
    REFUSED(CLB_ERR_INVAL, .range = (enum clb_range)3);
    REFUSED(CLB_ERR_INVAL, .flip = (enum clb_preprocess_flip)4);
    REFUSED(CLB_ERR_INVAL, .rotate = (enum clb_preprocess_rotate)4);
    REFUSED(CLB_ERR_INVAL, .batch = CLB_PREPROCESS_MAX_BATCH + 1);
    REFUSED(CLB_ERR_INVAL, .batch = UINT32_MAX);
}

static void sources(void)
{
    struct clb_image img;

    REFUSED_WITH(&nv12, CLB_ERR_INVAL, .crop = {60, 0, 4.5, 48});
    REFUSED_WITH(&nv12, CLB_ERR_INVAL, .crop = {0, 0, 64, 48.001});
    REFUSED_WITH(&nv12, CLB_ERR_INVAL, .crop = {1e300, 0, 1, 1});
    REFUSED_WITH(&nv12, CLB_ERR_INVAL, .crop = {0, 0, 1e300, 1e300});
    REFUSED_WITH(&nv12, CLB_ERR_TOOBIG, .width = UINT32_MAX, .height = UINT32_MAX);
    REFUSED_WITH(&nv12, CLB_ERR_TOOBIG, .width = UINT32_MAX);
    for (int f = CLB_PIXFMT_RAW8; f <= CLB_PIXFMT_RAW10P; f++) {
        kit_image(&img, (enum clb_pixfmt)f, 8, 8, none);
        img.bayer = CLB_BAYER_NONE;
        REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
        img.bayer = (enum clb_bayer)5;
        REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
        kit_image(&img, (enum clb_pixfmt)f, 8, 1, none);
        REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
        kit_image(&img, (enum clb_pixfmt)f, 1, 8, none);
        REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
    }
    img = nv12;
    img.plane[0].pitch = 63;
    REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
    img = nv12;
    img.width = 0;
    REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
    img = nv12;
    img.num_planes = 1;
    REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
    img = nv12;
    img.matrix = (enum clb_matrix)7;
    REFUSED_WITH(&img, CLB_ERR_INVAL, .width = 4);
    img = nv12;
    img.plane[1].offset = SIZE_MAX - 10;
    REFUSED_WITH(&img, CLB_ERR_TOOBIG, .width = 4);
    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_GRAY8, UINT32_MAX, UINT32_MAX, 0, 0), CLB_OK);
    REFUSED_WITH(&img, CLB_ERR_TOOBIG, .width = 4);
}

static void depths(void)
{
#define MEASURE .depth = 1, .order = CLB_ORDER_GRAY
    REFUSED_WITH(&gray16, CLB_ERR_INVAL, MEASURE);                          /* u8 */
    REFUSED_WITH(&gray16, CLB_ERR_INVAL, .depth = 1, .type = CLB_TYPE_F32); /* RGB */
    REFUSED_WITH(&nv12, CLB_ERR_INVAL, MEASURE, .type = CLB_TYPE_F32);      /* no measure */
    REFUSED_WITH(&gray16, CLB_ERR_INVAL, MEASURE, .type = CLB_TYPE_F32, .depth_none = 65536);
}

static void runs(void)
{
    const cl_command_queue queue = clb_cl_device_queue(dev);
    clb_cl_pool *own = NULL;
    clb_cl_frame *frame[3], *twice[2], *mixed[2];
    cl_event done = NULL;
    struct clb_image img, other;
    clb_preprocess_geometry g;

    kit_image(&img, CLB_PIXFMT_BGR24, 10, 6, none);
    kit_image(&other, CLB_PIXFMT_BGR24, 6, 10, none);
    uint8_t *px = kit_noise(&img, 0, 1);
    CHECK_EQ(clb_cl_pool_create(
                 &own, dev,
                 clb_cl_pool_params(.buf_size = clb_image_bytes(&img), .count = 3, .align = 16)),
             CLB_OK);
    for (int i = 0; i < 3; i++)
        frame[i] = make_frame(own, px, clb_image_bytes(&img));
    twice[0] = twice[1] = frame[0];
    mixed[0] = frame[0];
    mixed[1] = frame[2];
    CHECK_EQ(clb_cl_frame_set_image(frame[0], &img), CLB_OK);
    CHECK_EQ(clb_cl_frame_set_image(frame[1], &img), CLB_OK);
    CHECK_EQ(clb_cl_frame_set_image(frame[2], &other), CLB_OK);
    clb_preprocess_params p = {.struct_size = sizeof p,
                               .src = &img,
                               .width = 4,
                               .height = 3,
                               .type = CLB_TYPE_F32,
                               .batch = 2};
    clb_preprocess *pp = kit_create(&p);
    p.src = NULL;
    clb_preprocess *any = kit_create(&p);
    CHECK_EQ(clb_preprocess_get_geometry(pp, NULL, &g, sizeof g), CLB_OK);
    CHECK_EQ(g.bytes, 4 * 3 * 3 * 4);
    cl_mem tensor = make_tensor(2 * g.bytes);

    const int before = launches;
#define RUN(offset) clb_preprocess_run(pp, queue, frame[0], tensor, offset, &done)
#define BATCH(which, frames, n, offset, stride)                                                    \
    clb_preprocess_run_batch(which, queue, frames, n, tensor, offset, stride, &done)
    CHECK_EQ(RUN(1), CLB_ERR_INVAL);
    CHECK_EQ(RUN(2), CLB_ERR_INVAL);
    CHECK_EQ(RUN(g.bytes + 4), CLB_ERR_TOOBIG);
    CHECK_EQ(RUN(SIZE_MAX - 3), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame[0], clb_cl_frame_mem(frame[0]), 0, &done),
             CLB_ERR_INVAL);
    CHECK_EQ(BATCH(NULL, frame, 2, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, NULL, 2, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, frame, 0, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, frame, 3, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, frame, UINT32_MAX, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, twice, 2, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(any, mixed, 2, 0, 0), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, frame, 2, 0, g.bytes - 4), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, frame, 2, 0, g.bytes + 2), CLB_ERR_INVAL);
    CHECK_EQ(BATCH(pp, frame, 2, 0, g.bytes + 4), CLB_ERR_TOOBIG);
    CHECK_EQ(BATCH(pp, frame, 2, 4, 0), CLB_ERR_TOOBIG);
    CHECK_EQ(BATCH(pp, frame, 2, 0, SIZE_MAX - 3), CLB_ERR_TOOBIG);
    CHECK_EQ(clb_preprocess_run_batch(pp, queue, frame, 2, clb_cl_frame_mem(frame[1]), 0, 0, &done),
             CLB_ERR_INVAL);
    CHECK_EQ(launches, before);
    CHECK_EQ(done == NULL, 1);

    /* The same with nothing wrong, to the last byte of the tensor. */
    CHECK_EQ(BATCH(pp, frame, 2, 0, 0), CLB_OK);
    wait_done(done);
    done = NULL;
    CHECK_EQ(RUN(g.bytes), CLB_OK);
    wait_done(done);
    CHECK_EQ(launches, before + 2);
    for (int i = 0; i < 3; i++)
        clb_cl_frame_unref(&frame[i]);
    clReleaseMemObject(tensor);
    clb_preprocess_destroy(&pp);
    clb_preprocess_destroy(&any);
    clb_cl_pool_destroy(&own);
    free(px);
}

int main(void)
{
    kit_open();
    kit_image(&nv12, CLB_PIXFMT_NV12, 64, 48, none);
    kit_image(&gray16, CLB_PIXFMT_GRAY16, 64, 48, none);
    parameters();
    sources();
    depths();
    runs();
    kit_close();
    return 0;
}
