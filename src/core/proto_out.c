/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol machine: headers to send, and deadlines. Answers go first (PROTOCOL 6.5), then PING,
 * then what waits in the stream entries, one event per stream and turn, and RESET last.
 */
#include "proto_priv.h"

#include <string.h>

enum next { NEXT_NOTHING, NEXT_PING, NEXT_CREATE, NEXT_CLOSE, NEXT_RELEASE, NEXT_RESET };

/* A CREATE that was asked for and is not on its way: for a half that is not there, or to raise
 * the window of one that is. What is to be created after a CLOSE waits for the CLOSE. */
static bool create_waits(const struct clbi_proto *p, int stream)
{
    const struct clbi_proto_stream *s = &p->stream[stream];

    return s->out_want > 0 && clbi_proto_pending_of(p, CLBI_CREATE_STREAM_REQ, stream) < 0;
}

static bool create_due(const struct clbi_proto *p, int stream)
{
    const struct clbi_proto_stream *s = &p->stream[stream];

    return (s->out == CLBI_HALF_WANTED || (s->out == CLBI_HALF_OPEN && !s->out_close_wanted)) &&
           create_waits(p, stream);
}

/* A CLOSE is held back until everything written is released (PROTOCOL 5.3), and answered: an
 * answer that comes later belongs to this half for sure. */
static bool close_due(const struct clbi_proto *p, int stream)
{
    const struct clbi_proto_stream *s = &p->stream[stream];

    return s->out == CLBI_HALF_OPEN && s->out_close_wanted && s->out_packets == 0 &&
           clbi_proto_pending_of(p, CLBI_WRITE_REQ, stream) < 0 &&
           clbi_proto_pending_of(p, CLBI_CREATE_STREAM_REQ, stream) < 0;
}

static enum next stream_next(const struct clbi_proto *p, int stream)
{
    const struct clbi_proto_stream *s = &p->stream[stream];
    bool room = p->in_flight < CLBI_MAX_INFLIGHT;

    if (!s->used)
        return NEXT_NOTHING;
    /* Before the releases: there is one of them at most, so it cannot starve those. */
    if (room && create_due(p, stream))
        return NEXT_CREATE;
    if (room && close_due(p, stream))
        return NEXT_CLOSE;
    if (s->rel_len > 0 && (room || clbi_proto_silent(p)))
        return NEXT_RELEASE;
    return NEXT_NOTHING;
}

static enum next choose(const struct clbi_proto *p, int *stream)
{
    enum next n = NEXT_NOTHING;

    if (p->reset_sent || p->reset_seen)
        return NEXT_NOTHING;
    if (!p->failed) {
        if (p->ping_wanted && (p->up || p->cfg.role == CLB_ROLE_HOST) &&
            clbi_proto_pending_of(p, CLBI_PING_REQ, -1) < 0)
            return NEXT_PING;
        if (!p->up) /* nothing but the first PING before the link is up (PROTOCOL 7.1) */
            return NEXT_NOTHING;
        for (uint32_t k = 0; k < CLBI_MAX_STREAMS && n == NEXT_NOTHING; k++) {
            *stream = (int)((p->rr + k) % CLBI_MAX_STREAMS);
            n = stream_next(p, *stream);
        }
    }
    if (n == NEXT_NOTHING && p->reset_wanted && p->up)
        n = NEXT_RESET; /* what cannot go out now, for lack of answers, is given up */
    return n;
}

static void take_answer(struct clbi_proto *p, struct clbi_wire_header *h)
{
    const struct clbi_proto_answer *a = &p->answer[p->ans_head];

    h->id = a->id;
    h->type = a->type;
    h->flags = a->flags;
    h->stream_id = a->stream_id;
    h->size = a->size;
    if (a->stream >= 0)
        memcpy(h->name, p->stream[a->stream].name, CLBI_WIRE_NAME);
    p->ans_head = (p->ans_head + 1) % CLBI_MAX_ANSWERS;
    p->ans_len--;
    clbi_proto_settle(p, a->stream);
}

static void take_create(struct clbi_proto *p, int i, int64_t now, struct clbi_wire_header *h)
{
    struct clbi_proto_stream *s = &p->stream[i];
    bool host = p->cfg.role == CLB_ROLE_HOST;

    if (host && s->id == CLBI_ID_NONE)
        s->id = clbi_proto_alloc_id(p);
    if (s->out == CLBI_HALF_WANTED)
        s->out = CLBI_HALF_CREATING;
    h->type = CLBI_CREATE_STREAM_REQ;
    h->size = (uint32_t)s->out_want;
    h->stream_id = host ? s->id : CLBI_ID_NONE;
    memcpy(h->name, s->name, CLBI_WIRE_NAME);
    h->id =
        clbi_proto_pending_new(p, CLBI_CREATE_STREAM_REQ, i, h->size, now, s->create_deadline)->id;
}

static void take_release(struct clbi_proto *p, int i, int64_t now, struct clbi_wire_header *h)
{
    struct clbi_proto_stream *s = &p->stream[i];

    h->type = CLBI_READ_REL_REQ;
    h->size = s->rel[s->rel_head];
    h->stream_id = s->id;
    s->rel_head = (s->rel_head + 1) % CLBI_MAX_PACKETS;
    s->rel_len--;
    /* From here on the peer may use the credit. */
    s->in_packets--;
    s->in_fill -= h->size < s->in_fill ? h->size : s->in_fill;
    if (clbi_proto_silent(p)) {
        h->id = clbi_proto_take_id(p);
        clbi_proto_forget(p, h->id, CLBI_READ_REL_REQ);
    } else {
        h->id = clbi_proto_pending_new(p, CLBI_READ_REL_REQ, i, h->size, now,
                                       clbi_proto_add_ns(now, CLBI_REQUEST_TIMEOUT_NS))
                    ->id;
    }
}

static void take_request(struct clbi_proto *p, enum next n, int i, int64_t now,
                         struct clbi_wire_header *h)
{
    int64_t deadline = clbi_proto_add_ns(now, CLBI_REQUEST_TIMEOUT_NS);

    h->flags = CLBI_FLAG_ACK;
    if (n == NEXT_CREATE || n == NEXT_CLOSE || n == NEXT_RELEASE)
        p->rr = ((uint32_t)i + 1) % CLBI_MAX_STREAMS;
    switch (n) {
    case NEXT_PING:
        p->ping_wanted = false;
        h->type = CLBI_PING_REQ;
        /* The first one has no deadline of its own: the owner's connect deadline is its limit. */
        h->id = clbi_proto_pending_new(p, CLBI_PING_REQ, -1, 0, now,
                                       p->up ? deadline : CLBI_PROTO_NEVER)
                    ->id;
        break;
    case NEXT_CREATE: take_create(p, i, now, h); break;
    case NEXT_CLOSE:
        p->stream[i].out = CLBI_HALF_CLOSING;
        p->stream[i].out_close_wanted = false;
        h->type = CLBI_CLOSE_STREAM_REQ;
        h->stream_id = p->stream[i].id;
        h->id = clbi_proto_pending_new(p, CLBI_CLOSE_STREAM_REQ, i, 0, now, deadline)->id;
        break;
    case NEXT_RELEASE: take_release(p, i, now, h); break;
    case NEXT_RESET:
        p->reset_sent = true;
        h->type = CLBI_RESET_REQ;
        h->id = clbi_proto_pending_new(p, CLBI_RESET_REQ, -1, 0, now, deadline)->id;
        break;
    case NEXT_NOTHING: break;
    }
}

size_t clbi_proto_out(struct clbi_proto *p, int64_t now, uint8_t *buf, size_t cap)
{
    size_t n = 0;

    while (n < cap) {
        struct clbi_wire_header h = {0}; /* R15: no byte without meaning is anything but zero */
        int stream = -1;
        enum next what;

        if (p->ans_len > 0) {
            take_answer(p, &h);
        } else {
            what = choose(p, &stream);
            if (what == NEXT_NOTHING)
                break;
            take_request(p, what, stream, now, &h);
        }
        clbi_proto_stamp(&h, now);
        clbi_wire_encode(buf + n * CLBI_WIRE_HEADER, &h);
        n++;
        p->tx_events++;
    }
    return n;
}

bool clbi_proto_can_hold(const struct clbi_proto *p, bool answers)
{
    if ((p->ans_len > 0 && !answers) || p->ans_len > CLBI_MAX_ANSWERS / 2 || p->ping_wanted ||
        p->reset_wanted || p->reset_seen || !p->up || p->failed)
        return false;
    for (uint32_t i = 0; i < p->ans_len; i++) {
        uint32_t type = p->answer[(p->ans_head + i) % CLBI_MAX_ANSWERS].type;
        if (type != CLBI_WRITE_RESP && type != CLBI_READ_REL_RESP)
            return false;
    }
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        const struct clbi_proto_stream *s = &p->stream[i];
        if (s->used && (s->out_want > 0 || s->out_close_wanted ||
                        (s->rel_len > 0 &&
                         (s->in_fill > s->in_window / 2 || s->in_packets > CLBI_MAX_PACKETS / 2))))
            return false;
    }
    return true;
}

bool clbi_proto_has_out(const struct clbi_proto *p)
{
    int stream;

    return p->ans_len > 0 || choose(p, &stream) != NEXT_NOTHING;
}

/* --- deadlines --- */

int64_t clbi_proto_next_deadline(const struct clbi_proto *p)
{
    int64_t first = CLBI_PROTO_NEVER;

    if (p->failed)
        return first;
    for (int i = 0; i < CLBI_MAX_PENDING; i++)
        if (p->pending[i].used && p->pending[i].deadline < first)
            first = p->pending[i].deadline;
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        if (p->stream[i].used && p->stream[i].create_deadline < first && create_waits(p, i))
            first = p->stream[i].create_deadline;
    return first;
}

static void expire_pending(struct clbi_proto *p, struct clbi_proto_pending *slot,
                           struct clbi_proto_event *ev)
{
    const struct clbi_proto_pending req = *slot;

    p->forgotten_count++;
    clbi_proto_forget(p, req.id, req.type);
    ev->kind = CLBI_EV_FORGOTTEN;
    ev->stream = req.stream;
    ev->size = req.size;
    switch (req.type) {
    case CLBI_WRITE_REQ: /* the credit stays used: the peer may have the packet */
        ev->kind = CLBI_EV_WRITE_FAILED;
        ev->token = req.token;
        break;
    case CLBI_CREATE_STREAM_REQ:
        ev->kind = CLBI_EV_REFUSED;
        clbi_proto_create_failed(p, req.stream);
        break;
    case CLBI_CLOSE_STREAM_REQ:
        ev->kind = CLBI_EV_HALF_CLOSED;
        clbi_proto_retire_id(p, req.stream);
        clbi_proto_half_gone(p, req.stream);
        break;
    case CLBI_RESET_REQ: ev->kind = CLBI_EV_RESET_DONE; break;
    case CLBI_PING_REQ: p->late_pings++; break;
    case CLBI_READ_REL_REQ:
        if (!clbi_proto_silent(p))
            p->silent_releases++;
        break;
    default: break;
    }
    clbi_proto_pending_free(p, slot);
}

bool clbi_proto_expire(struct clbi_proto *p, int64_t now, struct clbi_proto_event *ev)
{
    memset(ev, 0, sizeof *ev);
    ev->stream = -1;
    ev->err = CLB_ERR_TIMEOUT;
    if (p->failed)
        return false;
    for (int i = 0; i < CLBI_MAX_PENDING; i++)
        if (p->pending[i].used && p->pending[i].deadline <= now &&
            p->pending[i].deadline != CLBI_PROTO_NEVER) {
            expire_pending(p, &p->pending[i], ev);
            return true;
        }
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        if (p->stream[i].used && p->stream[i].create_deadline <= now &&
            p->stream[i].create_deadline != CLBI_PROTO_NEVER && create_waits(p, i)) {
            ev->kind = CLBI_EV_REFUSED; /* never went out, for lack of answers to others */
            ev->stream = i;
            clbi_proto_create_failed(p, i);
            return true;
        }
    return false;
}
