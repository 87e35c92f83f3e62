/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recipe draws where, and which source pixels each column and row of the output takes: the
 * rules of clbridge/preprocess.h, in double precision. Pure: no OpenCL, no memory of its own.
 */
#ifndef CLBI_GEOMETRY_H
#define CLBI_GEOMETRY_H

#include <clbridge/preprocess.h>
#include <stdbool.h>

/* One direction of the output and the direction of the source that it runs along. */
struct clbi_axis {
    double start;    /* first position of the source that is seen, pixels */
    double length;   /* pixels of the source that are seen */
    uint32_t n;      /* output pixels that they fill */
    uint32_t before; /* output pixels of padding in front of these */
    uint32_t size;   /* output pixels in all */
    uint32_t low;    /* first and last pixel of the source that may be used */
    uint32_t high;
    int reverse; /* the output runs against the source */
};

struct clbi_geometry {
    clb_preprocess_geometry out;
    struct clbi_axis column; /* along the output's columns (x) */
    struct clbi_axis row;    /* along the output's rows (y) */
    int turned;              /* column runs along the source's y, row along its x */
};

/* Bytes of one value. */
size_t clbi_type_bytes(enum clb_preprocess_type type);

/* For params whose enums and numbers have been checked, and an image that has. On failure *why tells
 * what does not fit. @return CLB_OK; INVAL (crop outside of the picture), TOOBIG. */
int clbi_geometry_make(struct clbi_geometry *g, const clb_preprocess_params *p,
                       const struct clb_image *img, const char **why);

/* Source pixels per output pixel that the filter takes along the axis. */
uint32_t clbi_axis_taps(const struct clbi_axis *axis, enum clb_preprocess_filter filter);

/*
 * The source pixel and weight of every tap and output pixel, index[tap * columns + i] for i <
 * columns. Those of padding, and behind `size`, are some pixel that is there. Weights of an output
 * pixel sum up to 1. Where BILINEAR has one pixel only, it is the first tap.
 */
void clbi_axis_table(const struct clbi_axis *axis, enum clb_preprocess_filter filter, uint32_t taps,
                     uint32_t columns, int32_t *index, float *weight);

#endif
