/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends and callbacks at awkward moments: handles closed from callbacks and from other threads while
 * calls are inside, streams that are opened and closed around a payload in flight, answers that
 * come early or never, loops that must neither spin nor starve a caller.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "check.h"
#include "link_priv.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)

static clb_link *adopt(int fd, const clb_link_params *params)
{
    clb_link *link = NULL;
    struct clb_status st = {0};
    clb_link_params p = params ? *params : (clb_link_params){.struct_size = sizeof p};
    p.status = &st;
    int err = clb_link_adopt(&link, fd, CLB_ROLE_HOST, &p);
    if (err < 0) {
        fprintf(stderr, "%s\n", st.text);
    }
    CHECK_EQ(err, CLB_OK);
    return link;
}

static clb_stream *open_stream(clb_link *link, const clb_stream_params *params)
{
    clb_stream *s = NULL;
    CHECK_EQ(clb_stream_open(&s, link, params), CLB_OK);
    return s;
}

static clb_stream_stats stats_of(clb_stream *s)
{
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    return st;
}

static int64_t cpu_ms(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000 +
           (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1000;
}

static void wait_int(atomic_int *n, int at_least)
{
    for (int i = 0; i < 2000 && atomic_load(n) < at_least; i++) {
        check_sleep_ms(5);
    }
    CHECK_GE(atomic_load(n), at_least);
}

static void free_next(clb_stream *s)
{
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
    clb_packet_free(&p);
}

/* A call of another thread is inside: to close under it before it has begun would be our mistake. */
static void until_inside(clb_link *link, const uint32_t *callers)
{
    for (bool inside = false; !inside;) {
        pthread_mutex_lock(&link->lock);
        inside = *callers > 0;
        pthread_mutex_unlock(&link->lock);
        check_sleep_ms(1);
    }
}

/* What the script of a peer may do next. */
static atomic_int stage;

static void await(int n)
{
    for (int i = 0; i < 3000 && atomic_load(&stage) < n; i++) {
        check_sleep_ms(2);
    }
    CHECK_GE(atomic_load(&stage), n);
}

/* As await, but goes on answering. */
static void pump_until(struct peer *p, int n)
{
    for (int i = 0; i < 3000 && atomic_load(&stage) < n; i++) {
        peer_pump(p, 2);
    }
    CHECK_GE(atomic_load(&stage), n);
}

static void start(struct peer *p, void (*fn)(struct peer *p, void *arg), void *arg)
{
    atomic_store(&stage, 0);
    peer_start(p, fn, arg);
}

static void finish(clb_link **link, struct peer *p)
{
    atomic_store(&stage, 1000);
    clb_link_close(link);
    peer_join(p);
}

static void well_behaved(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* Announces "a" with a window of 4 packets of 1000 bytes and writes `arg` of them. */
static void writes_a(struct peer *p, void *arg)
{
    const int n = *(int *)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4000);
    for (int i = 0; i < n; i++) {
        if (!peer_write_fill(p, a, i, 1000, 30000)) {
            break;
        }
    }
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* ---- timers ----------------------------------------------------------------------------------- */

/* No bytes of a header are in: the progress limit has nothing to say, and nobody spins. */
static void idle_costs_nothing(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, well_behaved, NULL);
    clb_link *link = adopt(fd, clb_link_params(.progress_timeout_ns = 50 * MS, .keepalive_ns = -1,
                                               .idle_timeout_ns = -1));
    int64_t before = cpu_ms();
    check_sleep_ms(700);
    CHECK_LE(cpu_ms() - before, 100);
    CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_UP);
    finish(&link, &p);
}

static void silent_after_up(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    await(1);
    peer_close(p);
}

/* close_timeout "never" and a peer that is silent: the RESET has a limit of its own. */
static void close_needs_no_answer(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, silent_after_up, NULL);
    clb_link *link = adopt(fd, clb_link_params(.close_timeout_ns = -1));
    clb_link_close(&link);
    atomic_store(&stage, 1);
    peer_join(&p);
}

/* ---- writes ----------------------------------------------------------------------------------- */

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
static void early_answer(void)
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
static void refused_while_writing(void)
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
static void close_while_unanswered(void)
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
static void reopened_writer_waits(void)
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

static void polled_write(void)
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
static void shutdown_amid_write(void)
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

/* ---- a payload in flight ---------------------------------------------------------------------- */

static void half_payload(struct peer *p, void *arg)
{
    uint8_t data[1000] = {7};
    (void)arg;
    p->by_hand = true;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4000);
    peer_send_header(p, CLBI_WRITE_REQ, 500, NULL, p->stream[a].id, sizeof data, CLBI_FLAG_ACK);
    peer_send_raw(p, data, 300);
    await(1);
    peer_send_raw(p, data + 300, sizeof data - 300);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* Opened while the first payload runs into host memory: it is delivered, and nothing was lost. */
static void open_during_payload(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, half_payload, NULL);
    clb_link *link = adopt(fd, clb_link_params(.first_open_ns = -1));
    clb_link_stats ls;
    do {
        check_sleep_ms(2);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.rx_events < 3); /* PING answer, CREATE, WRITE */
    check_sleep_ms(20);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    atomic_store(&stage, 1);
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 5 * SEC), CLB_OK);
    clb_packet_info info;
    clb_packet_get_info(pk, &info, sizeof info);
    CHECK_EQ(info.seq, 0);
    CHECK_EQ(info.dropped_before, 0);
    CHECK_EQ(info.spilled, 1);
    CHECK_EQ(*(uint8_t *)clb_packet_data(pk), 7);
    clb_packet_free(&pk);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* Closed while a payload runs into the allocator's memory: it is completed, freed and credited, and
 * a stream that was opened meanwhile neither gets it nor counts it as lost. */
static void reopen_during_payload(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, half_payload, NULL);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    clb_link_stats ls;
    do {
        check_sleep_ms(2);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.rx_events < 3);
    check_sleep_ms(20);
    clb_stream_close(&s);
    s = open_stream(link, clb_stream_params(.name = "a"));
    atomic_store(&stage, 1);
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 300 * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(stats_of(s).queued, 0);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.rel_count, 1);
}

/* The default pool, an alignment larger than that of spill blocks, packets that came before. */
static void aligned_spill(void)
{
    int n = 12;
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, writes_a, &n);
    clb_link *link = adopt(fd, clb_link_params(.first_open_ns = -1));
    check_sleep_ms(100);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a", .align = 4096));
    for (int i = 0; i < n; i++) {
        clb_packet *pk = NULL;
        CHECK_EQ(clb_stream_read(s, &pk, 5 * SEC), CLB_OK);
        CHECK_EQ((uintptr_t)clb_packet_data(pk) % 4096, 0);
        CHECK_EQ(*(uint8_t *)clb_packet_data(pk), i);
        clb_packet_free(&pk);
    }
    CHECK_GE(stats_of(s).spilled, 1);
    clb_stream_close(&s);
    finish(&link, &p);
}

static void creates_again(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4000);
    CHECK(peer_write_fill(p, a, 1, 1000, 5000));
    p->mute_releases = true; /* the release of "a" stays unanswered */
    pump_until(p, 1);        /* until the application has closed "a" */
    for (int i = 0; i < 100; i++) {
        peer_pump(p, 1);
    }
    peer_send_header(p, CLBI_CLOSE_STREAM_REQ, 600, NULL, p->stream[a].id, 0, CLBI_FLAG_ACK);
    for (int i = 0; i < 50; i++) {
        peer_pump(p, 1);
    }
    /* Late: only now nothing names the entry of "a" any more. */
    peer_send_header(p, CLBI_READ_REL_RESP, p->last_release_id, NULL, 0, 0, CLBI_FLAG_ACK);
    p->mute_releases = false;
    p->stream[a].id = CLBI_ID_NONE; /* the host may give its number to another name now */
    int b = peer_create(p, "b", 4000);
    CHECK(peer_write_fill(p, b, 2, 1000, 5000));
    CHECK(peer_write_fill(p, b, 3, 1000, 5000));
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* What was remembered of a stream must not fall upon the one that takes its entry. */
static void entry_taken_over(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, creates_again, NULL);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    free_next(s);
    clb_stream_close(&s);
    atomic_store(&stage, 1);
    clb_stream_info info;
    do {
        CHECK_EQ(clb_link_next_stream(link, &info, sizeof info, 5 * SEC), CLB_OK);
    } while (strcmp(info.name, "b") != 0);
    check_sleep_ms(200);
    s = open_stream(link, clb_stream_params(.name = "b"));
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 2 * SEC), CLB_OK);
    clb_packet_info pi;
    clb_packet_get_info(pk, &pi, sizeof pi);
    CHECK_EQ(*(uint8_t *)clb_packet_data(pk), 2);
    CHECK_EQ(pi.seq, 0);
    CHECK_EQ(pi.dropped_before, 0);
    clb_packet_free(&pk);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* ---- callbacks -------------------------------------------------------------------------------- */

struct cb {
    clb_stream *victim; /* closed by the callback */
    clb_link *link;     /* closed by the callback */
    clb_listener *listener;
    atomic_int armed, calls, done; /* armed: the three above are set */
    enum clb_link_state at;
    int slow_ms;
};

static void close_things(struct cb *cb)
{
    wait_int(&cb->armed, 1);
    clb_stream_close(&cb->victim);
    clb_link_close(&cb->link);
    clb_listener_close(&cb->listener);
    check_sleep_ms(cb->slow_ms);
    atomic_fetch_add(&cb->done, 1);
}

static void ready_closes(void *priv, clb_stream *s)
{
    struct cb *cb = priv;
    (void)s;
    if (atomic_fetch_add(&cb->calls, 1) == 0) {
        close_things(cb);
    }
}

static void state_closes(void *priv, clb_link *link, enum clb_link_state state)
{
    struct cb *cb = priv;
    (void)link;
    if (state == cb->at) {
        atomic_fetch_add(&cb->calls, 1);
        close_things(cb);
    }
}

static void dies(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    pump_until(p, 1);
    peer_close(p);
}

/* The last ready_cb tells the end; it may close the stream, with the link still open or going too. */
static void close_in_last_ready(bool link_too)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, dies, NULL);
    struct cb cb = {0};
    clb_link *link = adopt(fd, NULL);
    cb.victim =
        open_stream(link, clb_stream_params(.name = "a", .ready_cb = ready_closes, .priv = &cb));
    if (link_too) {
        cb.link = link;
    }
    atomic_store(&cb.armed, 1);
    atomic_store(&stage, 1);
    wait_int(&cb.done, 1);
    if (!link_too) {
        clb_link_close(&link);
    }
    peer_join(&p);
}

/* Closing the link in state_cb, at each state that it tells. */
static void close_in_state(enum clb_link_state at)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, dies, NULL);
    struct cb cb = {.at = at};
    clb_link *link = adopt(fd, clb_link_params(.state_cb = state_closes, .priv = &cb));
    cb.link = link;
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    atomic_store(&cb.armed, 1);
    atomic_store(&stage, 1);
    wait_int(&cb.done, 1);
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 5 * SEC), CLB_ERR_LOST);
    clb_stream_close(&s);
    peer_join(&p);
}

/* When clb_link_close() has returned no callback of that link runs, also on a shared loop. */
static void no_callback_after_close(void)
{
    clb_loop *loop = NULL;
    CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
    for (int i = 0; i < 10; i++) {
        struct peer p;
        int fd = peer_pair(&p, false);
        start(&p, well_behaved, NULL);
        struct cb cb = {.armed = 1, .at = CLB_LINK_DOWN, .slow_ms = 20};
        clb_link *link =
            adopt(fd, clb_link_params(.loop = loop, .state_cb = state_closes, .priv = &cb));
        clb_link_close(&link);
        CHECK_EQ(atomic_load(&cb.done), 1);
        peer_join(&p);
    }
    clb_loop_destroy(&loop);
}

static void *read_until_closed(void *arg)
{
    clb_packet *pk = NULL;
    int err;
    while ((err = clb_stream_read(arg, &pk, -1)) == CLB_OK) {
        clb_packet_free(&pk);
    }
    CHECK_EQ(err, CLB_ERR_CLOSED);
    return NULL;
}

static void writes_b_at_1(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int b = peer_create(p, "b", 4000);
    pump_until(p, 1);
    CHECK(peer_write_fill(p, b, 1, 100, 5000));
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* ready_cb of one stream closes another one, in which a reader waits: it is deferred, not waited for,
 * and the reader leaves in peace. */
static void close_in_ready_of_another(void)
{
    for (int i = 0; i < 10; i++) {
        struct peer p;
        int fd = peer_pair(&p, false);
        start(&p, writes_b_at_1, NULL);
        struct cb cb = {0};
        clb_link *link = adopt(fd, NULL);
        clb_stream *a = open_stream(link, clb_stream_params(.name = "a"));
        clb_stream *b = open_stream(
            link, clb_stream_params(.name = "b", .ready_cb = ready_closes, .priv = &cb));
        cb.victim = a;
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, read_until_closed, a), 0);
        until_inside(link, &a->callers);
        atomic_store(&cb.armed, 1);
        atomic_store(&stage, 1);
        wait_int(&cb.done, 1);
        pthread_join(t, NULL);
        clb_stream_close(&b);
        finish(&link, &p);
    }
}

static void *next_until_closed(void *arg)
{
    clb_stream_info info;
    int err;
    while ((err = clb_link_next_stream(arg, &info, sizeof info, -1)) == CLB_OK) {
    }
    CHECK_EQ(err, CLB_ERR_CLOSED);
    return NULL;
}

/* ready_cb closes the link, in which a call waits. */
static void close_link_under_a_call(void)
{
    for (int i = 0; i < 10; i++) {
        struct peer p;
        int fd = peer_pair(&p, false);
        start(&p, writes_b_at_1, NULL);
        struct cb cb = {0};
        clb_link *link = adopt(fd, NULL);
        clb_stream *b = open_stream(
            link, clb_stream_params(.name = "b", .ready_cb = ready_closes, .priv = &cb));
        cb.link = link;
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, next_until_closed, link), 0);
        until_inside(link, &link->callers);
        atomic_store(&cb.armed, 1);
        atomic_store(&stage, 1);
        pthread_join(t, NULL);
        wait_int(&cb.done, 1);
        peer_join(&p);
        clb_stream_close(&b);
    }
}

/* A callback on the listener's own loop closes the listener. */
static void close_listener_in_callback(void)
{
    clb_loop *loop = NULL;
    clb_listener *l = NULL;
    struct cb cb = {.at = CLB_LINK_DOWN};
    CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
    lp.link.loop = loop;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    clb_link *link = NULL;
    CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = clb_listener_uri(l), .loop = loop,
                                                  .state_cb = state_closes, .priv = &cb)),
             CLB_OK);
    cb.listener = l;
    atomic_store(&cb.armed, 1);
    clb_loop_destroy(&loop);
    clb_link_close(&link); /* the link that nobody accepted ends, too */
    wait_int(&cb.done, 1);
}

/* ready_cb is called for what waited before the stream was opened, and for the end of the peer's
 * half: an application that only reads in it misses nothing. */
struct reader {
    atomic_int packets, ended;
};

static void ready_reads(void *priv, clb_stream *s)
{
    struct reader *r = priv;
    clb_packet *pk = NULL;
    int err;
    while ((err = clb_stream_read(s, &pk, 0)) == CLB_OK) {
        atomic_fetch_add(&r->packets, 1);
        clb_packet_free(&pk);
    }
    if (err == CLB_ERR_CLOSED) {
        atomic_fetch_add(&r->ended, 1);
    }
}

static void fills_then_closes(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 2000);
    for (int i = 0; i < 10; i++) {
        CHECK(peer_write_fill(p, a, i, 1000, 10000));
    }
    while (p->stream[a].released < 10) {
        peer_pump(p, 10);
    }
    peer_send_header(p, CLBI_CLOSE_STREAM_REQ, 700, NULL, p->stream[a].id, 0, CLBI_FLAG_ACK);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static void ready_tells_all(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, fills_then_closes, NULL);
    clb_link *link = adopt(fd, clb_link_params(.first_open_ns = -1));
    struct reader r = {0};
    check_sleep_ms(200); /* the window is used up: no packet comes before one is read */
    clb_stream *s =
        open_stream(link, clb_stream_params(.name = "a", .ready_cb = ready_reads, .priv = &r));
    wait_int(&r.packets, 10);
    wait_int(&r.ended, 1);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* ---- allocators that do not wait --------------------------------------------------------------- */

static atomic_int refusals;

static int alloc_refuses(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    (void)opaque;
    (void)req;
    (void)out;
    atomic_fetch_add(&refusals, 1);
    return CLB_ERR_NOBUFS;
}

static void free_nothing(void *opaque, struct clb_buf *buf)
{
    (void)opaque;
    (void)buf;
}

/* NOBUFS at once although it might wait: the reader asks again at times, it does not spin. */
static void impatient_allocator(void)
{
    int n = 1;
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, writes_a, &n);
    clb_link *link = adopt(fd, NULL);
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
    sp.allocator = (struct clb_allocator){.alloc = alloc_refuses, .free = free_nothing};
    clb_stream *s = open_stream(link, &sp);
    atomic_store(&refusals, 0);
    while (stats_of(s).packets < 1) {
        check_sleep_ms(2);
    }
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 300 * MS), CLB_ERR_NOBUFS);
    CHECK_LE(atomic_load(&refusals), 400);
    CHECK_EQ(stats_of(s).queued, 1);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* ---- caller-driven loops ---------------------------------------------------------------------- */

/* A loop that always has something to do: the deadline of a call on another link holds all the same. */
static void busy_neighbour(void)
{
    int n = 1000000;
    struct peer p, q;
    clb_loop *loop = NULL;
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    int fd = peer_pair(&p, false), quiet = peer_pair(&q, false);
    start(&p, writes_a, &n);
    peer_start(&q, well_behaved, NULL);
    clb_link *busy = adopt(fd, clb_link_params(.loop = loop)),
             *idle = adopt(quiet, clb_link_params(.loop = loop));
    clb_stream *drop = open_stream(
        busy, clb_stream_params(.name = "a", .on_full = CLB_FULL_DROP_OLDEST, .queue_len = 1));
    clb_stream *s = open_stream(idle, clb_stream_params(.name = "x"));
    clb_packet *pk = NULL;
    for (int i = 0; i < 20; i++) {
        int64_t t0 = check_ms();
        CHECK_EQ(clb_stream_read(s, &pk, 0), CLB_ERR_AGAIN);
        CHECK_EQ(clb_stream_read(s, &pk, 5 * MS), CLB_ERR_TIMEOUT);
        CHECK_LE(check_ms() - t0, 2000);
    }
    clb_stream_close(&drop);
    clb_stream_close(&s);
    clb_link_close(&busy);
    clb_link_close(&idle);
    peer_join(&p);
    peer_join(&q);
    clb_loop_destroy(&loop);
}

/* Another thread closes stream and link while one dispatches inside a read. */
static void close_from_another_thread(void)
{
    for (int i = 0; i < 20; i++) {
        struct peer p;
        clb_loop *loop = NULL;
        CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
        int fd = peer_pair(&p, false);
        start(&p, well_behaved, NULL);
        clb_link *link = adopt(fd, clb_link_params(.loop = loop, .close_timeout_ns = 200 * MS));
        clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, read_until_closed, s), 0);
        until_inside(link, &s->callers);
        check_sleep_ms(i);
        if (i % 2) {
            clb_link_close(&link);
            pthread_join(t, NULL);
            clb_stream_close(&s);
        } else {
            clb_stream_close(&s);
            pthread_join(t, NULL);
            clb_link_close(&link);
        }
        /* What was deferred is done by whoever drives the loop next. */
        while (clb_loop_dispatch(loop, 20 * MS) == CLB_OK) {
        }
        clb_loop_destroy(&loop);
        peer_join(&p);
    }
}

static void *accept_until_closed(void *arg)
{
    clb_link *link = NULL;
    atomic_store(&stage, 1);
    CHECK_EQ(clb_listener_accept(arg, &link, -1), CLB_ERR_CLOSED);
    return NULL;
}

/* A listener is closed while a thread waits in accept, with its own thread or dispatching. */
static void close_under_accept(int caller_driven)
{
    for (int i = 0; i < 8; i++) {
        clb_loop *loop = NULL;
        clb_listener *l = NULL;
        CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = caller_driven)), CLB_OK);
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link.loop = loop;
        CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
        pthread_t t;
        atomic_store(&stage, 0);
        CHECK_EQ(pthread_create(&t, NULL, accept_until_closed, l), 0);
        await(1);
        check_sleep_ms(100 + i); /* it is inside by now */
        clb_listener_close(&l);
        pthread_join(t, NULL);
        while (caller_driven && clb_loop_dispatch(loop, 0) == CLB_OK) {
        }
        clb_loop_destroy(&loop);
    }
}

int main(int argc, char **argv)
{
    check_watchdog(100);
    const int fds = check_fds(), threads = check_threads();
#define RUN(f)                                                                                     \
    do {                                                                                           \
        if (argc < 2 || strstr(#f, argv[1])) {                                                     \
            fprintf(stderr, "%s\n", #f);                                                           \
            f;                                                                                     \
            check_back_to(fds, threads);                                                           \
        }                                                                                          \
    } while (0)
    RUN(idle_costs_nothing());
    RUN(close_needs_no_answer());
    RUN(early_answer());
    RUN(refused_while_writing());
    RUN(close_while_unanswered());
    RUN(reopened_writer_waits());
    RUN(polled_write());
    RUN(shutdown_amid_write());
    RUN(open_during_payload());
    RUN(reopen_during_payload());
    RUN(aligned_spill());
    RUN(entry_taken_over());
    RUN(close_in_last_ready(false));
    RUN(close_in_last_ready(true));
    RUN(close_in_state(CLB_LINK_CLOSING));
    RUN(close_in_state(CLB_LINK_DOWN));
    RUN(no_callback_after_close());
    RUN(close_in_ready_of_another());
    RUN(close_link_under_a_call());
    RUN(close_listener_in_callback());
    RUN(ready_tells_all());
    RUN(impatient_allocator());
    RUN(busy_neighbour());
    RUN(close_from_another_thread());
    RUN(close_under_accept(0));
    RUN(close_under_accept(1));
    return 0;
}
