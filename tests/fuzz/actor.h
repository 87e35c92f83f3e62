/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other end of a link under a fuzz target: it says what the input tells it to, in pieces as small
 * as the input tells, takes what the link says, and ends the run when that is not well-formed.
 */
#ifndef TESTS_FUZZ_ACTOR_H
#define TESTS_FUZZ_ACTOR_H

#include "wire.h"
#include "world.h"

#define ACTOR_OUT 16384
#define ACTOR_SEEN 32
#define ACTOR_PATIENCE 300

/* How helpful it is by itself. */
#define ACTOR_GREETS 1u /* says PING as a host, answers it as a device */
#define ACTOR_ANSWERS                                                                              \
    2u /* acknowledges every request, but not for ever: out of step, two can go on so */
#define ACTOR_DEAF 4u /* takes nothing until the input says so */

/* Operations of the actor; each takes its arguments from the input. */
enum actor_op {
    ACT_RAW,     /* n, n bytes as they are */
    ACT_HEADER,  /* type, id, name, stream id, size, flags */
    ACT_PAYLOAD, /* n, shift: bytes */
    ACT_WRITE,   /* stream, size, shift: WRITE_REQ with its whole payload */
    ACT_ANSWER,  /* flags: to the oldest request without an answer */
    ACT_CREATE,  /* name, window, shift */
    ACT_RELEASE, /* of the oldest packet that the link has written */
    ACT_CHUNK,   /* the next 64 times it says so many bytes at most, 0 = all */
    ACT_TAKE,    /* takes what the link has said, also when deaf */
    ACT_SHUT,    /* no more bytes */
    ACT_CLOSE,
    ACT_TIME, /* x 4 ms */
    ACT_PING,
    ACT_RESET,
    ACT_CLOSE_STREAM, /* stream */
    ACT_PACKET, /* stream, pixels, shift, what: WRITE_REQ with metadata and a trailer, see actor.c */
    ACT_COUNT
};

struct actor {
    int fd; /* -1 = closed */
    bool host;
    unsigned manners;
    int32_t next_id;
    bool shut, shut_due, close_due, stuck;
    size_t chunk;
    unsigned chunks;
    uint8_t out[ACTOR_OUT];
    size_t out_len;

    /* what the link says */
    uint8_t head[CLBI_WIRE_HEADER];
    size_t head_len;
    size_t payload_left;
    bool heard_reset;
    unsigned answers;
    struct clbi_wire_header seen[ACTOR_SEEN]; /* requests without an answer, in order */
    unsigned seen_len;
    uint32_t id[8]; /* of the streams that were created, by name */
    uint32_t written[ACTOR_SEEN], written_id[ACTOR_SEEN];
    unsigned written_len; /* packets of the link that were not released */
};

void actor_init(struct actor *a, int fd, bool host, unsigned manners);
/* Does the next operation of the input, up to its end. */
void actor_act(struct actor *a, struct input *in, int64_t most_ns);
/* Moves bytes that are due; false = there are none, or they cannot be moved. */
bool actor_move(struct actor *a);
void actor_close(struct actor *a);

/* The letter of a name of the input, and the names themselves. */
void actor_name(struct input *in, char name[CLBI_WIRE_NAME]);

#endif
