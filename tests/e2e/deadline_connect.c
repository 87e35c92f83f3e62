/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of coming up: the name, the connection, the first PING. */
#include "deadline.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT 300

/* ---- a resolver that hangs --------------------------------------------------------------------- */

static atomic_int hang_ms; /* what a look-up of "hangs.invalid" takes; it is this machine then */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (strcmp(host, "hangs.invalid") != 0 || (hints->ai_flags & AI_NUMERICHOST)) {
        return __real_getaddrinfo(host, port, hints, out);
    }
    check_sleep_ms(atomic_load(&hang_ms));
    return __real_getaddrinfo("127.0.0.1", port, hints, out);
}

static int open_uri(const char *uri, struct clb_status *st)
{
    clb_link *link = NULL;
    int64_t t0 = check_ms();
    int err = clb_link_open(
        &link, clb_link_params(.uri = uri, .connect_timeout_ns = LIMIT * MS, .status = st));
    if (err < 0) {
        in_time(t0, LIMIT);
        CHECK(link == NULL);
        CHECK_EQ(st->err, err);
    }
    clb_link_close(&link);
    return err;
}

static void nothing(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    peer_pump_to_end(p, 5000);
    peer_close(p);
}

void resolve_hangs(const void *arg)
{
    struct clb_status st;
    struct peer p;
    uint16_t port;
    char uri[64];
    const int fds = check_fds(), threads = check_threads();
    int l = peer_listen(&port);
    (void)arg;
    snprintf(uri, sizeof uri, "tcp://hangs.invalid:%u", port);
    atomic_store(&hang_ms, LIMIT + CASES_SLACK_MS + 300);
    CHECK_EQ(open_uri(uri, &st), CLB_ERR_TIMEOUT);
    close(l);
    check_back_to(fds, threads); /* the resolver's thread ends by itself */
    l = peer_listen(&port);
    snprintf(uri, sizeof uri, "tcp://hangs.invalid:%u", port);
    atomic_store(&hang_ms, 10);
    peer_accept_later(&p, l, nothing, NULL);
    CHECK_EQ(open_uri(uri, &st), CLB_OK);
    peer_join(&p);
    close(l);
}

void resolve_hangs_listener(const void *arg)
{
    struct clb_status st;
    clb_listener *l = NULL;
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://hangs.invalid:0"};
    (void)arg;
    lp.link.connect_timeout_ns = LIMIT * MS;
    lp.link.status = &st;
    atomic_store(&hang_ms, LIMIT + CASES_SLACK_MS + 300);
    const int64_t t0 = check_ms();
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_ERR_TIMEOUT);
    in_time(t0, LIMIT);
    CHECK_EQ(st.err, CLB_ERR_TIMEOUT);
    atomic_store(&hang_ms, 10);
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    fresh_device(l);
    clb_listener_close(&l);
}

/* ---- connections that lead nowhere ------------------------------------------------------------- */

/* The system accepts, nobody else does. */
void connect_silent(const void *arg)
{
    struct clb_status st;
    uint16_t port;
    char uri[64];
    int l = peer_listen(&port);
    (void)arg;
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
    CHECK_EQ(open_uri(uri, &st), CLB_ERR_TIMEOUT);
    CHECK(strstr(st.text, "PING"));
    fresh_host(l, port);
    close(l);
}

/* A full backlog answers no SYN: as if packets were dropped on the way. */
void connect_backlog(const void *arg)
{
    struct clb_status st;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    char uri[64];
    int filler[4], l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)arg;
    CHECK_EQ(bind(l, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(listen(l, 0), 0);
    CHECK_EQ(getsockname(l, (struct sockaddr *)&a, &len), 0);
    for (int i = 0; i < 4; i++) {
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(filler[i], (struct sockaddr *)&a, len);
    }
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", ntohs(a.sin_port));
    CHECK_EQ(open_uri(uri, &st), CLB_ERR_TIMEOUT);
    for (int i = 0; i < 4; i++) {
        close(filler[i]);
    }
    CHECK_EQ(listen(l, 16), 0);
    check_sleep_ms(50);
    fresh_host(l, ntohs(a.sin_port));
    close(l);
}

/* An answer that begins in time and does not end: the limit is that of coming up. */
static void dribbles(struct peer *p, struct scene *sc)
{
    uint8_t answer[CLBI_WIRE_HEADER];
    struct clbi_wire_header h;
    struct clbi_wire_header pong = {.type = CLBI_PING_RESP, .flags = CLBI_FLAG_ACK};
    if (!p->host) {
        CHECK(peer_recv(p, &h, NULL, 5000));
        pong.id = h.id;
    } else {
        pong.type = CLBI_PING_REQ;
    }
    clbi_wire_encode(answer, &pong);
    for (int i = 0; i < 80 && !atomic_load(&sc->over); i++) {
        if (!peer_send_raw(p, answer + i, 1)) {
            break;
        }
        check_sleep_ms(20);
    }
    stay(sc);
}

void connect_dribble(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = dribbles, .no_handshake = true};
    sc.params.connect_timeout_ns = LIMIT * MS;
    if (sc.where == DEVICE_TCP) {
        clb_link *none = NULL;
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link = sc.params;
        CHECK_EQ(clb_listener_open(&sc.listener, &lp), CLB_OK);
        peer_connect(&sc.peer, (uint16_t)atoi(strrchr(clb_listener_uri(sc.listener), ':') + 1));
        const int64_t t0 = check_ms();
        struct clbi_wire_header h;
        peer_send_raw(&sc.peer, "", 1);
        while (!sc.peer.eof && check_ms() - t0 < 10000) {
            CHECK(!peer_recv(&sc.peer, &h, NULL, 20)); /* nothing is said to it, either */
            (void)!send(sc.peer.fd, "", 1, MSG_NOSIGNAL);
        }
        in_time(t0, LIMIT);
        CHECK_EQ(clb_listener_accept(sc.listener, &none, 0), CLB_ERR_AGAIN);
        peer_close(&sc.peer);
        fresh_device(sc.listener);
        clb_listener_close(&sc.listener);
        return;
    }
    const int64_t t0 = check_ms();
    CHECK_EQ(scene_open(&sc), CLB_ERR_TIMEOUT);
    in_time(t0, LIMIT);
    scene_end(&sc);
}

/* The peer goes before it has answered: nobody waits for the limit. */
static void goes(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    if (!p->host) {
        CHECK(peer_recv(p, &h, NULL, 5000));
    }
    moved(sc);
    if (sc->arg == 1) {
        peer_abort(p);
    } else if (sc->arg == 2) {
        shutdown(p->fd, SHUT_WR);
        stay(sc);
    }
}

void connect_gone(const void *arg)
{
    for (int how = 0; how < 3; how++) {
        struct scene sc = {
            .where = *(const int *)arg, .fn = goes, .arg = how, .no_handshake = true};
        int err = scene_open(&sc);
        CHECK(err == CLB_ERR_LOST || err == CLB_ERR_IO);
        in_time(atomic_load(&sc.moved), 0);
        scene_end(&sc);
    }
}

/* ---- the first PING ---------------------------------------------------------------------------- */

/* Device role: answers to everything but a PING do not make a link. */
static void no_ping(struct peer *p, struct scene *sc)
{
    moved(sc);
    if (p->host && sc->arg) {
        struct clbi_wire_header h;
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, 5, "a", 0, 4096, CLBI_FLAG_ACK);
        CHECK(peer_recv(p, &h, NULL, 5000));
        CHECK_EQ(h.type, CLBI_CREATE_STREAM_RESP);
    }
    stay(sc);
}

void first_ping(const void *arg)
{
    for (int talks = 0; talks < 2; talks++) {
        struct scene sc = {
            .where = *(const int *)arg, .fn = no_ping, .arg = talks, .no_handshake = true};
        sc.params.connect_timeout_ns = LIMIT * MS;
        const int64_t t0 = check_ms();
        CHECK_EQ(scene_open(&sc), CLB_ERR_TIMEOUT);
        in_time(t0, LIMIT);
        scene_end(&sc);
    }
}

void first_ping_listener(const void *arg)
{
    struct peer p[3];
    clb_listener *l = NULL;
    clb_link *link = NULL;
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 3};
    (void)arg;
    lp.link.connect_timeout_ns = LIMIT * MS;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    for (int i = 0; i < 3; i++) {
        peer_connect(&p[i], (uint16_t)atoi(strrchr(clb_listener_uri(l), ':') + 1));
    }
    const int64_t t0 = check_ms();
    CHECK_EQ(clb_listener_accept(l, &link, 100 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 100);
    for (int i = 0; i < 3; i++) {
        struct clbi_wire_header h;
        CHECK(!peer_recv(&p[i], &h, NULL, 5000));
        CHECK(p[i].eof);
        peer_close(&p[i]);
    }
    in_time(t0, LIMIT);
    fresh_device(l);
    clb_listener_close(&l);
}

/* ---- adopting fails ---------------------------------------------------------------------------- */

static void garbage_or_silence(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    if (!p->host) {
        CHECK(peer_recv(p, &h, NULL, 5000));
    }
    if (sc->arg == 1) {
        uint8_t bytes[CLBI_WIRE_HEADER];
        memset(bytes, 'x', sizeof bytes);
        peer_send_raw(p, bytes, sizeof bytes);
    } else if (sc->arg == 2) {
        peer_send_header(p, CLBI_RESET_REQ, 1, NULL, 0, 0, CLBI_FLAG_ACK);
        if (p->host) {
            CHECK(peer_recv(p, &h, NULL, 5000));
            CHECK_EQ(h.type, CLBI_RESET_RESP);
        }
    }
    scene_await(sc, 1);
    char c = 0;
    while (c != 'h') { /* behind what the link has said */
        CHECK_EQ(recv(p->fd, &c, 1, 0), 1);
    }
    CHECK_EQ(send(p->fd, "ello", 4, MSG_NOSIGNAL), 4);
    stay(sc);
}

/* The descriptor is the caller's as before, and the connection can still be used. */
void adopt_gives_back(const void *arg)
{
    for (int how = 0; how < 3; how++) {
        for (int nonblock = 0; nonblock < 2; nonblock++) {
            struct scene sc = {.where = *(const int *)arg,
                               .fn = garbage_or_silence,
                               .arg = how,
                               .nonblock = nonblock,
                               .no_handshake = true};
            char got[4];
            sc.params.connect_timeout_ns = how ? 20 * SEC : 150 * MS;
            CHECK(scene_open(&sc) < 0);
            const int flags = fcntl(sc.fd, F_GETFL);
            CHECK_EQ((flags & O_NONBLOCK) != 0, nonblock);
            CHECK_EQ(send(sc.fd, "h", 1, MSG_NOSIGNAL), 1);
            step(&sc);
            fcntl(sc.fd, F_SETFL, flags & ~O_NONBLOCK);
            CHECK_EQ(recv(sc.fd, got, 4, MSG_WAITALL), 4);
            CHECK(memcmp(got, "ello", 4) == 0);
            scene_end(&sc);
        }
    }
}

static void until_end(struct peer *p, void *arg)
{
    (void)arg;
    peer_pump_to_end(p, 5000);
    peer_close(p);
}

void adopt_gives_back_tcp(const void *arg)
{
    uint16_t port;
    struct peer p;
    clb_link *link = NULL;
    int l = peer_listen(&port), delay = -1;
    socklen_t len = sizeof delay;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    (void)arg;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    peer_accept(&p, l);
    CHECK_EQ(
        clb_link_adopt(&link, fd, CLB_ROLE_DEVICE, clb_link_params(.connect_timeout_ns = 100 * MS)),
        CLB_ERR_TIMEOUT);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    CHECK_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &delay, &len), 0);
    CHECK_EQ(delay, 0);
    CHECK_EQ(send(fd, "h", 1, MSG_NOSIGNAL), 1);
    CHECK_EQ(recv(p.fd, &delay, 1, 0), 1);
    /* And it can be adopted again. */
    p.host = true;
    peer_send_header(&p, CLBI_PING_REQ, 1, NULL, 0, 0, CLBI_FLAG_ACK);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_DEVICE, NULL), CLB_OK);
    peer_start(&p, until_end, NULL);
    clb_link_close(&link);
    peer_join(&p);
    close(l);
}
