/* SPDX-License-Identifier: Apache-2.0 */
/* Stream handles: opening, closing, looking. Reading and writing are in files of their own. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link_priv.h"

#define OPEN_NS (5 * CLBI_SEC)
#define ALIGN 64u
#define QUEUE_LEN 4u
#define DEFAULT_METADATA 51200u /* what depthai allows (wire section 9.1) */
#define MAX_METADATA ((size_t)1 << 20)

void clbi_stream_ref(clb_stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void clbi_stream_unref(clb_stream *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    clb_link *link = s->link;
    if (s->allocator.unref) {
        s->allocator.unref(s->allocator.opaque);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    pthread_cond_destroy(&s->cond);
    clbi_tails_free(s);
    free(s);
    clbi_link_unref(link);
}

void clbi_stream_enter(clb_stream *s)
{
    clbi_stream_ref(s);
    pthread_mutex_lock(&s->link->lock);
    s->callers++;
}

void clbi_stream_leave(clb_stream *s)
{
    if (--s->callers == 0) {
        pthread_cond_broadcast(&s->cond);
    }
    pthread_mutex_unlock(&s->link->lock);
    clbi_stream_unref(s);
}

void clbi_stream_begin_ready(clb_stream *s)
{
    clbi_stream_ref(s);
    s->callers++;
}

void clbi_stream_end_ready(clb_stream *s)
{
    s->ready_cb(s->priv, s);
    pthread_mutex_lock(&s->link->lock);
    clbi_stream_leave(s);
}

/* lock held */
static bool has_news(const clb_stream *s)
{
    return s->queue.len > 0 || s->peer_closed || s->closing ||
           clbi_link_end(s->link) != CLBI_END_NONE;
}

void clbi_stream_update_fd(clb_stream *s)
{
    if (s->fd < 0) {
        return;
    }
    bool want = has_news(s) && !s->quiet_until;
    if (want != s->fd_set) {
        s->fd_set = want;
        if (want) {
            clbi_wakefd_set(s->fd);
        } else {
            clbi_wakefd_clear(s->fd);
        }
    }
}

/* ---- opening ---------------------------------------------------------------------------------- */

static int refuse_params(const clb_link *link, enum clb_error err, const char *why)
{
    return clbi_fail(NULL, &link->cfg.log, err, CLB_DOMAIN_NONE, 0, "stream not opened: %s", why);
}

static int check_layout(const clb_link *link, const clb_stream_params *p)
{
    struct clb_image dst;
    if ((p->dst_pitch_align & (p->dst_pitch_align - 1)) ||
        (p->dst_plane_align & (p->dst_plane_align - 1))) {
        return refuse_params(link, CLB_ERR_INVAL,
                             "dst_pitch_align or dst_plane_align is no power of two");
    }
    if (p->image.fmt == CLB_PIXFMT_UNKNOWN) {
        return CLB_OK;
    }
    if (clb_image_check(&p->image, SIZE_MAX) < 0) {
        return refuse_params(link, CLB_ERR_INVAL, "image contradicts itself: see clb_image_init()");
    }
    if (clb_image_init(&dst, p->image.fmt, p->image.width, p->image.height, p->dst_pitch_align,
                       p->dst_plane_align) < 0) {
        return refuse_params(link, CLB_ERR_TOOBIG, "image overflows with these alignments");
    }
    return CLB_OK;
}

static int check_params(const clb_link *link, const clb_stream_params *p)
{
    if (!clbi_allocator_valid(&p->allocator)) {
        return refuse_params(link, CLB_ERR_INVAL,
                             "an allocator needs both alloc and free, and both or none of ref and "
                             "unref");
    }
    if (p->align & (p->align - 1)) {
        return refuse_params(link, CLB_ERR_INVAL, "align is no power of two");
    }
    if (p->queue_len > CLBI_MAX_PACKETS) {
        return refuse_params(link, CLB_ERR_INVAL, "queue_len is larger than 64");
    }
    if ((unsigned)p->on_full > CLB_FULL_DROP_NEWEST || (unsigned)p->trailer > CLB_TRAILER_AUTO) {
        return refuse_params(link, CLB_ERR_INVAL, "on_full or trailer has no such value");
    }
    if (p->write_window > UINT32_MAX - 63u) {
        return refuse_params(link, CLB_ERR_INVAL, "write_window does not fit 32 bits");
    }
    if (p->name && (p->name[0] == '\0' || strnlen(p->name, CLBI_WIRE_NAME) >= CLBI_WIRE_NAME)) {
        return refuse_params(link, CLB_ERR_INVAL, "a name has 1 to 51 bytes");
    }
    if (p->max_metadata > MAX_METADATA) {
        return refuse_params(link, CLB_ERR_INVAL, "max_metadata is larger than 1 MiB");
    }
    return check_layout(link, p);
}

/* lock held; the first announced entry without a handle, -1 = none */
static int first_unopened(const clb_link *link)
{
    int found = -1;
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        const struct clbi_slot *s = &link->slot[i];
        bool there = s->announced || s->unopened.len > 0;
        if (there && !s->stream &&
            (found < 0 || s->announce_order < link->slot[found].announce_order)) {
            found = i;
        }
    }
    return found;
}

/* lock held; what came before the handle existed */
static void take_unopened(clb_link *link, clb_stream *s, struct clbi_queue *dropped)
{
    struct clbi_slot *slot = &link->slot[s->index];
    /* After a close payloads are drained on purpose; before the first open every one counts. */
    s->expect_seq = slot->closed_once ? slot->seq : 0;
    slot->closed_once = false;
    s->stats.alloc_failed = slot->lost;
    s->stats.packets = slot->lost;
    s->stats.bytes = slot->lost_bytes;
    slot->lost = slot->lost_bytes = 0;
    bool credit = false;
    clb_packet *p;
    uint32_t keep = clbi_full_credits_early(s->on_full) ? s->queue_len : UINT32_MAX;
    while ((p = clbi_queue_pop(&slot->unopened))) {
        p->stream = s;
        clbi_stream_ref(s);
        p->spill_pending = !s->own_pool || s->repitch;
        s->stats.spilled++;
        clbi_split_finish(p);
        if (clbi_full_credits_early(s->on_full)) {
            credit |= clbi_packet_credit(p);
        }
        if (slot->unopened.len >= keep) {
            s->stats.dropped_oldest++;
            clbi_queue_push(dropped, p);
        } else {
            clbi_queue_push(&s->queue, p);
        }
    }
    if (credit) {
        clbi_link_kick(s->link);
    }
}

static clb_stream *make_stream(clb_link *link, const clb_stream_params *p, int *err)
{
    clb_stream *s = clbi_link_calloc(link, sizeof *s);
    if (!s) {
        *err = CLB_ERR_NOMEM;
        return NULL;
    }
    atomic_init(&s->refs, 1);
    s->link = link;
    s->fd = -1;
    s->index = -1;
    s->id = CLBI_ID_NONE;
    s->align = p->align ? p->align : ALIGN;
    s->on_full = p->on_full;
    s->queue_len = p->queue_len ? p->queue_len : QUEUE_LEN;
    s->write_async = p->write_async != 0;
    s->wants_write = p->write_window > 0;
    s->image = p->image;
    s->trailer = p->trailer;
    s->write_only = p->write_only != 0;
    s->dst_pitch_align = p->dst_pitch_align;
    s->dst_plane_align = p->dst_plane_align;
    s->repitch = p->dst_pitch_align || p->dst_plane_align;
    s->split.max_metadata = p->max_metadata ? p->max_metadata : DEFAULT_METADATA;
    s->split.configured = clb_image_bytes(&p->image);
    s->ready_cb = p->ready_cb;
    s->priv = p->priv;
    s->writes_tail = &s->writes;
    s->allocator = p->allocator;
    if (!s->allocator.alloc) {
        *err = clbi_link_default_allocator(link, &s->allocator, &s->own_pool);
        if (*err < 0) {
            free(s);
            return NULL;
        }
        s->own_pool = s->own_pool && s->align <= CLBI_SPILL_ALIGN;
    }
    if (s->allocator.ref) {
        s->allocator.ref(s->allocator.opaque);
    }
    clbi_cond_init(&s->cond);
    clbi_link_ref(link);
    return s;
}

/* lock held */
static void attach(clb_link *link, clb_stream *s, int index, const clb_stream_params *p,
                   int64_t deadline, struct clbi_queue *dropped)
{
    struct clbi_slot *slot = &link->slot[index];
    s->index = index;
    memcpy(s->name, link->proto.stream[index].name, sizeof s->name);
    s->id = link->proto.stream[index].id;
    slot->stream = s;
    link->any_opened = true;
    take_unopened(link, s, dropped);
    s->ready_due = s->queue.len > 0;
    if (clbi_link_end(link) == CLBI_END_NONE) {
        clbi_proto_create(&link->proto, index, p->write_window, deadline);
        clbi_link_kick(link);
    }
}

/* lock held; takes the handle off its slot, what was queued comes back in *list */
static void detach(clb_link *link, clb_stream *s, struct clbi_queue *list)
{
    int index = s->index;
    if (index < 0) {
        return;
    }
    struct clbi_slot *slot = &link->slot[index];
    clbi_queue_splice(list, &s->queue);
    slot->stream = NULL;
    slot->closed_once = true;
    s->index = -1;
    clbi_proto_close(&link->proto, index);
    clbi_proto_detach(&link->proto, index);
    clbi_slot_collect(link, index);
    clbi_link_kick(link);
}

/* lock held; what an opener waits for: 0 = go on waiting */
static int opened(const clb_link *link, const clb_stream *s)
{
    const struct clbi_proto_stream *ps = &link->proto.stream[s->index];
    if (link->slot[s->index].announced || s->queue.len > 0 || ps->out == CLBI_HALF_OPEN) {
        return 1;
    }
    if (s->refused) {
        return s->refuse_err;
    }
    enum clbi_end end = clbi_link_end(link);
    return end != CLBI_END_NONE ? clbi_end_error(end) : 0;
}

/* lock held; the entry to open, waiting for an announcement when no name is given */
static int find_entry(clb_link *link, const char *name, int64_t deadline, int *index)
{
    int late = CLB_OK; /* of the last wait; what it brought is looked at first */
    for (;;) {
        enum clbi_end end = clbi_link_end(link);
        if (name) {
            *index = clbi_proto_find(&link->proto, name);
            if (*index >= 0 && link->slot[*index].stream) {
                return CLB_ERR_BUSY;
            }
            bool waits = *index >= 0 && link->slot[*index].unopened.len > 0;
            return end != CLBI_END_NONE && !waits ? clbi_end_error(end) : CLB_OK;
        }
        *index = first_unopened(link);
        if (*index >= 0 && (end == CLBI_END_NONE || link->slot[*index].unopened.len > 0)) {
            return CLB_OK;
        }
        if (end != CLBI_END_NONE) {
            return clbi_end_error(end);
        }
        if (late < 0) {
            return late;
        }
        late = clbi_link_wait(link, &link->cond, deadline);
    }
}

/* lock held, dropped meanwhile. The end of a link has a line of its own. */
static void tell_failure(clb_link *link, const char *name, int err)
{
    char shown[128];
    if (err == CLB_ERR_LOST || err == CLB_ERR_CLOSED) {
        return;
    }
    pthread_mutex_unlock(&link->lock);
    clbi_log(&link->cfg.log, CLB_LOG_WARN, "stream \"%s\" not opened: %s",
             clbi_escape(shown, sizeof shown, name ? name : ""), clb_error_str(err));
    pthread_mutex_lock(&link->lock);
}

int clb_stream_open(clb_stream **out, clb_link *link, const clb_stream_params *params)
{
    if (!out) {
        return CLB_ERR_INVAL;
    }
    *out = NULL;
    clb_stream_params p;
    if (!link || clbi_params_copy(&p, sizeof p, params, sizeof p) < 0) {
        return CLB_ERR_INVAL;
    }
    int err = check_params(link, &p);
    if (err < 0) {
        return err;
    }
    const int64_t deadline = clbi_add_ns(clbi_now_ns(), clbi_field_ns(p.open_timeout_ns, OPEN_NS));
    struct clbi_queue dropped = {0};
    clb_stream *s = NULL;
    clbi_link_enter(link);
    int index;
    err = find_entry(link, p.name, deadline, &index);
    if (err == CLB_OK) {
        clbi_slots_collect(link);
        index = clbi_proto_attach(&link->proto, p.name ? p.name : link->proto.stream[index].name);
        err = index < 0 ? CLB_ERR_TOOBIG : CLB_OK;
    }
    if (err == CLB_OK) {
        s = make_stream(link, &p, &err);
        if (!s) {
            clbi_proto_detach(&link->proto, index);
            clbi_slot_collect(link, index);
        }
    }
    if (s) {
        attach(link, s, index, &p, deadline, &dropped);
        int r, late = CLB_OK;
        while ((r = opened(link, s)) == 0 && late == CLB_OK) {
            late = clbi_link_wait(link, &s->cond, deadline);
        }
        err = r != 0 ? (r < 0 ? r : CLB_OK) : late;
        if (err < 0) {
            detach(link, s, &dropped);
        }
    }
    if (err < 0) {
        tell_failure(link, p.name, err);
    }
    clbi_link_leave(link);
    clbi_packets_drop(link, &dropped); /* there are none without a stream, which holds the link */
    if (s && err < 0) {
        clbi_stream_unref(s);
    } else if (s) {
        *out = s;
    }
    return err;
}

/* ---- closing ---------------------------------------------------------------------------------- */

void clb_stream_close(clb_stream **handle)
{
    if (!handle || !*handle) {
        return;
    }
    clb_stream *s = *handle;
    clb_link *link = s->link;
    *handle = NULL;
    struct clbi_queue list = {0};
    pthread_mutex_lock(&link->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->cond);
    clbi_link_kick(link); /* a caller-driven loop may be asleep inside of one of those calls */
    bool own_thread = clbi_link_on_loop(link);
    while (s->callers > 0 && !own_thread) {
        clbi_cond_wait_until(&s->cond, &link->lock, clbi_add_ns(clbi_now_ns(), 20 * CLBI_MS));
    }
    detach(link, s, &list);
    pthread_mutex_unlock(&link->lock);
    clbi_packets_drop(link, &list);
    clbi_stream_unref(s);
}

/* ---- looking ---------------------------------------------------------------------------------- */

void clb_stream_interrupt(clb_stream *s)
{
    if (s) {
        pthread_mutex_lock(&s->link->lock);
        s->interrupted = true;
        pthread_cond_broadcast(&s->cond);
        clbi_link_kick(s->link);
        pthread_mutex_unlock(&s->link->lock);
    }
}

int clb_stream_fd(clb_stream *s)
{
    if (!s) {
        return CLB_ERR_INVAL;
    }
    pthread_mutex_lock(&s->link->lock);
    if (s->fd < 0) {
        s->fd = clbi_wakefd_open();
        clbi_stream_update_fd(s);
    }
    int fd = s->fd >= 0 ? s->fd : CLB_ERR_IO;
    pthread_mutex_unlock(&s->link->lock);
    return fd;
}

const char *clb_stream_name(const clb_stream *s)
{
    return s ? s->name : NULL;
}

uint32_t clb_stream_id(const clb_stream *s)
{
    if (!s) {
        return CLBI_ID_NONE;
    }
    clb_link *link = s->link;
    pthread_mutex_lock(&link->lock);
    uint32_t id = s->index >= 0 ? link->proto.stream[s->index].id : s->id;
    pthread_mutex_unlock(&link->lock);
    return id;
}

void clb_stream_get_stats(const clb_stream *s, clb_stream_stats *out, size_t size)
{
    clb_stream_stats stats = {0};
    if (s) {
        pthread_mutex_lock(&s->link->lock);
        stats = s->stats;
        stats.queued = s->queue.len + (s->moving ? 1u : 0u);
        pthread_mutex_unlock(&s->link->lock);
    }
    clbi_output_copy(out, size, &stats, sizeof stats);
}
