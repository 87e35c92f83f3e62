/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows into another layout: what the plan does to a stream, byte by byte, against a naive model; and
 * the host's move against the same model. Every byte that is no pixel stays as it was.
 */
#include <core/image_shape.h>
#include <core/rows.h>

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#define SINK 64
#define MEM ((size_t)1 << 16)
#define GUARD 0xEE

static uint32_t state = 12345;

static uint32_t pick(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}

static struct clb_image make(enum clb_pixfmt fmt, uint32_t w, uint32_t h, size_t pitch_align,
                             size_t plane_align)
{
    struct clb_image img;
    const int rc = clb_image_init(&img, fmt, w, h, pitch_align, plane_align);

    cr_assert_eq(rc, CLB_OK, "%s %ux%u: %d", clb_pixfmt_name(fmt), w, h, rc);
    return img;
}

/* Planes in any order, pitches and distances at random, at most `pad` bytes more than needed. */
static struct clb_image scatter(enum clb_pixfmt fmt, uint32_t w, uint32_t h, uint32_t pad)
{
    static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct clb_image img = make(fmt, w, h, 0, 0);
    const uint32_t *order = orders[pick(6)];
    size_t at = pick(2) ? pick(pad + 1) : 0;

    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t p = order[i];

        if (p >= img.num_planes)
            continue;
        const struct clbi_plane_shape shape = clbi_plane_shape(&img, p);
        img.plane[p].offset = at;
        img.plane[p].pitch = (size_t)shape.row_bytes + (pick(3) ? pick(pad + 1) : 0);
        at += img.plane[p].pitch * (size_t)(shape.rows - 1) + (size_t)shape.row_bytes;
        switch (pick(3)) {
        case 0: break;                                                     /* nothing */
        case 1: at += img.plane[p].pitch - (size_t)shape.row_bytes; break; /* whole rows */
        case 2: at += pick(pad + 1); break;
        }
    }
    return img;
}

static uint8_t stream[MEM], mem[MEM], model[MEM], sink[SINK];

static void paint(void)
{
    for (size_t i = 0; i < MEM; i++)
        stream[i] = (uint8_t)(pick(200)); /* never GUARD */
    memset(mem, GUARD, sizeof mem);
    memset(model, GUARD, sizeof model);
}

static void move_naively(const struct clb_image *dst, uint8_t *to, const struct clb_image *src)
{
    for (uint32_t p = 0; p < src->num_planes; p++) {
        const struct clbi_plane_shape shape = clbi_plane_shape(src, p);

        for (uint64_t y = 0; y < shape.rows; y++)
            for (uint64_t x = 0; x < shape.row_bytes; x++)
                to[dst->plane[p].offset + y * dst->plane[p].pitch + x] =
                    stream[src->plane[p].offset + y * src->plane[p].pitch + x];
    }
}

static size_t in_sink(uint8_t *to, size_t bytes)
{
    cr_assert(to >= sink && bytes <= SINK && (size_t)(to - sink) <= SINK - bytes,
              "%zu bytes beside the sink", bytes);
    return bytes;
}

/* As a transport does; the bytes of the stream that it took. */
static size_t run(const struct clbi_seg *segs, size_t n)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < segs[i].rows; y++) {
            uint8_t *row = (uint8_t *)segs[i].base + y * segs[i].pitch;

            if (row >= mem && row < mem + MEM)
                cr_assert_leq(segs[i].row_bytes, (size_t)(mem + MEM - row));
            else
                in_sink(row, segs[i].row_bytes);
            for (size_t x = 0; x < segs[i].row_bytes; x++)
                row[x] = stream[at++];
            if (segs[i].gap > 0)
                at += in_sink(segs[i].sink, segs[i].gap);
        }
    return at;
}

static size_t same_as_model(void)
{
    size_t i = 0;

    while (i < MEM && mem[i] == model[i])
        i++;
    return i;
}

static bool try_plan(const struct clb_image *src, size_t pixels, const struct clb_image *dst,
                     size_t sink_size, size_t *used)
{
    struct clbi_seg segs[CLBI_ROWS_SEGS + 1];
    const size_t start = pick(100);
    size_t n = 0, asked = 0;
    const bool can = clbi_rows_plan(segs, &asked, src, pixels, dst, NULL, sink, sink_size);

    cr_assert_leq(pixels, MEM);
    paint();
    memset(&segs[CLBI_ROWS_SEGS], GUARD, sizeof *segs);
    cr_expect_eq(clbi_rows_plan(segs, &n, src, pixels, dst, mem + start, sink, sink_size), can,
                 "asked without memory it says something else");
    cr_expect_eq(n, asked);
    if (!can)
        return false;
    cr_assert_leq(n, CLBI_ROWS_SEGS);
    move_naively(dst, model + start, src);
    cr_expect_eq(run(segs, n), pixels, "%s: the plan takes another number of bytes",
                 clb_pixfmt_name(src->fmt));
    cr_expect_eq(same_as_model(), MEM, "%s %ux%u: wrong at %zu", clb_pixfmt_name(src->fmt),
                 src->width, src->height, same_as_model());
    *used = n;

    memset(mem, GUARD, sizeof mem);
    clbi_rows_copy(dst, mem + start, src, stream);
    cr_expect_eq(same_as_model(), MEM, "%s %ux%u: copied wrong at %zu", clb_pixfmt_name(src->fmt),
                 src->width, src->height, same_as_model());
    return true;
}

static const struct {
    uint32_t w, h;
} sizes[] = {{1, 1}, {3, 3}, {5, 7}, {2, 1}, {1, 6}, {16, 4}, {33, 10}};
#define SIZES (sizeof sizes / sizeof *sizes)

Test(rows, every_format_and_size)
{
    for (int fmt = 1; fmt < CLB_PIXFMT_COUNT; fmt++)
        for (size_t k = 0; k < SIZES; k++)
            for (int round = 0; round < 8; round++) {
                const struct clb_image src =
                    round ? scatter((enum clb_pixfmt)fmt, sizes[k].w, sizes[k].h, 20)
                          : make((enum clb_pixfmt)fmt, sizes[k].w, sizes[k].h, 0, 0);
                const struct clb_image dst =
                    round % 2 ? scatter((enum clb_pixfmt)fmt, sizes[k].w, sizes[k].h, 90)
                              : make((enum clb_pixfmt)fmt, sizes[k].w, sizes[k].h,
                                     (size_t)1 << pick(8), (size_t)1 << pick(10));
                size_t used;

                cr_expect(try_plan(&src, clb_image_bytes(&src) + (round > 2 ? pick(41) : 0), &dst,
                                   SINK, &used),
                          "%s %ux%u, round %d: no plan", clb_pixfmt_name(src.fmt), src.width,
                          src.height, round);
            }
}

/* What is said of single pictures: the segments themselves. */
Test(rows, segments_of_known_pictures)
{
    struct clbi_seg s[CLBI_ROWS_SEGS];
    size_t n;
    struct clb_image src = make(CLB_PIXFMT_BGR24, 300, 300, 0, 0),
                     dst = make(CLB_PIXFMT_BGR24, 300, 300, 64, 0);
    static uint8_t base[960 * 300];

#define IS(seg, at, bytes, step, count, behind)                                                    \
    cr_expect((seg).base == (at) && (seg).row_bytes == (bytes) && (seg).rows == (count) &&         \
                  ((count) == 1 || (seg).pitch == (step)) && (seg).gap == (behind),                \
              "base + %td, %zu of %zu, pitch %zu, gap %zu", (uint8_t *)(seg).base - base,          \
              (seg).rows, (seg).row_bytes, (seg).pitch, (seg).gap)

    cr_assert(clbi_rows_plan(s, &n, &src, 270000, &dst, base, NULL, 0));
    cr_expect_eq(n, 1);
    IS(s[0], base, 900, 960, 300, 0);

    /* The other way, the stream ending with the last pixel, with the padding, and behind it. */
    cr_assert(clbi_rows_plan(s, &n, &dst, 960 * 300 - 60, &src, base, sink, 60));
    cr_expect_eq(n, 2);
    IS(s[0], base, 900, 900, 299, 60);
    IS(s[1], base + 299 * 900, 900, 0, 1, 0);
    cr_expect_eq(s[0].sink, sink);
    cr_assert(clbi_rows_plan(s, &n, &dst, 960 * 300, &src, base, sink, 60));
    cr_expect_eq(n, 1);
    IS(s[0], base, 900, 900, 300, 60);
    cr_assert(clbi_rows_plan(s, &n, &dst, 960 * 300 - 10, &src, base, sink, 60));
    cr_expect_eq(n, 2);
    IS(s[1], base + 299 * 900, 900, 0, 1, 50);

    /* Nothing to move: one piece; but padding is not written even where both have the same. */
    cr_assert(clbi_rows_plan(s, &n, &src, 270003, &src, base, sink, 3));
    cr_expect_eq(n, 1);
    IS(s[0], base, 270000, 0, 1, 3);
    cr_assert(clbi_rows_plan(s, &n, &dst, 960 * 300, &dst, base, sink, 60));
    cr_expect_eq(n, 1);
    IS(s[0], base, 900, 960, 300, 60);

    /* Chroma first in the stream, behind a gap. */
    src = make(CLB_PIXFMT_NV12, 6, 4, 0, 0);
    src.plane[1].offset = 7;
    src.plane[0].offset = 20;
    dst = make(CLB_PIXFMT_NV12, 6, 4, 8, 64);
    cr_assert(clbi_rows_plan(s, &n, &src, 44, &dst, base, sink, 7));
    cr_expect_eq(n, 4);
    IS(s[0], sink, 7, 0, 1, 0);
    IS(s[1], base + 64, 6, 8, 1, 0);
    IS(s[2], base + 72, 6, 0, 1, 1);
    IS(s[3], base, 6, 8, 4, 0);

    /* The most that there is: seven. */
    src = make(CLB_PIXFMT_I420, 4, 4, 0, 0);
    src.plane[0] = (struct clb_plane){1, 5};
    src.plane[1] = (struct clb_plane){30, 3};
    src.plane[2] = (struct clb_plane){40, 3};
    dst = make(CLB_PIXFMT_I420, 4, 4, 8, 0);
    cr_assert(clbi_rows_plan(s, &n, &src, 50, &dst, base, sink, SINK));
    cr_expect_eq(n, 7);
#undef IS
}

Test(rows, the_host_moves_these)
{
    struct clb_image src = make(CLB_PIXFMT_I420, 8, 4, 0, 0), bad;
    const struct clb_image dst = make(CLB_PIXFMT_I420, 8, 4, 32, 0);
    const size_t bytes = clb_image_bytes(&src);
    size_t used;

    cr_assert(try_plan(&src, bytes, &dst, 0, &used));
#define ANY SIZE_MAX /* no sink is too small */
#define NO(pixels, sink_size)                                                                      \
    cr_expect_not(try_plan(&bad, pixels, &dst, sink_size, &used), "line %d", __LINE__)
#define YES(pixels, sink_size)                                                                     \
    cr_expect(try_plan(&bad, pixels, &dst, sink_size, &used), "line %d", __LINE__)

    /* U and V side by side in rows that they share. */
    bad = src;
    bad.plane[1].pitch = bad.plane[2].pitch = 8;
    bad.plane[2].offset = bad.plane[1].offset + 4;
    NO(bytes + 100, ANY);
    /* One byte of two planes, and all of them. */
    bad = src;
    bad.plane[1].offset--;
    NO(bytes, ANY);
    bad = src;
    bad.plane[2].offset = bad.plane[1].offset;
    NO(bytes, ANY);
    bad = src;
    bad.plane[1].offset = bad.plane[2].offset = 0;
    NO(bytes, ANY);

    /* Before, between rows, between planes, behind: as large as the sink, and larger. */
    bad = src;
    for (int p = 0; p < 3; p++)
        bad.plane[p].offset += 3;
    YES(bytes + 3, 3);
    NO(bytes + 3, 2);
    bad = src;
    bad.plane[2].pitch += 5;
    YES(bytes + 5, 5);
    NO(bytes + 5, 4);
    bad = src;
    bad.plane[2].offset += 6;
    YES(bytes + 6, 6);
    NO(bytes + 6, 5);
    bad = src;
    YES(bytes + 7, 7);
    NO(bytes + 7, 6);

    /* Other pictures, and none. */
    bad = src;
    NO(bytes - 1, ANY);
    bad.plane[0].pitch = 7;
    NO(bytes, ANY);
    bad = src;
    bad.plane[1].pitch = SIZE_MAX - 1;
    NO(bytes, ANY);
    bad = src;
    bad.plane[0].offset = SIZE_MAX - 3;
    NO(bytes, ANY);
    bad = src;
    bad.fmt = CLB_PIXFMT_YV12;
    NO(bytes, ANY);
    bad = src;
    bad.width = 7;
    NO(bytes, ANY);
    bad = src;
    bad.height = 3;
    NO(bytes, ANY);
    bad = src;
    bad.num_planes = 4;
    NO(bytes, ANY);
    bad = src;
    bad.fmt = CLB_PIXFMT_UNKNOWN;
    NO(bytes, ANY);

    /* The pitch of a single row says nothing. */
    bad = make(CLB_PIXFMT_GRAY8, 8, 1, 0, 0);
    bad.plane[0].pitch = SIZE_MAX;
    const struct clb_image row = make(CLB_PIXFMT_GRAY8, 8, 1, 64, 0);
    cr_expect(try_plan(&bad, 8, &row, 0, &used));
    cr_expect_eq(used, 1);
#undef YES
#undef ANY
#undef NO
}

/* The host can do what no plan can. */
Test(rows, copies_planes_that_share_rows)
{
    struct clb_image src = make(CLB_PIXFMT_I420, 9, 6, 0, 0);
    const struct clb_image dst = make(CLB_PIXFMT_I420, 9, 6, 16, 128);

    src.plane[1].pitch = src.plane[2].pitch = 10;
    src.plane[2].offset = src.plane[1].offset + 5;
    paint();
    move_naively(&dst, model + 11, &src);
    clbi_rows_copy(&dst, mem + 11, &src, stream);
    cr_expect_eq(same_as_model(), MEM);
}

Test(rows, looks_back_at_any_bytes)
{
    for (size_t k = 0; k < 400; k++) {
        const enum clb_pixfmt fmt = (enum clb_pixfmt)(1 + pick(CLB_PIXFMT_COUNT - 1));
        const uint32_t w = 1 + pick(20), h = 1 + pick(20);
        const struct clb_image src = make(fmt, w, h, 1, 1), dst = make(fmt, w, h, 32, 64);
        const size_t bytes = clb_image_bytes(&src), offset = pick((uint32_t)bytes);
        const size_t size = pick((uint32_t)(bytes - offset) + 1);
        uint8_t *seen = malloc(size ? size : 1);

        paint();
        clbi_rows_copy(&dst, mem, &src, stream);
        clbi_rows_peek(seen, &src, &dst, mem, offset, size);
        cr_assert_eq(memcmp(seen, stream + offset, size), 0, "%s %ux%u: %zu at %zu",
                     clb_pixfmt_name(fmt), w, h, size, offset);
        free(seen);
    }
}
