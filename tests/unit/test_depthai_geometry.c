/* SPDX-License-Identifier: Apache-2.0 */
/* Where the pixels lie: what each frame type means, what is not set, and descriptions that lie. */
#include "depthai_kit.h"
#include "nop_kit.h"

#include <criterion/criterion.h>

/* Parses a frame with these eight numbers. */
static int frame(clb_depthai_info *info, const int64_t fb[8], size_t data_size)
{
    static struct nop n;

    nop_frame(&n, fb, 2, 5, 1);
    return parse_at_wall(info, n.bytes, n.size, data_size, 2, CLB_DEPTHAI_V3_4);
}

struct row {
    int64_t fb[8]; /* type, width, height, stride, bytesPP, offsets */
    enum clb_pixfmt fmt;
    size_t bytes; /* exactly what is needed; one less is a lie */
    size_t pitch[3], offset[3];
};

static void check(const struct row *r, size_t index)
{
    clb_depthai_info info;

    cr_assert_eq(frame(&info, r->fb, r->bytes), CLB_OK, "row %zu", index);
    cr_expect_eq(info.frame_type, r->fb[0], "row %zu", index);
    cr_expect_eq(info.image.fmt, r->fmt, "row %zu: %s", index, clb_pixfmt_name(info.image.fmt));
    cr_expect_eq(info.image.width, r->fb[1], "row %zu", index);
    cr_expect_eq(info.image.height, r->fb[2], "row %zu", index);
    cr_expect_eq(clb_image_bytes(&info.image), r->bytes, "row %zu: %zu", index,
                 clb_image_bytes(&info.image));
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(info.image.plane[i].pitch, r->pitch[i], "row %zu, plane %d: %zu", index, i,
                     info.image.plane[i].pitch);
        cr_expect_eq(info.image.plane[i].offset, r->offset[i], "row %zu, plane %d: %zu", index, i,
                     info.image.plane[i].offset);
    }
    cr_expect_eq(frame(&info, r->fb, r->bytes - 1), CLB_ERR_PROTO, "row %zu: one byte less", index);
}

Test(depthai_geometry, frame_types)
{
    static const struct row rows[] = {
        {{0, 6, 4}, CLB_PIXFMT_YUYV, 48, {12}, {0}},
        {{0, 5, 4, 16}, CLB_PIXFMT_YUYV, 60, {16}, {0}},
        {{2, 6, 4}, CLB_PIXFMT_I420, 36, {6, 3, 3}, {0, 24, 30}},
        {{2, 5, 3}, CLB_PIXFMT_I420, 27, {5, 3, 3}, {0, 15, 21}},
        {{2, 6, 4, 16}, CLB_PIXFMT_I420, 91, {16, 8, 8}, {0, 64, 80}},
        {{4, 6, 4}, CLB_PIXFMT_GRAY8, 24, {6}, {0}},
        {{5, 6, 4}, CLB_PIXFMT_RGBA, 96, {24}, {0}},
        {{7, 6, 4}, CLB_PIXFMT_RGBP, 72, {6, 6, 6}, {0, 24, 48}},
        {{7, 6, 4, 8}, CLB_PIXFMT_RGBP, 94, {8, 8, 8}, {0, 32, 64}},
        {{8, 6, 4, 6, 1, 0, 24, 48}, CLB_PIXFMT_BGRP, 72, {6, 6, 6}, {0, 24, 48}},
        {{9, 6, 4}, CLB_PIXFMT_RGB24, 72, {18}, {0}},
        {{10, 6, 4, 18, 1}, CLB_PIXFMT_BGR24, 72, {18}, {0}},
        {{14, 6, 4, 32, 2}, CLB_PIXFMT_RAW16, 108, {32}, {0}},
        {{16, 6, 4}, CLB_PIXFMT_RAW12, 48, {12}, {0}},
        {{17, 6, 4}, CLB_PIXFMT_RAW10, 48, {12}, {0}},
        {{18, 6, 4}, CLB_PIXFMT_RAW8, 24, {6}, {0}},
        {{19, 6, 4}, CLB_PIXFMT_RAW10P, 40, {10}, {0}},
        {{22, 6, 4, 6, 1}, CLB_PIXFMT_NV12, 36, {6, 6}, {0, 24}},
        {{23, 6, 4}, CLB_PIXFMT_NV21, 36, {6, 6}, {0, 24}},
        {{30, 6, 4, 7}, CLB_PIXFMT_GRAY8, 27, {7}, {0}},
        /* Odd widths: a chroma row is a byte longer than a stride that says the width. */
        {{22, 5, 3, 5}, CLB_PIXFMT_NV12, 27, {5, 6}, {0, 15}},
        {{22, 5, 3}, CLB_PIXFMT_NV12, 27, {5, 6}, {0, 15}},
        {{22, 5, 3, 8}, CLB_PIXFMT_NV12, 38, {8, 8}, {0, 24}},
        {{22, 1, 1}, CLB_PIXFMT_NV12, 3, {1, 2}, {0, 1}},
        /* One row needs no pitch behind it. */
        {{10, 300, 1, 4096}, CLB_PIXFMT_BGR24, 900, {4096}, {0}},
        /* Planes anywhere. */
        {{22, 6, 4, 8, 1, 0, 100, 100}, CLB_PIXFMT_NV12, 114, {8, 8}, {0, 100}},
        {{22, 6, 4, 8, 1, 16, 0, 0}, CLB_PIXFMT_NV12, 46, {8, 8}, {16, 0}},
        {{10, 6, 4, 0, 3, 64}, CLB_PIXFMT_BGR24, 136, {18}, {64}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(&rows[i], i);
}

Test(depthai_geometry, types_without_a_format)
{
    clb_depthai_info info;

    for (int64_t type = 0; type < 50; type++) {
        const int64_t fb[8] = {type, 640, 400, 0, 1, 0, 0, 0};
        const int rc = frame(&info, fb, 640 * 400 * 4);
        cr_assert_eq(rc, CLB_OK, "type %d: %d", (int)type, rc);
        cr_expect_eq(info.kind, CLB_DEPTHAI_FRAME);
        cr_expect_eq(info.frame_type, type);
        cr_expect_eq(info.image.width, 640);
        if (info.image.fmt == CLB_PIXFMT_UNKNOWN)
            cr_expect(info.image.num_planes == 0 && info.image.plane[0].pitch == 0);
    }
    /* An encoded picture, of fewer bytes than its size in pixels suggests. */
    const int64_t bitstream[8] = {24, 1920, 1080, 1920, 1, 0, 0, 0};
    cr_assert_eq(frame(&info, bitstream, 100), CLB_OK);
    cr_expect_eq(info.image.fmt, CLB_PIXFMT_UNKNOWN);
}

Test(depthai_geometry, lies)
{
    static const int64_t max = UINT32_MAX;
    const struct {
        int64_t fb[8];
        size_t bytes;
    } rows[] = {
        {{10, 300, 300, 899, 3}, 1000000},           /* rows overlap */
        {{10, 300, 300, 1}, 1000000},                /* */
        {{22, 64, 48, 63, 1}, 1000000},              /* */
        {{10, 0, 300}, 1000000},                     /* no pixels */
        {{10, 300, 0}, 1000000},                     /* */
        {{10, 300, 300}, 0},                         /* no bytes */
        {{22, 64, 48, 64, 1, 0, 1000000, 0}, 5000},  /* a plane behind the data */
        {{22, 64, 48, 64, 1, 0, 4000, 4000}, 4608},  /* a plane that leaves the data */
        {{22, 64, 48, 64, 1, 4000, 0, 0}, 4608},     /* */
        {{7, 64, 48, 64, 1, 0, 3072, max}, 1000000}, /* */
        {{10, max, max}, SIZE_MAX},                  /* 3 x 2^64 */
        {{22, max, max, max}, SIZE_MAX},             /* */
        {{7, max, max}, SIZE_MAX},                   /* */
        {{5, max, max, max}, SIZE_MAX},              /* */
        {{10, 1, max, max}, 1000000},                /* pitch x rows */
        {{2, 2, max, max}, 1000000},                 /* */
        {{22, max, 1}, 1000000},                     /* */
    };
    clb_depthai_info info;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int rc = frame(&info, rows[i].fb, rows[i].bytes);
        cr_expect_eq(rc, CLB_ERR_PROTO, "row %zu: %d", i, rc);
    }
}
