/* SPDX-License-Identifier: Apache-2.0 */
#include "raw10.h"

void raw10_unpack16(uint16_t *dst, const uint8_t *src, size_t pitch, size_t width, size_t first,
                    size_t last)
{
    for (size_t y = first; y < last; y++) {
        const uint8_t *restrict s = src + y * pitch;
        uint16_t *restrict d = dst + y * width;

        for (size_t i = 0; i < width / 4; i++) {
            const unsigned low = s[5 * i + 4];

            d[4 * i] = (uint16_t)(s[5 * i] << 2 | (low & 3));
            d[4 * i + 1] = (uint16_t)(s[5 * i + 1] << 2 | (low >> 2 & 3));
            d[4 * i + 2] = (uint16_t)(s[5 * i + 2] << 2 | (low >> 4 & 3));
            d[4 * i + 3] = (uint16_t)(s[5 * i + 3] << 2 | (low >> 6));
        }
    }
}

void raw10_unpack8(uint8_t *dst, const uint8_t *src, size_t pitch, size_t width, size_t first,
                   size_t last)
{
    for (size_t y = first; y < last; y++) {
        const uint8_t *restrict s = src + y * pitch;
        uint8_t *restrict d = dst + y * width;

        for (size_t i = 0; i < width / 4; i++) {
            d[4 * i] = s[5 * i];
            d[4 * i + 1] = s[5 * i + 1];
            d[4 * i + 2] = s[5 * i + 2];
            d[4 * i + 3] = s[5 * i + 3];
        }
    }
}
