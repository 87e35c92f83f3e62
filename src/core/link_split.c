/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pixels and what lies behind them. At the header of a payload it is planned where its bytes go; when
 * the last one is in, the trailer tells where the pixels really end, and what was guessed wrong is
 * repaired; the reader learns from the metadata how the rows lie.
 *
 * The memory of an allocator may be slow to read, or not readable by the host at all. It is read only to
 * repair, what was written there a moment ago, never with `write_only`, and every byte is counted.
 */
#include <string.h>

#include "link_priv.h"
#include "metadata.h"

#define TAIL_ALIGN 64u
/* Limits of a split message (wire section 9.1): how many packets it may announce. */
#define MAX_PARTS 65536u
/* The metadata of the head of a split message is two integers. */
#define MAX_HEAD 16u

/* ---- tails ------------------------------------------------------------------------------------ */

/* Made so many at a time, for the reason that packets are. Pages that are never used cost nothing. */
#define SLAB_TAILS 16

struct clbi_tail_slab {
    struct clbi_tail_slab *next;
    struct clbi_tail tail[SLAB_TAILS];
};

static void give_tail(clb_stream *s, struct clbi_tail *tail)
{
    tail->next = s->tails;
    s->tails = tail;
}

static size_t align_tail(size_t bytes)
{
    return (bytes + TAIL_ALIGN - 1) & ~(size_t)(TAIL_ALIGN - 1);
}

static struct clbi_tail *take_tail(clb_stream *s)
{
    if (!s->tails) {
        const size_t head = align_tail(sizeof(struct clbi_tail_slab));
        const size_t each = align_tail(clbi_split_tail(s->split.max_metadata));
        struct clbi_tail_slab *slab = clbi_aligned_alloc(TAIL_ALIGN, head + SLAB_TAILS * each);
        if (!slab) {
            return NULL;
        }
        atomic_fetch_add_explicit(&s->link->heap_allocs, 1, memory_order_relaxed);
        slab->next = s->tail_slabs;
        s->tail_slabs = slab;
        for (size_t i = SLAB_TAILS; i-- > 0;) {
            slab->tail[i].data = (uint8_t *)slab + head + i * each;
            give_tail(s, &slab->tail[i]);
        }
    }
    struct clbi_tail *tail = s->tails;
    s->tails = tail->next;
    return tail;
}

void clbi_tails_free(clb_stream *s)
{
    while (s->tail_slabs) {
        struct clbi_tail_slab *slab = s->tail_slabs;
        s->tail_slabs = slab->next;
        clbi_aligned_free(slab);
    }
}

void clbi_packet_drop_tails(clb_packet *p)
{
    if (p->tail && p->tail != p->meta) {
        give_tail(p->stream, p->tail);
    }
    if (p->meta) {
        give_tail(p->stream, p->meta);
    }
    p->tail = p->meta = NULL;
}

/* ---- layouts ---------------------------------------------------------------------------------- */

static bool fits(const struct clb_image *img, size_t bytes)
{
    return img->fmt != CLB_PIXFMT_UNKNOWN && clb_image_check(img, bytes) == CLB_OK;
}

static bool same_layout(const struct clb_image *a, const struct clb_image *b)
{
    if (a->fmt != b->fmt || a->width != b->width || a->height != b->height ||
        a->num_planes != b->num_planes) {
        return false;
    }
    for (uint32_t i = 0; i < a->num_planes; i++) {
        if (a->plane[i].offset != b->plane[i].offset || a->plane[i].pitch != b->plane[i].pitch) {
            return false;
        }
    }
    return true;
}

/* Where the rows of src are to lie; false = as they come. */
static bool destination(const clb_stream *s, const struct clb_image *src, struct clb_image *dst)
{
    if (!s->repitch || src->fmt == CLB_PIXFMT_UNKNOWN ||
        clb_image_init(dst, src->fmt, src->width, src->height, s->dst_pitch_align,
                       s->dst_plane_align) < 0) {
        return false;
    }
    dst->bayer = src->bayer;
    dst->matrix = src->matrix;
    dst->range = src->range;
    return !same_layout(src, dst);
}

/* ---- before the payload ----------------------------------------------------------------------- */

/* Is the next packet a part of the split message that was announced? One that does not fit what was
 * announced ends it. */
static bool is_part(clb_stream *s, size_t total)
{
    if (s->parts.left > 0 && (total > s->parts.bytes || s->parts.bytes == 0)) {
        s->parts.left = 0;
    }
    return s->parts.left > 0;
}

static void plan_rows(clb_stream *s, struct clbi_plan *plan)
{
    const struct clb_image *src = fits(&s->learned, plan->front) ? &s->learned : &s->image;
    struct clbi_seg segs[CLBI_ROWS_SEGS];
    size_t n;
    if (plan->guess || !fits(src, plan->front)) {
        /* The metadata will tell; without any the packet comes as it is. */
        plan->host = s->trailer != CLB_TRAILER_NONE;
        return;
    }
    if (!destination(s, src, &plan->dst)) {
        return;
    }
    plan->src = *src;
    plan->capacity = clb_image_bytes(&plan->dst);
    plan->least = 0;
    size_t sink_size;
    void *sink = clbi_rx_sink(s->link, &sink_size);
    plan->rows = s->link->ops->limits.can_scatter &&
                 clbi_rows_plan(segs, &n, src, plan->front, &plan->dst, NULL, sink, sink_size);
    plan->host = !plan->rows;
}

/* The pixels cannot be more than this, nor less than what is put there. */
static size_t room_for(size_t total, size_t front)
{
    const size_t most = total > CLBI_TRAILER_MARKED ? total - CLBI_TRAILER_MARKED : 0;
    return most > front ? most : front;
}

void clbi_split_plan(clb_stream *s, size_t total, struct clbi_plan *plan)
{
    const size_t configured = s->split.configured;
    *plan = (struct clbi_plan){.front = total, .capacity = total};
    if (is_part(s, total)) {
        return;
    }
    plan->expect = configured <= total ? configured : 0;
    if (s->trailer == CLB_TRAILER_AUTO && configured > 0 && configured == total) {
        s->trailer = CLB_TRAILER_NONE; /* pixels, and no room for anything behind them */
    }
    if (s->trailer != CLB_TRAILER_NONE) {
        switch (clbi_split_foresee(&s->split, total, &plan->front)) {
        case CLBI_FORESEEN_NOT:
            plan->host = true;
            plan->front = total;
            return;
        case CLBI_FORESEEN_LOW:
            plan->guess = true;
            plan->expect = 0;
            plan->capacity = room_for(total, plan->front);
            break;
        case CLBI_FORESEEN_EXACT:
            plan->expect = plan->front;
            if (configured > 0 && plan->front == configured) {
                plan->capacity = plan->front;
                break;
            }
            /* It may be another size this time: room to repair that, if it is to be had. */
            plan->capacity = room_for(total, plan->front);
            plan->least = plan->front;
            break;
        }
        plan->split = true;
    }
    if (s->repitch) {
        plan_rows(s, plan);
    }
}

bool clbi_split_begin(clb_packet *p, const struct clbi_plan *plan)
{
    p->front = plan->front;
    p->room = plan->capacity;
    p->written = plan->rows ? clb_image_bytes(&plan->dst) : plan->front;
    if (plan->rows) {
        p->rows = true;
        p->src = plan->src;
        p->placed = plan->dst;
    }
    if (plan->split) {
        p->tail = take_tail(p->stream);
    }
    return p->tail || !plan->split;
}

size_t clbi_split_segs(clb_packet *p, struct clbi_seg *segs, void *sink, size_t sink_size)
{
    size_t n = 0;
    if (p->rows) {
        /* With these numbers it was asked, and with no larger sink. */
        clbi_rows_plan(segs, &n, &p->src, p->front, &p->placed, p->buf.data, sink, sink_size);
    } else {
        segs[n++] = (struct clbi_seg){
            .base = p->buf.data, .row_bytes = p->front, .pitch = p->front, .rows = 1};
    }
    if (p->tail) {
        const size_t rest = p->wire_size - p->front;
        segs[n++] =
            (struct clbi_seg){.base = p->tail->data, .row_bytes = rest, .pitch = rest, .rows = 1};
    }
    return n;
}

/* ---- after the payload ------------------------------------------------------------------------ */

static void set_bad(clb_packet *p)
{
    p->stream->stats.bad_metadata += p->info.metadata_status != CLB_METADATA_BAD;
    p->info.metadata_status = CLB_METADATA_BAD;
}

/* Does every byte of the payload's front lie in a row? Then it can be had back. */
static bool rows_keep_all(const clb_packet *p)
{
    struct clb_image packed;
    return clb_image_init(&packed, p->src.fmt, p->src.width, p->src.height, 0, 0) == CLB_OK &&
           clb_image_bytes(&packed) == p->front;
}

/* The allocator's memory does not hold the packet as it must be delivered. false = it is not to be read,
 * or there is nothing to be had back: what lies there is all that there is. */
static bool misplace(clb_packet *p)
{
    p->misplaced = !p->stream->write_only && (!p->rows || rows_keep_all(p));
    p->spill_pending |= p->misplaced;
    return p->misplaced;
}

/* The first bytes of the tail go behind the front, after all. */
static void append(clb_packet *p, size_t bytes)
{
    if (bytes > 0) {
        memcpy((uint8_t *)p->buf.data + p->front, p->tail->data, bytes);
        p->info.moved_bytes += bytes;
        p->front += bytes;
        p->written = p->front;
    }
}

/* The whole packet, trailer or whatever it is included. */
static void keep_raw(clb_packet *p)
{
    const size_t rest = p->wire_size - p->front;
    p->pixels = p->wire_size;
    if (!p->tail) {
        return;
    }
    if (!p->rows && p->room >= p->wire_size) {
        append(p, rest);
    } else if (p->info.metadata_status != CLB_METADATA_BAD) {
        p->cut = true; /* pixels to the end, or the padding of the last row: as in extend() */
    } else if (!misplace(p)) {
        /* As much of it as there is room for. */
        p->pixels = p->rows || p->room < p->front ? p->front : p->room;
        append(p, p->pixels - p->front);
    }
}

/* Metadata of a packet that lies in one piece in host memory. */
static void copy_metadata(clb_packet *p, const uint8_t *from, size_t size)
{
    if (size > 0) {
        p->meta = take_tail(p->stream);
        if (p->meta) {
            memcpy(p->meta->data, from, size);
        } else {
            set_bad(p); /* no memory: the pixels are as good as ever */
        }
    }
    p->info.metadata_size = p->meta ? size : 0;
}

/* More pixels than foreseen: the first `missing` bytes of the tail. Where there is no room for them they
 * wait there: they may turn out to be the padding of the last row. */
static void extend(clb_packet *p, size_t missing, size_t metadata)
{
    uint8_t *tail = p->tail->data;
    if (p->rows || p->room < p->pixels) {
        p->cut = true;
        copy_metadata(p, tail + missing, metadata);
        return;
    }
    append(p, missing);
    memmove(tail, tail + missing, metadata);
    p->meta = p->tail;
    p->info.metadata_size = metadata;
}

/* Fewer pixels than foreseen: the metadata's first `drawn` bytes were taken for pixels. */
static void shorten(clb_packet *p, size_t drawn, size_t metadata)
{
    uint8_t *tail = p->tail->data;
    if (p->stream->write_only || (p->rows && !misplace(p))) {
        set_bad(p);
        return;
    }
    memmove(tail + drawn, tail, metadata - drawn);
    if (p->rows) {
        clbi_rows_peek(tail, &p->src, &p->placed, p->buf.data, p->pixels, drawn);
    } else {
        memcpy(tail, (const uint8_t *)p->buf.data + p->pixels, drawn);
    }
    p->info.readback_bytes += drawn;
    p->meta = p->tail;
    p->info.metadata_size = metadata;
}

static void take_apart(clb_packet *p, const struct clbi_trailer *t)
{
    p->pixels = t->pixels;
    p->info.metadata_status = CLB_METADATA_OK;
    if (!p->tail) {
        copy_metadata(p, (const uint8_t *)p->buf.data + t->pixels, t->claimed);
    } else if (t->pixels > p->front) {
        extend(p, t->pixels - p->front, t->claimed);
    } else if (t->pixels < p->front) {
        shorten(p, p->front - t->pixels, t->claimed);
    } else {
        p->meta = p->tail;
        p->info.metadata_size = t->claimed;
    }
}

/* [io] too: of packets without pixels alone, and of a few bytes. */
static void notice_parts(clb_packet *p)
{
    clb_stream *s = p->stream;
    struct clbi_metadata md;
    if (p->pixels > 0 || p->info.metadata_status != CLB_METADATA_OK || p->info.metadata_size == 0 ||
        p->info.metadata_size > MAX_HEAD ||
        clbi_metadata_parse(&md, p->meta->data, p->info.metadata_size, 0, p->info.object_type) <
            0 ||
        md.part != CLB_PART_SPLIT_HEAD) {
        return;
    }
    if (md.parts == 0 || md.parts > MAX_PARTS || md.part_bytes > s->link->cfg.max_payload) {
        set_bad(p);
        return;
    }
    s->parts.count = s->parts.left = md.parts;
    s->parts.bytes = md.part_bytes;
}

void clbi_split_lost(clb_stream *s, size_t total)
{
    if (is_part(s, total)) {
        s->parts.left--;
        s->parts.bytes -= total;
    }
}

static void take_part(clb_packet *p)
{
    clb_stream *s = p->stream;
    p->info.part = CLB_PART_SPLIT;
    p->info.part_index = s->parts.count - s->parts.left--;
    p->info.part_count = s->parts.count;
    s->parts.bytes -= p->wire_size;
    if (s->parts.left == 0 && s->parts.bytes > 0) {
        set_bad(p); /* the message is shorter than it was announced (wire section 9.1) */
    }
}

static void read_trailer(clb_packet *p)
{
    clb_stream *s = p->stream;
    const uint8_t *tail = p->tail ? p->tail->data : p->buf.data;
    const size_t len = p->tail ? p->wire_size - p->front : p->wire_size;
    const bool plain = s->trailer == CLB_TRAILER_DEPTHAI && (s->split.seen == 0 || s->split.plain);
    struct clbi_trailer t;
    clbi_trailer_read(&t, tail, len, p->wire_size, s->split.max_metadata, plain);
    if (s->trailer == CLB_TRAILER_AUTO) {
        s->trailer = t.marked ? CLB_TRAILER_DEPTHAI : CLB_TRAILER_NONE;
    }
    if (s->trailer == CLB_TRAILER_NONE) {
        keep_raw(p);
        return;
    }
    p->info.object_type = t.type;
    p->info.claimed_metadata = t.claimed;
    if (t.valid) {
        take_apart(p, &t);
        clbi_split_learn(&s->split, &t, p->wire_size);
        s->stats.metadata_bytes += p->wire_size - t.pixels;
        notice_parts(p);
    } else {
        set_bad(p);
        keep_raw(p);
    }
}

void clbi_split_finish(clb_packet *p)
{
    clb_stream *s = p->stream;
    if (!p->tail && !p->rows) {
        p->front = p->written = p->wire_size;
    }
    p->pixels = p->front;
    p->info.total = p->wire_size;
    if (is_part(s, p->wire_size)) {
        take_part(p);
    } else if (s->trailer != CLB_TRAILER_NONE) {
        read_trailer(p);
    }
    p->info.size = p->rows ? p->written : p->pixels;
    s->stats.packets++;
    s->stats.bytes += p->wire_size;
    s->stats.moved_bytes += p->info.moved_bytes;
    s->stats.readback_bytes += p->info.readback_bytes;
}

/* ---- for the reader --------------------------------------------------------------------------- */

/* Of a message group: heads and members in the order of arrival. What was looked at and is dropped
 * afterwards has been counted; what never gets here has not. */
static void count_group(clb_packet *p, const struct clbi_metadata *md)
{
    clb_stream *s = p->stream;
    const uint64_t lost = p->info.seq - s->group.next_seq;
    s->group.next_seq = p->info.seq + 1;
    s->group.left = lost < s->group.left ? s->group.left - (uint32_t)lost : 0;
    if (md->part != CLB_PART_WHOLE) {
        p->info.part = md->part;
        p->info.part_count = md->parts;
        if (md->part == CLB_PART_GROUP_HEAD) {
            s->group.count = s->group.left = md->parts;
        }
    } else if (p->info.part == CLB_PART_WHOLE && s->group.left > 0) {
        p->info.part = CLB_PART_GROUP;
        p->info.part_index = s->group.count - s->group.left--;
        p->info.part_count = s->group.count;
    }
}

/* What is known of the rows of the payload, now that all is known. */
static void find_layout(clb_packet *p, struct clb_image *src)
{
    clb_stream *s = p->stream;
    struct clbi_metadata md = {0};
    *src = (struct clb_image){0};
    if (p->info.metadata_status == CLB_METADATA_OK && p->info.metadata_size > 0) {
        if (clbi_metadata_parse(&md, p->meta->data, p->info.metadata_size, p->pixels,
                                p->info.object_type) < 0) {
            md = (struct clbi_metadata){0};
            set_bad(p);
        } else if (md.image.fmt != CLB_PIXFMT_UNKNOWN) {
            s->learned = md.image;
        }
    }
    count_group(p, &md);
    if (md.image.fmt != CLB_PIXFMT_UNKNOWN) {
        *src = md.image;
    } else if (p->info.metadata_status != CLB_METADATA_BAD && p->info.part != CLB_PART_SPLIT &&
               fits(&s->image, p->pixels)) {
        *src = s->image;
    }
}

/* Is what lies in the allocator's memory the picture as the peer has laid it out (or, with `rows`, as it
 * was placed)? */
static bool lies_right(const clb_packet *p)
{
    if (p->rows) {
        return same_layout(&p->from, &p->src);
    }
    return !p->cut || (fits(&p->from, p->front) &&
                       p->pixels - p->front < p->from.plane[p->from.num_planes - 1].pitch);
}

static void stays(clb_packet *p, const struct clb_image *img)
{
    if (p->cut && !p->rows) {
        p->pixels = p->info.size = p->front;
    }
    p->image = *img;
}

void clbi_split_resolve(clb_packet *p)
{
    static const struct clb_image unknown;
    clb_stream *s = p->stream;
    struct clb_image dst;
    if (p->resolved) {
        return;
    }
    p->resolved = true;
    find_layout(p, &p->from);
    const bool moves = destination(s, &p->from, &dst);
    if (!p->spill_pending) {
        const bool right = lies_right(p);
        if (right && (p->rows || !moves)) {
            stays(p, p->rows ? &p->placed : &p->from);
            return;
        }
        if (!misplace(p)) {
            if (!right) {
                set_bad(p);
            }
            stays(p, right ? &p->from : &unknown);
            return;
        }
    }
    p->image = moves ? dst : p->from;
    p->info.size = moves ? clb_image_bytes(&dst) : p->pixels;
    if (s->own_pool && !moves && !p->misplaced) {
        p->spill_pending = false; /* it is delivered where it lies */
    }
}

int clbi_split_gather(clb_packet *p)
{
    clb_link *link = p->link;
    const size_t kept = p->rows || p->front < p->pixels ? p->front : p->pixels;
    struct clb_buf block;
    int err = clbi_spill_alloc(link, kept > p->pixels ? kept : p->pixels, &block);
    if (err < 0) {
        return err;
    }
    pthread_mutex_unlock(&link->lock);
    if (p->rows) {
        clbi_rows_copy(&p->src, block.data, &p->placed, p->buf.data);
    } else {
        memcpy(block.data, p->buf.data, kept);
    }
    if (p->pixels > p->front) {
        memcpy((uint8_t *)block.data + p->front, p->tail->data, p->pixels - p->front);
    }
    clbi_packet_drop_buffer(p);
    p->allocator = clbi_spill_allocator(link);
    p->allocator.ref(p->allocator.opaque);
    p->allocator.ref(p->allocator.opaque);
    p->buf = block;
    pthread_mutex_lock(&link->lock);
    p->misplaced = p->rows = false;
    p->written = p->pixels;
    p->spill_pending = !p->stream->own_pool || !same_layout(&p->from, &p->image);
    p->info.spilled = 1;
    p->info.readback_bytes += kept;
    p->stream->stats.spilled++;
    p->stream->stats.readback_bytes += kept;
    return CLB_OK;
}

void clbi_split_replan(const clb_packet *p, struct clbi_plan *plan)
{
    *plan = (struct clbi_plan){
        .front = p->pixels,
        .capacity = p->info.size,
        .expect = p->pixels,
        .rows = !same_layout(&p->from, &p->image),
    };
}

void clbi_split_copy(clb_packet *p, const struct clbi_plan *plan, void *to)
{
    if (plan->rows) {
        clbi_rows_copy(&p->image, to, &p->from, p->buf.data);
    } else {
        memcpy(to, p->buf.data, p->pixels);
    }
    p->written = plan->capacity;
}
