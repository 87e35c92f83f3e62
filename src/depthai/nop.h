/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded reader of libnop (wire section 9.2), which serialises depthai's metadata. It needs no
 * schema, allocates nothing, does not recurse and never reads outside its bytes. Every count is
 * compared with the bytes and the elements that are left before anything is done with it.
 */
#ifndef CLBI_NOP_H
#define CLBI_NOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLBI_NOP_DEPTH 8u       /* containers inside each other */
#define CLBI_NOP_ELEMENTS 4096u /* values in all, containers, map keys and the outermost included */
#define CLBI_NOP_MEMBERS 24u    /* of the outermost structure, that are remembered */

enum clbi_nop_kind {
    CLBI_NOP_END, /* nothing comes after this */
    CLBI_NOP_INT,
    CLBI_NOP_FLOAT,
    CLBI_NOP_STRUCT,  /* count members follow */
    CLBI_NOP_ARRAY,   /* count elements follow */
    CLBI_NOP_MAP,     /* count pairs of a key and a value follow */
    CLBI_NOP_VARIANT, /* one value follows */
    CLBI_NOP_BYTES,   /* count bytes of integers of one width */
    CLBI_NOP_STRING,  /* count bytes */
    CLBI_NOP_NIL,
};

struct clbi_nop_item {
    enum clbi_nop_kind kind;
    uint32_t depth;    /* containers around it; 0 = the outermost value */
    uint32_t count;    /* see the kinds */
    bool beyond;       /* INT: above INT64_MAX; i is INT64_MAX */
    int64_t i;         /* INT: its value; VARIANT: its index */
    double f;          /* FLOAT */
    const uint8_t *at; /* its first byte */
};

struct clbi_nop {
    const uint8_t *p, *end;
    uint32_t elements;                 /* that may still be read */
    uint32_t depth;                    /* containers that are open, the outermost place included */
    uint32_t left[CLBI_NOP_DEPTH + 1]; /* values still to come in each of them */
};

/* One value that lies in these bytes. */
void clbi_nop_init(struct clbi_nop *c, const void *data, size_t size);

/* The next value in the order of the bytes: a container comes before what is in it. false when the
 * bytes are malformed or a limit is reached; CLBI_NOP_END behind the last value, for ever. */
bool clbi_nop_next(struct clbi_nop *c, struct clbi_nop_item *item);

/* The members of an outermost structure. */
struct clbi_nop_members {
    struct clbi_nop_item member[CLBI_NOP_MEMBERS];
    uint32_t count;     /* of member[]; later ones are checked and forgotten */
    uint32_t total;     /* members of the structure */
    const uint8_t *end; /* of the bytes */
};

/* Walks all of it. false unless the bytes are exactly one well-formed structure. */
bool clbi_nop_members(struct clbi_nop_members *out, const void *data, size_t size);

/* Whether the bytes begin with a structure, and its first member when they do. */
bool clbi_nop_first(struct clbi_nop_item *first, const void *data, size_t size);

/* The first n members of a structure, when they are integers. */
bool clbi_nop_ints(int64_t *out, uint32_t n, const struct clbi_nop_item *item, const uint8_t *end);

#endif
