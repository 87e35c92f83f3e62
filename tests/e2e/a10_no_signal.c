/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-10: a peer that vanishes must not kill the process by SIGPIPE. It resets the
 * connection; the application then writes three times and releases a packet that it holds. Nobody's
 * signal handler is touched, and no write arrives at a default one.
 */
#include <clbridge/clbridge.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)

static void run(struct peer *p, void *arg)
{
    const bool hard = *(bool *)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4096);
    CHECK(peer_write_fill(p, a, 7, 1000, 5000));
    while (!p->stream[a].created || p->stream[a].acked < 1) {
        CHECK(!p->eof);
        peer_pump(p, 50);
    }
    if (hard) {
        peer_abort(p);
    } else {
        peer_close(p);
    }
}

static void vanish(bool local, bool hard, bool late)
{
    struct peer peer;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    int listen_fd = -1;
    if (local) {
        int fd = peer_pair(&peer, false);
        peer_start(&peer, run, &hard);
        CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    } else {
        uint16_t port;
        char uri[64];
        listen_fd = peer_listen(&port);
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
        peer_accept_later(&peer, listen_fd, run, &hard);
        CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = uri)), CLB_OK);
    }
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "a", .write_window = 1 << 20)),
             CLB_OK);
    clb_packet *held = NULL;
    CHECK_EQ(clb_stream_read(s, &held, 10 * SEC), CLB_OK);
    peer_join(&peer); /* it has gone */
    if (late) {
        check_sleep_ms(50);
    }
    static const uint8_t data[100000];
    struct clb_iovec iov = {data, sizeof data};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(clb_stream_write(s, &iov, 1, 10 * SEC), CLB_ERR_LOST);
    }
    struct clb_buf buf;
    struct clb_allocator al = clb_packet_allocator(held);
    CHECK_EQ(*(uint8_t *)clb_packet_data(held), 7);
    CHECK_EQ(clb_packet_release(held, &buf), CLB_OK);
    clb_buf_free(&al, &buf);
    clb_packet_free(&held);
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(s, &none, 10 * SEC), CLB_ERR_LOST);
    struct clb_status why;
    clb_link_get_state(link, &why);
    CHECK_EQ(why.err, CLB_ERR_LOST);
    CHECK(why.text[0] != '\0');
    clb_stream_close(&s);
    clb_link_close(&link);
    if (listen_fd >= 0) {
        close(listen_fd);
    }
}

/* The loop runs on the application's thread, where a signal would hit: the answers to packets that
 * came before the end go to a peer that is not there any more. */
static atomic_int go;

static void run_ahead(struct peer *p, void *arg)
{
    const bool hard = *(bool *)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4096);
    while (!atomic_load(&go)) {
        peer_pump(p, 5);
    }
    for (int i = 0; i < 4; i++) {
        peer_write_fill(p, a, i, 1000, 0);
    }
    if (hard) {
        check_sleep_ms(5);
        peer_abort(p);
    } else {
        peer_close(p);
    }
}

static void vanish_from_caller(bool local, bool hard)
{
    struct peer peer;
    clb_loop *loop = NULL;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    uint16_t port;
    char uri[64];
    int listen_fd = peer_listen(&port);
    atomic_store(&go, 0);
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    if (local) {
        int fd = peer_pair(&peer, false);
        peer_start(&peer, run_ahead, &hard);
        CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.loop = loop)), CLB_OK);
    } else {
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
        peer_accept_later(&peer, listen_fd, run_ahead, &hard);
        CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = uri, .loop = loop)), CLB_OK);
    }
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "a", .write_window = 1000)),
             CLB_OK);
    clb_loop_dispatch(loop, 50000000);
    atomic_store(&go, 1);
    peer_join(&peer);
    clb_packet *p = NULL;
    int err;
    while ((err = clb_stream_read(s, &p, 10 * SEC)) == CLB_OK) {
        clb_packet_free(&p);
    }
    CHECK_EQ(err, CLB_ERR_LOST);
    clb_link_close(&link);
    clb_stream_close(&s);
    clb_loop_destroy(&loop);
    close(listen_fd);
}

static volatile sig_atomic_t heard;

static void hear(int sig)
{
    (void)sig;
    heard++;
}

int main(void)
{
    check_watchdog(60);
    const int fds = check_fds(), threads = check_threads();
    for (int handler = 0; handler < 2; handler++) {
        struct sigaction set = {.sa_handler = handler ? hear : SIG_DFL}, now;
        CHECK_EQ(sigaction(SIGPIPE, &set, NULL), 0);
        for (int i = 0; i < 8; i++) {
            vanish(i & 1, i & 2, i & 4);
        }
        for (int i = 0; i < 8; i++) {
            vanish_from_caller(i & 1, i & 2);
        }
        CHECK_EQ(sigaction(SIGPIPE, NULL, &now), 0);
        CHECK(now.sa_handler == set.sa_handler);
        CHECK_EQ(heard, 0);
        check_back_to(fds, threads);
    }
    return 0;
}
