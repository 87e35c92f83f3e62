/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: the next packet, moved out of spill memory when that is where it lies. */
#include "link_priv.h"

/* An allocator may wait this long before we look for an end again. */
#define SLICE_NS (20 * CLBI_MS)
/* How long the descriptor stays silent after NOBUFS, so that a poller does not spin. */
#define QUIET_NS (2 * CLBI_MS)

/* lock held */
static void deliver(clb_stream *s, clb_packet *p, clb_packet **out)
{
    p->info.dropped_before = p->info.seq - s->expect_seq;
    s->expect_seq = p->info.seq + 1;
    s->stats.held++;
    clbi_stream_update_fd(s);
    *out = p;
}

/* lock held, dropped in between. */
static void tell_bad(clb_link *link, clb_stream *s, const clb_packet_info *info)
{
    char name[128];
    if (info->metadata_status != CLB_METADATA_BAD || s->bad_told) {
        return;
    }
    s->bad_told = true;
    pthread_mutex_unlock(&link->lock);
    clbi_escape(name, sizeof name, s->name);
    clbi_log(
        &link->cfg.log, CLB_LOG_WARN,
        "stream \"%s\": bad metadata: packet of %zu bytes, object type %d, %zu bytes of metadata "
        "claimed (told once, bad_metadata counts)",
        name, info->total, (int)info->object_type, info->claimed_metadata);
    pthread_mutex_lock(&link->lock);
}

/* lock held, dropped in between. One question to the allocator for the packet that is moved. */
static int try_move(clb_link *link, clb_stream *s, clb_packet *p, int64_t wait_ns)
{
    struct clbi_plan plan;
    struct clb_buf buf;
    if (p->misplaced) {
        const int failed = clbi_split_gather(p);
        if (failed < 0 || !p->spill_pending) {
            return failed;
        }
    }
    clbi_split_replan(p, &plan);
    pthread_mutex_unlock(&link->lock);
    int err = clbi_stream_ask(s, p->wire_size, &plan, p->info.stream_id, wait_ns, &buf);
    if (err == CLB_OK) {
        clbi_split_copy(p, &plan, buf.data);
        clbi_packet_drop_buffer(p); /* the spill block */
        p->allocator = s->allocator;
        p->buf = buf;
    }
    pthread_mutex_lock(&link->lock);
    if (err == CLB_OK) {
        p->spill_pending = false;
        s->stats.spill_bytes += p->pixels;
    }
    return err;
}

/* lock held, dropped in between */
static void drop(clb_link *link, clb_packet *p)
{
    struct clbi_queue list = {0};
    clbi_queue_push(&list, p);
    pthread_mutex_unlock(&link->lock);
    clbi_packets_drop(link, &list);
    pthread_mutex_lock(&link->lock);
}

/* lock held, dropped in between. Where packets may get lost, the ones behind p can have all the buffers, and
 * would wait for it for ever: one goes, as the policy has it. *p NULL: p itself. false = none of them has
 * any. */
static bool give_way(clb_link *link, clb_stream *s, clb_packet **p)
{
    clb_packet *victim;
    if (!clbi_full_credits_early(s->on_full) || s->queue.len == s->queue.spilled) {
        return false;
    }
    if (s->on_full == CLB_FULL_DROP_OLDEST) {
        victim = *p;
        *p = NULL;
        s->stats.dropped_oldest++;
    } else {
        victim = clbi_queue_take_newest(&s->queue);
        s->stats.dropped_newest++;
    }
    clbi_stream_full(s);
    drop(link, victim);
    return true;
}

/* lock held, dropped in between. CLB_OK = *out is set; AGAIN = dropped, look for the next one. */
static int move(clb_link *link, clb_stream *s, clb_packet *p, int64_t deadline, clb_packet **out)
{
    bool caller_driven = link->loop && clbi_loop_caller_driven(link->loop);
    s->moving = true;
    bool gave = false;
    int err;
    for (;;) {
        bool last = clbi_link_end(link) != CLBI_END_NONE || s->closing || s->interrupted;
        int64_t now = clbi_now_ns();
        int64_t wait = last || deadline <= now ? 0 : deadline - now;
        wait = wait < SLICE_NS ? wait : SLICE_NS;
        err = try_move(link, s, p, wait);
        s->starved = err == CLB_ERR_NOBUFS;
        if (err == CLB_ERR_NOBUFS && !gave && give_way(link, s, &p)) {
            if (p) {
                gave = true; /* its buffer may take a moment to be free: no other one at once */
                continue;
            }
            err = CLB_ERR_AGAIN;
        }
        gave = false;
        if (err != CLB_ERR_NOBUFS || wait == 0) {
            break;
        }
        /* An allocator may answer at once although it was allowed to wait: ask again, but not as
         * fast as that. On a caller-driven loop this is also what moves the link on. */
        bool hasty = clbi_now_ns() - now < wait / 2;
        if (hasty || caller_driven) {
            int64_t until = hasty ? now + (wait < QUIET_NS ? wait : QUIET_NS) : 0;
            if (clbi_link_wait(link, &s->cond, until) == CLB_ERR_STATE && hasty) {
                clbi_cond_wait_until(&s->cond, &link->lock, until);
            }
        }
    }
    s->moving = s->starved = false;
    pthread_cond_broadcast(&s->cond);
    if (err == CLB_OK) {
        deliver(s, p, out);
    } else if (err == CLB_ERR_NOBUFS && s->index >= 0) {
        clbi_queue_push_front(&s->queue, p);
        if (s->interrupted) {
            s->interrupted = false;
            return CLB_ERR_CANCELED;
        }
        clbi_stream_full(s);
        s->quiet_until = clbi_add_ns(clbi_now_ns(), QUIET_NS);
        clbi_stream_update_fd(s);
        clbi_link_kick(link); /* the loop ends the silence */
        if (link->state == CLB_LINK_DOWN) {
            s->quiet_until = 0; /* there is no loop any more */
            clbi_stream_update_fd(s);
        }
    } else {
        /* Refused; or the handle was closed from a callback meanwhile, and its queue is gone; or it gave
         * way. */
        if (p) {
            s->stats.alloc_failed += err != CLB_ERR_NOBUFS;
            drop(link, p);
        }
        clbi_stream_update_fd(s);
        err = CLB_ERR_AGAIN;
    }
    return err;
}

int clb_stream_read(clb_stream *s, clb_packet **out, int64_t timeout_ns)
{
    if (!out) {
        return CLB_ERR_INVAL;
    }
    *out = NULL;
    if (!s) {
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
        if (s->interrupted) {
            s->interrupted = false;
            err = CLB_ERR_CANCELED;
            break;
        }
        if (!s->moving && s->queue.head) {
            clb_packet *p = clbi_queue_pop(&s->queue);
            clbi_split_resolve(p);
            if (!p->spill_pending) {
                deliver(s, p, out);
                err = CLB_OK;
                break;
            }
            err = move(link, s, p, deadline, out);
            if (err == CLB_ERR_AGAIN) {
                err = CLB_OK;
                continue;
            }
            break;
        }
        if (!s->moving) {
            enum clbi_end end = clbi_link_end(link);
            if (end != CLBI_END_NONE || s->peer_closed) {
                err = end == CLBI_END_NONE ? CLB_ERR_CLOSED : clbi_end_error(end);
                break;
            }
        }
        if (err < 0) { /* of the last wait; what it brought has been looked at */
            err = err == CLB_ERR_TIMEOUT && timeout_ns == 0 ? CLB_ERR_AGAIN : err;
            break;
        }
        /* With no deadline a caller-driven loop is looked at once, but not from its own callbacks. */
        if (timeout_ns == 0 &&
            (!link->loop || !clbi_loop_caller_driven(link->loop) || clbi_link_on_loop(link))) {
            err = CLB_ERR_AGAIN;
            break;
        }
        err = clbi_link_wait(link, &s->cond, deadline);
    }
    if (*out) {
        tell_bad(link, s, &(*out)->info);
    }
    clbi_stream_leave(s);
    return err;
}
