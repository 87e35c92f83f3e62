/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends ours, over TCP on loopback: listener and link, streams both ways, orderly and other ends,
 * own, shared and caller-driven loops. Nothing is left behind.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>

#include "check.h"
#include "peer.h"

static clb_listener *listen_on(clb_loop *loop, uint32_t max_links)
{
    clb_listener *l = NULL;
    struct clb_status st = {0};
    clb_listener_params p = {.struct_size = sizeof p, .uri = "tcp://127.0.0.1:0"};
    p.max_links = max_links;
    p.link.loop = loop;
    p.link.status = &st;
    int err = clb_listener_open(&l, &p);
    if (err) {
        fprintf(stderr, "%s\n", st.text);
    }
    CHECK_EQ(err, CLB_OK);
    return l;
}

static clb_link *connect_to(clb_listener *l, clb_loop *loop)
{
    clb_link *link = NULL;
    struct clb_status st = {0};
    int err = clb_link_open(&link, clb_link_params(.uri = clb_listener_uri(l), .loop = loop,
                                                   .status = &st, .log = {.cb = clb_log_stderr}));
    if (err) {
        fprintf(stderr, "%s\n", st.text);
    }
    CHECK_EQ(err, CLB_OK);
    CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_UP);
    return link;
}

static void *writer(void *arg)
{
    clb_stream *s = arg;
    static const uint8_t block[100000];
    for (uint32_t i = 0; i < 200; i++) {
        struct clb_iovec iov[2] = {{&i, sizeof i}, {block, 1000 + i * 400}};
        CHECK_EQ(clb_stream_write(s, iov, 2, 5000000000), CLB_OK);
    }
    CHECK_EQ(clb_stream_flush(s, CLB_FLUSH_RELEASED, 5000000000), CLB_OK);
    return NULL;
}

/* 200 packets of growing size through a window of 256 KiB. */
static void both_ends(void)
{
    const int fds = check_fds(), threads = check_threads();
    clb_listener *l = listen_on(NULL, 1);
    clb_link *host = connect_to(l, NULL), *dev = NULL;
    CHECK_EQ(clb_listener_accept(l, &dev, 5000000000), CLB_OK);
    clb_stream *out = NULL, *in = NULL;
    CHECK_EQ(clb_stream_open(&out, dev, clb_stream_params(.name = "v", .write_window = 262144)),
             CLB_OK);
    clb_stream_info info;
    CHECK_EQ(clb_link_next_stream(host, &info, sizeof info, 5000000000), CLB_OK);
    CHECK_EQ(info.peer_window, 262144);
    CHECK(strcmp(info.name, "v") == 0);
    CHECK_EQ(clb_stream_open(&in, host, NULL), CLB_OK);
    CHECK(strcmp(clb_stream_name(in), "v") == 0);
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, writer, out), 0);
    for (uint32_t i = 0; i < 200; i++) {
        clb_packet *p = NULL;
        CHECK_EQ(clb_stream_read(in, &p, 5000000000), CLB_OK);
        CHECK_EQ(clb_packet_size(p), 1004 + i * 400);
        uint32_t n;
        memcpy(&n, clb_packet_data(p), sizeof n);
        CHECK_EQ(n, i);
        clb_packet_info pi;
        clb_packet_get_info(p, &pi, sizeof pi);
        CHECK_EQ(pi.seq, i);
        CHECK_EQ(pi.dropped_before, 0);
        clb_packet_free(&p);
    }
    pthread_join(t, NULL);
    clb_stream_stats st;
    clb_stream_get_stats(out, &st, sizeof st);
    CHECK_EQ(st.written, 200);
    CHECK_EQ(st.acked, 200);
    CHECK_EQ(st.released, 200);
    /* The device ends: the host sees an orderly end. */
    CHECK_EQ(clb_link_shutdown(dev, 5000000000), CLB_OK);
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(in, &p, 5000000000), CLB_ERR_CLOSED);
    struct clb_status why;
    while (clb_link_get_state(host, &why) != CLB_LINK_DOWN) {
        check_sleep_ms(1);
    }
    CHECK_EQ(why.err, CLB_ERR_CLOSED);
    clb_stream_close(&out);
    clb_stream_close(&in);
    clb_link_close(&dev);
    clb_link_close(&host);
    clb_listener_close(&l);
    check_back_to(fds, threads);
}

/* One caller-driven loop drives listener, device link and host link in one thread. */
static void caller_driven(void)
{
    const int fds = check_fds(), threads = check_threads();
    clb_loop *loop = NULL;
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    clb_listener *l = listen_on(loop, 1);
    clb_link *host = connect_to(l, loop), *dev = NULL;
    CHECK_EQ(check_threads(), threads);
    CHECK_EQ(clb_listener_accept(l, &dev, 5000000000), CLB_OK);
    clb_stream *out = NULL, *in = NULL;
    CHECK_EQ(clb_stream_open(&out, dev, clb_stream_params(.name = "v", .write_window = 4096)),
             CLB_OK);
    CHECK_EQ(clb_stream_open(&in, host, clb_stream_params(.name = "v")), CLB_OK);
    for (int i = 0; i < 50; i++) {
        struct clb_iovec iov = {"hello", 5};
        CHECK_EQ(clb_stream_write(out, &iov, 1, 5000000000), CLB_OK);
        clb_packet *p = NULL;
        CHECK_EQ(clb_stream_read(in, &p, 5000000000), CLB_OK);
        CHECK(memcmp(clb_packet_data(p), "hello", 5) == 0);
        clb_packet_free(&p);
    }
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(in, &p, 0), CLB_ERR_AGAIN);
    CHECK_EQ(clb_stream_read(in, &p, 1000000), CLB_ERR_TIMEOUT);
    clb_loop_destroy(&loop); /* the links keep it */
    clb_link_close(&host);
    clb_link_close(&dev);
    clb_stream_close(&in);
    clb_stream_close(&out);
    clb_listener_close(&l);
    check_back_to(fds, threads);
}

/* max_links: the second connection is closed at once, the first does not notice; afterwards there is
 * room again. A shared loop drives both ends. */
static void one_at_a_time(void)
{
    const int fds = check_fds(), threads = check_threads();
    clb_loop *loop = NULL;
    CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
    clb_listener *l = listen_on(loop, 1);
    clb_link *first = connect_to(l, loop), *second = NULL, *dev = NULL;
    CHECK_EQ(clb_listener_accept(l, &dev, 5000000000), CLB_OK);
    CHECK_EQ(clb_link_open(&second, clb_link_params(.uri = clb_listener_uri(l))), CLB_ERR_LOST);
    CHECK(second == NULL);
    CHECK_EQ(clb_link_get_state(first, NULL), CLB_LINK_UP);
    clb_link_close(&first);
    while (clb_link_get_state(dev, NULL) != CLB_LINK_DOWN) {
        check_sleep_ms(1);
    }
    clb_link_close(&dev);
    first = connect_to(l, NULL);
    CHECK_EQ(clb_listener_accept(l, &dev, 5000000000), CLB_OK);
    clb_listener_close(&l);
    clb_link_close(&dev);
    clb_link_close(&first);
    clb_loop_destroy(&loop);
    check_back_to(fds, threads);
}

/* A peer that was dropped sees the end of its connection and comes again in the same moment: there is
 * room for it. */
static void comes_again_at_once(void)
{
    enum { TIMES = 400 };
    const int fds = check_fds(), threads = check_threads();
    static clb_link *links[TIMES];
    clb_listener *l = listen_on(NULL, 1);
    const uint16_t port = (uint16_t)atoi(strrchr(clb_listener_uri(l), ':') + 1);
    for (int i = 0; i < TIMES; i++) {
        struct peer p;
        peer_connect(&p, port);
        CHECK(peer_handshake(&p));
        CHECK_EQ(clb_listener_accept(l, &links[i], 5000000000), CLB_OK);
        peer_send_header(&p, 7, 1, NULL, 0, 0, 0); /* no such type: wire section 3 */
        peer_pump_to_end(&p, 5000);
        CHECK(p.eof);
        peer_close(&p);
    }
    for (int i = 0; i < TIMES; i++) {
        clb_link_close(&links[i]);
    }
    clb_listener_close(&l);
    check_back_to(fds, threads);
}

int main(void)
{
    check_watchdog(100);
    both_ends();
    caller_driven();
    one_at_a_time();
    comes_again_at_once();
    return 0;
}
