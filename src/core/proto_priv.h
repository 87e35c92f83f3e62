/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the protocol machine share: proto.c (entries, tables, local operations),
 * proto_in.c (received headers), proto_out.c (headers to send, deadlines).
 */
#ifndef CLBI_PROTO_PRIV_H
#define CLBI_PROTO_PRIV_H

#include "proto.h"

#define CLBI_PROTO_NEVER INT64_MAX

/* a + b for deadlines: saturates, and a negative delta means never. */
static inline int64_t clbi_proto_add_ns(int64_t now, int64_t delta)
{
    if (delta < 0 || now > CLBI_PROTO_NEVER - delta)
        return CLBI_PROTO_NEVER;
    return now + delta;
}

static inline bool clbi_proto_silent(const struct clbi_proto *p)
{
    return p->silent_releases >= CLBI_MAX_INFLIGHT;
}

/* Send time of a header of ours (PROTOCOL 2). */
static inline void clbi_proto_stamp(struct clbi_wire_header *h, int64_t now)
{
    uint64_t ns = now > 0 ? (uint64_t)now : 0;

    h->tsec = ns / 1000000000u;
    h->tnsec = (uint32_t)(ns % 1000000000u);
}

/* --- entries of streams, proto.c --- */

/* Entry that has this id, -1 = none (also for CLBI_ID_NONE). */
int clbi_proto_by_id(const struct clbi_proto *p, uint32_t id);
/* New unpinned entry of a name of at most 51 bytes, -1 = 32 in use. */
int clbi_proto_entry_new(struct clbi_proto *p, const char *name);
/* Takes the first id that no entry has, from the one handed out last (PROTOCOL 5.1). */
uint32_t clbi_proto_alloc_id(struct clbi_proto *p);
/* The peer may still hold this entry's id although we gave it up: hand it out as late as possible. */
void clbi_proto_retire_id(struct clbi_proto *p, int stream);
/* Restores the invariants of an entry after a half went away or a reference to it was dropped:
 * no half = no id, and without pin or references no entry. */
void clbi_proto_settle(struct clbi_proto *p, int stream);
/* Our half is gone; it is wanted again at once if a create came meanwhile. */
void clbi_proto_half_gone(struct clbi_proto *p, int stream);
/* Our CREATE was refused or not answered. */
void clbi_proto_create_failed(struct clbi_proto *p, int stream);

/* --- requests of ours, proto.c --- */

/* Index of an unanswered request of this type for this stream (-1 = any), -1 = none. */
int clbi_proto_pending_of(const struct clbi_proto *p, uint8_t type, int stream);
/* A slot and an id. There is room: at most 16 counted ones, one PING, one RESET. */
struct clbi_proto_pending *clbi_proto_pending_new(struct clbi_proto *p, uint8_t type, int stream,
                                                  uint32_t size, int64_t now, int64_t deadline);
void clbi_proto_pending_free(struct clbi_proto *p, struct clbi_proto_pending *req);
int32_t clbi_proto_take_id(struct clbi_proto *p);
/* Remembers a request that is no longer waited for, so that its answer is no stray. */
void clbi_proto_forget(struct clbi_proto *p, int32_t id, uint8_t type);

/* --- answers of ours, proto.c --- */

void clbi_proto_answer(struct clbi_proto *p, const struct clbi_proto_answer *a);

#endif
