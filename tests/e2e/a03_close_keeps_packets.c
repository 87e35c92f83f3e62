/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-03: closing must not free what the application holds, and a release must hit the
 * packet that it names. P0, P1, P2 are held; P1 is released; the link goes; P0 and P2 are whole; each
 * is freed once, a second release says so.
 */
#include <clbridge/clbridge.h>

#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define PKT 4096u

enum end { BY_CLOSE, BY_SHUTDOWN, BY_RESET_OF_PEER, BY_LOSS, ENDS };

struct script {
    enum end end;
    uint32_t released; /* before the end */
};

static bool one_release(struct peer *p, void *arg)
{
    (void)arg;
    return p->rel_count >= 1;
}

static void run(struct peer *p, void *arg)
{
    struct script *sc = arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    for (int i = 0; i < 3; i++) {
        CHECK(peer_write_fill(p, a, 0x10 + i, PKT, 5000));
    }
    CHECK(peer_pump_until(p, one_release, NULL, 10000));
    sc->released = p->rel_log[0];
    if (sc->end == BY_LOSS) {
        peer_abort(p);
        return;
    }
    if (sc->end == BY_RESET_OF_PEER) {
        peer_send_header(p, CLBI_RESET_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK);
    }
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

static void all_bytes(clb_packet *p, int value)
{
    const uint8_t *d = clb_packet_data(p);
    CHECK_EQ(clb_packet_size(p), PKT);
    for (uint32_t i = 0; i < PKT; i++) {
        CHECK_EQ(d[i], value);
    }
}

static void hold_and_end(enum end how, bool pooled)
{
    struct peer peer;
    struct talloc t;
    struct script sc = {.end = how};
    clb_link *link = NULL;
    clb_stream *s = NULL;
    clb_packet *p[3];
    talloc_init(&t, NULL);
    int fd = peer_pair(&peer, false);
    peer_start(&peer, run, &sc);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
    if (!pooled) {
        sp.allocator = talloc_allocator(&t);
    }
    CHECK_EQ(clb_stream_open(&s, link, &sp), CLB_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(clb_stream_read(s, &p[i], 10 * SEC), CLB_OK);
    }
    struct clb_allocator al = clb_packet_allocator(p[0]);
    struct clb_buf b1, b2, b0, again = {0};
    CHECK_EQ(clb_packet_release(p[1], &b1), CLB_OK);
    clb_packet *none = NULL;
    if (how == BY_SHUTDOWN) {
        CHECK_EQ(clb_link_shutdown(link, 10 * SEC), CLB_OK);
        CHECK_EQ(clb_stream_read(s, &none, 10 * SEC), CLB_ERR_CLOSED);
    } else if (how == BY_RESET_OF_PEER || how == BY_LOSS) {
        CHECK_EQ(clb_stream_read(s, &none, 10 * SEC),
                 how == BY_LOSS ? CLB_ERR_LOST : CLB_ERR_CLOSED);
    }
    clb_link_close(&link);
    clb_stream_close(&s);
    peer_join(&peer);
    CHECK_EQ(sc.released, PKT);

    all_bytes(p[0], 0x10);
    all_bytes(p[2], 0x12);
    CHECK_EQ(clb_packet_release(p[2], &b2), CLB_OK);
    CHECK_EQ(clb_packet_release(p[0], &b0), CLB_OK);
    CHECK_EQ(clb_packet_release(p[0], &again), CLB_ERR_STATE);
    CHECK(again.data == NULL && again.context == NULL);
    CHECK(pooled || t.freed == 0);
    for (int i = 0; i < 3; i++) {
        clb_packet_free(&p[i]);
    }
    CHECK(pooled || t.freed == 0);
    clb_buf_free(&al, &b0);
    clb_buf_free(&al, &b1);
    clb_buf_free(&al, &b2);
    CHECK_EQ(t.given, pooled ? 0 : 3);
    CHECK_EQ(t.released, pooled ? 0 : 3);
    talloc_check(&t);
}

int main(void)
{
    check_watchdog(60);
    const int fds = check_fds(), threads = check_threads();
    for (enum end e = BY_CLOSE; e < ENDS; e++) {
        hold_and_end(e, false);
        hold_and_end(e, true);
        check_back_to(fds, threads);
    }
    return 0;
}
