/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending: one gather send at a time, made of every header that waits and at most one payload.
 * Answers come first. The loop sends; a thread of the application does it when nobody else is at it
 * and the loop would have to be woken for it. The write operations belong to waiting callers.
 */
#include <string.h>

#include "link_priv.h"

#define DEAD_NS CLBI_SEC

void clbi_write_unlink(struct clbi_write *op)
{
    clb_stream *s = op->stream;
    for (struct clbi_write **p = &s->writes; *p; p = &(*p)->next) {
        if (*p == op) {
            *p = op->next;
            if (s->writes_tail == &op->next) {
                s->writes_tail = p;
            }
            return;
        }
    }
}

/* lock held */
static void finish_write(struct clbi_write *op, int result)
{
    clb_stream *s = op->stream;
    clbi_write_unlink(op);
    op->result = result;
    op->state = CLBI_WRITE_DONE; /* the caller's stack may go as soon as the lock is dropped */
    pthread_cond_broadcast(&s->cond);
}

void clbi_write_answered(clb_link *link, int index, uint64_t token, int result)
{
    clb_stream *s = link->slot[index].stream;
    if (!s) {
        return;
    }
    s->stats.acked += result == CLB_OK;
    for (struct clbi_write *op = s->writes; op; op = op->next) {
        if (op->token == token && op->state == CLBI_WRITE_SENDING) {
            /* A hasty peer. The transport still reads the memory: clbi_tx_done ends it. */
            op->answered = true;
            op->result = result;
            return;
        }
    }
    if (s->unacked > 0) {
        s->unacked--;
    }
    for (struct clbi_write *op = s->writes; op; op = op->next) {
        if (op->token == token && op->state == CLBI_WRITE_SENT) {
            finish_write(op, result);
            return;
        }
    }
    if (result < 0 && s->write_async) {
        s->async_err = result;
    }
    pthread_cond_broadcast(&s->cond);
}

void clbi_write_fail_rest(clb_link *link, int result)
{
    if (link->tx.rest.op) {
        finish_write(link->tx.rest.op, result);
    }
    link->tx.rest.op = NULL;
    link->tx.rest.iov = NULL;
}

void clbi_write_fail_all(clb_link *link, int result)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        clb_stream *s = link->slot[i].stream;
        struct clbi_write *next;
        for (struct clbi_write *op = s ? s->writes : NULL; op; op = next) {
            next = op->next;
            /* The transport still reads the memory of one that is being sent. */
            if (op->state != CLBI_WRITE_SENDING) {
                finish_write(op, result);
            }
        }
    }
}

/* lock held. The next write that may start, round robin over the streams. */
static struct clbi_write *pick_write(clb_link *link, int64_t now)
{
    if (clbi_link_end(link) != CLBI_END_NONE) {
        return NULL;
    }
    for (uint32_t k = 0; k < CLBI_MAX_STREAMS; k++) {
        uint32_t i = (link->tx.next_stream + k) % CLBI_MAX_STREAMS;
        clb_stream *s = link->slot[i].stream;
        struct clbi_write *op = s ? s->writes : NULL;
        while (op && op->state != CLBI_WRITE_QUEUED) {
            op = op->next;
        }
        if (!op) {
            continue;
        }
        int r = clbi_proto_write_check(&link->proto, (int)i, op->bytes);
        if (r == CLB_OK) {
            if (op->waited_credit) {
                s->stats.credit_wait_ns += (uint64_t)(now - op->queued_ns);
            }
            link->tx.next_stream = i + 1;
            return op;
        }
        op->waited_credit |= r == CLB_ERR_NOBUFS;
        if (r == CLB_ERR_TOOBIG) {
            finish_write(op, r);
        }
    }
    return NULL;
}

/* lock held. What a send that is over means to the write whose payload it was. */
static void write_sent(clb_link *link, struct clbi_write *op, const struct clb_status *failure,
                       int64_t now)
{
    clb_stream *s = op->stream;
    enum clbi_end end = clbi_link_end(link);
    if (failure) {
        finish_write(op, failure->err == CLB_ERR_CANCELED ? clbi_end_error(end) : CLB_ERR_LOST);
        return;
    }
    clbi_proto_write_sent(&link->proto, op->token, now);
    op->state = CLBI_WRITE_SENT;
    s->unacked += !op->answered;
    s->stats.written++;
    s->stats.written_bytes += op->bytes;
    if (op->answered) {
        finish_write(op, op->result);
    } else if (end != CLBI_END_NONE) {
        finish_write(op, clbi_end_error(end));
    } else if (s->write_async) {
        finish_write(op, CLB_OK);
    }
}

/* lock held */
static void note_failure(clb_link *link, const struct clb_status *failure)
{
    if (failure->err != CLB_ERR_CANCELED && !link->tx.broken) {
        link->tx.broken = true;
        link->tx.failure = *failure;
    }
}

void clbi_tx_done(clb_link *link, size_t bytes, const struct clb_status *failure)
{
    struct clbi_write *op = link->tx.op;
    int64_t now = clbi_now_ns();
    link->tx.op = NULL;
    pthread_mutex_lock(&link->lock);
    link->tx.busy = false;
    link->tx_bytes += failure ? bytes : link->tx.bytes;
    if (op) {
        write_sent(link, op, failure, now);
    }
    if (failure) {
        note_failure(link, failure);
    }
    pthread_mutex_unlock(&link->lock);
}

/* lock held. All headers that wait, into tx.headers, and a write that goes with them if writes are
 * wanted; *op is it, or NULL. Returns the number of headers. */
static size_t gather(clb_link *link, int64_t now, bool writes, struct clbi_write **op)
{
    uint8_t *headers = link->tx.headers;
    size_t n = clbi_proto_out(&link->proto, now, headers, CLBI_MAX_ANSWERS);
    *op = writes ? pick_write(link, now) : NULL;
    link->hold.until = 0;
    if (*op) {
        (*op)->state = CLBI_WRITE_SENDING;
        clbi_hold_said(link);
        clbi_proto_write_begin(&link->proto, (*op)->stream->index, (uint32_t)(*op)->bytes,
                               (*op)->token, now, headers + n * CLBI_WIRE_HEADER);
        (*op)->iov[0] = (struct iovec){headers, (n + 1) * CLBI_WIRE_HEADER};
        n++;
    }
    return n;
}

/* lock held. What a direct send could not do becomes a send of the loop. false = nothing is left. */
static bool take_rest(clb_link *link, struct iovec **iov, size_t *iov_len)
{
    if (!link->tx.rest.iov) {
        return false;
    }
    link->tx.op = link->tx.rest.op;
    link->tx.bytes = link->tx.rest.bytes;
    *iov = link->tx.rest.iov;
    *iov_len = link->tx.rest.iov_len;
    link->tx.rest.iov = NULL;
    link->tx.rest.op = NULL;
    return true;
}

void clbi_tx_run(clb_link *link)
{
    while (link->connected && !link->tr_closing && !link->tx.busy) {
        int64_t now = clbi_now_ns();
        struct clb_status st = {0};
        struct iovec *iov = NULL;
        size_t iov_len = 0, n = 0;
        struct clbi_write *op = NULL;
        pthread_mutex_lock(&link->lock);
        if (link->tx.direct) {
            link->tx.turned_away = true;
            pthread_mutex_unlock(&link->lock);
            return;
        }
        if (link->tx.broken && !link->tx.dead_until) {
            /* A peer that has gone may have said so: its RESET, and packets before it, lie in the
             * socket still. The receiving side finds the end, and gets a moment for it. */
            link->tx.dead_until = clbi_add_ns(now, DEAD_NS);
        }
        if (!link->tx.dead_until && !take_rest(link, &iov, &iov_len) && !clbi_hold(link, now)) {
            n = gather(link, now, true, &op);
            if (n > 0) {
                link->tx.iov = (struct iovec){link->tx.headers, n * CLBI_WIRE_HEADER};
                iov = op ? op->iov : &link->tx.iov;
                iov_len = op ? op->iov_len : 1;
                link->tx.op = op;
                link->tx.bytes = n * CLBI_WIRE_HEADER + (op ? op->bytes : 0);
            }
        }
        link->tx.busy = iov != NULL;
        pthread_mutex_unlock(&link->lock);
        if (!iov) {
            if (link->close_after_flush) {
                clbi_link_begin_close(link);
            }
            return;
        }
        link->tx.progress_ns = now;
        int r = link->ops->send(link->tr, iov, iov_len, &st);
        if (r == CLBI_DONE) {
            clbi_tx_done(link, link->tx.bytes, NULL);
        } else if (r < 0) {
            clbi_tx_done(link, 0, &st);
        }
    }
}

/* ---- sending from the application's threads --------------------------------------------------- */

/* iov without its first `bytes`; the number of entries that are left. */
static size_t skip_sent(struct iovec **iov, size_t n, size_t bytes)
{
    while (n > 0 && bytes >= (*iov)->iov_len) {
        bytes -= (*iov)->iov_len;
        (*iov)++;
        n--;
    }
    if (n > 0) {
        (*iov)->iov_base = (uint8_t *)(*iov)->iov_base + bytes;
        (*iov)->iov_len -= bytes;
    }
    return n;
}

/* lock held, dropped meanwhile. false = nothing was to be sent. */
static bool send_direct(clb_link *link, bool writes)
{
    int64_t now = clbi_now_ns();
    struct clbi_write *op;
    const size_t n = gather(link, now, writes, &op);
    if (n == 0) {
        return false;
    }
    struct clb_status st = {0};
    struct iovec own = {link->tx.headers, n * CLBI_WIRE_HEADER};
    struct iovec *iov = op ? op->iov : &own;
    size_t iov_len = op ? op->iov_len : 1, sent = 0;
    const size_t bytes = n * CLBI_WIRE_HEADER + (op ? op->bytes : 0);
    pthread_mutex_unlock(&link->lock);
    const int r = link->ops->send_now(link->tr, iov, iov_len, &sent, &st);
    pthread_mutex_lock(&link->lock);
    link->tx_bytes += sent;
    if (r < 0) {
        note_failure(link, &st);
    } else if (sent < bytes) {
        iov_len = skip_sent(&iov, iov_len, sent);
        if (!op) {
            link->tx.rest.headers = *iov; /* ours is on the stack */
            iov = &link->tx.rest.headers;
        }
        link->tx.rest.iov = iov;
        link->tx.rest.iov_len = iov_len;
        link->tx.rest.op = op;
        link->tx.rest.bytes = bytes - sent;
        return true;
    }
    if (op) {
        write_sent(link, op, r < 0 ? &st : NULL, clbi_now_ns());
    }
    return true;
}

/* lock held */
static bool may_send(const clb_link *link)
{
    return link->state == CLB_LINK_UP && !link->tx.broken && !link->tx.rest.iov;
}

void clbi_tx_now(clb_link *link, bool writes)
{
    if (!link->loop || clbi_loop_kick_awake(link->loop, &link->member)) {
        return;
    }
    if (!writes && clbi_hold_release(link, clbi_now_ns())) {
        return;
    }
    if (!may_send(link) || link->tx.busy || link->tx.direct || !link->ops->send_now) {
        clbi_link_kick(link);
        return;
    }
    link->tx.direct = true;
    link->tx.turned_away = false;
    while (may_send(link) && send_direct(link, writes)) {
    }
    link->tx.direct = false;
    /* The loop has something to do, or does not know of the deadline that begins with this. */
    if (link->tx.turned_away || !may_send(link) ||
        clbi_proto_next_deadline(&link->proto) < link->armed) {
        clbi_link_kick(link);
    }
}
