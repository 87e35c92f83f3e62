/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-10: a peer that vanishes must not kill the process by SIGPIPE. It resets the
 * connection; the application then writes three times and releases a packet that it holds. Nobody's
 * signal handler is touched, and no write arrives at a default one.
 */
#include <clbridge/clbridge.h>
#include <signal.h>
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
        CHECK_EQ(sigaction(SIGPIPE, NULL, &now), 0);
        CHECK(now.sa_handler == set.sa_handler);
        CHECK_EQ(heard, 0);
        check_back_to(fds, threads);
    }
    return 0;
}
