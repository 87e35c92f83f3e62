/* SPDX-License-Identifier: Apache-2.0 */
/* See reference.h: where pixels come from, filters, and what becomes of the values. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- geometry -------------------------------------------------------------------------------- */

static uint32_t at_least_1(double v)
{
    return v < 1 ? 1 : (uint32_t)v;
}

static size_t type_bytes(enum clb_preprocess_type type)
{
    return type == CLB_TYPE_U8 ? 1 : type == CLB_TYPE_F16 ? 2 : 4;
}

void ref_geometry(const clb_preprocess_params *p, const struct clb_image *img,
                  clb_preprocess_geometry *g)
{
    const bool whole = p->crop.x == 0 && p->crop.y == 0 && p->crop.w == 0 && p->crop.h == 0;
    const bool turned = p->rotate == CLB_ROTATE_90 || p->rotate == CLB_ROTATE_270;
    struct clb_preprocess_rect seen =
        whole ? (struct clb_preprocess_rect){0, 0, img->width, img->height} : p->crop;
    const double w = turned ? seen.h : seen.w, h = turned ? seen.w : seen.h;
    double seen_w = w, seen_h = h; /* rotated */

    memset(g, 0, sizeof *g);
    g->width = p->width ? p->width : at_least_1(round(w));
    g->height = p->height ? p->height : at_least_1(round(h));
    g->channels = p->order == CLB_ORDER_GRAY ? 1 : 3;
    g->bytes = (size_t)g->width * g->height * g->channels * type_bytes(p->type);
    g->inner_width = g->width;
    g->inner_height = g->height;
    if (p->fit == CLB_FIT_LETTERBOX) {
        const double gain = fmin(g->width / w, g->height / h);

        g->inner_width = at_least_1(round(w * gain));
        g->inner_height = at_least_1(round(h * gain));
        g->left = (uint32_t)fmax(0, round((g->width - g->inner_width) / 2.0 - 0.1));
        g->top = (uint32_t)fmax(0, round((g->height - g->inner_height) / 2.0 - 0.1));
        g->right = g->width - g->inner_width - g->left;
        g->bottom = g->height - g->inner_height - g->top;
    } else if (p->fit == CLB_FIT_COVER) {
        const double gain = fmax(g->width / w, g->height / h);

        seen_w = fmin(w, g->width / gain);
        seen_h = fmin(h, g->height / gain);
    }
    g->scale_x = g->inner_width / seen_w;
    g->scale_y = g->inner_height / seen_h;
    g->source.w = turned ? seen_h : seen_w;
    g->source.h = turned ? seen_w : seen_h;
    g->source.x = seen.x + (seen.w - g->source.w) / 2;
    g->source.y = seen.y + (seen.h - g->source.h) / 2;
}

/* ---- one direction --------------------------------------------------------------------------- */

void ref_axis_free(struct ref_axis *a)
{
    for (int i = 0; a->tap && i < a->n; i++)
        free(a->tap[i].w);
    free(a->tap);
    a->tap = NULL;
}

/* Adds weight to pixel k, or to the nearest one that is touched. */
static void add(struct ref_tap *t, int lo, int hi, int k, double weight)
{
    k = k < lo ? lo : k > hi ? hi : k;
    t->w[k - t->first] += weight;
}

static bool axis_make(struct ref_axis *a, enum clb_preprocess_filter filter, double start,
                      double length, unsigned n, bool reversed, unsigned size, double nudge)
{
    /* What lies on a border of pixels up to rounding touches no further one. */
    int lo = (int)floor(start + 1e-9), hi = (int)ceil(start + length - 1e-9) - 1;

    lo = lo < 0 ? 0 : lo;
    hi = hi >= (int)size ? (int)size - 1 : hi;
    hi = hi < lo ? lo : hi;
    a->n = (int)n;
    a->tap = calloc(n, sizeof *a->tap);
    if (!a->tap)
        return false;
    for (unsigned i = 0; i < n; i++) {
        struct ref_tap *t = &a->tap[reversed ? n - 1 - i : i];
        const double s = start + (i + 0.5) * length / n;
        const double from = start + i * length / n, to = start + (i + 1.0) * length / n;
        int first = (int)floor(fmin(from, s - 0.5)), last = (int)floor(fmax(to, s + 0.5));

        first = first < lo ? lo : first > hi ? hi : first;
        last = last < first ? first : last > hi ? hi : last;
        t->first = first;
        t->n = last - first + 1;
        t->w = calloc((size_t)t->n, sizeof *t->w);
        if (!t->w)
            return false;
        if (filter == CLB_FILTER_NEAREST) {
            add(t, first, last, (int)floor(s + nudge), 1);
        } else if (filter == CLB_FILTER_BILINEAR) {
            const double pos = s - 0.5, k = floor(pos);

            add(t, first, last, (int)k, 1 - (pos - k));
            add(t, first, last, (int)k + 1, pos - k);
        } else {
            for (int k = (int)floor(from); k < to; k++) {
                const double covered = fmin(to, k + 1.0) - fmax(from, k);

                if (covered > 0)
                    add(t, first, last, k, covered / (to - from));
            }
        }
    }
    return true;
}

bool ref_axis_make(struct ref_axis *a, const clb_preprocess_params *p, const struct clb_image *img,
                   bool of_rows, double nudge)
{
    const bool turned = p->rotate == CLB_ROTATE_90 || p->rotate == CLB_ROTATE_270;
    bool back =
        p->rotate == CLB_ROTATE_180 || p->rotate == (of_rows ? CLB_ROTATE_270 : CLB_ROTATE_90);
    clb_preprocess_geometry g;

    back ^=
        p->flip == CLB_FLIP_BOTH || p->flip == (of_rows ? CLB_FLIP_VERTICAL : CLB_FLIP_HORIZONTAL);
    memset(a, 0, sizeof *a);
    ref_geometry(p, img, &g);
    a->of_source_y = of_rows != turned;
    return axis_make(a, p->filter, a->of_source_y ? g.source.y : g.source.x,
                     a->of_source_y ? g.source.h : g.source.w,
                     of_rows ? g.inner_height : g.inner_width, back,
                     a->of_source_y ? img->height : img->width, nudge);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static double finish(const clb_preprocess_params *p, double v, unsigned c)
{
    const double scale = p->scale[c] != 0 ? (double)p->scale[c] : 1;
    const double dev = p->dev[c] != 0 ? (double)p->dev[c] : 1;

    v = (v * scale - (double)p->mean[c]) / dev;
    if (p->type == CLB_TYPE_U8)
        v = v < 0 ? 0 : v > 255 ? 255 : v;
    return v;
}

/* Which of ref_pixel()'s values channel c of the output is. */
static unsigned source_channel(const clb_preprocess_params *p, unsigned c)
{
    return p->order == CLB_ORDER_GRAY ? 3 : p->order == CLB_ORDER_BGR ? 2 - c : c;
}

static size_t place(const clb_preprocess_params *p, const clb_preprocess_geometry *g, unsigned x,
                    unsigned y, unsigned c)
{
    if (p->layout == CLB_LAYOUT_NCHW)
        return ((size_t)c * g->height + y) * g->width + x;
    return ((size_t)y * g->width + x) * g->channels + c;
}

/* `picture` has w x h pixels of 4 values; u and v are the source's columns and rows of the output's
 * column and row, whichever way it is turned. */
static void draw(const clb_preprocess_params *p, const struct clb_image *img, const double *picture,
                 const struct ref_tap *u, const struct ref_tap *v, unsigned x, unsigned y,
                 struct ref_result *out)
{
    double sum[4] = {0}, weight = 0;

    for (int j = 0; j < v->n; j++)
        for (int i = 0; i < u->n; i++) {
            const double w = u->w[i] * v->w[j];
            const double *value =
                picture + 4 * ((size_t)(v->first + j) * img->width + (size_t)(u->first + i));

            if (w == 0 || (p->depth && value[0] == (double)p->depth_none))
                continue;
            weight += w;
            for (int c = 0; c < 4; c++)
                sum[c] += w * value[c];
        }
    for (unsigned c = 0; c < out->g.channels; c++) {
        const size_t at = place(p, &out->g, x, y, c);

        if (!p->depth) {
            out->value[at] = finish(p, sum[source_channel(p, c)], c);
            continue;
        }
        out->weight[at] = weight;
        out->value[at] = weight > 0 ? finish(p, sum[0] / weight, c) : (double)p->depth_invalid;
    }
}

bool ref_run(const clb_preprocess_params *p, const struct clb_image *img, const uint8_t *px,
             double nudge_x, double nudge_y, struct ref_result *out)
{
    const bool turned = p->rotate == CLB_ROTATE_90 || p->rotate == CLB_ROTATE_270;
    struct ref_axis columns = {0}, rows = {0};
    clb_preprocess_geometry *g = &out->g;
    bool ok = false;

    memset(out, 0, sizeof *out);
    ref_geometry(p, img, g);
    out->count = (size_t)g->width * g->height * g->channels;
    out->value = calloc(out->count, sizeof *out->value);
    out->weight = p->depth ? calloc(out->count, sizeof *out->weight) : NULL;
    double *picture = malloc((size_t)img->width * img->height * 4 * sizeof *picture);
    if (!out->value || (p->depth && !out->weight) || !picture)
        goto end;
    for (unsigned y = 0; y < img->height; y++)
        for (unsigned x = 0; x < img->width; x++)
            ref_pixel(p, img, px, x, y, picture + 4 * ((size_t)y * img->width + x));
    if (!ref_axis_make(&columns, p, img, false, nudge_x) ||
        !ref_axis_make(&rows, p, img, true, nudge_y))
        goto end;

    for (unsigned y = 0; y < g->height; y++)
        for (unsigned x = 0; x < g->width; x++) {
            const bool inside = x >= g->left && x < g->left + g->inner_width && y >= g->top &&
                                y < g->top + g->inner_height;

            if (inside) {
                const struct ref_tap *tx = &columns.tap[x - g->left], *ty = &rows.tap[y - g->top];

                draw(p, img, picture, turned ? ty : tx, turned ? tx : ty, x, y, out);
                continue;
            }
            for (unsigned c = 0; c < g->channels; c++) {
                out->value[place(p, g, x, y, c)] = finish(p, (double)p->pad[c], c);
                if (p->depth)
                    out->weight[place(p, g, x, y, c)] = 1;
            }
        }
    ok = true;

end:
    ref_axis_free(&columns);
    ref_axis_free(&rows);
    free(picture);
    if (!ok)
        ref_free(out);
    return ok;
}

void ref_free(struct ref_result *out)
{
    free(out->value);
    free(out->weight);
    out->value = out->weight = NULL;
}

/* ---- half precision -------------------------------------------------------------------------- */

double ref_from_half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

double ref_half_ulp(double v)
{
    int exponent;

    frexp(v, &exponent);
    return ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
}
