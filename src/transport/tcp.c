/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP transport: how connections begin and end. Their bytes are moved by tcp_io.c.
 *
 * Connected AF_UNIX stream sockets are adopted as well: the same calls serve them.
 */
#include "log.h"
#include "os.h"
#include "tcp_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* An address that does not answer holds the others up no longer than this. */
#define ATTEMPT_NS (2 * CLBI_SEC)
/* What is read and thrown away at the end, so that the system does not answer unread bytes with a
 * reset that destroys our last words on their way. */
#define DRAIN_CALLS 64
#define DRAIN_BYTES 16384

static void socket_event(void *priv, uint32_t events);
static void resolved_event(void *priv, uint32_t events);
static void deferred(void *priv);

static void set_low_latency(int fd)
{
    const int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

static struct clbi_transport *tcp_new(const struct clbi_transport_env *env)
{
    struct clbi_transport *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->env = *env;
    t->fd = -1;
    t->budget = CLBI_TCP_BUDGET;
    t->wake_at = 1;
    t->attempt_end = CLBI_NEVER;
    t->open_told = CLBI_PENDING;
    t->watch = (struct clbi_watch){.fd = -1, .cb = socket_event, .priv = t};
    t->resolve_watch = (struct clbi_watch){.fd = -1, .cb = resolved_event, .priv = t};
    t->defer = (struct clbi_defer){.fn = deferred, .priv = t};
    return t;
}

static void drop_socket(struct clbi_transport *t)
{
    clbi_tcp_unwatch(t);
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

static void drop_resolve(struct clbi_transport *t)
{
    if (!t->resolve)
        return;
    t->env.loop_ops->unwatch(t->env.loop, &t->resolve_watch);
    clbi_tcp_resolve_drop(t->resolve);
    t->resolve = NULL;
}

static void drop_addrs(struct clbi_transport *t)
{
    if (t->addrs)
        freeaddrinfo(t->addrs);
    t->addrs = t->addr = NULL;
}

static void tcp_free(struct clbi_transport *t)
{
    drop_resolve(t);
    drop_socket(t);
    drop_addrs(t);
    free(t);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int fail_connect(struct clbi_transport *t, int native)
{
    enum clb_error err = CLB_ERR_IO;
    const char *hint = NULL;

    switch (native) {
    case ECONNREFUSED: hint = "is the camera or `clbridge send` running there, and free?"; break;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case ENETDOWN: hint = "is the address right, and the network up?"; break;
    case ETIMEDOUT:
        err = CLB_ERR_TIMEOUT;
        hint = "is the address right, and the peer switched on?";
        break;
    case EACCES:
    case EPERM:
        err = CLB_ERR_ACCESS;
        hint = "does a firewall forbid it?";
        break;
    case EMFILE:
    case ENFILE: hint = "close some files, or raise the limit (ulimit -n)"; break;
    case ENOMEM:
    case ENOBUFS: err = CLB_ERR_NOMEM; break;
    default: break;
    }
    return clbi_tcp_fail(&t->failure, &t->env.log, err, native, hint, "connect to %s failed",
                         t->peer);
}

/* Connected to itself: on a loopback port that nobody listens to, the system may pick the very port
 * as our own. */
static bool is_mirror(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t an = sizeof a, bn = sizeof b;

    return getsockname(fd, (struct sockaddr *)&a, &an) == 0 &&
           getpeername(fd, (struct sockaddr *)&b, &bn) == 0 && an == bn && memcmp(&a, &b, an) == 0;
}

static void up(struct clbi_transport *t)
{
    drop_addrs(t);
    t->attempt_end = CLBI_NEVER;
    t->state = ST_UP;
}

static int give_up(struct clbi_transport *t, int rc)
{
    drop_socket(t);
    drop_addrs(t);
    t->attempt_end = CLBI_NEVER;
    t->state = ST_DEAD;
    return rc;
}

/* Tries one address after the other from t->addr on. CLBI_DONE: connected; CLBI_PENDING; else the
 * code of the last failure, which t->failure describes. */
static int try_addresses(struct clbi_transport *t)
{
    int rc = CLB_ERR_NODEV, err;

    t->state = ST_CONNECTING;
    for (; t->addr; t->addr = t->addr->ai_next) {
        const struct addrinfo *ai = t->addr;

        drop_socket(t);
        clbi_tcp_addr_text(t->peer, sizeof t->peer, ai->ai_addr, ai->ai_addrlen);
        t->domain = ai->ai_family;
        t->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
        if (t->fd < 0) {
            rc = fail_connect(t, errno);
            continue;
        }
        set_low_latency(t->fd);
        if (connect(t->fd, ai->ai_addr, ai->ai_addrlen) == 0) {
            if (!is_mirror(t->fd)) {
                up(t);
                return CLBI_DONE;
            }
            rc = fail_connect(t, ECONNREFUSED);
            continue;
        }
        /* Interrupted, a connect goes on by itself. */
        if (errno != EINPROGRESS && errno != EINTR) {
            rc = fail_connect(t, errno);
            continue;
        }
        err = clbi_tcp_want(t, EPOLLOUT);
        if (err) {
            rc = fail_connect(t, err);
            continue;
        }
        t->attempt_end = ai->ai_next ? clbi_add_ns(clbi_now_ns(), ATTEMPT_NS) : CLBI_NEVER;
        return CLBI_PENDING;
    }
    return give_up(t, rc);
}

static void report_open(struct clbi_transport *t, int rc)
{
    if (rc == CLBI_DONE) {
        t->env.on_open(t->env.owner, NULL);
    } else if (rc < 0) {
        struct clb_status failure = t->failure;
        t->state = ST_DEAD;
        t->env.on_open(t->env.owner, &failure);
    }
}

/* From inside a call, where callbacks are not allowed. */
static void report_open_later(struct clbi_transport *t, int rc)
{
    t->open_told = rc;
    if (rc != CLBI_PENDING)
        t->env.loop_ops->defer(t->env.loop, &t->defer);
}

/* The current address failed; results as try_addresses(). */
static int next_address(struct clbi_transport *t, int native)
{
    fail_connect(t, native);
    t->addr = t->addr->ai_next;
    return t->addr ? try_addresses(t) : give_up(t, t->failure.err);
}

static void connect_event(struct clbi_transport *t, uint32_t events)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    int err = 0;

    if (getpeername(t->fd, (struct sockaddr *)&ss, &len) < 0) {
        len = sizeof err;
        if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
            err = errno;
        if (err == 0 && (events & (EPOLLERR | EPOLLHUP)))
            err = ECONNRESET;
        if (err)
            report_open(t, next_address(t, err));
        return; /* no error: woken too early */
    }
    if (is_mirror(t->fd)) {
        report_open(t, next_address(t, ECONNREFUSED));
        return;
    }
    up(t);
    /* The owner will receive next: this is the one change of events that a link needs. */
    err = clbi_tcp_want(t, EPOLLIN);
    if (err) {
        fail_connect(t, err);
        report_open(t, t->failure.err);
        return;
    }
    report_open(t, CLBI_DONE);
}

static void resolved_event(void *priv, uint32_t events)
{
    struct clbi_transport *t = priv;
    struct addrinfo *addrs = NULL;
    int rc;

    (void)events;
    rc = clbi_tcp_resolve_result(t->resolve, &addrs, &t->failure, &t->env.log);
    if (rc == CLB_ERR_AGAIN)
        return;
    drop_resolve(t);
    if (rc == CLB_OK) {
        t->addrs = t->addr = addrs;
        rc = try_addresses(t);
    }
    report_open(t, rc);
}

static void socket_event(void *priv, uint32_t events)
{
    struct clbi_transport *t = priv;

    if (t->state == ST_CONNECTING)
        connect_event(t, events);
    else if (t->state == ST_UP)
        clbi_tcp_io_event(t, events);
}

static int64_t tcp_next_deadline(const struct clbi_transport *t)
{
    return t->attempt_end;
}

static void tcp_dispatch(struct clbi_transport *t, int64_t now)
{
    if (t->state == ST_UP)
        clbi_tcp_look(t);
    else if (t->state == ST_CONNECTING && now >= t->attempt_end)
        report_open_later(t, next_address(t, ETIMEDOUT));
}

/* 0 or errno. */
static int start_resolve(struct clbi_transport *t, const struct clbi_hostport *target)
{
    int err;

    t->state = ST_RESOLVING;
    t->resolve = clbi_tcp_resolve_start(target, 0);
    if (!t->resolve)
        return errno;
    t->resolve_watch.fd = clbi_tcp_resolve_fd(t->resolve);
    t->resolve_watch.events = EPOLLIN;
    err = t->env.loop_ops->watch(t->env.loop, &t->resolve_watch);
    if (err) {
        clbi_tcp_resolve_drop(t->resolve);
        t->resolve = NULL;
    }
    return err;
}

static int tcp_open(struct clbi_transport **out, const struct clbi_transport_env *env,
                    const char *address, struct clb_status *st)
{
    struct clbi_hostport target;
    struct clbi_transport *t;
    char shown[100];
    int rc, gai, err;

    *out = NULL;
    rc = clbi_hostport_parse(&target, address, CLBI_TCP_PORT, st, &env->log);
    if (rc < 0)
        return rc;
    clbi_escape(shown, sizeof shown, address);
    if (target.port == 0 || strcmp(target.host, "*") == 0)
        return clbi_fail(st, &env->log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "tcp://host:port with a port from 1 to 65535 expected, got \"%s\"", shown);
    t = tcp_new(env);
    if (!t)
        return clbi_fail(st, &env->log, CLB_ERR_NOMEM, CLB_DOMAIN_NONE, 0,
                         "connect to %s: no memory", shown);
    gai = clbi_tcp_numeric(&target, 0, &t->addrs);
    if (gai == 0) {
        t->addr = t->addrs;
        rc = try_addresses(t);
        if (rc < 0) {
            if (st)
                *st = t->failure;
            tcp_free(t);
            return rc;
        }
        report_open_later(t, rc);
    } else if (target.bracketed) {
        tcp_free(t);
        return clbi_fail(st, &env->log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "an IPv6 address in brackets expected, got \"%s\"", shown);
    } else if (gai != EAI_NONAME) {
        rc = clbi_tcp_resolve_fail(st, &env->log, target.host, gai, errno);
        tcp_free(t);
        return rc;
    } else {
        snprintf(t->peer, sizeof t->peer, "%.100s:%u", target.host, target.port);
        err = start_resolve(t, &target);
        if (err) {
            rc = clbi_tcp_fail(st, &env->log, err == ENOMEM ? CLB_ERR_NOMEM : CLB_ERR_IO, err, NULL,
                               "look up \"%s\"", shown);
            tcp_free(t);
            return rc;
        }
    }
    *out = t;
    return CLB_OK;
}

/* ---- adopting -------------------------------------------------------------------------------- */

static int tcp_adopt(struct clbi_transport **out, const struct clbi_transport_env *env, int fd,
                     struct clb_status *st)
{
    struct sockaddr_storage peer = {0};
    socklen_t len;
    struct clbi_transport *t;
    int domain = 0, type = 0, listening = 0;

    *out = NULL;
    len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
        return clbi_fail(st, &env->log, CLB_ERR_INVAL, CLB_DOMAIN_ERRNO, errno,
                         "descriptor %d is no connected socket", fd);
    len = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
        domain = -1;
    if (type != SOCK_STREAM || (domain != AF_INET && domain != AF_INET6 && domain != AF_UNIX))
        return clbi_fail(st, &env->log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "descriptor %d is no TCP or unix stream socket", fd);
    len = sizeof listening;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
    len = sizeof peer;
    if (listening || getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
        return clbi_fail(st, &env->log, CLB_ERR_INVAL, CLB_DOMAIN_ERRNO,
                         listening ? ENOTCONN : errno, "descriptor %d is not connected to a peer",
                         fd);
    t = tcp_new(env);
    if (!t)
        return clbi_fail(st, &env->log, CLB_ERR_NOMEM, CLB_DOMAIN_NONE, 0,
                         "adopt a socket: no memory");
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        int err = errno;
        free(t);
        return clbi_fail(st, &env->log, CLB_ERR_IO, CLB_DOMAIN_ERRNO, err, "adopt descriptor %d",
                         fd);
    }
    t->found_nodelay = 1;
    if (domain != AF_UNIX) {
        socklen_t size = sizeof t->found_nodelay;
        getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &t->found_nodelay, &size);
        set_low_latency(fd);
    }
    /* A socketpair has no address, and its family is told by the socket alone. */
    peer.ss_family = (sa_family_t)domain;
    clbi_tcp_addr_text(t->peer, sizeof t->peer, (struct sockaddr *)&peer, len);
    t->fd = fd;
    t->domain = domain;
    t->state = ST_UP;
    *out = t;
    return CLB_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void tcp_leave(struct clbi_transport *t, enum clbi_leave how)
{
    t->leave = how;
}

static void say_goodbye(struct clbi_transport *t)
{
    char scrap[DRAIN_BYTES];

    shutdown(t->fd, SHUT_WR);
    for (int i = 0; i < DRAIN_CALLS; i++) {
        /* With MSG_TRUNC TCP throws the bytes away without copying them. The memory is for those
         * that copy, and for tools that take the call for a write to it. */
        int flags = MSG_DONTWAIT | (t->domain == AF_UNIX ? 0 : MSG_TRUNC);
        ssize_t n = recv(t->fd, scrap, sizeof scrap, flags);
        if (n <= 0)
            break;
    }
}

static void end_socket(struct clbi_transport *t)
{
    const struct linger cut = {.l_onoff = 1};

    clbi_tcp_unwatch(t);
    if (t->fd < 0)
        return;
    if (t->leave == CLBI_LEAVE_OPEN) {
        if (!t->found_nodelay)
            setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &t->found_nodelay, sizeof(int));
    } else if (t->leave == CLBI_LEAVE_CUT) {
        /* Otherwise the system would keep, for minutes, what the peer does not take. */
        setsockopt(t->fd, SOL_SOCKET, SO_LINGER, &cut, sizeof cut);
    } else if (t->state == ST_UP && !t->lost) {
        say_goodbye(t);
    }
    close(t->fd);
    t->fd = -1;
}

static void tcp_close(struct clbi_transport *t)
{
    if (t->state == ST_CLOSING)
        return;
    drop_resolve(t);
    end_socket(t);
    drop_addrs(t);
    t->attempt_end = CLBI_NEVER;
    t->state = ST_CLOSING;
    t->env.loop_ops->defer(t->env.loop, &t->defer);
}

/* Delivers what must not be delivered from inside a call. */
static void deferred(void *priv)
{
    struct clbi_transport *t = priv;
    const struct clb_status canceled = {.err = CLB_ERR_CANCELED, .text = "canceled"};
    bool closing = t->state == ST_CLOSING;

    if (t->rx.segs && (t->rx.canceled || closing)) {
        t->rx.segs = NULL;
        t->rx.canceled = false;
        t->env.on_recv(t->env.owner, t->rx.done, &canceled);
    } else if (t->open_told != CLBI_PENDING && !closing) {
        int rc = t->open_told;
        t->open_told = CLBI_PENDING;
        report_open(t, rc);
    }
    /* A close() from inside that callback has queued us again. */
    if (!closing)
        return;
    if (t->tx.iov) {
        t->tx.iov = NULL;
        t->env.on_send(t->env.owner, t->tx.done, &canceled);
    }
    t->env.on_closed(t->env.owner);
    tcp_free(t);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void tcp_progress(const struct clbi_transport *t, uint64_t *rx, uint64_t *tx)
{
    *rx = t->rx_total - t->rx.look_len; /* what was read ahead moves when it is asked for */
    *tx = t->tx_total;
}

static size_t tcp_looked_ahead(const struct clbi_transport *t)
{
    return t->rx.look_len;
}

static void tcp_get_info(const struct clbi_transport *t, clb_link_info *info)
{
    snprintf(info->peer, sizeof info->peer, "%s", t->peer);
    info->transport = t->domain == AF_UNIX ? CLB_TRANSPORT_LOCAL : CLB_TRANSPORT_TCP;
    info->usb_speed = 0;
    info->serial[0] = '\0';
}

const struct clbi_transport_ops clbi_tcp_ops = {
    .scheme = "tcp",
    .kind = CLB_TRANSPORT_TCP,
    .limits = {.can_scatter = true, .max_segs = SIZE_MAX, .packet_bytes = 1},
    .open = tcp_open,
    .adopt = tcp_adopt,
    .recv_start = clbi_tcp_recv_start,
    .looked_ahead = tcp_looked_ahead,
    .recv_cancel = clbi_tcp_recv_cancel,
    .send = clbi_tcp_send,
    .send_now = clbi_tcp_send_now,
    .progress = tcp_progress,
    .get_info = tcp_get_info,
    .close = tcp_close,
    .leave = tcp_leave,
    .next_deadline = tcp_next_deadline,
    .dispatch = tcp_dispatch,
    .listen = clbi_tcp_listen,
    .accept_start = clbi_tcp_accept_start,
    .accept_stop = clbi_tcp_accept_stop,
    .accept_close = clbi_tcp_accept_close,
};
