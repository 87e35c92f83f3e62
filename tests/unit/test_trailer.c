/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a depthai packet (wire section 9.4), and where the end of the pixels is foreseen (9.5). */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "trailer.h"

#define MAX_METADATA 51200u

static const uint8_t mark[16] = {0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89,
                                 0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};

static void put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

/* The last bytes of a packet of `total` bytes, on the heap and of their exact size, so that a sanitizer
 * sees a read beyond them. `known`: how many of them the caller has. */
static struct clbi_trailer end_of(size_t total, size_t known, int32_t type, uint32_t claimed,
                                  bool marked, bool allow_plain)
{
    const size_t have = total < known ? total : known;
    uint8_t all[64] = {0}, *tail = malloc(have ? have : 1);
    struct clbi_trailer t;

    if (marked) {
        put32(all + 40, (uint32_t)type);
        put32(all + 44, claimed);
        memcpy(all + 48, mark, 16);
    } else {
        put32(all + 56, (uint32_t)type);
        put32(all + 60, claimed);
    }
    memcpy(tail, all + 64 - have, have);
    clbi_trailer_read(&t, tail, have, total, MAX_METADATA, allow_plain);
    free(tail);
    return t;
}

static void expect_valid(struct clbi_trailer t, size_t pixels, int32_t type, uint32_t claimed,
                         bool marked)
{
    cr_assert(t.valid);
    cr_assert_eq(t.pixels, pixels);
    cr_assert_eq(t.type, type);
    cr_assert_eq(t.claimed, claimed);
    cr_assert_eq(t.marked, marked);
}

static void expect_bad(struct clbi_trailer t, size_t total)
{
    cr_assert_not(t.valid);
    cr_assert_eq(t.pixels, total);
}

Test(trailer, with_mark)
{
    expect_valid(end_of(24, 24, 2, 0, true, false), 0, 2, 0, true);
    expect_valid(end_of(25, 24, 2, 0, true, true), 1, 2, 0, true);
    expect_valid(end_of(1000, 24, 3, 976, true, false), 0, 3, 976, true);
    expect_valid(end_of(1000, 64, -7, 300, true, true), 676, -7, 300, true);
    expect_valid(end_of(MAX_METADATA + 24, 24, 2, MAX_METADATA, true, false), 0, 2, MAX_METADATA,
                 true);
    expect_valid(end_of(UINT32_MAX, 24, 2, 10, true, false), UINT32_MAX - 34u, 2, 10, true);
}

Test(trailer, with_mark_and_lies)
{
    expect_bad(end_of(1000, 24, 2, 977, true, false), 1000);
    expect_bad(end_of(1000, 24, 2, 977, true, true), 1000);
    expect_bad(end_of(1000, 24, 2, UINT32_MAX, true, true), 1000);
    expect_bad(end_of(1000, 24, 2, 0x80000000u, true, true), 1000);
    expect_bad(end_of(1u << 20, 24, 2, MAX_METADATA + 1, true, true), 1u << 20);
    cr_assert_eq(end_of(1000, 24, 5, 977, true, false).claimed, 977);
    cr_assert_eq(end_of(1000, 24, 5, 977, true, false).type, 5);
    /* A mark is never read as an old trailer, also where nothing else fits (16 to 23 bytes). */
    for (size_t total = 16; total < 24; total++) {
        expect_bad(end_of(total, 24, 2, 0, true, true), total);
        cr_assert(end_of(total, 24, 2, 0, true, true).marked);
    }
}

/* Short ends, as a stream without marks leaves them: what lies before them is not looked at. */
Test(trailer, mark_and_nothing_before_it)
{
    for (size_t known = 0; known < 24; known++)
        expect_bad(end_of(1000, known, 2, 10, true, true), 1000);
}

Test(trailer, without_mark)
{
    expect_valid(end_of(8, 24, 1, 0, false, true), 0, 1, 0, false);
    expect_valid(end_of(100, 24, 1, 92, false, true), 0, 1, 92, false);
    expect_valid(end_of(100, 8, 1, 12, false, true), 80, 1, 12, false);
    expect_bad(end_of(100, 24, 1, 93, false, true), 100);
    expect_bad(end_of(100, 24, 1, 256, false, true), 100);
    for (size_t total = 0; total < 8; total++)
        expect_bad(end_of(total, 24, 1, 0, false, true), total);
    /* Where a mark must be, none is bad. */
    for (size_t total = 0; total < 64; total++)
        expect_bad(end_of(total, 24, 1, 0, false, false), total);
}

/* One byte of the mark changed. */
Test(trailer, every_byte_of_the_mark)
{
    for (size_t i = 0; i < 16; i++) {
        uint8_t tail[24];
        struct clbi_trailer t;

        put32(tail, 2);
        put32(tail + 4, 100);
        memcpy(tail + 8, mark, 16);
        tail[8 + i] ^= 1;
        clbi_trailer_read(&t, tail, 24, 1000, MAX_METADATA, false);
        expect_bad(t, 1000);
        cr_assert_eq(t.claimed, 100);
        clbi_trailer_read(&t, tail, 24, 1000, MAX_METADATA, true);
        expect_bad(t, 1000); /* the mark's last bytes are no size either */
    }
}

/* ---- foreseeing ------------------------------------------------------------------------------- */

static void learn(struct clbi_split *s, size_t pixels, size_t behind)
{
    const struct clbi_trailer t = {.valid = true, .marked = true, .pixels = pixels};

    clbi_split_learn(s, &t, pixels + behind);
}

static void foresees(const struct clbi_split *s, size_t total, enum clbi_foreseen how,
                     size_t pixels)
{
    size_t got = 12345;

    cr_assert_eq(clbi_split_foresee(s, total, &got), how);
    cr_assert_eq(got, pixels);
}

Test(foresee, nothing_known)
{
    struct clbi_split s = {.max_metadata = MAX_METADATA};

    foresees(&s, 100000, CLBI_FORESEEN_NOT, 0);
    foresees(&s, 0, CLBI_FORESEEN_NOT, 0);
}

Test(foresee, two_agree)
{
    struct clbi_split s = {.max_metadata = MAX_METADATA};

    learn(&s, 90000, 400);
    foresees(&s, 90300, CLBI_FORESEEN_LOW, 90300 - 464);
    learn(&s, 90000, 300);
    foresees(&s, 90024, CLBI_FORESEEN_EXACT, 90000);
    foresees(&s, 90000 + 24 + MAX_METADATA, CLBI_FORESEEN_EXACT, 90000);
    foresees(&s, 90000 + 25 + MAX_METADATA, CLBI_FORESEEN_LOW, 90025 + MAX_METADATA - 464);
    foresees(&s, 90023, CLBI_FORESEEN_LOW, 90023 - 464);
    foresees(&s, 464, CLBI_FORESEEN_LOW, 0);
    foresees(&s, 465, CLBI_FORESEEN_LOW, 1);
    foresees(&s, 0, CLBI_FORESEEN_LOW, 0);
    learn(&s, 70000, 300);
    foresees(&s, 90300, CLBI_FORESEEN_LOW, 90300 - 464);
}

Test(foresee, largest_of_the_last_eight)
{
    struct clbi_split s = {.max_metadata = MAX_METADATA};

    learn(&s, 1000, 5000);
    for (size_t i = 0; i < 7; i++) {
        learn(&s, 2000 + i, 100);
        foresees(&s, 100000, CLBI_FORESEEN_LOW, 100000 - 5064);
    }
    learn(&s, 3000, 100);
    foresees(&s, 100000, CLBI_FORESEEN_LOW, 100000 - 164);
}

Test(foresee, configured)
{
    struct clbi_split s = {.max_metadata = 1000, .configured = 5744};

    foresees(&s, 5744 + 300, CLBI_FORESEEN_EXACT, 5744);
    foresees(&s, 5744, CLBI_FORESEEN_NOT, 0);
    foresees(&s, 5744 + 1025, CLBI_FORESEEN_NOT, 0);
    /* Rows are padded to the end: the packets say so, and once is enough. */
    learn(&s, 5760, 300);
    foresees(&s, 5760 + 300, CLBI_FORESEEN_EXACT, 5760);
    /* After a packet without pixels the application is right again. */
    learn(&s, 0, 24);
    foresees(&s, 5744 + 300, CLBI_FORESEEN_EXACT, 5744);
}

Test(foresee, old_trailers_are_short)
{
    struct clbi_split s = {.max_metadata = MAX_METADATA};
    const struct clbi_trailer t = {.valid = true, .pixels = 1000};

    clbi_split_learn(&s, &t, 1008);
    clbi_split_learn(&s, &t, 1020);
    foresees(&s, 1008, CLBI_FORESEEN_EXACT, 1000);
    foresees(&s, 1007, CLBI_FORESEEN_LOW, 1007 - 84);
}

/* Whatever came before: the guess leaves room for the trailer, and no more than a tail holds. */
Test(foresee, always_within_the_tail)
{
    struct clbi_split s = {.max_metadata = 2000, .configured = 5000};
    uint32_t x = 1;

    for (int i = 0; i < 20000; i++) {
        size_t total, pixels = 0;
        enum clbi_foreseen how;

        x = x * 1664525u + 1013904223u;
        total = (x >> 8) % (i % 2 ? 9000 : 2500);
        how = clbi_split_foresee(&s, total, &pixels);
        cr_assert_leq(pixels, total);
        if (how != CLBI_FORESEEN_NOT)
            cr_assert_leq(total - pixels, clbi_split_tail(s.max_metadata));
        if (how != CLBI_FORESEEN_NOT && total >= CLBI_TRAILER_MARKED)
            cr_assert_geq(total - pixels, CLBI_TRAILER_MARKED);
        x = x * 1664525u + 1013904223u;
        learn(&s, i % 3 ? 4000 : (x >> 8) % 5000, 24 + (x >> 20) % 2001);
    }
}
