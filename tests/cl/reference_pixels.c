/* SPDX-License-Identifier: Apache-2.0 */
/* See reference.h: from stored samples to R, G, B. */
#include "reference.h"

#include <math.h>
#include <string.h>

bool ref_is_yuv(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_NV12 || fmt == CLB_PIXFMT_NV21 || fmt == CLB_PIXFMT_I420 ||
           fmt == CLB_PIXFMT_YV12 || fmt == CLB_PIXFMT_YUYV || fmt == CLB_PIXFMT_UYVY;
}

bool ref_is_raw(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_RAW8 || fmt == CLB_PIXFMT_RAW10 || fmt == CLB_PIXFMT_RAW12 ||
           fmt == CLB_PIXFMT_RAW16 || fmt == CLB_PIXFMT_RAW10P;
}

bool ref_is_grey(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_GRAY8 || fmt == CLB_PIXFMT_GRAY16;
}

unsigned ref_raw_bits(enum clb_pixfmt fmt)
{
    switch (fmt) {
    case CLB_PIXFMT_RAW8: return 8;
    case CLB_PIXFMT_RAW10:
    case CLB_PIXFMT_RAW10P: return 10;
    case CLB_PIXFMT_RAW12: return 12;
    default: return 16;
    }
}

size_t ref_row_bytes(const struct clb_image *img, unsigned plane)
{
    const size_t w = img->width, half = (w + 1) / 2;

    switch (img->fmt) {
    case CLB_PIXFMT_NV12:
    case CLB_PIXFMT_NV21: return plane ? 2 * half : w;
    case CLB_PIXFMT_I420:
    case CLB_PIXFMT_YV12: return plane ? half : w;
    case CLB_PIXFMT_YUYV:
    case CLB_PIXFMT_UYVY: return 4 * half;
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24: return 3 * w;
    case CLB_PIXFMT_RGBA:
    case CLB_PIXFMT_BGRA:
    case CLB_PIXFMT_RGBPF32: return 4 * w;
    case CLB_PIXFMT_GRAY16:
    case CLB_PIXFMT_RAW10:
    case CLB_PIXFMT_RAW12:
    case CLB_PIXFMT_RAW16: return 2 * w;
    case CLB_PIXFMT_RAW10P: return (w + 3) / 4 * 5;
    default: return w;
    }
}

unsigned ref_rows(const struct clb_image *img, unsigned plane)
{
    const bool halved = img->fmt == CLB_PIXFMT_NV12 || img->fmt == CLB_PIXFMT_NV21 ||
                        img->fmt == CLB_PIXFMT_I420 || img->fmt == CLB_PIXFMT_YV12;

    return plane && halved ? (img->height + 1) / 2 : img->height;
}

static double clamp255(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static double u16_at(const uint8_t *p)
{
    return p[0] + 256.0 * p[1];
}

/* ---- mosaic ---------------------------------------------------------------------------------- */

static int mirrored(int i, int n)
{
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

/* On the scale 0..255. */
static double raw_at(const struct clb_image *img, const uint8_t *px, int x, int y)
{
    x = mirrored(x, (int)img->width);
    y = mirrored(y, (int)img->height);
    const uint8_t *row = px + img->plane[0].offset + img->plane[0].pitch * (size_t)y;
    double v;

    if (img->fmt == CLB_PIXFMT_RAW8) {
        v = row[x];
    } else if (img->fmt == CLB_PIXFMT_RAW10P) {
        const uint8_t *group = row + x / 4 * 5;
        v = group[x % 4] * 4 + (group[4] >> (2 * (x % 4)) & 3);
    } else {
        v = u16_at(row + 2 * x);
    }
    return clamp255(v * 255 / (pow(2, ref_raw_bits(img->fmt)) - 1));
}

static char colour_at(enum clb_bayer bayer, int x, int y)
{
    static const char *const cell[] = {"....", "RGGB", "BGGR", "GRBG", "GBRG"};

    return cell[bayer][(y & 1) * 2 + (x & 1)];
}

/* The mean of those of the eight neighbours and the pixel itself that count for this colour. */
static double demosaiced(const struct clb_image *img, const uint8_t *px, int x, int y, char colour)
{
    double sum = 0;
    int n = 0;

    if (colour_at(img->bayer, x, y) == colour)
        return raw_at(img, px, x, y);
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            if (colour == 'G' && dx != 0 && dy != 0)
                continue;
            if (colour_at(img->bayer, x + dx, y + dy) == colour) {
                sum += raw_at(img, px, x + dx, y + dy);
                n++;
            }
        }
    return sum / n;
}

/* ---- all formats ----------------------------------------------------------------------------- */

static void from_yuv(enum clb_matrix matrix, enum clb_range range, double sy, double su, double sv,
                     double value[4])
{
    const bool full = range == CLB_RANGE_FULL;
    const double kr = matrix == CLB_MATRIX_709 ? 0.2126 : 0.299;
    const double kb = matrix == CLB_MATRIX_709 ? 0.0722 : 0.114;
    const double kg = 1 - kr - kb;
    const double y = full ? sy / 255 : (sy - 16) / 219;
    const double u = (su - 128) / (full ? 255 : 224);
    const double v = (sv - 128) / (full ? 255 : 224);
    const double r = y + 2 * (1 - kr) * v;
    const double b = y + 2 * (1 - kb) * u;
    const double g = (y - kr * r - kb * b) / kg;

    value[0] = clamp255(255 * r);
    value[1] = clamp255(255 * g);
    value[2] = clamp255(255 * b);
    value[3] = clamp255(255 * y);
}

void ref_pixel(const clb_preprocess_params *p, const struct clb_image *img, const uint8_t *px,
               unsigned x, unsigned y, double value[4])
{
    enum clb_matrix matrix = p->matrix ? p->matrix : img->matrix;
    enum clb_range range = p->range ? p->range : img->range;
    const uint8_t *row[3] = {0}, *chroma[3] = {0};

    for (unsigned i = 0; i < img->num_planes; i++) {
        row[i] = px + img->plane[i].offset + img->plane[i].pitch * y;
        chroma[i] = px + img->plane[i].offset + img->plane[i].pitch * (y / 2);
    }
    switch (img->fmt) {
    case CLB_PIXFMT_NV12:
        from_yuv(matrix, range, row[0][x], chroma[1][x / 2 * 2], chroma[1][x / 2 * 2 + 1], value);
        return;
    case CLB_PIXFMT_NV21:
        from_yuv(matrix, range, row[0][x], chroma[1][x / 2 * 2 + 1], chroma[1][x / 2 * 2], value);
        return;
    case CLB_PIXFMT_I420:
        from_yuv(matrix, range, row[0][x], chroma[1][x / 2], chroma[2][x / 2], value);
        return;
    case CLB_PIXFMT_YV12:
        from_yuv(matrix, range, row[0][x], chroma[2][x / 2], chroma[1][x / 2], value);
        return;
    case CLB_PIXFMT_YUYV:
        from_yuv(matrix, range, row[0][2 * x], row[0][x / 2 * 4 + 1], row[0][x / 2 * 4 + 3], value);
        return;
    case CLB_PIXFMT_UYVY:
        from_yuv(matrix, range, row[0][2 * x + 1], row[0][x / 2 * 4], row[0][x / 2 * 4 + 2], value);
        return;
    case CLB_PIXFMT_GRAY8: value[0] = value[1] = value[2] = value[3] = row[0][x]; return;
    case CLB_PIXFMT_GRAY16:
        value[0] = u16_at(row[0] + 2 * x) / (p->depth ? 1 : 257);
        value[1] = value[2] = value[3] = value[0];
        return;
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24:
        for (int c = 0; c < 3; c++)
            value[img->fmt == CLB_PIXFMT_RGB24 ? c : 2 - c] = row[0][3 * x + (unsigned)c];
        break;
    case CLB_PIXFMT_RGBA:
    case CLB_PIXFMT_BGRA:
        for (int c = 0; c < 3; c++)
            value[img->fmt == CLB_PIXFMT_RGBA ? c : 2 - c] = row[0][4 * x + (unsigned)c];
        break;
    case CLB_PIXFMT_RGBP:
    case CLB_PIXFMT_BGRP:
        for (int c = 0; c < 3; c++)
            value[img->fmt == CLB_PIXFMT_RGBP ? c : 2 - c] = row[c][x];
        break;
    case CLB_PIXFMT_RGBPF32:
        for (int c = 0; c < 3; c++) {
            float f;
            memcpy(&f, row[c] + 4 * (size_t)x, sizeof f);
            value[c] = clamp255(f);
        }
        break;
    default:
        for (int c = 0; c < 3; c++)
            value[c] = demosaiced(img, px, (int)x, (int)y, "RGB"[c]);
        break;
    }
    if (matrix == CLB_MATRIX_709)
        value[3] = 0.2126 * value[0] + 0.7152 * value[1] + 0.0722 * value[2];
    else
        value[3] = 0.299 * value[0] + 0.587 * value[1] + 0.114 * value[2];
}
