/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

#include "image_shape.h"

#include <string.h>

static bool same_picture(const struct clb_image *a, const struct clb_image *b)
{
    return a->fmt == b->fmt && a->width == b->width && a->height == b->height;
}

/* The planes of src as they come in the stream. */
static void sort_planes(uint32_t order[3], const struct clb_image *src)
{
    for (uint32_t i = 0; i < src->num_planes; i++) {
        uint32_t at = i;

        for (; at > 0 && src->plane[order[at - 1]].offset > src->plane[i].offset; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void *at(void *base, size_t offset)
{
    return base ? (uint8_t *)base + offset : NULL;
}

/* One plane, and the `behind` bytes of the stream that follow it; at most two segments. The stream
 * need not have padding behind the last row, so that this one may stand alone. */
static size_t plan_plane(struct clbi_seg *segs, size_t row_bytes, size_t rows, size_t src_pitch,
                         const struct clb_plane *dst, void *base, size_t behind, void *sink)
{
    const size_t gap = rows > 1 ? src_pitch - row_bytes : behind;
    struct clbi_seg all = {.base = at(base, dst->offset),
                           .row_bytes = row_bytes,
                           .pitch = dst->pitch,
                           .rows = rows,
                           .gap = gap,
                           .sink = sink};

    if (gap == 0 && dst->pitch == row_bytes) {
        all.row_bytes *= rows;
        all.pitch = all.row_bytes;
        all.rows = 1;
        all.gap = behind;
    }
    segs[0] = all;
    if (all.gap == behind)
        return 1;
    segs[0].rows = rows - 1;
    segs[1] = all;
    segs[1].base = at(base, dst->offset + (rows - 1) * dst->pitch);
    segs[1].rows = 1;
    segs[1].gap = behind;
    return 2;
}

bool clbi_rows_plan(struct clbi_seg *segs, size_t *n, const struct clb_image *src, size_t pixels,
                    const struct clb_image *dst, void *base, void *sink, size_t sink_size)
{
    uint32_t order[3] = {0};
    size_t used = 0;

    /* From here on no product or sum of src exceeds `pixels`, but for the pitch of a single row. */
    if (!same_picture(src, dst) || clb_image_check(src, pixels) != CLB_OK)
        return false;
    sort_planes(order, src);

    const size_t first = src->plane[order[0]].offset;
    if (first > sink_size)
        return false;
    if (first > 0)
        segs[used++] = (struct clbi_seg){
            .base = sink, .row_bytes = first, .pitch = first, .rows = 1, .gap = 0, .sink = NULL};
    for (uint32_t i = 0; i < src->num_planes; i++) {
        const struct clb_plane *plane = &src->plane[order[i]];
        const struct clbi_plane_shape shape = clbi_plane_shape(src, order[i]);
        const size_t row_bytes = (size_t)shape.row_bytes, rows = (size_t)shape.rows;
        const size_t end = plane->offset + plane->pitch * (rows - 1) + row_bytes;
        const size_t next = i + 1 < src->num_planes ? src->plane[order[i + 1]].offset : pixels;

        if (next < end || next - end > sink_size ||
            (rows > 1 && plane->pitch - row_bytes > sink_size))
            return false;
        used += plan_plane(segs + used, row_bytes, rows, plane->pitch, &dst->plane[order[i]], base,
                           next - end, sink);
    }
    *n = used;
    return true;
}

void clbi_rows_copy(const struct clb_image *dst, void *to, const struct clb_image *src,
                    const void *from)
{
    for (uint32_t i = 0; i < src->num_planes; i++) {
        const struct clbi_plane_shape shape = clbi_plane_shape(src, i);
        const struct clb_plane *d = &dst->plane[i], *s = &src->plane[i];
        size_t bytes = (size_t)shape.row_bytes, rows = (size_t)shape.rows;

        if (d->pitch == bytes && s->pitch == bytes) {
            bytes *= rows;
            rows = 1;
        }
        for (size_t y = 0; y < rows; y++)
            memcpy((uint8_t *)to + d->offset + y * d->pitch,
                   (const uint8_t *)from + s->offset + y * s->pitch, bytes);
    }
}

void clbi_rows_peek(void *to, const struct clb_image *src, const struct clb_image *dst,
                    const void *from, size_t offset, size_t size)
{
    for (uint32_t i = 0; i < src->num_planes; i++) {
        const struct clbi_plane_shape shape = clbi_plane_shape(src, i);
        const size_t row_bytes = (size_t)shape.row_bytes, rows = (size_t)shape.rows;
        const size_t start = src->plane[i].offset, pitch = src->plane[i].pitch;

        /* Not the rows before it: there may be as many as the picture has bytes. */
        for (size_t y = offset > start ? (offset - start) / pitch : 0; y < rows; y++) {
            const size_t begin = start + y * pitch;
            const size_t first = offset > begin ? offset - begin : 0;
            const size_t end = offset + size > begin ? offset + size - begin : 0;
            const size_t last = end < row_bytes ? end : row_bytes;

            if (end == 0)
                break;
            if (first < last)
                memcpy((uint8_t *)to + (begin + first - offset),
                       (const uint8_t *)from + dst->plane[i].offset + y * dst->plane[i].pitch +
                           first,
                       last - first);
        }
    }
}
