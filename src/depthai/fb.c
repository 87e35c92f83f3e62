/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as depthai describes them, see fb.h. */
#include "fb.h"

#include <string.h>

#define STRUCT_SIZE_MAX 65536u

/* Frame types that have a format here, and the bytes per pixel that depthai's setters leave. A format
 * that stands here twice is written as the first. RAW16 is also what depth comes as. */
static const struct {
    int32_t type;
    enum clb_pixfmt fmt;
    uint32_t bytes_pp;
} types[] = {
    {0, CLB_PIXFMT_YUYV, 1},    /* YUV422i */
    {2, CLB_PIXFMT_I420, 1},    /* YUV420p */
    {30, CLB_PIXFMT_GRAY8, 1},  /* GRAY8 */
    {4, CLB_PIXFMT_GRAY8, 1},   /* YUV400p */
    {5, CLB_PIXFMT_RGBA, 1},    /* RGBA8888 */
    {7, CLB_PIXFMT_RGBP, 1},    /* RGB888p */
    {8, CLB_PIXFMT_BGRP, 1},    /* BGR888p */
    {9, CLB_PIXFMT_RGB24, 3},   /* RGB888i */
    {10, CLB_PIXFMT_BGR24, 3},  /* BGR888i */
    {14, CLB_PIXFMT_RAW16, 2},  /* RAW16 */
    {14, CLB_PIXFMT_GRAY16, 2}, /* for writing: the one above is found first */
    {16, CLB_PIXFMT_RAW12, 2},  /* RAW12 */
    {17, CLB_PIXFMT_RAW10, 2},  /* RAW10 */
    {18, CLB_PIXFMT_RAW8, 1},   /* RAW8 */
    {19, CLB_PIXFMT_RAW10P, 2}, /* PACK10 */
    {22, CLB_PIXFMT_NV12, 1},   /* NV12 */
    {23, CLB_PIXFMT_NV21, 1},   /* NV21 */
};

#define TYPES (sizeof types / sizeof *types)

enum clb_pixfmt clbi_fb_format(int32_t type)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == type)
            return types[i].fmt;
    return CLB_PIXFMT_UNKNOWN;
}

int32_t clbi_fb_type(enum clb_pixfmt fmt)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].fmt == fmt)
            return types[i].type;
    return -1;
}

uint32_t clbi_fb_bytes_pp(enum clb_pixfmt fmt)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].fmt == fmt)
            return types[i].bytes_pp;
    return 1;
}

static bool is_420(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_NV12 || fmt == CLB_PIXFMT_NV21 || fmt == CLB_PIXFMT_I420;
}

static uint64_t plane_rows(const struct clb_image *img, uint32_t plane)
{
    return is_420(img->fmt) && plane > 0 ? ((uint64_t)img->height + 1) / 2 : img->height;
}

/* Pitch of a plane with rows of row_bytes when the first plane's is `stride`. */
static uint64_t plane_pitch(enum clb_pixfmt fmt, uint32_t plane, uint32_t stride,
                            uint64_t row_bytes)
{
    if (stride == 0)
        return row_bytes;
    if (plane > 0 && fmt == CLB_PIXFMT_I420)
        return ((uint64_t)stride + 1) / 2;
    /* Chroma rows of an odd width are a byte longer than a stride that says just the width. */
    if (plane > 0 && is_420(fmt) && stride < row_bytes)
        return row_bytes;
    return stride;
}

bool clbi_fb_image(struct clb_image *out, const struct clbi_fb *fb, size_t data_size)
{
    const bool given = (fb->offset[0] | fb->offset[1] | fb->offset[2]) != 0;
    const enum clb_pixfmt fmt = clbi_fb_format(fb->type);
    struct clb_image img;
    uint64_t next = 0;

    memset(&img, 0, sizeof img);
    img.width = fb->width;
    img.height = fb->height;
    if (fmt == CLB_PIXFMT_UNKNOWN) {
        *out = img;
        return true;
    }
    if (clb_image_init(&img, fmt, fb->width, fb->height, 0, 0) != CLB_OK)
        return false;
    for (uint32_t i = 0; i < img.num_planes; i++) {
        const uint64_t pitch = plane_pitch(fmt, i, fb->stride, img.plane[i].pitch);
        const uint64_t rows = plane_rows(&img, i);
        const uint64_t offset = given ? fb->offset[i] : next;

        /* Keeps the places in size_t, and the sums below in 64 bits. */
        if (offset > data_size)
            return false;
        img.plane[i].offset = (size_t)offset;
        img.plane[i].pitch = (size_t)pitch;
        if (given || i + 1 == img.num_planes)
            continue;
        if (rows > (data_size - next) / pitch)
            return false;
        next += pitch * rows;
    }
    if (clb_image_check(&img, data_size) != CLB_OK)
        return false;
    *out = img;
    return true;
}

bool clbi_fb_describe(struct clbi_fb *fb, const struct clb_image *img, bool always_offsets)
{
    struct clb_image back;

    memset(fb, 0, sizeof *fb);
    fb->type = clbi_fb_type(img->fmt);
    if (fb->type < 0 || clb_image_check(img, SIZE_MAX) != CLB_OK ||
        img->plane[0].pitch > UINT32_MAX)
        return false;
    fb->width = img->width;
    fb->height = img->height;
    fb->stride = (uint32_t)img->plane[0].pitch;
    fb->bytes_pp = clbi_fb_bytes_pp(img->fmt);
    for (int pass = always_offsets ? 1 : 0; pass < 2; pass++) {
        for (uint32_t i = 0; pass == 1 && i < 3; i++) {
            /* NV12 has the place of its one chroma plane in both numbers. */
            const uint32_t plane = i < img->num_planes ? i : img->num_planes - 1;

            if (img->plane[plane].offset > UINT32_MAX)
                return false;
            fb->offset[i] = (uint32_t)img->plane[plane].offset;
        }
        /* What is read from it must be what was meant. */
        if (clbi_fb_image(&back, fb, SIZE_MAX) && back.num_planes == img->num_planes &&
            memcmp(back.plane, img->plane, img->num_planes * sizeof *img->plane) == 0)
            return true;
    }
    return false;
}

int clbi_fb_params(void *dst, size_t dst_size, const void *src)
{
    size_t size;

    memset(dst, 0, dst_size);
    if (src) {
        memcpy(&size, src, sizeof size);
        if (size == 0)
            size = dst_size;
        if (size < dst_size || size > STRUCT_SIZE_MAX)
            return CLB_ERR_INVAL;
        for (size_t i = dst_size; i < size; i++)
            if (((const unsigned char *)src)[i] != 0)
                return CLB_ERR_INVAL;
        memcpy(dst, src, dst_size);
    }
    memcpy(dst, &dst_size, sizeof dst_size);
    return CLB_OK;
}
