/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: byte-equal to what encoders of the releases wrote, bounded, and read back as meant. */
#include "depthai_kit.h"
#include "nop.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

static struct clb_image image(enum clb_pixfmt fmt, uint32_t w, uint32_t h, size_t pitch)
{
    struct clb_image img;
    cr_assert_eq(clb_image_init(&img, fmt, w, h, 0, 0), CLB_OK);
    if (pitch) {
        img.plane[0].pitch = pitch;
        if (img.num_planes == 2) {
            img.plane[1].pitch = pitch;
            img.plane[1].offset = pitch * h;
        }
    }
    return img;
}

/* The member of the outermost structure that is the last: transformation. */
static void take_transformation(clb_depthai_write_params *p, const struct trailer *t)
{
    struct clbi_nop_members all;

    cr_assert(clbi_nop_members(&all, t->bytes, t->metadata));
    p->transformation = all.member[all.total - 1].at;
    p->transformation_size = (size_t)(all.end - all.member[all.total - 1].at);
}

static void expect_bytes(const char *file, const clb_depthai_write_params *params)
{
    clb_depthai_write_params p = *params;
    uint8_t out[SAMPLE_MAX], small[SAMPLE_MAX];
    struct trailer t;
    size_t written = 0;

    sample_load(&t, sample_named(file));
    take_transformation(&p, &t);
    const int rc = clb_depthai_write(out, sizeof out, &written, &p);
    cr_assert_eq(rc, CLB_OK, "%s: %d", file, rc);
    cr_expect_eq(written, t.size, "%s: %zu", file, written);
    for (size_t i = 0; i < written && i < t.size; i++)
        cr_assert_eq(out[i], t.bytes[i], "%s: byte %zu is %02X", file, i, out[i]);

    /* Exactly enough, and every size that is too small: nothing behind it is touched. */
    for (size_t cap = 0; cap <= t.size; cap++) {
        memset(small, 0x5A, sizeof small);
        written = 7;
        cr_assert_eq(clb_depthai_write(cap ? small : NULL, cap, &written, &p),
                     cap < t.size ? CLB_ERR_TOOBIG : CLB_OK, "%s: %zu", file, cap);
        cr_assert_eq(written, cap < t.size ? 7 : t.size);
        for (size_t i = cap; i < sizeof small; i++)
            cr_assert_eq(small[i], 0x5A);
    }
}

Test(depthai_write, encoder)
{
    clb_depthai_write_params p = {
        .release = CLB_DEPTHAI_V3_4,
        .image = image(CLB_PIXFMT_BGR24, 300, 300, 0),
        .bytes_pp = 1,
        .source = image(CLB_PIXFMT_NV12, 1920, 1080, 0),
        .plane_offsets = 1,
        .sequence_num = 1234,
        .ts_ns = INT64_C(1700123456789),
        .ts_device_ns = INT64_C(1699987654321),
        .exposure_us = 8333,
        .iso = 400,
        .lens_position = -1,
        .wb_color_temp = 5600,
        .lens_position_raw = 0.25f,
    };
    expect_bytes("encoder/imgframe-v3.trailer.bin", &p);
    expect_bytes("encoder/imgframe-v3-min.trailer.bin", &p);
}

static clb_depthai_write_params real(enum clb_depthai_release release, struct clb_image img)
{
    clb_depthai_write_params p = {.struct_size = sizeof p,
                                  .release = release,
                                  .image = img,
                                  .sequence_num = 1234,
                                  .ts_ns = INT64_C(1700123456000),
                                  .ts_device_ns = INT64_C(1699987654000)};
    return p;
}

Test(depthai_write, release_3_10)
{
    clb_depthai_write_params p = real(CLB_DEPTHAI_V3_10, image(CLB_PIXFMT_BGR24, 300, 300, 0));

    expect_bytes("v3.10/imgframe-bgr888i-300x300.trailer.bin", &p);
    p.release = CLB_DEPTHAI_ANY; /* the same */
    expect_bytes("v3.10/imgframe-bgr888i-300x300.trailer.bin", &p);
    p.ts_system_ns = INT64_C(1767323045678901000);
    p.category = 3;
    p.camera_socket = 2;
    expect_bytes("v3.10/imgframe-full-bgr888i.trailer.bin", &p);
    p = real(CLB_DEPTHAI_V3_10, image(CLB_PIXFMT_NV12, 64, 48, 80));
    expect_bytes("v3.10/imgframe-nv12-64x48-stride80.trailer.bin", &p);
    p = real(CLB_DEPTHAI_V3_10, image(CLB_PIXFMT_RAW16, 60, 40, 128));
    expect_bytes("v3.10/imgframe-raw16-60x40-stride128.trailer.bin", &p);
    p.image.fmt = CLB_PIXFMT_GRAY16; /* depth has no type of its own */
    expect_bytes("v3.10/imgframe-raw16-60x40-stride128.trailer.bin", &p);
}

Test(depthai_write, release_3_4)
{
    clb_depthai_write_params p = real(CLB_DEPTHAI_V3_4, image(CLB_PIXFMT_NV12, 64, 48, 80));
    clb_depthai_info info;
    struct trailer t;

    /* cam is left-over memory in these: whatever is there. */
    const struct sample *s = sample_named("v3.4/imgframe-nv12-64x48-stride80.trailer.bin");
    sample_load(&t, s);
    cr_assert_eq(parse_at_wall(&info, t.bytes, t.metadata, 5760, 2, CLB_DEPTHAI_V3_4), CLB_OK);
    p.exposure_us = (int32_t)info.exposure_us;
    p.iso = info.iso;
    p.lens_position = info.lens_position;
    p.wb_color_temp = info.wb_color_temp;
    p.lens_position_raw = info.lens_position_raw;
    p.ts_system_ns = 5; /* ignored: this release has no place for it */
    expect_bytes(s->file, &p);
    p.image = image(CLB_PIXFMT_BGR24, 300, 300, 0);
    p.category = 3;
    p.camera_socket = 2;
    expect_bytes("v3.4/imgframe-full-bgr888i.trailer.bin", &p);
}

/* The formats that depthai has, packed and padded, with the planes' offsets and without. */
Test(depthai_write, read_back)
{
    static const size_t aligns[] = {1, 2, 16, 64};
    size_t frames = 0;

    for (int fmt = 1; fmt < CLB_PIXFMT_COUNT; fmt++)
        for (uint32_t w = 1; w <= 33; w++)
            for (size_t k = 0; k < 16; k++) {
                clb_depthai_write_params p = {.release = k & 4 ? CLB_DEPTHAI_V3_4 : 0,
                                              .plane_offsets = (k & 8) != 0,
                                              .sequence_num = -1234567,
                                              .ts_ns = 1,
                                              .category = UINT32_MAX};
                uint8_t out[CLB_DEPTHAI_TRAILER_MAX];
                clb_depthai_info info;
                size_t n;

                cr_assert_eq(
                    clb_image_init(&p.image, (enum clb_pixfmt)fmt, w, w % 7 + 1, aligns[k & 3], 0),
                    CLB_OK);
                const int rc = clb_depthai_write(out, sizeof out, &n, &p);
                if (rc == CLB_ERR_NOSYS || rc == CLB_ERR_INVAL)
                    continue;
                cr_assert_eq(rc, CLB_OK);
                frames++;
                cr_assert_eq(parse_at_wall(&info, out, n - TRAILER_TAIL, clb_image_bytes(&p.image),
                                           2, p.release),
                             CLB_OK);
                if (fmt == CLB_PIXFMT_GRAY16)
                    info.image.fmt = CLB_PIXFMT_GRAY16;
                cr_expect_eq(memcmp(&info.image, &p.image, sizeof p.image), 0, "%s %u",
                             clb_pixfmt_name((enum clb_pixfmt)fmt), w);
                cr_expect_eq(info.sequence_num, -1234567);
                cr_expect_eq(info.category, UINT32_MAX);
            }
    /* 16 formats; chroma of YUV420p, and that of odd widths in NV12, can be padded in ways that
     * depthai has no words for. */
    cr_expect_gt(frames, 7500, "%zu", frames);
}

Test(depthai_write, what_depthai_cannot_say)
{
    static const enum clb_pixfmt missing[] = {CLB_PIXFMT_YV12, CLB_PIXFMT_UYVY, CLB_PIXFMT_BGRA,
                                              CLB_PIXFMT_RGBPF32};
    clb_depthai_write_params good = real(0, image(CLB_PIXFMT_NV12, 64, 48, 0)), p;
    uint8_t out[CLB_DEPTHAI_TRAILER_MAX];
    size_t n = 7;

#define TRY(expect, change)                                                                        \
    do {                                                                                           \
        p = good;                                                                                  \
        change;                                                                                    \
        const int rc = clb_depthai_write(out, sizeof out, &n, &p);                                 \
        cr_expect_eq(rc, expect, "%s: %d", #change, rc);                                           \
    } while (0)
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        TRY(CLB_ERR_NOSYS, p.image = image(missing[i], 8, 8, 0));
        TRY(CLB_ERR_NOSYS, p.source = image(missing[i], 8, 8, 0));
    }
    TRY(CLB_ERR_NOSYS, p.release = CLB_DEPTHAI_V2);
    TRY(CLB_ERR_NOSYS, p.release = CLB_DEPTHAI_V3_0);
    TRY(CLB_ERR_NOSYS, p.release = CLB_DEPTHAI_V3_8);
    TRY(CLB_ERR_INVAL, p.release = (enum clb_depthai_release)99);
    TRY(CLB_ERR_INVAL, p.image.fmt = CLB_PIXFMT_UNKNOWN);
    TRY(CLB_ERR_INVAL, p.image.fmt = CLB_PIXFMT_COUNT);
    TRY(CLB_ERR_INVAL, p.image.width = 0);
    TRY(CLB_ERR_INVAL, p.image.plane[0].pitch = 63);
    TRY(CLB_ERR_INVAL, p.image.plane[1].pitch = 66);
    TRY(CLB_ERR_INVAL, p.source.fmt = CLB_PIXFMT_NV12);
    TRY(CLB_ERR_INVAL, p.ts_ns = -1);
    TRY(CLB_ERR_INVAL, p.ts_device_ns = -1);
    TRY(CLB_ERR_INVAL, p.ts_system_ns = -1);
    TRY(CLB_ERR_INVAL, p.plane_offsets = 2);
    TRY(CLB_ERR_INVAL, p.struct_size = 8);
#if SIZE_MAX > UINT32_MAX
    TRY(CLB_ERR_INVAL, p.image.plane[0].pitch = p.image.plane[1].pitch = (size_t)1 << 32);
    TRY(CLB_ERR_INVAL, p.image.plane[1].offset = (size_t)1 << 32);
#endif
    cr_expect_eq(n, 7);
    cr_expect_eq(clb_depthai_write(out, sizeof out, &n, NULL), CLB_ERR_INVAL);
    cr_expect_eq(clb_depthai_write(NULL, 5, &n, &good), CLB_ERR_INVAL);
    cr_expect_eq(clb_depthai_write(out, sizeof out, NULL, &good), CLB_ERR_INVAL);
    /* Planes that do not follow each other are told by their offsets. */
    TRY(CLB_OK, p.image.plane[1].offset = 5000);
    TRY(CLB_OK, p.image.plane[0].offset = 5000);
}

Test(depthai_write, transformation)
{
    clb_depthai_write_params good = real(CLB_DEPTHAI_V3_4, image(CLB_PIXFMT_NV12, 64, 48, 0)), p;
    static const char members[] = {(char)0xB9, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static uint8_t big[51300], out[52000];
    size_t n = 0;

    TRY(CLB_OK, (p.transformation = members, p.transformation_size = sizeof members));
    TRY(CLB_ERR_INVAL, (p.transformation = members, p.transformation_size = 0));
    TRY(CLB_ERR_INVAL, (p.transformation = NULL, p.transformation_size = 13));
    TRY(CLB_ERR_INVAL, (p.transformation = members, p.transformation_size = sizeof members - 1));
    TRY(CLB_ERR_INVAL, (p.release = CLB_DEPTHAI_V3_10, p.transformation = members,
                        p.transformation_size = sizeof members));
    TRY(CLB_ERR_INVAL, (p.transformation = members + 2, p.transformation_size = 1));

    /* The whole metadata ends at 51200 bytes. */
    memcpy(big, members, 12);
    big[12] = 0xBD;
    big[13] = 0x81;
    for (size_t total = 51100; total <= 51250; total += 50) {
        const size_t text = total - 16;
        big[14] = (uint8_t)(text & 0xFF);
        big[15] = (uint8_t)(text >> 8);
        p = good;
        p.transformation = big;
        p.transformation_size = total;
        const int rc = clb_depthai_write(out, sizeof out, &n, &p);
        cr_expect_eq(rc,
                     total == 51100  ? CLB_OK
                     : total > 51200 ? CLB_ERR_INVAL
                                     : CLB_ERR_TOOBIG,
                     "%zu: %d", total, rc);
    }
    cr_expect(n <= 51200 + TRAILER_TAIL && n > 51100);
#undef TRY
}

Test(depthai_write, largest_numbers_fit)
{
    for (int v3_10 = 0; v3_10 < 2; v3_10++) {
        struct clb_image huge = image(CLB_PIXFMT_RGBP, 1, 1, 0);
        huge.width = huge.height = 65536; /* as long as the largest: four bytes */
        for (int i = 0; i < 3; i++)
            huge.plane[i] = (struct clb_plane){.offset = UINT32_MAX, .pitch = UINT32_MAX};
        clb_depthai_write_params p = {.release = v3_10 ? CLB_DEPTHAI_V3_10 : CLB_DEPTHAI_V3_4,
                                      .image = huge,
                                      .bytes_pp = UINT32_MAX,
                                      .source = huge,
                                      .plane_offsets = 1,
                                      .sequence_num = INT64_MIN,
                                      .ts_ns = INT64_MAX,
                                      .ts_device_ns = INT64_MAX,
                                      .ts_system_ns = INT64_MAX,
                                      .camera_socket = UINT32_MAX,
                                      .category = UINT32_MAX,
                                      .exposure_us = INT32_MIN,
                                      .iso = INT32_MIN,
                                      .lens_position = INT32_MIN,
                                      .wb_color_temp = INT32_MIN,
                                      .lens_position_raw = 3.0f};
        uint8_t out[CLB_DEPTHAI_TRAILER_MAX];
        size_t n = 0;
#if SIZE_MAX == UINT32_MAX
        for (int i = 0; i < 3; i++)
            huge.plane[i].pitch = 1;
        huge.width = huge.height = 1;
        p.image = p.source = huge;
#endif
        cr_assert_eq(clb_depthai_write(out, sizeof out, &n, &p), CLB_OK, "%d", v3_10);
        cr_expect_lt(n, 600, "%zu", n);
    }
}

/* The shortest form of every value, by its sign (wire section 9.2). */
Test(depthai_write, integers)
{
    static const struct {
        int64_t value;
        uint8_t bytes[9];
        size_t size;
    } rows[] = {
        {0, {0}, 1},
        {127, {127}, 1},
        {-1, {0xFF}, 1},
        {-64, {0xC0}, 1},
        {-65, {0x84, 0xBF}, 2},
        {-128, {0x84, 0x80}, 2},
        {128, {0x85, 0x80, 0}, 3},
        {-129, {0x85, 0x7F, 0xFF}, 3},
        {1700, {0x85, 0xA4, 0x06}, 3},
        {INT16_MIN, {0x85, 0, 0x80}, 3},
        {INT16_MAX, {0x85, 0xFF, 0x7F}, 3},
        {INT16_MAX + 1, {0x86, 0, 0x80, 0, 0}, 5},
        {INT32_MIN, {0x86, 0, 0, 0, 0x80}, 5},
        {INT32_MAX, {0x86, 0xFF, 0xFF, 0xFF, 0x7F}, 5},
        {(int64_t)INT32_MAX + 1, {0x87, 0, 0, 0, 0x80, 0, 0, 0, 0}, 9},
        {INT64_MIN, {0x87, 0, 0, 0, 0, 0, 0, 0, 0x80}, 9},
    };
    static const struct {
        uint32_t value;
        uint8_t bytes[5];
        size_t size;
    } unsigned_rows[] = {
        {127, {127}, 1},
        {128, {0x80, 128}, 2},
        {255, {0x80, 255}, 2},
        {256, {0x81, 0, 1}, 3},
        {300, {0x81, 0x2C, 0x01}, 3},
        {65535, {0x81, 0xFF, 0xFF}, 3},
        {65536, {0x82, 0, 0, 1, 0}, 5},
        {UINT32_MAX, {0x82, 0xFF, 0xFF, 0xFF, 0xFF}, 5},
    };
    clb_depthai_write_params p = real(CLB_DEPTHAI_V3_10, image(CLB_PIXFMT_GRAY8, 640, 400, 0));
    uint8_t out[CLB_DEPTHAI_TRAILER_MAX];
    struct clbi_nop_members all;
    size_t n = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.sequence_num = rows[i].value;
        cr_assert_eq(clb_depthai_write(out, sizeof out, &n, &p), CLB_OK);
        cr_assert(clbi_nop_members(&all, out, n - TRAILER_TAIL));
        cr_expect_eq(all.member[4].at - all.member[3].at, (ptrdiff_t)rows[i].size, "row %zu", i);
        cr_expect_eq(memcmp(all.member[3].at, rows[i].bytes, rows[i].size), 0, "row %zu", i);
    }
    for (size_t i = 0; i < sizeof unsigned_rows / sizeof *unsigned_rows; i++) {
        p.category = unsigned_rows[i].value;
        cr_assert_eq(clb_depthai_write(out, sizeof out, &n, &p), CLB_OK);
        cr_assert(clbi_nop_members(&all, out, n - TRAILER_TAIL));
        cr_expect_eq(all.member[8].at - all.member[7].at, (ptrdiff_t)unsigned_rows[i].size,
                     "row %zu", i);
        cr_expect_eq(memcmp(all.member[7].at, unsigned_rows[i].bytes, unsigned_rows[i].size), 0,
                     "row %zu", i);
    }
}

/* Without one of the caller's: the identity, as big as the image. */
Test(depthai_write, identity)
{
    static const uint8_t end[] = {0x81, 0x80, 0x02, 0x81, 0x90, 0x01, 0x81,
                                  0x80, 0x02, 0x81, 0x90, 0x01, 0xBA, 0x00};
    clb_depthai_write_params p = real(CLB_DEPTHAI_V3_4, image(CLB_PIXFMT_GRAY8, 640, 400, 0));
    uint8_t out[CLB_DEPTHAI_TRAILER_MAX];
    struct clbi_nop_members all;
    size_t n = 0;

    for (int v3_10 = 0; v3_10 < 2; v3_10++) {
        p.release = v3_10 ? CLB_DEPTHAI_V3_10 : CLB_DEPTHAI_V3_4;
        cr_assert_eq(clb_depthai_write(out, sizeof out, &n, &p), CLB_OK);
        cr_assert(clbi_nop_members(&all, out, n - TRAILER_TAIL));
        cr_expect_eq(all.total, v3_10 ? 10 : 9);
        cr_expect_eq(all.member[all.total - 1].count, v3_10 ? 12 : 11);
        cr_expect_eq(memcmp(all.end - sizeof end, end, sizeof end), 0, "sizes, no crops");
    }
}
