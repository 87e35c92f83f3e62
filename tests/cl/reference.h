/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of clbridge/preprocess.h in plain C and double precision, slow and by the letter: what
 * tests compare results with. Parameters are taken as valid.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <clbridge/preprocess.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a row that hold samples, and rows. */
size_t ref_row_bytes(const struct clb_image *img, unsigned plane);
unsigned ref_rows(const struct clb_image *img, unsigned plane);

bool ref_is_yuv(enum clb_pixfmt fmt);
bool ref_is_raw(enum clb_pixfmt fmt);
bool ref_is_grey(enum clb_pixfmt fmt);
/* Of the samples of RAW formats. */
unsigned ref_raw_bits(enum clb_pixfmt fmt);

/* R, G, B and luma of one pixel, 0..255. */
void ref_pixel(const clb_preprocess_params *p, const struct clb_image *img, const uint8_t *px,
               unsigned x, unsigned y, double value[4]);

/* All of it: `bytes` too. */
void ref_geometry(const clb_preprocess_params *p, const struct clb_image *img,
                  clb_preprocess_geometry *g);

/* What a column or row of the picture inside of the padding takes of the source: weights of the
 * pixels first .. first + n - 1. */
struct ref_tap {
    int first, n;
    double *w;
};

struct ref_axis {
    int n;
    struct ref_tap *tap;
    bool of_source_y; /* which of the source's directions it is */
};

/* The output's columns (or rows); see ref_run() for nudge. False = out of memory. */
bool ref_axis_make(struct ref_axis *a, const clb_preprocess_params *p, const struct clb_image *img,
                   bool of_rows, double nudge);
void ref_axis_free(struct ref_axis *a);

struct ref_result {
    clb_preprocess_geometry g;
    size_t count;   /* elements, in the order of the layout */
    double *value;  /* before rounding to the type; for u8 clamped to 0..255 */
    double *weight; /* depth: of the pixels that were measured, else 1; NULL without depth */
};

/* nudge is added to the positions of the filter NEAREST, in source pixels: what lies on the border
 * of two pixels falls to either side of it. False = out of memory. */
bool ref_run(const clb_preprocess_params *p, const struct clb_image *img, const uint8_t *px,
             double nudge_x, double nudge_y, struct ref_result *out);
void ref_free(struct ref_result *out);

double ref_from_half(uint16_t bits);
/* The distance of half-precision numbers next to v. */
double ref_half_ulp(double v);

#ifdef __cplusplus
}
#endif

#endif
