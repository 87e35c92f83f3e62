/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colour bars with a machine-readable frame number. Code and digits are black and white only, so
 * that the chroma below them is neutral and never changes from frame to frame.
 */
#include "pattern.h"
#include "pattern_bars.h"

#include <string.h>

#define CELL 8
#define CELLS_PER_ROW 16
#define CODE_ROWS 3
#define CODE_WIDTH (CELL * CELLS_PER_ROW)
#define CODE_HEIGHT (CELL * CODE_ROWS)

/* Digits are drawn in a 5x7 grid of squares, with one square between them and around. */
#define NUM_DIGITS 10
#define GLYPH_W 5
#define GLYPH_H 7
#define BOX_W (NUM_DIGITS * (GLYPH_W + 1) + 1)
#define BOX_H (GLYPH_H + 2)

struct colour {
    uint8_t r, g, b; /* 75 % bars: 191 */
    uint8_t y, u, v; /* the same by ITU-R BT.601, limited range */
};

static const struct colour bars[8] = {
    {191, 191, 191, 180, 128, 128}, {191, 191, 0, 162, 44, 142}, {0, 191, 191, 131, 156, 44},
    {0, 191, 0, 112, 72, 58},       {191, 0, 191, 84, 184, 198}, {191, 0, 0, 65, 100, 212},
    {0, 0, 191, 35, 212, 114},      {0, 0, 0, 16, 128, 128},
};

/* Rows of the digits 0 to 9, top first, bit 4 is the left column. */
static const uint8_t glyphs[10][GLYPH_H] = {
    {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e}, {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e},
    {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f}, {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e},
    {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02}, {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e},
    {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e}, {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08},
    {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e}, {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c},
};

struct box {
    uint32_t x, y, w, h; /* even, so that it covers whole chroma samples */
    uint32_t scale;      /* pixels per square */
};

/* Where the digits go: below the code, about an eighth of the height; false = no room. */
static bool digit_box(const struct clb_image *image, struct box *box)
{
    uint32_t scale = image->height / 8 / BOX_H;

    box->x = 8;
    box->y = CODE_HEIGHT + 8;
    if (image->width < box->x + BOX_W + 1 || image->height < box->y + BOX_H + 1)
        return false;
    if (scale > (image->width - box->x - 1) / BOX_W)
        scale = (image->width - box->x - 1) / BOX_W;
    if (scale > (image->height - box->y - 1) / BOX_H)
        scale = (image->height - box->y - 1) / BOX_H;
    box->scale = scale < 1 ? 1 : scale;
    box->w = (box->scale * BOX_W + 1) & ~1u;
    box->h = (box->scale * BOX_H + 1) & ~1u;
    return true;
}

static unsigned bytes_per_pixel(const struct clb_image *image)
{
    return image->fmt == CLB_PIXFMT_RGB24 || image->fmt == CLB_PIXFMT_BGR24 ? 3 : 1;
}

static uint8_t level(const struct clb_image *image, bool on)
{
    if (bytes_per_pixel(image) == 3)
        return on ? 255 : 0;
    return on ? 235 : 16;
}

/* Black or white in the luma plane or in all three colours. */
static void fill(const struct clb_image *image, uint8_t *data, struct box box, bool on)
{
    unsigned bpp = bytes_per_pixel(image);

    for (uint32_t y = box.y; y < box.y + box.h; y++)
        memset(data + image->plane[0].offset + image->plane[0].pitch * y + (size_t)bpp * box.x,
               level(image, on), (size_t)bpp * box.w);
}

static void neutral_chroma(const struct clb_image *image, uint8_t *data, struct box box)
{
    if (image->fmt != CLB_PIXFMT_NV12)
        return;
    for (uint32_t y = box.y / 2; y < (box.y + box.h) / 2; y++)
        memset(data + image->plane[1].offset + image->plane[1].pitch * y + box.x, 128, box.w);
}

static const struct colour *bar_at(const struct clb_image *image, uint32_t x)
{
    return &bars[(uint64_t)x * 8 / image->width];
}

static uint32_t ramp_start(const struct clb_image *image)
{
    return (uint32_t)((uint64_t)image->height * 3 / 4) & ~1u;
}

static void draw_pixel_row(const struct clb_image *image, uint8_t *row, uint32_t y)
{
    bool ramp = y >= ramp_start(image);

    for (uint32_t x = 0; x < image->width; x++) {
        const struct colour *c = bar_at(image, x);
        uint8_t grey = (uint8_t)(16 + (x + y) % 220);

        switch (image->fmt) {
        case CLB_PIXFMT_RGB24:
        case CLB_PIXFMT_BGR24: {
            bool rgb = image->fmt == CLB_PIXFMT_RGB24;

            row[3 * x] = ramp ? grey : rgb ? c->r : c->b;
            row[3 * x + 1] = ramp ? grey : c->g;
            row[3 * x + 2] = ramp ? grey : rgb ? c->b : c->r;
            break;
        }
        default: row[x] = ramp ? grey : c->y; break;
        }
    }
}

void bars_draw(const struct clb_image *image, uint8_t *data)
{
    struct box code = {0, 0, CODE_WIDTH, CODE_HEIGHT, 1}, digits;

    for (uint32_t y = 0; y < image->height; y++)
        draw_pixel_row(image, data + image->plane[0].offset + image->plane[0].pitch * y, y);
    for (uint32_t y = 0; image->fmt == CLB_PIXFMT_NV12 && y < (image->height + 1) / 2; y++) {
        uint8_t *row = data + image->plane[1].offset + image->plane[1].pitch * y;
        bool ramp = 2 * y >= ramp_start(image);

        for (uint32_t x = 0; x < (image->width + 1) / 2; x++) {
            row[2 * x] = ramp ? 128 : bar_at(image, 2 * x)->u;
            row[2 * x + 1] = ramp ? 128 : bar_at(image, 2 * x)->v;
        }
    }
    neutral_chroma(image, data, code);
    if (digit_box(image, &digits))
        neutral_chroma(image, data, digits);
}

uint16_t pattern_crc16(const uint8_t *bytes, size_t len)
{
    uint16_t crc = 0xffff;

    for (size_t i = 0; i < len; i++) {
        crc = (uint16_t)(crc ^ bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

static uint16_t number_crc(uint32_t n)
{
    const uint8_t bytes[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                              (uint8_t)n};

    return pattern_crc16(bytes, sizeof bytes);
}

static void draw_code(const struct clb_image *image, uint8_t *data, uint32_t n)
{
    uint64_t code = (uint64_t)n << 16 | number_crc(n);

    for (uint32_t i = 0; i < CELLS_PER_ROW * CODE_ROWS; i++) {
        struct box cell = {i % CELLS_PER_ROW * CELL, i / CELLS_PER_ROW * CELL, CELL, CELL, 1};

        fill(image, data, cell, code >> (CELLS_PER_ROW * CODE_ROWS - 1 - i) & 1);
    }
}

static void draw_digit(const struct clb_image *image, uint8_t *data, const struct box *box,
                       unsigned place, unsigned digit)
{
    uint32_t s = box->scale, left = box->x + s * (1 + place * (GLYPH_W + 1)), top = box->y + s;

    for (uint32_t y = 0; y < GLYPH_H; y++)
        for (uint32_t x = 0; x < GLYPH_W; x++)
            if (glyphs[digit][y] >> (GLYPH_W - 1 - x) & 1) {
                struct box square = {left + x * s, top + y * s, s, s, 1};

                fill(image, data, square, true);
            }
}

void bars_number(const struct clb_image *image, uint8_t *data, uint32_t n)
{
    struct box box;

    draw_code(image, data, n);
    if (!digit_box(image, &box))
        return;
    fill(image, data, box, false);
    for (unsigned place = NUM_DIGITS; place-- > 0; n /= 10)
        draw_digit(image, data, &box, place, n % 10);
}

bool pattern_read_code(const struct clb_image *image, const uint8_t *pixels, uint32_t *n)
{
    unsigned bpp = bytes_per_pixel(image);
    uint64_t code = 0;

    if (!pattern_draws(image->fmt) || image->width < PATTERN_MIN_WIDTH ||
        image->height < PATTERN_MIN_HEIGHT)
        return false;
    for (uint32_t i = 0; i < CELLS_PER_ROW * CODE_ROWS; i++) {
        uint32_t x = i % CELLS_PER_ROW * CELL + CELL / 2, y = i / CELLS_PER_ROW * CELL + CELL / 2;
        size_t at = image->plane[0].offset + image->plane[0].pitch * y + (size_t)bpp * x;

        code = code << 1 | (pixels[at] > 125);
    }
    if (number_crc((uint32_t)(code >> 16)) != (code & 0xffff))
        return false;
    *n = (uint32_t)(code >> 16);
    return true;
}
