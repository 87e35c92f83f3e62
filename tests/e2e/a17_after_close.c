/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-17, the part without OpenCL: every public function that takes a handle answers on a
 * link that was shut down, lost or closed, and on NULL; packets keep what they need alive; double
 * close is harmless; four threads connect and close a hundred times each, and every reference is back.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)

static void on_null(void)
{
    clb_loop *loop = NULL;
    clb_link *link = NULL;
    clb_listener *listener = NULL;
    clb_stream *stream = NULL;
    clb_packet *packet = NULL;
    clb_host_pool *pool = NULL;
    clb_stream_info si;
    clb_link_info li;
    clb_link_stats ls;
    clb_stream_stats ss;
    clb_packet_info pi;
    clb_host_pool_stats ps;
    struct clb_status why;
    struct clb_buf buf = {0};
    struct clb_iovec iov = {"x", 1};
    size_t size = 9;

    CHECK_EQ(clb_loop_create(NULL, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_loop_dispatch(NULL, 0), CLB_ERR_INVAL);
    CHECK_EQ(clb_loop_fd(NULL), CLB_ERR_INVAL);
    clb_loop_destroy(NULL);
    clb_loop_destroy(&loop);

    CHECK_EQ(clb_link_open(NULL, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_link_open(&link, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_link_adopt(NULL, 0, CLB_ROLE_HOST, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_link_adopt(&link, -1, CLB_ROLE_HOST, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_link_shutdown(NULL, 0), CLB_ERR_INVAL);
    CHECK_EQ(clb_link_get_state(NULL, NULL), CLB_LINK_DOWN);
    CHECK_EQ(clb_link_get_state(NULL, &why), CLB_LINK_DOWN);
    CHECK_EQ(why.err, CLB_ERR_INVAL);
    memset(&li, 1, sizeof li);
    clb_link_get_info(NULL, &li, sizeof li);
    CHECK_EQ(li.peer[0], 0);
    memset(&ls, 1, sizeof ls);
    clb_link_get_stats(NULL, &ls, sizeof ls);
    CHECK_EQ(ls.rx_bytes, 0);
    clb_link_get_stats(NULL, NULL, 0);
    CHECK_EQ(clb_link_next_stream(NULL, &si, sizeof si, 0), CLB_ERR_INVAL);
    clb_link_close(NULL);
    clb_link_close(&link);

    CHECK_EQ(clb_listener_open(NULL, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_listener_open(&listener, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_listener_accept(NULL, &link, 0), CLB_ERR_INVAL);
    CHECK(clb_listener_uri(NULL) == NULL);
    clb_listener_close(NULL);
    clb_listener_close(&listener);

    CHECK_EQ(clb_stream_open(NULL, NULL, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_stream_open(&stream, NULL, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_stream_read(NULL, &packet, 0), CLB_ERR_INVAL);
    CHECK_EQ(clb_stream_write(NULL, &iov, 1, 0), CLB_ERR_INVAL);
    CHECK_EQ(clb_stream_flush(NULL, CLB_FLUSH_ACKED, 0), CLB_ERR_INVAL);
    clb_stream_interrupt(NULL);
    CHECK_EQ(clb_stream_fd(NULL), CLB_ERR_INVAL);
    CHECK(clb_stream_name(NULL) == NULL);
    CHECK_EQ(clb_stream_id(NULL), 0xDEADDEAD);
    memset(&ss, 1, sizeof ss);
    clb_stream_get_stats(NULL, &ss, sizeof ss);
    CHECK_EQ(ss.packets, 0);
    clb_stream_close(NULL);
    clb_stream_close(&stream);

    CHECK(clb_packet_data(NULL) == NULL);
    CHECK_EQ(clb_packet_size(NULL), 0);
    CHECK(clb_packet_metadata(NULL, &size) == NULL);
    CHECK_EQ(size, 0);
    CHECK(clb_packet_metadata(NULL, NULL) == NULL);
    CHECK(clb_packet_context(NULL) == NULL);
    CHECK(clb_packet_image(NULL) == NULL);
    memset(&pi, 1, sizeof pi);
    clb_packet_get_info(NULL, &pi, sizeof pi);
    CHECK_EQ(pi.seq, 0);
    CHECK(clb_packet_allocator(NULL).alloc == NULL);
    CHECK_EQ(clb_packet_release(NULL, &buf), CLB_ERR_INVAL);
    clb_packet_free(NULL);
    clb_packet_free(&packet);

    CHECK_EQ(clb_host_pool_create(NULL, NULL), CLB_ERR_INVAL);
    CHECK(clb_host_pool_allocator(NULL).alloc == NULL);
    memset(&ps, 1, sizeof ps);
    clb_host_pool_get_stats(NULL, &ps, sizeof ps);
    CHECK_EQ(ps.slots, 0);
    clb_host_pool_destroy(NULL);
    clb_host_pool_destroy(&pool);
    clb_buf_free(NULL, &buf);
    clb_buf_free(NULL, NULL);
}

/* ---- a link that has ended --------------------------------------------------------------------- */

static atomic_int go;

static void run(struct peer *p, void *arg)
{
    const bool vanishes = *(bool *)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 1 << 20);
    for (int i = 0; i < 3; i++) {
        CHECK(peer_write_fill(p, a, i + 1, 1000, 5000));
    }
    CHECK(peer_wait_acked(p, 10000));
    while (vanishes && !atomic_load(&go)) {
        peer_pump(p, 10);
    }
    if (!vanishes) {
        peer_pump_to_end(p, 30000);
    }
    peer_close(p);
}

static void every_call(bool lost)
{
    const int gone = lost ? CLB_ERR_LOST : CLB_ERR_CLOSED;
    struct peer peer;
    struct talloc t;
    clb_link *link = NULL;
    clb_stream *s = NULL, *other = NULL;
    clb_packet *held = NULL, *unread = NULL, *none = NULL;
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .write_window = 64};
    talloc_init(&t, NULL);
    sp.allocator = talloc_allocator(&t);
    atomic_store(&go, 0);
    int fd = peer_pair(&peer, false);
    peer_start(&peer, run, &lost);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    CHECK_EQ(clb_stream_open(&s, link, &sp), CLB_OK);
    CHECK_EQ(clb_stream_read(s, &held, 10 * SEC), CLB_OK);
    clb_stream_stats ss;
    do {
        check_sleep_ms(2);
        clb_stream_get_stats(s, &ss, sizeof ss);
    } while (ss.packets < 3);
    atomic_store(&go, 1);
    if (!lost) {
        CHECK_EQ(clb_link_shutdown(link, 10 * SEC), CLB_OK);
        CHECK_EQ(clb_link_shutdown(link, 10 * SEC), CLB_OK);
    }
    while (clb_link_get_state(link, NULL) != CLB_LINK_DOWN) {
        check_sleep_ms(2);
    }
    peer_join(&peer);

    /* The link, its handle still open. */
    struct clb_status why;
    clb_link_info li;
    clb_link_stats ls;
    clb_stream_info si;
    CHECK_EQ(clb_link_get_state(link, &why), CLB_LINK_DOWN);
    CHECK_EQ(why.err, lost ? CLB_ERR_LOST : CLB_OK);
    clb_link_get_info(link, &li, sizeof li);
    CHECK(strcmp(li.peer, "unix") == 0);
    clb_link_get_stats(link, &ls, sizeof ls);
    CHECK_GE(ls.rx_bytes, 3000);
    CHECK_EQ(clb_link_next_stream(link, &si, sizeof si, -1), CLB_OK); /* "a" was not told yet */
    CHECK_EQ(clb_link_next_stream(link, &si, sizeof si, -1), gone);
    CHECK_EQ(clb_stream_open(&other, link, clb_stream_params(.name = "b")), gone);
    CHECK_EQ(clb_stream_open(&other, link, NULL), gone);
    CHECK_EQ(clb_stream_open(&other, link, &sp), CLB_ERR_BUSY);
    CHECK(other == NULL);
    CHECK_EQ(clb_link_shutdown(link, -1), CLB_OK);

    /* The stream: what arrived is still there, then the end, as often as it is asked. Once with the
     * link's handle, once without. */
    struct clb_iovec iov = {"x", 1};
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(clb_stream_read(s, &unread, -1), CLB_OK);
        CHECK_EQ(*(uint8_t *)clb_packet_data(unread), round + 2);
        clb_packet_free(&unread);
        CHECK_EQ(clb_stream_write(s, &iov, 1, -1), gone);
        CHECK_EQ(clb_stream_flush(s, CLB_FLUSH_ACKED, -1), CLB_OK); /* nothing was written */
        CHECK_GE(clb_stream_fd(s), 0);
        CHECK(strcmp(clb_stream_name(s), "a") == 0);
        CHECK_LE(clb_stream_id(s), 1 << 24);
        clb_stream_interrupt(s);
        CHECK_EQ(clb_stream_read(s, &none, -1), CLB_ERR_CANCELED);
        if (round == 1) {
            CHECK_EQ(clb_stream_read(s, &none, -1), gone);
            CHECK_EQ(clb_stream_read(s, &none, 0), gone);
        }
        clb_stream_get_stats(s, &ss, sizeof ss);
        CHECK_EQ(ss.packets, 3);
        CHECK_EQ(ss.held, 1);
        clb_link_close(&link);
        CHECK(link == NULL);
        clb_link_close(&link);
    }

    /* The packet is the last to go. */
    struct clb_buf buf;
    clb_stream_close(&s);
    clb_stream_close(&s);
    CHECK_EQ(t.freed, 2);
    CHECK(talloc_owns(&t, clb_packet_context(held), clb_packet_data(held)));
    CHECK_EQ(*(uint8_t *)clb_packet_data(held), 1);
    struct clb_allocator al = clb_packet_allocator(held);
    CHECK_EQ(clb_packet_release(held, &buf), CLB_OK);
    CHECK_EQ(clb_packet_release(held, &buf), CLB_ERR_STATE);
    clb_packet_free(&held);
    clb_packet_free(&held);
    clb_buf_free(&al, &buf);
    clb_buf_free(&al, &buf);
    CHECK_EQ(t.given, 3);
    CHECK_EQ(t.released, 1);
    talloc_check(&t);
}

/* ---- four threads ------------------------------------------------------------------------------ */

struct crowd {
    clb_listener *listener;
    clb_loop *loop; /* NULL = each link its own */
    struct talloc t;
    atomic_int connected, tickets;
};

static void *connect_and_close(void *arg)
{
    struct crowd *c = arg;
    for (int i = 0; i < 100; i++) {
        clb_link *link = NULL;
        clb_stream *s = NULL;
        clb_link_params lp = {.struct_size = sizeof lp, .uri = clb_listener_uri(c->listener)};
        lp.loop = c->loop;
        lp.allocator = talloc_allocator(&c->t);
        lp.connect_timeout_ns = 30 * SEC;
        CHECK_EQ(clb_link_open(&link, &lp), CLB_OK);
        atomic_fetch_add(&c->connected, 1);
        if (i % 2) {
            CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "a")), CLB_OK);
        }
        if (i % 4 == 1) {
            clb_stream_close(&s);
        }
        clb_link_close(&link);
        clb_stream_close(&s);
    }
    return NULL;
}

static void *accept_and_close(void *arg)
{
    struct crowd *c = arg;
    while (atomic_fetch_add(&c->tickets, 1) < 400) {
        clb_link *link = NULL;
        clb_stream_info si;
        CHECK_EQ(clb_listener_accept(c->listener, &link, -1), CLB_OK);
        while (clb_link_get_state(link, NULL) != CLB_LINK_DOWN) {
            clb_link_next_stream(link, &si, sizeof si, SEC); /* until the peer ends it */
        }
        clb_link_close(&link);
    }
    return NULL;
}

static void crowd(bool shared)
{
    struct crowd c = {0};
    pthread_t threads[4], acceptors[4];
    talloc_init(&c.t, NULL);
    clb_listener_params lp = {
        .struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 1000};
    if (shared) {
        CHECK_EQ(clb_loop_create(&c.loop, NULL), CLB_OK);
        lp.link.loop = c.loop;
    }
    lp.link.allocator = talloc_allocator(&c.t);
    CHECK_EQ(clb_listener_open(&c.listener, &lp), CLB_OK);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&acceptors[i], NULL, accept_and_close, &c), 0);
        CHECK_EQ(pthread_create(&threads[i], NULL, connect_and_close, &c), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK_EQ(atomic_load(&c.connected), 400);
    for (int i = 0; i < 4; i++) {
        pthread_join(acceptors[i], NULL);
    }
    clb_listener_close(&c.listener);
    clb_loop_destroy(&c.loop);
    talloc_check(&c.t);
}

int main(void)
{
    check_watchdog(100);
    const int fds = check_fds(), threads = check_threads();
    on_null();
    every_call(false);
    every_call(true);
    check_back_to(fds, threads);
    crowd(false);
    check_back_to(fds, threads);
    crowd(true);
    check_back_to(fds, threads);
    return 0;
}
