/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an arriving payload goes: the allocator's memory, host memory of the link (spill), or nowhere
 * (drained, with its credit). The rules of the full-queue policies. Dispatching thread only, but for
 * clbi_stream_ask.
 */
#include "link_priv.h"

/* lock held. A packet for the WRITE whose header is in; NULL = out of memory */
static clb_packet *make_packet(clb_link *link)
{
    const struct clbi_proto_event *ev = &link->rx.ev;
    clb_packet *p = clbi_packet_new(link);
    if (!p) {
        return NULL;
    }
    p->link = link;
    p->index = ev->stream;
    p->wire_size = (uint32_t)ev->size;
    p->credit_due = true;
    p->info.size = ev->size;
    p->info.peer_ns = ev->peer_ns;
    p->info.first_byte_ns = link->rx.first_byte_ns;
    p->info.stream_id = link->proto.stream[ev->stream].id;
    return p;
}

static bool fits(const struct clb_buf *buf, const struct clb_alloc_req *req)
{
    return buf->data && buf->size >= req->capacity &&
           ((uintptr_t)buf->data & (req->align - 1)) == 0;
}

int clbi_stream_ask(clb_stream *s, size_t payload, const struct clbi_plan *plan, uint32_t id,
                    int64_t wait_ns, struct clb_buf *buf)
{
    const struct clb_allocator a = s->allocator;
    const struct clb_alloc_req req = {
        .payload = payload,
        .expect = plan->expect,
        .capacity = plan->capacity,
        .align = s->align,
        .stream_id = id,
        .stream_name = s->name,
        .wait_ns = wait_ns,
    };
    *buf = (struct clb_buf){0};
    int err = a.alloc(a.opaque, &req, buf);
    if (err == CLB_OK && !fits(buf, &req)) {
        char name[128];
        clbi_log(&s->link->cfg.log, CLB_LOG_WARN,
                 "stream \"%s\": the allocator gave %zu bytes at %p where %zu aligned to %zu were "
                 "asked for; the packet is dropped",
                 clbi_escape(name, sizeof name, s->name), buf->size, buf->data, req.capacity,
                 req.align);
        if (buf->data || buf->context) {
            a.free(a.opaque, buf);
        }
        err = CLB_ERR_INVAL;
    }
    if (err == CLB_OK && a.ref) {
        a.ref(a.opaque); /* the packet's copy */
        a.ref(a.opaque); /* the buffer */
    }
    return err;
}

/* lock held on entry and exit, dropped around the callback. For the WRITE whose header is in. */
static int ask_allocator(clb_link *link, clb_stream *s, struct clb_buf *buf)
{
    const struct clbi_proto_event *ev = &link->rx.ev;
    const uint32_t id = link->proto.stream[ev->stream].id;
    pthread_mutex_unlock(&link->lock);
    int err = clbi_stream_ask(s, ev->size, &link->rx.plan, id, 0, buf);
    pthread_mutex_lock(&link->lock);
    return err;
}

/* lock held. Takes buf over for the packet that comes in. */
static void set_target(clb_link *link, clb_packet *p, clb_stream *s, const struct clb_allocator *a,
                       const struct clb_buf *buf)
{
    p->allocator = *a;
    p->buf = *buf;
    p->info.seq = link->slot[p->index].seq++;
    if (s) {
        p->stream = s;
        clbi_stream_ref(s);
    }
    link->rx.packet = p;
}

/* lock held, released. The payload goes to host memory of the link. */
static bool spill(clb_link *link, clb_stream *s)
{
    struct clb_buf buf;
    clb_packet *p = make_packet(link);
    int err = p ? clbi_spill_alloc(link, link->rx.ev.size, &buf) : CLB_ERR_NOMEM;
    if (err < 0) {
        if (p) {
            clbi_packet_recycle(link, p);
        }
        struct clbi_slot *slot = &link->slot[link->rx.ev.stream];
        slot->seq++;
        if (s) {
            s->stats.alloc_failed++;
            clbi_split_lost(s, link->rx.ev.size);
        } else if (!slot->closed_once) {
            slot->lost++; /* whoever opens it is told */
            slot->lost_bytes += link->rx.ev.size;
            link->rx.drain_lost = true;
        }
        pthread_mutex_unlock(&link->lock);
        clbi_log(&link->cfg.log, CLB_LOG_WARN,
                 "no memory for a payload of %zu bytes; it is dropped", link->rx.ev.size);
        return clbi_rx_start_drain(link, true);
    }
    struct clb_allocator a = clbi_spill_allocator(link);
    a.ref(a.opaque);
    a.ref(a.opaque);
    set_target(link, p, s, &a, &buf);
    p->info.spilled = 1;
    p->spill_pending = !s || !s->own_pool || s->repitch;
    if (s) {
        s->stats.spilled++;
    }
    pthread_mutex_unlock(&link->lock);
    return clbi_rx_start_payload(link);
}

/* lock held, released. Read and thrown away, with credit. */
static bool refuse(clb_link *link, clb_stream *s, uint64_t *counter)
{
    (*counter)++;
    clbi_split_lost(s, link->rx.ev.size);
    link->slot[link->rx.ev.stream].seq++;
    pthread_mutex_unlock(&link->lock);
    return clbi_rx_start_drain(link, true);
}

/* lock held, dropped in between. DROP_OLDEST without a free buffer: unread packets give way. */
static int make_room(clb_link *link, clb_stream *s, struct clb_buf *buf)
{
    for (;;) {
        clb_packet *old = clbi_queue_pop(&s->queue);
        if (!old) {
            return CLB_ERR_NOBUFS;
        }
        struct clbi_queue list = {0};
        s->stats.dropped_oldest++;
        clbi_queue_push(&list, old);
        clbi_stream_update_fd(s);
        pthread_mutex_unlock(&link->lock);
        clbi_packets_drop(link, &list);
        pthread_mutex_lock(&link->lock);
        int err = ask_allocator(link, s, buf);
        if (err != CLB_ERR_NOBUFS) {
            return err;
        }
    }
}

/* lock held, released */
static bool receive_for(clb_link *link, clb_stream *s)
{
    const struct clbi_proto_event *ev = &link->rx.ev;
    const struct clbi_proto_stream *ps = &link->proto.stream[ev->stream];
    bool block = s->on_full == CLB_FULL_BLOCK;
    if (block && (ps->in_packets >= CLBI_MAX_PACKETS || ps->in_fill + ev->size > ps->in_window)) {
        clbi_stream_full(s);
    }
    /* With DROP_NEWEST the one that is being moved is older, and gets the next buffer. */
    if (clbi_full_refuses(s->on_full, s->queue.len, s->queue_len) ||
        (s->on_full == CLB_FULL_DROP_NEWEST && s->starved)) {
        clbi_stream_full(s);
        return refuse(link, s, &s->stats.dropped_newest);
    }
    struct clbi_plan *plan = &link->rx.plan;
    clbi_split_plan(s, ev->size, plan);
    /* While a spilled packet waits, one behind it must not take the buffer that it needs: with the
     * last slot gone to a later packet the first could never be delivered. */
    if (plan->host || (block && (s->queue.spilled > 0 || s->moving))) {
        return spill(link, s);
    }
    struct clb_buf buf;
    clbi_stream_ref(s);
    int err = ask_allocator(link, s, &buf);
    if (err == CLB_ERR_TOOBIG && plan->least > 0 && plan->least < plan->capacity) {
        plan->capacity = plan->least;
        err = ask_allocator(link, s, &buf);
    }
    if (err == CLB_ERR_NOBUFS) {
        clbi_stream_full(s);
        if (s->on_full == CLB_FULL_DROP_OLDEST) {
            err = make_room(link, s, &buf);
        }
    }
    bool gone = link->slot[ev->stream].stream != s;
    clb_packet *p = err == CLB_OK && !gone ? make_packet(link) : NULL;
    if (p) {
        p->stream = s;
        if (!clbi_split_begin(p, plan)) {
            clbi_packet_recycle(link, p);
            p = NULL;
        }
    }
    bool r;
    if (p) {
        set_target(link, p, s, &s->allocator, &buf);
        pthread_mutex_unlock(&link->lock);
        r = clbi_rx_start_payload(link);
    } else if (err == CLB_OK) {
        struct clb_allocator a = s->allocator;
        s->stats.alloc_failed += !gone;
        clbi_split_lost(s, ev->size);
        link->slot[ev->stream].seq++;
        pthread_mutex_unlock(&link->lock);
        a.free(a.opaque, &buf);
        if (a.unref) {
            a.unref(a.opaque);
            a.unref(a.opaque);
        }
        if (!gone) {
            clbi_log(&link->cfg.log, CLB_LOG_WARN,
                     "no memory for a packet of %zu bytes; it is dropped", ev->size);
        }
        r = clbi_rx_start_drain(link, true);
    } else if ((err == CLB_ERR_NOBUFS && block) || (err == CLB_ERR_TOOBIG && plan->guess)) {
        r = spill(link, gone ? NULL : s);
    } else {
        r = refuse(link, s,
                   err == CLB_ERR_NOBUFS ? &s->stats.dropped_newest : &s->stats.alloc_failed);
    }
    clbi_stream_unref(s);
    return r;
}

bool clbi_rx_place(clb_link *link)
{
    const struct clbi_proto_event *ev = &link->rx.ev;
    pthread_mutex_lock(&link->lock);
    struct clbi_slot *slot = &link->slot[ev->stream];
    clb_stream *s = slot->stream;
    if (clbi_link_end(link) != CLBI_END_NONE) {
        pthread_mutex_unlock(&link->lock);
        return clbi_rx_start_drain(link, false);
    }
    if (s) {
        return receive_for(link, s);
    }
    if (slot->closed_once) {
        slot->seq++;
        pthread_mutex_unlock(&link->lock);
        return clbi_rx_start_drain(link, true);
    }
    /* Nobody has opened anything yet: the payload stays in the socket, where it costs nothing, until
     * the first open, an unanswered request of ours (its answer lies behind the payload), or the limit. */
    if (!link->any_opened && clbi_now_ns() < link->first_open_until &&
        !clbi_proto_busy(&link->proto)) {
        pthread_mutex_unlock(&link->lock);
        link->rx.state = CLBI_RX_DECIDE;
        return false;
    }
    return spill(link, NULL);
}
