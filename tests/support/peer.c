/* SPDX-License-Identifier: Apache-2.0 */
/* The scripted peer. See peer.h. */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

static void init(struct peer *p, int fd, bool host)
{
    memset(p, 0, sizeof *p);
    p->fd = fd;
    p->host = host;
    p->next_id = 100;
}

int peer_pair(struct peer *p, bool host)
{
    int sv[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    init(p, sv[0], host);
    return sv[1];
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

int peer_listen(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = loopback(0);
    socklen_t len = sizeof a;
    CHECK_GE(fd, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(listen(fd, 16), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void nodelay(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void peer_accept(struct peer *p, int listen_fd)
{
    struct pollfd pfd = {.fd = listen_fd, .events = POLLIN};
    CHECK_EQ(poll(&pfd, 1, 5000), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK_GE(fd, 0);
    nodelay(fd);
    init(p, fd, false);
}

void peer_connect(struct peer *p, uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = loopback(port);
    CHECK_GE(fd, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    nodelay(fd);
    init(p, fd, true);
}

void peer_close(struct peer *p)
{
    if (p->fd >= 0) {
        close(p->fd);
        p->fd = -1;
    }
}

void peer_abort(struct peer *p)
{
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    peer_close(p);
}

static void *thread_main(void *arg)
{
    struct peer *p = arg;
    p->fn(p, p->arg);
    return NULL;
}

void peer_start(struct peer *p, void (*fn)(struct peer *p, void *arg), void *arg)
{
    p->fn = fn;
    p->arg = arg;
    CHECK_EQ(pthread_create(&p->thread, NULL, thread_main, p), 0);
}

static void accept_first(struct peer *p, void *arg)
{
    struct peer got;
    void (*fn)(struct peer *, void *) = p->fn_later;
    (void)arg;
    peer_accept(&got, p->listen_fd);
    p->fd = got.fd;
    fn(p, p->arg_later);
}

void peer_accept_later(struct peer *p, int listen_fd, void (*fn)(struct peer *p, void *arg),
                       void *arg)
{
    init(p, -1, false);
    p->listen_fd = listen_fd;
    p->fn_later = fn;
    p->arg_later = arg;
    peer_start(p, accept_first, NULL);
}

void peer_join(struct peer *p)
{
    CHECK_EQ(pthread_join(p->thread, NULL), 0);
}

/* ---- bytes ------------------------------------------------------------------------------------ */

bool peer_send_raw(struct peer *p, const void *data, size_t n)
{
    const uint8_t *d = data;
    if (p->limited) {
        p->dead |= n > p->send_left;
        n = n < p->send_left ? n : p->send_left;
        p->send_left -= n;
    }
    while (n > 0) {
        ssize_t r = send(p->fd, d, n, MSG_NOSIGNAL);
        if (r < 0 && errno == EINTR) {
            continue;
        }
        if (r <= 0) {
            return false;
        }
        d += r;
        n -= (size_t)r;
    }
    return !p->dead;
}

bool peer_send_header(struct peer *p, uint32_t type, int32_t id, const char *name,
                      uint32_t stream_id, uint32_t size, uint32_t flags)
{
    struct clbi_wire_header h = {.id = id,
                                 .type = type,
                                 .tnsec = 5,
                                 .tsec = 7,
                                 .stream_id = stream_id,
                                 .size = size,
                                 .flags = flags};
    uint8_t bytes[CLBI_WIRE_HEADER];
    if (name) {
        strncpy(h.name, name, sizeof h.name - 1);
    }
    clbi_wire_encode(bytes, &h);
    return peer_send_raw(p, bytes, sizeof bytes);
}

static bool recv_all(struct peer *p, void *data, size_t n, int ms)
{
    uint8_t *d = data;
    const int64_t until = check_ms() + ms;
    while (n > 0) {
        struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
        int64_t left = until - check_ms();
        int r = poll(&pfd, 1, left > 0 ? (int)left : 0);
        if (r < 0 && errno == EINTR) {
            continue;
        }
        if (r == 0) {
            return false;
        }
        ssize_t k = recv(p->fd, d, n, 0);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            p->eof = true;
            return false;
        }
        d += k;
        n -= (size_t)k;
    }
    return true;
}

bool peer_recv(struct peer *p, struct clbi_wire_header *h, void **payload, int ms)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    if (payload) {
        *payload = NULL;
    }
    struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
    if (p->eof || poll(&pfd, 1, ms) <= 0 || !recv_all(p, bytes, sizeof bytes, 5000)) {
        return false;
    }
    clbi_wire_decode(h, bytes);
    p->last = *h;
    if (h->type == CLBI_WRITE_REQ && h->size > 0) {
        void *data = malloc(h->size);
        CHECK(data != NULL);
        if (!recv_all(p, data, h->size, 10000)) {
            free(data);
            return false;
        }
        if (payload) {
            *payload = data;
        } else {
            free(data);
        }
    }
    return true;
}

/* ---- manners ---------------------------------------------------------------------------------- */

static struct peer_stream *by_id(struct peer *p, uint32_t id)
{
    for (int i = 0; i < PEER_STREAMS; i++) {
        if (p->stream[i].used && p->stream[i].id == id) {
            return &p->stream[i];
        }
    }
    return NULL;
}

static struct peer_stream *by_name(struct peer *p, const char *name)
{
    struct peer_stream *unused = NULL;
    for (int i = 0; i < PEER_STREAMS; i++) {
        if (p->stream[i].used && strncmp(p->stream[i].name, name, 51) == 0) {
            return &p->stream[i];
        }
        if (!p->stream[i].used && !unused) {
            unused = &p->stream[i];
        }
    }
    CHECK(unused != NULL);
    unused->used = true;
    unused->id = CLBI_ID_NONE;
    strncpy(unused->name, name, sizeof unused->name - 1);
    return unused;
}

static void on_release(struct peer *p, const struct clbi_wire_header *h)
{
    struct peer_stream *s = by_id(p, h->stream_id);
    CHECK(s != NULL);
    p->last_release_id = h->id;
    if (p->by_hand) {
        p->rel_log[p->rel_count++ % 256] = h->size;
        peer_send_header(p, CLBI_READ_REL_RESP, h->id, NULL, 0, 0, CLBI_FLAG_ACK);
        return;
    }
    CHECK_GE(s->fill, h->size);
    CHECK_GE(s->fill_packets, 1);
    s->fill -= h->size;
    s->fill_packets--;
    s->released++;
    s->released_bytes += h->size;
    p->rel_log[p->rel_count++ % 256] = h->size;
    if (!p->mute_releases) {
        peer_send_header(p, CLBI_READ_REL_RESP, h->id, NULL, 0, 0, CLBI_FLAG_ACK);
    }
}

static void on_create(struct peer *p, const struct clbi_wire_header *h)
{
    char name[52];
    memcpy(name, h->name, sizeof name);
    name[51] = '\0';
    struct peer_stream *s = by_name(p, name);
    s->created = true;
    s->their_window = h->size;
    if (!p->host) {
        s->id = h->stream_id; /* the host numbers the streams */
    } else if (s->id == CLBI_ID_NONE) {
        s->id = (uint32_t)(s - p->stream);
    }
    peer_send_header(p, CLBI_CREATE_STREAM_RESP, h->id, name, s->id, h->size, CLBI_FLAG_ACK);
}

bool peer_pump(struct peer *p, int ms)
{
    struct clbi_wire_header h;
    if (!peer_recv(p, &h, NULL, ms)) {
        return false;
    }
    struct peer_stream *s;
    if (p->deaf) {
        return true;
    }
    switch (h.type) {
    case CLBI_PING_REQ:
        p->pings++;
        peer_send_header(p, CLBI_PING_RESP, h.id, NULL, 0, 0, CLBI_FLAG_ACK);
        break;
    case CLBI_PING_RESP: p->pongs++; break;
    case CLBI_CREATE_STREAM_REQ: on_create(p, &h); break;
    case CLBI_CREATE_STREAM_RESP:
        if (h.flags & CLBI_FLAG_ACK) {
            s = by_name(p, h.name);
            s->id = h.stream_id;
        }
        break;
    case CLBI_WRITE_REQ:
        peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
        peer_send_header(p, CLBI_READ_REL_REQ, p->next_id++, NULL, h.stream_id, h.size,
                         CLBI_FLAG_ACK);
        break;
    case CLBI_WRITE_RESP:
        s = by_id(p, h.stream_id);
        if (s) {
            s->acked += (h.flags & CLBI_FLAG_ACK) != 0;
            s->nacked += (h.flags & CLBI_FLAG_NACK) != 0;
        }
        break;
    case CLBI_READ_REL_REQ: on_release(p, &h); break;
    case CLBI_CLOSE_STREAM_REQ:
        peer_send_header(p, CLBI_CLOSE_STREAM_RESP, h.id, NULL, h.stream_id, 0, CLBI_FLAG_ACK);
        break;
    case CLBI_RESET_REQ:
        p->got_reset = true;
        peer_send_header(p, CLBI_RESET_RESP, h.id, NULL, 0, 0, CLBI_FLAG_ACK);
        break;
    case CLBI_RESET_RESP: p->reset_answered = true; break;
    default: break;
    }
    return true;
}

bool peer_pump_until(struct peer *p, bool (*cond)(struct peer *p, void *arg), void *arg, int ms)
{
    const int64_t until = check_ms() + ms;
    while (!cond(p, arg)) {
        int64_t left = until - check_ms();
        if (left <= 0 || p->eof) {
            return false;
        }
        peer_pump(p, left < 20 ? (int)left : 20);
    }
    return true;
}

void peer_pump_to_end(struct peer *p, int ms)
{
    const int64_t until = check_ms() + ms;
    while (!p->eof && check_ms() < until) {
        peer_pump(p, 20);
    }
}

bool peer_handshake(struct peer *p)
{
    if (p->host) {
        peer_send_header(p, CLBI_PING_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK);
    }
    const int64_t until = check_ms() + 5000;
    while ((p->host ? p->pongs : p->pings) == 0) {
        if (p->eof || check_ms() > until) {
            return false;
        }
        peer_pump(p, 50);
    }
    return true;
}

int peer_create(struct peer *p, const char *name, uint32_t window)
{
    struct peer_stream *s = by_name(p, name);
    s->window = window;
    if (p->host && s->id == CLBI_ID_NONE) {
        s->id = (uint32_t)(s - p->stream);
    }
    const int32_t id = p->next_id++;
    peer_send_header(p, CLBI_CREATE_STREAM_REQ, id, name, s->id, window, CLBI_FLAG_ACK);
    const int64_t until = check_ms() + 5000;
    while (!(p->last.type == CLBI_CREATE_STREAM_RESP && p->last.id == id)) {
        CHECK(!p->eof);
        CHECK(check_ms() < until);
        peer_pump(p, 50);
    }
    return (int)(s - p->stream);
}

struct credit {
    struct peer_stream *s;
    uint32_t n;
};

static bool has_credit(struct peer *p, void *arg)
{
    const struct credit *c = arg;
    (void)p;
    return c->s->fill_packets < 64 && c->s->fill + c->n <= c->s->window;
}

bool peer_write(struct peer *p, int stream, const void *data, uint32_t n, int ms)
{
    struct peer_stream *s = &p->stream[stream];
    struct credit c = {.s = s, .n = n};
    while (peer_pump(p, 0)) {
    }
    if (!peer_pump_until(p, has_credit, &c, ms)) {
        return false;
    }
    s->fill += n;
    s->fill_packets++;
    s->sent++;
    return peer_send_header(p, CLBI_WRITE_REQ, p->next_id++, NULL, s->id, n, CLBI_FLAG_ACK) &&
           (n == 0 || peer_send_raw(p, data, n));
}

bool peer_write_fill(struct peer *p, int stream, int value, uint32_t n, int ms)
{
    void *data = malloc(n ? n : 1);
    CHECK(data != NULL);
    memset(data, value, n);
    bool ok = peer_write(p, stream, data, n, ms);
    free(data);
    return ok;
}

static bool all_acked(struct peer *p, void *arg)
{
    (void)arg;
    for (int i = 0; i < PEER_STREAMS; i++) {
        const struct peer_stream *s = &p->stream[i];
        if (s->used && s->acked + s->nacked < s->sent) {
            return false;
        }
    }
    return true;
}

bool peer_wait_acked(struct peer *p, int ms)
{
    return peer_pump_until(p, all_acked, NULL, ms);
}
