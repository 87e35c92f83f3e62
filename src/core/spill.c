/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory of a link for payloads that find no buffer of their allocator. A few blocks are kept
 * for the next ones. How much can be out is bounded by the windows that the link accepted.
 */
#include <stdlib.h>

#include "link_priv.h"

/* A kept block serves a request that is not much smaller: tiny packets must not sit on frames. */
#define MAX_WASTE 4u

int clbi_spill_alloc(clb_link *link, size_t size, struct clb_buf *out)
{
    for (int i = 0; i < CLBI_SPILL_CACHE; i++) {
        size_t have = link->spill[i].size;
        if (link->spill[i].data && have >= size && have / MAX_WASTE <= size + CLBI_SPILL_ALIGN) {
            *out = (struct clb_buf){.data = link->spill[i].data, .size = have};
            link->spill[i].data = NULL;
            return CLB_OK;
        }
    }
    size_t bytes = (size + CLBI_SPILL_ALIGN) & ~(size_t)(CLBI_SPILL_ALIGN - 1);
    void *data = clbi_aligned_alloc(CLBI_SPILL_ALIGN, bytes);
    if (!data) {
        return CLB_ERR_NOMEM;
    }
    atomic_fetch_add_explicit(&link->heap_allocs, 1, memory_order_relaxed);
    *out = (struct clb_buf){.data = data, .size = bytes};
    return CLB_OK;
}

static void spill_free(void *opaque, struct clb_buf *buf)
{
    clb_link *link = opaque;
    void *old = buf->data;
    pthread_mutex_lock(&link->lock);
    int at = -1; /* an empty place, or that of the smallest block below this one */
    for (int i = 0; i < CLBI_SPILL_CACHE; i++) {
        if (!link->spill[i].data) {
            at = i;
            break;
        }
        if (link->spill[i].size < buf->size &&
            (at < 0 || link->spill[i].size < link->spill[at].size)) {
            at = i;
        }
    }
    if (at >= 0 && link->state == CLB_LINK_UP) {
        old = link->spill[at].data;
        link->spill[at].data = buf->data;
        link->spill[at].size = buf->size;
    }
    pthread_mutex_unlock(&link->lock);
    clbi_aligned_free(old);
    *buf = (struct clb_buf){0};
}

static int spill_refuse(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    (void)opaque;
    (void)req;
    (void)out;
    return CLB_ERR_NOSYS; /* blocks come from clbi_spill_alloc only */
}

static void spill_ref(void *opaque)
{
    clbi_link_ref(opaque);
}

static void spill_unref(void *opaque)
{
    clbi_link_unref(opaque);
}

struct clb_allocator clbi_spill_allocator(clb_link *link)
{
    return (struct clb_allocator){
        .alloc = spill_refuse,
        .free = spill_free,
        .ref = spill_ref,
        .unref = spill_unref,
        .opaque = link,
    };
}

void clbi_spill_clear(clb_link *link)
{
    for (int i = 0; i < CLBI_SPILL_CACHE; i++) {
        clbi_aligned_free(link->spill[i].data);
        link->spill[i].data = NULL;
    }
}
