/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pixels of a depthai packet end (wire section 9): what its last bytes say, and where the
 * end is foreseen. Pure arithmetic on untrusted numbers; no memory, no clock.
 *
 * | pixels | metadata | object type, 4 | metadata size, 4 | end mark, 16 |
 *
 * Releases before 2.26 have no end mark.
 */
#ifndef CLBI_TRAILER_H
#define CLBI_TRAILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLBI_TRAILER_MARKED 24u
#define CLBI_TRAILER_PLAIN 8u
#define CLBI_TRAILER_RECENT 8u
/* A guess stays so far below what it must not exceed. */
#define CLBI_TRAILER_SLACK 64u

struct clbi_trailer {
    bool valid;       /* everything below is to be believed */
    bool marked;      /* the end mark is there */
    int32_t type;     /* of the object */
    uint32_t claimed; /* bytes of metadata */
    size_t pixels;    /* bytes before the metadata; of an invalid trailer all bytes */
};

/* Reads the end of a packet of `total` bytes. tail: its last `len` bytes, at least the smaller of total
 * and CLBI_TRAILER_MARKED. A trailer without the mark counts with allow_plain only; a mark that is
 * there is never read as anything else. */
void clbi_trailer_read(struct clbi_trailer *out, const uint8_t *tail, size_t len, size_t total,
                       size_t max_metadata, bool allow_plain);

/* What is known of the packets of one stream. All zero = nothing. */
struct clbi_split {
    size_t max_metadata;
    size_t configured;                    /* pixel bytes by the application's word; 0 = none */
    size_t last, before;                  /* pixel bytes of the last two packets */
    unsigned seen;                        /* packets learned from, at most 2 */
    bool plain;                           /* the last one had no end mark */
    uint32_t recent[CLBI_TRAILER_RECENT]; /* bytes behind the pixels of the last packets */
    unsigned next;
};

enum clbi_foreseen {
    CLBI_FORESEEN_NOT,   /* nothing is known: receive it in host memory */
    CLBI_FORESEEN_LOW,   /* *pixels is a guess that is rather too low */
    CLBI_FORESEEN_EXACT, /* so it was before, or so it was configured */
};

/* How many bytes at the front of a packet of `total` bytes are pixels (wire section 9.5). What is left
 * is at most clbi_split_tail() bytes, and at least the trailer. */
enum clbi_foreseen clbi_split_foresee(const struct clbi_split *split, size_t total, size_t *pixels);
size_t clbi_split_tail(size_t max_metadata);
/* A packet with a valid trailer. */
void clbi_split_learn(struct clbi_split *split, const struct clbi_trailer *trailer, size_t total);

#endif
