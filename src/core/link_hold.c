/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what waits to be sent goes out at once, or waits for company. Each send is a packet that
 * both ends and the network pay for. Two things may wait, never for more than HOLD_NS:
 *
 *  - Credit that the peer does not need yet, while a payload comes in: the answer to that is due as
 *    soon as it is complete, and takes the credit along.
 *  - In a conversation, answers and credit: when the application has answered small packets by a
 *    write, one after the other, its next write is expected in a moment and takes them along. The
 *    first time that it is not, the conversation is over.
 *
 * In a conversation a receive also takes what lies behind the header that is asked for, which may be
 * the (small) payload: one system call in place of several, for a copy that is counted as moved.
 */
#include "link_priv.h"

#define HOLD_NS (2 * CLBI_MS)
#define SMALL_BYTES 1024
#define CONVERSATION 8

static bool conversation(const clb_link *link)
{
    return link->hold.score >= CONVERSATION;
}

void clbi_hold_heard(clb_link *link, size_t bytes)
{
    if (bytes > SMALL_BYTES || link->hold.expects) {
        link->hold.score = 0;
    }
    link->hold.expects = bytes <= SMALL_BYTES;
}

void clbi_hold_said(clb_link *link)
{
    if (link->hold.expects && link->hold.score < CONVERSATION) {
        link->hold.score++;
    }
    link->hold.expects = false;
}

size_t clbi_hold_ahead(const clb_link *link, size_t payload)
{
    if (conversation(link)) {
        return CLBI_RECV_AHEAD_MAX;
    }
    /* Behind a payload there is a header. Behind a header there may be pixels, which are copied when
     * they do not go straight to where they belong. */
    return payload > 0 ? CLBI_WIRE_HEADER : 0;
}

static bool any_queued(const clb_link *link)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        const clb_stream *s = link->slot[i].stream;
        for (const struct clbi_write *op = s ? s->writes : NULL; op; op = op->next) {
            if (op->state == CLBI_WRITE_QUEUED) {
                return true;
            }
        }
    }
    return false;
}

bool clbi_hold(clb_link *link, int64_t now)
{
    const bool talk = conversation(link) && link->hold.expects;
    if (link->state != CLB_LINK_UP || (!talk && link->rx.state != CLBI_RX_PAYLOAD)) {
        return false;
    }
    const int64_t until = link->hold.until ? link->hold.until : clbi_add_ns(now, HOLD_NS);
    if (now >= until) {
        link->hold.score = 0;
        return false;
    }
    if (any_queued(link) || !clbi_proto_can_hold(&link->proto, talk)) {
        return false;
    }
    link->hold.until = until;
    return true;
}

bool clbi_hold_release(const clb_link *link, int64_t now)
{
    return conversation(link) && link->armed <= clbi_add_ns(now, 2 * HOLD_NS) &&
           clbi_proto_can_hold(&link->proto, true);
}
