/* SPDX-License-Identifier: Apache-2.0 */
/* Writes whose answer comes early, late or never, and ends in the middle of them. */
#include "races_kit.h"

#include <pthread.h>
#include <sys/socket.h>

#include "check.h"

static void answers_early(struct peer *p, void *arg)
{
    (void)arg;
    uint8_t hdr[CLBI_WIRE_HEADER];
    struct clbi_wire_header h;
    CHECK(peer_handshake(p));
    while (!p->stream[0].created) {
        peer_pump(p, 100);
    }
    /* One header by hand; its payload stays in the socket. */
    for (size_t got = 0; got < sizeof hdr;) {
        ssize_t k = recv(p->fd, hdr + got, sizeof hdr - got, 0);
        CHECK_GT(k, 0);
        got += (size_t)k;
    }
    clbi_wire_decode(&h, hdr);
    CHECK_EQ(h.type, CLBI_WRITE_REQ);
    peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    check_sleep_ms(50);
    for (uint32_t left = h.size; left > 0;) {
        static uint8_t block[65536];
        ssize_t k = recv(p->fd, block, left < sizeof block ? left : sizeof block, 0);
        CHECK_GT(k, 0);
        left -= (uint32_t)k;
    }
    peer_send_header(p, CLBI_READ_REL_REQ, 999, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* The answer comes while the payload is still going out: the write ends when it is out. */
void early_answer(void)
{
    const size_t n = 8 << 20;
    void *data = calloc(1, n);
    for (int async = 0; async < 2; async++) {
        struct peer p;
        int fd = peer_pair(&p, false);
        start(&p, answers_early, NULL);
        clb_link *link = adopt(fd, NULL);
        clb_stream *s = open_stream(
            link, clb_stream_params(.name = "a", .write_window = n, .write_async = async));
        struct clb_iovec iov = {data, n};
        CHECK_EQ(clb_stream_write(s, &iov, 1, -1), CLB_OK);
        CHECK_EQ(clb_stream_flush(s, CLB_FLUSH_RELEASED, 10 * SEC), CLB_OK);
        CHECK_EQ(stats_of(s).acked, 1);
        CHECK_EQ(stats_of(s).written, 1);
        clb_stream_close(&s);
        finish(&link, &p);
    }
    free(data);
}

static void refuses_create(struct peer *p, void *arg)
{
    (void)arg;
    struct clbi_wire_header h;
    CHECK(peer_handshake(p));
    peer_send_header(p, CLBI_CREATE_STREAM_REQ, 200, "a", CLBI_ID_NONE, 64, CLBI_FLAG_ACK);
    do {
        CHECK(peer_recv(p, &h, NULL, 5000));
    } while (h.type != CLBI_CREATE_STREAM_REQ);
    check_sleep_ms(100);
    peer_send_header(p, CLBI_CREATE_STREAM_RESP, h.id, "a", CLBI_ID_NONE, h.size, CLBI_FLAG_TOOBIG);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* The stream is announced, so opening succeeds at once; our half is refused while a write waits. */
void refused_while_writing(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, refuses_create, NULL);
    clb_link *link = adopt(fd, NULL);
    clb_stream_info info;
    CHECK_EQ(clb_link_next_stream(link, &info, sizeof info, 5 * SEC), CLB_OK);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a", .write_window = 64));
    struct clb_iovec iov = {"x", 1};
    CHECK_EQ(clb_stream_write(s, &iov, 1, -1), CLB_ERR_TOOBIG);
    clb_stream_close(&s);
    finish(&link, &p);
}

static void never_answers_writes(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    while (!p->stream[0].created) {
        peer_pump(p, 100);
    }
    p->deaf = true;
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static void *write_one(void *arg)
{
    struct clb_iovec iov = {"x", 1};
    int err = clb_stream_write(arg, &iov, 1, -1);
    CHECK_EQ(err, CLB_ERR_CLOSED);
    return NULL;
}

/* A write whose bytes are out does not keep clb_stream_close() until its answer comes. */
void close_while_unanswered(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, never_answers_writes, NULL);
    clb_link *link =
        adopt(fd, clb_link_params(.progress_timeout_ns = -1, .close_timeout_ns = 100 * MS));
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a", .write_window = 64));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, write_one, s), 0);
    while (stats_of(s).written < 1) {
        check_sleep_ms(2);
    }
    clb_stream_close(&s);
    pthread_join(t, NULL);
    finish(&link, &p);
}

static void holds_releases(struct peer *p, void *arg)
{
    (void)arg;
    struct clbi_wire_header h;
    CHECK(peer_handshake(p));
    while (!p->stream[0].created) {
        peer_pump(p, 100);
    }
    do {
        CHECK(peer_recv(p, &h, NULL, 5000));
    } while (h.type != CLBI_WRITE_REQ);
    peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    pump_until(p, 1);
    peer_send_header(p, CLBI_READ_REL_REQ, 999, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static void *stage_1_soon(void *arg)
{
    check_sleep_ms(100);
    atomic_store(&stage, 1);
    return arg;
}

/* Closed with a packet unreleased and opened again: a write waits until the half stands again. */
void reopened_writer_waits(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, holds_releases, NULL);
    clb_link *link = adopt(fd, NULL);
    struct clb_iovec iov = {"x", 1};
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a", .write_window = 64));
    CHECK_EQ(clb_stream_write(s, &iov, 1, 5 * SEC), CLB_OK);
    clb_stream_close(&s);
    s = open_stream(link, clb_stream_params(.name = "a", .write_window = 128));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, stage_1_soon, NULL), 0);
    CHECK_EQ(clb_stream_write(s, &iov, 1, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_stream_flush(s, CLB_FLUSH_RELEASED, 10 * SEC), CLB_OK);
    pthread_join(t, NULL);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* A poll never waits behind another write that waits for credit. */
static void *write_blocked(void *arg)
{
    static const char data[60];
    struct clb_iovec iov = {data, sizeof data};
    CHECK_EQ(clb_stream_write(arg, &iov, 1, -1), CLB_OK);
    CHECK_EQ(clb_stream_write(arg, &iov, 1, -1), CLB_ERR_CLOSED); /* no credit until the close */
    return NULL;
}

void polled_write(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, never_answers_writes, NULL);
    clb_link *link = adopt(fd, clb_link_params(.close_timeout_ns = 100 * MS));
    clb_stream *s =
        open_stream(link, clb_stream_params(.name = "a", .write_window = 64, .write_async = 1));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, write_blocked, s), 0);
    while (stats_of(s).written < 1) {
        check_sleep_ms(2);
    }
    check_sleep_ms(50);
    struct clb_iovec iov = {"x", 1};
    CHECK_EQ(clb_stream_write(s, &iov, 1, 0), CLB_ERR_AGAIN);
    clb_stream_close(&s);
    pthread_join(t, NULL);
    finish(&link, &p);
}

static void reads_late(struct peer *p, void *arg)
{
    uint8_t hdr[CLBI_WIRE_HEADER];
    static uint8_t block[65536];
    struct clbi_wire_header h;
    bool *whole = arg;
    CHECK(peer_handshake(p));
    while (!p->stream[0].created) {
        peer_pump(p, 100);
    }
    await(1);
    check_sleep_ms(100);
    for (size_t got = 0; got < sizeof hdr;) {
        ssize_t k = recv(p->fd, hdr + got, sizeof hdr - got, 0);
        CHECK_GT(k, 0);
        got += (size_t)k;
    }
    clbi_wire_decode(&h, hdr);
    CHECK_EQ(h.type, CLBI_WRITE_REQ);
    *whole = true;
    for (uint32_t left = h.size; left > 0;) {
        ssize_t k = recv(p->fd, block, left < sizeof block ? left : sizeof block, 0);
        if (k <= 0) {
            break;
        }
        for (ssize_t i = 0; i < k; i++) {
            *whole &= block[i] == 0x5A;
        }
        left -= (uint32_t)k;
    }
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static void *write_and_reuse(void *arg)
{
    const size_t n = 8 << 20;
    uint8_t *data = malloc(n);
    CHECK(data != NULL);
    memset(data, 0x5A, n);
    struct clb_iovec iov = {data, n};
    int err = clb_stream_write(arg, &iov, 1, -1);
    CHECK(err == CLB_ERR_CLOSED || err == CLB_OK);
    memset(data, 0xEE, n); /* it is ours again */
    check_sleep_ms(300);
    free(data);
    return NULL;
}

/* The link is shut down in the middle of a write: the call keeps the memory until the transport has
 * let go of it. */
void shutdown_amid_write(void)
{
    struct peer p;
    bool whole = false;
    int fd = peer_pair(&p, false);
    start(&p, reads_late, &whole);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a", .write_window = 8 << 20));
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, write_and_reuse, s), 0);
    clb_link_stats ls;
    do {
        check_sleep_ms(2);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.tx_events < 3); /* PING, CREATE, WRITE */
    check_sleep_ms(50);
    atomic_store(&stage, 1);
    CHECK_EQ(clb_link_shutdown(link, 10 * SEC), CLB_OK);
    pthread_join(t, NULL);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK(whole);
}
