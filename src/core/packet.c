/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: unique tokens for one arrived payload each. Released and freed in any order, exactly once. */
#include <stdlib.h>
#include <string.h>

#include "link_priv.h"
#include "log.h"

clb_packet *clbi_packet_new(clb_link *link)
{
    if (!link->packet_cache) {
        struct clbi_packet_slab *slab = clbi_link_calloc(link, sizeof *slab);
        if (!slab) {
            return NULL;
        }
        slab->next = link->packet_slabs;
        link->packet_slabs = slab;
        for (int i = 0; i < CLBI_SLAB_PACKETS; i++) {
            clbi_packet_recycle(link, &slab->packet[i]);
        }
    }
    clb_packet *p = link->packet_cache;
    link->packet_cache = p->next;
    memset(p, 0, sizeof *p);
    return p;
}

void clbi_packet_recycle(clb_link *link, clb_packet *p)
{
    clbi_packet_drop_tails(p);
    p->next = link->packet_cache;
    link->packet_cache = p;
}

bool clbi_packet_credit(clb_packet *p)
{
    const bool due = p->credit_due && clbi_link_end(p->link) == CLBI_END_NONE;
    p->credit_due = false;
    if (due) {
        clbi_proto_release(&p->link->proto, p->index, p->wire_size);
    }
    return due;
}

void clbi_packet_drop_buffer(clb_packet *p)
{
    struct clb_allocator a = p->allocator;
    if (!p->released) {
        a.free(a.opaque, &p->buf);
        if (a.unref) {
            a.unref(a.opaque);
        }
    }
    if (a.unref) {
        a.unref(a.opaque); /* of the packet's copy */
    }
}

void clbi_packets_drop(clb_link *link, struct clbi_queue *list)
{
    clb_packet *p;
    while ((p = clbi_queue_pop(list))) {
        clb_stream *s = p->stream;
        /* The link outlives the block that may hold its last reference. */
        clbi_link_ref(link);
        clbi_packet_drop_buffer(p);
        pthread_mutex_lock(&link->lock);
        const bool send = clbi_packet_credit(p);
        clbi_packet_recycle(link, p);
        if (send) {
            clbi_tx_now(link, false);
        }
        pthread_mutex_unlock(&link->lock);
        if (s) {
            clbi_stream_unref(s);
        }
        clbi_link_unref(link);
    }
}

/* ---- public ----------------------------------------------------------------------------------- */

void *clb_packet_data(const clb_packet *p)
{
    return p && !p->released ? p->buf.data : NULL;
}

size_t clb_packet_size(const clb_packet *p)
{
    return p ? p->info.size : 0;
}

const void *clb_packet_metadata(const clb_packet *p, size_t *size)
{
    const bool have = p && p->info.metadata_size > 0;
    if (size) {
        *size = have ? p->info.metadata_size : 0;
    }
    return have ? p->meta->data : NULL;
}

void *clb_packet_context(const clb_packet *p)
{
    return p ? p->buf.context : NULL;
}

const struct clb_image *clb_packet_image(const clb_packet *p)
{
    return p && p->image.fmt != CLB_PIXFMT_UNKNOWN ? &p->image : NULL;
}

void clb_packet_get_info(const clb_packet *p, clb_packet_info *out, size_t size)
{
    const clb_packet_info none = {0};
    clbi_output_copy(out, size, p ? &p->info : &none, sizeof none);
}

struct clb_allocator clb_packet_allocator(const clb_packet *p)
{
    return p ? p->allocator : (struct clb_allocator){0};
}

int clb_packet_release(clb_packet *p, struct clb_buf *out)
{
    if (!p || !out) {
        return CLB_ERR_INVAL;
    }
    if (p->released) {
        return CLB_ERR_STATE;
    }
    if (p->allocator.release) {
        int err = p->allocator.release(p->allocator.opaque, &p->buf, p->written);
        if (err < 0) {
            return err;
        }
    }
    *out = p->buf;
    p->released = true;
    pthread_mutex_lock(&p->link->lock);
    p->stream->stats.held--;
    if (clbi_packet_credit(p)) {
        clbi_tx_now(p->link, false);
    }
    pthread_mutex_unlock(&p->link->lock);
    return CLB_OK;
}

void clb_packet_free(clb_packet **handle)
{
    if (!handle || !*handle) {
        return;
    }
    clb_packet *p = *handle;
    *handle = NULL;
    clb_stream *s = p->stream;
    clb_link *link = p->link;
    clbi_packet_drop_buffer(p);
    pthread_mutex_lock(&link->lock);
    s->stats.held -= !p->released;
    const bool send = clbi_packet_credit(p);
    clbi_packet_recycle(link, p);
    if (send) {
        clbi_tx_now(link, false);
    }
    pthread_mutex_unlock(&link->lock);
    clbi_stream_unref(s);
}
