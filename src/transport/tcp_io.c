/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a connection that is up: scatter reads straight into the caller's memory, gather writes,
 * and as few system calls as that takes.
 *
 *  - A receive reads at once, unless the read before came back short: then the socket was empty, and
 *    EPOLLIN (level-triggered, so nothing is missed) tells when it is not.
 *  - EPOLLIN stays enabled from one receive to the next. It is switched off only when it fires with
 *    no receive outstanding.
 *  - In the middle of a large payload the system wakes us for many bytes at once (SO_RCVLOWAT), and
 *    for the last one in any case.
 *  - Each wake-up pays for a bounded number of system calls and bytes, so that links which share a
 *    loop get their turns; what is left is told by the next EPOLLIN.
 */
#include "log.h"
#include "os.h"
#include "tcp_priv.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif
/* Waiting for fewer bytes than this wakes at the first one; the mark is worth its system calls where
 * this much is missing at first. */
#define WAKE_MIN ((size_t)32 << 10)
#define WAKE_WORTH ((size_t)256 << 10)
#define WAKE_MAX ((size_t)512 << 10)
/* A pause in the middle of a packet that looks like a delayed acknowledgement (40 ms and more on most
 * systems), and how many of these make us believe it. */
#define GAP_NS (25 * CLBI_MS)
#define GAPS 2
#define BYTES_PER_CALL ((size_t)4 << 20)
/* A wake-up ends after so many bytes: the other links of a loop get their turn, and so does the
 * application, whose buffers come back warm when it keeps up. */
#define BYTES_PER_WAKE ((size_t)256 << 10)
#define CALL_COST(bytes) (1 + (unsigned)((bytes) / (BYTES_PER_WAKE / CLBI_TCP_BUDGET)))

int clbi_tcp_want(struct clbi_transport *t, uint32_t events)
{
    const uint32_t before = t->watch.events;
    int err;

    if (t->watched && t->watch.events == events)
        return 0;
    t->watch.events = events;
    if (t->watched) {
        err = t->env.loop_ops->rewatch(t->env.loop, &t->watch);
        if (err)
            t->watch.events = before; /* as the system has it: the next attempt is made */
        return err;
    }
    t->watch.fd = t->fd;
    err = t->env.loop_ops->watch(t->env.loop, &t->watch);
    t->watched = err == 0;
    return err;
}

void clbi_tcp_unwatch(struct clbi_transport *t)
{
    if (t->watched)
        t->env.loop_ops->unwatch(t->env.loop, &t->watch);
    t->watched = false;
}

static uint32_t current_events(const struct clbi_transport *t)
{
    return t->watched ? t->watch.events : 0;
}

static void spend(struct clbi_transport *t, size_t bytes)
{
    unsigned cost = CALL_COST(bytes);

    t->budget = t->budget > cost ? t->budget - cost : 0;
}

/* Described and not logged: whether this is the end of a link or only that of its last words is for
 * the owner to judge. */
static int fail_io(struct clbi_transport *t, struct clb_status *st, int native, const char *what)
{
    switch (native) {
    case ECONNRESET:
    case EPIPE:
    case ETIMEDOUT:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case EHOSTDOWN:
    case ECONNREFUSED: /* an ICMP answer to a connection that was up */
        t->lost = native;
        return clbi_fail(st, NULL, CLB_ERR_LOST, CLB_DOMAIN_ERRNO, native, "%s %s", what, t->peer);
    default:
        return clbi_fail(st, NULL,
                         native == ENOMEM || native == ENOBUFS ? CLB_ERR_NOMEM : CLB_ERR_IO,
                         CLB_DOMAIN_ERRNO, native, "%s %s", what, t->peer);
    }
}

static int fail_end(struct clbi_transport *t, struct clb_status *st)
{
    /* The reset was told to a send already; what follows it looks like an end of stream. */
    if (t->lost)
        return fail_io(t, st, t->lost, "receive from");
    return clbi_fail(st, NULL, CLB_ERR_CLOSED, CLB_DOMAIN_NONE, 0, "%s closed the connection",
                     t->peer);
}

/* ---- receive --------------------------------------------------------------------------------- */

/* What a row takes of the stream. */
static size_t row_step(const struct clbi_seg *seg)
{
    return seg->row_bytes + seg->gap;
}

static bool contiguous(const struct clbi_seg *seg)
{
    return seg->gap == 0 && (seg->rows <= 1 || seg->pitch == seg->row_bytes);
}

/* Puts the cursor on the next byte that is missing; false when there is none. */
static bool rx_settle(struct tcp_rx *rx)
{
    while (rx->seg < rx->n) {
        const struct clbi_seg *seg = &rx->segs[rx->seg];
        if (rx->row < seg->rows && rx->byte == row_step(seg)) {
            rx->row++;
            rx->byte = 0;
        }
        if (rx->row < seg->rows && row_step(seg) > 0)
            return true;
        rx->seg++;
        rx->row = rx->byte = 0;
    }
    return false;
}

/* Where the bytes from a settled cursor on go, as far as they lie together. */
static struct iovec rx_piece(const struct tcp_rx *rx)
{
    const struct clbi_seg *seg = &rx->segs[rx->seg];
    struct iovec piece;

    if (rx->byte < seg->row_bytes) {
        const size_t rows = contiguous(seg) ? seg->rows - rx->row : 1;
        piece.iov_base = (uint8_t *)seg->base + rx->row * seg->pitch + rx->byte;
        piece.iov_len = rows * seg->row_bytes - rx->byte;
    } else {
        const size_t into = rx->byte - seg->row_bytes;
        piece.iov_base = (uint8_t *)seg->sink + into;
        piece.iov_len = seg->gap - into;
    }
    return piece;
}

static void rx_advance(struct tcp_rx *rx, size_t bytes)
{
    rx->done += bytes;
    while (bytes > 0 && rx_settle(rx)) {
        const struct clbi_seg *seg = &rx->segs[rx->seg];
        const size_t step = row_step(seg), left = step - rx->byte;

        if (bytes < left) {
            rx->byte += bytes;
            return;
        }
        bytes -= left;
        rx->row++;
        rx->byte = 0;
        /* Whole rows at once. */
        if (bytes >= step) {
            size_t rows = bytes / step;
            if (rows > seg->rows - rx->row)
                rows = seg->rows - rx->row;
            rx->row += rows;
            bytes -= rows * step;
        }
    }
}

/* Fills iov from the cursor on, at most cap entries and BYTES_PER_CALL bytes; the number of entries
 * and *bytes in all. *last: the batch reaches the end of the segments. */
static size_t rx_batch(const struct tcp_rx *rx, struct iovec *iov, size_t cap, size_t *bytes,
                       bool *last)
{
    struct tcp_rx at = *rx;
    size_t n = 0, sum = 0;

    *last = false;
    for (;;) {
        if (!rx_settle(&at)) {
            *last = true;
            break;
        }
        if (n == cap || sum == BYTES_PER_CALL)
            break;
        iov[n] = rx_piece(&at);
        if (iov[n].iov_len > BYTES_PER_CALL - sum) {
            iov[n++].iov_len = BYTES_PER_CALL - sum;
            sum = BYTES_PER_CALL;
            break;
        }
        sum += iov[n].iov_len;
        rx_advance(&at, iov[n++].iov_len);
    }
    *bytes = sum;
    return n;
}

/* What was read ahead comes first. */
static void rx_take_look(struct tcp_rx *rx)
{
    while (rx->look_len > 0 && rx_settle(rx)) {
        const struct iovec piece = rx_piece(rx);
        const size_t n = piece.iov_len < rx->look_len ? piece.iov_len : rx->look_len;

        memcpy(piece.iov_base, rx->look + rx->look_at, n);
        rx->look_at += n;
        rx->look_len -= n;
        rx_advance(rx, n);
    }
}

/* A peer without TCP_NODELAY holds the tail of a payload back until what went before is acknowledged,
 * and the system would take its time for that. It forgets this option by itself, hence after every
 * receive; and as each acknowledgement costs both ends a packet, only with peers that need it. */
static void rearm_quickack(const struct clbi_transport *t)
{
    const int on = 1;

    if (t->gaps >= GAPS && t->domain != AF_UNIX)
        setsockopt(t->fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

/* The receive goes on with the next EPOLLIN. Changing the mark is a call of its own: a mark that is
 * lower than need be is good enough, one that is beyond what is missing would never be reached. */
static void rx_wait(struct clbi_transport *t)
{
    struct tcp_rx *rx = &t->rx;
    const size_t missing = rx->total - rx->done;
    size_t mark = missing < WAKE_MIN ? 1 : missing < WAKE_MAX ? missing : WAKE_MAX;

    /* A packet has begun, or its payload is due. In a conversation headers look ahead, too. */
    bool begun = rx->done > 0 || (rx->ahead > 0 && rx->ahead < CLBI_RECV_AHEAD_MAX);
    rx->waits_since = begun ? clbi_now_ns() : 0;
    if (t->domain != AF_UNIX &&
        (t->wake_at > missing || (missing >= WAKE_WORTH && mark / 2 >= t->wake_at))) {
        const int value = (int)mark;
        if (setsockopt(t->fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0)
            t->wake_at = mark;
    }
}

static void rx_woken(struct clbi_transport *t)
{
    struct tcp_rx *rx = &t->rx;

    if (rx->waits_since && t->gaps < GAPS && clbi_now_ns() - rx->waits_since >= GAP_NS)
        t->gaps++;
    rx->waits_since = 0;
}

/* Reads until all is in (CLBI_DONE), the socket is empty or the budget spent (CLBI_PENDING), or it
 * fails (code, *st filled). */
static int rx_read(struct clbi_transport *t, struct clb_status *st)
{
    struct tcp_rx *rx = &t->rx;
    struct iovec iov[IOV_MAX];
    bool moved = false;

    while (rx_settle(rx)) {
        size_t want, n;
        bool last;
        ssize_t got;

        if (t->budget == 0)
            return CLBI_PENDING;
        n = rx_batch(rx, iov, IOV_MAX - 1, &want, &last);
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
        size_t asked = want;
        if (last && rx->ahead > 0) {
            iov[n].iov_base = rx->look;
            iov[n].iov_len = rx->ahead;
            msg.msg_iovlen++;
            asked += rx->ahead;
        }
        /* No control buffer: descriptors that a local peer sends along are closed by the system. */
        do
            got = recvmsg(t->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        spend(t, got > 0 ? (size_t)got : 0);
        if (got < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                return fail_io(t, st, errno, "receive from");
            rx->drained = true;
            return CLBI_PENDING;
        }
        if (got == 0)
            return fail_end(t, st);
        moved = true;
        t->rx_total += (size_t)got;
        rx->drained = (size_t)got < asked;
        if ((size_t)got > want) {
            rx->look_at = 0;
            rx->look_len = (size_t)got - want;
            got = (ssize_t)want;
        }
        rx_advance(rx, (size_t)got);
        if (rx->drained && rx_settle(rx))
            return CLBI_PENDING;
    }
    if (moved)
        rearm_quickack(t);
    return CLBI_DONE;
}

int clbi_tcp_recv_start(struct clbi_transport *t, const struct clbi_seg *segs, size_t n,
                        size_t ahead, struct clb_status *st)
{
    struct tcp_rx *rx = &t->rx;
    int rc = CLBI_PENDING;

    if (t->state != ST_UP || rx->segs)
        return clbi_fail(st, NULL, CLB_ERR_STATE, CLB_DOMAIN_NONE, 0,
                         "receive from %s: not connected, or receiving already", t->peer);
    rx->segs = segs;
    rx->n = n;
    rx->seg = rx->row = rx->byte = rx->done = rx->total = 0;
    for (size_t i = 0; i < n; i++)
        rx->total += segs[i].rows * row_step(&segs[i]);
    rx->ahead = ahead < sizeof rx->look ? ahead : sizeof rx->look;
    rx_take_look(rx);
    if (!rx_settle(rx))
        rc = CLBI_DONE;
    else if (!rx->drained)
        rc = rx_read(t, st);
    if (rc == CLBI_PENDING) {
        int err = clbi_tcp_want(t, current_events(t) | EPOLLIN);
        if (err)
            rc = fail_io(t, st, err, "watch the connection to");
        else
            rx_wait(t);
    }
    if (rc != CLBI_PENDING)
        rx->segs = NULL;
    return rc;
}

void clbi_tcp_recv_cancel(struct clbi_transport *t)
{
    if (!t->rx.segs || t->rx.canceled)
        return;
    t->rx.canceled = true;
    t->env.loop_ops->defer(t->env.loop, &t->defer);
}

/* ---- send ------------------------------------------------------------------------------------ */

static bool tx_settle(struct tcp_tx *tx)
{
    while (tx->at < tx->n && tx->byte == tx->iov[tx->at].iov_len) {
        tx->at++;
        tx->byte = 0;
    }
    return tx->at < tx->n;
}

static void tx_advance(struct tcp_tx *tx, size_t bytes)
{
    tx->done += bytes;
    while (bytes > 0 && tx_settle(tx)) {
        size_t left = tx->iov[tx->at].iov_len - tx->byte;
        size_t n = bytes < left ? bytes : left;
        tx->byte += n;
        bytes -= n;
    }
}

static int tx_write(struct clbi_transport *t, struct clb_status *st)
{
    struct tcp_tx *tx = &t->tx;
    struct iovec iov[IOV_MAX];

    while (tx_settle(tx)) {
        size_t n = 0, asked = 0;
        ssize_t put;

        if (t->budget == 0)
            return CLBI_PENDING;
        for (size_t i = tx->at; i < tx->n && n < IOV_MAX && asked < BYTES_PER_CALL; i++) {
            size_t skip = i == tx->at ? tx->byte : 0, len = tx->iov[i].iov_len - skip;
            if (len == 0)
                continue; /* its base may be NULL */
            if (len > BYTES_PER_CALL - asked)
                len = BYTES_PER_CALL - asked;
            iov[n].iov_base = (uint8_t *)tx->iov[i].iov_base + skip;
            iov[n++].iov_len = len;
            asked += len;
        }
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
        do
            put = sendmsg(t->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (put < 0 && errno == EINTR);
        spend(t, put > 0 ? (size_t)put : 0);
        if (put < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return CLBI_PENDING;
            return fail_io(t, st, errno, "send to");
        }
        t->tx_total += (size_t)put;
        tx_advance(tx, (size_t)put);
        if ((size_t)put < asked && tx_settle(tx))
            return CLBI_PENDING;
    }
    return CLBI_DONE;
}

int clbi_tcp_send(struct clbi_transport *t, const struct iovec *iov, size_t n,
                  struct clb_status *st)
{
    int rc;

    if (t->state != ST_UP || t->tx.iov)
        return clbi_fail(st, NULL, CLB_ERR_STATE, CLB_DOMAIN_NONE, 0,
                         "send to %s: not connected, or sending already", t->peer);
    t->tx = (struct tcp_tx){.iov = iov, .n = n};
    /* An answer goes out behind a large receive of the same wake-up, too. */
    if (t->budget == 0)
        t->budget = 1;
    rc = tx_write(t, st);
    if (rc == CLBI_PENDING) {
        int err = clbi_tcp_want(t, current_events(t) | EPOLLOUT);
        if (err)
            rc = fail_io(t, st, err, "watch the connection to");
    }
    if (rc != CLBI_PENDING)
        t->tx.iov = NULL;
    return rc;
}

int clbi_tcp_send_now(struct clbi_transport *t, const struct iovec *iov, size_t n, size_t *sent,
                      struct clb_status *st)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n < IOV_MAX ? n : IOV_MAX};
    size_t all = 0;
    ssize_t put;

    *sent = 0;
    for (size_t i = 0; i < n; i++)
        all += iov[i].iov_len;
    do
        put = sendmsg(t->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? CLBI_PENDING
                                                       : fail_io(t, st, errno, "send to");
    *sent = (size_t)put;
    return *sent == all ? CLBI_DONE : CLBI_PENDING;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void rx_event(struct clbi_transport *t)
{
    struct clb_status st;
    int rc;

    rx_woken(t);
    rc = rx_read(t, &st);
    if (rc == CLBI_PENDING) {
        rx_wait(t);
        if (t->env.on_partial)
            t->env.on_partial(t->env.owner);
        return;
    }
    t->rx.segs = NULL;
    t->env.on_recv(t->env.owner, t->rx.done, rc < 0 ? &st : NULL);
}

static void tx_event(struct clbi_transport *t)
{
    struct clb_status st;
    int rc = tx_write(t, &st), err;

    if (rc == CLBI_PENDING)
        return;
    t->tx.iov = NULL;
    err = clbi_tcp_want(t, t->watch.events & ~(uint32_t)EPOLLOUT);
    if (err && rc == CLBI_DONE)
        clbi_log(&t->env.log, CLB_LOG_WARN, "watch the connection to %s: error %d", t->peer, err);
    t->env.on_send(t->env.owner, t->tx.done, rc < 0 ? &st : NULL);
}

void clbi_tcp_look(struct clbi_transport *t)
{
    if (t->state == ST_UP && t->rx.segs && !t->rx.canceled && t->wake_at > 1) {
        t->budget = CLBI_TCP_BUDGET;
        rx_event(t);
    }
}

void clbi_tcp_io_event(struct clbi_transport *t, uint32_t events)
{
    const uint32_t broken = EPOLLHUP | EPOLLERR;

    t->budget = CLBI_TCP_BUDGET;
    if (events & (EPOLLIN | broken)) {
        if (t->rx.segs && !t->rx.canceled) {
            rx_event(t);
        } else {
            /* Something is there for the next recv_start: bytes, or the end. */
            t->rx.drained = false;
            clbi_tcp_want(t, t->watch.events & ~(uint32_t)EPOLLIN);
        }
    }
    if (t->state == ST_UP && t->tx.iov && (events & (EPOLLOUT | broken)))
        tx_event(t);
    else if (t->state == ST_UP && !t->tx.iov && (events & EPOLLOUT))
        clbi_tcp_want(t, t->watch.events & ~(uint32_t)EPOLLOUT); /* it could not be switched off */
    /* Neither can be masked. With nobody to tell, the loop would spin; the next operation meets the
     * cause by itself, and watches again. */
    if (t->state == ST_UP && (events & broken) && (!t->rx.segs || t->rx.canceled) && !t->tx.iov)
        clbi_tcp_unwatch(t);
}
