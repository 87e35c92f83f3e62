/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of unread packets: what is taken from its middle, and that both ends and the counts know. */
#include <criterion/criterion.h>

#include "link_priv.h"

#define N 5u

/* Takes the newest with a buffer for every choice of those that lie in host memory, from every length, and
 * goes on as the queue is used: at its end and from its head. */
Test(queue, takes_the_newest_with_a_buffer)
{
    for (unsigned len = 0; len <= N; len++) {
        for (unsigned hosted = 0; hosted < 1u << len; hosted++) {
            clb_packet packet[N + 1] = {{0}};
            struct clbi_queue q = {0};
            int newest = -1;

            for (unsigned i = 0; i < len; i++) {
                packet[i].spill_pending = hosted >> i & 1;
                newest = packet[i].spill_pending ? newest : (int)i;
                clbi_queue_push(&q, &packet[i]);
            }
            const uint32_t spilled = q.spilled;
            const clb_packet *taken = clbi_queue_take_newest(&q);
            cr_assert_eq(taken, newest < 0 ? NULL : &packet[newest]);
            cr_assert(!taken || !taken->next);
            cr_assert_eq(q.spilled, spilled);
            clbi_queue_push(&q, &packet[N]);
            cr_assert_eq(q.len, len - (taken != NULL) + 1);
            for (unsigned i = 0; i < len; i++)
                if ((int)i != newest)
                    cr_assert_eq(clbi_queue_pop(&q), &packet[i]);
            cr_assert_eq(clbi_queue_pop(&q), &packet[N]);
            cr_assert_null(clbi_queue_pop(&q));
            cr_assert_null(q.tail);
            cr_assert_eq(q.len + q.spilled, 0);
        }
    }
}
