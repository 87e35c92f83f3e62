/* SPDX-License-Identifier: Apache-2.0 */
/* A pool at the end of a link: a scripted peer writes numbered packets, one uniform byte each. */
#ifndef CLB_TEST_POOL_LINK_H
#define CLB_TEST_POOL_LINK_H

#include <peer.h>

#include "pool_kit.h"

struct pool_link {
    struct peer peer;
    uint32_t size, window, packets; /* bytes of a packet; packets that the window holds, and all */
    clb_link *link;
    clb_stream *stream;
};

static inline bool pool_link_opened(struct peer *p, void *arg)
{
    (void)arg;
    return p->stream[0].created;
}

static inline void pool_link_script(struct peer *p, void *arg)
{
    const struct pool_link *l = arg;
    uint32_t i;
    int a;

    CHECK(peer_handshake(p));
    a = peer_create(p, "a", l->window * l->size);
    /* What comes before the stream is open has no allocator yet. */
    CHECK(peer_pump_until(p, pool_link_opened, NULL, 20000));
    for (i = 0; i < l->packets; i++)
        if (!peer_write_fill(p, a, (int)(i & 255), l->size, 60000))
            break;
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static inline void pool_link_open(struct pool_link *l, struct clb_allocator a, enum clb_full full)
{
    int fd = peer_pair(&l->peer, false);

    peer_start(&l->peer, pool_link_script, l);
    CHECK_EQ(clb_link_adopt(&l->link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    CHECK_EQ(clb_stream_open(&l->stream, l->link,
                             clb_stream_params(.name = "a", .allocator = a, .on_full = full)),
             CLB_OK);
}

/* The handles go; peer->stream[0] tells what the peer saw. */
static inline void pool_link_close(struct pool_link *l)
{
    clb_stream_close(&l->stream);
    clb_link_close(&l->link);
    peer_join(&l->peer);
}

#endif
