/* SPDX-License-Identifier: Apache-2.0 */
/* Image layouts: shapes of odd sizes, padding, limits of untrusted numbers, names. */
#include <core/image_shape.h>

#include <string.h>

#include <criterion/criterion.h>

static struct clb_image make(enum clb_pixfmt fmt, uint32_t w, uint32_t h, size_t pitch_align,
                             size_t plane_align)
{
    struct clb_image img;
    const int rc = clb_image_init(&img, fmt, w, h, pitch_align, plane_align);

    cr_assert_eq(rc, CLB_OK, "%s %ux%u: %d", clb_pixfmt_name(fmt), w, h, rc);
    return img;
}

Test(image, packed_sizes)
{
    static const struct {
        enum clb_pixfmt fmt;
        uint32_t w, h;
        size_t bytes, pitch0, offset1, pitch1;
    } row[] = {
        {CLB_PIXFMT_NV12, 1920, 1080, 3110400, 1920, 2073600, 1920},
        {CLB_PIXFMT_NV12, 1, 1, 1 + 2, 1, 1, 2},
        {CLB_PIXFMT_NV12, 2, 2, 6, 2, 4, 2},
        {CLB_PIXFMT_NV12, 5, 3, 15 + 12, 5, 15, 6},
        {CLB_PIXFMT_NV12, 3, 5, 15 + 12, 3, 15, 4},
        {CLB_PIXFMT_NV12, 4, 3, 12 + 8, 4, 12, 4},
        {CLB_PIXFMT_NV12, 5, 4, 20 + 12, 5, 20, 6},
        {CLB_PIXFMT_RGB24, 5, 3, 45, 15, 0, 0},
        {CLB_PIXFMT_BGR24, 300, 300, 270000, 900, 0, 0},
        {CLB_PIXFMT_GRAY8, 1, 1, 1, 1, 0, 0},
        {CLB_PIXFMT_GRAY8, 641, 480, 307680, 641, 0, 0},
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct clb_image img = make(row[i].fmt, row[i].w, row[i].h, 0, 0);

        cr_expect_eq(clb_image_bytes(&img), row[i].bytes, "row %zu: %zu, not %zu", i,
                     clb_image_bytes(&img), row[i].bytes);
        cr_expect_eq(img.plane[0].offset, 0);
        cr_expect_eq(img.plane[0].pitch, row[i].pitch0, "row %zu: %zu", i, img.plane[0].pitch);
        cr_expect_eq(img.plane[1].offset, row[i].offset1, "row %zu: %zu", i, img.plane[1].offset);
        cr_expect_eq(img.plane[1].pitch, row[i].pitch1, "row %zu: %zu", i, img.plane[1].pitch);
        cr_expect_eq(img.num_planes, row[i].fmt == CLB_PIXFMT_NV12 ? 2u : 1u);
        cr_expect_eq(clb_image_check(&img, row[i].bytes), CLB_OK);
        cr_expect_eq(clb_image_check(&img, row[i].bytes - 1), CLB_ERR_TOOBIG);
    }
}

Test(image, alignment)
{
    struct clb_image img = make(CLB_PIXFMT_BGR24, 300, 300, 64, 0);
    cr_expect_eq(img.plane[0].pitch, 960);
    cr_expect_eq(clb_image_bytes(&img), 960u * 299 + 900);

    /* The chroma plane directly after the luma rows when that is aligned ... */
    img = make(CLB_PIXFMT_NV12, 60, 4, 64, 64);
    cr_expect_eq(img.plane[0].pitch, 64);
    cr_expect_eq(img.plane[1].offset, 256);
    cr_expect_eq(img.plane[1].pitch, 64);
    cr_expect_eq(clb_image_bytes(&img), 256u + 64 + 60);

    /* ... and at the next multiple when not. */
    img = make(CLB_PIXFMT_NV12, 60, 3, 64, 4096);
    cr_expect_eq(img.plane[1].offset, 4096);

    /* Any alignment of two or more gives odd widths one pitch for both planes. */
    img = make(CLB_PIXFMT_NV12, 63, 5, 2, 0);
    cr_expect_eq(img.plane[0].pitch, 64);
    cr_expect_eq(img.plane[1].pitch, 64);
    cr_expect_eq(img.plane[1].offset, 320);
}

/* Every format by hand: bytes of a row and rows, plane by plane, at 5x3, 1x1 and 8x4. */
Test(image, shapes_of_all_formats)
{
    struct form {
        size_t row[3], rows[3];
    };
#define ONE(a, n)                                                                                  \
    {                                                                                              \
        {a},                                                                                       \
        {                                                                                          \
            n                                                                                      \
        }                                                                                          \
    }
#define TWO(a, n, b, m)                                                                            \
    {                                                                                              \
        {a, b},                                                                                    \
        {                                                                                          \
            n, m                                                                                   \
        }                                                                                          \
    }
#define THREE(a, n, b, m)                                                                          \
    {                                                                                              \
        {a, b, b},                                                                                 \
        {                                                                                          \
            n, m, m                                                                                \
        }                                                                                          \
    }
    static const struct {
        enum clb_pixfmt fmt;
        uint32_t planes;
        struct form of[3];
    } all[] = {
        {CLB_PIXFMT_GRAY8, 1, {ONE(5, 3), ONE(1, 1), ONE(8, 4)}},
        {CLB_PIXFMT_GRAY16, 1, {ONE(10, 3), ONE(2, 1), ONE(16, 4)}},
        {CLB_PIXFMT_NV12, 2, {TWO(5, 3, 6, 2), TWO(1, 1, 2, 1), TWO(8, 4, 8, 2)}},
        {CLB_PIXFMT_NV21, 2, {TWO(5, 3, 6, 2), TWO(1, 1, 2, 1), TWO(8, 4, 8, 2)}},
        {CLB_PIXFMT_I420, 3, {THREE(5, 3, 3, 2), THREE(1, 1, 1, 1), THREE(8, 4, 4, 2)}},
        {CLB_PIXFMT_YV12, 3, {THREE(5, 3, 3, 2), THREE(1, 1, 1, 1), THREE(8, 4, 4, 2)}},
        {CLB_PIXFMT_YUYV, 1, {ONE(12, 3), ONE(4, 1), ONE(16, 4)}},
        {CLB_PIXFMT_UYVY, 1, {ONE(12, 3), ONE(4, 1), ONE(16, 4)}},
        {CLB_PIXFMT_RGB24, 1, {ONE(15, 3), ONE(3, 1), ONE(24, 4)}},
        {CLB_PIXFMT_BGR24, 1, {ONE(15, 3), ONE(3, 1), ONE(24, 4)}},
        {CLB_PIXFMT_RGBP, 3, {THREE(5, 3, 5, 3), THREE(1, 1, 1, 1), THREE(8, 4, 8, 4)}},
        {CLB_PIXFMT_BGRP, 3, {THREE(5, 3, 5, 3), THREE(1, 1, 1, 1), THREE(8, 4, 8, 4)}},
        {CLB_PIXFMT_RGBA, 1, {ONE(20, 3), ONE(4, 1), ONE(32, 4)}},
        {CLB_PIXFMT_BGRA, 1, {ONE(20, 3), ONE(4, 1), ONE(32, 4)}},
        {CLB_PIXFMT_RAW8, 1, {ONE(5, 3), ONE(1, 1), ONE(8, 4)}},
        {CLB_PIXFMT_RAW10, 1, {ONE(10, 3), ONE(2, 1), ONE(16, 4)}},
        {CLB_PIXFMT_RAW12, 1, {ONE(10, 3), ONE(2, 1), ONE(16, 4)}},
        {CLB_PIXFMT_RAW16, 1, {ONE(10, 3), ONE(2, 1), ONE(16, 4)}},
        {CLB_PIXFMT_RAW10P, 1, {ONE(10, 3), ONE(5, 1), ONE(10, 4)}},
        {CLB_PIXFMT_RGBPF32, 3, {THREE(20, 3, 20, 3), THREE(4, 1, 4, 1), THREE(32, 4, 32, 4)}},
    };
#undef ONE
#undef TWO
#undef THREE
    static const struct {
        uint32_t w, h;
    } size[] = {{5, 3}, {1, 1}, {8, 4}};
    static const size_t aligns[] = {1, 2, 64, 4096};

    cr_assert_eq(sizeof all / sizeof *all, CLB_PIXFMT_COUNT - 1, "a format has no line here");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t k = 0; k < sizeof size / sizeof *size; k++)
            for (size_t a = 0; a < 16; a++) {
                const size_t pitch_align = aligns[a % 4], plane_align = aligns[a / 4];
                const struct form *f = &all[i].of[k];
                const struct clb_image img =
                    make(all[i].fmt, size[k].w, size[k].h, pitch_align, plane_align);
                size_t next = 0, bytes = 0;

                cr_expect_eq(img.num_planes, all[i].planes);
                for (uint32_t p = 0; p < 3; p++) {
                    const size_t pitch = (f->row[p] + pitch_align - 1) / pitch_align * pitch_align;
                    struct clb_image less = img;

                    if (p >= all[i].planes) {
                        cr_expect_eq(img.plane[p].pitch, 0);
                        cr_expect_eq(img.plane[p].offset, 0);
                        continue;
                    }
                    const struct clbi_plane_shape shape = clbi_plane_shape(&img, p);
                    cr_expect_eq(shape.row_bytes, f->row[p], "%s", clb_pixfmt_name(img.fmt));
                    cr_expect_eq(shape.rows, f->rows[p], "%s", clb_pixfmt_name(img.fmt));
                    next = (next + plane_align - 1) / plane_align * plane_align;
                    cr_expect_eq(img.plane[p].pitch, pitch, "%s plane %u: %zu, not %zu",
                                 clb_pixfmt_name(img.fmt), p, img.plane[p].pitch, pitch);
                    cr_expect_eq(img.plane[p].offset, next, "%s plane %u: %zu, not %zu",
                                 clb_pixfmt_name(img.fmt), p, img.plane[p].offset, next);
                    bytes = next + pitch * (f->rows[p] - 1) + f->row[p];
                    next += pitch * f->rows[p];
                    less.plane[p].pitch = f->row[p] - 1;
                    cr_expect_eq(clb_image_check(&less, (size_t)1 << 20), CLB_ERR_INVAL);
                }
                cr_expect_eq(clb_image_bytes(&img), bytes, "%s: %zu, not %zu",
                             clb_pixfmt_name(img.fmt), clb_image_bytes(&img), bytes);
                cr_expect_eq(clb_image_check(&img, bytes), CLB_OK);
                cr_expect_eq(clb_image_check(&img, bytes - 1), CLB_ERR_TOOBIG);
            }
}

/* The widest and highest of every format: sums or products that do not fit are refused, not wrapped. */
Test(image, largest_of_all_formats)
{
    const uint32_t max = 0xFFFFFFFF;

    for (int fmt = 1; fmt < CLB_PIXFMT_COUNT; fmt++) {
        struct clb_image img;
        uint64_t row;

        if (clb_image_init(&img, (enum clb_pixfmt)fmt, max, 1, 0, 0) == CLB_OK) {
            cr_expect_leq(max, img.plane[0].pitch);
            for (uint32_t p = 0; p < img.num_planes; p++) {
                row = clbi_plane_shape(&img, p).row_bytes;
                img.plane[p].pitch = SIZE_MAX - 1;
                img.plane[p].offset = SIZE_MAX - row;
            }
            cr_expect_eq(clb_image_check(&img, SIZE_MAX), CLB_OK);
            img.plane[0].offset++;
            cr_expect_eq(clb_image_check(&img, SIZE_MAX), CLB_ERR_TOOBIG);
            cr_expect_eq(clb_image_bytes(&img), 0);
        } else {
            cr_expect_lt(SIZE_MAX, UINT64_MAX, "%s", clb_pixfmt_name((enum clb_pixfmt)fmt));
        }
        if (clb_image_init(&img, (enum clb_pixfmt)fmt, max, max, 0, 0) == CLB_OK) {
            row = clbi_plane_shape(&img, 0).row_bytes;
            cr_expect_eq(row, max, "only rows of a byte for a pixel fit: %s",
                         clb_pixfmt_name((enum clb_pixfmt)fmt));
            cr_expect_eq(img.num_planes, 1);
        }
    }
}

Test(image, A_01_padded_nv12)
{
    struct clb_image img = make(CLB_PIXFMT_NV12, 60, 4, 0, 0);

    cr_expect_eq(clb_image_bytes(&img), 60u * 6);
    img.plane[0].pitch = 64;
    img.plane[1].pitch = 128;
    img.plane[1].offset = 512;
    cr_expect_eq(clb_image_bytes(&img), 512u + 128 + 60);
    cr_expect_eq(clb_image_check(&img, 700), CLB_OK);
    cr_expect_eq(clb_image_check(&img, 699), CLB_ERR_TOOBIG);

    /* The planes may lie in any order: the largest end counts. */
    img.plane[0].offset = 1024;
    img.plane[1].offset = 0;
    cr_expect_eq(clb_image_bytes(&img), 1024u + 3 * 64 + 60);
}

Test(image, A_18_padded_odd_sizes)
{
    struct clb_image img = make(CLB_PIXFMT_NV12, 5, 3, 8, 0);

    cr_expect_eq(img.plane[0].pitch, 8);
    cr_expect_eq(img.plane[1].pitch, 8);
    cr_expect_eq(img.plane[1].offset, 24);
    /* Two chroma rows of three pairs. */
    cr_expect_eq(clb_image_bytes(&img), 24u + 8 + 6);
    img.plane[1].pitch = 5;
    cr_expect_eq(clb_image_check(&img, 1000), CLB_ERR_INVAL, "a chroma row of 5x3 has 6 bytes");
}

Test(image, too_large_sizes)
{
    struct clb_image img, before;
    const uint32_t max = 0xFFFFFFFF;

    memset(&before, 0x5A, sizeof before);
    img = before;
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, max, max, 0, 0), CLB_ERR_TOOBIG);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_RGB24, max, max, 0, 0), CLB_ERR_TOOBIG);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_GRAY8, max, max, (size_t)1 << 33, 0),
                 CLB_ERR_TOOBIG);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_GRAY8, 1, 3, (size_t)1 << 63, 0), CLB_ERR_TOOBIG);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 1, 3, (size_t)1 << 62, (size_t)1 << 63),
                 CLB_ERR_TOOBIG);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 1, 1, (size_t)1 << 63, (size_t)1 << 63),
                 CLB_OK);
    img = before;
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 1, 2, (size_t)1 << 63, 0), CLB_ERR_TOOBIG);
    cr_expect_eq(memcmp(&img, &before, sizeof img), 0, "written though it failed");

#if SIZE_MAX > 0xFFFFFFFF
    /* 32-bit arithmetic would wrap: 3 * 0xFFFFFFFF is 0xFFFFFFFD there. */
    img = make(CLB_PIXFMT_BGR24, max, 1, 0, 0);
    cr_expect_eq(clb_image_bytes(&img), UINT64_C(0x2FFFFFFFD));
    cr_expect_eq(clb_image_check(&img, max), CLB_ERR_TOOBIG);
    img = make(CLB_PIXFMT_NV12, max, 1, 0, 0);
    cr_expect_eq(img.plane[1].pitch, UINT64_C(0x100000000));
    cr_expect_eq(clb_image_bytes(&img), UINT64_C(0x1FFFFFFFF));
    img = make(CLB_PIXFMT_GRAY8, max, max, 0, 0);
    cr_expect_eq(clb_image_bytes(&img), UINT64_C(0xFFFFFFFE00000001));
#endif
}

Test(image, contradictory_layouts)
{
    const struct clb_image good = make(CLB_PIXFMT_NV12, 64, 48, 0, 0);
    const size_t plenty = (size_t)1 << 30;
    struct clb_image img;

    cr_assert_eq(clb_image_check(&good, plenty), CLB_OK);
    cr_expect_eq(clb_image_check(NULL, plenty), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_bytes(NULL), 0);
#define BAD(field, value, expected)                                                                \
    do {                                                                                           \
        img = good;                                                                                \
        img.field = value;                                                                         \
        cr_expect_eq(clb_image_check(&img, plenty), expected, #field " = " #value ": %d",          \
                     clb_image_check(&img, plenty));                                               \
    } while (0)
    BAD(width, 0, CLB_ERR_INVAL);
    BAD(height, 0, CLB_ERR_INVAL);
    BAD(num_planes, 0, CLB_ERR_INVAL);
    BAD(num_planes, 1, CLB_ERR_INVAL);
    BAD(num_planes, 3, CLB_ERR_INVAL);
    BAD(num_planes, 0xFFFFFFFF, CLB_ERR_INVAL);
    BAD(fmt, CLB_PIXFMT_UNKNOWN, CLB_ERR_INVAL);
    BAD(fmt, CLB_PIXFMT_COUNT, CLB_ERR_INVAL);
    BAD(fmt, (enum clb_pixfmt) - 1, CLB_ERR_INVAL);
    BAD(fmt, CLB_PIXFMT_I420, CLB_ERR_INVAL);
    BAD(fmt, CLB_PIXFMT_GRAY8, CLB_ERR_INVAL);
    BAD(matrix, (enum clb_matrix)3, CLB_ERR_INVAL);
    BAD(range, (enum clb_range)3, CLB_ERR_INVAL);
    BAD(bayer, (enum clb_bayer)5, CLB_ERR_INVAL);
    BAD(plane[0].pitch, 63, CLB_ERR_INVAL);
    BAD(plane[1].pitch, 0, CLB_ERR_INVAL);
    BAD(plane[0].pitch, SIZE_MAX, CLB_ERR_TOOBIG);
    BAD(plane[1].pitch, SIZE_MAX / 23 + 1, CLB_ERR_TOOBIG);
    BAD(plane[0].offset, SIZE_MAX, CLB_ERR_TOOBIG);
    BAD(plane[1].offset, SIZE_MAX - 64 * 24, CLB_ERR_TOOBIG);
    BAD(width, 0xFFFFFFFF, CLB_ERR_INVAL);
    BAD(height, 0xFFFFFFFF, CLB_ERR_TOOBIG);
#undef BAD
    img = good;
    img.plane[0].pitch = SIZE_MAX;
    cr_expect_eq(clb_image_bytes(&img), 0);
    img = good;
    img.plane[1].offset = SIZE_MAX;
    cr_expect_eq(clb_image_bytes(&img), 0);
}

Test(image, refused_arguments)
{
    struct clb_image img;

    cr_expect_eq(clb_image_init(NULL, CLB_PIXFMT_NV12, 2, 2, 0, 0), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 0, 2, 0, 0), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 2, 0, 0, 0), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 2, 2, 3, 0), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_NV12, 2, 2, 0, 48), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_UNKNOWN, 2, 2, 0, 0), CLB_ERR_INVAL);
    cr_expect_eq(clb_image_init(&img, CLB_PIXFMT_COUNT, 2, 2, 0, 0), CLB_ERR_INVAL);
}

Test(image, names)
{
    cr_expect_str_eq(clb_pixfmt_name(CLB_PIXFMT_NV12), "nv12");
    cr_expect_str_eq(clb_pixfmt_name(CLB_PIXFMT_UNKNOWN), "unknown");
    cr_expect_str_eq(clb_pixfmt_name(CLB_PIXFMT_COUNT), "unknown");
    cr_expect_str_eq(clb_pixfmt_name((enum clb_pixfmt) - 1), "unknown");
    for (int fmt = 1; fmt < CLB_PIXFMT_COUNT; fmt++) {
        const char *name = clb_pixfmt_name((enum clb_pixfmt)fmt);

        cr_expect_eq(clb_pixfmt_from_name(name), (enum clb_pixfmt)fmt, "%s", name);
    }
    cr_expect_eq(clb_pixfmt_from_name("NV12"), CLB_PIXFMT_NV12);
    cr_expect_eq(clb_pixfmt_from_name("Bgr24"), CLB_PIXFMT_BGR24);
    cr_expect_eq(clb_pixfmt_from_name("nv1"), CLB_PIXFMT_UNKNOWN);
    cr_expect_eq(clb_pixfmt_from_name("nv123"), CLB_PIXFMT_UNKNOWN);
    cr_expect_eq(clb_pixfmt_from_name("unknown"), CLB_PIXFMT_UNKNOWN);
    cr_expect_eq(clb_pixfmt_from_name(""), CLB_PIXFMT_UNKNOWN);
    cr_expect_eq(clb_pixfmt_from_name(NULL), CLB_PIXFMT_UNKNOWN);
}
