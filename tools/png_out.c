/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PNG writer over libpng, tuned for speed: pictures are written while frames arrive.
 */
#include "png_out.h"

#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>

/* libpng's default handlers print to standard error, which is not theirs here. */
static void on_error(png_structp png, png_const_charp text)
{
    (void)text;
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

/* Nothing that lives across longjmp() is changed after setjmp(). */
static int write_picture(FILE *file, png_structp png, png_infop info, const uint8_t *pixels,
                         uint32_t width, uint32_t height, size_t pitch, unsigned channels)
{
    if (setjmp(png_jmpbuf(png)))
        return errno ? errno : EIO;
    png_init_io(png, file);
    png_set_compression_level(png, 1);
    png_set_filter(png, 0, PNG_FILTER_SUB);
    png_set_IHDR(png, info, width, height, 8,
                 channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (uint32_t y = 0; y < height; y++)
        png_write_row(png, pixels + pitch * y);
    png_write_end(png, info);
    return 0;
}

int png_write_file(const char *path, const uint8_t *pixels, uint32_t width, uint32_t height,
                   size_t pitch, unsigned channels)
{
    FILE *file = fopen(path, "wbe");
    png_structp png;
    png_infop info;
    int rc = ENOMEM;

    if (!file)
        return errno;
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    info = png ? png_create_info_struct(png) : NULL;
    errno = 0;
    if (info)
        rc = write_picture(file, png, info, pixels, width, height, pitch, channels);
    png_destroy_write_struct(&png, &info);
    if (fclose(file) && !rc)
        rc = errno;
    if (rc)
        unlink(path);
    return rc;
}
