/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of packets that wait for the application, and the rules of the full-queue policies that are
 * pure arithmetic. The link's lock guards them.
 */
#ifndef CLBI_QUEUE_H
#define CLBI_QUEUE_H

#include <clbridge/stream.h>
#include <stdbool.h>
#include <stdint.h>

struct clbi_queue {
    clb_packet *head, *tail;
    uint32_t len;
    uint32_t spilled; /* of these, packets that still lie in the link's host memory */
};

void clbi_queue_push(struct clbi_queue *q, clb_packet *p);
void clbi_queue_push_front(struct clbi_queue *q, clb_packet *p);
clb_packet *clbi_queue_pop(struct clbi_queue *q);
/* The last one that has a buffer of its allocator; NULL = none has. */
clb_packet *clbi_queue_take_newest(struct clbi_queue *q);
/* Appends all of src, which is empty afterwards. */
void clbi_queue_splice(struct clbi_queue *dst, struct clbi_queue *src);

/* The credit of a packet returns when it is queued (drop policies), not when it is released. */
bool clbi_full_credits_early(enum clb_full policy);
/* DROP_NEWEST: an incoming packet finds the queue full. */
bool clbi_full_refuses(enum clb_full policy, uint32_t queued, uint32_t queue_len);
/* DROP_OLDEST: how many unread packets give way to one that completes now. */
uint32_t clbi_full_excess(enum clb_full policy, uint32_t queued, uint32_t queue_len);

#endif
