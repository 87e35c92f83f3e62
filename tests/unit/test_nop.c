/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of libnop: every prefix, counts against what is there, depth and number of elements. */
#include "nop.h"
#include "nop_kit.h"

#include <criterion/criterion.h>

static bool whole(const struct nop *n)
{
    struct clbi_nop_members all;

    return clbi_nop_members(&all, n->bytes, n->size);
}

Test(nop, integers)
{
    static const struct {
        uint8_t bytes[9];
        size_t size;
        int64_t value;
    } rows[] = {
        {{0x00}, 1, 0},
        {{0x7F}, 1, 127},
        {{0xC0}, 1, -64},
        {{0xFF}, 1, -1},
        {{0x80, 0xFF}, 2, 255},
        {{0x81, 0x2C, 0x01}, 3, 300},
        {{0x82, 0xFF, 0xFF, 0xFF, 0xFF}, 5, UINT32_MAX},
        {{0x83, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, 9, INT64_MAX},
        {{0x84, 0x80}, 2, -128},
        {{0x84, 0x7F}, 2, 127},
        {{0x85, 0xA4, 0x06}, 3, 1700},
        {{0x85, 0x00, 0x80}, 3, INT16_MIN},
        {{0x86, 0x00, 0x00, 0x00, 0x80}, 5, INT32_MIN},
        {{0x86, 0x15, 0xCD, 0x5B, 0x07}, 5, 123456789},
        {{0x87, 0, 0, 0, 0, 0, 0, 0, 0x80}, 9, INT64_MIN},
        {{0x87, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, 9, -2},
    };
    static const uint8_t beyond[9] = {0x83, 0, 0, 0, 0, 0, 0, 0, 0x80};
    struct clbi_nop c;
    struct clbi_nop_item item;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clbi_nop_init(&c, rows[i].bytes, rows[i].size);
        cr_assert(clbi_nop_next(&c, &item), "row %zu", i);
        cr_expect(item.kind == CLBI_NOP_INT && item.i == rows[i].value && !item.beyond, "row %zu",
                  i);
        cr_assert(clbi_nop_next(&c, &item) && item.kind == CLBI_NOP_END);
        clbi_nop_init(&c, rows[i].bytes, rows[i].size - 1);
        cr_expect_not(clbi_nop_next(&c, &item), "row %zu: one byte less", i);
    }
    clbi_nop_init(&c, beyond, sizeof beyond);
    cr_assert(clbi_nop_next(&c, &item));
    cr_expect(item.kind == CLBI_NOP_INT && item.beyond);
}

/* What each first byte needs behind it to be one whole value. */
Test(nop, every_prefix)
{
    for (int prefix = 0; prefix < 256; prefix++) {
        static const int widths[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
        int follow = -1;

        if (prefix <= 0x7F || prefix >= 0xC0 || prefix == 0xBE)
            follow = 0;
        else if (prefix <= 0x89)
            follow = widths[prefix - 0x80];
        else if (prefix >= 0xB8 && prefix <= 0xBD)
            follow = prefix == 0xB8 ? 2 : 1; /* a variant has an index and a value, the rest 0 */
        for (size_t n = 0; n <= 12; n++) {
            struct nop s;
            s.size = 0;
            nop_struct(&s, 1);
            nop_byte(&s, prefix);
            for (size_t i = 0; i < n; i++)
                nop_byte(&s, 0);
            cr_expect_eq(whole(&s), follow == (int)n, "prefix %02X and %zu bytes", prefix, n);
        }
    }
}

Test(nop, outermost_is_a_structure)
{
    for (int prefix = 0; prefix < 256; prefix++) {
        const uint8_t bytes[] = {(uint8_t)prefix, 0};
        struct clbi_nop_members all;
        cr_expect_eq(clbi_nop_members(&all, bytes, 2), prefix == 0xB9, "prefix %02X", prefix);
        cr_expect_not(clbi_nop_members(&all, bytes, 0));
    }
}

/* A count is an unsigned integer that the bytes behind it can hold. */
Test(nop, counts)
{
    static const int containers[] = {0xB9, 0xBA, 0xBB, 0xBC, 0xBD};

    for (size_t k = 0; k < sizeof containers / sizeof *containers; k++) {
        const int prefix = containers[k], per = prefix == 0xBB ? 2 : 1;
        for (int count = 0; count <= 20; count++)
            for (int there = 0; there <= 40; there++) {
                struct nop s;
                s.size = 0;
                nop_struct(&s, 1);
                nop_byte(&s, prefix);
                nop_byte(&s, count);
                for (int i = 0; i < there; i++)
                    nop_byte(&s, 1);
                cr_assert_eq(whole(&s), there == count * per, "%02X %d of %d", prefix, count,
                             there);
            }
        /* Of more than there can be, in every width; and a count below 0. */
        for (int width = 0x80; width <= 0x87; width++) {
            struct nop s;
            s.size = 0;
            nop_struct(&s, 1);
            nop_byte(&s, prefix);
            nop_fixed(&s, width, UINT64_MAX, 1 << (width & 3));
            for (int i = 0; i < 200; i++)
                nop_byte(&s, 1);
            cr_expect_not(whole(&s), "%02X %02X", prefix, width);
        }
        struct nop s;
        s.size = 0;
        nop_struct(&s, 1);
        nop_byte(&s, prefix);
        nop_fixed(&s, 0x84, 2, 1);
        for (int i = 0; i < 2 * per; i++)
            nop_byte(&s, 1);
        cr_expect_not(whole(&s), "%02X: a signed count", prefix);
    }
}

static bool nested(int prefix, uint32_t depth)
{
    struct nop s;

    s.size = 0;
    nop_struct(&s, 1);
    for (uint32_t i = 1; i < depth; i++) {
        nop_byte(&s, prefix);
        nop_byte(&s, 1);
        if (prefix == 0xBB)
            nop_byte(&s, 0); /* a key */
    }
    nop_byte(&s, 0);
    return whole(&s);
}

Test(nop, depth)
{
    static const int containers[] = {0xB8, 0xB9, 0xBA, 0xBB};

    for (size_t k = 0; k < sizeof containers / sizeof *containers; k++) {
        for (uint32_t depth = 1; depth <= CLBI_NOP_DEPTH; depth++)
            cr_expect(nested(containers[k], depth), "%02X %u", containers[k], depth);
        cr_expect_not(nested(containers[k], CLBI_NOP_DEPTH + 1), "%02X", containers[k]);
        cr_expect_not(nested(containers[k], 16000), "%02X", containers[k]);
    }
    /* Closed ones do not count. */
    struct nop s;
    s.size = 0;
    nop_struct(&s, 100);
    for (int i = 0; i < 100; i++) {
        nop_array(&s, 1);
        nop_array(&s, 0);
    }
    cr_expect(whole(&s));
}

static bool with_elements(uint32_t total)
{
    static struct nop s;

    s.size = 0;
    nop_struct(&s, 2); /* one */
    nop_byte(&s, 0);   /* two */
    nop_array(&s, total - 3);
    for (uint32_t i = 3; i < total; i++)
        nop_byte(&s, 0);
    return whole(&s);
}

static bool with_many_members(uint32_t total)
{
    static struct nop s;

    s.size = 0;
    nop_struct(&s, total - 1);
    for (uint32_t i = 1; i < total; i++)
        nop_byte(&s, i % 3 ? 0xBE : 5);
    return whole(&s);
}

/* Arrays inside arrays, none of which is too large by itself. */
static bool with_arrays(uint32_t arrays)
{
    static struct nop s;

    s.size = 0;
    nop_struct(&s, arrays);
    for (uint32_t i = 0; i < arrays; i++) {
        nop_array(&s, 14);
        for (int k = 0; k < 14; k++)
            nop_byte(&s, 0);
    }
    return whole(&s);
}

Test(nop, elements)
{
    cr_expect(with_elements(CLBI_NOP_ELEMENTS));
    cr_expect_not(with_elements(CLBI_NOP_ELEMENTS + 1));
    cr_expect(with_many_members(CLBI_NOP_ELEMENTS));
    cr_expect_not(with_many_members(CLBI_NOP_ELEMENTS + 1));
    cr_expect(with_arrays(CLBI_NOP_ELEMENTS / 15));
    cr_expect_not(with_arrays(CLBI_NOP_ELEMENTS / 15 + 1));
}

Test(nop, members)
{
    struct clbi_nop_members all;
    struct clbi_nop_item first;
    int64_t part[3];
    struct nop s;

    s.size = 0;
    nop_struct(&s, 40);
    nop_struct(&s, 3);
    for (int i = 7; i < 10; i++)
        nop_int(&s, i);
    for (int i = 1; i < 40; i++) {
        nop_array(&s, 1);
        nop_int(&s, 1000 + i);
    }
    cr_assert(clbi_nop_members(&all, s.bytes, s.size));
    cr_expect_eq(all.total, 40);
    cr_expect_eq(all.count, CLBI_NOP_MEMBERS);
    for (uint32_t i = 1; i < all.count; i++)
        cr_expect(all.member[i].kind == CLBI_NOP_ARRAY && all.member[i].depth == 1);
    cr_expect(clbi_nop_ints(part, 3, &all.member[0], all.end));
    cr_expect(part[0] == 7 && part[1] == 8 && part[2] == 9);
    cr_expect_not(clbi_nop_ints(part, 3, &all.member[1], all.end), "an array");
    cr_assert(clbi_nop_first(&first, s.bytes, s.size));
    cr_expect(first.kind == CLBI_NOP_STRUCT && first.count == 3);
    cr_expect_not(clbi_nop_first(&first, s.bytes, 2));
    cr_expect_not(clbi_nop_first(&first, "\x05", 1));
}
