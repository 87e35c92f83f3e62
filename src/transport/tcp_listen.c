/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets of the TCP transport.
 */
#include "log.h"
#include "os.h"
#include "tcp_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BACKLOG 16
#define ACCEPTS_PER_WAKEUP 16
/* With no descriptor left, connections wait in the backlog this long before the next look. */
#define PAUSE_NS (100 * CLBI_MS)

struct clbi_acceptor {
    struct clbi_acceptor_env env;
    int fd;
    int timerfd; /* ends a pause; opened with the listener, as it is needed when none can be */
    struct clbi_watch watch, timer_watch;
    bool started;
    bool starved; /* told the log already */
    bool inside;  /* a callback of the owner may be running */
    bool closed;  /* from inside: freed when the callback is back */
};

/* ---- opening --------------------------------------------------------------------------------- */

static int fail_listen(struct clb_status *st, const struct clb_log *log, int native,
                       const char *where)
{
    switch (native) {
    case EADDRINUSE:
        return clbi_tcp_fail(st, log, CLB_ERR_BUSY, native,
                             "another program listens there; choose another port, 0 for a free one",
                             "listen on %s failed", where);
    case EACCES:
    case EPERM:
        return clbi_tcp_fail(st, log, CLB_ERR_ACCESS, native,
                             "ports below 1024 are for root; choose another", "listen on %s failed",
                             where);
    case EADDRNOTAVAIL:
        return clbi_tcp_fail(st, log, CLB_ERR_NODEV, native,
                             "no network interface has this address; use * for all of them",
                             "listen on %s failed", where);
    case ENOMEM:
    case ENOBUFS:
        return clbi_tcp_fail(st, log, CLB_ERR_NOMEM, native, NULL, "listen on %s failed", where);
    default: return clbi_tcp_fail(st, log, CLB_ERR_IO, native, NULL, "listen on %s failed", where);
    }
}

/* A listening socket, or -1 with errno. */
static int listen_on(const struct sockaddr *addr, socklen_t len)
{
    const int on = 1, off = 0;
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP), err;

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* [::] serves IPv4 as well, whatever the system's default. */
    if (addr->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, addr, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

static int listen_any(uint16_t port)
{
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = listen_on((struct sockaddr *)&v6, sizeof v6);

    if (fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
        fd = listen_on((struct sockaddr *)&v4, sizeof v4);
    return fd;
}

static bool is_any(const struct clbi_hostport *hp)
{
    return strcmp(hp->host, "*") == 0;
}

/* Blocks until the deadline at most. */
static int look_up(const struct clbi_hostport *hp, const struct clb_log *log, int64_t deadline,
                   struct addrinfo **out, struct clb_status *st)
{
    struct clbi_tcp_resolve *job;
    int rc, gai = clbi_tcp_numeric(hp, AI_PASSIVE, out);

    if (gai == 0)
        return CLB_OK;
    if (gai != EAI_NONAME)
        return clbi_tcp_resolve_fail(st, log, hp->host, gai, errno);
    if (hp->bracketed)
        return clbi_fail(st, log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "an IPv6 address in brackets expected, got \"%.64s\"", hp->host);
    job = clbi_tcp_resolve_start(hp, AI_PASSIVE);
    if (!job)
        return clbi_tcp_fail(st, log, errno == ENOMEM ? CLB_ERR_NOMEM : CLB_ERR_IO, errno, NULL,
                             "look up host \"%.64s\"", hp->host);
    for (;;) {
        struct pollfd p = {.fd = clbi_tcp_resolve_fd(job), .events = POLLIN};
        int64_t left = deadline == CLBI_NEVER ? CLBI_NEVER : deadline - clbi_now_ns();
        int ms = left <= 0 ? 0 : left > 3600 * CLBI_SEC ? 3600000 : (int)(left / CLBI_MS) + 1;

        rc = clbi_tcp_resolve_result(job, out, st, log);
        if (rc != CLB_ERR_AGAIN)
            break;
        if (left <= 0) {
            rc = clbi_fail(st, log, CLB_ERR_TIMEOUT, CLB_DOMAIN_NONE, 0,
                           "look up host \"%.64s\": no answer in time; give the address", hp->host);
            break;
        }
        poll(&p, 1, ms);
    }
    clbi_tcp_resolve_drop(job);
    return rc;
}

static void accept_event(void *priv, uint32_t events);
static void timer_event(void *priv, uint32_t events);

/* A listening socket for what was asked, and its address as text; -1 with *rc: the failure. */
static int open_socket(const struct clbi_hostport *hp, const struct clb_log *log, int64_t deadline,
                       char *text, size_t cap, struct clb_status *st, int *rc)
{
    struct addrinfo *addrs = NULL;
    int fd = -1, err = 0;

    if (is_any(hp)) {
        fd = listen_any(hp->port);
        err = errno;
        snprintf(text, cap, "*:%u", hp->port);
    } else {
        *rc = look_up(hp, log, deadline, &addrs, st);
        if (*rc < 0)
            return -1;
        for (struct addrinfo *ai = addrs; ai && fd < 0; ai = ai->ai_next) {
            fd = listen_on(ai->ai_addr, ai->ai_addrlen);
            err = errno;
            clbi_tcp_addr_text(text, cap, ai->ai_addr, ai->ai_addrlen);
        }
        freeaddrinfo(addrs);
    }
    if (fd < 0)
        *rc = fail_listen(st, log, err, text);
    return fd;
}

int clbi_tcp_listen(struct clbi_acceptor **out, const struct clbi_acceptor_env *env,
                    const char *address, int64_t deadline, char *uri, size_t uri_cap,
                    struct clb_status *st)
{
    const struct clb_log *log = &env->log;
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;
    struct clbi_hostport hp;
    struct clbi_acceptor *a;
    char text[100];
    int rc, fd;

    *out = NULL;
    rc = clbi_hostport_parse(&hp, address, CLBI_TCP_PORT, st, log);
    if (rc < 0)
        return rc;
    fd = open_socket(&hp, log, deadline, text, sizeof text, st, &rc);
    if (fd < 0)
        return rc;

    a = calloc(1, sizeof *a);
    if (!a) {
        close(fd);
        return clbi_fail(st, log, CLB_ERR_NOMEM, CLB_DOMAIN_NONE, 0, "listen on %s: no memory",
                         text);
    }
    a->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (a->timerfd < 0 || getsockname(fd, (struct sockaddr *)&ss, &len) < 0) {
        int err = errno;
        if (a->timerfd >= 0)
            close(a->timerfd);
        free(a);
        close(fd);
        return fail_listen(st, log, err, text);
    }
    if (is_any(&hp)) /* what a peer on this machine can use, whichever family it speaks */
        snprintf(text, sizeof text, "0.0.0.0:%u",
                 ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                                : ((struct sockaddr_in *)&ss)->sin_port));
    else
        clbi_tcp_addr_text(text, sizeof text, (struct sockaddr *)&ss, len);
    snprintf(uri, uri_cap, "tcp://%s", text);

    a->env = *env;
    a->fd = fd;
    a->watch = (struct clbi_watch){.fd = fd, .events = EPOLLIN, .cb = accept_event, .priv = a};
    a->timer_watch =
        (struct clbi_watch){.fd = a->timerfd, .events = EPOLLIN, .cb = timer_event, .priv = a};
    *out = a;
    return CLB_OK;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void set_listening(struct clbi_acceptor *a, bool on)
{
    struct itimerspec when = {.it_value = {.tv_nsec = on ? 0 : PAUSE_NS}};

    timerfd_settime(a->timerfd, 0, &when, NULL);
    a->watch.events = on ? EPOLLIN : 0;
    a->env.loop_ops->rewatch(a->env.loop, &a->watch);
}

static void timer_event(void *priv, uint32_t events)
{
    (void)events;
    set_listening(priv, true); /* which also quiets the timer */
}

/* Of this call or this connection alone: the next one may succeed at once (accept(2)). */
static bool is_passing(int err)
{
    switch (err) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH: return true;
    default: return false;
    }
}

static void accept_event(void *priv, uint32_t events)
{
    struct clbi_acceptor *a = priv;

    (void)events;
    a->inside = true;
    for (int i = 0; i < ACCEPTS_PER_WAKEUP && a->started; i++) {
        struct sockaddr_storage ss = {0};
        socklen_t len = sizeof ss;
        char peer[100];
        int fd = accept4(a->fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                break;
            if (is_passing(errno))
                continue;
            if (!a->starved)
                clbi_fail(NULL, &a->env.log, CLB_ERR_IO, CLB_DOMAIN_ERRNO, errno,
                          "connections have to wait, accepting them failed");
            a->starved = true;
            set_listening(a, false);
            break;
        }
        a->starved = false;
        clbi_tcp_addr_text(peer, sizeof peer, (struct sockaddr *)&ss, len);
        a->env.on_accept(a->env.owner, fd, peer);
    }
    a->inside = false;
    if (a->closed)
        clbi_tcp_accept_close(a);
}

int clbi_tcp_accept_start(struct clbi_acceptor *a)
{
    int err;

    if (a->started)
        return CLB_OK;
    a->watch.events = EPOLLIN;
    err = a->env.loop_ops->watch(a->env.loop, &a->watch);
    if (!err) {
        err = a->env.loop_ops->watch(a->env.loop, &a->timer_watch);
        if (err)
            a->env.loop_ops->unwatch(a->env.loop, &a->watch);
    }
    if (err)
        return clbi_fail(NULL, &a->env.log, CLB_ERR_IO, CLB_DOMAIN_ERRNO, err,
                         "watch the listening socket");
    a->started = true;
    return CLB_OK;
}

void clbi_tcp_accept_stop(struct clbi_acceptor *a)
{
    if (!a->started)
        return;
    a->started = false;
    a->env.loop_ops->unwatch(a->env.loop, &a->watch);
    a->env.loop_ops->unwatch(a->env.loop, &a->timer_watch);
}

void clbi_tcp_accept_close(struct clbi_acceptor *a)
{
    clbi_tcp_accept_stop(a);
    if (a->inside) {
        a->closed = true;
        return;
    }
    close(a->fd);
    close(a->timerfd);
    free(a);
}
