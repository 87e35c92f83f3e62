/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiving: header, payload, delivery. Where a payload goes is decided in link_place.c. Dispatching
 * thread only.
 *
 * Between a header and its payload there is one call of the allocator and no copy. What cannot be
 * taken is drained, so that the byte stream stays in step whatever the application does.
 */
#include <stdlib.h>
#include <string.h>

#include "link_priv.h"

/* Receiving this much takes less time than a send is worth. */
#define SMALL_PAYLOAD ((size_t)128 << 10)

/* ---- delivery --------------------------------------------------------------------------------- */

/* lock held. The policy's side of a packet that has arrived, complete. Readers are not woken here. */
static void enqueue(clb_stream *s, clb_packet *p, struct clbi_queue *dropped)
{
    if (clbi_full_credits_early(s->on_full)) {
        clbi_packet_credit(p);
    }
    uint32_t excess = clbi_full_excess(s->on_full, s->queue.len, s->queue_len);
    if (excess) {
        clbi_stream_full(s);
    }
    while (excess-- > 0) {
        clb_packet *old = clbi_queue_pop(&s->queue);
        if (!old) {
            break;
        }
        s->stats.dropped_oldest++;
        clbi_queue_push(dropped, old);
    }
    clbi_queue_push(&s->queue, p);
    clbi_stream_update_fd(s);
}

/* lock held. Of a payload that was drained. */
static void count_drained(clb_stream *s, size_t bytes)
{
    s->stats.packets++;
    s->stats.bytes += bytes;
}

/* lock held. Referenced for tell_full(), or NULL. */
static clb_stream *take_full(clb_stream *s)
{
    if (!s || !s->full_due) {
        return NULL;
    }
    s->full_due = false;
    clbi_stream_ref(s);
    return s;
}

/* No lock held. A full window is how BLOCK works; where packets get lost it is not as it should be. */
static void tell_full(clb_stream *s)
{
    char name[128];
    if (!s) {
        return;
    }
    clbi_escape(name, sizeof name, s->name);
    if (s->on_full == CLB_FULL_BLOCK) {
        clbi_log(&s->link->cfg.log, CLB_LOG_INFO,
                 "stream \"%s\": packets come faster than they are read and released; its sender "
                 "waits (told once, full_events counts)",
                 name);
    } else {
        clbi_log(&s->link->cfg.log, CLB_LOG_WARN,
                 "stream \"%s\": packets come faster than they are read; they are dropped (told "
                 "once, dropped_oldest and dropped_newest count)",
                 name);
    }
    clbi_stream_unref(s);
}

/* Something is in, complete: a sign of life, and the mark from which the timers see progress. */
static int64_t note_arrival(clb_link *link)
{
    uint64_t tx;
    link->ops->progress(link->tr, &link->seen_rx, &tx);
    link->last_rx_ns = clbi_now_ns();
    return link->last_rx_ns;
}

static void payload_done(clb_link *link)
{
    clb_packet *p = link->rx.packet;
    struct clbi_queue dropped = {0};
    clb_stream *ready = NULL, *wake = NULL;
    link->rx.packet = NULL;
    link->rx.state = CLBI_RX_NEXT;
    p->info.last_byte_ns = note_arrival(link);
    const bool small = p->wire_size <= SMALL_PAYLOAD;

    pthread_mutex_lock(&link->lock);
    clbi_proto_payload_done(&link->proto);
    clbi_hold_heard(link, p->wire_size);
    link->rx_bytes += p->wire_size;
    struct clbi_slot *slot = &link->slot[p->index];
    clb_stream *s = slot->stream;
    if (clbi_link_end(link) != CLBI_END_NONE) {
        clbi_queue_push(&dropped, p);
    } else if (!s && !p->stream && !slot->closed_once) {
        clbi_queue_push(&slot->unopened, p);
    } else if (!s || (p->stream && p->stream != s)) {
        /* Closed while the payload was on its way. */
        clbi_packet_credit(p);
        clbi_queue_push(&dropped, p);
    } else {
        if (!p->stream) {
            /* Opened while the payload was on its way to host memory. */
            p->stream = s;
            clbi_stream_ref(s);
            p->spill_pending = !s->own_pool || s->repitch;
            s->stats.spilled++;
            /* The handle took the packet for one that had gone before it. */
            if (s->expect_seq > p->info.seq) {
                s->expect_seq = p->info.seq;
            }
        }
        clbi_split_finish(p);
        enqueue(s, p, &dropped);
        wake = s;
        clbi_stream_ref(s); /* its reader may be the last who needs it */
        if (s->ready_cb && !s->closing) {
            clbi_stream_begin_ready(s);
            ready = s;
        }
    }
    clb_stream *full = take_full(s);
    pthread_mutex_unlock(&link->lock);

    if (wake) {
        /* Not under the lock, which is the first thing that a reader needs. */
        pthread_cond_broadcast(&wake->cond);
        clbi_stream_unref(wake);
    }
    /* The answer goes out before anything else happens (wire section 6.5). When the next header has come
     * along with a small payload, it goes with the next one, or at the end of this wake-up. */
    if (!small || link->ops->looked_ahead(link->tr) == 0) {
        clbi_tx_run(link);
    }
    clbi_packets_drop(link, &dropped);
    tell_full(full);
    if (ready) {
        clbi_stream_end_ready(ready);
    }
}

/* A payload that was read and thrown away. */
static void drain_done(clb_link *link)
{
    const struct clbi_proto_event *ev = &link->rx.ev;
    link->rx.state = CLBI_RX_NEXT;
    note_arrival(link);
    pthread_mutex_lock(&link->lock);
    clbi_proto_payload_done(&link->proto);
    link->rx_bytes += ev->size;
    clb_stream *full = NULL;
    if (link->rx.drain_credit) {
        clbi_proto_release(&link->proto, ev->stream, (uint32_t)ev->size);
        clb_stream *s = link->slot[ev->stream].stream;
        if (s && !link->rx.drain_lost) {
            count_drained(s, ev->size);
        }
        full = take_full(s);
    }
    link->rx.drain_lost = false;
    pthread_mutex_unlock(&link->lock);
    clbi_tx_run(link);
    tell_full(full);
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* Into the first n of rx.seg. */
static bool start_segs(clb_link *link, enum clbi_rx state, size_t n, size_t ahead)
{
    struct clb_status st = {0};
    link->rx.state = state;
    link->rx.progress_ns = clbi_now_ns();
    int r = link->ops->recv_start(link->tr, link->rx.seg, n, ahead, &st);
    if (r < 0) {
        clbi_rx_done(link, &st);
    }
    return r == CLBI_DONE;
}

static bool start(clb_link *link, enum clbi_rx state, void *base, size_t bytes, size_t ahead)
{
    link->rx.seg[0] =
        (struct clbi_seg){.base = base, .row_bytes = bytes, .pitch = bytes, .rows = 1};
    return start_segs(link, state, 1, ahead);
}

void *clbi_rx_sink(clb_link *link, size_t *size)
{
    if (!link->drain) {
        link->drain = malloc(CLBI_DRAIN_BLOCK);
        atomic_fetch_add(&link->heap_allocs, 1);
    }
    *size = link->drain ? CLBI_DRAIN_BLOCK : sizeof link->drain_small;
    return link->drain ? link->drain : link->drain_small;
}

bool clbi_rx_start_payload(clb_link *link)
{
    clb_packet *p = link->rx.packet;
    if (p->wire_size == 0) {
        link->rx.state = CLBI_RX_PAYLOAD;
        return true;
    }
    const size_t moved = link->ops->looked_ahead(link->tr);
    pthread_mutex_lock(&link->lock);
    const size_t ahead = clbi_hold_ahead(link, p->wire_size);
    p->info.moved_bytes = moved < p->wire_size ? moved : p->wire_size;
    pthread_mutex_unlock(&link->lock);
    if (!p->tail && !p->rows) {
        return start(link, CLBI_RX_PAYLOAD, p->buf.data, p->wire_size, ahead);
    }
    size_t sink_size = 0;
    void *sink = p->rows ? clbi_rx_sink(link, &sink_size) : NULL;
    return start_segs(link, CLBI_RX_PAYLOAD, clbi_split_segs(p, link->rx.seg, sink, sink_size),
                      ahead);
}

static bool continue_drain(clb_link *link)
{
    for (;;) {
        size_t n = link->rx.drain_left;
        if (n == 0) {
            return true;
        }
        void *block = link->drain_small;
        size_t most = sizeof link->drain_small;
        if (n > most) {
            block = clbi_rx_sink(link, &most);
        }
        n = n < most ? n : most;
        link->rx.drain_left -= n;
        if (!start(link, CLBI_RX_DRAIN, block, n,
                   link->rx.drain_left == 0 ? CLBI_WIRE_HEADER : 0)) {
            return false;
        }
    }
}

bool clbi_rx_start_drain(clb_link *link, bool credit)
{
    link->rx.state = CLBI_RX_DRAIN;
    link->rx.drain_left = link->rx.ev.size;
    link->rx.drain_credit = credit;
    return continue_drain(link);
}

/* ---- headers ---------------------------------------------------------------------------------- */

/* lock held. Events that only change what the application sees. */
static void stream_event(clb_link *link, const struct clbi_proto_event *ev)
{
    struct clbi_slot *slot = &link->slot[ev->stream];
    clb_stream *s = slot->stream;
    switch (ev->kind) {
    case CLBI_EV_ANNOUNCED:
        if (!slot->announced) {
            slot->announced = true;
            slot->told = false;
            slot->announce_order = ++link->announce_count;
        }
        if (s) {
            s->peer_closed = false;
        }
        break;
    case CLBI_EV_REFUSED:
        if (s) {
            s->refused = true;
            s->refuse_err = ev->err;
        }
        break;
    case CLBI_EV_WRITE_ACKED: clbi_write_answered(link, ev->stream, ev->token, CLB_OK); break;
    case CLBI_EV_WRITE_FAILED: clbi_write_answered(link, ev->stream, ev->token, ev->err); break;
    case CLBI_EV_CREDIT:
        if (s) {
            s->stats.released++;
        }
        break;
    case CLBI_EV_PEER_CLOSED:
        slot->announced = false;
        if (s) {
            s->peer_closed = true;
            s->ready_due = true;
        }
        break;
    default: /* OPENED, HALF_CLOSED: the machine's state says it all */ break;
    }
    if (s) {
        s->id = link->proto.stream[ev->stream].id;
        clbi_stream_update_fd(s);
        pthread_cond_broadcast(&s->cond);
    }
    clbi_slot_collect(link, ev->stream);
    pthread_cond_broadcast(&link->cond);
}

static void came_up(clb_link *link)
{
    link->first_open_until = clbi_add_ns(clbi_now_ns(), link->cfg.first_open_ns);
    pthread_mutex_lock(&link->lock);
    bool ending = link->shutdown_wanted;
    pthread_mutex_unlock(&link->lock);
    if (!ending && link->state == CLB_LINK_CONNECTING) {
        clbi_link_set_state(link, CLB_LINK_UP);
    }
}

static void peer_reset(clb_link *link)
{
    pthread_mutex_lock(&link->lock);
    if (link->state < CLB_LINK_CLOSING && !link->shutdown_wanted) {
        link->why =
            (struct clb_status){.err = CLB_ERR_CLOSED, .text = "the peer has ended the link"};
    }
    clbi_write_fail_all(link, CLB_ERR_CLOSED);
    pthread_mutex_unlock(&link->lock);
    link->rx.state = CLBI_RX_STOPPED;
    link->close_after_flush = true;
    int64_t limit = clbi_add_ns(clbi_now_ns(), 2 * CLBI_SEC);
    link->close_deadline = limit < link->close_deadline ? limit : link->close_deadline;
    clbi_link_set_state(link, CLB_LINK_CLOSING);
    clbi_tx_run(link);
}

static void header_done(clb_link *link)
{
    struct clbi_proto_event *ev = &link->rx.ev;
    int64_t now = note_arrival(link);
    link->rx.first_byte_ns = now;
    link->rx.state = CLBI_RX_NEXT;
    pthread_mutex_lock(&link->lock);
    link->rx_bytes += CLBI_WIRE_HEADER;
    clbi_slots_collect(link);
    clbi_proto_header(&link->proto, link->rx.header, now, ev);
    bool of_stream = ev->stream >= 0 && ev->kind != CLBI_EV_PAYLOAD && ev->kind != CLBI_EV_FAIL;
    if (of_stream) {
        stream_event(link, ev);
    }
    pthread_mutex_unlock(&link->lock);

    switch (ev->kind) {
    case CLBI_EV_UP: came_up(link); break;
    case CLBI_EV_PEER_CLOSED: clbi_link_tell_ready(link); break;
    case CLBI_EV_PAYLOAD: link->rx.state = CLBI_RX_DECIDE; break;
    case CLBI_EV_SKIP:
        if (clbi_rx_start_drain(link, false)) {
            drain_done(link);
        }
        break;
    case CLBI_EV_RESET: peer_reset(link); break;
    case CLBI_EV_RESET_DONE: clbi_link_begin_close(link); break;
    case CLBI_EV_FAIL:
        link->rx.state = CLBI_RX_STOPPED;
        clbi_tx_run(link); /* a nack, if it can be sent at once */
        clbi_link_drop(link, ev->err, CLB_DOMAIN_NONE, 0, "%s%s", ev->text,
                       link->state == CLB_LINK_CONNECTING
                           ? "; this is no XLink peer: check address and port"
                           : "");
        break;
    default: break;
    }
}

/* ---- driving ---------------------------------------------------------------------------------- */

static void complete(clb_link *link)
{
    switch (link->rx.state) {
    case CLBI_RX_HEADER: header_done(link); break;
    case CLBI_RX_PAYLOAD: payload_done(link); break;
    case CLBI_RX_DRAIN:
        if (continue_drain(link)) {
            drain_done(link);
        }
        break;
    default: break;
    }
}

/* Nothing more is received; what is incomplete goes. */
static void abort_receive(clb_link *link)
{
    clb_packet *p = link->rx.packet;
    link->rx.packet = NULL;
    link->rx.state = CLBI_RX_STOPPED;
    if (p) {
        /* An incomplete frame is never delivered; its buffer goes home. */
        struct clbi_queue list = {0};
        clbi_queue_push(&list, p);
        clbi_packets_drop(link, &list);
    }
}

void clbi_rx_done(clb_link *link, const struct clb_status *failure)
{
    if (!failure) {
        complete(link);
        return;
    }
    bool in_header = link->rx.state == CLBI_RX_HEADER;
    abort_receive(link);
    if (link->tr_closing || failure->err == CLB_ERR_CANCELED) {
        return;
    }
    if (link->state == CLB_LINK_CLOSING) {
        clbi_link_begin_close(link); /* the end of the stream is as good as the answer to a RESET */
    } else if (failure->err == CLB_ERR_CLOSED) {
        clbi_link_drop(link, CLB_ERR_LOST, CLB_DOMAIN_NONE, 0,
                       in_header ? "the peer closed the connection without ending the link"
                                 : "the peer closed the connection in the middle of a packet");
    } else {
        clbi_link_drop(link, CLB_ERR_LOST, failure->domain, failure->native,
                       "the connection broke");
    }
}

void clbi_rx_run(clb_link *link)
{
    while (link->connected && !link->tr_closing) {
        if (link->rx.state == CLBI_RX_DECIDE) {
            if (!clbi_rx_place(link)) {
                return;
            }
            complete(link);
        } else if (link->rx.state == CLBI_RX_NEXT) {
            pthread_mutex_lock(&link->lock);
            bool pause = clbi_proto_must_pause(&link->proto);
            const size_t ahead = clbi_hold_ahead(link, 0);
            pthread_mutex_unlock(&link->lock);
            if (pause) {
                clbi_tx_run(link);
                pthread_mutex_lock(&link->lock);
                pause = clbi_proto_must_pause(&link->proto);
                pthread_mutex_unlock(&link->lock);
                if (pause) {
                    return; /* the peer must take its answers first: no event is dropped */
                }
            }
            uint64_t tx;
            link->ops->progress(link->tr, &link->rx.started_at, &tx);
            if (!start(link, CLBI_RX_HEADER, link->rx.header, CLBI_WIRE_HEADER, ahead)) {
                return;
            }
            complete(link);
        } else {
            return;
        }
    }
}
