/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of ending, and of links on which nothing happens. */
#include "deadline.h"

#include <sys/socket.h>
#include <unistd.h>

#define LIMIT 200

static void opened_and_silent(struct peer *p, struct scene *sc)
{
    announced(p, 1 << 20);
    step(sc);
    stay(sc);
}

static void open_scene(struct scene *sc, uint32_t window)
{
    sc->params.close_timeout_ns = LIMIT * MS;
    sc->params.keepalive_ns = sc->params.idle_timeout_ns = -1;
    CHECK_EQ(scene_open(sc), CLB_OK);
    CHECK_EQ(scene_stream(sc, window, 0), CLB_OK);
    scene_await(sc, 1);
}

static int write_much(struct call *c)
{
    static const uint8_t data[MUCH];
    struct clb_iovec iov = {data, sizeof data};
    return clb_stream_write(c->s, &iov, 1, -1);
}

static void close_in_time(struct scene *sc, int limit_ms)
{
    const int64_t t0 = check_ms();
    clb_link_close(&sc->link);
    in_time(t0, limit_ms);
}

/* ---- close ------------------------------------------------------------------------------------- */

void close_not_answered(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    sc.driven = sc.where == HOST_UNIX;
    open_scene(&sc, 0);
    close_in_time(&sc, LIMIT);
    scene_end(&sc);
}

/* The RESET cannot even go out. */
void close_not_read(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    struct call c;
    open_scene(&sc, 2 * MUCH);
    call_begin(&c, &sc, write_much);
    check_sleep_ms(50);
    close_in_time(&sc, LIMIT);
    CHECK_EQ(call_end(&c), CLB_ERR_CLOSED);
    scene_end(&sc);
}

static void reset_without_reading(struct peer *p, struct scene *sc)
{
    announced(p, 1 << 20);
    step(sc);
    scene_await(sc, 2);
    peer_send_header(p, CLBI_RESET_REQ, 70, NULL, 0, 0, CLBI_FLAG_ACK);
    stay(sc);
}

/* The peer has ended the link and does not take our answer: closing keeps its own limit. */
void close_after_reset(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = reset_without_reading};
    struct call c;
    open_scene(&sc, 2 * MUCH);
    call_begin(&c, &sc, write_much);
    check_sleep_ms(50);
    step(&sc);
    for (int i = 0; i < 5000 && clb_link_get_state(sc.link, NULL) == CLB_LINK_UP; i++) {
        check_sleep_ms(1);
    }
    CHECK_GE(clb_link_get_state(sc.link, NULL), CLB_LINK_CLOSING);
    close_in_time(&sc, LIMIT);
    CHECK_EQ(call_end(&c), CLB_ERR_CLOSED);
    scene_end(&sc);
}

static int endless_shutdown(struct call *c)
{
    return clb_link_shutdown(c->link, -1);
}

void close_after_endless_shutdown(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    struct call c[2];
    sc.params.progress_timeout_ns = -1;
    open_scene(&sc, 2 * MUCH);
    call_begin(&c[0], &sc, write_much);
    check_sleep_ms(50);
    call_begin(&c[1], &sc, endless_shutdown);
    check_sleep_ms(50);
    CHECK_EQ(atomic_load(&c[1].result), 1);
    close_in_time(&sc, LIMIT);
    CHECK_EQ(call_end(&c[0]), CLB_ERR_CLOSED);
    CHECK_EQ(call_end(&c[1]), CLB_OK);
    scene_end(&sc);
}

static void reads_after_the_end(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    announced(p, 1 << 20);
    step(sc);
    scene_await(sc, 2);
    for (int i = 0; i < 3; i++) {
        CHECK(peer_recv(p, &h, NULL, 5000));
        CHECK_EQ(h.type, CLBI_WRITE_REQ);
        CHECK_EQ(h.size, 10000);
    }
    CHECK(peer_recv(p, &h, NULL, 5000));
    CHECK_EQ(h.type, CLBI_RESET_REQ);
    CHECK_EQ(recv(p->fd, &h, 1, 0), 0); /* an orderly end, no reset of the connection */
    step(sc);
}

/* An orderly end does not throw away what is on its way, however late the peer takes it. */
void close_keeps_unread_packets(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = reads_after_the_end};
    static const uint8_t data[10000];
    struct clb_iovec iov = {data, sizeof data};
    sc.params.close_timeout_ns = 100 * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    clb_stream_params sp = {
        .struct_size = sizeof sp, .name = "a", .write_window = 1 << 20, .write_async = 1};
    CHECK_EQ(clb_stream_open(&sc.s, sc.link, &sp), CLB_OK);
    scene_await(&sc, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(clb_stream_write(sc.s, &iov, 1, 5 * SEC), CLB_OK);
    }
    close_in_time(&sc, 100);
    step(&sc);
    scene_await(&sc, 3);
    scene_end(&sc);
}

void shutdown_not_answered(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    open_scene(&sc, 0);
    int64_t t0 = check_ms();
    CHECK_EQ(clb_link_shutdown(sc.link, 150 * MS), CLB_OK);
    in_time(t0, 150);
    CHECK_EQ(clb_link_get_state(sc.link, NULL), CLB_LINK_DOWN);
    scene_end(&sc);

    sc = (struct scene){.where = *(const int *)arg, .fn = opened_and_silent};
    open_scene(&sc, 0);
    t0 = check_ms();
    CHECK_EQ(clb_link_shutdown(sc.link, 0), CLB_ERR_TIMEOUT);
    in_time(t0, 0);
    moved(&sc);
    scene_lost(&sc, CLB_OK, LIMIT); /* it ends by itself */
    scene_end(&sc);
}

static void up_and_mute(struct peer *p, void *arg)
{
    struct clbi_wire_header h;
    CHECK(peer_handshake(p));
    atomic_fetch_add((atomic_int *)arg, 1);
    while (peer_recv(p, &h, NULL, 10000)) {
    }
    CHECK(p->eof);
    peer_close(p);
}

/* Links that nobody accepted end together, not one after the other. */
void listener_close_many(const void *arg)
{
    enum { N = 12 };
    static struct peer p[N];
    atomic_int up = 0;
    clb_listener *l = NULL;
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = N};
    clb_loop *loop = NULL;
    if (*(const int *)arg) {
        CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
    }
    lp.link.loop = loop;
    lp.link.close_timeout_ns = LIMIT * MS;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    for (int i = 0; i < N; i++) {
        peer_connect(&p[i], (uint16_t)atoi(strrchr(clb_listener_uri(l), ':') + 1));
        peer_start(&p[i], up_and_mute, &up);
    }
    for (int i = 0; i < 5000 && atomic_load(&up) < N; i++) {
        check_sleep_ms(1);
    }
    CHECK_EQ(atomic_load(&up), N);
    const int64_t t0 = check_ms();
    clb_listener_close(&l);
    in_time(t0, LIMIT);
    for (int i = 0; i < N; i++) {
        peer_join(&p[i]);
    }
    clb_loop_destroy(&loop);
}

/* ---- idle -------------------------------------------------------------------------------------- */

void idle(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    clb_packet *p = NULL;
    sc.driven = sc.where == HOST_UNIX;
    sc.params.keepalive_ns = 50 * MS;
    sc.params.idle_timeout_ns = 250 * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    scene_await(&sc, 1);
    const int64_t t0 = check_ms();
    CHECK_EQ(clb_stream_read(sc.s, &p, -1), CLB_ERR_LOST);
    in_time(t0, 250);
    scene_lost(&sc, CLB_ERR_LOST, 250);
    scene_end(&sc);
}

static void counts_pings(struct peer *p, struct scene *sc)
{
    announced(p, 1 << 20);
    p->pings = 0;
    step(sc);
    stay_polite(p, sc);
}

/* Pings alone keep a link alive far beyond its idle limit, and there are no more than needed. */
void keepalive_keeps(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = counts_pings};
    const int idle_ms = 100 + CASES_SLACK_MS, total = 2 * idle_ms;
    clb_packet *p = NULL;
    sc.params.keepalive_ns = 50 * MS;
    sc.params.idle_timeout_ns = idle_ms * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    scene_await(&sc, 1);
    const int64_t t0 = check_ms();
    CHECK_EQ(clb_stream_read(sc.s, &p, total * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(clb_link_get_state(sc.link, NULL), CLB_LINK_UP);
    scene_end(&sc);
    CHECK_GE(sc.peer.pings, 2);
    CHECK_LE(sc.peer.pings, (check_ms() - t0) / 50 + 1);
}

static void writes_unread(struct peer *p, struct scene *sc)
{
    int i = peer_create(p, "a", 1 << 20);
    p->pings = 0;
    CHECK(peer_write_fill(p, i, 5, 1000, 5000));
    while (p->pings == 0 && !p->eof) {
        peer_pump(p, 5);
    }
    step(sc);
    stay_polite(p, sc);
}

/* Nobody has opened a stream, so nothing is read: the peer hears of us all the same, and its silence
 * is not held against it. */
void keepalive_while_paused(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = writes_unread};
    clb_packet *p = NULL;
    sc.params.first_open_ns = 30 * SEC;
    sc.params.keepalive_ns = 50 * MS;
    sc.params.idle_timeout_ns = 200 * MS;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    scene_await(&sc, 1);
    in_time(atomic_load(&sc.moved), 0);
    check_sleep_ms(600);
    CHECK_EQ(clb_link_get_state(sc.link, NULL), CLB_LINK_UP);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    CHECK_EQ(clb_stream_read(sc.s, &p, 5 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), 1000);
    clb_packet_free(&p);
    scene_end(&sc);
}

/* The same between two of ours, for longer than the other end would wait. */
void keepalive_of_two_of_ours(const void *arg)
{
    clb_listener *l = NULL;
    clb_link *host = NULL, *dev = NULL;
    clb_stream *out = NULL, *in = NULL;
    clb_packet *p = NULL;
    struct clb_iovec iov = {"hello", 5};
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
    (void)arg;
    lp.link.keepalive_ns = -1;
    lp.link.idle_timeout_ns = 3 * SEC;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    CHECK_EQ(clb_link_open(&host,
                           clb_link_params(.uri = clb_listener_uri(l), .first_open_ns = 60 * SEC,
                                           .keepalive_ns = 500 * MS, .idle_timeout_ns = 300 * MS)),
             CLB_OK);
    CHECK_EQ(clb_listener_accept(l, &dev, 5 * SEC), CLB_OK);
    CHECK_EQ(clb_stream_open(
                 &out, dev, clb_stream_params(.name = "v", .write_window = 1000, .write_async = 1)),
             CLB_OK);
    CHECK_EQ(clb_stream_write(out, &iov, 1, 5 * SEC), CLB_OK);
    check_sleep_ms(3600);
    CHECK_EQ(clb_link_get_state(host, NULL), CLB_LINK_UP);
    CHECK_EQ(clb_link_get_state(dev, NULL), CLB_LINK_UP);
    CHECK_EQ(clb_stream_open(&in, host, clb_stream_params(.name = "v")), CLB_OK);
    CHECK_EQ(clb_stream_read(in, &p, 5 * SEC), CLB_OK);
    clb_packet_free(&p);
    clb_stream_close(&in);
    clb_stream_close(&out);
    clb_link_close(&host);
    clb_link_close(&dev);
    clb_listener_close(&l);
}
