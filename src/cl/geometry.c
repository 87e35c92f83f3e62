/* SPDX-License-Identifier: Apache-2.0 */
#include "geometry.h"

#include <math.h>
#include <string.h>

/* A pixel that the seen part touches by less is not touched: the sums above it are rounded. */
#define TOUCH 1e-6

/* Sizes up to here keep every product of two below 2^53, and tables below 2^32 entries. */
#define MAX_SIZE (1u << 20)

size_t clbi_type_bytes(enum clb_preprocess_type type)
{
    return type == CLB_TYPE_F32 ? 4 : type == CLB_TYPE_F16 ? 2 : 1;
}

static uint32_t clamp_size(double size)
{
    return size < 1 ? 1 : size > MAX_SIZE ? MAX_SIZE : (uint32_t)size;
}

/* Sets which source pixels an axis may use: those that the seen part touches. */
static void limit(struct clbi_axis *axis, uint32_t pixels)
{
    const double low = floor(axis->start + TOUCH);
    const double high = ceil(axis->start + axis->length - TOUCH) - 1;
    const double last = (double)pixels - 1;

    axis->low = low < 0 ? 0 : low > last ? (uint32_t)last : (uint32_t)low;
    axis->high = high < axis->low ? axis->low : high > last ? (uint32_t)last : (uint32_t)high;
}

/* Letterbox: `n` pixels in the middle of `size`. */
static void place(struct clbi_axis *axis, double inner)
{
    axis->n = clamp_size(round(inner));
    if (axis->n > axis->size)
        axis->n = axis->size;
    const double gap = (double)(axis->size - axis->n);
    const double before = round(gap / 2 - 0.1);
    axis->before = before < 0 ? 0 : (uint32_t)before;
}

/* Cover: a part in the middle is seen. */
static void narrow(struct clbi_axis *axis, double seen)
{
    if (seen >= axis->length)
        return;
    axis->start += (axis->length - seen) / 2;
    axis->length = seen;
}

int clbi_geometry_make(struct clbi_geometry *g, const clb_preprocess_params *p,
                       const struct clb_image *img, const char **why)
{
    const struct clb_preprocess_rect whole = {0, 0, img->width, img->height};
    const bool given = p->crop.x != 0 || p->crop.y != 0 || p->crop.w != 0 || p->crop.h != 0;
    const struct clb_preprocess_rect crop = given ? p->crop : whole;
    const bool turned = p->rotate == CLB_ROTATE_90 || p->rotate == CLB_ROTATE_270;
    /* Clockwise: the first column of 90 degrees is the last row of the source. */
    bool back_x = p->rotate == CLB_ROTATE_180 || p->rotate == CLB_ROTATE_90;
    bool back_y = p->rotate == CLB_ROTATE_180 || p->rotate == CLB_ROTATE_270;

    memset(g, 0, sizeof *g);
    if (crop.x + crop.w > img->width || crop.y + crop.h > img->height) {
        *why = "the crop rectangle ends behind the picture";
        return CLB_ERR_INVAL;
    }
    if (p->flip == CLB_FLIP_HORIZONTAL || p->flip == CLB_FLIP_BOTH)
        back_x = !back_x;
    if (p->flip == CLB_FLIP_VERTICAL || p->flip == CLB_FLIP_BOTH)
        back_y = !back_y;
    g->turned = turned;
    g->column.start = turned ? crop.y : crop.x;
    g->column.length = turned ? crop.h : crop.w;
    g->column.reverse = back_x;
    g->row.start = turned ? crop.x : crop.y;
    g->row.length = turned ? crop.w : crop.h;
    g->row.reverse = back_y;
    g->column.size = p->width ? p->width : clamp_size(round(g->column.length));
    g->row.size = p->height ? p->height : clamp_size(round(g->row.length));
    if (g->column.size > MAX_SIZE || g->row.size > MAX_SIZE || img->width > MAX_SIZE ||
        img->height > MAX_SIZE) {
        *why = "more than 1048576 pixels in a row or column";
        return CLB_ERR_TOOBIG;
    }
    g->column.n = g->column.size;
    g->row.n = g->row.size;
    const double gain_x = g->column.size / g->column.length;
    const double gain_y = g->row.size / g->row.length;
    if (p->fit == CLB_FIT_LETTERBOX) {
        const double gain = gain_x < gain_y ? gain_x : gain_y;
        place(&g->column, g->column.length * gain);
        place(&g->row, g->row.length * gain);
    } else if (p->fit == CLB_FIT_COVER) {
        const double gain = gain_x > gain_y ? gain_x : gain_y;
        narrow(&g->column, g->column.size / gain);
        narrow(&g->row, g->row.size / gain);
    }
    limit(&g->column, turned ? img->height : img->width);
    limit(&g->row, turned ? img->width : img->height);

    clb_preprocess_geometry *out = &g->out;
    out->width = g->column.size;
    out->height = g->row.size;
    out->channels = p->order == CLB_ORDER_GRAY ? 1 : 3;
    out->left = g->column.before;
    out->top = g->row.before;
    out->inner_width = g->column.n;
    out->inner_height = g->row.n;
    out->right = out->width - out->left - out->inner_width;
    out->bottom = out->height - out->top - out->inner_height;
    out->scale_x = g->column.n / g->column.length;
    out->scale_y = g->row.n / g->row.length;
    const struct clbi_axis *x = turned ? &g->row : &g->column;
    const struct clbi_axis *y = turned ? &g->column : &g->row;
    out->source = (struct clb_preprocess_rect){x->start, y->start, x->length, y->length};

    const uint64_t values = (uint64_t)out->width * out->height * out->channels;
    if (values > SIZE_MAX / 4) {
        *why = "the result does not fit the address space";
        return CLB_ERR_TOOBIG;
    }
    out->bytes = (size_t)values * clbi_type_bytes(p->type);
    return CLB_OK;
}

static uint32_t within(const struct clbi_axis *axis, double pixel)
{
    return pixel <= axis->low ? axis->low : pixel >= axis->high ? axis->high : (uint32_t)pixel;
}

/* What output pixel i of AREA lies over; pixels that are touched by less than TOUCH do not count. */
struct span {
    double from, to; /* positions */
    uint32_t first, last;
};

static struct span span_of(const struct clbi_axis *axis, uint32_t i)
{
    struct span s;

    s.from = axis->start + i * axis->length / axis->n;
    s.to = axis->start + (i + 1.0) * axis->length / axis->n;
    s.first = within(axis, floor(s.from + TOUCH));
    s.last = within(axis, ceil(s.to - TOUCH) - 1);
    if (s.last < s.first)
        s.last = s.first;
    return s;
}

uint32_t clbi_axis_taps(const struct clbi_axis *axis, enum clb_preprocess_filter filter)
{
    uint32_t most = 1;

    if (filter != CLB_FILTER_AREA)
        return filter == CLB_FILTER_NEAREST ? 1 : 2;
    for (uint32_t i = 0; i < axis->n; i++) {
        const struct span s = span_of(axis, i);

        if (s.last - s.first >= most)
            most = s.last - s.first + 1;
    }
    return most;
}

static void bilinear(const struct clbi_axis *axis, double s, uint32_t columns, int32_t *index,
                     float *weight)
{
    const double k = floor(s - 0.5), w = s - 0.5 - k;
    const uint32_t first = within(axis, k);
    /* Both on one side of the seen part: the nearest pixel alone. */
    const bool alone = k < axis->low || k >= axis->high;

    index[0] = (int32_t)first;
    index[columns] = (int32_t)(alone ? first : first + 1);
    weight[0] = (float)(alone ? 1 : 1 - w);
    weight[columns] = (float)(alone ? 0 : w);
}

static void area(const struct clbi_axis *axis, uint32_t i, uint32_t taps, uint32_t columns,
                 int32_t *index, float *weight)
{
    const struct span s = span_of(axis, i);
    double sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t t = 0; t < taps; t++) {
            const double pixel = (double)s.first + t;
            const double a = pixel > s.from ? pixel : s.from;
            const double b = pixel + 1 < s.to ? pixel + 1 : s.to;
            const double covered = b > a && pixel <= s.last ? b - a : 0;

            if (pass == 0) {
                sum += covered;
                continue;
            }
            index[(size_t)t * columns] = (int32_t)within(axis, pixel);
            weight[(size_t)t * columns] = (float)(sum > 0 ? covered / sum : t == 0);
        }
}

void clbi_axis_table(const struct clbi_axis *axis, enum clb_preprocess_filter filter, uint32_t taps,
                     uint32_t columns, int32_t *index, float *weight)
{
    for (uint32_t at = 0; at < columns; at++) {
        const bool inside = at >= axis->before && at - axis->before < axis->n;
        const uint32_t i = inside ? at - axis->before : 0;
        const uint32_t k = axis->reverse ? axis->n - 1 - i : i;
        const double s = axis->start + (k + 0.5) * axis->length / axis->n;

        if (filter == CLB_FILTER_AREA) {
            area(axis, k, taps, columns, index + at, weight + at);
        } else if (filter == CLB_FILTER_NEAREST) {
            index[at] = (int32_t)within(axis, floor(s));
            weight[at] = 1;
        } else {
            bilinear(axis, s, columns, index + at, weight + at);
        }
    }
}
