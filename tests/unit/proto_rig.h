/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One protocol machine under test and the short words in which a test plays its peer: give it a
 * header, take the headers that it emits. Time is what the test says.
 */
#ifndef PROTO_RIG_H
#define PROTO_RIG_H

#include "proto.h"

#define RIG_SEC INT64_C(1000000000)

struct rig {
    struct clbi_proto p;
    struct clbi_proto_event ev; /* of the last header given */
    int64_t now;
    int32_t peer_id; /* number of the peer's next request */
    struct clbi_wire_header out[256];
    size_t out_len, out_pos; /* pulled and not yet looked at */
};

struct clbi_proto_config rig_config(enum clb_role role);

/* A fresh machine; _up: PING exchanged, nothing left in the output. */
void rig_init(struct rig *r, enum clb_role role);
void rig_up(struct rig *r, enum clb_role role);

/* Gives a header with these fields and returns the kind of the event. */
enum clbi_event_kind rig_in(struct rig *r, const struct clbi_wire_header *h);
/* A request of the peer, numbered, flags 1. */
enum clbi_event_kind rig_req(struct rig *r, uint32_t type, const char *name, uint32_t stream_id,
                             uint32_t size);
/* An answer of the peer. */
enum clbi_event_kind rig_resp(struct rig *r, uint32_t type, int32_t id, uint32_t stream_id,
                              uint32_t size, uint32_t flags);
/* A whole WRITE of the peer with its payload. */
enum clbi_event_kind rig_peer_write(struct rig *r, uint32_t stream_id, uint32_t size);

/* The next header that the machine emits, NULL = none. Valid until the next call of the rig. */
const struct clbi_wire_header *rig_out(struct rig *r);
/* Drops whatever is in the output, and returns how much that was. */
size_t rig_flush(struct rig *r);

/* Our half of this name, acknowledged with this id. Returns the entry. */
int rig_open_out(struct rig *r, const char *name, uint64_t window, uint32_t id);
/* The peer's half. In the host role the machine chooses the id. Returns the entry. */
int rig_open_in(struct rig *r, const char *name, uint32_t window, uint32_t id);
/* Begins and ends a write of ours; returns its id. */
int32_t rig_write(struct rig *r, int stream, uint32_t n, uint64_t token);

#endif
