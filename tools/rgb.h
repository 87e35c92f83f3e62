/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures made by the processor, for `recv --memory host --save png`. */
#ifndef TOOLS_RGB_H
#define TOOLS_RGB_H

#include <stdint.h>

#include <clbridge/image.h>

/* To width * height RGB triples, by the formulas of preprocess.h (601, limited range). The format is
 * one that patterns know, and the pixels are all there. */
void rgb_from_image(const struct clb_image *image, const uint8_t *pixels, uint8_t *rgb);

#endif
