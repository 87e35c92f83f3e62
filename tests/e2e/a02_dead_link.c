/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-02: a dead link ends reads and close in bounded time. The peer sends three frames and
 * then neither reads nor sends nor closes. The application closes after a second; or it has an idle limit
 * of 2 s; or the silence begins half-way through a payload of 1 MiB, with a limit of 2 s for progress. A
 * fresh link to the same address works afterwards. All three at the same time, to save time.
 */
#include <clbridge/clbridge.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cases.h"
#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define FRAME (1u << 20)
#define LIMIT_S 2

enum how { BY_CLOSE, BY_IDLE, BY_HALF_A_PAYLOAD, HOWS };

struct story {
    enum how how;
    atomic_bool over; /* the silent peer may go */
    clb_link *link;
    clb_stream *s;
};

static void in_time(int64_t begin_ms, int64_t limit_ms)
{
    CHECK_LE(check_ms() - begin_ms, limit_ms + CASES_SLACK_MS + cases_kept_waiting_ms(begin_ms));
}

static bool opened(struct peer *p, void *arg)
{
    (void)arg;
    return p->stream[0].created;
}

static void falls_silent(struct peer *p, void *arg)
{
    struct story *st = arg;
    CHECK(peer_handshake(p));
    const int a = peer_create(p, "a", 8 * FRAME);
    CHECK(peer_pump_until(p, opened, NULL, 20000));
    for (int i = 0; i < 3; i++) {
        CHECK(peer_write_fill(p, a, 0x10 + i, FRAME, 10000));
    }
    CHECK(peer_wait_acked(p, 10000));
    if (st->how == BY_HALF_A_PAYLOAD) {
        uint8_t *half = calloc(1, FRAME / 2);
        CHECK(half != NULL);
        peer_send_header(p, CLBI_WRITE_REQ, p->next_id++, NULL, p->stream[a].id, FRAME,
                         CLBI_FLAG_ACK);
        CHECK(peer_send_raw(p, half, FRAME / 2));
        free(half);
    }
    for (int i = 0; i < 6000 && !atomic_load(&st->over); i++) {
        check_sleep_ms(5);
    }
    peer_close(p);
}

static void behaves(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    const int a = peer_create(p, "a", FRAME);
    CHECK(peer_write_fill(p, a, 0x77, FRAME, 10000));
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

static void check_bytes(clb_packet *p, int value)
{
    const uint8_t *d = clb_packet_data(p);
    CHECK_EQ(clb_packet_size(p), FRAME);
    for (uint32_t i = 0; i < FRAME; i++) {
        CHECK_EQ(d[i], value);
    }
}

/* ---- calls that are blocked while the link dies: one answer for all ----------------------------- */

static void *reads(void *arg)
{
    struct story *st = arg;
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(st->s, &none, -1),
             st->how == BY_CLOSE ? CLB_ERR_CLOSED : CLB_ERR_LOST);
    CHECK(none == NULL);
    return NULL;
}

static void *writes(void *arg)
{
    struct story *st = arg;
    const char data[100] = {0};
    const struct clb_iovec iov = {.base = data, .len = sizeof data};
    CHECK_EQ(clb_stream_write(st->s, &iov, 1, -1), CLB_ERR_LOST);
    return NULL;
}

static void *opens(void *arg)
{
    struct story *st = arg;
    clb_stream *none = NULL;
    CHECK_EQ(clb_stream_open(&none, st->link,
                             clb_stream_params(.name = "z", .open_timeout_ns = 60 * SEC)),
             CLB_ERR_LOST);
    CHECK(none == NULL);
    return NULL;
}

static void *waits_for_a_stream(void *arg)
{
    struct story *st = arg;
    clb_stream_info info;
    int err;
    while ((err = clb_link_next_stream(st->link, &info, sizeof info, -1)) == CLB_OK) {
    }
    CHECK_EQ(err, CLB_ERR_LOST);
    return NULL;
}

/* ---- the stories ------------------------------------------------------------------------------- */

static clb_link *connect_to(uint16_t port, enum how how)
{
    char uri[64];
    clb_link *link = NULL;
    clb_link_params lp = {.struct_size = sizeof lp, .uri = uri};
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
    lp.close_timeout_ns = SEC;
    if (how == BY_IDLE) {
        lp.idle_timeout_ns = LIMIT_S * SEC;
    } else if (how == BY_HALF_A_PAYLOAD) {
        lp.progress_timeout_ns = LIMIT_S * SEC;
    }
    CHECK_EQ(clb_link_open(&link, &lp), CLB_OK);
    return link;
}

static void the_end(struct story *st)
{
    void *(*const calls[])(void *) = {reads, writes, opens, waits_for_a_stream};
    /* For a while nothing but the peer's silence is wrong, and close wants to be seen alone. */
    const int n = st->how == BY_IDLE ? 4 : 1;
    pthread_t t[4];
    int64_t begin = check_ms();
    for (int i = 0; i < n; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, calls[i], st), 0);
    }
    if (st->how == BY_CLOSE) {
        check_sleep_ms(1000);
        begin = check_ms();
        clb_link_close(&st->link);
        in_time(begin, 1000);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    in_time(begin, st->how == BY_CLOSE ? 1000 : LIMIT_S * 1000);
    if (st->how != BY_CLOSE) {
        struct clb_status why;
        CHECK_GE(clb_link_get_state(st->link, &why), CLB_LINK_CLOSING);
        CHECK_EQ(why.err, CLB_ERR_LOST);
        begin = check_ms();
        clb_link_close(&st->link); /* a lost link waits for nobody */
        in_time(begin, 0);
    }
}

static void run(const void *arg)
{
    struct story here = {.how = *(const enum how *)arg}, *const st = &here;
    struct peer peer, next;
    struct talloc t;
    clb_packet *p[3];
    uint16_t port;
    const int l = peer_listen(&port);
    talloc_init(&t, NULL);
    peer_accept_later(&peer, l, falls_silent, st);
    st->link = connect_to(port, st->how);
    CHECK_EQ(clb_stream_open(&st->s, st->link,
                             clb_stream_params(.name = "a", .allocator = talloc_allocator(&t),
                                               .write_window = 4096)),
             CLB_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(clb_stream_read(st->s, &p[i], 20 * SEC), CLB_OK);
    }
    clb_packet_free(&p[1]);
    the_end(st);
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(st->s, &none, -1),
             st->how == BY_CLOSE ? CLB_ERR_CLOSED : CLB_ERR_LOST);
    clb_stream_close(&st->s);
    /* The half frame was nobody's but the library's: its buffer is home and was never released. */
    CHECK_EQ(t.given, st->how == BY_HALF_A_PAYLOAD ? 4 : 3);
    CHECK_EQ(t.freed, t.given - 2);
    CHECK_EQ(t.release_calls, 0);
    check_bytes(p[0], 0x10);
    check_bytes(p[2], 0x12);
    clb_packet_free(&p[0]);
    clb_packet_free(&p[2]);
    talloc_check(&t);

    /* The silent connection is still there, and does not matter to the next. */
    peer_accept_later(&next, l, behaves, NULL);
    st->link = connect_to(port, HOWS);
    CHECK_EQ(clb_stream_open(&st->s, st->link, clb_stream_params(.name = "a")), CLB_OK);
    CHECK_EQ(clb_stream_read(st->s, &p[0], 20 * SEC), CLB_OK);
    check_bytes(p[0], 0x77);
    clb_packet_free(&p[0]);
    clb_stream_close(&st->s);
    clb_link_close(&st->link);
    peer_join(&next);
    atomic_store(&st->over, true);
    peer_join(&peer);
    close(l);
}

int main(int argc, char **argv)
{
    static const enum how hows[] = {BY_CLOSE, BY_IDLE, BY_HALF_A_PAYLOAD};
    static const struct test_case cases[] = {
        {"closed", run, &hows[0]}, {"idle", run, &hows[1]}, {"half_a_payload", run, &hows[2]}};
    return cases_run(argc, argv, cases, HOWS, HOWS, 55);
}
