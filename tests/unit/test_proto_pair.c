/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host and a device machine wired back to back, with random operations on both sides and random
 * delivery. Whatever two correct peers do, neither may drop the link, every counter of one side
 * agrees with the other's, and when all is given back nothing is left anywhere.
 */
#include "proto.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define NAMES 36 /* more than a link can have */
#define QUEUE 4096
#define SEC INT64_C(1000000000)

struct peer {
    struct clbi_proto p;
    const char *who;
    struct clbi_wire_header queue[QUEUE]; /* on its way to this peer */
    size_t head, len;
    int held[CLBI_MAX_STREAMS]; /* packets with the application, by entry */
    uint32_t size[CLBI_MAX_STREAMS][CLBI_MAX_PACKETS];
    uint64_t next_token, writes, acked, failed, received, credits, released;
};

struct pair {
    struct peer a[2]; /* host, device */
    uint64_t rng, seed;
    int64_t now;
    bool jumps;
};

static uint32_t rnd(struct pair *w, uint32_t n)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return (uint32_t)((w->rng >> 20) % n);
}

static void send_to(struct peer *to, const uint8_t *bytes)
{
    cr_assert_lt(to->len, QUEUE);
    clbi_wire_decode(&to->queue[(to->head + to->len++) % QUEUE], bytes);
}

static void start(struct pair *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->rng = seed * 0x9E3779B97F4A7C15u + 1;
    w->now = SEC;
    for (int i = 0; i < 2; i++) {
        struct clbi_proto_config cfg = {
            .role = i ? CLB_ROLE_DEVICE : CLB_ROLE_HOST,
            .max_payload = 1 << 20,
            .max_stream_window = 4096,
            .max_link_window = 32768,
            .write_timeout_ns = 10 * SEC,
        };

        clbi_proto_init(&w->a[i].p, &cfg);
        w->a[i].who = i ? "device" : "host";
        w->a[i].p.next_id = i ? 11 : INT32_MAX - 500; /* wraps on the way */
    }
}

/* --- the owner's reaction to events --- */

static void on_event(struct pair *w, struct peer *me, const struct clbi_proto_event *ev)
{
    int s = ev->stream;

    cr_assert_neq(ev->kind, CLBI_EV_FAIL, "seed %llu: %s: %s", (unsigned long long)w->seed, me->who,
                  ev->text);
    cr_assert_neq(ev->kind, CLBI_EV_SKIP, "seed %llu: %s: write to an unknown stream",
                  (unsigned long long)w->seed, me->who);
    switch (ev->kind) {
    case CLBI_EV_PAYLOAD:
        me->size[s][me->held[s]++] = (uint32_t)ev->size;
        me->received++;
        clbi_proto_payload_done(&me->p);
        break;
    case CLBI_EV_WRITE_ACKED: me->acked++; break;
    case CLBI_EV_WRITE_FAILED:
        cr_assert(w->jumps && ev->err == CLB_ERR_TIMEOUT);
        me->failed++;
        break;
    case CLBI_EV_CREDIT: me->credits++; break;
    case CLBI_EV_PEER_CLOSED: cr_assert_eq(me->held[s], 0); break;
    default: break;
    }
}

static bool deliver(struct pair *w, struct peer *me)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    struct clbi_proto_event ev;

    if (me->len == 0 || clbi_proto_must_pause(&me->p))
        return false;
    clbi_wire_encode(bytes, &me->queue[me->head]);
    me->head = (me->head + 1) % QUEUE;
    me->len--;
    clbi_proto_header(&me->p, bytes, w->now, &ev);
    on_event(w, me, &ev);
    return true;
}

static bool pull(struct pair *w, struct peer *me, struct peer *to, size_t cap)
{
    uint8_t bytes[8 * CLBI_WIRE_HEADER];
    bool said = clbi_proto_has_out(&me->p);
    size_t n = clbi_proto_out(&me->p, w->now, bytes, cap < 8 ? cap : 8);

    cr_assert_eq(said, n > 0);
    for (size_t i = 0; i < n; i++)
        send_to(to, bytes + i * CLBI_WIRE_HEADER);
    return n > 0;
}

static void expire(struct pair *w, struct peer *me)
{
    struct clbi_proto_event ev;

    for (int i = 0; clbi_proto_expire(&me->p, w->now, &ev); i++) {
        cr_assert_lt(i, 100);
        on_event(w, me, &ev);
    }
    cr_assert_gt(clbi_proto_next_deadline(&me->p), w->now);
}

/* --- random operations --- */

static void release_one(struct pair *w, struct peer *me, int s)
{
    int k = (int)rnd(w, (uint32_t)me->held[s]); /* in any order */

    clbi_proto_release(&me->p, s, me->size[s][k]);
    me->size[s][k] = me->size[s][--me->held[s]];
    me->released++;
}

static void write_one(struct pair *w, struct peer *me, struct peer *to, int s)
{
    uint32_t n = rnd(w, 3) ? rnd(w, 700) : 0;
    uint8_t bytes[CLBI_WIRE_HEADER];

    if (clbi_proto_write_check(&me->p, s, n) != CLB_OK)
        return;
    clbi_proto_write_begin(&me->p, s, n, me->next_token, w->now, bytes);
    send_to(to, bytes);
    clbi_proto_write_sent(&me->p, me->next_token++, w->now);
    me->writes++;
}

static void operate(struct pair *w, struct peer *me, struct peer *to)
{
    char name[8];
    int s = (int)rnd(w, CLBI_MAX_STREAMS);

    switch (rnd(w, 12)) {
    case 0:
        snprintf(name, sizeof name, "n%u", rnd(w, NAMES));
        s = clbi_proto_attach(&me->p, name);
        if (s >= 0)
            clbi_proto_create(&me->p, s, rnd(w, 5000), INT64_MAX);
        break;
    case 1:
        if (rnd(w, 4) == 0)
            clbi_proto_close(&me->p, s);
        break;
    case 2:
        if (me->held[s] == 0 && rnd(w, 4) == 0)
            clbi_proto_detach(&me->p, s);
        break;
    case 3: clbi_proto_ping(&me->p); break;
    case 4:
    case 5:
    case 6:
        for (int i = 0; i < CLBI_MAX_STREAMS; i++)
            if (me->held[i] > 0 && rnd(w, 3) == 0)
                release_one(w, me, i);
        break;
    case 7:
        if (w->jumps && rnd(w, 20) == 0)
            w->now += rnd(w, 3) * SEC + rnd(w, 1000);
        else
            w->now += rnd(w, 1000);
        break;
    default:
        for (int k = 0; k < 4; k++, s = (s + 1) % CLBI_MAX_STREAMS)
            write_one(w, me, to, s);
        break;
    }
}

static void check(struct pair *w, struct peer *me, struct peer *other)
{
    uint64_t windows = 0;
    uint32_t counted = 0;

    for (int i = 0; i < CLBI_MAX_PENDING; i++)
        counted += me->p.pending[i].used && me->p.pending[i].type != CLBI_PING_REQ &&
                   me->p.pending[i].type != CLBI_RESET_REQ;
    cr_assert_eq(counted, me->p.in_flight);
    cr_assert_leq(me->p.in_flight, CLBI_MAX_INFLIGHT);
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        const struct clbi_proto_stream *s = &me->p.stream[i];
        int j = s->used ? clbi_proto_find(&other->p, s->name) : -1;

        if (!s->used)
            continue;
        windows += s->in_window;
        cr_assert_leq(s->in_packets, CLBI_MAX_PACKETS);
        cr_assert_leq(s->in_fill, s->in_window);
        cr_assert_leq(s->out_fill, s->out_window);
        cr_assert_eq((uint32_t)me->held[i] + s->rel_len, s->in_packets);
        cr_assert(s->in_open || s->in_packets == 0);
        /* The writer gives up last: what the reader counts, it counts too. */
        if (s->in_packets > 0) {
            cr_assert_geq(j, 0);
            cr_assert_geq(other->p.stream[j].out_fill, s->in_fill, "seed %llu",
                          (unsigned long long)w->seed);
            cr_assert_geq(other->p.stream[j].out_packets, s->in_packets);
            cr_assert_eq(other->p.stream[j].id, s->id);
        }
    }
    cr_assert_eq(windows, me->p.in_window_total);
}

static bool exchange(struct pair *w)
{
    bool any = false;

    for (int i = 0; i < 2; i++) {
        any |= pull(w, &w->a[i], &w->a[!i], 8);
        any |= deliver(w, &w->a[i]);
    }
    return any;
}

static void run(struct pair *w, int steps)
{
    for (int step = 0; step < steps; step++) {
        int i = (int)rnd(w, 2);
        struct peer *me = &w->a[i], *other = &w->a[!i];

        switch (rnd(w, 4)) {
        case 0: operate(w, me, other); break;
        case 1: pull(w, me, other, 1 + rnd(w, 8)); break;
        default:
            for (uint32_t k = rnd(w, 6); k > 0 && deliver(w, me); k--)
                ;
            break;
        }
        expire(w, me);
        if (step % 16 == 0) {
            check(w, me, other);
            check(w, other, me);
        }
    }

    /* Everything is given back, released and closed. */
    for (int round = 0; round < 4; round++) {
        while (exchange(w))
            ;
        for (int i = 0; i < 2; i++)
            for (int s = 0; s < CLBI_MAX_STREAMS; s++) {
                while (w->a[i].held[s] > 0)
                    release_one(w, &w->a[i], s);
                clbi_proto_close(&w->a[i].p, s);
            }
    }
    for (int i = 0; i < 2; i++) {
        struct peer *me = &w->a[i], *other = &w->a[!i];

        cr_assert(me->p.up);
        cr_assert_not(clbi_proto_busy(&me->p), "seed %llu: %s", (unsigned long long)w->seed,
                      me->who);
        cr_assert_eq(me->p.in_flight, 0);
        cr_assert_eq(me->acked + me->failed, me->writes);
        cr_assert_eq(me->writes, other->received);
        cr_assert_eq(me->credits, other->released);
        cr_assert_eq(me->credits, me->writes);
        cr_assert_eq(me->p.strays, 0);
        cr_assert_eq(me->p.in_window_total, 0);
        cr_assert_eq(me->p.tx_events, other->p.rx_events);
        for (int s = 0; s < CLBI_MAX_STREAMS; s++) {
            clbi_proto_detach(&me->p, s);
            cr_assert_not(me->p.stream[s].used, "seed %llu: %s keeps \"%s\"",
                          (unsigned long long)w->seed, me->who, me->p.stream[s].name);
        }
    }
}

static struct pair world;

Test(proto_pair, random_operations)
{
    uint64_t writes = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        start(&world, seed);
        run(&world, 20000);
        cr_assert_eq(world.a[0].p.forgotten_count, 0);
        cr_assert_eq(world.a[1].p.forgotten_count, 0);
        writes += world.a[0].writes + world.a[1].writes;
    }
    cr_assert_gt(writes, 60 * 1000, "only %llu writes", (unsigned long long)writes);
}

/* Time jumps, so that answers come too late: requests are forgotten, and nothing breaks. */
Test(proto_pair, random_operations_with_late_answers)
{
    uint64_t forgotten = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        start(&world, seed);
        world.jumps = true;
        run(&world, 20000);
        forgotten += world.a[0].p.forgotten_count + world.a[1].p.forgotten_count;
    }
    cr_assert_gt(forgotten, 1000, "only %llu forgotten", (unsigned long long)forgotten);
}
