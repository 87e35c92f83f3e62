/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planes of a picture hold, without padding.
 */
#ifndef CLBI_IMAGE_SHAPE_H
#define CLBI_IMAGE_SHAPE_H

#include <clbridge/image.h>

struct clbi_plane_shape {
    uint64_t row_bytes;
    uint64_t rows;
};

/* Of an image whose format is known, plane below its number of planes; neither is 0 when width and
 * height are not. */
struct clbi_plane_shape clbi_plane_shape(const struct clb_image *img, uint32_t plane);

#endif
