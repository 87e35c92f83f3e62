/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification: renders the frame that should be there and compares.
 */
#include "verify.h"

#include <stdio.h>
#include <string.h>

void verify_init(struct verify *v, enum verify_mode mode, const struct clb_image *image,
                 uint64_t seed)
{
    memset(v, 0, sizeof *v);
    v->mode = mode;
    v->seed = seed;
    if (image)
        v->image = *image;
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

static uint64_t load_le64(const uint8_t *bytes)
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Makes the expected frame; the buffer is kept while sizes stay the same. */
static bool render(struct verify *v, enum pattern_kind kind, size_t size, uint64_t n)
{
    if (v->have_want && (v->want.kind != kind || (kind != PATTERN_BARS && v->want.size != size)))
        verify_free(v);
    if (!v->have_want) {
        v->have_want = pattern_init(&v->want, kind, &v->image, size, v->seed) == CLB_OK;
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

/* Pixels only: what lies in the padding of rows is nobody's business. */
static bool compare_picture(struct verify *v, const uint8_t *pixels)
{
    for (unsigned i = 0; i < v->image.num_planes; i++) {
        size_t rows, row_bytes;

        pattern_plane_shape(&v->image, i, &rows, &row_bytes);
        for (size_t y = 0; y < rows; y++) {
            size_t row = v->image.plane[i].offset + v->image.plane[i].pitch * y, x = 0;

            if (!memcmp(pixels + row, v->want.data + row, row_bytes))
                continue;
            while (pixels[row + x] == v->want.data[row + x])
                x++;
            snprintf(v->why, sizeof v->why, "plane %u row %zu byte %zu is %u, not %u", i, y, x,
                     pixels[row + x], v->want.data[row + x]);
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

static bool check_bars(struct verify *v, const uint8_t *pixels, size_t size, uint64_t seq)
{
    uint32_t n;

    if (!v->image.fmt || size < clb_image_bytes(&v->image)) {
        snprintf(v->why, sizeof v->why, "%zu bytes are too few for the picture", size);
        return false;
    }
    if (!pattern_read_code(&v->image, pixels, &n)) {
        snprintf(v->why, sizeof v->why, "the code with the frame number is damaged");
        return false;
    }
    return in_sequence(v, n, seq, UINT32_MAX) && render(v, PATTERN_BARS, size, n) &&
           compare_picture(v, pixels);
}

static bool check_counter(struct verify *v, const uint8_t *pixels, size_t size, uint64_t seq)
{
    uint64_t n = seq;

    if (size >= 8) {
        n = load_le64(pixels);
        if (!in_sequence(v, n, seq, UINT64_MAX))
            return false;
    } else {
        n += v->ahead;
    }
    return render(v, PATTERN_COUNTER, size, n) && compare_bytes(v, pixels, size);
}

static bool check_noise(struct verify *v, const uint8_t *pixels, size_t size, uint64_t seq)
{
    return render(v, PATTERN_NOISE, size, seq) && compare_bytes(v, pixels, size);
}

/* The first frame decides: bars if the CRC of its code holds, else counter if all of it matches. */
static enum verify_mode decide(struct verify *v, const uint8_t *pixels, size_t size, uint64_t seq)
{
    uint32_t n;

    if (v->image.fmt && size >= clb_image_bytes(&v->image) &&
        pattern_read_code(&v->image, pixels, &n))
        return VERIFY_BARS;
    if (size >= 8 && check_counter(v, pixels, size, seq))
        return VERIFY_COUNTER;
    return VERIFY_OFF;
}

enum verify_result verify_frame(struct verify *v, const uint8_t *pixels, size_t size, uint64_t seq)
{
    bool good = false;

    if (v->mode == VERIFY_AUTO) {
        v->mode = decide(v, pixels, size, seq);
        if (v->mode == VERIFY_OFF)
            verify_free(v);
        v->have_ahead = false;
    }
    switch (v->mode) {
    case VERIFY_BARS: good = check_bars(v, pixels, size, seq); break;
    case VERIFY_COUNTER: good = check_counter(v, pixels, size, seq); break;
    case VERIFY_NOISE: good = check_noise(v, pixels, size, seq); break;
    case VERIFY_AUTO:
    case VERIFY_OFF: return VERIFY_UNKNOWN;
    }
    return good ? VERIFY_GOOD : VERIFY_BAD;
}
