/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test pictures. A pattern is a function of (kind, layout or size, seed, frame number): sender and
 * receiver compute the same bytes independently.
 *
 *  bars     Eight vertical colour bars, white to black, 75 %; the lowest quarter is a diagonal ramp,
 *           so that rows in the wrong place show. On top the code: 8x8-pixel cells from (0,0), 16
 *           per row, 3 rows, most significant bit first: the 32-bit frame number, then the
 *           CRC-16/CCITT-FALSE of its 4 big-endian bytes. 1 is luma 235 (255 in RGB), 0 is 16 (0).
 *           Below it, where there is room, the number in digits. Padding of rows is 0.
 *  counter  Byte i of frame n: the first 8 bytes are n as u64 little-endian, then
 *           (7 i + 13 (i >> 8) + n) & 255.
 *  noise    Little-endian 64-bit words; word k of frame n is mix(s + (k + 1) g) with
 *           s = mix(seed + mix(n + g)), g = 0x9E3779B97F4A7C15, and mix the finaliser of SplitMix64:
 *           z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB;
 *           z ^= z >> 31.
 */
#ifndef TOOLS_PATTERN_H
#define TOOLS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <clbridge/image.h>

/* --format: choice i is format i + 1. */
#define PATTERN_FORMAT_CHOICE(name, text, planes) "|" text
#define PATTERN_FORMATS (&(CLB_PIXFMT_MAP(PATTERN_FORMAT_CHOICE))[1])

enum pattern_kind { PATTERN_BARS, PATTERN_COUNTER, PATTERN_NOISE };

#define PATTERN_MIN_WIDTH 128
#define PATTERN_MIN_HEIGHT 24

struct pattern {
    enum pattern_kind kind;
    struct clb_image image; /* bars only */
    uint64_t seed;
    size_t size;   /* bytes of a frame */
    uint8_t *data; /* the last frame rendered; malloc */
};

/* The layout with the given pitch (0 = packed): every row of every plane has it, those of I420 and
 * YV12 chroma half of it, rounded up. 0, or a negative clb_error: INVAL when the pitch is too small,
 * TOOBIG. */
int pattern_layout(struct clb_image *image, enum clb_pixfmt fmt, uint32_t width, uint32_t height,
                   size_t pitch);

bool pattern_same_layout(const struct clb_image *a, const struct clb_image *b);

/* Bytes of a frame as cameras send it: whole rows, padding of the last one included. */
size_t pattern_frame_bytes(const struct clb_image *image);

/* Whether bars can be drawn in this format. */
bool pattern_draws(enum clb_pixfmt fmt);

/* size counts for counter and noise; bars take it from the image. 0, INVAL (picture too small),
 * NOSYS (format), NOMEM. */
int pattern_init(struct pattern *p, enum pattern_kind kind, const struct clb_image *image,
                 size_t size, uint64_t seed);
void pattern_free(struct pattern *p);

/* Makes frame n in p->data. Cheap for bars: the bars are drawn once, then only code and digits. */
void pattern_render(struct pattern *p, uint64_t n);

/* Reads the code of a bars picture, which must be all there. True when its CRC holds. */
bool pattern_read_code(const struct clb_image *image, const uint8_t *pixels, uint32_t *n);

uint16_t pattern_crc16(const uint8_t *bytes, size_t len); /* CRC-16/CCITT-FALSE */

/* Rows and used bytes per row of a plane; both 0 for an image that is none. */
void pattern_plane_shape(const struct clb_image *image, unsigned plane, size_t *rows,
                         size_t *row_bytes);

#endif
