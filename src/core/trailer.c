/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a depthai packet. See trailer.h; the bounds are those of wire section 9.4. */
#include "trailer.h"

#include <string.h>

static const uint8_t mark[16] = {0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89,
                                 0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void clbi_trailer_read(struct clbi_trailer *out, const uint8_t *tail, size_t len, size_t total,
                       size_t max_metadata, bool allow_plain)
{
    const uint8_t *end = tail + len;
    const bool marked = len >= sizeof mark && memcmp(end - sizeof mark, mark, sizeof mark) == 0;
    size_t bytes = marked || !allow_plain ? CLBI_TRAILER_MARKED : CLBI_TRAILER_PLAIN;

    *out = (struct clbi_trailer){.marked = marked, .pixels = total};
    if (total < bytes || len < bytes)
        return;
    out->type = (int32_t)le32(end - bytes);
    out->claimed = le32(end - bytes + 4);
    if ((!marked && !allow_plain) || out->claimed > max_metadata || out->claimed > total - bytes)
        return;
    out->valid = true;
    out->pixels = total - bytes - out->claimed;
}

size_t clbi_split_tail(size_t max_metadata)
{
    return CLBI_TRAILER_MARKED + max_metadata + CLBI_TRAILER_SLACK;
}

/* Could so many pixels be followed by a trailer? */
static bool possible(const struct clbi_split *split, size_t total, size_t pixels)
{
    const size_t least = split->plain ? CLBI_TRAILER_PLAIN : CLBI_TRAILER_MARKED;

    return pixels <= total && total - pixels >= least &&
           total - pixels <= CLBI_TRAILER_MARKED + split->max_metadata;
}

enum clbi_foreseen clbi_split_foresee(const struct clbi_split *split, size_t total, size_t *pixels)
{
    size_t most = 0;

    /* The last packet knows better than the application: rows may be padded at the end. */
    if ((split->seen > 1 && split->last == split->before) ||
        (split->seen > 0 && split->configured > 0)) {
        if (possible(split, total, split->last)) {
            *pixels = split->last;
            return CLBI_FORESEEN_EXACT;
        }
    }
    if (split->configured > 0 && possible(split, total, split->configured)) {
        *pixels = split->configured;
        return CLBI_FORESEEN_EXACT;
    }
    *pixels = 0;
    if (split->seen == 0)
        return CLBI_FORESEEN_NOT;
    for (unsigned i = 0; i < CLBI_TRAILER_RECENT; i++)
        if (split->recent[i] > most)
            most = split->recent[i];
    most += CLBI_TRAILER_SLACK;
    *pixels = total > most ? total - most : 0;
    return CLBI_FORESEEN_LOW;
}

void clbi_split_learn(struct clbi_split *split, const struct clbi_trailer *trailer, size_t total)
{
    split->before = split->last;
    split->last = trailer->pixels;
    split->seen += split->seen < 2;
    split->plain = !trailer->marked;
    split->recent[split->next++ % CLBI_TRAILER_RECENT] = (uint32_t)(total - trailer->pixels);
}
