/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a picture from the layout that the peer sends to the one that the device wants: as a plan
 * for the transport, which places them while they arrive, or by the host afterwards. Neither touches
 * a byte of the destination that is not a pixel.
 */
#ifndef CLBI_ROWS_H
#define CLBI_ROWS_H

#include "transport.h"

#include <clbridge/image.h>

#define CLBI_ROWS_SEGS 8

/* Fills segs, at most CLBI_ROWS_SEGS, and *n such that they take exactly `pixels` bytes of the stream:
 * the rows of src go to their places in dst, which begins at base; what src has between, before and
 * behind them goes to the sink. src may be anything, also a lie. False when the planes of src share
 * rows or bytes, when it is no picture in so many bytes or another one than dst, and when a piece
 * between rows is larger than the sink: then the host moves the rows. Nothing is read or written; base
 * NULL only asks. */
bool clbi_rows_plan(struct clbi_seg *segs, size_t *n, const struct clb_image *src, size_t pixels,
                    const struct clb_image *dst, void *base, void *sink, size_t sink_size);

/* Moves the rows. Both layouts are of one picture and were checked against the bytes there are; the
 * memory does not overlap. The destination is not read. */
void clbi_rows_copy(const struct clb_image *dst, void *to, const struct clb_image *src,
                    const void *from);

/* The same way back, for `size` bytes of the stream from `offset` on. src has no padding, and the bytes are
 * inside of it. */
void clbi_rows_peek(void *to, const struct clb_image *src, const struct clb_image *dst,
                    const void *from, size_t offset, size_t size);

#endif
