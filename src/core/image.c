/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pixel formats and plane layouts: sizes, checks, names. Pure arithmetic on untrusted numbers,
 * every product and sum is checked in 64 bits.
 */
#include "image_shape.h"

#include <stdbool.h>
#include <string.h>

/* How a plane is stored: one group of `bytes` for so many pixels across, one row for so many down;
 * begun groups and rows are whole ones. */
struct form {
    uint8_t across, down, bytes;
};

/* clang-format off */
#define WHOLE(bytes) {1, 1, bytes}
#define QUARTER(bytes) {2, 2, bytes}
#define FORM_GRAY8   {WHOLE(1)}
#define FORM_GRAY16  {WHOLE(2)}
#define FORM_NV12    {WHOLE(1), QUARTER(2)}
#define FORM_NV21    {WHOLE(1), QUARTER(2)}
#define FORM_I420    {WHOLE(1), QUARTER(1), QUARTER(1)}
#define FORM_YV12    {WHOLE(1), QUARTER(1), QUARTER(1)}
#define FORM_YUYV    {{2, 1, 4}}
#define FORM_UYVY    {{2, 1, 4}}
#define FORM_RGB24   {WHOLE(3)}
#define FORM_BGR24   {WHOLE(3)}
#define FORM_RGBP    {WHOLE(1), WHOLE(1), WHOLE(1)}
#define FORM_BGRP    {WHOLE(1), WHOLE(1), WHOLE(1)}
#define FORM_RGBA    {WHOLE(4)}
#define FORM_BGRA    {WHOLE(4)}
#define FORM_RAW8    {WHOLE(1)}
#define FORM_RAW10   {WHOLE(2)}
#define FORM_RAW12   {WHOLE(2)}
#define FORM_RAW16   {WHOLE(2)}
#define FORM_RAW10P  {{4, 1, 5}}
#define FORM_RGBPF32 {WHOLE(4), WHOLE(4), WHOLE(4)}
/* clang-format on */

static const struct {
    const char *name;
    uint32_t planes;
    struct form form[3];
} formats[CLB_PIXFMT_COUNT] = {[CLB_PIXFMT_UNKNOWN] = {"unknown", 0, {{0, 0, 0}}},
#define FORMAT_ENTRY(id, text, n) [CLB_PIXFMT_##id] = {text, n, FORM_##id},
                               CLB_PIXFMT_MAP(FORMAT_ENTRY)
#undef FORMAT_ENTRY
};

static bool known(enum clb_pixfmt fmt)
{
    return (int)fmt > CLB_PIXFMT_UNKNOWN && (int)fmt < CLB_PIXFMT_COUNT;
}

/* Nothing can overflow here: 32 bits by 5 at most. */
struct clbi_plane_shape clbi_plane_shape(const struct clb_image *img, uint32_t plane)
{
    const struct form form = formats[img->fmt].form[plane];
    const uint64_t w = img->width, h = img->height;

    return (struct clbi_plane_shape){(w + form.across - 1) / form.across * form.bytes,
                                     (h + form.down - 1) / form.down};
}

static bool mul_add(uint64_t *out, uint64_t a, uint64_t b, uint64_t c)
{
    if (b != 0 && a > UINT64_MAX / b)
        return false;
    if (c > UINT64_MAX - a * b)
        return false;
    *out = a * b + c;
    return true;
}

static bool align_up(uint64_t *value, uint64_t align)
{
    if (*value > UINT64_MAX - (align - 1))
        return false;
    *value = (*value + align - 1) & ~(align - 1);
    return true;
}

/* First byte after the plane's last used one: offset + pitch * (rows - 1) + row bytes. */
static bool plane_end(uint64_t *end, const struct clb_plane *plane, struct clbi_plane_shape shape)
{
    uint64_t last_row;

    if (!mul_add(&last_row, plane->pitch, shape.rows - 1, plane->offset))
        return false;
    return mul_add(end, 1, last_row, shape.row_bytes) && *end <= SIZE_MAX;
}

int clb_image_init(struct clb_image *img, enum clb_pixfmt fmt, uint32_t width, uint32_t height,
                   size_t pitch_align, size_t plane_align)
{
    struct clb_image out;
    uint64_t next = 0, end;

    if (pitch_align == 0)
        pitch_align = 1;
    if (plane_align == 0)
        plane_align = 1;
    if (!img || !known(fmt) || width == 0 || height == 0 ||
        (pitch_align & (pitch_align - 1)) != 0 || (plane_align & (plane_align - 1)) != 0)
        return CLB_ERR_INVAL;

    memset(&out, 0, sizeof out);
    out.fmt = fmt;
    out.width = width;
    out.height = height;
    out.num_planes = formats[fmt].planes;
    for (uint32_t i = 0; i < out.num_planes; i++) {
        const struct clbi_plane_shape shape = clbi_plane_shape(&out, i);
        uint64_t pitch = shape.row_bytes;

        if (!align_up(&pitch, pitch_align) || pitch > SIZE_MAX || !align_up(&next, plane_align) ||
            next > SIZE_MAX)
            return CLB_ERR_TOOBIG;
        out.plane[i].offset = (size_t)next;
        out.plane[i].pitch = (size_t)pitch;
        if (!plane_end(&end, &out.plane[i], shape))
            return CLB_ERR_TOOBIG;
        /* Planes start where the padded rows before them end, so that even-width NV12 is also one
         * picture of 3/2 height. */
        if (i + 1 < out.num_planes && !mul_add(&next, pitch, shape.rows, next))
            return CLB_ERR_TOOBIG;
    }
    *img = out;
    return CLB_OK;
}

size_t clb_image_bytes(const struct clb_image *img)
{
    uint64_t bytes = 0, end;

    if (!img || !known(img->fmt) || img->width == 0 || img->height == 0)
        return 0;
    for (uint32_t i = 0; i < formats[img->fmt].planes; i++) {
        if (!plane_end(&end, &img->plane[i], clbi_plane_shape(img, i)))
            return 0;
        if (end > bytes)
            bytes = end;
    }
    return (size_t)bytes;
}

int clb_image_check(const struct clb_image *img, size_t available)
{
    uint64_t end;

    if (!img || !known(img->fmt) || img->width == 0 || img->height == 0 ||
        img->num_planes != formats[img->fmt].planes || (unsigned)img->bayer > CLB_BAYER_GBRG ||
        (unsigned)img->matrix > CLB_MATRIX_709 || (unsigned)img->range > CLB_RANGE_FULL)
        return CLB_ERR_INVAL;
    for (uint32_t i = 0; i < img->num_planes; i++) {
        const struct clbi_plane_shape shape = clbi_plane_shape(img, i);

        if (img->plane[i].pitch < shape.row_bytes)
            return CLB_ERR_INVAL;
        if (!plane_end(&end, &img->plane[i], shape) || end > available)
            return CLB_ERR_TOOBIG;
    }
    return CLB_OK;
}

const char *clb_pixfmt_name(enum clb_pixfmt fmt)
{
    return formats[known(fmt) ? fmt : CLB_PIXFMT_UNKNOWN].name;
}

/* ASCII only: names do not depend on the locale. */
static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

enum clb_pixfmt clb_pixfmt_from_name(const char *name)
{
    if (!name)
        return CLB_PIXFMT_UNKNOWN;
    for (int fmt = CLB_PIXFMT_UNKNOWN + 1; fmt < CLB_PIXFMT_COUNT; fmt++) {
        const char *a = name, *b = formats[fmt].name;

        while (*a && lower(*a) == *b) {
            a++;
            b++;
        }
        if (!*a && !*b)
            return (enum clb_pixfmt)fmt;
    }
    return CLB_PIXFMT_UNKNOWN;
}
