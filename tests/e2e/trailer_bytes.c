/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of the tests of trailers, byte by byte. See trailer_kit.h. */
#include "trailer_kit.h"

/* ---- bytes ------------------------------------------------------------------------------------- */

uint8_t *blob_more(struct blob *b, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->data = realloc(b->data, b->cap);
        CHECK(b->data != NULL);
    }
    b->n += n;
    return b->data + b->n - n;
}

void blob_put(struct blob *b, const void *data, size_t n)
{
    if (n > 0) {
        memcpy(blob_more(b, n), data, n);
    }
}

void blob_byte(struct blob *b, int value)
{
    *blob_more(b, 1) = (uint8_t)value;
}

void blob_le32(struct blob *b, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        blob_byte(b, (int)(value >> 8 * i & 255));
    }
}

uint8_t pixel_at(unsigned seed, size_t i)
{
    return (uint8_t)(i * 7 + (i >> 8) * 13 + seed * 41u);
}

void blob_pixels(struct blob *b, unsigned seed, size_t n)
{
    uint8_t *d = blob_more(b, n);
    for (size_t i = 0; i < n; i++) {
        d[i] = pixel_at(seed, i);
    }
}

void blob_mark(struct blob *b)
{
    static const uint8_t mark[16] = {0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89,
                                     0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};
    blob_put(b, mark, sizeof mark);
}

void blob_tail(struct blob *b, int32_t type, uint32_t claimed)
{
    blob_le32(b, (uint32_t)type);
    blob_le32(b, claimed);
    blob_mark(b);
}

void blob_file(struct blob *b, const char *name)
{
    char path[512];
    uint8_t part[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", CLB_TEST_DATA_DIR, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s: cannot open\n", path);
    }
    CHECK(f != NULL);
    while ((n = fread(part, 1, sizeof part, f)) > 0) {
        blob_put(b, part, n);
    }
    fclose(f);
}

void blob_free(struct blob *b)
{
    free(b->data);
    *b = (struct blob){0};
}

uint32_t pick(uint32_t *state, uint32_t below)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *state = x;
    return x % below;
}

/* ---- metadata ---------------------------------------------------------------------------------- */

static void nop_uint(struct blob *b, uint64_t value)
{
    const int bytes = value < 0x80 ? 0 : value < 0x100 ? 1 : value < 0x10000 ? 2 : 4;
    if (bytes == 0) {
        blob_byte(b, (int)value);
        return;
    }
    blob_byte(b, bytes == 1 ? 0x80 : bytes == 2 ? 0x81 : 0x82);
    for (int i = 0; i < bytes; i++) {
        blob_byte(b, (int)(value >> 8 * i & 255));
    }
}

static void nop_int(struct blob *b, int64_t value)
{
    if (value >= -64 && value < 128) {
        blob_byte(b, (int)(value & 255));
        return;
    }
    const int bytes = value >= INT16_MIN && value <= INT16_MAX ? 2 : 4;
    blob_byte(b, bytes == 2 ? 0x85 : 0x86);
    for (int i = 0; i < bytes; i++) {
        blob_byte(b, (int)((uint64_t)value >> 8 * i & 255));
    }
}

static void nop_struct(struct blob *b, unsigned members)
{
    blob_byte(b, 0xB9);
    nop_uint(b, members);
}

static void nop_string(struct blob *b, size_t n)
{
    blob_byte(b, 0xBD);
    nop_uint(b, n);
    memset(blob_more(b, n), 'm', n);
}

/* A string whose length is written in `head` bytes; where no length fits that, an array of one. */
void meta_any(struct blob *b, size_t n)
{
    if (n == 0) {
        return;
    }
    if (n == 1) {
        blob_byte(b, 5);
    } else if (n <= 129) {
        nop_string(b, n - 2);
    } else if (n >= 131 && n <= 258) {
        nop_string(b, n - 3);
    } else if (n >= 260 && n <= 65539) {
        nop_string(b, n - 4);
    } else if (n >= 65542) {
        nop_string(b, n - 6);
    } else {
        blob_byte(b, 0xBA);
        blob_byte(b, 1);
        meta_any(b, n - 2);
    }
}

static void nop_time(struct blob *b, int64_t sec, int64_t nsec)
{
    nop_struct(b, 2);
    nop_int(b, sec);
    nop_int(b, nsec);
}

void meta_frame(struct blob *b, const struct meta_frame *f)
{
    nop_struct(b, f->pad ? 9 : 8);
    nop_time(b, 1700, 123456789);
    nop_time(b, 1699, 987654321);
    nop_int(b, f->seq);
    nop_struct(b, 8);
    nop_int(b, f->type);
    nop_uint(b, f->width);
    nop_uint(b, f->height);
    nop_uint(b, f->stride);
    nop_uint(b, 1);
    nop_uint(b, f->p1);
    nop_uint(b, f->p2);
    nop_uint(b, f->p3);
    nop_struct(b, 8); /* no sensor frame */
    nop_int(b, 33);
    for (int i = 0; i < 7; i++) {
        nop_uint(b, 0);
    }
    nop_struct(b, 5);
    nop_int(b, 8333);
    nop_int(b, 400);
    nop_int(b, -1);
    nop_int(b, 5600);
    blob_put(b, "\x88\0\0\x80\x3e", 5); /* 0.25 */
    nop_uint(b, 0);
    nop_uint(b, 2);
    if (f->pad) {
        nop_string(b, f->pad);
    }
}

void pack(struct blob *b, unsigned seed, size_t pixels, const struct blob *meta, int32_t type)
{
    b->n = 0;
    blob_pixels(b, seed, pixels);
    blob_put(b, meta->data, meta->n);
    blob_tail(b, type, (uint32_t)meta->n);
}
