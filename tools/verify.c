/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification: renders the frame that should be there and compares.
 */
#include "verify.h"

#include <stdio.h>
#include <string.h>

void verify_init(struct verify *v, enum verify_mode mode, uint64_t seed)
{
    memset(v, 0, sizeof *v);
    v->mode = mode;
    v->seed = seed;
}

void verify_free(struct verify *v)
{
    if (v->have_want)
        pattern_free(&v->want);
    v->have_want = false;
}

void verify_restart(struct verify *v)
{
    v->have_ahead = false;
}

bool verify_active(const struct verify *v)
{
    return v->mode != VERIFY_OFF;
}

const char *verify_name(const struct verify *v)
{
    static const char *const names[] = {"auto", "bars", "counter", "noise", "off"};

    return names[v->mode];
}

/* Makes the expected frame; the buffer is kept while layout or size stay the same. image: of bars. */
static bool render(struct verify *v, enum pattern_kind kind, const struct clb_image *image,
                   size_t size, uint64_t n)
{
    if (v->have_want &&
        (v->want.kind != kind || (kind == PATTERN_BARS ? !pattern_same_layout(&v->want.image, image)
                                                       : v->want.size != size)))
        verify_free(v);
    if (!v->have_want) {
        v->have_want = pattern_init(&v->want, kind, image, size, v->seed) == CLB_OK;
        if (!v->have_want) {
            snprintf(v->why, sizeof v->why, "the expected picture could not be made");
            return false;
        }
    }
    pattern_render(&v->want, n);
    return true;
}

static bool compare_bytes(struct verify *v, const uint8_t *pixels, size_t size)
{
    size_t at = 0;

    if (!memcmp(pixels, v->want.data, size))
        return true;
    while (pixels[at] == v->want.data[at])
        at++;
    snprintf(v->why, sizeof v->why, "byte %zu is %u, not %u", at, pixels[at], v->want.data[at]);
    return false;
}

/* Pixels only: what lies in the padding of rows is nobody's business. `as` is the layout of what is
 * expected. */
static bool compare_rows(struct verify *v, const struct verify_view *view,
                         const struct clb_image *as)
{
    for (unsigned i = 0; i < as->num_planes; i++) {
        const struct clb_plane *here = &view->image->plane[i], *there = &as->plane[i];
        size_t rows, row_bytes;

        pattern_plane_shape(as, i, &rows, &row_bytes);
        for (size_t y = 0; y < rows; y++) {
            const uint8_t *got = view->pixels + here->offset + here->pitch * y;
            const uint8_t *want = v->want.data + there->offset + there->pitch * y;
            size_t x = 0;

            if (!memcmp(got, want, row_bytes))
                continue;
            while (got[x] == want[x])
                x++;
            snprintf(v->why, sizeof v->why, "plane %u row %zu byte %zu is %u, not %u", i, y, x,
                     got[x], want[x]);
            return false;
        }
    }
    return true;
}

/* The number that a frame carries must be its place in the sequence, counted from the first one. */
static bool in_sequence(struct verify *v, uint64_t n, uint64_t seq, uint64_t mask)
{
    if (!v->have_ahead) {
        v->ahead = n - seq;
        v->have_ahead = true;
    }
    if (((seq + v->ahead) & mask) == n)
        return true;
    snprintf(v->why, sizeof v->why, "this is picture %llu, not %llu", (unsigned long long)n,
             (unsigned long long)((seq + v->ahead) & mask));
    return false;
}

static bool whole_picture(const struct verify_view *view)
{
    return view->image && view->pixels && view->size >= clb_image_bytes(view->image);
}

static bool check_bars(struct verify *v, const struct verify_view *view, uint64_t seq)
{
    uint32_t n;

    if (!whole_picture(view)) {
        if (view->image)
            snprintf(v->why, sizeof v->why, "%zu bytes are too few for the picture", view->size);
        else
            snprintf(v->why, sizeof v->why, "how its pixels lie is unknown");
        return false;
    }
    if (!pattern_read_code(view->image, view->pixels, &n)) {
        snprintf(v->why, sizeof v->why, "the code with the frame number is damaged");
        return false;
    }
    return in_sequence(v, n, seq, UINT32_MAX) &&
           render(v, PATTERN_BARS, view->image, view->size, n) &&
           compare_rows(v, view, view->image);
}

/* The byte that was sent as number `at` of the frame; 0 for padding, which does not arrive. */
static uint8_t sent_byte(const struct verify_view *view, size_t at)
{
    if (!view->sent)
        return view->pixels[at];
    for (unsigned i = 0; i < view->sent->num_planes; i++) {
        const struct clb_plane *here = &view->image->plane[i], *there = &view->sent->plane[i];
        size_t rows, row_bytes, row, x;

        pattern_plane_shape(view->sent, i, &rows, &row_bytes);
        if (at < there->offset || !there->pitch)
            continue;
        row = (at - there->offset) / there->pitch;
        x = (at - there->offset) % there->pitch;
        if (row < rows && x < row_bytes)
            return view->pixels[here->offset + here->pitch * row + x];
    }
    return 0;
}

static uint64_t sent_number(const struct verify_view *view)
{
    uint64_t value = 0;

    for (size_t i = 8; i-- > 0;)
        value = value << 8 | sent_byte(view, i);
    return value;
}

/* Bytes of the frame as it was sent. */
static size_t sent_size(const struct verify_view *view)
{
    return view->sent ? clb_image_bytes(view->sent) : view->size;
}

/* A stream of bytes: padding counts, unless rows were moved. */
static bool check_bytes(struct verify *v, const struct verify_view *view, enum pattern_kind kind,
                        uint64_t n)
{
    if (view->sent && !whole_picture(view)) {
        snprintf(v->why, sizeof v->why, "%zu bytes are too few for the picture", view->size);
        return false;
    }
    if (!render(v, kind, NULL, sent_size(view), n))
        return false;
    return view->sent ? compare_rows(v, view, view->sent)
                      : compare_bytes(v, view->pixels, view->size);
}

static bool check_counter(struct verify *v, const struct verify_view *view, uint64_t seq)
{
    uint64_t n = seq;

    if (sent_size(view) >= 8 && (!view->sent || whole_picture(view))) {
        n = sent_number(view);
        if (!in_sequence(v, n, seq, UINT64_MAX))
            return false;
    } else {
        n += v->ahead;
    }
    return check_bytes(v, view, PATTERN_COUNTER, n);
}

/* The first frame decides: bars if the CRC of its code holds, else counter if all of it matches. */
static enum verify_mode decide(struct verify *v, const struct verify_view *view, uint64_t seq)
{
    uint32_t n;

    if (whole_picture(view) && pattern_read_code(view->image, view->pixels, &n))
        return VERIFY_BARS;
    if (sent_size(view) >= 8 && check_counter(v, view, seq))
        return VERIFY_COUNTER;
    return VERIFY_OFF;
}

enum verify_result verify_frame(struct verify *v, const struct verify_view *view, uint64_t seq)
{
    bool good = false;

    if (v->mode == VERIFY_AUTO) {
        v->mode = decide(v, view, seq);
        if (v->mode == VERIFY_OFF)
            verify_free(v);
        v->have_ahead = false;
    }
    switch (v->mode) {
    case VERIFY_BARS: good = check_bars(v, view, seq); break;
    case VERIFY_COUNTER: good = check_counter(v, view, seq); break;
    case VERIFY_NOISE: good = check_bytes(v, view, PATTERN_NOISE, seq); break;
    case VERIFY_AUTO:
    case VERIFY_OFF: return VERIFY_UNKNOWN;
    }
    return good ? VERIFY_GOOD : VERIFY_BAD;
}
