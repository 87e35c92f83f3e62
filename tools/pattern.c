/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts that patterns know, and the two patterns that are plain bytes.
 */
#include "pattern.h"
#include "pattern_bars.h"

#include <stdlib.h>
#include <string.h>

#include <clbridge/common.h>

#define GAMMA UINT64_C(0x9E3779B97F4A7C15)

/* (7 i + 13 (i >> 8)) mod 256 repeats after 65536 bytes: 7 * 65536 and 13 * 256 are 0 mod 256. */
#define COUNTER_PERIOD 65536

bool pattern_draws(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_NV12 || fmt == CLB_PIXFMT_RGB24 || fmt == CLB_PIXFMT_BGR24 ||
           fmt == CLB_PIXFMT_GRAY8;
}

/* From the packed layout: there a pitch is the bytes of a row, and planes follow each other. */
void pattern_plane_shape(const struct clb_image *image, unsigned plane, size_t *rows,
                         size_t *row_bytes)
{
    struct clb_image packed;
    size_t end;

    *rows = *row_bytes = 0;
    if (clb_image_init(&packed, image->fmt, image->width, image->height, 0, 0) < 0 ||
        plane >= packed.num_planes)
        return;
    end = plane + 1 < packed.num_planes ? packed.plane[plane + 1].offset : clb_image_bytes(&packed);
    *row_bytes = packed.plane[plane].pitch;
    *rows = (end - packed.plane[plane].offset) / *row_bytes;
}

static bool half_pitch(enum clb_pixfmt fmt, unsigned plane)
{
    return (fmt == CLB_PIXFMT_I420 || fmt == CLB_PIXFMT_YV12) && plane > 0;
}

int pattern_layout(struct clb_image *image, enum clb_pixfmt fmt, uint32_t width, uint32_t height,
                   size_t pitch)
{
    size_t rows, row_bytes, offset = 0;
    int rc = clb_image_init(image, fmt, width, height, 0, 0);

    if (rc < 0 || pitch == 0)
        return rc;
    for (unsigned i = 0; i < image->num_planes; i++) {
        size_t own = half_pitch(fmt, i) ? (pitch + 1) / 2 : pitch;

        pattern_plane_shape(image, i, &rows, &row_bytes);
        if (own < row_bytes)
            return CLB_ERR_INVAL;
        image->plane[i].offset = offset;
        image->plane[i].pitch = own;
        offset += own * rows;
    }
    return CLB_OK;
}

bool pattern_same_layout(const struct clb_image *a, const struct clb_image *b)
{
    bool same = a->fmt == b->fmt && a->width == b->width && a->height == b->height &&
                a->num_planes == b->num_planes;

    for (unsigned i = 0; same && i < a->num_planes; i++)
        same = a->plane[i].offset == b->plane[i].offset && a->plane[i].pitch == b->plane[i].pitch;
    return same;
}

size_t pattern_frame_bytes(const struct clb_image *image)
{
    size_t bytes = 0, rows, row_bytes;

    for (unsigned i = 0; i < image->num_planes; i++) {
        size_t end;

        pattern_plane_shape(image, i, &rows, &row_bytes);
        end = image->plane[i].offset + image->plane[i].pitch * rows;
        if (end > bytes)
            bytes = end;
    }
    return bytes;
}

int pattern_init(struct pattern *p, enum pattern_kind kind, const struct clb_image *image,
                 size_t size, uint64_t seed)
{
    memset(p, 0, sizeof *p);
    p->kind = kind;
    p->seed = seed;
    p->size = size;
    if (kind == PATTERN_BARS) {
        if (!image || !pattern_draws(image->fmt))
            return CLB_ERR_NOSYS;
        if (image->width < PATTERN_MIN_WIDTH || image->height < PATTERN_MIN_HEIGHT)
            return CLB_ERR_INVAL;
        p->image = *image;
        p->size = pattern_frame_bytes(image);
    }
    p->data = calloc(1, p->size ? p->size : 1);
    if (!p->data)
        return CLB_ERR_NOMEM;
    if (kind == PATTERN_BARS)
        bars_draw(&p->image, p->data);
    return CLB_OK;
}

void pattern_free(struct pattern *p)
{
    free(p->data);
    memset(p, 0, sizeof *p);
}

static void store_le64(uint8_t *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static void render_counter(uint8_t *data, size_t size, uint64_t n)
{
    size_t head = size < 8 ? size : 8, done = size < COUNTER_PERIOD ? size : COUNTER_PERIOD;

    for (size_t i = 0; i < done; i++)
        data[i] = (uint8_t)(7 * i + 13 * (i >> 8) + n);
    while (done < size) {
        size_t part = size - done < COUNTER_PERIOD ? size - done : COUNTER_PERIOD;

        memcpy(data + done, data, part);
        done += part;
    }
    store_le64(data, n, head);
}

static uint64_t mix(uint64_t z)
{
    z ^= z >> 30;
    z *= UINT64_C(0xBF58476D1CE4E5B9);
    z ^= z >> 27;
    z *= UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void render_noise(uint8_t *data, size_t size, uint64_t seed, uint64_t n)
{
    uint64_t state = mix(seed + mix(n + GAMMA));

    for (; size >= 8; size -= 8, data += 8)
        store_le64(data, mix(state += GAMMA), 8);
    store_le64(data, mix(state + GAMMA), size);
}

void pattern_render(struct pattern *p, uint64_t n)
{
    switch (p->kind) {
    case PATTERN_BARS: bars_number(&p->image, p->data, (uint32_t)n); break;
    case PATTERN_COUNTER: render_counter(p->data, p->size, n); break;
    case PATTERN_NOISE: render_noise(p->data, p->size, p->seed, n); break;
    }
}
