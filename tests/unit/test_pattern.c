/* SPDX-License-Identifier: Apache-2.0 */
/* The test patterns against their definition, and that verification finds every kind of damage. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <clbridge/common.h>

#include "crc32.h"
#include "rgb.h"
#include "verify.h"

static const enum clb_pixfmt formats[] = {CLB_PIXFMT_NV12, CLB_PIXFMT_RGB24, CLB_PIXFMT_BGR24,
                                          CLB_PIXFMT_GRAY8};
#define NUM_FORMATS (sizeof formats / sizeof formats[0])

static bool is_rgb(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_RGB24 || fmt == CLB_PIXFMT_BGR24;
}

static struct pattern bars(enum clb_pixfmt fmt, uint32_t w, uint32_t h, size_t pitch)
{
    struct clb_image image;
    struct pattern p;

    cr_assert_eq(pattern_layout(&image, fmt, w, h, pitch), CLB_OK);
    cr_assert_eq(pattern_init(&p, PATTERN_BARS, &image, 0, 0), CLB_OK);
    return p;
}

Test(crc, known_answers)
{
    cr_expect_eq(pattern_crc16((const uint8_t *)"123456789", 9), 0x29B1);
    cr_expect_eq(crc32_of("123456789", 9), 0xCBF43926u);
    cr_expect_eq(crc32_of("", 0), 0u);
    cr_expect_eq(crc32_more(crc32_more(0, "1234", 4), "56789", 5), 0xCBF43926u);
}

/* One bit at a time, as the definition reads. */
static uint32_t slow_crc32(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

Test(crc, crc32_at_every_length_and_offset)
{
    uint8_t bytes[80];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (size_t at = 0; at < 8; at++)
        for (size_t n = 0; n + at <= sizeof bytes; n++)
            cr_assert_eq(crc32_of(bytes + at, n), slow_crc32(bytes + at, n), "at %zu, %zu bytes",
                         at, n);
}

Test(pattern, counter_is_its_formula)
{
    static const size_t sizes[] = {0, 1, 7, 8, 9, 255, 65536, 65537, 200001};
    static const uint64_t numbers[] = {0, 1, 255, 256, (UINT64_C(1) << 40) + 3};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            uint64_t n = numbers[k];
            struct pattern p;

            cr_assert_eq(pattern_init(&p, PATTERN_COUNTER, NULL, sizes[s], 1), CLB_OK);
            pattern_render(&p, n);
            for (size_t i = 0; i < sizes[s]; i++) {
                unsigned want = i < 8 ? n >> 8 * i & 255 : (7 * i + 13 * (i >> 8) + n) & 255;

                cr_assert_eq(p.data[i], want, "size %zu, frame %llu, byte %zu: %u, not %u",
                             sizes[s], (unsigned long long)n, i, p.data[i], want);
            }
            pattern_free(&p);
        }
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

Test(pattern, noise_is_its_formula)
{
    const uint64_t g = UINT64_C(0x9E3779B97F4A7C15), seed = 77, n = 12;
    uint64_t s = mix(seed + mix(n + g));
    struct pattern p;

    cr_assert_eq(pattern_init(&p, PATTERN_NOISE, NULL, 8 * 1000 + 5, seed), CLB_OK);
    pattern_render(&p, n);
    for (size_t i = 0; i < p.size; i++)
        cr_assert_eq(p.data[i], (mix(s + (i / 8 + 1) * g) >> 8 * (i % 8)) & 255, "byte %zu", i);
    pattern_free(&p);
}

Test(pattern, bars_carry_the_code_in_cells)
{
    static const uint32_t numbers[] = {0, 1, 299, 0x80000001u, UINT32_MAX};

    for (size_t f = 0; f < NUM_FORMATS; f++)
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            struct pattern p = bars(formats[f], 320, 240, 1024);
            uint32_t n = numbers[k], read;
            const uint8_t be[4] = {n >> 24, n >> 16 & 255, n >> 8 & 255, n & 255};
            uint64_t code = (uint64_t)n << 16 | pattern_crc16(be, 4);
            unsigned bpp = is_rgb(formats[f]) ? 3 : 1;

            pattern_render(&p, n);
            for (unsigned y = 0; y < 24; y++)
                for (unsigned x = 0; x < 128 * bpp; x++) {
                    unsigned cell = y / 8 * 16 + x / bpp / 8;
                    bool one = code >> (47 - cell) & 1;
                    uint8_t want = is_rgb(formats[f]) ? (one ? 255 : 0) : (one ? 235 : 16);

                    cr_assert_eq(p.data[1024 * y + x], want,
                                 "%s frame %u row %u byte %u: %u, not %u",
                                 clb_pixfmt_name(formats[f]), n, y, x, p.data[1024 * y + x], want);
                }
            cr_assert(pattern_read_code(&p.image, p.data, &read));
            cr_assert_eq(read, n);
            pattern_free(&p);
        }
}

Test(pattern, bars_redrawn_are_bars_drawn_anew)
{
    for (size_t f = 0; f < NUM_FORMATS; f++) {
        struct pattern used = bars(formats[f], 1920, 1080, 0), fresh;

        for (uint32_t n = 0; n < 120; n += 7)
            pattern_render(&used, n);
        pattern_render(&used, 9876543);
        fresh = bars(formats[f], 1920, 1080, 0);
        pattern_render(&fresh, 9876543);
        cr_assert_eq(used.size, fresh.size);
        cr_assert_eq(memcmp(used.data, fresh.data, used.size), 0, "%s",
                     clb_pixfmt_name(formats[f]));
        pattern_free(&used);
        pattern_free(&fresh);
    }
}

Test(pattern, bars_have_their_colours_and_neutral_chroma_below_black_and_white)
{
    struct pattern p = bars(CLB_PIXFMT_NV12, 1920, 1080, 2048);
    const uint8_t *chroma = p.data + p.image.plane[1].offset;

    pattern_render(&p, 5);
    /* The second bar is yellow: BT.601 limited range of 75 % (191, 191, 0). */
    cr_expect_eq(p.data[2048 * 500 + 360], 162);
    cr_expect_eq(chroma[2048 * 250 + 360], 44);
    cr_expect_eq(chroma[2048 * 250 + 361], 142);
    for (unsigned y = 0; y < 12; y++)
        for (unsigned x = 0; x < 128; x++)
            cr_assert_eq(chroma[2048 * y + x], 128);
    for (unsigned y = 0; y < 1620; y++)
        for (unsigned x = 1920; x < 2048; x++)
            cr_assert_eq(p.data[2048 * y + x], 0, "padding of row %u", y);
    pattern_free(&p);
}

Test(pattern, bars_need_room_for_the_code)
{
    struct clb_image image;
    struct pattern p;

    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_GRAY8, 127, 24, 0), CLB_OK);
    cr_expect_eq(pattern_init(&p, PATTERN_BARS, &image, 0, 0), CLB_ERR_INVAL);
    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_GRAY8, 128, 23, 0), CLB_OK);
    cr_expect_eq(pattern_init(&p, PATTERN_BARS, &image, 0, 0), CLB_ERR_INVAL);
    for (uint32_t w = 128; w < 200; w += 3)
        for (uint32_t h = 24; h < 90; h++) {
            p = bars(CLB_PIXFMT_NV12, w, h, 0);
            pattern_render(&p, UINT32_MAX);
            pattern_free(&p);
        }
    cr_expect_eq(pattern_layout(&image, CLB_PIXFMT_RGB24, 640, 480, 1919), CLB_ERR_INVAL);
    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_I420, 640, 480, 0), CLB_OK);
    cr_expect_eq(pattern_init(&p, PATTERN_BARS, &image, 0, 0), CLB_ERR_NOSYS);
}

/* Shapes by hand: what the patterns take from the library is what is meant. */
Test(pattern, layouts_of_every_format)
{
    static const struct {
        const char *name;
        size_t row_bytes[3], rows[3]; /* of 5x3 pixels */
    } want[] = {
        {"gray8", {5}, {3}},
        {"gray16", {10}, {3}},
        {"nv12", {5, 6}, {3, 2}},
        {"nv21", {5, 6}, {3, 2}},
        {"i420", {5, 3, 3}, {3, 2, 2}},
        {"yv12", {5, 3, 3}, {3, 2, 2}},
        {"yuyv", {12}, {3}},
        {"uyvy", {12}, {3}},
        {"rgb24", {15}, {3}},
        {"bgr24", {15}, {3}},
        {"rgbp", {5, 5, 5}, {3, 3, 3}},
        {"bgrp", {5, 5, 5}, {3, 3, 3}},
        {"rgba", {20}, {3}},
        {"bgra", {20}, {3}},
        {"raw8", {5}, {3}},
        {"raw10", {10}, {3}},
        {"raw12", {10}, {3}},
        {"raw16", {10}, {3}},
        {"raw10p", {10}, {3}},
        {"rgbpf32", {20, 20, 20}, {3, 3, 3}},
    };

    cr_assert_eq(sizeof want / sizeof want[0], (size_t)CLB_PIXFMT_COUNT - 1);
    for (size_t f = 0; f < sizeof want / sizeof want[0]; f++) {
        struct clb_image packed, wide;
        size_t at = 0, end = 0;

        cr_assert_eq(pattern_layout(&packed, (enum clb_pixfmt)(f + 1), 5, 3, 0), CLB_OK);
        cr_assert_eq(pattern_layout(&wide, (enum clb_pixfmt)(f + 1), 5, 3, 65), CLB_OK);
        cr_expect_str_eq(clb_pixfmt_name(packed.fmt), want[f].name);
        for (unsigned i = 0; i < packed.num_planes; i++) {
            bool half = i && (packed.fmt == CLB_PIXFMT_I420 || packed.fmt == CLB_PIXFMT_YV12);
            size_t rows, row_bytes, pitch = half ? 33 : 65;

            pattern_plane_shape(&packed, i, &rows, &row_bytes);
            cr_expect_eq(rows, want[f].rows[i], "%s plane %u", want[f].name, i);
            cr_expect_eq(row_bytes, want[f].row_bytes[i], "%s plane %u", want[f].name, i);
            cr_expect_eq(packed.plane[i].pitch, row_bytes);
            cr_expect_eq(packed.plane[i].offset, at);
            cr_expect_eq(wide.plane[i].pitch, pitch, "%s plane %u", want[f].name, i);
            cr_expect_eq(wide.plane[i].offset, end);
            at += rows * row_bytes;
            end += rows * pitch;
        }
        cr_expect_eq(pattern_frame_bytes(&packed), at);
        cr_expect_eq(pattern_frame_bytes(&wide), end);
    }
}

/* ---- verification ---------------------------------------------------------------------------- */

static enum verify_result look(struct verify *v, const struct pattern *p,
                               const struct clb_image *image, size_t size, uint64_t seq)
{
    return verify_frame(v, &(struct verify_view){p->data, size, image, NULL}, seq);
}

static enum verify_result look_whole(struct verify *v, const struct pattern *p, uint64_t seq)
{
    return look(v, p, p->image.fmt ? &p->image : NULL, p->size, seq);
}

Test(verify, every_changed_pixel_is_found_and_padding_is_not_looked_at)
{
    for (size_t f = 0; f < NUM_FORMATS; f++) {
        struct pattern p = bars(formats[f], 130, 60, 512);
        struct verify v;

        verify_init(&v, VERIFY_BARS, 1);
        pattern_render(&p, 3);
        cr_assert_eq(look_whole(&v, &p, 3), VERIFY_GOOD, "%s", v.why);
        for (size_t i = 0; i < p.size; i++) {
            size_t rows, row_bytes, plane = i < 512 * 60 ? 0 : 1;
            bool pixel;

            pattern_plane_shape(&p.image, (unsigned)plane, &rows, &row_bytes);
            pixel = i % 512 < row_bytes;
            p.data[i] ^= 0x80;
            cr_assert_eq(look_whole(&v, &p, 3), pixel ? VERIFY_BAD : VERIFY_GOOD, "%s byte %zu",
                         clb_pixfmt_name(formats[f]), i);
            p.data[i] ^= 0x80;
        }
        cr_assert_eq(look(&v, &p, &p.image, p.size - 512, 3), VERIFY_BAD);
        verify_free(&v);
        pattern_free(&p);
    }
}

/* The bytes of *p, sent in the layout `sent`, as they lie with aligned rows; gaps are 0xee. */
static uint8_t *placed(const struct pattern *p, const struct clb_image *sent,
                       const struct clb_image *here)
{
    uint8_t *to = malloc(clb_image_bytes(here));

    memset(to, 0xee, clb_image_bytes(here));
    for (unsigned i = 0; i < sent->num_planes; i++) {
        size_t rows, row_bytes;

        pattern_plane_shape(sent, i, &rows, &row_bytes);
        for (size_t y = 0; y < rows; y++)
            memcpy(to + here->plane[i].offset + here->plane[i].pitch * y,
                   p->data + sent->plane[i].offset + sent->plane[i].pitch * y, row_bytes);
    }
    return to;
}

/* In both layouts, whatever the pitch of the sender: rows are looked at, gaps are not. */
static void look_at_placed(enum pattern_kind kind, enum verify_mode mode, enum clb_pixfmt fmt,
                           uint32_t w, uint32_t h, size_t pitch)
{
    struct clb_image sent, here;
    struct verify_view view;
    struct pattern p;
    struct verify v;
    uint8_t *data;

    cr_assert_eq(pattern_layout(&sent, fmt, w, h, pitch), CLB_OK);
    cr_assert_eq(clb_image_init(&here, fmt, w, h, 64, 0), CLB_OK);
    cr_assert_eq(pattern_init(&p, kind, NULL, pattern_frame_bytes(&sent), 1), CLB_OK);
    pattern_render(&p, 7);
    data = placed(&p, &sent, &here);
    view = (struct verify_view){data, clb_image_bytes(&here), &here, &sent};
    verify_init(&v, mode, 1);
    cr_assert_eq(verify_frame(&v, &view, 7), VERIFY_GOOD, "%s %ux%u: %s", clb_pixfmt_name(fmt), w,
                 h, v.why);
    for (size_t i = 0; i < view.size; i++) {
        bool gap = data[i] == 0xee;

        data[i] ^= 0x40;
        /* Some pixels are 0xee as well. */
        if (!gap)
            cr_assert_eq(verify_frame(&v, &view, 7), VERIFY_BAD, "%s byte %zu",
                         clb_pixfmt_name(fmt), i);
        data[i] ^= 0x40;
    }
    memset(data, 0xee, view.size);
    free(data);
    data = placed(&p, &sent, &here);
    for (unsigned i = 0; i < here.num_planes; i++) {
        size_t rows, row_bytes;

        pattern_plane_shape(&here, i, &rows, &row_bytes);
        for (size_t y = 0; y + 1 < rows; y++)
            memset(data + here.plane[i].offset + here.plane[i].pitch * y + row_bytes, 0x11,
                   here.plane[i].pitch - row_bytes);
    }
    view.pixels = data;
    cr_expect_eq(verify_frame(&v, &view, 7), VERIFY_GOOD, "%s", v.why);
    view.size--;
    cr_expect_eq(verify_frame(&v, &view, 7), VERIFY_BAD);
    verify_free(&v);
    pattern_free(&p);
    free(data);
}

Test(verify, rows_that_were_moved)
{
    look_at_placed(PATTERN_COUNTER, VERIFY_COUNTER, CLB_PIXFMT_BGR24, 30, 7, 0);
    look_at_placed(PATTERN_COUNTER, VERIFY_COUNTER, CLB_PIXFMT_NV12, 37, 9, 0);
    look_at_placed(PATTERN_COUNTER, VERIFY_COUNTER, CLB_PIXFMT_NV12, 37, 9, 50);
    look_at_placed(PATTERN_COUNTER, VERIFY_COUNTER, CLB_PIXFMT_GRAY8, 1, 1, 0);
    look_at_placed(PATTERN_COUNTER, VERIFY_COUNTER, CLB_PIXFMT_GRAY8, 3, 5, 0);
    look_at_placed(PATTERN_COUNTER, VERIFY_COUNTER, CLB_PIXFMT_I420, 21, 5, 33);
    look_at_placed(PATTERN_NOISE, VERIFY_NOISE, CLB_PIXFMT_NV12, 37, 9, 50);
    look_at_placed(PATTERN_NOISE, VERIFY_NOISE, CLB_PIXFMT_RGBPF32, 5, 3, 0);
}

Test(verify, an_old_picture_is_an_error_and_a_gap_is_not)
{
    struct pattern p = bars(CLB_PIXFMT_NV12, 320, 240, 0);
    struct verify v;

    verify_init(&v, VERIFY_BARS, 1);
    pattern_render(&p, 10); /* the sender was at 10 when the first packet came */
    cr_expect_eq(look_whole(&v, &p, 0), VERIFY_GOOD);
    cr_expect_eq(look_whole(&v, &p, 1), VERIFY_BAD);
    pattern_render(&p, 14);
    cr_expect_eq(look_whole(&v, &p, 4), VERIFY_GOOD);
    verify_free(&v);
    pattern_free(&p);

    verify_init(&v, VERIFY_COUNTER, 1);
    cr_assert_eq(pattern_init(&p, PATTERN_COUNTER, NULL, 1000, 1), CLB_OK);
    pattern_render(&p, 0);
    cr_expect_eq(look_whole(&v, &p, 0), VERIFY_GOOD);
    cr_expect_eq(look_whole(&v, &p, 1), VERIFY_BAD);
    p.data[999] ^= 1;
    cr_expect_eq(look_whole(&v, &p, 0), VERIFY_BAD);
    verify_free(&v);
    pattern_free(&p);
}

Test(verify, noise_needs_the_seed)
{
    struct pattern p;
    struct verify v;

    cr_assert_eq(pattern_init(&p, PATTERN_NOISE, NULL, 1001, 5), CLB_OK);
    pattern_render(&p, 8);
    verify_init(&v, VERIFY_NOISE, 5);
    cr_expect_eq(look_whole(&v, &p, 8), VERIFY_GOOD);
    cr_expect_eq(look_whole(&v, &p, 9), VERIFY_BAD);
    verify_free(&v);
    verify_init(&v, VERIFY_NOISE, 6);
    cr_expect_eq(look_whole(&v, &p, 8), VERIFY_BAD);
    verify_free(&v);
    pattern_free(&p);
}

Test(verify, automatic_choice_by_the_first_frame)
{
    struct pattern picture = bars(CLB_PIXFMT_RGB24, 320, 240, 0), counter, noise;
    struct verify v;

    pattern_render(&picture, 2);
    cr_assert_eq(pattern_init(&counter, PATTERN_COUNTER, NULL, picture.size, 1), CLB_OK);
    cr_assert_eq(pattern_init(&noise, PATTERN_NOISE, NULL, picture.size, 1), CLB_OK);
    pattern_render(&counter, 0);
    pattern_render(&noise, 0);

    verify_init(&v, VERIFY_AUTO, 1);
    cr_expect_eq(look_whole(&v, &picture, 0), VERIFY_GOOD);
    cr_expect_eq(v.mode, VERIFY_BARS);
    cr_expect_eq(look_whole(&v, &counter, 1), VERIFY_BAD);
    verify_free(&v);

    verify_init(&v, VERIFY_AUTO, 1); /* without a layout bars are nothing known */
    cr_expect_eq(look(&v, &picture, NULL, picture.size, 0), VERIFY_UNKNOWN);
    cr_expect_eq(v.mode, VERIFY_OFF);
    verify_free(&v);

    verify_init(&v, VERIFY_AUTO, 1);
    cr_expect_eq(look_whole(&v, &counter, 0), VERIFY_GOOD);
    cr_expect_eq(v.mode, VERIFY_COUNTER);
    verify_free(&v);

    verify_init(&v, VERIFY_AUTO, 1);
    counter.data[counter.size - 1] ^= 1;
    cr_expect_eq(look_whole(&v, &counter, 0), VERIFY_UNKNOWN);
    verify_free(&v);

    verify_init(&v, VERIFY_AUTO, 1);
    cr_expect_eq(look_whole(&v, &noise, 0), VERIFY_UNKNOWN);
    cr_expect_eq(verify_frame(&v, &(struct verify_view){0}, 1), VERIFY_UNKNOWN);
    verify_free(&v);
    pattern_free(&picture);
    pattern_free(&counter);
    pattern_free(&noise);
}

/* ---- the processor's pictures ---------------------------------------------------------------- */

static int rounded(double value)
{
    value = floor(value + 0.5);
    return value < 0 ? 0 : value > 255 ? 255 : (int)value;
}

Test(rgb, nv12_is_the_formula_of_bt601_within_1)
{
    struct clb_image image;
    uint8_t pixels[6], rgb[12];

    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_NV12, 2, 2, 0), CLB_OK);
    for (int y = 0; y < 256; y += 5)
        for (int u = 0; u < 256; u += 3)
            for (int v = 0; v < 256; v += 3) {
                double l = (y - 16) / 219.0, b = (u - 128) / 224.0, r = (v - 128) / 224.0;
                int want[3] = {
                    rounded(255 * (l + 1.402 * r)),
                    rounded(255 * (l - 0.114 * 1.772 / 0.587 * b - 0.299 * 1.402 / 0.587 * r)),
                    rounded(255 * (l + 1.772 * b))};

                memset(pixels, y, 4);
                pixels[4] = (uint8_t)u;
                pixels[5] = (uint8_t)v;
                rgb_from_image(&image, pixels, rgb);
                for (int c = 0; c < 12; c++)
                    cr_assert_leq(abs(rgb[c] - want[c % 3]), 1,
                                  "Y %d U %d V %d channel %d: %d, not %d", y, u, v, c % 3, rgb[c],
                                  want[c % 3]);
            }
}

Test(rgb, byte_orders)
{
    static const uint8_t triple[3] = {1, 2, 3};
    struct clb_image image;
    uint8_t rgb[3];

    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_BGR24, 1, 1, 0), CLB_OK);
    rgb_from_image(&image, triple, rgb);
    cr_expect(rgb[0] == 3 && rgb[1] == 2 && rgb[2] == 1);
    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_RGB24, 1, 1, 0), CLB_OK);
    rgb_from_image(&image, triple, rgb);
    cr_expect(rgb[0] == 1 && rgb[1] == 2 && rgb[2] == 3);
    cr_assert_eq(pattern_layout(&image, CLB_PIXFMT_GRAY8, 1, 1, 0), CLB_OK);
    rgb_from_image(&image, triple, rgb);
    cr_expect(rgb[0] == 1 && rgb[1] == 1 && rgb[2] == 1);
}
