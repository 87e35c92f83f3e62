/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recipes against the reference: all parameters together, such that every pair of values of two of
 * them occurs (those that select a kernel and those that do not). With "--full" every kernel there
 * can be, each with all pairs of the other parameters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "covering.h"
#include "recipes_kit.h"

enum column {
    FORMAT, /* these select the kernel */
    FILTER,
    ORDER,
    LAYOUT,
    TYPE,
    FIT,
    TURNED,
    KERNEL_COLUMNS,
    SIZE = KERNEL_COLUMNS,
    OUTPUT,
    CROP,
    HALF_TURN,
    FLIP,
    PADS,
    COLOUR,
    BAYER,
    VALUES,
    OFFSET,
    SOURCE,
    COLUMNS
};

static const unsigned sizes[][2] = {{1, 1},   {2, 2},     {3, 5},      {5, 3},
                                    {55, 55}, {641, 480}, {1920, 1080}};

static const struct kit_pads pads[] = {
    {{0, 0, 0}, {0, 0, 0}},
    {{3, 1, 2}, {17, 5, 33}},
    {{64, 128, 32}, {256, 512, 64}},
    {{6, 1, 13}, {1, 6, 3}},
};

static const unsigned values[COLUMNS] = {
    [FORMAT] = CLB_PIXFMT_COUNT - 1,
    [FILTER] = 3,
    [ORDER] = 3,
    [LAYOUT] = 2,
    [TYPE] = 3,
    [FIT] = 3,
    [TURNED] = 2,
    [SIZE] = 7,
    [OUTPUT] = 5,
    [CROP] = 6,
    [HALF_TURN] = 2,
    [FLIP] = 4,
    [PADS] = 4,
    [COLOUR] = 8,
    [BAYER] = 4,
    [VALUES] = 3,
    [OFFSET] = 3,
    [SOURCE] = 2,
};

/* Eighths of pixels: what is touched does not depend on rounding. */
static double eighths(double v)
{
    return (double)(long)(v * 8) / 8;
}

static struct clb_preprocess_rect crop_of(unsigned kind, unsigned w, unsigned h)
{
    const double tw = w > 1 ? (double)(w / 2) : 1, th = h > 1 ? (double)(h / 2) : 1;
    const double fw = eighths(w * 0.6), fh = eighths(h * 0.7);

    switch (kind) {
    case 1: return (struct clb_preprocess_rect){0, 0, tw, th};
    case 2: return (struct clb_preprocess_rect){w - tw, h - th, tw, th};
    case 3: return (struct clb_preprocess_rect){eighths(w * 0.23), eighths(h * 0.17), fw, fh};
    case 4: return (struct clb_preprocess_rect){w - fw, h - fh, fw, fh};
    case 5: return (struct clb_preprocess_rect){w / 2 + 0.25, h / 2 + 0.375, 0.5, 0.375};
    default: return (struct clb_preprocess_rect){0, 0, 0, 0};
    }
}

/* CPU runtimes compile a kernel again for each size of work-group, which comes from the width of the
 * output: few widths. */
static void set_output(unsigned kind, clb_preprocess_params *p, const struct clb_image *img)
{
    switch (kind) {
    case 0: break;
    case 1: p->width = 13, p->height = 17; break;
    case 2: p->width = 11, p->height = img->height * 3 / 7 + 1; break;
    case 3: p->width = 15, p->height = img->height > 100 ? 111 : img->height * 2 + 1; break;
    default: p->width = 14; break; /* height of the source */
    }
}

static void set_values(unsigned kind, clb_preprocess_params *p)
{
    static const float u8[3][3][4] = {
        {{0}, {0}, {0}},
        {{0.5f, 0.75f, 1.25f}, {-10, 20, 5}, {1, 1.5f, 0.75f}},
        {{-1, 1, 2}, {-255, 0, 64}, {0, 0.5f, -2}},
    };
    static const float real[3][3][4] = {
        {{0}, {0}, {0}},
        {{1 / 255.0f, 1 / 255.0f, 1 / 255.0f}, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
        {{1 / 127.5f, 0, -1}, {1, 100, 0}, {0, 58.5f, 2}},
    };
    static const float pad[3][4] = {{0}, {114, 114, 114}, {10, 128, 255}};

    for (int c = 0; c < 3; c++) {
        p->scale[c] = p->type == CLB_TYPE_U8 ? u8[kind][0][c] : real[kind][0][c];
        p->mean[c] = p->type == CLB_TYPE_U8 ? u8[kind][1][c] : real[kind][1][c];
        p->dev[c] = p->type == CLB_TYPE_U8 ? u8[kind][2][c] : real[kind][2][c];
        p->pad[c] = pad[kind][c];
    }
}

static size_t skipped;

static void run_row(const struct covering_row *row)
{
    const enum clb_pixfmt fmt = (enum clb_pixfmt)(row->v[FORMAT] + 1);
    unsigned w = sizes[row->v[SIZE]][0], h = sizes[row->v[SIZE]][1];
    clb_preprocess_params p;
    struct clb_image img;
    size_t unit;

    if (ref_is_raw(fmt) && w < 2)
        w = 2, h = 3; /* RAW has its own smallest sizes */
    kit_image(&img, fmt, w, h, pads[row->v[PADS]]);
    if (ref_is_raw(fmt))
        img.bayer = (enum clb_bayer)(row->v[BAYER] + 1);
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.filter = (enum clb_preprocess_filter)row->v[FILTER];
    p.order = (enum clb_preprocess_order)row->v[ORDER];
    p.layout = (enum clb_preprocess_layout)row->v[LAYOUT];
    p.type = (enum clb_preprocess_type)row->v[TYPE];
    p.fit = (enum clb_preprocess_fit)row->v[FIT];
    p.rotate = (enum clb_preprocess_rotate)(row->v[TURNED] + 2 * row->v[HALF_TURN]);
    p.flip = (enum clb_preprocess_flip)row->v[FLIP];
    p.crop = crop_of(row->v[CROP], w, h);
    /* Four pairs of matrix and range, from the image or from the recipe. */
    img.matrix = (enum clb_matrix)(1 + (row->v[COLOUR] & 1));
    img.range = (enum clb_range)(1 + (row->v[COLOUR] >> 1 & 1));
    if (row->v[COLOUR] & 4) {
        p.matrix = img.matrix == CLB_MATRIX_601 ? CLB_MATRIX_709 : CLB_MATRIX_601;
        p.range = img.range == CLB_RANGE_FULL ? CLB_RANGE_LIMITED : CLB_RANGE_FULL;
    }
    set_output(row->v[OUTPUT], &p, &img);
    set_values(row->v[VALUES], &p);
    unit = p.type == CLB_TYPE_U8 ? 1 : p.type == CLB_TYPE_F16 ? 2 : 4;
    kit_check(&p, &img, unit * (size_t[]){0, 1, 37}[row->v[OFFSET]], row->v[SOURCE] == 1,
              (uint32_t)(row->v[FORMAT] * 1000 + row->v[SIZE] + 1), "recipes");
}

/* Big pictures in the interpreter take for ever. */
static bool too_big(const struct covering_row *row)
{
    return kit_small() && row->v[SIZE] > 4;
}

static struct covering_row rows[2048], kernels[512];

static size_t kernel_rows(void)
{
    const size_t n = covering_make(values, KERNEL_COLUMNS, NULL, 0, 0, kernels, 512);

    if (covering_missing(values, KERNEL_COLUMNS, kernels, n) != 0) {
        fprintf(stderr, "%zu kernels do not cover all pairs\n", n);
        exit(1);
    }
    return n;
}

static void pairwise(void)
{
    const size_t k = kernel_rows();
    const size_t n = covering_make(values, COLUMNS, kernels, k, KERNEL_COLUMNS, rows, 2048);

    if (covering_missing(values, COLUMNS, rows, n) != 0) {
        fprintf(stderr, "%zu rows do not cover all pairs\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        if (kit_small() && (too_big(&rows[i]) || i % 2 == 1)) {
            skipped++;
            continue;
        }
        run_row(&rows[i]);
    }
    printf("%zu rows, %zu of them not here, with %zu kernels\n", n, skipped, k);
}

/* All kernels, with the small pictures; the large ones with some. */
static void full(void)
{
    const time_t start = time(NULL);
    unsigned data[COLUMNS];
    size_t runs = 0, kernel = 0;

    for (unsigned c = 0; c < COLUMNS; c++)
        data[c] = c <= TYPE ? 1 : values[c];
    const size_t n = covering_make(data, COLUMNS, NULL, 0, 0, rows, 2048);
    if (covering_missing(data, COLUMNS, rows, n) != 0)
        exit(1);
    for (unsigned f = 0; f < values[FORMAT]; f++)
        for (unsigned i = 0; i < 3u * 3 * 2 * 3; i++, kernel++)
            for (size_t r = 0; r < n; r++) {
                struct covering_row row = rows[r];

                row.v[FORMAT] = (unsigned char)f;
                row.v[FILTER] = (unsigned char)(i % 3);
                row.v[ORDER] = (unsigned char)(i / 3 % 3);
                row.v[LAYOUT] = (unsigned char)(i / 9 % 2);
                row.v[TYPE] = (unsigned char)(i / 18);
                /* Large ones take long, and work-groups of their own a compilation. */
                if (row.v[SIZE] >= 4 && (kernel + r) % (row.v[SIZE] == 6 ? 64 : 8) != 0)
                    continue;
                run_row(&row);
                runs++;
            }
    printf("%zu runs of %zu kernels, %ld s\n", runs, kernel, (long)(time(NULL) - start));
}

int main(int argc, char **argv)
{
    kit_open();
    if (argc > 1 && strcmp(argv[1], "--full") == 0)
        full();
    else
        pairwise();
    kit_print_errors();
    kit_close();
    return 0;
}
