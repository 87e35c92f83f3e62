/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending: one gather send at a time, made of every header that waits and at most one payload.
 * Answers come first. Dispatching thread only; the write operations belong to waiting callers.
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

void clbi_tx_done(clb_link *link, size_t bytes, const struct clb_status *failure)
{
    struct clbi_write *op = link->tx.op;
    int64_t now = clbi_now_ns();
    link->tx.busy = false;
    link->tx.op = NULL;
    pthread_mutex_lock(&link->lock);
    link->tx_bytes += failure ? bytes : link->tx.bytes;
    if (op) {
        clb_stream *s = op->stream;
        enum clbi_end end = clbi_link_end(link);
        if (failure) {
            finish_write(op, failure->err == CLB_ERR_CANCELED ? clbi_end_error(end) : CLB_ERR_LOST);
        } else {
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
    }
    pthread_mutex_unlock(&link->lock);
    if (failure && failure->err != CLB_ERR_CANCELED && !link->tr_closing) {
        /* A peer that has gone may have said so: its RESET, and packets before it, lie in the socket
         * still. The receiving side finds the end, and gets a moment for it. */
        link->tx.dead_until = clbi_add_ns(now, DEAD_NS);
        link->tx.failure = *failure;
    }
}

void clbi_tx_run(clb_link *link)
{
    while (link->connected && !link->tr_closing && !link->tx.busy) {
        if (link->tx.dead_until) {
            if (link->close_after_flush) {
                clbi_link_begin_close(link);
            }
            return;
        }
        int64_t now = clbi_now_ns();
        struct clb_status st = {0};
        uint8_t *headers = link->tx.headers;
        pthread_mutex_lock(&link->lock);
        size_t n = clbi_proto_out(&link->proto, now, headers, CLBI_MAX_ANSWERS);
        struct clbi_write *op = pick_write(link, now);
        if (op) {
            op->state = CLBI_WRITE_SENDING;
            clbi_proto_write_begin(&link->proto, op->stream->index, (uint32_t)op->bytes, op->token,
                                   now, headers + n * CLBI_WIRE_HEADER);
            n++;
        }
        pthread_mutex_unlock(&link->lock);
        if (n == 0) {
            if (link->close_after_flush) {
                clbi_link_begin_close(link);
            }
            return;
        }
        struct iovec *iov = op ? op->iov : &link->tx.iov;
        size_t iov_len = op ? op->iov_len : 1;
        iov[0] = (struct iovec){.iov_base = headers, .iov_len = n * CLBI_WIRE_HEADER};
        link->tx.op = op;
        link->tx.bytes = n * CLBI_WIRE_HEADER + (op ? op->bytes : 0);
        link->tx.busy = true;
        link->tx.progress_ns = now;
        int r = link->ops->send(link->tr, iov, iov_len, &st);
        if (r == CLBI_DONE) {
            clbi_tx_done(link, link->tx.bytes, NULL);
        } else if (r < 0) {
            clbi_tx_done(link, 0, &st);
        }
    }
}
