/* SPDX-License-Identifier: Apache-2.0 */
/* Builds libnop by hand: what no encoder would write, too. */
#ifndef TESTS_NOP_KIT_H
#define TESTS_NOP_KIT_H

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct nop {
    uint8_t bytes[60000];
    size_t size;
};

static inline void nop_byte(struct nop *n, int byte)
{
    cr_assert_lt(n->size, sizeof n->bytes);
    n->bytes[n->size++] = (uint8_t)byte;
}

static inline void nop_fixed(struct nop *n, int prefix, uint64_t value, int width)
{
    nop_byte(n, prefix);
    for (int i = 0; i < width; i++)
        nop_byte(n, (int)(value >> (8 * i) & 0xFF));
}

/* In the longest form, which a reader must take as well. */
static inline void nop_int(struct nop *n, int64_t value)
{
    if (value >= 0 && value <= 0x7F)
        nop_byte(n, (int)value);
    else
        nop_fixed(n, 0x87, (uint64_t)value, 8);
}

static inline void nop_count(struct nop *n, int prefix, uint32_t count)
{
    nop_byte(n, prefix);
    if (count <= 0x7F)
        nop_byte(n, (int)count);
    else
        nop_fixed(n, 0x82, count, 4);
}

static inline void nop_struct(struct nop *n, uint32_t members)
{
    nop_count(n, 0xB9, members);
}

static inline void nop_array(struct nop *n, uint32_t elements)
{
    nop_count(n, 0xBA, elements);
}

static inline void nop_time(struct nop *n, int64_t sec, int64_t nsec)
{
    nop_struct(n, 2);
    nop_int(n, sec);
    nop_int(n, nsec);
}

static inline void nop_fb(struct nop *n, const int64_t number[8])
{
    nop_struct(n, 8);
    for (int i = 0; i < 8; i++)
        nop_int(n, number[i]);
}

static inline void nop_cam(struct nop *n, uint32_t members)
{
    nop_struct(n, members);
    for (uint32_t i = 0; i < members; i++) {
        if (i == 4)
            nop_fixed(n, 0x88, 0x3E800000, 4); /* 0.25 */
        else
            nop_byte(n, (int)(i + 1));
    }
}

/* A v3 ImgFrame with `more` members behind those that are read. */
static inline void nop_frame(struct nop *n, const int64_t fb[8], int times, uint32_t cam,
                             uint32_t more)
{
    static const int64_t none[8] = {33};

    n->size = 0;
    nop_struct(n, (uint32_t)times + 6 + more);
    for (int i = 0; i < times; i++)
        nop_time(n, 100 + i, i);
    nop_int(n, 4321);
    nop_fb(n, fb);
    nop_fb(n, none);
    nop_cam(n, cam);
    nop_int(n, 7);
    nop_int(n, 2);
    for (uint32_t i = 0; i < more; i++)
        nop_byte(n, 0xBE);
}

#endif
