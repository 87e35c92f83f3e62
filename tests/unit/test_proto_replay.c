/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured sessions (tests/data/wire), replayed in both roles: the machine takes the place of one
 * peer, gets the other's bytes in pieces of any size, and must emit what the capture shows, header
 * by header. Only bytes without meaning may differ: they are left-overs there and zero here.
 *
 * What the machine sends is driven in the order of the capture, with the ids of the capture; of
 * the other side's bytes no more is fed than the next header needs. So no knowledge of the order
 * between the two directions goes in, except by cause and effect.
 */
#include "proto.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EVENTS 512

struct side {
    uint8_t *bytes;
    size_t len;
    struct clbi_wire_header h[MAX_EVENTS];
    size_t off[MAX_EVENTS];
    size_t n;
};

struct session {
    const char *name;
    bool headers_only;
    struct side h2d, d2h;
};

static const struct session sessions[] = {
    {.name = "basic"},
    {.name = "credit"},
    {.name = "dialect-a-host"},
    {.name = "frame.headers", .headers_only = true},
};

#define SESSIONS (sizeof sessions / sizeof *sessions)

static bool has_payload(uint32_t type)
{
    return type == CLBI_WRITE_REQ || type == CLBI_WRITE_FD_REQ;
}

static void load_side(struct side *s, const char *session, const char *dir, bool headers_only)
{
    char path[512];
    FILE *f;
    long len;

    snprintf(path, sizeof path, "%s/wire/%s.%s.bin", CLB_TEST_DATA_DIR, session, dir);
    f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    fseek(f, 0, SEEK_END);
    len = ftell(f);
    rewind(f);
    s->bytes = malloc((size_t)len);
    s->len = (size_t)len;
    cr_assert_eq(fread(s->bytes, 1, s->len, f), s->len);
    fclose(f);
    for (size_t at = 0; at < s->len; s->n++) {
        cr_assert_lt(s->n, MAX_EVENTS);
        cr_assert_leq(at + CLBI_WIRE_HEADER, s->len);
        clbi_wire_decode(&s->h[s->n], s->bytes + at);
        s->off[s->n] = at;
        at += CLBI_WIRE_HEADER;
        if (!headers_only && has_payload(s->h[s->n].type))
            at += s->h[s->n].size;
    }
    cr_assert_gt(s->n, 0);
}

static struct session load(size_t which)
{
    struct session s = sessions[which];

    load_side(&s.h2d, s.name, "h2d", s.headers_only);
    load_side(&s.d2h, s.name, "d2h", s.headers_only);
    return s;
}

static void unload(struct session *s)
{
    free(s->h2d.bytes);
    free(s->d2h.bytes);
}

/* --- the feeder: bytes in pieces, headers out --- */

struct replay {
    struct clbi_proto p;
    const char *name;
    bool headers_only;
    enum clb_role role;
    const struct side *peer;
    size_t at, event; /* of the peer's bytes */
    size_t chunk;     /* 0 = random */
    uint64_t rng;
    size_t piece; /* left of the current piece */
    uint8_t hdr[CLBI_WIRE_HEADER];
    size_t hdr_len;
    uint64_t payload_left;
    bool in_payload;
    int64_t now;
    uint64_t sent, acked;          /* writes of ours, by token */
    unsigned no_packets, no_bytes; /* times that the credit was used up */
    int32_t spec[8];               /* ids that went out as 24 in the capture, as 2 here */
    size_t spec_len;
};

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void check_event(struct replay *r, const struct clbi_wire_header *h,
                        const struct clbi_proto_event *ev)
{
    enum clbi_event_kind expect = CLBI_EV_NONE;
    const struct clbi_proto_stream *s = ev->stream >= 0 ? &r->p.stream[ev->stream] : NULL;

    switch (h->type) {
    case CLBI_PING_REQ: expect = CLBI_EV_UP; break; /* one per session, always the first */
    case CLBI_PING_RESP: expect = CLBI_EV_UP; break;
    case CLBI_CREATE_STREAM_REQ:
        expect = CLBI_EV_ANNOUNCED;
        cr_assert(s && strcmp(s->name, h->name) == 0);
        cr_assert_eq(s->in_window, h->size);
        break;
    case CLBI_CREATE_STREAM_RESP:
        expect = CLBI_EV_OPENED;
        cr_assert(s && strcmp(s->name, h->name) == 0);
        cr_assert_eq(s->id, h->stream_id);
        cr_assert_eq(s->out_window, h->size);
        break;
    case CLBI_WRITE_REQ:
        expect = CLBI_EV_PAYLOAD;
        cr_assert(s && s->id == h->stream_id);
        cr_assert_eq(ev->size, h->size);
        break;
    case CLBI_WRITE_RESP:
        expect = CLBI_EV_WRITE_ACKED;
        cr_assert_eq(ev->token, r->acked++, "acknowledged in order");
        break;
    case CLBI_READ_REL_REQ:
    case CLBI_READ_REL_SPEC_REQ:
        expect = CLBI_EV_CREDIT;
        cr_assert(s && s->id == h->stream_id);
        cr_assert_eq(ev->size, h->size);
        break;
    case CLBI_CLOSE_STREAM_REQ: expect = CLBI_EV_PEER_CLOSED; break;
    case CLBI_CLOSE_STREAM_RESP: expect = CLBI_EV_HALF_CLOSED; break;
    case CLBI_RESET_REQ: expect = CLBI_EV_RESET; break;
    case CLBI_RESET_RESP: expect = CLBI_EV_RESET_DONE; break;
    default: break;
    }
    cr_assert_eq(ev->kind, expect, "%s: event %zu of the peer, type %u: kind %d, expected %d (%s)",
                 r->name, r->event, h->type, ev->kind, expect, ev->text);
    cr_assert_eq(ev->peer_ns, (int64_t)(h->tsec * 1000000000u + h->tnsec));
}

static void one_header(struct replay *r)
{
    struct clbi_wire_header h;
    struct clbi_proto_event ev;

    clbi_wire_decode(&h, r->hdr);
    cr_assert_not(clbi_proto_must_pause(&r->p));
    for (size_t i = 0; i < r->spec_len; i++)
        if (h.type == CLBI_READ_REL_SPEC_RESP && h.id == r->spec[i]) {
            h.type = CLBI_READ_REL_RESP;
            clbi_wire_encode(r->hdr, &h);
        }
    r->now += 1000;
    clbi_proto_header(&r->p, r->hdr, r->now, &ev);
    check_event(r, &h, &ev);
    r->hdr_len = 0;
    if (ev.kind == CLBI_EV_PAYLOAD) {
        r->in_payload = true;
        r->payload_left = r->headers_only ? 0 : ev.size;
    }
}

/* Consumes some bytes, at most one piece, and at most to the end of one header or payload. */
static void feed_some(struct replay *r)
{
    size_t left = r->peer->len - r->at, take;

    if (r->piece == 0)
        r->piece = r->chunk ? r->chunk : 1 + (size_t)(next_random(&r->rng) % 300);
    take = r->in_payload ? (size_t)r->payload_left : CLBI_WIRE_HEADER - r->hdr_len;
    if (take > r->piece)
        take = r->piece;
    if (take > left)
        take = left;
    if (!r->in_payload)
        memcpy(r->hdr + r->hdr_len, r->peer->bytes + r->at, take);
    r->at += take;
    r->piece -= take;
    if (r->in_payload)
        r->payload_left -= take;
    else if ((r->hdr_len += take) == CLBI_WIRE_HEADER)
        one_header(r);
    if (r->in_payload && r->payload_left == 0) {
        r->in_payload = false;
        clbi_proto_payload_done(&r->p);
        r->event++;
    } else if (!r->in_payload && r->hdr_len == 0) {
        r->event++;
    }
}

static bool feed_event(struct replay *r)
{
    size_t before = r->event;

    if (r->at == r->peer->len && !r->in_payload)
        return false;
    while (r->event == before)
        feed_some(r);
    return true;
}

/* --- our side --- */

static void check_header(struct replay *r, size_t index, const struct clbi_wire_header *got,
                         const struct clbi_wire_header *want)
{
    struct clbi_wire_header w = {.id = want->id, .type = want->type, .flags = want->flags};

    switch (want->type) { /* section 4: which fields have a meaning */
    case CLBI_CREATE_STREAM_REQ:
    case CLBI_CREATE_STREAM_RESP:
        memcpy(w.name, want->name, sizeof w.name);
        w.stream_id = want->stream_id;
        w.size = want->size;
        break;
    case CLBI_READ_REL_SPEC_REQ: w.type = CLBI_READ_REL_REQ; /* common subset */ /* fall through */
    case CLBI_READ_REL_REQ:
    case CLBI_WRITE_REQ:
    case CLBI_WRITE_RESP:
        w.stream_id = want->stream_id;
        w.size = want->size;
        break;
    case CLBI_CLOSE_STREAM_REQ:
    case CLBI_CLOSE_STREAM_RESP: w.stream_id = want->stream_id; break;
    default: break;
    }
    cr_assert_eq(got->id, w.id, "%s %zu: id %d, expected %d", r->name, index, got->id, w.id);
    cr_assert_eq(got->type, w.type, "%s %zu: type %u, expected %u", r->name, index, got->type,
                 w.type);
    cr_assert_arr_eq(got->name, w.name, sizeof w.name, "%s %zu: name", r->name, index);
    cr_assert_eq(got->stream_id, w.stream_id, "%s %zu: stream %#x, expected %#x", r->name, index,
                 got->stream_id, w.stream_id);
    cr_assert_eq(got->size, w.size, "%s %zu: size %u, expected %u", r->name, index, got->size,
                 w.size);
    cr_assert_eq(got->flags, w.flags, "%s %zu: flags %#x, expected %#x", r->name, index, got->flags,
                 w.flags);
    cr_assert_eq(clbi_wire_time_ns(got), r->now);
}

static int stream_of(struct replay *r, uint32_t id)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        if (r->p.stream[i].used && r->p.stream[i].id == id)
            return i;
    return -1;
}

/* Does locally what makes the machine send `want`, if it may by now. */
static bool prepare(struct replay *r, const struct clbi_wire_header *want)
{
    int s = stream_of(r, want->stream_id);
    const struct clbi_proto_stream *e = s >= 0 ? &r->p.stream[s] : NULL;

    if (want->type >= CLBI_WRITE_RESP && want->type != CLBI_READ_REL_SPEC_REQ)
        return clbi_proto_has_out(&r->p); /* an answer: as soon as it was asked for */
    r->p.next_id = want->id;
    switch (want->type) {
    case CLBI_PING_REQ: return true;
    case CLBI_CREATE_STREAM_REQ:
        if (!r->p.up)
            return false;
        clbi_proto_create(&r->p, clbi_proto_attach(&r->p, want->name), want->size,
                          r->now + 1000000000);
        return true;
    case CLBI_READ_REL_REQ:
    case CLBI_READ_REL_SPEC_REQ:
        if (!e || e->in_packets == 0 || e->in_fill < want->size ||
            r->p.in_flight >= CLBI_MAX_INFLIGHT)
            return false;
        clbi_proto_release(&r->p, s, want->size);
        if (want->type == CLBI_READ_REL_SPEC_REQ)
            r->spec[r->spec_len++] = want->id;
        return true;
    case CLBI_CLOSE_STREAM_REQ:
        cr_assert_not_null(e);
        clbi_proto_close(&r->p, s);
        return clbi_proto_has_out(&r->p);
    case CLBI_RESET_REQ: clbi_proto_reset(&r->p); return true;
    default: return false;
    }
}

static void emit_write(struct replay *r, size_t index, const struct clbi_wire_header *want)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    struct clbi_wire_header got;
    int s, rc;

    while (s = stream_of(r, want->stream_id),
           (rc = clbi_proto_write_check(&r->p, s, want->size)) != CLB_OK) {
        cr_assert(rc == CLB_ERR_NOBUFS || rc == CLB_ERR_AGAIN || rc == CLB_ERR_STATE);
        cr_assert(feed_event(r), "%s %zu: write not possible at the end: %d", r->name, index, rc);
    }
    r->p.next_id = want->id;
    clbi_proto_write_begin(&r->p, s, want->size, r->sent, r->now, bytes);
    clbi_proto_write_sent(&r->p, r->sent++, r->now);
    clbi_wire_decode(&got, bytes);
    check_header(r, index, &got, want);
    if (clbi_proto_write_check(&r->p, s, 0) == CLB_ERR_NOBUFS)
        r->no_packets++;
    else if (clbi_proto_write_check(&r->p, s, want->size) == CLB_ERR_NOBUFS)
        r->no_bytes++;
}

static void emit(struct replay *r, size_t index, const struct clbi_wire_header *want)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    struct clbi_wire_header got;

    if (want->type == CLBI_WRITE_REQ) {
        emit_write(r, index, want);
        return;
    }
    while (!prepare(r, want))
        cr_assert(feed_event(r), "%s %zu: nothing left that leads to it", r->name, index);
    cr_assert_eq(clbi_proto_out(&r->p, r->now, bytes, 1), 1, "%s %zu: no output", r->name, index);
    clbi_wire_decode(&got, bytes);
    check_header(r, index, &got, want);
}

static void replay(size_t which, enum clb_role role, size_t chunk, uint64_t seed)
{
    struct session s = load(which);
    const struct side *own = role == CLB_ROLE_HOST ? &s.h2d : &s.d2h;
    struct replay r = {
        .name = s.name,
        .headers_only = s.headers_only,
        .role = role,
        .peer = role == CLB_ROLE_HOST ? &s.d2h : &s.h2d,
        .chunk = chunk,
        .rng = seed,
        .now = 1000000000,
    };
    struct clbi_proto_config cfg = {
        .role = role,
        .max_payload = 64u << 20,
        .max_stream_window = 64u << 20,
        .max_link_window = 256u << 20,
        .write_timeout_ns = 1000000000,
    };

    clbi_proto_init(&r.p, &cfg);
    for (size_t i = 0; i < own->n; i++)
        emit(&r, i, &own->h[i]);
    while (feed_event(&r))
        ;
    if (strcmp(s.name, "credit") == 0 && role == CLB_ROLE_DEVICE) {
        cr_assert_eq(r.no_packets, 3, "64 packets, then each of 2 more: %u", r.no_packets);
        cr_assert_eq(r.no_bytes, 2, "after each write of 4000 bytes: %u", r.no_bytes);
    }
    cr_assert_eq(r.event, r.peer->n);
    cr_assert_eq(r.hdr_len, 0);
    cr_assert_eq(r.acked, r.sent);
    cr_assert_not(clbi_proto_has_out(&r.p));
    cr_assert_not(clbi_proto_busy(&r.p));
    cr_assert_eq(r.p.in_flight, 0);
    cr_assert_eq(r.p.ignored_answers, 0);
    cr_assert_eq(r.p.rx_events, r.peer->n);
    cr_assert_eq(r.p.tx_events, own->n);
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        cr_assert_eq(r.p.stream[i].in_fill, 0);
        cr_assert_eq(r.p.stream[i].out_fill, 0);
    }
    unload(&s);
}

static void replay_all(enum clb_role role)
{
    for (size_t which = 0; which < SESSIONS; which++) {
        replay(which, role, CLBI_WIRE_HEADER, 1);
        replay(which, role, 1, 1);
        replay(which, role, 1 << 20, 1);
        for (uint64_t seed = 1; seed <= 200; seed++)
            replay(which, role, 0, seed * 0x9E3779B97F4A7C15u);
    }
}

Test(proto_replay, as_host)
{
    replay_all(CLB_ROLE_HOST);
}

Test(proto_replay, as_device)
{
    replay_all(CLB_ROLE_DEVICE);
}

/* --- the texts say what the bytes say --- */

static uint32_t type_number(const char *name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } table[] = {
        {"WRITE_REQ", 0},
        {"READ_REL_REQ", 2},
        {"CREATE_STREAM_REQ", 3},
        {"CLOSE_STREAM_REQ", 4},
        {"PING_REQ", 5},
        {"RESET_REQ", 6},
        {"WRITE_RESP", 8},
        {"READ_REL_RESP", 10},
        {"CREATE_STREAM_RESP", 11},
        {"CLOSE_STREAM_RESP", 12},
        {"PING_RESP", 13},
        {"RESET_RESP", 14},
        {"READ_REL_SPEC_REQ", 24},
        {"READ_REL_SPEC_RESP", 27},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].type;
    cr_assert_fail("type %s", name);
    return 99;
}

Test(proto_replay, decoded_headers_agree_with_the_texts)
{
    for (size_t which = 0; which < SESSIONS; which++) {
        struct session s = load(which);
        char path[512], line[1024];
        size_t checked = 0, seen[2] = {0, 0};
        FILE *f;

        snprintf(path, sizeof path, "%s/wire/%.*s.txt", CLB_TEST_DATA_DIR,
                 (int)strcspn(s.name, "."), s.name);
        f = fopen(path, "r");
        cr_assert_not_null(f, "%s", path);
        while (fgets(line, sizeof line, f)) {
            unsigned number, stream, size;
            unsigned long off;
            int id;
            char dir[4], type[32], flags[16];
            const struct side *side;
            size_t i;

            if (sscanf(line, "#%u %3s @%lu %31s id=%d stream=%x size=%u flags=%15s", &number, dir,
                       &off, type, &id, &stream, &size, flags) != 8)
                continue;
            side = dir[0] == 'H' ? &s.h2d : &s.d2h;
            i = seen[dir[0] == 'H']++;
            for (; !s.headers_only && i < side->n && side->off[i] != off; i++)
                ;
            cr_assert_lt(i, side->n, "%s #%u", s.name, number);
            cr_assert_eq(side->h[i].type, type_number(type), "%s #%u", s.name, number);
            cr_assert_eq(side->h[i].id, id, "%s #%u", s.name, number);
            cr_assert_eq(side->h[i].stream_id, stream, "%s #%u", s.name, number);
            cr_assert_eq(side->h[i].size, size, "%s #%u", s.name, number);
            cr_assert_eq(side->h[i].flags, CLBI_FLAG_ACK, "%s #%u", s.name, number);
            checked++;
        }
        fclose(f);
        cr_assert_geq(checked, 16, "%s: %zu lines", s.name, checked);
        unload(&s);
    }
}
