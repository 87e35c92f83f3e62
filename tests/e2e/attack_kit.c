/* SPDX-License-Identifier: Apache-2.0 */
/* See attack_kit.h. */
#include "attack_kit.h"

#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "talloc.h"

/* ---- the honest pair --------------------------------------------------------------------------- */

clb_loop *honest_loop;

static struct {
    clb_link *host, *dev;
    clb_stream *in, *out;
} honest;

void honest_start(void)
{
    clb_listener *l = NULL;
    CHECK_EQ(clb_loop_create(&honest_loop, NULL), CLB_OK);
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
    lp.link.loop = honest_loop;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    CHECK_EQ(clb_link_open(&honest.host,
                           clb_link_params(.uri = clb_listener_uri(l), .loop = honest_loop)),
             CLB_OK);
    CHECK_EQ(clb_listener_accept(l, &honest.dev, 10 * SEC), CLB_OK);
    clb_listener_close(&l);
    CHECK_EQ(clb_stream_open(&honest.out, honest.dev,
                             clb_stream_params(.name = "v", .write_window = 100000)),
             CLB_OK);
    CHECK_EQ(clb_stream_open(&honest.in, honest.host, clb_stream_params(.name = "v")), CLB_OK);
}

void honest_check(void)
{
    static const uint8_t data[50000] = {42};
    struct clb_iovec iov = {data, sizeof data};
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_write(honest.out, &iov, 1, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_stream_read(honest.in, &p, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), sizeof data);
    CHECK_EQ(*(uint8_t *)clb_packet_data(p), 42);
    clb_packet_free(&p);
}

void honest_stop(void)
{
    clb_stream_close(&honest.in);
    clb_stream_close(&honest.out);
    clb_link_close(&honest.host);
    clb_link_close(&honest.dev);
    clb_loop_destroy(&honest_loop);
}

/* ---- one attack -------------------------------------------------------------------------------- */

atomic_int over;

void run_attack(struct peer *p, void *arg)
{
    const struct attack *a = arg;
    CHECK(peer_handshake(p));
    a->fn(p, a);
    if (p->fd >= 0) {
        /* Silent from here on, and still there. */
        for (int i = 0; i < 20000 && !atomic_load(&over); i++) {
            check_sleep_ms(1);
        }
        peer_close(p);
    }
}

static void *write_on(void *arg)
{
    static const uint8_t data[WRITE_SIZE];
    struct clb_iovec iov = {data, sizeof data};
    int err;
    /* TIMEOUT: in the socket, and not answered in time. */
    do {
        err = clb_stream_write(arg, &iov, 1, 20 * SEC);
    } while (err == CLB_OK || err == CLB_ERR_TIMEOUT);
    CHECK(err == CLB_ERR_LOST || err == CLB_ERR_CLOSED || err == CLB_ERR_IO);
    return NULL;
}

void victim(struct attack a)
{
    struct peer peer;
    struct talloc t;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    pthread_t writer;
    struct clb_status why = {0};
    talloc_init(&t, NULL);
    atomic_store(&over, 0);
    a.link.struct_size = sizeof a.link;
    a.link.loop = honest_loop;
    a.link.close_timeout_ns = 100 * MS;
    if (a.tcp) {
        uint16_t port;
        char uri[64];
        int l = peer_listen(&port);
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
        a.link.uri = uri;
        peer_accept_later(&peer, l, run_attack, &a);
        CHECK_EQ(clb_link_open(&link, &a.link), CLB_OK);
        close(l);
    } else {
        int fd = peer_pair(&peer, a.as_host);
        peer_start(&peer, run_attack, &a);
        CHECK_EQ(clb_link_adopt(&link, fd, a.as_host ? CLB_ROLE_DEVICE : CLB_ROLE_HOST, &a.link),
                 CLB_OK);
    }
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .on_full = a.on_full};
    sp.allocator = talloc_allocator(&t);
    sp.write_window = a.writes ? 4 * WRITE_SIZE : 0;
    sp.queue_len = 64;
    int err = clb_stream_open(&s, link, &sp);
    CHECK(err == CLB_OK || (a.err && (err == CLB_ERR_LOST || err == CLB_ERR_CLOSED)));
    if (s && a.writes) {
        CHECK_EQ(pthread_create(&writer, NULL, write_on, s), 0);
    }
    uint64_t packets = 0;
    clb_packet *p = NULL;
    while (s && (err = clb_stream_read(
                     s, &p, a.err || packets < a.packets ? 15 * SEC : 300 * MS)) == CLB_OK) {
        CHECK_LE(clb_packet_size(p), WINDOW);
        packets++;
        clb_packet_free(&p);
    }
    enum clb_link_state state = clb_link_get_state(link, &why);
    CHECK_EQ(why.err, a.err);
    if (a.err) {
        CHECK_GE(state, CLB_LINK_CLOSING);
        CHECK(why.text[0] != '\0');
        CHECK(!s || err == CLB_ERR_LOST || err == CLB_ERR_CLOSED);
    } else {
        CHECK_EQ(state, CLB_LINK_UP);
        CHECK_EQ(err, CLB_ERR_TIMEOUT);
    }
    CHECK_EQ(packets, a.packets);
    clb_link_stats ls;
    clb_link_get_stats(link, &ls, sizeof ls);
    CHECK_GE(ls.nacks_sent, a.nacks);
    honest_check();
    atomic_store(&over, 1);
    clb_link_close(&link);
    if (s && a.writes) {
        pthread_join(writer, NULL);
    }
    clb_stream_close(&s);
    peer_join(&peer);
    if (a.allocs >= 0) {
        CHECK_EQ(t.calls, a.allocs);
    }
    talloc_check(&t);
}

/* ---- what attackers say ------------------------------------------------------------------------ */

int announce(struct peer *p)
{
    return peer_create(p, "a", WINDOW);
}

void write_header(struct peer *p, uint32_t stream_id, uint32_t size)
{
    peer_send_header(p, CLBI_WRITE_REQ, p->next_id++, NULL, stream_id, size, CLBI_FLAG_ACK);
}

void until_opened(struct peer *p, int a)
{
    for (int i = 0; i < 2000 && !p->stream[a].created && !p->eof; i++) {
        peer_pump(p, 5);
    }
}

void send_zeros(struct peer *p, size_t n)
{
    static const uint8_t block[65536];
    while (n > 0 && peer_send_raw(p, block, n < sizeof block ? n : sizeof block)) {
        n -= n < sizeof block ? n : sizeof block;
    }
}

uint32_t rnd(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}
