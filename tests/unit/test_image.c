/* SPDX-License-Identifier: Apache-2.0 */
/* Image layouts: shapes of odd sizes, padding, limits of untrusted numbers, names. */
#include <clbridge/image.h>

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

static const enum clb_pixfmt supported[] = {CLB_PIXFMT_NV12, CLB_PIXFMT_RGB24, CLB_PIXFMT_BGR24,
                                            CLB_PIXFMT_GRAY8};

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
    BAD(fmt, CLB_PIXFMT_NV21, CLB_ERR_NOSYS);
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

    for (int fmt = 1; fmt < CLB_PIXFMT_COUNT; fmt++) {
        int expected = CLB_ERR_NOSYS;

        for (size_t i = 0; i < sizeof supported / sizeof *supported; i++)
            if ((int)supported[i] == fmt)
                expected = CLB_OK;
        cr_expect_eq(clb_image_init(&img, (enum clb_pixfmt)fmt, 4, 4, 0, 0), expected, "%s",
                     clb_pixfmt_name((enum clb_pixfmt)fmt));
    }
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
