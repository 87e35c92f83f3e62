/* SPDX-License-Identifier: Apache-2.0 */
/* Handles that are closed in callbacks, and what callbacks tell. */
#include "races_kit.h"

#include <pthread.h>

#include "check.h"
#include "link_priv.h"

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
void close_in_last_ready(bool link_too)
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
void close_in_state(enum clb_link_state at)
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
void no_callback_after_close(void)
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
void close_in_ready_of_another(void)
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
void close_link_under_a_call(void)
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
void close_listener_in_callback(void)
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

void ready_tells_all(void)
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
