/* SPDX-License-Identifier: Apache-2.0 */
/* The bars pattern: the part that never changes, and what changes with the frame number. */
#ifndef TOOLS_PATTERN_BARS_H
#define TOOLS_PATTERN_BARS_H

#include <stdint.h>

#include <clbridge/image.h>

void bars_draw(const struct clb_image *image, uint8_t *data);
void bars_number(const struct clb_image *image, uint8_t *data, uint32_t n);

#endif
