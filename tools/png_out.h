/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as PNG files. */
#ifndef TOOLS_PNG_OUT_H
#define TOOLS_PNG_OUT_H

#include <stddef.h>
#include <stdint.h>

/* channels: 3 = RGB, 1 = grey; rows follow each other after `pitch` bytes. 0, or an errno value; then
 * no file is left behind. */
int png_write_file(const char *path, const uint8_t *pixels, uint32_t width, uint32_t height,
                   size_t pitch, unsigned channels);

#endif
