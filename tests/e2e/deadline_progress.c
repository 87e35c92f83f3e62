/* SPDX-License-Identifier: Apache-2.0 */
/* What has begun must move on: headers, payloads, payloads that are thrown away. */
#include "deadline.h"

#include <sys/socket.h>
#include <unistd.h>

static const uint8_t zeros[100000];

static void first_bytes(struct peer *p, struct scene *sc)
{
    announced(p, 1 << 20);
    step(sc);
    check_sleep_ms(sc->arg /
                   1000); /* the limit must not count from when the header was asked for */
    peer_send_raw(p, zeros, (size_t)sc->arg % 1000);
    moved(sc);
    stay(sc);
}

/* Half a header, long after the one before or right behind it: the link is idle until its first
 * byte, and then has the limit, whatever that is. */
void header_stops(const void *arg)
{
    const struct header_case *c = arg;
    struct scene sc = {.where = c->where,
                       .fn = first_bytes,
                       .arg = c->pause * 1000 + c->bytes,
                       .driven = c->driven};
    sc.params.progress_timeout_ns = c->limit * MS;
    sc.params.keepalive_ns = sc.params.idle_timeout_ns = -1;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    scene_await(&sc, 1);
    scene_lost(&sc, CLB_ERR_LOST, c->limit);
    scene_end(&sc);
}

static void part_of_payload(struct peer *p, struct scene *sc)
{
    int i = announced(p, 1 << 20);
    peer_send_header(p, CLBI_WRITE_REQ, 50, NULL, p->stream[i].id, sizeof zeros, CLBI_FLAG_ACK);
    peer_send_raw(p, zeros, (size_t)sc->arg);
    step(sc);
    stay(sc);
}

/* The buffer goes home with the link; readers get no part of it. */
void payload_stops(const void *arg)
{
    static const int bytes[] = {0, 1, 50000, sizeof zeros - 1};
    static const int limits[] = {100, 400, 150, 300};
    for (int i = 0; i < 4; i++) {
        struct scene sc = {.where = *(const int *)arg, .fn = part_of_payload, .arg = bytes[i]};
        clb_packet *p = NULL;
        sc.params.progress_timeout_ns = limits[i] * MS;
        CHECK_EQ(scene_open(&sc), CLB_OK);
        CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
        CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_ERR_LOST);
        scene_lost(&sc, CLB_ERR_LOST, limits[i]);
        CHECK_EQ(sc.mem.given, 1);
        scene_end(&sc);
    }
}

static void part_of_drained(struct peer *p, struct scene *sc)
{
    announced(p, 1 << 20);
    peer_send_header(p, CLBI_WRITE_REQ, 50, NULL, 4711, sizeof zeros, CLBI_FLAG_ACK);
    peer_send_raw(p, zeros, 70000);
    step(sc);
    stay(sc);
}

void drain_stops(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = part_of_drained};
    sc.params.progress_timeout_ns = 150 * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    scene_lost(&sc, CLB_ERR_LOST, 150);
    CHECK_EQ(sc.mem.given, 0);
    scene_end(&sc);
}

/* One byte at a time, each well within the limit and all together far beyond it. */
static void byte_by_byte(struct peer *p, struct scene *sc)
{
    int i = announced(p, 1 << 20);
    uint8_t bytes[CLBI_WIRE_HEADER + 4] = {0};
    struct clbi_wire_header h = {
        .id = 50, .type = CLBI_WRITE_REQ, .stream_id = p->stream[i].id, .size = 4};
    clbi_wire_encode(bytes, &h);
    peer_send_raw(p, bytes, 80);
    for (int k = 80; k < 88; k++) {
        check_sleep_ms(100);
        peer_send_raw(p, bytes + k, 1);
    }
    step(sc);
    peer_pump(p, 5000);
    CHECK_EQ(p->last.type, CLBI_WRITE_RESP);
    peer_send_raw(p, bytes, 80);
    moved(sc);
    stay(sc);
}

void slow_but_moving(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = byte_by_byte};
    clb_packet *p = NULL;
    const int limit = CASES_SLACK_MS > 500 ? 900 : 500; /* for a machine that naps */
    sc.params.progress_timeout_ns = limit * MS;
    sc.params.keepalive_ns = -1;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), 4);
    clb_packet_free(&p);
    CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_ERR_LOST);
    scene_lost(&sc, CLB_ERR_LOST, limit);
    scene_end(&sc);
}

/* A large payload, for whose parts the system is not asked to wake us: what trickles in counts. */
#define LARGE 600000u

static void drop_by_drop(struct peer *p, struct scene *sc)
{
    int i = announced(p, 1 << 20);
    p->by_hand = true;
    peer_send_header(p, CLBI_WRITE_REQ, 50, NULL, p->stream[i].id, LARGE, CLBI_FLAG_ACK);
    size_t sent = 0;
    for (int k = 0; k < 10; k++, sent += 1000) {
        check_sleep_ms(100);
        peer_send_raw(p, zeros, 1000);
    }
    for (; sent < LARGE; sent += 1000) {
        peer_send_raw(p, zeros, 1000);
    }
    step(sc);
    peer_pump(p, 5000);
    CHECK_EQ(p->last.type, CLBI_WRITE_RESP);
    stay_polite(p, sc);
}

void slow_but_moving_large(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = drop_by_drop};
    clb_packet *p = NULL;
    sc.params.progress_timeout_ns = (CASES_SLACK_MS > 500 ? 900 : 500) * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    CHECK_EQ(clb_stream_read(sc.s, &p, 20 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), LARGE);
    clb_packet_free(&p);
    scene_end(&sc);
}

#define PACE (2u << 20) /* what the peer takes at a time: more than the sockets hold of it */

/* A payload that stands still while our writes go out one after the other. */
static void stalls_and_takes(struct peer *p, struct scene *sc)
{
    static uint8_t sink[65536];
    int i = announced(p, 1 << 20), room = 128 << 10;
    setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    peer_send_header(p, CLBI_WRITE_REQ, 50, NULL, p->stream[i].id, sizeof zeros, CLBI_FLAG_ACK);
    peer_send_raw(p, zeros, 1000);
    step(sc);
    for (int taken = 0; !atomic_load(&sc->over); taken++) {
        if (taken == 1) {
            peer_send_raw(p, zeros, 1000); /* its last move */
            moved(sc);
        }
        for (size_t left = PACE; left > 0 && !atomic_load(&sc->over);) {
            ssize_t n = recv(p->fd, sink, left < sizeof sink ? left : sizeof sink, MSG_DONTWAIT);
            if (n == 0) {
                stay(sc);
                return;
            }
            if (n < 0) {
                check_sleep_ms(1);
            }
            left -= n > 0 ? (size_t)n : 0;
        }
        check_sleep_ms(60);
    }
}

static int write_pace(struct call *c)
{
    static const uint8_t data[PACE];
    struct clb_iovec iov = {data, sizeof data};
    return clb_stream_write(c->s, &iov, 1, -1);
}

void stall_behind_writes(const void *arg)
{
    enum { WRITERS = 15, LIMIT = 3600 };
    struct scene sc = {.where = *(const int *)arg, .fn = stalls_and_takes};
    struct call c[WRITERS];
    sc.params.progress_timeout_ns = LIMIT * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 64u << 20, 0), CLB_OK);
    scene_await(&sc, 1);
    for (int i = 0; i < WRITERS; i++) {
        call_begin(&c[i], &sc, write_pace); /* all at once: later on no call disturbs the loop */
    }
    scene_lost(&sc, CLB_ERR_LOST, LIMIT);
    for (int i = 0; i < WRITERS; i++) {
        int err = call_end(&c[i]);
        CHECK(err == CLB_ERR_LOST || err == CLB_ERR_TIMEOUT); /* taken in time, not answered */
    }
    scene_end(&sc);
}
