/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded reader of libnop, see nop.h. The stack of open containers lies in the cursor. */
#include "nop.h"

#include <string.h>

enum prefix {
    PREFIX_POSITIVE_LAST = 0x7F, /* 00..7F are the integer itself */
    PREFIX_U8 = 0x80,            /* U8 U16 U32 U64 I8 I16 I32 I64 */
    PREFIX_U64 = 0x83,
    PREFIX_I64 = 0x87,
    PREFIX_F32 = 0x88,
    PREFIX_F64 = 0x89,
    PREFIX_VARIANT = 0xB8,
    PREFIX_STRUCT = 0xB9,
    PREFIX_ARRAY = 0xBA,
    PREFIX_MAP = 0xBB,
    PREFIX_BYTES = 0xBC,
    PREFIX_STRING = 0xBD,
    PREFIX_NIL = 0xBE,
    PREFIX_NEGATIVE = 0xC0, /* C0..FF are the integer minus 256 */
};

void clbi_nop_init(struct clbi_nop *c, const void *data, size_t size)
{
    memset(c, 0, sizeof *c);
    c->p = data;
    c->end = size > 0 ? c->p + size : c->p;
    c->elements = CLBI_NOP_ELEMENTS;
    c->depth = 1;
    c->left[0] = 1;
}

static size_t bytes_left(const struct clbi_nop *c)
{
    return (size_t)(c->end - c->p);
}

static bool take_le(struct clbi_nop *c, uint32_t width, uint64_t *out)
{
    uint64_t value = 0;

    if (bytes_left(c) < width)
        return false;
    for (uint32_t i = 0; i < width; i++)
        value |= (uint64_t)c->p[i] << (8 * i);
    c->p += width;
    *out = value;
    return true;
}

/* The integer that begins with `prefix`, which has been taken already. */
static bool take_int(struct clbi_nop *c, uint8_t prefix, int64_t *out, bool *beyond)
{
    uint64_t raw, sign;
    uint32_t width;

    *beyond = false;
    if (prefix <= PREFIX_POSITIVE_LAST) {
        *out = prefix;
        return true;
    }
    if (prefix >= PREFIX_NEGATIVE) {
        *out = (int64_t)prefix - 256;
        return true;
    }
    if (prefix > PREFIX_I64)
        return false;
    width = 1u << ((prefix - PREFIX_U8) & 3);
    if (!take_le(c, width, &raw))
        return false;
    if (prefix > PREFIX_U64) {
        sign = (uint64_t)1 << (8 * width - 1);
        /* Two's complement of this width, without a shift of a negative number. */
        *out = raw & sign ? -(int64_t)((sign - 1) - (raw & (sign - 1))) - 1 : (int64_t)raw;
        return true;
    }
    *beyond = raw > INT64_MAX;
    *out = *beyond ? INT64_MAX : (int64_t)raw;
    return true;
}

/* A count or a length, which libnop writes as an unsigned integer. What it counts has at least
 * `each` bytes apiece. */
static bool take_count(struct clbi_nop *c, uint32_t each, uint32_t *out)
{
    int64_t value;
    uint8_t prefix;
    bool beyond;

    if (bytes_left(c) == 0)
        return false;
    prefix = *c->p++;
    if (prefix > PREFIX_U64 || !take_int(c, prefix, &value, &beyond) || beyond ||
        (uint64_t)value > bytes_left(c) / each || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool open_container(struct clbi_nop *c, uint32_t values)
{
    if (c->depth > CLBI_NOP_DEPTH || values > c->elements)
        return false;
    c->left[c->depth++] = values;
    return true;
}

static bool take_bytes(struct clbi_nop *c, uint32_t *count)
{
    if (!take_count(c, 1, count))
        return false;
    c->p += *count;
    return true;
}

static bool take_variant(struct clbi_nop *c, int64_t *index)
{
    uint8_t prefix;
    bool beyond;

    if (bytes_left(c) == 0)
        return false;
    prefix = *c->p++;
    return take_int(c, prefix, index, &beyond) && !beyond && open_container(c, 1);
}

static bool take_float(struct clbi_nop *c, uint8_t prefix, double *out)
{
    uint64_t raw;
    uint32_t raw32;
    float f32;

    if (!take_le(c, prefix == PREFIX_F32 ? 4 : 8, &raw))
        return false;
    if (prefix == PREFIX_F64) {
        memcpy(out, &raw, sizeof *out);
        return true;
    }
    raw32 = (uint32_t)raw;
    memcpy(&f32, &raw32, sizeof f32);
    *out = (double)f32;
    return true;
}

/* Reads what follows the prefix, and the prefixes of what it contains not at all. */
static bool take_value(struct clbi_nop *c, uint8_t prefix, struct clbi_nop_item *item)
{
    switch (prefix) {
    case PREFIX_F32:
    case PREFIX_F64: item->kind = CLBI_NOP_FLOAT; return take_float(c, prefix, &item->f);
    case PREFIX_VARIANT:
        item->kind = CLBI_NOP_VARIANT;
        item->count = 1;
        return take_variant(c, &item->i);
    case PREFIX_STRUCT:
        item->kind = CLBI_NOP_STRUCT;
        return take_count(c, 1, &item->count) && open_container(c, item->count);
    case PREFIX_ARRAY:
        item->kind = CLBI_NOP_ARRAY;
        return take_count(c, 1, &item->count) && open_container(c, item->count);
    case PREFIX_MAP:
        item->kind = CLBI_NOP_MAP;
        return take_count(c, 2, &item->count) && open_container(c, 2 * item->count);
    case PREFIX_BYTES: item->kind = CLBI_NOP_BYTES; return take_bytes(c, &item->count);
    case PREFIX_STRING: item->kind = CLBI_NOP_STRING; return take_bytes(c, &item->count);
    case PREFIX_NIL: item->kind = CLBI_NOP_NIL; return true;
    default:
        /* Tables, errors, handles, extensions and what is reserved are no integers. */
        item->kind = CLBI_NOP_INT;
        return take_int(c, prefix, &item->i, &item->beyond);
    }
}

bool clbi_nop_next(struct clbi_nop *c, struct clbi_nop_item *item)
{
    memset(item, 0, sizeof *item);
    item->kind = CLBI_NOP_END;
    while (c->depth > 0 && c->left[c->depth - 1] == 0)
        c->depth--;
    if (c->depth == 0)
        return true;
    if (bytes_left(c) == 0 || c->elements == 0)
        return false;
    c->elements--;
    c->left[c->depth - 1]--;
    item->depth = c->depth - 1;
    item->at = c->p;
    return take_value(c, *c->p++, item);
}

bool clbi_nop_members(struct clbi_nop_members *out, const void *data, size_t size)
{
    struct clbi_nop c;
    struct clbi_nop_item item;

    clbi_nop_init(&c, data, size);
    if (!clbi_nop_next(&c, &item) || item.kind != CLBI_NOP_STRUCT)
        return false;
    out->count = 0;
    out->total = item.count;
    out->end = c.end;
    do {
        if (!clbi_nop_next(&c, &item))
            return false;
        if (item.kind != CLBI_NOP_END && item.depth == 1 && out->count < CLBI_NOP_MEMBERS)
            out->member[out->count++] = item;
    } while (item.kind != CLBI_NOP_END);
    return c.p == c.end;
}

bool clbi_nop_first(struct clbi_nop_item *first, const void *data, size_t size)
{
    struct clbi_nop c;

    clbi_nop_init(&c, data, size);
    return clbi_nop_next(&c, first) && first->kind == CLBI_NOP_STRUCT && first->count > 0 &&
           clbi_nop_next(&c, first);
}

bool clbi_nop_ints(int64_t *out, uint32_t n, const struct clbi_nop_item *item, const uint8_t *end)
{
    struct clbi_nop c;
    struct clbi_nop_item one;

    clbi_nop_init(&c, item->at, (size_t)(end - item->at));
    if (!clbi_nop_next(&c, &one) || one.kind != CLBI_NOP_STRUCT || one.count < n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!clbi_nop_next(&c, &one) || one.kind != CLBI_NOP_INT || one.beyond)
            return false;
        out[i] = one.i;
    }
    return true;
}
