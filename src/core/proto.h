/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol as a pure function of bytes and given times: host and device role, no socket, no
 * clock, no malloc. Feed a received header, get one event; ask for headers to send.
 *
 * Not thread-safe: the owner (a link, a test, a fuzzer) serialises all calls.
 *
 * Receiving:  while (!clbi_proto_must_pause(p)) {
 *                 read 84 bytes; clbi_proto_header(p, bytes, now, &ev);
 *                 PAYLOAD or SKIP: read exactly ev.size bytes, then clbi_proto_payload_done();
 *             }
 * Sending:    n = clbi_proto_out(p, now, buf, cap) pulls answers, releases, then other requests;
 *             writes: clbi_proto_write_begin() gives the header, the owner sends header + payload in
 *             one gather send and calls clbi_proto_write_sent() when the last byte is out.
 * Time:       clbi_proto_next_deadline(), clbi_proto_expire().
 *
 * Where the wire's description leaves a choice:
 *  - A WRITE of 0 bytes fits any window, also one of 0, and takes one of the 64 packets.
 *  - An answer that comes after its request was forgotten changes nothing, also an ack of CREATE:
 *    trying again makes the peer name the half that it has. A host takes the id that it then
 *    names, unless another name has it or the peer's half of this name has a different one.
 *  - 16 unasked answers, or writes to unknown streams, are ignored; the next one drops the link.
 *    Once the peer is known not to answer releases in time, its answers to those are not counted.
 *  - An id whose half ended without an ack is handed out again as late as possible.
 *  - A WRITE that the peer refuses gives its credit back; one that is not answered keeps it used.
 *  - An event may be the last thing of its entry: one that is not pinned can be gone (not `used`)
 *    when PEER_CLOSED, HALF_CLOSED or REFUSED is reported, and its index is given to a new name.
 */
#ifndef CLBI_PROTO_H
#define CLBI_PROTO_H

#include <clbridge/common.h>
#include <clbridge/link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define CLBI_MAX_STREAMS 32
#define CLBI_MAX_PACKETS 64  /* unreleased per stream and direction */
#define CLBI_MAX_INFLIGHT 16 /* unanswered requests of ours, PING and RESET not counted */
#define CLBI_MAX_PENDING 20  /* table size: in flight + PING + RESET with room */
#define CLBI_MAX_ANSWERS 64  /* unsent answers; then reading pauses */
#define CLBI_MAX_FORGOTTEN 256
#define CLBI_MAX_STRAYS 16 /* unasked answers, or writes to unknown streams, until the link drops */
#define CLBI_REQUEST_TIMEOUT_NS INT64_C(2000000000)

enum clbi_event_kind {
    CLBI_EV_NONE,         /* nothing for the owner to do (there may be output) */
    CLBI_EV_UP,           /* first PING (device) or its answer (host): the link is up */
    CLBI_EV_PAYLOAD,      /* receive ev.size bytes (may be 0) for ev.stream */
    CLBI_EV_SKIP,         /* read and discard ev.size bytes; a nack follows */
    CLBI_EV_ANNOUNCED,    /* the peer created its half of ev.stream, or raised its window */
    CLBI_EV_OPENED,       /* our CREATE was acknowledged: we may write on ev.stream */
    CLBI_EV_REFUSED,      /* our CREATE was refused (ev.err TOOBIG; IO without the flag) or not
                             answered (TIMEOUT); an open half that was to be raised stays open */
    CLBI_EV_WRITE_ACKED,  /* ev.token, ev.stream */
    CLBI_EV_WRITE_FAILED, /* ev.token, ev.stream, ev.err: nack (IO) or not answered (TIMEOUT) */
    CLBI_EV_CREDIT,       /* the peer released one packet of ev.size bytes on ev.stream */
    CLBI_EV_PEER_CLOSED,  /* the peer closed its half of ev.stream */
    CLBI_EV_HALF_CLOSED,  /* our CLOSE of ev.stream was answered, or not within 2 s (ev.err) */
    CLBI_EV_PONG,         /* our PING was answered; ev.rtt_ns */
    CLBI_EV_RESET,        /* the peer ends the link; flush the answer, then close */
    CLBI_EV_RESET_DONE,   /* our RESET was answered, or not within 2 s (ev.err): close */
    CLBI_EV_FORGOTTEN,    /* from expire only: a request without owner was forgotten */
    CLBI_EV_FAIL,         /* drop the link: ev.err, ev.text. A nack may be in the output: it may be
                             sent if that is possible at once */
};

struct clbi_proto_event {
    enum clbi_event_kind kind;
    int stream; /* index into proto.stream, -1 = none */
    size_t size;
    uint64_t token;  /* of the write */
    int64_t peer_ns; /* send time in the header, 0 = unknown */
    int64_t rtt_ns;
    enum clb_error err;
    char text[160]; /* FAIL: what the peer did; names escaped */
};

enum clbi_half {
    CLBI_HALF_NONE,
    CLBI_HALF_WANTED,
    CLBI_HALF_CREATING,
    CLBI_HALF_OPEN,
    CLBI_HALF_CLOSING
};

struct clbi_proto_stream {
    bool used;                 /* the entry has a name */
    bool pinned;               /* the owner keeps a handle or packets: never recycled */
    char name[CLBI_WIRE_NAME]; /* NUL-terminated */
    uint32_t id;               /* CLBI_ID_NONE = none at the moment */

    /* the peer writes here */
    bool in_open;
    uint64_t in_window;         /* bytes */
    uint64_t in_fill;           /* accepted and not yet released on the wire, bytes */
    uint32_t in_packets;        /* the same, packets */
    uint32_t rel_head, rel_len; /* ring of releases that wait to be sent */
    uint32_t rel[CLBI_MAX_PACKETS];

    /* we write here */
    enum clbi_half out;
    bool out_close_wanted; /* CLOSE goes out when out_packets is 0 */
    uint64_t out_want;     /* window still to be announced: while WANTED or CREATING, to raise an
                                * open half, or to create it again after CLOSE; else 0 */
    uint64_t out_window;
    uint64_t out_fill;
    uint32_t out_packets;
    int64_t create_deadline;
};

struct clbi_proto_pending {
    bool used;
    uint8_t type; /* of the request */
    int32_t id;
    int stream;
    uint32_t size;
    uint64_t token;
    int64_t sent_ns;
    int64_t deadline; /* CLBI_NEVER until write_sent */
};

struct clbi_proto_answer {
    int32_t id;
    uint32_t type, flags, stream_id, size;
    int stream; /* whose name the answer carries (CREATE), -1 = none */
};

struct clbi_proto_config {
    enum clb_role role;
    uint64_t max_payload; /* bytes, all three > 0 */
    uint64_t max_stream_window;
    uint64_t max_link_window;
    int64_t write_timeout_ns; /* from the last byte of a write to its answer */
};

struct clbi_proto {
    struct clbi_proto_config cfg;
    bool up, failed, reset_seen, reset_sent;
    int32_t next_id; /* starts at 11; tests may set it */
    struct clbi_proto_stream stream[CLBI_MAX_STREAMS];
    uint32_t last_stream_id; /* host: where the search for a free id starts */
    struct clbi_proto_pending pending[CLBI_MAX_PENDING];
    uint32_t in_flight; /* counted ones */
    struct {
        int32_t id;
        uint8_t type;
        bool used;
    } forgotten[CLBI_MAX_FORGOTTEN];
    uint32_t forgotten_pos;
    uint32_t
        late_pings; /* forgotten PINGs that may be answered still: more than the table takes, when
                            nothing is read for a long time */
    uint32_t silent_releases; /* forgotten in a row; at 16 releases stop counting as in flight */
    struct clbi_proto_answer answer[CLBI_MAX_ANSWERS];
    uint32_t ans_head, ans_len;
    bool ping_wanted, reset_wanted;
    struct clbi_wire_header cur; /* header whose payload is being received */
    int cur_stream;              /* -1 = SKIP */
    bool cur_active;
    uint32_t rr; /* stream whose release or CREATE goes out next: no starvation */
    uint32_t strays, unknown_writes;
    uint64_t in_window_total;
    /* statistics */
    uint64_t rx_events, tx_events, ignored_answers, nacks, forgotten_count;
    int64_t rtt_ns;
};

/* The host role queues its first PING at once. */
void clbi_proto_init(struct clbi_proto *p, const struct clbi_proto_config *cfg);

/* Takes one received header. Must not be called while a payload is due, nor while must_pause.
 * After FAIL nothing more is handled. */
void clbi_proto_header(struct clbi_proto *p, const uint8_t hdr[CLBI_WIRE_HEADER], int64_t now,
                       struct clbi_proto_event *ev);

/* The payload announced by the last PAYLOAD or SKIP event is in (or discarded): queues the answer. */
void clbi_proto_payload_done(struct clbi_proto *p);

/* Reading must stop until output was pulled (64 answers wait). */
bool clbi_proto_must_pause(const struct clbi_proto *p);

/* Pulls at most cap headers into buf (84 bytes each), stamped with now. Returns how many. */
size_t clbi_proto_out(struct clbi_proto *p, int64_t now, uint8_t *buf, size_t cap);
/* Everything that waits is credit which the peer can do without for a moment (it has half of each of
 * these windows left) or, with `answers`, an answer to a WRITE or a release. */
bool clbi_proto_can_hold(const struct clbi_proto *p, bool answers);
bool clbi_proto_has_out(const struct clbi_proto *p);

/* Entry of a name, -1 = none. */
int clbi_proto_find(const struct clbi_proto *p, const char *name);
/* Entry of a name, made (and pinned) when there is none; -1 = 32 in use. name <= 51 bytes, not "". */
int clbi_proto_attach(struct clbi_proto *p, const char *name);
/* Undoes the pin; the entry is recycled when both halves are gone. */
void clbi_proto_detach(struct clbi_proto *p, int stream);

/* Announces our half with a window (rounded up to 64 here, 0 to 64). Also raises an open one; a half
 * that is closing is created again afterwards. CREATE counts as unanswered at deadline -> REFUSED.
 * Nothing happens, and no event follows, when the half is open with that window already. */
void clbi_proto_create(struct clbi_proto *p, int stream, uint64_t window, int64_t deadline);
/* CLOSE goes out when everything written is answered and released. A half that was only WANTED is
 * gone at once: no event follows when `out` is NONE after this. */
void clbi_proto_close(struct clbi_proto *p, int stream);
/* Gives one received packet's credit back: a READ_REL_REQ goes out as soon as there is room. More
 * releases than packets were received are ignored. */
void clbi_proto_release(struct clbi_proto *p, int stream, uint32_t size);
void clbi_proto_ping(struct clbi_proto *p); /* no-op while one is unanswered */
/* Goes out after everything else that can go out; what cannot, for lack of answers, is given up.
 * Only once the link is up, also after FAIL. Nothing of ours but answers follows it. */
void clbi_proto_reset(struct clbi_proto *p);
/* Requests of ours other than PING wait for an answer (or to be sent). */
bool clbi_proto_busy(const struct clbi_proto *p);

/* CLB_OK = a write of n bytes may start now; TOOBIG (never possible), NOBUFS (no credit), AGAIN (too
 * many unanswered requests), STATE (half not open, or no id yet). */
int clbi_proto_write_check(const struct clbi_proto *p, int stream, uint64_t n);
/* Takes credit and a pending slot, encodes the header. Only after write_check said CLB_OK. */
void clbi_proto_write_begin(struct clbi_proto *p, int stream, uint32_t n, uint64_t token,
                            int64_t now, uint8_t hdr[CLBI_WIRE_HEADER]);
/* The last byte of that write is out: its answer is due within write_timeout_ns (< 0 = never). A
 * peer may answer before: then WRITE_ACKED came already, and this does nothing. */
void clbi_proto_write_sent(struct clbi_proto *p, uint64_t token, int64_t now);

/* Earliest deadline, CLBI_NEVER (INT64_MAX) = none. */
int64_t clbi_proto_next_deadline(const struct clbi_proto *p);
/* Forgets one request that is overdue at now and describes it; false = none is. Call until false.
 * The answer may still come: it changes nothing then. The first PING of the host has no deadline. */
bool clbi_proto_expire(struct clbi_proto *p, int64_t now, struct clbi_proto_event *ev);

#endif
