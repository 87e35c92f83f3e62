/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts from untrusted numbers. Whatever clb_image_check() accepts must lie inside the bytes that
 * it was told, by arithmetic wide enough not to wrap; whatever clb_image_init() makes must pass. A plan
 * for rows of such a layout must take all bytes of the stream, and no more into the sink than it holds.
 */
#include <core/rows.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

__extension__ typedef unsigned __int128 wide;

/* Written once more, format by format, as image.h describes them. */
static wide end_of(const struct clb_image *img, uint32_t i)
{
    const wide w = img->width, h = img->height;
    wide row = w, rows = h;

    switch (img->fmt) {
    case CLB_PIXFMT_GRAY16:
    case CLB_PIXFMT_RAW10:
    case CLB_PIXFMT_RAW12:
    case CLB_PIXFMT_RAW16: row = 2 * w; break;
    case CLB_PIXFMT_NV12:
    case CLB_PIXFMT_NV21:
        if (i > 0) {
            row = (w + 1) / 2 * 2;
            rows = (h + 1) / 2;
        }
        break;
    case CLB_PIXFMT_I420:
    case CLB_PIXFMT_YV12:
        if (i > 0) {
            row = (w + 1) / 2;
            rows = (h + 1) / 2;
        }
        break;
    case CLB_PIXFMT_YUYV:
    case CLB_PIXFMT_UYVY: row = (w + 1) / 2 * 4; break;
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24: row = 3 * w; break;
    case CLB_PIXFMT_RGBA:
    case CLB_PIXFMT_BGRA:
    case CLB_PIXFMT_RGBPF32: row = 4 * w; break;
    case CLB_PIXFMT_RAW10P: row = (w + 3) / 4 * 5; break;
    default: break;
    }
    if (img->plane[i].pitch < row)
        abort();
    return (wide)img->plane[i].offset + (wide)img->plane[i].pitch * (rows - 1) + row;
}

static void verify(const struct clb_image *img, size_t available)
{
    const size_t bytes = clb_image_bytes(img);
    wide end = 0;

    for (uint32_t i = 0; i < img->num_planes; i++)
        if (end_of(img, i) > end)
            end = end_of(img, i);
    if (end > available || end != bytes)
        abort();
}

static void verify_plan(const struct clb_image *src, size_t pixels, size_t align, size_t sink_size)
{
    struct clbi_seg segs[CLBI_ROWS_SEGS];
    struct clb_image dst;
    wide sum = 0, rows = 0;
    size_t n = 0;

    if (clb_image_init(&dst, src->fmt, src->width, src->height, align, align) != CLB_OK ||
        !clbi_rows_plan(segs, &n, src, pixels, &dst, NULL, NULL, sink_size))
        return;
    if (n > CLBI_ROWS_SEGS || clb_image_check(src, pixels) != CLB_OK)
        abort();
    for (size_t i = 0; i < n; i++) {
        sum += (wide)segs[i].rows * ((wide)segs[i].row_bytes + segs[i].gap);
        rows += segs[i].rows;
        if (segs[i].gap > sink_size || (segs[i].rows > 1 && segs[i].pitch < segs[i].row_bytes))
            abort();
    }
    if (sum != pixels || rows > (wide)3 * src->height + 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct {
        uint32_t fmt, width, height, planes;
        uint64_t offset[3], pitch[3], available;
        uint32_t bayer, matrix, range, shift;
    } in;
    struct clb_image img;

    memset(&in, 0, sizeof in);
    memcpy(&in, data, size < sizeof in ? size : sizeof in);
    memset(&img, 0, sizeof img);
    img.fmt = (enum clb_pixfmt)in.fmt;
    img.width = in.width;
    img.height = in.height;
    img.num_planes = in.planes;
    for (int i = 0; i < 3; i++) {
        img.plane[i].offset = (size_t)in.offset[i];
        img.plane[i].pitch = (size_t)in.pitch[i];
    }
    img.bayer = (enum clb_bayer)in.bayer;
    img.matrix = (enum clb_matrix)in.matrix;
    img.range = (enum clb_range)in.range;

    (void)clb_image_bytes(&img);
    if (clb_image_check(&img, (size_t)in.available) == CLB_OK)
        verify(&img, (size_t)in.available);
    /* Also of what does not pass: the plan says no. */
    verify_plan(&img, (size_t)in.available, (size_t)1 << (in.shift & 15),
                in.shift >> 16 ? in.shift >> 16 : SIZE_MAX);
    if (clb_image_init(&img, (enum clb_pixfmt)in.fmt, in.width, in.height,
                       (size_t)1 << (in.shift & 63), (size_t)1 << (in.shift >> 8 & 63)) == CLB_OK) {
        if (clb_image_check(&img, SIZE_MAX) != CLB_OK)
            abort();
        verify(&img, SIZE_MAX);
    }

    char name[16] = {0};
    memcpy(name, data, size < sizeof name - 1 ? size : sizeof name - 1);
    const enum clb_pixfmt fmt = clb_pixfmt_from_name(name);
    if (fmt != CLB_PIXFMT_UNKNOWN && clb_pixfmt_from_name(clb_pixfmt_name(fmt)) != fmt)
        abort();
    return 0;
}
