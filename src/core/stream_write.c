/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and flushing. The caller queues an operation; the loop sends it when there is credit. */
#include <stdlib.h>
#include <string.h>

#include "link_priv.h"

#define ON_STACK 15

/* lock held; can this write ever start, or start now? CLB_OK, NOBUFS/AGAIN (later), or an error */
static int startable(const clb_link *link, const clb_stream *s, size_t bytes)
{
    enum clbi_end end = clbi_link_end(link);
    if (end != CLBI_END_NONE || s->closing) {
        return end != CLBI_END_NONE ? clbi_end_error(end) : CLB_ERR_CLOSED;
    }
    if (!s->wants_write) {
        return CLB_ERR_STATE;
    }
    if (s->refused) {
        return s->refuse_err;
    }
    const struct clbi_proto_stream *ps = &link->proto.stream[s->index];
    if (ps->out == CLBI_HALF_OPEN && !ps->out_close_wanted) {
        int r = clbi_proto_write_check(&link->proto, s->index, bytes);
        return r == CLB_ERR_STATE ? CLB_ERR_AGAIN
                                  : r; /* the link ends; its state tells in a moment */
    }
    /* CREATE is not answered yet, or waits until the half of an earlier handle is closed. */
    return bytes > ps->out_want ? CLB_ERR_TOOBIG : CLB_ERR_AGAIN;
}

/* lock held */
static bool any_queued(const clb_stream *s)
{
    for (const struct clbi_write *op = s->writes; op; op = op->next) {
        if (op->state == CLBI_WRITE_QUEUED) {
            return true;
        }
    }
    return false;
}

/* lock held; why a write must not go on waiting, CLB_OK = it may */
static int hopeless(const clb_link *link, const struct clbi_write *op)
{
    clb_stream *s = op->stream;
    if (op->state == CLBI_WRITE_SENT) {
        return s->closing ? CLB_ERR_CLOSED : CLB_OK;
    }
    if (op->state != CLBI_WRITE_QUEUED) {
        return CLB_OK;
    }
    int err = startable(link, s, op->bytes);
    return err == CLB_ERR_NOBUFS || err == CLB_ERR_AGAIN ? CLB_OK : err;
}

/* lock held, dropped while waiting */
static int run_write(clb_link *link, clb_stream *s, struct clbi_write *op, int64_t timeout_ns)
{
    int64_t deadline = clbi_deadline(timeout_ns);
    if (timeout_ns == 0) {
        int r = any_queued(s) ? CLB_ERR_AGAIN : startable(link, s, op->bytes);
        if (r < 0) {
            return r == CLB_ERR_NOBUFS ? CLB_ERR_AGAIN : r;
        }
        deadline = CLBI_NEVER; /* it can start at once: from here on only progress counts */
    }
    op->queued_ns = clbi_now_ns();
    op->token = link->next_token++;
    *s->writes_tail = op;
    s->writes_tail = &op->next;
    clbi_tx_now(link, true);
    while (op->state != CLBI_WRITE_DONE) {
        bool queued = op->state == CLBI_WRITE_QUEUED;
        int err = hopeless(link, op);
        if (err < 0) {
            /* It waits for its start or its answer: nobody uses the caller's memory. */
            clbi_write_unlink(op);
            return err;
        }
        err = clbi_link_wait(link, &s->cond, queued ? deadline : CLBI_NEVER);
        if (err < 0 && op->state == CLBI_WRITE_QUEUED) {
            clbi_write_unlink(op);
            return err;
        }
        if (err == CLB_ERR_STATE && op->state != CLBI_WRITE_DONE) {
            /* Another thread dispatches the caller-driven loop: wait for it as for an I/O thread. */
            clbi_cond_wait_until(&s->cond, &link->lock, clbi_add_ns(clbi_now_ns(), 20 * CLBI_MS));
        }
    }
    return op->result;
}

int clb_stream_write(clb_stream *s, const struct clb_iovec *iov, size_t n, int64_t timeout_ns)
{
    if (!s || (n > 0 && !iov)) {
        return CLB_ERR_INVAL;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if ((iov[i].len > 0 && !iov[i].base) || iov[i].len > SIZE_MAX - bytes) {
            return CLB_ERR_INVAL;
        }
        bytes += iov[i].len;
    }
    if (bytes > UINT32_MAX / 2) {
        return CLB_ERR_TOOBIG; /* sizes of 2^31 and more are refused by every peer */
    }
    struct iovec on_stack[ON_STACK + 1];
    struct iovec *vec = on_stack;
    clb_link *link = s->link;
    if (n > ON_STACK) {
        vec = n < SIZE_MAX / sizeof *vec - 1 ? clbi_link_calloc(link, (n + 1) * sizeof *vec) : NULL;
        if (!vec) {
            return CLB_ERR_NOMEM;
        }
    }
    size_t used = 1;
    for (size_t i = 0; i < n; i++) {
        if (iov[i].len > 0) {
            vec[used++] = (struct iovec){.iov_base = (void *)iov[i].base, .iov_len = iov[i].len};
        }
    }
    struct clbi_write op = {.stream = s, .iov = vec, .iov_len = used, .bytes = bytes};
    clbi_stream_enter(s);
    int err = s->async_err;
    s->async_err = CLB_OK;
    if (err == CLB_OK) {
        err = startable(link, s, bytes);
        if (err == CLB_OK || err == CLB_ERR_NOBUFS || err == CLB_ERR_AGAIN) {
            err = run_write(link, s, &op, timeout_ns);
        }
    }
    clbi_stream_leave(s);
    if (vec != on_stack) {
        free(vec);
    }
    return err;
}

/* lock held */
static bool flushed(const clb_link *link, const clb_stream *s, enum clb_flush what)
{
    if (s->writes || s->unacked > 0) {
        return false;
    }
    return what == CLB_FLUSH_ACKED || link->proto.stream[s->index].out_packets == 0;
}

int clb_stream_flush(clb_stream *s, enum clb_flush what, int64_t timeout_ns)
{
    if (!s || (what != CLB_FLUSH_ACKED && what != CLB_FLUSH_RELEASED)) {
        return CLB_ERR_INVAL;
    }
    clb_link *link = s->link;
    const int64_t deadline = clbi_deadline(timeout_ns);
    int err = CLB_OK;
    clbi_stream_enter(s);
    for (;;) {
        if (s->closing) {
            err = CLB_ERR_CLOSED;
            break;
        }
        if (s->async_err < 0) {
            err = s->async_err;
            s->async_err = CLB_OK;
            break;
        }
        if (flushed(link, s, what)) {
            err = CLB_OK;
            break;
        }
        enum clbi_end end = clbi_link_end(link);
        if (end != CLBI_END_NONE) {
            err = clbi_end_error(end);
            break;
        }
        if (err < 0) {
            err = err == CLB_ERR_TIMEOUT && timeout_ns == 0 ? CLB_ERR_AGAIN : err;
            break;
        }
        err = clbi_link_wait(link, &s->cond, deadline);
    }
    clbi_stream_leave(s);
    return err;
}
