/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the protocol machine expect of it, with a message when it does otherwise. */
#ifndef PROTO_EXPECT_H
#define PROTO_EXPECT_H

#include "proto_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The link is dropped, with this word in the text, and nothing is handled afterwards. */
static inline void expect_fail(struct rig *r, const char *word)
{
    uint64_t events = r->p.rx_events;
    struct clbi_proto_event ev;

    cr_assert_eq(r->ev.kind, CLBI_EV_FAIL, "kind %d", r->ev.kind);
    cr_assert_eq(r->ev.err, CLB_ERR_PROTO);
    cr_assert_not_null(strstr(r->ev.text, word), "\"%s\" is not in \"%s\"", word, r->ev.text);
    cr_assert(r->p.failed);
    cr_assert_eq(rig_req(r, CLBI_PING_REQ, NULL, 0, 0), CLBI_EV_FAIL);
    cr_assert_eq(r->p.rx_events, events);
    cr_assert_not(clbi_proto_expire(&r->p, INT64_MAX - 1, &ev));
    cr_assert_eq(clbi_proto_next_deadline(&r->p), INT64_MAX);
}

static inline void expect_answer(struct rig *r, uint32_t type, uint32_t flags, uint32_t stream_id,
                                 uint32_t size)
{
    const struct clbi_wire_header *h = rig_out(r);

    cr_assert_not_null(h, "no answer");
    cr_assert_eq(h->type, type, "type %u, expected %u", h->type, type);
    cr_assert_eq(h->id, r->peer_id - 1);
    cr_assert_eq(h->flags, flags, "flags %#x, expected %#x", h->flags, flags);
    cr_assert_eq(h->stream_id, stream_id, "stream %#x, expected %#x", h->stream_id, stream_id);
    cr_assert_eq(h->size, size, "size %u, expected %u", h->size, size);
}

static inline const struct clbi_wire_header *expect_out(struct rig *r, uint32_t type)
{
    const struct clbi_wire_header *h = rig_out(r);

    cr_assert_not_null(h, "nothing out, expected type %u", type);
    cr_assert_eq(h->type, type, "type %u out, expected %u", h->type, type);
    return h;
}

#endif
