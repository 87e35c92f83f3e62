/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of the tests of re-pitched rows, and their two halves. */
#ifndef TESTS_REPITCH_H
#define TESTS_REPITCH_H

#include "trailer_kit.h"

#define WINDOW (16u << 20)

/* The layout that is promised for these alignments. */
struct clb_image placed(const struct clb_image *src, size_t pitch_align, size_t plane_align);
struct clb_image packed(enum clb_pixfmt fmt, uint32_t w, uint32_t h);
/* Bytes to the end of the last row. */
size_t span(const struct clb_image *img);
bool same(const struct clb_image *a, const struct clb_image *b);
/* The packet has the rows of the payload `from` (laid out as src) where dst has them, and there is
 * nothing else in its buffer. */
void check_rows(const clb_packet *p, const uint8_t *from, const struct clb_image *src,
                const struct clb_image *dst);

/* repitch_camera.c */
void repitch_camera(void);

#endif
