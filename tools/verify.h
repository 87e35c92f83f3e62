/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a received frame exactly the pattern? Frame numbers must follow the packet sequence: an old
 * picture shown again is an error even though every pixel of it is right.
 */
#ifndef TOOLS_VERIFY_H
#define TOOLS_VERIFY_H

#include "pattern.h"

enum verify_mode { VERIFY_AUTO, VERIFY_BARS, VERIFY_COUNTER, VERIFY_NOISE, VERIFY_OFF };
enum verify_result { VERIFY_BAD, VERIFY_GOOD, VERIFY_UNKNOWN };

/* A frame as it is to be looked at. */
struct verify_view {
    const uint8_t *pixels; /* NULL with size 0 = nothing can be seen */
    size_t size;
    const struct clb_image *image; /* how they lie; NULL = unknown: no bars */
    const struct clb_image *sent;  /* how they lay on the way here; NULL = the same */
};

struct verify {
    enum verify_mode mode; /* AUTO becomes another one with the first frame */
    uint64_t seed;
    uint64_t ahead; /* frame number minus packet sequence, from the first frame */
    bool have_ahead;
    struct pattern want;
    bool have_want;
    char why[120]; /* what was wrong with the last bad frame */
};

void verify_init(struct verify *v, enum verify_mode mode, uint64_t seed);
void verify_free(struct verify *v);

/* Another link: its frames are counted from its first one. */
void verify_restart(struct verify *v);

/* Whether frames have to be looked at at all. */
bool verify_active(const struct verify *v);

enum verify_result verify_frame(struct verify *v, const struct verify_view *view, uint64_t seq);

/* For people, e.g. "bars". */
const char *verify_name(const struct verify *v);

#endif
