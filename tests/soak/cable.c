/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cable: forwards bytes between receiver and sender, stalls now and then, breaks packets into
 * pieces, and dies at a byte that was chosen. It reads headers (wire section 2) to know where it is.
 * See soak.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soak.h"
#include "wire.h"

#define CHUNK 65536u

struct way {
    int from, to;
    uint8_t buf[CHUNK];
    size_t at, have;
    uint8_t header[CLBI_WIRE_HEADER];
    size_t header_have;
    uint64_t payload_left;
    uint64_t writes;  /* through, complete */
    bool end;         /* nothing more comes, and that was handed on */
    uint32_t trickle; /* so many bytes go in small pieces */
};

static int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    CHECK_GE(fd, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/* Bytes from here to the next place where the parser must look. */
static size_t to_boundary(const struct way *w)
{
    return w->payload_left > 0 ? (size_t)w->payload_left : CLBI_WIRE_HEADER - w->header_have;
}

/* n bytes, not beyond to_boundary(), have gone through. */
static void passed(struct way *w, size_t n)
{
    if (w->payload_left > 0) {
        w->payload_left -= n;
        w->writes += w->payload_left == 0;
    } else {
        memcpy(w->header + w->header_have, w->buf + w->at, n);
        w->header_have += n;
        if (w->header_have == CLBI_WIRE_HEADER) {
            struct clbi_wire_header h;
            clbi_wire_decode(&h, w->header);
            w->header_have = 0;
            if (h.type == CLBI_WRITE_REQ) {
                w->payload_left = h.size;
                w->writes += h.size == 0;
            }
        }
    }
    w->at += n;
    w->have -= n;
}

/* How much may pass before the cut; SIZE_MAX = it is not here. *now: it is exactly here. */
static size_t to_cut(const struct way *w, const struct cut *c, bool armed, size_t start, bool *now)
{
    *now = false;
    if (!armed) {
        return SIZE_MAX;
    }
    bool in_payload = w->payload_left > 0, at_start = !in_payload && w->header_have == 0;
    switch (c->where) {
    case CUT_ANYWHERE: *now = true; return 0;
    case CUT_BETWEEN: *now = at_start; return *now ? 0 : SIZE_MAX;
    case CUT_IN_HEADER:
        *now = !in_payload && w->header_have == c->offset;
        return !in_payload && w->header_have < c->offset ? c->offset - w->header_have
               : *now                                    ? 0
                                                         : SIZE_MAX;
    default: {
        if (!in_payload || start == 0) {
            return SIZE_MAX;
        }
        size_t through = start - (size_t)w->payload_left,
               at = (size_t)((uint64_t)start * c->offset / 1000);
        *now = through == at;
        return through < at ? at - through : *now ? 0 : SIZE_MAX;
    }
    }
}

/* The peer behind fd has closed, or never will say another word. */
static bool gone(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, ms) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void close_hard(int fd)
{
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(fd);
}

static void die(struct cable *c, int host, int device)
{
    c->was_cut = true;
    if (c->cut.how == CUT_HALF) {
        shutdown(host, SHUT_WR);
        close_hard(device);
        /* What the receiver still says goes nowhere. */
        uint8_t sink[4096];
        for (int i = 0; i < 30000 && !atomic_load(&c->enough); i++) {
            struct pollfd p = {.fd = host, .events = POLLIN};
            if (poll(&p, 1, 10) > 0 && recv(host, sink, sizeof sink, MSG_DONTWAIT) <= 0) {
                break;
            }
        }
        close(host);
        return;
    }
    if (c->cut.how == CUT_SILENT) {
        while (!atomic_load(&c->enough) && !(gone(host, 20) && gone(device, 20))) {
        }
    }
    if (c->cut.how == CUT_RESET) {
        close_hard(host);
        close_hard(device);
    } else {
        close(host);
        close(device);
    }
}

/* Hands on what is there; false = the way is broken. *cut_here: stop now. */
static bool forward(struct cable *c, struct way *w, struct rng *r, bool armed, size_t *start,
                    bool *cut_here)
{
    while (w->have > 0) {
        size_t n = to_boundary(w), limit = to_cut(w, &c->cut, armed, *start, cut_here);
        if (*cut_here) {
            return true;
        }
        n = n < w->have ? n : w->have;
        n = n < limit ? n : limit;
        if (w->trickle > 0) {
            uint32_t piece = rng_range(r, 1, 60);
            n = n < piece ? n : piece;
            w->trickle -= w->trickle < piece ? w->trickle : piece;
        }
        ssize_t sent = send(w->to, w->buf + w->at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        bool in_header = w->payload_left == 0;
        passed(w, (size_t)sent);
        if (in_header && w->payload_left > 0) {
            *start = (size_t)w->payload_left;
        }
    }
    return true;
}

static void relay(struct cable *c, int host, int device)
{
    static _Thread_local struct way down, up; /* to the receiver, to the sender */
    memset(&down, 0, sizeof down);
    memset(&up, 0, sizeof up);
    down.from = up.to = device;
    down.to = up.from = host;
    struct rng r = rng_seed(c->seed, 0xCAB1E, 0, 0);
    int64_t begin = 0, stalled_until = 0;
    size_t start[2] = {0, 0};
    for (;;) {
        const int64_t now = check_ms();
        if (begin == 0 && atomic_load(&c->counting)) {
            begin = now;
        }
        bool armed = c->cut.how != CUT_NONE && begin > 0 && now - begin >= c->cut.after_ms,
             cut_here = false;
        /* No place of the kind comes by: then just here. */
        if (armed && now - begin >= c->cut.after_ms + 1500) {
            die(c, host, device);
            break;
        }
        if (now < stalled_until && !armed) {
            check_sleep_ms(1);
            continue;
        }
        bool whole = true;
        for (int i = 0; i < 2 && !cut_here; i++) {
            struct way *w = i ? &up : &down;
            whole =
                forward(c, w, &r, armed && c->cut.back == (i == 1), &start[i], &cut_here) && whole;
            if (!w->end && w->have == 0) {
                ssize_t n = recv(w->from, w->buf, CHUNK, MSG_DONTWAIT);
                if (n == 0) {
                    w->end = true;
                    shutdown(w->to, SHUT_WR);
                } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
                    whole = false;
                } else if (n > 0) {
                    w->at = 0;
                    w->have = (size_t)n;
                    uint32_t dice = rng_below(&r, 1000);
                    w->trickle = dice < 10 ? 300 : 0;
                    if (dice >= 990) {
                        stalled_until = now + rng_range(&r, 1, 60);
                        c->stalls++;
                    }
                }
            }
        }
        if (cut_here) {
            die(c, host, device);
            break;
        }
        if (!whole || (down.end && up.end)) {
            close(host);
            close(device);
            break;
        }
        struct pollfd p[2] = {{.fd = host}, {.fd = device}};
        p[0].events = (short)((!up.end && up.have == 0 ? POLLIN : 0) | (down.have ? POLLOUT : 0));
        p[1].events = (short)((!down.end && down.have == 0 ? POLLIN : 0) | (up.have ? POLLOUT : 0));
        poll(p, 2, 20);
    }
    c->writes_through = down.writes;
}

static void *cable_main(void *arg)
{
    struct cable *c = arg;
    struct pollfd p = {.fd = c->listen_fd, .events = POLLIN};
    CHECK_EQ(poll(&p, 1, 30000), 1);
    int host = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC), device = tcp_socket(), one = 1;
    CHECK_GE(host, 0);
    setsockopt(host, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in a = loopback(c->device_port);
    CHECK_EQ(connect(device, (struct sockaddr *)&a, sizeof a), 0);
    relay(c, host, device);
    return NULL;
}

void cable_start(struct cable *c)
{
    struct sockaddr_in a = loopback(0);
    socklen_t len = sizeof a;
    c->listen_fd = tcp_socket();
    CHECK_EQ(bind(c->listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(listen(c->listen_fd, 1), 0);
    CHECK_EQ(getsockname(c->listen_fd, (struct sockaddr *)&a, &len), 0);
    c->port = ntohs(a.sin_port);
    CHECK_EQ(pthread_create(&c->thread, NULL, cable_main, c), 0);
}

void cable_join(struct cable *c)
{
    CHECK_EQ(pthread_join(c->thread, NULL), 0);
    close(c->listen_fd);
}
