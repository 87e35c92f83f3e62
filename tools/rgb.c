/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colour conversion by ITU-R BT.601-7 sections 2.5.1 and 2.5.3, limited range, in 16.16 fixed point.
 */
#include "rgb.h"

#include <string.h>

#define FIX(x) ((int)((x)*65536 + 0.5))
#define KR 0.299
#define KB 0.114
#define KG (1 - KR - KB)

static uint8_t clamp(int fixed)
{
    int value = (fixed + 32768) >> 16;

    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void nv12_row(const uint8_t *luma, const uint8_t *chroma, uint32_t width, uint8_t *rgb)
{
    for (uint32_t x = 0; x < width; x++, rgb += 3) {
        int y = (luma[x] - 16) * FIX(255.0 / 219), u = chroma[x / 2 * 2] - 128,
            v = chroma[x / 2 * 2 + 1] - 128;

        rgb[0] = clamp(y + v * FIX(2 * (1 - KR) * 255 / 224));
        rgb[1] = clamp(y - u * FIX(2 * KB * (1 - KB) / KG * 255 / 224) -
                       v * FIX(2 * KR * (1 - KR) / KG * 255 / 224));
        rgb[2] = clamp(y + u * FIX(2 * (1 - KB) * 255 / 224));
    }
}

void rgb_from_image(const struct clb_image *image, const uint8_t *pixels, uint8_t *rgb)
{
    for (uint32_t y = 0; y < image->height; y++, rgb += (size_t)image->width * 3) {
        const uint8_t *row = pixels + image->plane[0].offset + image->plane[0].pitch * y;

        switch (image->fmt) {
        case CLB_PIXFMT_NV12:
            nv12_row(row, pixels + image->plane[1].offset + image->plane[1].pitch * (y / 2),
                     image->width, rgb);
            break;
        case CLB_PIXFMT_RGB24: memcpy(rgb, row, (size_t)image->width * 3); break;
        case CLB_PIXFMT_BGR24:
            for (uint32_t x = 0; x < image->width; x++)
                for (int c = 0; c < 3; c++)
                    rgb[3 * x + c] = row[3 * x + 2 - c];
            break;
        default:
            for (uint32_t x = 0; x < image->width; x++)
                memset(rgb + 3 * x, row[x], 3);
        }
    }
}
