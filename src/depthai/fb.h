/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthai's description of a picture, the structure of eight numbers in an ImgFrame (wire section
 * 9.3), and ours, in both directions. Also the params of both public functions.
 */
#ifndef CLBI_FB_H
#define CLBI_FB_H

#include <clbridge/image.h>

#include <stdbool.h>

#define CLBI_METADATA_MAX 51200u /* bytes, wire section 9.1 */
#define CLBI_FB_NUMBERS 8u
#define CLBI_FB_NONE 33 /* the frame type of a picture that is not set */

/* Numbers as they stand in the metadata. */
struct clbi_fb {
    int32_t type;
    uint32_t width, height;
    uint32_t stride;    /* 0 = packed */
    uint32_t bytes_pp;  /* anything; not computed with */
    uint32_t offset[3]; /* of the planes; all 0 = one follows the other */
};

/* Our format of a frame type, 0 = none; and the frame type of ours, -1 = none. */
enum clb_pixfmt clbi_fb_format(int32_t type);
int32_t clbi_fb_type(enum clb_pixfmt fmt);

/* What depthai's setters leave in bytes_pp. */
uint32_t clbi_fb_bytes_pp(enum clb_pixfmt fmt);

/* The layout that fb describes; with a type without a format of ours only its size. False when it does
 * not fit data_size bytes. */
bool clbi_fb_image(struct clb_image *out, const struct clbi_fb *fb, size_t data_size);

/* Fills *fb. False when depthai cannot say this layout: its rows have one pitch for all planes, half
 * of it for the chroma of YUV420p. */
bool clbi_fb_describe(struct clbi_fb *fb, const struct clb_image *img, bool always_offsets);

/* As the params of every call are copied (clbridge/common.h). */
int clbi_fb_params(void *dst, size_t dst_size, const void *src);

#endif
