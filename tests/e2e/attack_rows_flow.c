/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the table in section 10 of the wire protocol's description: what goes on over time. Each
 * test is named after its row.
 */
#include "rows.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- floods ------------------------------------------------------------------------------------ */

#define FLOOD 20000

static void *send_flood(void *arg)
{
    static const uint32_t types[] = {CLBI_PING_REQ, CLBI_CREATE_STREAM_REQ, CLBI_CLOSE_STREAM_REQ,
                                     CLBI_READ_REL_REQ};
    struct peer *p = arg;
    for (int k = 0; k < FLOOD; k++) {
        const uint32_t type = types[k % 4];
        CHECK(peer_send_header(p, type, k, type == CLBI_CREATE_STREAM_REQ ? "f" : NULL, 4711, 64,
                               CLBI_FLAG_ACK));
    }
    return NULL;
}

/* Sends as fast as it can, and takes what comes: every request has its answer, in order. */
static void floods(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    pthread_t t;
    announced(p, 4096);
    CHECK_EQ(pthread_create(&t, NULL, send_flood, p), 0);
    check_sleep_ms(sc->arg);
    for (int k = 0; k < FLOOD;) {
        CHECK(peer_recv(p, &h, NULL, 10000));
        if (h.type >= CLBI_WRITE_RESP) {
            CHECK_EQ(h.id, k);
            k++;
        }
    }
    pthread_join(t, NULL);
    passed(p, sc);
}

void flood_is_answered(const void *where)
{
    row(where, floods, 0, NO_WRITES, CLB_OK);
}

/* The sockets are full both ways before the first answer is taken: reading has to wait. */
void flood_is_answered_late(const void *where)
{
    row(where, floods, 150, NO_WRITES, CLB_OK);
}

/* ---- ends -------------------------------------------------------------------------------------- */

static void closes_too_early(struct peer *p, struct scene *sc)
{
    int i = announced(p, 4096);
    const uint32_t id = p->stream[i].id;
    CHECK(peer_write_fill(p, i, 1, 100, 5000));
    for (int k = 0; k < 3; k++) {
        const struct clbi_wire_header *h = ask(p, CLBI_CLOSE_STREAM_REQ, NULL, id, 0);
        CHECK_EQ(h->flags, CLBI_FLAG_NACK);
        CHECK_EQ(h->stream_id, id);
    }
    CHECK(peer_write_fill(p, i, 2, 100, 5000)); /* the half stays */
    step(sc);
    while (p->rel_count < 2) {
        CHECK(peer_pump(p, 10000));
    }
    CHECK_EQ(ask(p, CLBI_CLOSE_STREAM_REQ, NULL, id, 0)->flags, CLBI_FLAG_ACK);
    stay_polite(p, sc);
}

void close_with_unreleased(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = closes_too_early};
    clb_packet *p[2] = {NULL, NULL}, *none = NULL;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    for (int k = 0; k < 2; k++) {
        CHECK_EQ(clb_stream_read(sc.s, &p[k], 10 * SEC), CLB_OK);
    }
    scene_await(&sc, 1);
    clb_packet_free(&p[0]);
    clb_packet_free(&p[1]);
    CHECK_EQ(clb_stream_read(sc.s, &none, 10 * SEC), CLB_ERR_CLOSED);
    CHECK_EQ(clb_link_get_state(sc.link, NULL), CLB_LINK_UP);
    scene_end(&sc);
}

/* When the victim comes up, has opened a stream, is amid a large write, has a packet in hand. */
enum { AT_ONCE, OPENED, AMID_WRITE, UNRELEASED, MOMENTS };

static void resets(struct peer *p, struct scene *sc)
{
    if (sc->arg != AT_ONCE) {
        int i = announced(p, 4096);
        if (sc->arg == UNRELEASED) {
            CHECK(peer_write_fill(p, i, 1, 100, 5000));
        }
        step(sc);
        scene_await(sc, 2);
    }
    peer_send_header(p, CLBI_RESET_REQ, 99, NULL, 0, 0, CLBI_FLAG_ACK);
    moved(sc);
    peer_pump_to_end(p, 10000);
    CHECK(p->eof && p->reset_answered);
}

static int write_much(struct call *c)
{
    static const uint8_t data[MUCH];
    struct clb_iovec iov = {data, sizeof data};
    return clb_stream_write(c->s, &iov, 1, -1);
}

/* Answered, behind what is on its way, and the end of the stream follows. */
void reset_at_any_time(const void *where)
{
    for (int moment = 0; moment < MOMENTS; moment++) {
        struct scene sc = {.where = *(const int *)where, .fn = resets, .arg = moment};
        struct call c;
        clb_packet *held = NULL, *p = NULL;
        int err = scene_open(&sc);
        CHECK(err == CLB_OK || (moment == AT_ONCE && err == CLB_ERR_CLOSED));
        if (!sc.link) {
            scene_end(&sc);
            continue;
        }
        if (moment != AT_ONCE) {
            CHECK_EQ(scene_stream(&sc, 2 * MUCH, 0), CLB_OK);
            scene_await(&sc, 1);
            if (moment == AMID_WRITE) {
                call_begin(&c, &sc, write_much);
                check_sleep_ms(30);
            } else if (moment == UNRELEASED) {
                CHECK_EQ(clb_stream_read(sc.s, &held, 10 * SEC), CLB_OK);
            }
            step(&sc);
            CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_ERR_CLOSED);
        }
        scene_lost(&sc, CLB_ERR_CLOSED, 0);
        if (moment == AMID_WRITE) {
            CHECK_EQ(call_end(&c), CLB_ERR_CLOSED);
        }
        clb_packet_free(&held);
        scene_end(&sc);
    }
}

/* ---- connections ------------------------------------------------------------------------------- */

static void polite(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    step(sc);
    stay_polite(p, sc);
}

/* One is served; others are told so at once, and the first does not notice. */
void second_client(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = polite};
    struct peer p[5];
    struct clbi_wire_header h;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    scene_await(&sc, 1);
    for (int i = 0; i < 5; i++) {
        const int64_t t0 = check_ms();
        peer_connect(&p[i], (uint16_t)atoi(strrchr(clb_listener_uri(sc.listener), ':') + 1));
        CHECK(!peer_recv(&p[i], &h, NULL, 10000));
        CHECK(p[i].eof);
        in_time(t0, 0);
        peer_close(&p[i]);
    }
    CHECK_EQ(clb_link_get_state(sc.link, NULL), CLB_LINK_UP);
    scene_end(&sc);
}

/* Descriptors where none belong: the system closes them, none of ours is taken. */
static void sends_descriptors(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    const int before = check_fds();
    for (int k = 0; k < 40; k++) {
        uint8_t bytes[CLBI_WIRE_HEADER];
        union {
            struct cmsghdr align;
            char room[CMSG_SPACE(8 * sizeof(int))];
        } u;
        struct clbi_wire_header h = {.id = 500 + k, .type = CLBI_PING_REQ};
        struct iovec iov = {bytes, sizeof bytes};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        int fds[8];
        for (int i = 0; i < 8; i++) {
            fds[i] = p->fd;
        }
        memset(&u, 0, sizeof u);
        msg.msg_control = u.room;
        msg.msg_controllen = sizeof u.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fds);
        memcpy(CMSG_DATA(c), fds, sizeof fds);
        clbi_wire_encode(bytes, &h);
        CHECK_EQ(sendmsg(p->fd, &msg, MSG_NOSIGNAL), CLBI_WIRE_HEADER);
        answer(p, CLBI_PING_RESP, 500 + k);
    }
    CHECK_LE(check_fds(), before);
    passed(p, sc);
}

void descriptors_sent_along(const void *where)
{
    row(where, sends_descriptors, 0, NO_WRITES, CLB_OK);
}

/* ---- bytes without meaning --------------------------------------------------------------------- */

static bool zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i]) {
            return false;
        }
    }
    return true;
}

/* What section 4 of the description does not list is 0, after any earlier traffic. */
static void is_clean(const struct clbi_wire_header *h)
{
    const bool create = h->type == CLBI_CREATE_STREAM_REQ || h->type == CLBI_CREATE_STREAM_RESP;
    const bool write = h->type == CLBI_WRITE_REQ || h->type == CLBI_WRITE_RESP;
    const bool release = h->type == CLBI_READ_REL_REQ;
    const bool close = h->type == CLBI_CLOSE_STREAM_REQ || h->type == CLBI_CLOSE_STREAM_RESP;
    const size_t name = create ? strnlen(h->name, sizeof h->name) : 0;
    CHECK_EQ(create, name > 0);
    CHECK(zero(h->name + name, sizeof h->name - name));
    CHECK(create || write || release || close || h->stream_id == 0);
    CHECK(create || write || release || h->size == 0);
    CHECK(h->type >= CLBI_WRITE_RESP || h->flags == CLBI_FLAG_ACK);
    CHECK_LE(h->tnsec, 999999999);
}

static void looks_at_all(struct peer *p, struct scene *sc)
{
    int long_one = peer_create(p, "a name that fills almost all of the field for names", 4096);
    is_clean(&p->last);
    int i = announced(p, 4096);
    is_clean(&p->last);
    for (int k = 0; k < 200; k++) {
        switch (k % 5) {
        case 0: CHECK(peer_write_fill(p, i, 1, (uint32_t)k, 5000)); break;
        case 1: ask(p, CLBI_PING_REQ, "left over", 17, 18); break;
        case 2: ask(p, CLBI_READ_REL_REQ, "left over", 4711, 10); break;
        case 3: ask(p, CLBI_CLOSE_STREAM_REQ, "left over", 4712, 99); break;
        default: ask(p, CLBI_CREATE_STREAM_REQ, "b", 3, 64); break;
        }
        is_clean(&p->last);
        while (peer_pump(p, 1)) {
            is_clean(&p->last);
        }
    }
    CHECK_GE(p->rel_count, 1);
    (void)long_one;
    atomic_store(&sc->made, 100);
    while (!atomic_load(&sc->over) && !p->eof) {
        if (peer_pump(p, 1)) {
            is_clean(&p->last);
        }
    }
}

void answers_carry_no_old_bytes(const void *where)
{
    row(where, looks_at_all, 0, 4096, CLB_OK);
}
