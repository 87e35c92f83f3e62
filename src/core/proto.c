/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol machine: stream entries, the tables of requests and answers, and the operations of our
 * side. Received headers are in proto_in.c, headers to send and deadlines in proto_out.c.
 */
#include "proto_priv.h"

#include <string.h>

void clbi_proto_init(struct clbi_proto *p, const struct clbi_proto_config *cfg)
{
    memset(p, 0, sizeof *p);
    p->cfg = *cfg;
    p->next_id = 11;
    p->cur_stream = -1;
    p->ping_wanted = cfg->role == CLB_ROLE_HOST;
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        p->stream[i].id = CLBI_ID_NONE;
}

/* --- entries of streams --- */

static bool valid(const struct clbi_proto *p, int stream)
{
    return stream >= 0 && stream < CLBI_MAX_STREAMS && p->stream[stream].used;
}

int clbi_proto_find(const struct clbi_proto *p, const char *name)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        if (p->stream[i].used && strncmp(p->stream[i].name, name, CLBI_WIRE_NAME) == 0)
            return i;
    return -1;
}

int clbi_proto_by_id(const struct clbi_proto *p, uint32_t id)
{
    if (id == CLBI_ID_NONE)
        return -1;
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        if (p->stream[i].used && p->stream[i].id == id)
            return i;
    return -1;
}

int clbi_proto_entry_new(struct clbi_proto *p, const char *name)
{
    size_t len = strnlen(name, CLBI_WIRE_NAME);

    if (len == 0 || len == CLBI_WIRE_NAME)
        return -1;
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        struct clbi_proto_stream *s = &p->stream[i];

        if (s->used)
            continue;
        memset(s, 0, sizeof *s);
        s->used = true;
        s->id = CLBI_ID_NONE;
        memcpy(s->name, name, len);
        return i;
    }
    return -1;
}

uint32_t clbi_proto_alloc_id(struct clbi_proto *p)
{
    /* At most 31 others have one: ends within 32 steps. */
    while (clbi_proto_by_id(p, p->last_stream_id) >= 0)
        p->last_stream_id = (p->last_stream_id + 1) % CLBI_ID_LIMIT;
    return p->last_stream_id;
}

void clbi_proto_retire_id(struct clbi_proto *p, int stream)
{
    const struct clbi_proto_stream *s = &p->stream[stream];

    if (!s->in_open && s->id == p->last_stream_id)
        p->last_stream_id = (p->last_stream_id + 1) % CLBI_ID_LIMIT;
}

/* Something queued or unanswered still names this entry: its index must not get another meaning. */
static bool referenced(const struct clbi_proto *p, int stream)
{
    for (int i = 0; i < CLBI_MAX_PENDING; i++)
        if (p->pending[i].used && p->pending[i].stream == stream)
            return true;
    for (uint32_t k = 0; k < p->ans_len; k++)
        if (p->answer[(p->ans_head + k) % CLBI_MAX_ANSWERS].stream == stream)
            return true;
    return false;
}

void clbi_proto_settle(struct clbi_proto *p, int stream)
{
    struct clbi_proto_stream *s;
    bool keeps_id;

    if (!valid(p, stream))
        return;
    s = &p->stream[stream];
    /* A host keeps the number that it proposes. A device has none of its own: as soon as no half
     * stands the host may hand the number to another name and give this one a new number. */
    keeps_id = s->in_open || s->out == CLBI_HALF_OPEN || s->out == CLBI_HALF_CLOSING ||
               (p->cfg.role == CLB_ROLE_HOST && s->out != CLBI_HALF_NONE);
    if (!keeps_id)
        s->id = CLBI_ID_NONE;
    if (!s->in_open && s->out == CLBI_HALF_NONE && !s->pinned && !referenced(p, stream)) {
        memset(s, 0, sizeof *s);
        s->id = CLBI_ID_NONE;
    }
}

void clbi_proto_half_gone(struct clbi_proto *p, int stream)
{
    struct clbi_proto_stream *s = &p->stream[stream];

    s->out = s->out_want > 0 ? CLBI_HALF_WANTED : CLBI_HALF_NONE;
    s->out_close_wanted = false;
    s->out_window = 0;
    s->out_fill = 0;
    s->out_packets = 0;
    clbi_proto_settle(p, stream);
}

void clbi_proto_create_failed(struct clbi_proto *p, int stream)
{
    struct clbi_proto_stream *s = &p->stream[stream];

    s->out_want = 0;
    if (s->out == CLBI_HALF_CREATING || s->out == CLBI_HALF_WANTED) {
        clbi_proto_retire_id(p, stream);
        clbi_proto_half_gone(p, stream);
    }
}

/* --- requests of ours --- */

/* PING and RESET do not count against the 16 (PROTOCOL 4.2): they must get through when all else
 * is stuck, and at most one of each is out. */
static bool counts(uint8_t type)
{
    return type != CLBI_PING_REQ && type != CLBI_RESET_REQ;
}

static bool id_taken(const struct clbi_proto *p, int32_t id)
{
    for (int i = 0; i < CLBI_MAX_PENDING; i++)
        if (p->pending[i].used && p->pending[i].id == id)
            return true;
    if (p->forgotten_count > 0)
        for (int i = 0; i < CLBI_MAX_FORGOTTEN; i++)
            if (p->forgotten[i].used && p->forgotten[i].id == id)
                return true;
    return false;
}

int32_t clbi_proto_take_id(struct clbi_proto *p)
{
    int32_t id;

    do {
        if (p->next_id >= INT32_MAX)
            p->next_id = 10;
        id = p->next_id++;
    } while (id_taken(p, id)); /* a few hundred at most are taken */
    return id;
}

int clbi_proto_pending_of(const struct clbi_proto *p, uint8_t type, int stream)
{
    for (int i = 0; i < CLBI_MAX_PENDING; i++) {
        const struct clbi_proto_pending *req = &p->pending[i];

        if (req->used && req->type == type && (stream < 0 || req->stream == stream))
            return i;
    }
    return -1;
}

struct clbi_proto_pending *clbi_proto_pending_new(struct clbi_proto *p, uint8_t type, int stream,
                                                  uint32_t size, int64_t now, int64_t deadline)
{
    struct clbi_proto_pending *req = p->pending;

    while (req->used) /* bounded: 18 of the 20 can be in use, see CLBI_MAX_PENDING */
        req++;
    *req = (struct clbi_proto_pending){
        .used = true,
        .type = type,
        .stream = stream,
        .size = size,
        .sent_ns = now,
        .deadline = deadline,
    };
    req->id = clbi_proto_take_id(p);
    if (counts(type))
        p->in_flight++;
    return req;
}

void clbi_proto_pending_free(struct clbi_proto *p, struct clbi_proto_pending *req)
{
    int stream = req->stream;

    req->used = false;
    if (counts(req->type))
        p->in_flight--;
    clbi_proto_settle(p, stream);
}

void clbi_proto_forget(struct clbi_proto *p, int32_t id, uint8_t type)
{
    p->forgotten[p->forgotten_pos].id = id;
    p->forgotten[p->forgotten_pos].type = type;
    p->forgotten[p->forgotten_pos].used = true;
    p->forgotten_pos = (p->forgotten_pos + 1) % CLBI_MAX_FORGOTTEN;
}

/* --- answers of ours --- */

void clbi_proto_answer(struct clbi_proto *p, const struct clbi_proto_answer *a)
{
    if (p->ans_len >= CLBI_MAX_ANSWERS) /* the owner did not pause: nothing may be lost silently */
        return;
    p->answer[(p->ans_head + p->ans_len++) % CLBI_MAX_ANSWERS] = *a;
    if (!(a->flags & CLBI_FLAG_ACK))
        p->nacks++;
}

bool clbi_proto_must_pause(const struct clbi_proto *p)
{
    return p->ans_len >= CLBI_MAX_ANSWERS;
}

/* --- operations of our side --- */

int clbi_proto_attach(struct clbi_proto *p, const char *name)
{
    int i = clbi_proto_find(p, name);

    if (i < 0)
        i = clbi_proto_entry_new(p, name);
    if (i >= 0)
        p->stream[i].pinned = true;
    return i;
}

void clbi_proto_detach(struct clbi_proto *p, int stream)
{
    if (!valid(p, stream))
        return;
    p->stream[stream].pinned = false;
    clbi_proto_settle(p, stream);
}

void clbi_proto_create(struct clbi_proto *p, int stream, uint64_t window, int64_t deadline)
{
    const uint64_t most = UINT32_MAX - 63u; /* largest multiple of 64 that the field holds */
    struct clbi_proto_stream *s;
    uint64_t want;
    int sent;

    if (!valid(p, stream))
        return;
    s = &p->stream[stream];
    want = window == 0 ? 64 : window >= most ? most : (window + 63) / 64 * 64;

    /* Already there, or already asked for: the answer that is due anyway tells the owner. */
    sent = clbi_proto_pending_of(p, CLBI_CREATE_STREAM_REQ, stream);
    if (!s->out_close_wanted && ((s->out == CLBI_HALF_OPEN && want <= s->out_window) ||
                                 (sent >= 0 && want <= p->pending[sent].size)))
        return;
    if (want > s->out_want)
        s->out_want = want;
    s->create_deadline = deadline;
    if (s->out == CLBI_HALF_NONE)
        s->out = CLBI_HALF_WANTED;
}

void clbi_proto_close(struct clbi_proto *p, int stream)
{
    struct clbi_proto_stream *s;

    if (!valid(p, stream))
        return;
    s = &p->stream[stream];
    s->out_want = 0;
    switch (s->out) {
    case CLBI_HALF_NONE:
    case CLBI_HALF_CLOSING: break;
    case CLBI_HALF_WANTED: /* never left us */ clbi_proto_half_gone(p, stream); break;
    case CLBI_HALF_CREATING:
    case CLBI_HALF_OPEN: s->out_close_wanted = true; break;
    }
}

void clbi_proto_release(struct clbi_proto *p, int stream, uint32_t size)
{
    struct clbi_proto_stream *s;

    if (!valid(p, stream))
        return;
    s = &p->stream[stream];
    if (s->rel_len >= s->in_packets || s->rel_len >= CLBI_MAX_PACKETS)
        return; /* more than was received: credit is never invented */
    s->rel[(s->rel_head + s->rel_len++) % CLBI_MAX_PACKETS] = size;
}

void clbi_proto_ping(struct clbi_proto *p)
{
    if (clbi_proto_pending_of(p, CLBI_PING_REQ, -1) < 0)
        p->ping_wanted = true;
}

void clbi_proto_reset(struct clbi_proto *p)
{
    p->reset_wanted = true;
}

bool clbi_proto_busy(const struct clbi_proto *p)
{
    for (int i = 0; i < CLBI_MAX_PENDING; i++)
        if (p->pending[i].used && p->pending[i].type != CLBI_PING_REQ)
            return true;
    if (p->reset_sent || p->reset_seen || p->failed)
        return false; /* what has not gone out by now never will */
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        const struct clbi_proto_stream *s = &p->stream[i];

        if (s->used && (s->rel_len > 0 || s->out_want > 0 || s->out_close_wanted))
            return true;
    }
    return p->reset_wanted && p->up;
}

/* --- writes --- */

int clbi_proto_write_check(const struct clbi_proto *p, int stream, uint64_t n)
{
    const struct clbi_proto_stream *s;

    if (!valid(p, stream) || p->failed || p->reset_sent || p->reset_seen)
        return CLB_ERR_STATE;
    s = &p->stream[stream];
    if (s->out != CLBI_HALF_OPEN || s->out_close_wanted || s->id == CLBI_ID_NONE)
        return CLB_ERR_STATE;
    /* No receiver takes 2 GiB (PROTOCOL 10), whatever window it was shown. */
    if (n > INT32_MAX || (n > s->out_window && n > s->out_want))
        return CLB_ERR_TOOBIG;
    if (s->out_packets >= CLBI_MAX_PACKETS || n > s->out_window || s->out_fill > s->out_window - n)
        return CLB_ERR_NOBUFS;
    if (p->in_flight >= CLBI_MAX_INFLIGHT)
        return CLB_ERR_AGAIN;
    return CLB_OK;
}

void clbi_proto_write_begin(struct clbi_proto *p, int stream, uint32_t n, uint64_t token,
                            int64_t now, uint8_t hdr[CLBI_WIRE_HEADER])
{
    struct clbi_proto_stream *s;
    struct clbi_proto_pending *req;
    struct clbi_wire_header h = {0};

    memset(hdr, 0, CLBI_WIRE_HEADER);
    if (clbi_proto_write_check(p, stream, n) != CLB_OK) {
        p->failed = true; /* the caller's mistake must not reach the wire a second time */
        return;
    }
    s = &p->stream[stream];
    req = clbi_proto_pending_new(p, CLBI_WRITE_REQ, stream, n, now, CLBI_PROTO_NEVER);
    req->token = token;
    s->out_fill += n;
    s->out_packets++;
    p->tx_events++;

    h.id = req->id;
    h.type = CLBI_WRITE_REQ;
    h.stream_id = s->id;
    h.size = n;
    h.flags = CLBI_FLAG_ACK;
    clbi_proto_stamp(&h, now);
    clbi_wire_encode(hdr, &h);
}

void clbi_proto_write_sent(struct clbi_proto *p, uint64_t token, int64_t now)
{
    for (int i = 0; i < CLBI_MAX_PENDING; i++) {
        struct clbi_proto_pending *req = &p->pending[i];

        if (req->used && req->type == CLBI_WRITE_REQ && req->token == token) {
            req->deadline = clbi_proto_add_ns(now, p->cfg.write_timeout_ns);
            return;
        }
    }
}
