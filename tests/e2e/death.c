/* SPDX-License-Identifier: Apache-2.0 */
/* See death.h. */
#include "death.h"

#include <sys/socket.h>
#include <unistd.h>

#define IN_PACKET 70
#define OUT_PACKET 60
/* PING or its answer; CREATE, WRITE and CLOSE; the answers to CREATE, release, WRITE (with a release),
 * CLOSE and RESET. */
#define SESSION (10 * CLBI_WIRE_HEADER + IN_PACKET)
#define ENDLESS SIZE_MAX
#define WORKERS 16

/* One address, and one session after the other on it. */
struct place {
    struct death how;
    int l;
    uint16_t port;
    char uri[64];
    clb_listener *listener;
    size_t first, stride; /* k of this worker */

    size_t k; /* of the session that runs; ENDLESS = the peer lives */
    atomic_int over;
    /* what the peer got to say, whole */
    size_t said;
    bool wrote, acked;
    /* what our side saw */
    int got, write_result;
};

/* ---- the peer ---------------------------------------------------------------------------------- */

/* Takes one header and answers; false = dead, or alone. */
static bool pump(struct peer *p)
{
    return !p->dead && !p->eof && (peer_pump(p, 10) || !p->eof) && !p->dead;
}

static void live(struct peer *p, struct place *pl)
{
    static const uint8_t payload[IN_PACKET] = {1, 2, 3};
    while ((p->host ? p->pongs : p->pings) == 0) {
        if (p->host && p->next_id == 100) {
            peer_send_header(p, CLBI_PING_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK);
        }
        if (!pump(p)) {
            return;
        }
    }
    struct peer_stream *s = &p->stream[0];
    *s = (struct peer_stream){.used = true, .name = "a", .id = p->host ? 0 : CLBI_ID_NONE};
    if (!peer_send_header(p, CLBI_CREATE_STREAM_REQ, p->next_id++, "a", s->id, 4096,
                          CLBI_FLAG_ACK)) {
        return;
    }
    while (!s->created || s->id == CLBI_ID_NONE || p->last.type != CLBI_CREATE_STREAM_REQ) {
        if (!pump(p)) {
            return;
        }
    }
    s->fill = IN_PACKET;
    s->fill_packets = 1;
    if (!peer_send_header(p, CLBI_WRITE_REQ, p->next_id++, NULL, s->id, IN_PACKET, CLBI_FLAG_ACK) ||
        !peer_send_raw(p, payload, IN_PACKET)) {
        return;
    }
    pl->wrote = true;
    while (p->last.type != CLBI_WRITE_REQ) {
        const bool room = p->send_left >= CLBI_WIRE_HEADER; /* for the answer */
        const bool on = pump(p);
        pl->acked = p->last.type == CLBI_WRITE_REQ && room;
        if (!on) {
            return;
        }
    }
    if (!peer_send_header(p, CLBI_CLOSE_STREAM_REQ, p->next_id++, NULL, s->id, 0, CLBI_FLAG_ACK)) {
        return;
    }
    while (pump(p)) {
    }
}

static void live_and_die(struct peer *p, void *arg)
{
    struct place *pl = arg;
    struct clbi_wire_header h;
    const size_t all = (size_t)1 << 30;
    p->limited = true;
    p->send_left = pl->k == ENDLESS ? all : pl->k;
    live(p, pl);
    pl->said = all - p->send_left;
    switch (pl->k == ENDLESS ? BY_CLOSE : pl->how.by) {
    case BY_RESET: peer_abort(p); return;
    case BY_CLOSE:
    case BY_HALF:
        shutdown(p->fd, SHUT_WR);
        while (!p->eof && peer_recv(p, &h, NULL, 5000)) {
        }
        break;
    case BY_SILENCE:
        for (int i = 0; i < 20000 && !atomic_load(&pl->over); i++) {
            check_sleep_ms(1);
        }
        break;
    }
    peer_close(p);
}

/* ---- our side ---------------------------------------------------------------------------------- */

static void limits(const struct place *pl, clb_link_params *lp)
{
    lp->keepalive_ns = -1;
    if (pl->how.by == BY_SILENCE && pl->k != ENDLESS) {
        lp->connect_timeout_ns = 100 * MS;
        lp->progress_timeout_ns = 60 * MS;
        lp->keepalive_ns = 30 * MS;
        lp->idle_timeout_ns = 100 * MS;
        lp->close_timeout_ns = 40 * MS;
    }
}

static int open_link(struct place *pl, struct peer *peer, clb_link **link)
{
    clb_link_params lp = {.struct_size = sizeof lp, .uri = pl->uri};
    const bool device = pl->how.where == DEVICE_TCP || pl->how.where == DEVICE_UNIX;
    limits(pl, &lp);
    if (pl->how.where == HOST_TCP) {
        peer_accept_later(peer, pl->l, live_and_die, pl);
        return clb_link_open(link, &lp);
    }
    if (pl->how.where == DEVICE_TCP) {
        while (clb_listener_accept(pl->listener, link, 0) == CLB_OK) {
            clb_link_close(link); /* came up too late for the session before */
        }
        peer_connect(peer, pl->port);
        peer_start(peer, live_and_die, pl);
        return clb_listener_accept(pl->listener, link,
                                   pl->k < CLBI_WIRE_HEADER   ? 20 * MS
                                   : pl->how.by == BY_SILENCE ? SEC
                                                              : 10 * SEC);
    }
    int fd = peer_pair(peer, device);
    peer_start(peer, live_and_die, pl);
    int err = clb_link_adopt(link, fd, device ? CLB_ROLE_DEVICE : CLB_ROLE_HOST, &lp);
    if (err < 0) {
        close(fd);
    }
    return err;
}

static bool over(int err)
{
    return err == CLB_ERR_LOST || err == CLB_ERR_CLOSED;
}

static void use(struct place *pl, clb_link *link, struct talloc *mem)
{
    static const uint8_t data[OUT_PACKET];
    struct clb_iovec iov = {data, sizeof data};
    clb_stream *s = NULL;
    clb_packet *p = NULL;
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .write_window = 4096};
    sp.allocator = talloc_allocator(mem);
    int err = clb_stream_open(&s, link, &sp);
    CHECK(err == CLB_OK || over(err));
    if (!s) {
        return;
    }
    err = clb_stream_read(s, &p, 10 * SEC);
    CHECK(err == CLB_OK || over(err));
    if (err == CLB_OK) {
        const uint8_t *b = clb_packet_data(p);
        CHECK_EQ(clb_packet_size(p), IN_PACKET);
        CHECK(b[0] == 1 && b[1] == 2 && b[2] == 3 && b[IN_PACKET - 1] == 0);
        pl->got = 1;
        clb_packet_free(&p);
    }
    pl->write_result = clb_stream_write(s, &iov, 1, 10 * SEC);
    CHECK(pl->write_result == CLB_OK || pl->write_result == CLB_ERR_TIMEOUT ||
          over(pl->write_result));
    err = clb_stream_flush(s, CLB_FLUSH_RELEASED, 10 * SEC);
    CHECK(err == CLB_OK || over(err));
    err = clb_stream_read(s, &p, 10 * SEC);
    CHECK(over(err));
    clb_stream_close(&s);
}

/* One session, whose peer dies behind byte k. */
static void session(struct place *pl, size_t k)
{
    struct peer peer;
    struct talloc mem;
    clb_link *link = NULL;
    const int64_t t0 = check_ms();
    pl->k = k;
    pl->wrote = pl->acked = false;
    pl->got = 0;
    pl->write_result = CLB_ERR_LOST;
    atomic_store(&pl->over, 0);
    talloc_init(&mem, NULL);
    int err = open_link(pl, &peer, &link);
    CHECK_EQ(err == CLB_OK, link != NULL);
    CHECK(k >= CLBI_WIRE_HEADER || err < 0);
    if (link) {
        use(pl, link, &mem);
    } else {
        CHECK(err == CLB_ERR_LOST || err == CLB_ERR_IO || err == CLB_ERR_TIMEOUT ||
              err == CLB_ERR_CLOSED);
    }
    clb_link_close(&link);
    atomic_store(&pl->over, 1);
    peer_join(&peer);
    talloc_check(&mem);
    in_time(t0, pl->how.by == BY_SILENCE ? 1400 : 1000); /* many turns between threads */
    /* What was not said whole has not happened; a write succeeds through its answer alone. */
    CHECK(!pl->got || pl->wrote);
    CHECK(pl->write_result != CLB_OK || pl->acked);
}

/* A fresh link to the same address works. Where silence is noticed fast a busy machine may be silent
 * for as long, so it gets several tries; there are keep-alives, too. */
static void fresh_link(struct place *pl)
{
    const bool patient = pl->how.by != BY_SILENCE;
    int tries = 0;
    do {
        session(pl, ENDLESS);
    } while (!patient && pl->write_result != CLB_OK && ++tries < 20);
    CHECK_EQ(pl->got, 1);
    CHECK_EQ(pl->write_result, CLB_OK);
    CHECK(pl->said == SESSION || !patient);
}

static void *every_byte(void *arg)
{
    struct place *pl = arg;
    const int fds = check_fds(), threads = check_threads();
    if (pl->how.where == HOST_TCP) {
        pl->l = peer_listen(&pl->port);
        snprintf(pl->uri, sizeof pl->uri, "tcp://127.0.0.1:%u", pl->port);
    } else if (pl->how.where == DEVICE_TCP) {
        clb_listener_params lp = {
            .struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 4};
        limits(pl, &lp.link);
        CHECK_EQ(clb_listener_open(&pl->listener, &lp), CLB_OK);
        pl->port = (uint16_t)atoi(strrchr(clb_listener_uri(pl->listener), ':') + 1);
    }
    fresh_link(pl);
    const int fds1 = check_fds(), threads1 = check_threads();
    for (size_t k = pl->first; k < SESSION; k += pl->stride) {
        session(pl, k);
        if (pl->stride == 1) {
            check_back_to(fds1, threads1);
        }
        fresh_link(pl);
    }
    clb_listener_close(&pl->listener);
    if (pl->l >= 0) {
        close(pl->l);
    }
    if (pl->stride == 1) {
        check_back_to(fds, threads);
    }
    return NULL;
}

void death_at_every_byte(const void *arg)
{
    static struct place pl[WORKERS];
    pthread_t t[WORKERS];
    const struct death *how = arg;
    const int n = how->by == BY_SILENCE ? WORKERS : 1;
    for (int i = 0; i < n; i++) {
        pl[i] = (struct place){
            .how = *how, .l = -1, .first = (size_t)i, .stride = (size_t)n, .k = ENDLESS};
        if (n == 1) {
            every_byte(&pl[0]);
        } else {
            pl[i].k = 0; /* limits of the listener */
            CHECK_EQ(pthread_create(&t[i], NULL, every_byte, &pl[i]), 0);
        }
    }
    for (int i = 0; i < n && n > 1; i++) {
        pthread_join(t[i], NULL);
    }
}
