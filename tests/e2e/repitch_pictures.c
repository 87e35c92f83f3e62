/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of pictures, worked out a second time. See test_repitch.h. */
#include "test_repitch.h"

struct shape {
    unsigned planes;
    size_t rows[3], bytes[3]; /* of each row, without padding */
};

static struct shape shape_of(enum clb_pixfmt fmt, size_t w, size_t h)
{
    const size_t hw = (w + 1) / 2, hh = (h + 1) / 2;
    switch (fmt) {
    case CLB_PIXFMT_GRAY8:
    case CLB_PIXFMT_RAW8: return (struct shape){1, {h}, {w}};
    case CLB_PIXFMT_GRAY16:
    case CLB_PIXFMT_RAW10:
    case CLB_PIXFMT_RAW12:
    case CLB_PIXFMT_RAW16: return (struct shape){1, {h}, {2 * w}};
    case CLB_PIXFMT_NV12:
    case CLB_PIXFMT_NV21: return (struct shape){2, {h, hh}, {w, 2 * hw}};
    case CLB_PIXFMT_I420:
    case CLB_PIXFMT_YV12: return (struct shape){3, {h, hh, hh}, {w, hw, hw}};
    case CLB_PIXFMT_YUYV:
    case CLB_PIXFMT_UYVY: return (struct shape){1, {h}, {4 * hw}};
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24: return (struct shape){1, {h}, {3 * w}};
    case CLB_PIXFMT_RGBP:
    case CLB_PIXFMT_BGRP: return (struct shape){3, {h, h, h}, {w, w, w}};
    case CLB_PIXFMT_RGBA:
    case CLB_PIXFMT_BGRA: return (struct shape){1, {h}, {4 * w}};
    case CLB_PIXFMT_RAW10P: return (struct shape){1, {h}, {(w + 3) / 4 * 5}};
    case CLB_PIXFMT_RGBPF32: return (struct shape){3, {h, h, h}, {4 * w, 4 * w, 4 * w}};
    default: CHECK(0); return (struct shape){0};
    }
}

static size_t up(size_t n, size_t align)
{
    return align > 1 ? (n + align - 1) / align * align : n;
}

/* The layout that is promised for these alignments, worked out a second time. */
struct clb_image placed(const struct clb_image *src, size_t pitch_align, size_t plane_align)
{
    const struct shape s = shape_of(src->fmt, src->width, src->height);
    struct clb_image dst = *src;
    size_t at = 0;
    for (unsigned i = 0; i < s.planes; i++) {
        at = up(at, plane_align);
        dst.plane[i].offset = at;
        dst.plane[i].pitch = up(s.bytes[i], pitch_align);
        at += dst.plane[i].pitch * s.rows[i];
    }
    return dst;
}

size_t span(const struct clb_image *img)
{
    const struct shape s = shape_of(img->fmt, img->width, img->height);
    size_t most = 0;
    for (unsigned i = 0; i < s.planes; i++) {
        const size_t end =
            img->plane[i].offset + img->plane[i].pitch * (s.rows[i] - 1) + s.bytes[i];
        most = end > most ? end : most;
    }
    return most;
}

bool same(const struct clb_image *a, const struct clb_image *b)
{
    bool ok = a->fmt == b->fmt && a->width == b->width && a->height == b->height;
    for (unsigned i = 0; ok && i < shape_of(a->fmt, a->width, a->height).planes; i++) {
        ok = a->plane[i].offset == b->plane[i].offset && a->plane[i].pitch == b->plane[i].pitch;
    }
    return ok;
}

/* The packet has the rows of the payload `from` (laid out as src) where dst has them, and there is
 * nothing else in its buffer. */
void check_rows(const clb_packet *p, const uint8_t *from, const struct clb_image *src,
                const struct clb_image *dst)
{
    const struct shape s = shape_of(src->fmt, src->width, src->height);
    const uint8_t *data = clb_packet_data(p);
    const struct clb_image *img = clb_packet_image(p);
    CHECK(img != NULL);
    CHECK(same(img, dst));
    CHECK_EQ(img->num_planes, s.planes);
    CHECK_EQ(clb_packet_size(p), span(dst));
    CHECK_EQ(info_of(p).size, span(dst));
    size_t end = 0;
    for (unsigned i = 0; i < s.planes; i++) {
        for (size_t y = 0; y < s.rows[i]; y++) {
            const size_t at = dst->plane[i].offset + y * dst->plane[i].pitch;
            CHECK_EQ(memcmp(data + at, from + src->plane[i].offset + y * src->plane[i].pitch,
                            s.bytes[i]),
                     0);
            mem_unwritten(p, end, at);
            end = at + s.bytes[i];
        }
    }
    mem_unwritten(p, end, SIZE_MAX);
}

struct clb_image packed(enum clb_pixfmt fmt, uint32_t w, uint32_t h)
{
    const struct clb_image one = {.fmt = fmt, .width = w, .height = h};
    struct clb_image img = placed(&one, 1, 1);
    img.num_planes = shape_of(fmt, w, h).planes;
    return img;
}
