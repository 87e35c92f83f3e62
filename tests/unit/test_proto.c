/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol machine step by step: set-up, streams, writes, releases, closing, reset. */
#include "proto_rig.h"

#include <criterion/criterion.h>
#include <string.h>

Test(proto, host_pings_first_and_is_up_with_the_answer)
{
    struct rig r;
    const struct clbi_wire_header *h;
    static const char zeros[CLBI_WIRE_NAME];

    rig_init(&r, CLB_ROLE_HOST);
    clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "s"), 64, r.now + RIG_SEC);
    h = rig_out(&r);
    cr_assert_not_null(h);
    cr_assert_eq(h->type, CLBI_PING_REQ);
    cr_assert_eq(h->id, 11);
    cr_assert_eq(h->flags, CLBI_FLAG_ACK);
    cr_assert_eq(h->stream_id, 0);
    cr_assert_eq(h->size, 0);
    cr_assert_arr_eq(h->name, zeros, sizeof zeros);
    cr_assert_eq(h->tsec, 100);
    cr_assert_null(rig_out(&r), "nothing but PING before the link is up");

    r.now += 5000;
    cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, 11, 0, 0, 1), CLBI_EV_UP);
    cr_assert_eq(r.ev.rtt_ns, 5000);
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_CREATE_STREAM_REQ);
}

Test(proto, device_is_up_with_the_first_ping)
{
    struct rig r;
    const struct clbi_wire_header *h;

    rig_init(&r, CLB_ROLE_DEVICE);
    clbi_proto_ping(&r.p);
    cr_assert_null(rig_out(&r));
    cr_assert_eq(rig_req(&r, CLBI_PING_REQ, NULL, 0, 0), CLBI_EV_UP);
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_PING_RESP && h->id == 1000 && h->flags == 1);
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_PING_REQ, "its own keep-alive waited");
    cr_assert_eq(rig_req(&r, CLBI_PING_REQ, NULL, 0, 0), CLBI_EV_NONE, "later ones are answered");
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_PING_RESP && h->id == 1001);
}

Test(proto, write_release_close_as_host)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "ctl", 100, 0);
    cr_assert_eq(r.p.stream[s].out_window, 128, "rounded up to 64");
    id = rig_write(&r, s, 100, 77);
    cr_assert_eq(r.p.stream[s].out_fill, 100);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 29), CLB_ERR_NOBUFS);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 28), CLB_OK);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 129), CLB_ERR_TOOBIG, "R13");
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 100, 1), CLBI_EV_WRITE_ACKED);
    cr_assert_eq(r.ev.token, 77);

    clbi_proto_close(&r.p, s);
    cr_assert_null(rig_out(&r), "CLOSE waits for the release");
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 1), CLB_ERR_STATE);
    cr_assert_eq(rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 100), CLBI_EV_CREDIT);
    cr_assert_eq(r.ev.size, 100);
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_READ_REL_RESP && h->flags == 1 && h->size == 0);
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_CLOSE_STREAM_REQ && h->stream_id == 0 && h->size == 0);
    cr_assert(clbi_proto_busy(&r.p));
    cr_assert_eq(rig_resp(&r, CLBI_CLOSE_STREAM_RESP, h->id, 0, 0, 1), CLBI_EV_HALF_CLOSED);
    cr_assert_eq(r.ev.stream, s);
    cr_assert_eq(r.p.stream[s].id, CLBI_ID_NONE);
    cr_assert_not(clbi_proto_busy(&r.p));
}

Test(proto, receive_and_release_as_device)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_in(&r, "ctl", 1024, 7);
    cr_assert_eq(r.p.stream[s].id, 7);
    cr_assert_eq(rig_req(&r, CLBI_WRITE_REQ, NULL, 7, 1000), CLBI_EV_PAYLOAD);
    cr_assert_eq(r.ev.stream, s);
    cr_assert_eq(r.ev.size, 1000);
    cr_assert_eq(r.p.stream[s].in_fill, 1000, "taken at the header");
    cr_assert_null(rig_out(&r), "no answer before the payload is in");
    clbi_proto_payload_done(&r.p);
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_WRITE_RESP && h->flags == 1);
    cr_assert_eq(h->id, r.peer_id - 1);
    cr_assert_eq(h->stream_id, 7);
    cr_assert_eq(h->size, 1000);

    clbi_proto_release(&r.p, s, 1000);
    cr_assert_eq(r.p.stream[s].in_fill, 1000, "given back when it is handed out");
    h = rig_out(&r);
    cr_assert(h && h->type == CLBI_READ_REL_REQ && h->stream_id == 7 && h->size == 1000);
    cr_assert_eq(r.p.stream[s].in_fill, 0);
    cr_assert_eq(r.p.stream[s].in_packets, 0);
    cr_assert_eq(rig_resp(&r, CLBI_READ_REL_RESP, h->id, 3, 3, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.in_flight, 0);
}
