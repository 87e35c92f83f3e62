/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that go: in the middle of a header, or with packets and a goodbye still in the socket. */
#include <unistd.h>

#include "flow_kit.h"

static struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

/* ---- a peer that stops in the middle of a header ---------------------------------------------- */

static void half_header(struct peer *p, void *arg)
{
    (void)arg;
    uint8_t bytes[CLBI_WIRE_HEADER + PKT + CLBI_WIRE_HEADER / 2] = {0};
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    struct clbi_wire_header h = {
        .id = 7, .type = CLBI_WRITE_REQ, .stream_id = p->stream[a].id, .size = PKT, .flags = 1};
    clbi_wire_encode(bytes, &h);
    gate_wait(&gate, 1);
    CHECK(peer_send_raw(p, bytes, sizeof bytes)); /* in one piece: it is read ahead */
    p->deaf = true;
    peer_pump_to_end(p, 20000);
    peer_close(p);
}

/* A started header has to move on, also when its first half came with the payload before it. */
static void half_header_is_noticed(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    gate_to(&gate, 0);
    peer_start(&p, half_header, NULL);
    clb_link *link = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST,
                            clb_link_params(.progress_timeout_ns = 300000000, .keepalive_ns = -1,
                                            .idle_timeout_ns = -1)),
             CLB_OK);
    clb_stream *s = open_stream(link, "a", NULL, CLB_FULL_BLOCK, 0);
    gate_to(&gate, 1);
    clb_packet *pk = read_value(s, 0);
    clb_packet_free(&pk);
    CHECK_EQ(clb_stream_read(s, &pk, 10 * SEC), CLB_ERR_LOST);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* ---- a peer that says goodbye and goes -------------------------------------------------------- */

static void write_reset_close(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    gate_wait(&gate, 1);
    for (int i = 0; i < 4; i++) {
        CHECK(peer_write_fill(p, a, i, PKT, 5000));
    }
    CHECK(peer_send_header(p, CLBI_RESET_REQ, 900, NULL, 0, 0, CLBI_FLAG_ACK));
    peer_close(p);
    gate_to(&gate, 2);
}

/* Our answers meet a closed socket while packets and the RESET are not read yet: all of them count, and
 * the end is an orderly one. */
static void goodbye_in_the_socket(bool tcp)
{
    struct peer p;
    uint16_t port;
    int listen_fd = tcp ? peer_listen(&port) : -1;
    int fd = -1;
    gate_to(&gate, 0);
    if (tcp) {
        struct peer us;
        peer_connect(&us, port);
        fd = us.fd;
        peer_accept(&p, listen_fd);
        close(listen_fd);
    } else {
        fd = peer_pair(&p, false);
    }
    peer_start(&p, write_reset_close, NULL);
    clb_loop *loop = NULL;
    clb_link *link = NULL;
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.loop = loop)), CLB_OK);
    clb_stream *s = open_stream(link, "a", NULL, CLB_FULL_BLOCK, 0);
    gate_to(&gate, 1);
    gate_wait(&gate, 2); /* all is said and the socket closed; nobody has looked at ours */
    for (int i = 0; i < 4; i++) {
        clb_packet *pk = read_value(s, i);
        clb_packet_free(&pk);
    }
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(s, &none, 5 * SEC), CLB_ERR_CLOSED);
    struct clb_status why;
    clb_link_get_state(link, &why);
    CHECK_EQ(why.err, CLB_ERR_CLOSED);
    clb_stream_close(&s);
    clb_link_close(&link);
    clb_loop_destroy(&loop);
    peer_join(&p);
}

int main(void)
{
    check_watchdog(200);
    RUN(half_header_is_noticed());
    RUN(goodbye_in_the_socket(true));
    RUN(goodbye_in_the_socket(false));
    return 0;
}
