/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One protocol machine against arbitrary headers and arbitrary operations of its owner.
 *
 * The first byte chooses the role (bit 0), small limits (bit 1) and a link that is up already
 * (bit 2). Then comes one operation after another: a byte that says which, and its arguments. The
 * owner keeps to the interface (no header while a payload is due or reading is paused; each packet
 * released once), the peer to nothing. After each operation the invariants are checked.
 */
#include "proto.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            __builtin_trap();                                                                      \
    } while (0)

enum op {
    OP_RAW_HEADER, /* 84 bytes as they are */
    OP_HEADER,     /* type, where the id comes from, name, stream id, size, flags */
    OP_PAYLOAD,    /* the payload that is due is in */
    OP_OUT,        /* cap */
    OP_CREATE,     /* name, window */
    OP_CLOSE,      /* entry */
    OP_DETACH,     /* entry */
    OP_RELEASE,    /* entry, which */
    OP_WRITE,      /* entry, size */
    OP_WRITE_SENT, /* token */
    OP_PING,
    OP_RESET,
    OP_TIME, /* milliseconds / 16 */
    OP_BYTES, /* n, n bytes of the peer's stream: headers and payloads in pieces, whatever is between */
    OP_COUNT
};

struct input {
    const uint8_t *at;
    size_t left;
};

struct owner {
    struct clbi_proto p;
    int64_t now;
    bool payload_due;
    size_t payload_left; /* of OP_BYTES */
    uint8_t piece[CLBI_WIRE_HEADER];
    size_t piece_len;
    uint64_t token;
    unsigned held[CLBI_MAX_STREAMS];
    uint32_t size[CLBI_MAX_STREAMS][CLBI_MAX_PACKETS];
};

static uint8_t take8(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static uint32_t take32(struct input *in)
{
    uint32_t v = take8(in);

    v |= (uint32_t)take8(in) << 8;
    v |= (uint32_t)take8(in) << 16;
    return v | (uint32_t)take8(in) << 24;
}

static void take_name(struct input *in, char name[CLBI_WIRE_NAME])
{
    uint8_t c = take8(in);

    memset(name, 0, CLBI_WIRE_NAME);
    if (c == 0xff)
        memset(name, 'x', CLBI_WIRE_NAME); /* no NUL */
    else if (c == 0xfe)
        memset(name, 0x1b, CLBI_WIRE_NAME - 1); /* the longest, to be escaped */
    else if (c >= 0x80)
        name[0] = 0;
    else
        name[0] = (char)('A' + c % 40); /* more than fit on a link */
}

/* --- what must hold at any time --- */

static void check_tables(const struct clbi_proto *p)
{
    uint32_t counted = 0, pings = 0, resets = 0;

    REQUIRE(p->ans_len <= CLBI_MAX_ANSWERS && p->ans_head < CLBI_MAX_ANSWERS);
    REQUIRE(p->forgotten_pos < CLBI_MAX_FORGOTTEN && p->rr < CLBI_MAX_STREAMS);
    REQUIRE(p->silent_releases <= CLBI_MAX_INFLIGHT);
    REQUIRE(p->unknown_writes <= CLBI_MAX_STRAYS + 1 && p->strays <= CLBI_MAX_STRAYS + 1);
    REQUIRE(p->last_stream_id < CLBI_ID_LIMIT);
    for (int i = 0; i < CLBI_MAX_PENDING; i++) {
        const struct clbi_proto_pending *req = &p->pending[i];

        if (!req->used)
            continue;
        pings += req->type == CLBI_PING_REQ;
        resets += req->type == CLBI_RESET_REQ;
        counted += req->type != CLBI_PING_REQ && req->type != CLBI_RESET_REQ;
        REQUIRE(req->stream >= -1 && req->stream < CLBI_MAX_STREAMS);
        REQUIRE(req->stream < 0 || p->stream[req->stream].used);
        for (int k = 0; k < i; k++)
            REQUIRE(!p->pending[k].used || p->pending[k].id != req->id);
    }
    REQUIRE(counted == p->in_flight && counted <= CLBI_MAX_INFLIGHT);
    REQUIRE(pings <= 1 && resets <= 1);
}

static void check_streams(const struct owner *o)
{
    const struct clbi_proto *p = &o->p;
    uint64_t windows = 0;

    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        const struct clbi_proto_stream *s = &p->stream[i];
        bool halves = s->in_open || s->out != CLBI_HALF_NONE;

        if (!s->used) {
            REQUIRE(s->id == CLBI_ID_NONE && !halves && !s->pinned);
            continue;
        }
        REQUIRE(clbi_wire_name_len(s->name) > 0);
        REQUIRE(s->id < CLBI_ID_LIMIT || s->id == CLBI_ID_NONE);
        REQUIRE(halves || s->id == CLBI_ID_NONE);
        REQUIRE(!(s->in_open || s->out == CLBI_HALF_OPEN || s->out == CLBI_HALF_CLOSING) ||
                s->id != CLBI_ID_NONE);
        for (int k = 0; k < i; k++) {
            REQUIRE(!p->stream[k].used || strcmp(p->stream[k].name, s->name) != 0);
            REQUIRE(!p->stream[k].used || p->stream[k].id != s->id || s->id == CLBI_ID_NONE);
        }
        windows += s->in_window;
        REQUIRE(s->in_open || (s->in_window == 0 && s->in_packets == 0));
        REQUIRE(s->in_window <= p->cfg.max_stream_window);
        REQUIRE(s->in_fill <= s->in_window && s->in_packets <= CLBI_MAX_PACKETS);
        REQUIRE(s->in_packets > 0 || s->in_fill == 0);
        REQUIRE(o->held[i] + s->rel_len + (o->payload_due && p->cur_stream == i) == s->in_packets);
        REQUIRE(s->out_fill <= s->out_window && s->out_packets <= CLBI_MAX_PACKETS);
        REQUIRE(s->out == CLBI_HALF_OPEN || s->out == CLBI_HALF_CLOSING || s->out_packets == 0);
        REQUIRE(s->out_want == 0 || s->out != CLBI_HALF_NONE);
    }
    REQUIRE(windows == p->in_window_total && windows <= p->cfg.max_link_window);
}

/* --- the owner --- */

static void on_event(struct owner *o, const struct clbi_proto_event *ev)
{
    const struct clbi_proto *p = &o->p;

    REQUIRE(ev->stream >= -1 && ev->stream < CLBI_MAX_STREAMS);
    switch (ev->kind) {
    case CLBI_EV_PAYLOAD:
        REQUIRE(ev->stream >= 0 && ev->size <= p->cfg.max_payload);
        REQUIRE(ev->size <= p->stream[ev->stream].in_window);
        o->payload_due = true;
        o->payload_left = ev->size;
        break;
    case CLBI_EV_SKIP:
        REQUIRE(ev->size <= p->cfg.max_payload);
        o->payload_due = true;
        o->payload_left = ev->size;
        break;
    case CLBI_EV_FAIL:
        REQUIRE(p->failed && ev->err == CLB_ERR_PROTO);
        REQUIRE(memchr(ev->text, 0, sizeof ev->text) && ev->text[0]);
        for (const char *c = ev->text; *c; c++)
            REQUIRE(*c >= 0x20 && *c < 0x7f);
        break;
    case CLBI_EV_UP: REQUIRE(p->up); break;
    case CLBI_EV_OPENED:
        REQUIRE(p->stream[ev->stream].out == CLBI_HALF_OPEN);
        REQUIRE(ev->size == p->stream[ev->stream].out_window);
        break;
    default: break;
    }
}

static void payload(struct owner *o)
{
    struct clbi_proto *p = &o->p;
    int s = p->cur_stream;

    if (!o->payload_due)
        return;
    if (s >= 0)
        o->size[s][o->held[s]++] = p->cur.size;
    o->payload_due = false;
    o->payload_left = 0;
    clbi_proto_payload_done(p);
}

static void header(struct owner *o, const uint8_t bytes[CLBI_WIRE_HEADER])
{
    struct clbi_proto_event ev;
    bool failed = o->p.failed;

    payload(o);
    if (clbi_proto_must_pause(&o->p))
        return;
    clbi_proto_header(&o->p, bytes, o->now, &ev);
    REQUIRE(!failed || ev.kind == CLBI_EV_FAIL);
    on_event(o, &ev);
}

static void stream_bytes(struct owner *o, struct input *in)
{
    size_t n = take8(in);

    while (n > 0 && in->left > 0 && !o->p.failed) {
        size_t part = o->payload_due ? o->payload_left : sizeof o->piece - o->piece_len;

        if (!o->payload_due && clbi_proto_must_pause(&o->p))
            return;
        part = part < n ? part : n;
        part = part < in->left ? part : in->left;
        if (o->payload_due) {
            o->payload_left -= part;
        } else {
            memcpy(o->piece + o->piece_len, in->at, part);
            o->piece_len += part;
        }
        in->at += part;
        in->left -= part;
        n -= part;
        if (o->payload_due && o->payload_left == 0) {
            payload(o);
        } else if (o->piece_len == sizeof o->piece) {
            o->piece_len = 0;
            header(o, o->piece);
        }
    }
}

static void made_header(struct owner *o, struct input *in)
{
    static const uint8_t types[] = {0, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 24, 25, 27, 28};
    struct clbi_wire_header h = {0};
    uint8_t bytes[CLBI_WIRE_HEADER];
    uint8_t t = take8(in), k;

    h.type = t < 0xf0 ? types[t % sizeof types] : t;
    k = take8(in);
    if (k < CLBI_MAX_PENDING)
        h.id = o->p.pending[k].id;
    else if (k < 64)
        h.id = o->p.forgotten[k].id;
    else
        h.id = (int32_t)take32(in);
    take_name(in, h.name);
    k = take8(in);
    h.stream_id = k < CLBI_MAX_STREAMS ? o->p.stream[k].id : k < 0x80 ? k - 32u : take32(in);
    k = take8(in);
    h.size = k < 0x80 ? k : k < 0xc0 ? (k & 0x3fu) * 64u : take32(in);
    h.flags = take8(in);
    clbi_wire_encode(bytes, &h);
    header(o, bytes);
}

static void check_emitted(const struct clbi_wire_header *h)
{
    static const char zeros[CLBI_WIRE_NAME];
    bool request = h->type <= CLBI_RESET_REQ;

    REQUIRE(request ? h->type >= 2 && h->flags == CLBI_FLAG_ACK
                    : h->flags == CLBI_FLAG_ACK || h->flags == CLBI_FLAG_NACK ||
                          (h->flags == CLBI_FLAG_TOOBIG && h->type == CLBI_CREATE_STREAM_RESP));
    REQUIRE(request || (h->type >= 8 && h->type <= 14 && h->type != 9) || h->type == 27 ||
            h->type == 28);
    if (h->type != CLBI_CREATE_STREAM_REQ && h->type != CLBI_CREATE_STREAM_RESP)
        REQUIRE(memcmp(h->name, zeros, sizeof zeros) == 0);
    if (h->type == CLBI_PING_REQ || h->type == CLBI_RESET_REQ || h->type == 10 || h->type == 13 ||
        h->type == 14 || h->type == 27)
        REQUIRE(h->stream_id == 0 && h->size == 0);
    REQUIRE(h->tnsec < 1000000000u);
}

static void out(struct owner *o, size_t cap)
{
    uint8_t buf[(8 + 1) * CLBI_WIRE_HEADER];
    bool said = clbi_proto_has_out(&o->p);
    size_t n;

    memset(buf, 0xA5, sizeof buf);
    n = clbi_proto_out(&o->p, o->now, buf, cap);
    REQUIRE(n <= cap && (cap == 0 || said == (n > 0)));
    for (size_t i = n * CLBI_WIRE_HEADER; i < sizeof buf; i++)
        REQUIRE(buf[i] == 0xA5);
    for (size_t i = 0; i < n; i++) {
        struct clbi_wire_header h;

        clbi_wire_decode(&h, buf + i * CLBI_WIRE_HEADER);
        check_emitted(&h);
    }
}

static void release(struct owner *o, unsigned s, unsigned which)
{
    if (o->held[s] == 0)
        return;
    which %= o->held[s];
    clbi_proto_release(&o->p, (int)s, o->size[s][which]);
    o->size[s][which] = o->size[s][--o->held[s]];
}

static void write_one(struct owner *o, unsigned s, uint32_t n)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    struct clbi_wire_header h;

    if (clbi_proto_write_check(&o->p, (int)s, n) != CLB_OK)
        return;
    clbi_proto_write_begin(&o->p, (int)s, n, o->token++, o->now, bytes);
    clbi_wire_decode(&h, bytes);
    REQUIRE(!o->p.failed && h.type == CLBI_WRITE_REQ && h.size == n);
    REQUIRE(h.stream_id == o->p.stream[s].id && h.flags == CLBI_FLAG_ACK);
}

static void pass_time(struct owner *o, int64_t ns)
{
    struct clbi_proto_event ev;

    o->now += ns;
    for (int i = 0; clbi_proto_expire(&o->p, o->now, &ev); i++) {
        REQUIRE(i < CLBI_MAX_PENDING + CLBI_MAX_STREAMS);
        REQUIRE(ev.kind != CLBI_EV_FAIL && ev.kind != CLBI_EV_NONE);
        on_event(o, &ev);
    }
    REQUIRE(clbi_proto_next_deadline(&o->p) > o->now);
}

static void operate(struct owner *o, struct input *in)
{
    struct clbi_proto *p = &o->p;
    uint8_t bytes[CLBI_WIRE_HEADER];
    char name[CLBI_WIRE_NAME];
    unsigned s;

    switch ((enum op)(take8(in) % OP_COUNT)) {
    case OP_RAW_HEADER:
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = take8(in);
        header(o, bytes);
        break;
    case OP_HEADER: made_header(o, in); break;
    case OP_PAYLOAD: payload(o); break;
    case OP_OUT: out(o, take8(in) % 9); break;
    case OP_CREATE:
        take_name(in, name);
        name[CLBI_WIRE_NAME - 1] = 0;
        s = (unsigned)clbi_proto_attach(p, name);
        if (s < CLBI_MAX_STREAMS)
            clbi_proto_create(p, (int)s, (uint64_t)take8(in) << (take8(in) % 40),
                              o->now + 5000000000);
        break;
    case OP_CLOSE: clbi_proto_close(p, take8(in) % CLBI_MAX_STREAMS); break;
    case OP_DETACH:
        s = take8(in) % CLBI_MAX_STREAMS;
        if (o->held[s] == 0)
            clbi_proto_detach(p, (int)s);
        break;
    case OP_RELEASE:
        s = take8(in) % CLBI_MAX_STREAMS;
        release(o, s, take8(in));
        break;
    case OP_WRITE:
        s = take8(in) % CLBI_MAX_STREAMS;
        write_one(o, s, (uint32_t)take8(in) << (take8(in) % 24));
        break;
    case OP_WRITE_SENT: clbi_proto_write_sent(p, o->token - 1 - take8(in) % 16, o->now); break;
    case OP_PING: clbi_proto_ping(p); break;
    case OP_RESET: clbi_proto_reset(p); break;
    case OP_TIME: pass_time(o, (int64_t)take8(in) * 16000000); break;
    case OP_BYTES: stream_bytes(o, in); break;
    case OP_COUNT: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct owner o; /* large; always begun anew */
    struct input in = {data, size};
    uint8_t mode = take8(&in);
    bool little = mode & 2;
    struct clbi_proto_config cfg = {
        .role = mode & 1 ? CLB_ROLE_DEVICE : CLB_ROLE_HOST,
        .max_payload = little ? 1000 : 64u << 20,
        .max_stream_window = little ? 4096 : 64u << 20,
        .max_link_window = little ? 8192 : 256u << 20,
        .write_timeout_ns = 3000000000,
    };

    memset(&o, 0, sizeof o);
    o.now = 1000000000;
    clbi_proto_init(&o.p, &cfg);
    o.p.up = mode & 4;
    while (in.left > 0) {
        operate(&o, &in);
        check_tables(&o.p);
        check_streams(&o);
        if (o.p.failed)
            REQUIRE(clbi_proto_next_deadline(&o.p) == INT64_MAX);
    }
    /* Whatever happened, the output ends. */
    for (int i = 0; clbi_proto_has_out(&o.p); i++) {
        REQUIRE(i < 64 + 32 * 64 + 64);
        out(&o, 1);
    }
    check_tables(&o.p);
    return 0;
}
