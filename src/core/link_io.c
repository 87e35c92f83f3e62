/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection as its loop sees it: coming up, timers, ending. Dispatching thread only. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "link_priv.h"

/* ---- state ------------------------------------------------------------------------------------ */

void clbi_link_set_state(clb_link *link, enum clb_link_state state)
{
    pthread_mutex_lock(&link->lock);
    bool changed = link->state != state;
    link->state = state;
    clbi_link_wake_all(link);
    pthread_mutex_unlock(&link->lock);
    if (!changed) {
        return;
    }
    if (state == CLB_LINK_UP && link->hook.up) {
        link->hook.up(link->hook.priv, link);
    }
    if (link->cfg.state_cb) {
        link->cfg.state_cb(link->cfg.priv, link, state);
    }
}

void clbi_link_tell_ready(clb_link *link)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        pthread_mutex_lock(&link->lock);
        clb_stream *s = link->slot[i].stream;
        bool call = s && s->ready_due && s->ready_cb && !s->closing;
        if (call) {
            s->ready_due = false;
            clbi_stream_begin_ready(s);
        }
        pthread_mutex_unlock(&link->lock);
        if (call) {
            clbi_stream_end_ready(s);
        }
    }
}

/* Streams whose end came are told; ready_cb says "look". */
static void announce_end(clb_link *link)
{
    pthread_mutex_lock(&link->lock);
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        if (link->slot[i].stream) {
            link->slot[i].stream->ready_due = true;
        }
    }
    pthread_mutex_unlock(&link->lock);
    clbi_link_tell_ready(link);
}

static void finish(clb_link *link)
{
    link->tr = NULL;
    clbi_loop_leave(link->loop, &link->member);
    pthread_mutex_lock(&link->lock);
    clbi_write_fail_all(link, clbi_end_error(clbi_link_end(link)));
    clbi_write_fail_rest(link, clbi_end_error(clbi_link_end(link)));
    pthread_mutex_unlock(&link->lock);
    clbi_link_set_state(link, CLB_LINK_DOWN);
    announce_end(link);
    if (link->hook.down) {
        link->hook.down(link->hook.priv, link);
    }
    struct clbi_queue list = {0};
    clb_loop *loop = NULL;
    pthread_mutex_lock(&link->lock);
    link->finished = true;
    pthread_cond_broadcast(&link->cond);
    bool drop_handle = link->handle_closed;
    if (drop_handle) {
        clbi_link_take_unopened(link, &list);
        loop = link->loop;
        link->loop = NULL;
    }
    pthread_mutex_unlock(&link->lock);
    if (drop_handle) {
        clbi_packets_drop(link, &list);
        clbi_loop_unref(loop);
        clbi_link_unref(link);
    }
    clbi_link_unref(link); /* of the membership */
}

/* Once the state is CLOSING: from then on an adopted descriptor cannot change hands any more. */
static void say_how_to_leave(clb_link *link)
{
    pthread_mutex_lock(&link->lock);
    enum clbi_leave how = link->caller_has_fd ? CLBI_LEAVE_OPEN
                          : link->cut         ? CLBI_LEAVE_CUT
                                              : CLBI_LEAVE_FLUSHED;
    pthread_mutex_unlock(&link->lock);
    if (link->ops->leave) {
        link->ops->leave(link->tr, how);
    }
}

/* A thread of the application may be sending at this moment: it kicks the loop when it is done, and
 * starts nothing new, as the link is not up any more. */
static void close_transport(clb_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->close_waits = link->tx.direct;
    link->tx.turned_away |= link->tx.direct;
    pthread_mutex_unlock(&link->lock);
    if (!link->close_waits) {
        say_how_to_leave(link);
        link->ops->close(link->tr); /* on_closed follows */
    }
}

void clbi_link_begin_close(clb_link *link)
{
    if (link->tr_closing) {
        return;
    }
    link->tr_closing = true;
    link->rx.state = link->rx.state == CLBI_RX_NEXT || link->rx.state == CLBI_RX_DECIDE
                         ? CLBI_RX_STOPPED
                         : link->rx.state;
    if (link->state != CLB_LINK_CLOSING) {
        clbi_link_set_state(link, CLB_LINK_CLOSING);
    }
    if (link->hook.leaving) {
        link->hook.leaving(link->hook.priv);
    }
    if (link->tr) {
        close_transport(link);
    } else {
        finish(link);
    }
}

void clbi_link_drop(clb_link *link, enum clb_error err, enum clb_domain domain, int native,
                    const char *fmt, ...)
{
    char text[220];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&link->lock);
    bool first = link->state < CLB_LINK_CLOSING && !link->shutdown_wanted;
    char peer[sizeof link->info.peer];
    memcpy(peer, link->info.peer, sizeof peer);
    pthread_mutex_unlock(&link->lock);
    if (first) {
        struct clb_status why = {0};
        const char *whom = peer[0] ? peer : link->address ? link->address : "the peer";
        clbi_fail(&why, &link->cfg.log, err, domain, native, "link to %s: %s", whom, text);
        pthread_mutex_lock(&link->lock);
        link->why = why;
        pthread_mutex_unlock(&link->lock);
    }
    clbi_link_begin_close(link);
}

/* ---- events of the transport ------------------------------------------------------------------ */

static void connected(clb_link *link)
{
    clb_link_info info = link->info;
    link->ops->get_info(link->tr, &info);
    info.role = link->role;
    pthread_mutex_lock(&link->lock);
    link->info = info;
    pthread_mutex_unlock(&link->lock);
    link->last_rx_ns = clbi_now_ns();
    link->connected = true;
    clbi_rx_run(link);
    clbi_tx_run(link);
}

static void update_deadline(clb_link *link);

static void on_open(void *owner, const struct clb_status *failure)
{
    clb_link *link = owner;
    clbi_link_ref(link);
    if (failure) {
        /* The transport has described and logged it. */
        pthread_mutex_lock(&link->lock);
        if (link->state < CLB_LINK_CLOSING && !link->shutdown_wanted) {
            link->why = *failure;
        }
        pthread_mutex_unlock(&link->lock);
        clbi_link_begin_close(link);
    } else {
        connected(link);
    }
    update_deadline(link);
    clbi_link_unref(link);
}

static void on_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    clb_link *link = owner;
    clbi_link_ref(link);
    (void)bytes; /* what is complete is counted, header by header and payload by payload */
    clbi_rx_done(link, failure);
    if (!link->tr_closing) {
        clbi_rx_run(link);
        clbi_tx_run(link);
    }
    update_deadline(link);
    clbi_link_unref(link);
}

static void on_send(void *owner, size_t bytes, const struct clb_status *failure)
{
    clb_link *link = owner;
    clbi_link_ref(link);
    clbi_tx_done(link, bytes, failure);
    if (!link->tr_closing) {
        clbi_tx_run(link);
        clbi_rx_run(link); /* it may have paused for the answers that went out now */
        clbi_tx_run(link);
    }
    update_deadline(link);
    clbi_link_unref(link);
}

static void on_partial(void *owner);

static void on_closed(void *owner)
{
    finish(owner);
}

static const struct clbi_transport_env link_env = {
    .on_open = on_open,
    .on_recv = on_recv,
    .on_send = on_send,
    .on_partial = on_partial,
    .on_closed = on_closed,
    .loop_ops = &clbi_loop_ops,
};

static void start_transport(clb_link *link)
{
    struct clbi_transport_env env = link_env;
    env.owner = link;
    env.loop = link->loop;
    env.log = link->cfg.log;
    struct clb_status st = {0};
    if (link->adopt_fd < 0) {
        if (link->ops->open(&link->tr, &env, link->address, &st) < 0) {
            link->tr = NULL;
            on_open(link, &st);
        }
        return;
    }
    if (link->ops->adopt(&link->tr, &env, link->adopt_fd, &st) < 0) {
        link->tr = NULL;
        on_open(link, &st);
        return;
    }
    link->adopt_fd = -1;
    connected(link);
}

/* ---- timers ----------------------------------------------------------------------------------- */

/* What the requests that the peer never answered mean. */
static void expire_requests(clb_link *link, int64_t now)
{
    struct clbi_proto_event ev;
    for (;;) {
        pthread_mutex_lock(&link->lock);
        bool any = clbi_proto_expire(&link->proto, now, &ev);
        if (any && ev.kind == CLBI_EV_WRITE_FAILED) {
            clbi_write_answered(link, ev.stream, ev.token, CLB_ERR_TIMEOUT);
        } else if (any && ev.kind == CLBI_EV_REFUSED && link->slot[ev.stream].stream) {
            clb_stream *s = link->slot[ev.stream].stream;
            s->refused = true;
            s->refuse_err = ev.err;
            pthread_cond_broadcast(&s->cond);
        }
        pthread_mutex_unlock(&link->lock);
        if (!any) {
            return;
        }
        if (ev.kind == CLBI_EV_RESET_DONE && link->close_deadline == CLBI_NEVER) {
            clbi_link_begin_close(link); /* an end never hangs on the peer's answer */
            return;
        }
    }
}

static bool rx_in_progress(const clb_link *link)
{
    switch (link->rx.state) {
    case CLBI_RX_PAYLOAD:
    case CLBI_RX_DRAIN: return true;
    case CLBI_RX_HEADER: return link->seen_rx != link->rx.started_at;
    default: return false;
    }
}

/* We do not read, so the peer's silence means nothing. */
static bool rx_paused(const clb_link *link)
{
    return link->rx.state == CLBI_RX_NEXT || link->rx.state == CLBI_RX_DECIDE;
}

static void look_at_progress(clb_link *link, int64_t now)
{
    uint64_t rx, tx;
    link->ops->progress(link->tr, &rx, &tx);
    if (rx != link->seen_rx) {
        link->seen_rx = rx;
        link->last_rx_ns = now;
        link->rx.progress_ns = now;
    }
    if (tx != link->seen_tx) {
        link->seen_tx = tx;
        link->tx.progress_ns = now;
    }
    if (rx_paused(link)) {
        link->listening_ns = now;
    }
    link->look_at = 0;
}

/* Between headers nothing has to move; with the first byte of one the limit begins to run. */
static void on_partial(void *owner)
{
    clb_link *link = owner;
    if (link->rx.state == CLBI_RX_HEADER && !rx_in_progress(link)) {
        look_at_progress(link, clbi_now_ns());
        update_deadline(link);
    }
}

static int64_t idle_until(const clb_link *link)
{
    int64_t since = link->last_rx_ns > link->listening_ns ? link->last_rx_ns : link->listening_ns;
    return clbi_add_ns(since, link->cfg.idle_timeout_ns);
}

/* The system must not go on for minutes with a peer that we have given up. */
static void cut_off(clb_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->cut = clbi_link_end(link) == CLBI_END_NONE;
    pthread_mutex_unlock(&link->lock);
}

/* true: the link ends */
static bool check_limits(clb_link *link, int64_t now)
{
    const clb_link_params *cfg = &link->cfg;
    if (link->tx.dead_until && now >= link->tx.dead_until) {
        clbi_link_drop(link, CLB_ERR_LOST, link->tx.failure.domain, link->tx.failure.native,
                       "sending to the peer failed");
        return true;
    }
    if (rx_in_progress(link) &&
        now >= clbi_add_ns(link->rx.progress_ns, cfg->progress_timeout_ns)) {
        clbi_link_drop(link, CLB_ERR_LOST, CLB_DOMAIN_NONE, 0,
                       "the peer stopped in the middle of a %s for %lld ms; the link is dropped",
                       link->rx.state == CLBI_RX_HEADER ? "header" : "payload",
                       (long long)(cfg->progress_timeout_ns / CLBI_MS));
        return true;
    }
    if (link->tx.busy && now >= clbi_add_ns(link->tx.progress_ns, cfg->progress_timeout_ns)) {
        cut_off(link);
        clbi_link_drop(link, CLB_ERR_LOST, CLB_DOMAIN_NONE, 0,
                       "the peer has not taken our bytes for %lld ms; the link is dropped",
                       (long long)(cfg->progress_timeout_ns / CLBI_MS));
        return true;
    }
    if (link->state != CLB_LINK_UP) {
        return false;
    }
    if (now >= idle_until(link)) {
        cut_off(link);
        clbi_link_drop(link, CLB_ERR_LOST, CLB_DOMAIN_NONE, 0,
                       "no sign of life from the peer for %lld ms; the link is dropped",
                       (long long)(cfg->idle_timeout_ns / CLBI_MS));
        return true;
    }
    if (now >= clbi_add_ns(link->last_rx_ns, cfg->keepalive_ns)) {
        pthread_mutex_lock(&link->lock);
        clbi_proto_ping(&link->proto);
        pthread_mutex_unlock(&link->lock);
    }
    return false;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When bytes of an unfinished operation moved is seen by looking: often enough that a stall is noticed
 * soon after its limit. Operations that begin and end meanwhile do not put the look off. */
static int64_t progress_deadline(clb_link *link, int64_t now)
{
    const int64_t limit = link->cfg.progress_timeout_ns;
    bool rx = rx_in_progress(link);
    if (!rx && link->tr && link->rx.state == CLBI_RX_HEADER) {
        /* The beginning of a header may have been there when it was asked for. */
        uint64_t tx;
        link->ops->progress(link->tr, &link->seen_rx, &tx);
        rx = rx_in_progress(link);
    }
    if (!rx && !link->tx.busy) {
        link->look_at = 0;
        return CLBI_NEVER;
    }
    if (!link->look_at) {
        int64_t look = limit / 20 < 10 * CLBI_MS ? 10 * CLBI_MS : limit / 20;
        link->look_at = clbi_add_ns(now, earlier(look, CLBI_SEC / 4));
    }
    int64_t d = link->look_at;
    d = rx ? earlier(d, clbi_add_ns(link->rx.progress_ns, limit)) : d;
    return link->tx.busy ? earlier(d, clbi_add_ns(link->tx.progress_ns, limit)) : d;
}

/* Every timer of the link in one number. A keep-alive that is already out moves to the idle limit. */
static void update_deadline(clb_link *link)
{
    const clb_link_params *cfg = &link->cfg;
    const int64_t now = clbi_now_ns();
    if (link->tr_closing || link->state == CLB_LINK_DOWN) {
        link->member.deadline = CLBI_NEVER; /* the transport ends by itself */
        return;
    }
    int64_t d = CLBI_NEVER;
    if (link->state == CLB_LINK_CONNECTING) {
        d = link->connect_deadline;
    } else if (link->state == CLB_LINK_CLOSING) {
        d = link->close_deadline;
    } else {
        int64_t alive = clbi_add_ns(link->last_rx_ns, cfg->keepalive_ns);
        if (alive <= now) {
            alive = clbi_add_ns(now, earlier(cfg->keepalive_ns, CLBI_SEC));
        }
        d = earlier(alive, idle_until(link));
    }
    if (link->tx.dead_until) {
        d = earlier(d, link->tx.dead_until);
    }
    d = earlier(d, progress_deadline(link, now));
    pthread_mutex_lock(&link->lock);
    if (link->hold.until) {
        d = earlier(d, link->hold.until);
    }
    d = earlier(d, clbi_proto_next_deadline(&link->proto));
    if (link->rx.state == CLBI_RX_DECIDE) {
        d = earlier(d, link->first_open_until);
    }
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        clb_stream *s = link->slot[i].stream;
        if (s && s->quiet_until) {
            d = earlier(d, s->quiet_until);
        }
    }
    if (link->tr && link->ops->next_deadline) {
        d = earlier(d, link->ops->next_deadline(link->tr));
    }
    link->armed = d;
    pthread_mutex_unlock(&link->lock);
    link->member.deadline = d;
}

static void end_quiet(clb_link *link, int64_t now)
{
    pthread_mutex_lock(&link->lock);
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        clb_stream *s = link->slot[i].stream;
        if (s && s->quiet_until && now >= s->quiet_until) {
            s->quiet_until = 0;
            s->ready_due = s->queue.len > 0;
            clbi_stream_update_fd(s);
        }
    }
    pthread_mutex_unlock(&link->lock);
}

/* ---- service ---------------------------------------------------------------------------------- */

static void begin_shutdown(clb_link *link, int64_t deadline)
{
    bool up = link->state == CLB_LINK_UP;
    if (!up || link->cfg.no_reset_on_close || link->tx.dead_until) {
        clbi_link_begin_close(link);
        return;
    }
    pthread_mutex_lock(&link->lock);
    clbi_write_fail_all(link, CLB_ERR_CLOSED);
    clbi_proto_reset(&link->proto);
    pthread_mutex_unlock(&link->lock);
    link->close_deadline = deadline;
    clbi_link_set_state(link, CLB_LINK_CLOSING);
    clbi_tx_run(link); /* before the deadline is looked at, which may have passed already */
}

void clbi_link_service(void *priv, int64_t now)
{
    clb_link *link = priv;
    clbi_link_ref(link);
    pthread_mutex_lock(&link->lock);
    bool shutdown = link->shutdown_wanted;
    int64_t shutdown_deadline = link->shutdown_deadline;
    pthread_mutex_unlock(&link->lock);

    if (link->tr_closing) {
        if (link->close_waits) {
            close_transport(link);
        }
        /* nothing to do but wait for on_closed */
    } else if (shutdown && link->state != CLB_LINK_CLOSING) {
        begin_shutdown(link, shutdown_deadline);
    } else if (shutdown) {
        link->close_deadline = earlier(link->close_deadline, shutdown_deadline);
    } else if (!link->tr && link->state == CLB_LINK_CONNECTING) {
        start_transport(link);
    }
    if (link->tr && !link->tr_closing) {
        if (link->ops->dispatch && (now >= link->ops->next_deadline(link->tr) ||
                                    (link->look_at && now >= link->look_at))) {
            link->ops->dispatch(link->tr, now);
        }
    }
    if (link->tr && !link->tr_closing) {
        look_at_progress(link, now);
        if (link->state == CLB_LINK_CONNECTING && now >= link->connect_deadline) {
            clbi_link_drop(
                link, CLB_ERR_TIMEOUT, CLB_DOMAIN_NONE, 0,
                link->role == CLB_ROLE_HOST
                    ? "no answer to the first PING within %lld ms; is an XLink application running "
                      "there?"
                    : "no PING within %lld ms",
                (long long)(link->cfg.connect_timeout_ns / CLBI_MS));
        } else if (link->state == CLB_LINK_CLOSING && now >= link->close_deadline) {
            clbi_link_begin_close(link);
        } else if (!check_limits(link, now)) {
            expire_requests(link, now);
            end_quiet(link, now);
            clbi_link_tell_ready(link);
            clbi_rx_run(link);
            clbi_tx_run(link);
        }
    }
    update_deadline(link);
    clbi_link_unref(link);
}
