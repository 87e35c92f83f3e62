/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol machine: received headers. Nothing in a header is believed before it is checked; sizes
 * are compared in 64 bits. Section numbers are those of the wire protocol's description.
 */
#include "proto_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "log.h"

static void fail(struct clbi_proto *p, struct clbi_proto_event *ev, const char *fmt, ...)
    CLBI_PRINTF(3, 4);

static void fail(struct clbi_proto *p, struct clbi_proto_event *ev, const char *fmt, ...)
{
    va_list ap;

    p->failed = true;
    ev->kind = CLBI_EV_FAIL;
    ev->err = CLB_ERR_PROTO;
    va_start(ap, fmt);
    vsnprintf(ev->text, sizeof ev->text, fmt, ap);
    va_end(ap);
}

/* Positive or negative answer to a request; only what section 4 lists is filled. */
static void answer(struct clbi_proto *p, const struct clbi_wire_header *req, uint32_t type,
                   uint32_t flags, uint32_t stream_id, uint32_t size)
{
    const struct clbi_proto_answer a = {
        .id = req->id,
        .type = type,
        .flags = flags,
        .stream_id = stream_id,
        .size = size,
        .stream = -1,
    };

    clbi_proto_answer(p, &a);
}

/* --- requests of the peer --- */

static void on_ping(struct clbi_proto *p, const struct clbi_wire_header *h,
                    struct clbi_proto_event *ev)
{
    answer(p, h, CLBI_PING_RESP, CLBI_FLAG_ACK, 0, 0);
    if (!p->up && p->cfg.role == CLB_ROLE_DEVICE) {
        p->up = true;
        ev->kind = CLBI_EV_UP;
    }
}

static uint32_t write_response(uint32_t type)
{
    return type == CLBI_WRITE_FD_REQ ? CLBI_WRITE_FD_RESP : CLBI_WRITE_RESP;
}

static void answer_write(struct clbi_proto *p, const struct clbi_wire_header *h, uint32_t flags)
{
    answer(p, h, write_response(h->type), flags, h->stream_id, h->size);
}

/* R1, R2: window, packets and size are checked before anything is received or allocated. A write
 * of 0 bytes follows the same rule as any other: it fits every window, also one of 0, and takes
 * one of the 64 packets (6.1). */
static void on_write(struct clbi_proto *p, const struct clbi_wire_header *h,
                     struct clbi_proto_event *ev)
{
    int i = clbi_proto_by_id(p, h->stream_id);
    struct clbi_proto_stream *s = i >= 0 && p->stream[i].in_open ? &p->stream[i] : NULL;

    if (h->size > INT32_MAX || h->size > p->cfg.max_payload) {
        answer_write(p, h, CLBI_FLAG_NACK);
        fail(p, ev, "WRITE of %u bytes on stream %u exceeds the limit of %llu", h->size,
             h->stream_id, (unsigned long long)p->cfg.max_payload);
        return;
    }
    if (!s) {
        if (++p->unknown_writes > CLBI_MAX_STRAYS) {
            answer_write(p, h, CLBI_FLAG_NACK);
            fail(p, ev, "WRITE of %u bytes on unknown stream %u, the %u. of its kind", h->size,
                 h->stream_id, p->unknown_writes);
            return;
        }
        ev->kind = CLBI_EV_SKIP;
    } else {
        /* in_fill <= in_window always: this is the absolute limit too. */
        if (s->in_packets >= CLBI_MAX_PACKETS || h->size > s->in_window - s->in_fill) {
            char name[40];

            answer_write(p, h, CLBI_FLAG_NACK);
            fail(p, ev,
                 "WRITE of %u bytes on stream %u exceeds the window of %llu "
                 "(unreleased: %llu bytes, %u packets); stream \"%s\"",
                 h->size, h->stream_id, (unsigned long long)s->in_window,
                 (unsigned long long)s->in_fill, s->in_packets,
                 clbi_escape(name, sizeof name, s->name));
            return;
        }
        s->in_fill += h->size;
        s->in_packets++;
        ev->kind = CLBI_EV_PAYLOAD;
        ev->stream = i;
    }
    ev->size = h->size;
    p->cur = *h;
    p->cur_stream = ev->stream;
    p->cur_active = true;
}

void clbi_proto_payload_done(struct clbi_proto *p)
{
    if (!p->cur_active)
        return;
    p->cur_active = false;
    answer_write(p, &p->cur, p->cur_stream >= 0 ? CLBI_FLAG_ACK : CLBI_FLAG_NACK);
}

static void answer_create(struct clbi_proto *p, const struct clbi_wire_header *h, int stream,
                          bool ack)
{
    const struct clbi_proto_answer a = {
        .id = h->id,
        .type = CLBI_CREATE_STREAM_RESP,
        .flags = ack ? CLBI_FLAG_ACK : CLBI_FLAG_TOOBIG,
        .stream_id = ack ? p->stream[stream].id : CLBI_ID_NONE,
        .size = h->size,
        .stream = stream,
    };

    clbi_proto_answer(p, &a);
}

/* Id for a half that the peer creates on an entry that has none yet; CLBI_ID_NONE = refuse. */
static uint32_t choose_id(struct clbi_proto *p, uint32_t proposed)
{
    if (p->cfg.role == CLB_ROLE_HOST || proposed == CLBI_ID_NONE)
        return clbi_proto_alloc_id(p);
    if (proposed >= CLBI_ID_LIMIT || clbi_proto_by_id(p, proposed) >= 0)
        return CLBI_ID_NONE; /* R18: one id never has two names */
    return proposed;
}

static void on_create(struct clbi_proto *p, const struct clbi_wire_header *h,
                      struct clbi_proto_event *ev)
{
    struct clbi_proto_stream *s;
    uint64_t old = 0, others;
    bool grows = true;
    int i;

    if (clbi_wire_name_len(h->name) <= 0) { /* R17: empty or not terminated */
        answer_create(p, h, -1, false);
        return;
    }
    i = clbi_proto_find(p, h->name);
    if (i >= 0 && p->stream[i].in_open) {
        old = p->stream[i].in_window;
        grows = h->size > old;
    }
    others = p->in_window_total - old;
    if (grows && (h->size > p->cfg.max_stream_window || h->size > p->cfg.max_link_window ||
                  others > p->cfg.max_link_window - h->size)) {
        answer_create(p, h, i, false);
        return;
    }
    if (i < 0)
        i = clbi_proto_entry_new(p, h->name);
    if (i < 0) {
        answer_create(p, h, -1, false);
        return;
    }
    s = &p->stream[i];
    if (s->id == CLBI_ID_NONE)
        s->id = choose_id(p, h->stream_id);
    if (s->id == CLBI_ID_NONE) {
        clbi_proto_settle(p, i);
        answer_create(p, h, s->used ? i : -1, false);
        return;
    }
    if (grows) {
        s->in_open = true;
        s->in_window = h->size;
        p->in_window_total = others + h->size;
        ev->kind = CLBI_EV_ANNOUNCED;
        ev->stream = i;
        ev->size = h->size;
    }
    answer_create(p, h, i, true);
}

/* R14: a release gives back what was written and not yet released, never more. */
static void on_release(struct clbi_proto *p, const struct clbi_wire_header *h,
                       struct clbi_proto_event *ev)
{
    uint32_t type = h->type == CLBI_READ_REL_REQ ? CLBI_READ_REL_RESP : CLBI_READ_REL_SPEC_RESP;
    int i = clbi_proto_by_id(p, h->stream_id);
    struct clbi_proto_stream *s;

    if (i < 0) {
        answer(p, h, type, CLBI_FLAG_NACK, 0, 0);
        return;
    }
    s = &p->stream[i];
    if (s->out_packets == 0 || h->size > s->out_fill) {
        char name[40];

        answer(p, h, type, CLBI_FLAG_NACK, 0, 0);
        fail(p, ev,
             "release of %u bytes on stream %u, where %llu bytes in %u packets are unreleased; "
             "stream \"%s\"",
             h->size, h->stream_id, (unsigned long long)s->out_fill, s->out_packets,
             clbi_escape(name, sizeof name, s->name));
        return;
    }
    s->out_fill -= h->size;
    s->out_packets--;
    answer(p, h, type, CLBI_FLAG_ACK, 0, 0);
    ev->kind = CLBI_EV_CREDIT;
    ev->stream = i;
    ev->size = h->size;
}

static void on_close(struct clbi_proto *p, const struct clbi_wire_header *h,
                     struct clbi_proto_event *ev)
{
    int i = clbi_proto_by_id(p, h->stream_id);
    struct clbi_proto_stream *s = i >= 0 && p->stream[i].in_open ? &p->stream[i] : NULL;

    if (s && s->in_packets > 0) { /* 5.3: the half stays, the peer has to try again */
        answer(p, h, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_NACK, h->stream_id, 0);
        return;
    }
    answer(p, h, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_ACK, h->stream_id, 0);
    if (!s)
        return;
    p->in_window_total -= s->in_window;
    s->in_open = false;
    s->in_window = 0;
    s->in_fill = 0;
    ev->kind = CLBI_EV_PEER_CLOSED;
    ev->stream = i;
    clbi_proto_settle(p, i);
}

static void on_reset(struct clbi_proto *p, const struct clbi_wire_header *h,
                     struct clbi_proto_event *ev)
{
    answer(p, h, CLBI_RESET_RESP, CLBI_FLAG_ACK, 0, 0);
    p->reset_seen = true;
    ev->kind = CLBI_EV_RESET;
}

/* --- answers of the peer --- */

static void up_or_pong(struct clbi_proto *p, struct clbi_proto_event *ev, int64_t rtt)
{
    p->rtt_ns = ev->rtt_ns = rtt;
    ev->kind = p->up ? CLBI_EV_PONG : CLBI_EV_UP;
    p->up = true;
}

/* The id in an ack of our CREATE, on an entry whose state says who may choose it. A host proposed
 * one, but a device that still knows the name gives the number that it has (5.1): taken as long as
 * nothing else contradicts it. */
static bool adopt_id(struct clbi_proto *p, int stream, uint32_t id)
{
    struct clbi_proto_stream *s = &p->stream[stream];
    int other = clbi_proto_by_id(p, id);
    bool settled = s->in_open || s->out == CLBI_HALF_OPEN;

    if (id >= CLBI_ID_LIMIT || (other >= 0 && other != stream))
        return false;
    if (s->id != id && s->id != CLBI_ID_NONE && settled)
        return false;
    s->id = id;
    return true;
}

static void on_create_answer(struct clbi_proto *p, const struct clbi_wire_header *h, int i,
                             uint32_t size, struct clbi_proto_event *ev)
{
    struct clbi_proto_stream *s = &p->stream[i];

    ev->stream = i;
    if (!(h->flags & CLBI_FLAG_ACK)) {
        clbi_proto_create_failed(p, i);
        ev->kind = CLBI_EV_REFUSED;
        ev->err = h->flags & CLBI_FLAG_TOOBIG ? CLB_ERR_TOOBIG : CLB_ERR_IO;
        return;
    }
    if (!adopt_id(p, i, h->stream_id)) {
        char name[40];

        fail(p, ev, "CREATE was answered with stream %#x, which contradicts %#x; stream \"%s\"",
             h->stream_id, s->id, clbi_escape(name, sizeof name, s->name));
        return;
    }
    s->out = CLBI_HALF_OPEN;
    if (size > s->out_window)
        s->out_window = size;
    if (!s->out_close_wanted && s->out_want <= s->out_window)
        s->out_want = 0;
    ev->kind = CLBI_EV_OPENED;
    ev->size = (size_t)s->out_window;
}

static void on_write_answer(struct clbi_proto *p, const struct clbi_wire_header *h,
                            const struct clbi_proto_pending *req, struct clbi_proto_event *ev)
{
    struct clbi_proto_stream *s = &p->stream[req->stream];

    ev->stream = req->stream;
    ev->token = req->token;
    ev->size = req->size;
    if (h->flags & CLBI_FLAG_ACK) {
        ev->kind = CLBI_EV_WRITE_ACKED;
        return;
    }
    ev->kind = CLBI_EV_WRITE_FAILED;
    ev->err = CLB_ERR_IO;
    /* The peer did not take the packet, so it will never release it. (One released already and
     * then refused is a contradiction that the checks leave to the next release.) */
    if (s->out_packets > 0 && s->out_fill >= req->size) {
        s->out_packets--;
        s->out_fill -= req->size;
    }
}

/* R9: an operation succeeds only through the answer with its id and its type. */
static void on_answer(struct clbi_proto *p, const struct clbi_wire_header *h, uint8_t type,
                      int64_t now, struct clbi_proto_event *ev)
{
    struct clbi_proto_pending req;
    int at = -1;

    for (int i = 0; i < CLBI_MAX_PENDING && at < 0; i++)
        if (p->pending[i].used && p->pending[i].id == h->id && p->pending[i].type == type)
            at = i;
    if (at < 0) {
        for (int i = 0; i < CLBI_MAX_FORGOTTEN; i++)
            if (p->forgotten[i].used && p->forgotten[i].id == h->id &&
                p->forgotten[i].type == type) {
                /* Too late: whoever asked was told so long ago, and nothing is left to change. A
                 * CREATE that is still wanted was or will be sent again; the peer then names the
                 * half that it has. */
                p->forgotten[i].used = false;
                if (type == CLBI_PING_REQ)
                    p->late_pings--;
                return;
            }
        if (type == CLBI_PING_REQ && p->late_pings > 0) {
            p->late_pings--;
            return;
        }
        p->ignored_answers++;
        /* Of a peer that does not answer releases in time more are out than we remember. */
        if (type == CLBI_READ_REL_REQ && clbi_proto_silent(p))
            return;
        if (++p->strays > CLBI_MAX_STRAYS)
            fail(p, ev, "answer %u with id %d that nobody asked for, the %u. of its kind", h->type,
                 (int)h->id, p->strays);
        return;
    }
    req = p->pending[at];
    if (type == CLBI_CREATE_STREAM_REQ)
        on_create_answer(p, h, req.stream, req.size, ev);
    else if (type == CLBI_WRITE_REQ)
        on_write_answer(p, h, &req, ev);
    else if (type == CLBI_READ_REL_REQ)
        p->silent_releases = 0;
    else if (type == CLBI_PING_REQ)
        up_or_pong(p, ev, now - req.sent_ns);
    else if (type == CLBI_RESET_REQ)
        ev->kind = CLBI_EV_RESET_DONE;
    else if (type == CLBI_CLOSE_STREAM_REQ) {
        if (!(h->flags & CLBI_FLAG_ACK))
            clbi_proto_retire_id(p, req.stream);
        clbi_proto_half_gone(p, req.stream);
        ev->kind = CLBI_EV_HALF_CLOSED;
        ev->stream = req.stream;
    }
    clbi_proto_pending_free(p, &p->pending[at]);
}

/* --- dispatch --- */

void clbi_proto_header(struct clbi_proto *p, const uint8_t hdr[CLBI_WIRE_HEADER], int64_t now,
                       struct clbi_proto_event *ev)
{
    struct clbi_wire_header h;

    memset(ev, 0, sizeof *ev);
    ev->stream = -1;
    if (p->failed || p->cur_active || clbi_proto_must_pause(p)) {
        fail(p, ev, "%s",
             p->failed       ? "the link has failed already"
             : p->cur_active ? "a header where a payload is due"
                             : "a header although the answers were not taken");
        return;
    }
    clbi_wire_decode(&h, hdr);
    ev->peer_ns = clbi_wire_time_ns(&h);
    p->rx_events++;

    /* Only the event's own fields are looked at: flags of requests, and all that section 4 does
     * not list, is left over from earlier traffic in some peers. */
    switch (h.type) {
    case CLBI_WRITE_REQ:
    case CLBI_WRITE_FD_REQ:
        /* A dialect A peer would answer a release-specific request with 25, which we never send. */
        on_write(p, &h, ev);
        break;
    case CLBI_READ_REL_REQ:
    case CLBI_READ_REL_SPEC_REQ: on_release(p, &h, ev); break;
    case CLBI_CREATE_STREAM_REQ: on_create(p, &h, ev); break;
    case CLBI_CLOSE_STREAM_REQ: on_close(p, &h, ev); break;
    case CLBI_PING_REQ: on_ping(p, &h, ev); break;
    case CLBI_RESET_REQ: on_reset(p, &h, ev); break;
    case CLBI_WRITE_RESP:
    case CLBI_READ_REL_RESP:
    case CLBI_CREATE_STREAM_RESP:
    case CLBI_CLOSE_STREAM_RESP:
    case CLBI_PING_RESP:
    case CLBI_RESET_RESP: on_answer(p, &h, (uint8_t)(h.type - CLBI_WRITE_RESP), now, ev); break;
    case CLBI_READ_REL_SPEC_RESP: /* of requests that we never send: matches nothing */
        on_answer(p, &h, CLBI_READ_REL_SPEC_REQ, now, ev);
        break;
    case CLBI_WRITE_FD_RESP: on_answer(p, &h, CLBI_WRITE_FD_REQ, now, ev); break;
    default: fail(p, ev, "event of type %u, which the protocol does not have", h.type); break;
    }
}
