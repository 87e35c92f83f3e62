/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of waiting packets. See queue.h. */
#include "queue.h"

#include "link_priv.h"

void clbi_queue_push(struct clbi_queue *q, clb_packet *p)
{
    p->next = NULL;
    if (q->tail) {
        q->tail->next = p;
    } else {
        q->head = p;
    }
    q->tail = p;
    q->len++;
    q->spilled += p->spill_pending;
}

void clbi_queue_push_front(struct clbi_queue *q, clb_packet *p)
{
    p->next = q->head;
    q->head = p;
    if (!q->tail) {
        q->tail = p;
    }
    q->len++;
    q->spilled += p->spill_pending;
}

clb_packet *clbi_queue_pop(struct clbi_queue *q)
{
    clb_packet *p = q->head;
    if (p) {
        q->head = p->next;
        if (!q->head) {
            q->tail = NULL;
        }
        p->next = NULL;
        q->len--;
        q->spilled -= p->spill_pending;
    }
    return p;
}

clb_packet *clbi_queue_take_newest(struct clbi_queue *q)
{
    clb_packet *before = NULL, *found = NULL;
    for (clb_packet *p = q->head, *prev = NULL; p; prev = p, p = p->next) {
        if (!p->spill_pending) {
            found = p;
            before = prev;
        }
    }
    if (!found) {
        return NULL;
    }
    if (before) {
        before->next = found->next;
    } else {
        q->head = found->next;
    }
    if (q->tail == found) {
        q->tail = before;
    }
    found->next = NULL;
    q->len--;
    return found;
}

void clbi_queue_splice(struct clbi_queue *dst, struct clbi_queue *src)
{
    if (!src->head) {
        return;
    }
    if (dst->tail) {
        dst->tail->next = src->head;
    } else {
        dst->head = src->head;
    }
    dst->tail = src->tail;
    dst->len += src->len;
    dst->spilled += src->spilled;
    *src = (struct clbi_queue){0};
}

bool clbi_full_credits_early(enum clb_full policy)
{
    return policy != CLB_FULL_BLOCK;
}

bool clbi_full_refuses(enum clb_full policy, uint32_t queued, uint32_t queue_len)
{
    return policy == CLB_FULL_DROP_NEWEST && queued >= queue_len;
}

uint32_t clbi_full_excess(enum clb_full policy, uint32_t queued, uint32_t queue_len)
{
    return policy == CLB_FULL_DROP_OLDEST && queued >= queue_len ? queued - queue_len + 1 : 0;
}
