/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry and the tables of indices and weights, against the reference: thousands of recipes drawn
 * at random, the same every time. No OpenCL.
 */
#include "geometry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

static uint32_t seed = 1;

static unsigned below(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void draw(clb_preprocess_params *p, struct clb_image *img)
{
    const bool large = below(8) == 0;

    memset(img, 0, sizeof *img);
    memset(p, 0, sizeof *p);
    img->fmt = CLB_PIXFMT_GRAY8;
    img->width = 1 + below(large ? 2000 : 50);
    img->height = 1 + below(large ? 1100 : 40);
    img->num_planes = 1;
    p->width = below(4) ? 1 + below(large ? 700 : 90) : 0;
    p->height = below(4) ? 1 + below(large ? 700 : 90) : 0;
    p->fit = (enum clb_preprocess_fit)below(3);
    p->filter = (enum clb_preprocess_filter)below(3);
    p->rotate = (enum clb_preprocess_rotate)below(4);
    p->flip = (enum clb_preprocess_flip)below(4);
    if (below(2)) {
        p->crop.x = below(img->width * 8) / 8.0;
        p->crop.y = below(img->height * 8) / 8.0;
        p->crop.w = (1 + below((unsigned)((img->width - p->crop.x) * 8))) / 8.0;
        p->crop.h = (1 + below((unsigned)((img->height - p->crop.y) * 8))) / 8.0;
    }
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

static bool same_geometry(const clb_preprocess_geometry *a, const clb_preprocess_geometry *b)
{
    return a->width == b->width && a->height == b->height && a->channels == b->channels &&
           a->bytes == b->bytes && a->left == b->left && a->top == b->top && a->right == b->right &&
           a->bottom == b->bottom && a->inner_width == b->inner_width &&
           a->inner_height == b->inner_height && near(a->scale_x, b->scale_x) &&
           near(a->scale_y, b->scale_y) && near(a->source.x, b->source.x) &&
           near(a->source.y, b->source.y) && near(a->source.w, b->source.w) &&
           near(a->source.h, b->source.h);
}

/* The taps of entry `at` minus those of the reference, pixel by pixel. */
static const char *compare_entry(const struct ref_tap *want, uint32_t taps, uint32_t columns,
                                 const int32_t *index, const float *weight, uint32_t at,
                                 double *left, unsigned size)
{
    const char *wrong = NULL;

    memset(left, 0, size * sizeof *left);
    for (int k = 0; k < want->n; k++)
        left[want->first + k] += want->w[k];
    for (uint32_t t = 0; t < taps; t++)
        left[index[(size_t)t * columns + at]] -= (double)weight[(size_t)t * columns + at];
    for (unsigned k = 0; k < size; k++)
        if (fabs(left[k]) > 1e-6)
            wrong = "a weight differs";
    return wrong;
}

static const char *compare_axis(const clb_preprocess_params *p, const struct clb_image *img,
                                const struct clbi_axis *axis, bool of_rows)
{
    const uint32_t taps = clbi_axis_taps(axis, p->filter), columns = axis->size + below(70);
    int32_t *index = malloc((size_t)taps * columns * sizeof *index);
    float *weight = malloc((size_t)taps * columns * sizeof *weight);
    double *left = malloc((img->width + img->height) * sizeof *left);
    const char *wrong = NULL;
    struct ref_axis want;

    if (!index || !weight || !left || !ref_axis_make(&want, p, img, of_rows, 0))
        return "out of memory";
    const unsigned size = want.of_source_y ? img->height : img->width;
    clbi_axis_table(axis, p->filter, taps, columns, index, weight);
    /* Kernels load from entries of padding and behind the last column too. */
    for (size_t i = 0; i < (size_t)taps * columns && !wrong; i++)
        if (index[i] < 0 || (unsigned)index[i] >= size)
            wrong = "an index lies outside of the source";
    for (int i = 0; i < want.n && !wrong; i++)
        wrong = compare_entry(&want.tap[i], taps, columns, index, weight,
                              axis->before + (uint32_t)i, left, size);
    ref_axis_free(&want);
    free(index);
    free(weight);
    free(left);
    return wrong;
}

int main(void)
{
    for (int i = 0; i < 6000; i++) {
        clb_preprocess_params p;
        clb_preprocess_geometry want;
        struct clbi_geometry g;
        struct clb_image img;
        const char *wrong = NULL, *why = "";

        draw(&p, &img);
        ref_geometry(&p, &img, &want);
        if (clbi_geometry_make(&g, &p, &img, &why) != CLB_OK)
            wrong = why;
        else if (!same_geometry(&g.out, &want))
            wrong = "geometry differs";
        if (!wrong)
            wrong = compare_axis(&p, &img, &g.column, false);
        if (!wrong)
            wrong = compare_axis(&p, &img, &g.row, true);
        if (wrong) {
            fprintf(stderr,
                    "recipe %d: %ux%u -> %ux%u, crop %g,%g %gx%g, fit %d, filter %d, rotate %d, "
                    "flip %d: %s\n",
                    i, img.width, img.height, p.width, p.height, p.crop.x, p.crop.y, p.crop.w,
                    p.crop.h, (int)p.fit, (int)p.filter, (int)p.rotate, (int)p.flip, wrong);
            return 1;
        }
    }
    return 0;
}
