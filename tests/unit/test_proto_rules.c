/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of our side: life of a half, stream ids, request ids, misuse. */
#include "proto_expect.h"

/* --- life of a half --- */

Test(rules, create_refused)
{
    for (int role = 0; role < 2; role++) {
        const struct clbi_wire_header *h;
        struct rig r;
        int s;

        rig_up(&r, role ? CLB_ROLE_HOST : CLB_ROLE_DEVICE);
        s = clbi_proto_attach(&r.p, "s");
        clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
        h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
        cr_assert_eq(h->stream_id, role ? 0 : CLBI_ID_NONE);
        cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, CLBI_ID_NONE, 64, 0x40),
                     CLBI_EV_REFUSED);
        cr_assert_eq(r.ev.err, CLB_ERR_TOOBIG);
        cr_assert_eq(r.p.stream[s].out, CLBI_HALF_NONE);
        cr_assert_eq(r.p.stream[s].id, CLBI_ID_NONE);
        cr_assert_not(clbi_proto_busy(&r.p));
        clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
        h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
        cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, CLBI_ID_NONE, 64, 2),
                     CLBI_EV_REFUSED);
        cr_assert_eq(r.ev.err, CLB_ERR_IO);
    }
}

Test(rules, create_not_answered_and_answered_late)
{
    struct rig r;
    struct clbi_proto_event ev;
    const struct clbi_wire_header *h;
    int s, other;
    int32_t late;

    rig_up(&r, CLB_ROLE_HOST);
    s = clbi_proto_attach(&r.p, "s");
    clbi_proto_create(&r.p, s, 64, r.now + 3 * RIG_SEC);
    late = expect_out(&r, CLBI_CREATE_STREAM_REQ)->id;
    cr_assert_eq(clbi_proto_next_deadline(&r.p), r.now + 3 * RIG_SEC);
    r.now += 3 * RIG_SEC;
    cr_assert(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(ev.kind, CLBI_EV_REFUSED);
    cr_assert_eq(ev.err, CLB_ERR_TIMEOUT);
    cr_assert_eq(ev.stream, s);
    cr_assert_eq(r.p.stream[s].out, CLBI_HALF_NONE);
    cr_assert_not(clbi_proto_expire(&r.p, r.now, &ev));

    /* The peer has "s" as stream 0 by now: the next name must not get that number. */
    other = rig_open_in(&r, "other", 64, CLBI_ID_NONE);
    cr_assert_eq(r.p.stream[other].id, 1);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, late, 0, 64, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.strays, 0);
    cr_assert_eq(r.p.stream[s].out, CLBI_HALF_NONE, "a late answer changes nothing");

    /* Tried again: the peer names the number that it has. */
    clbi_proto_create(&r.p, s, 64, r.now + 3 * RIG_SEC);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(h->stream_id, 2);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, 0, 64, 1), CLBI_EV_OPENED);
    cr_assert_eq(r.p.stream[s].id, 0);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 64), CLB_OK);
}

Test(rules, create_that_never_went_out_ends_with_its_deadline)
{
    struct rig r;
    struct clbi_proto_event ev;
    int s, t;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    for (uint64_t i = 0; i < CLBI_MAX_INFLIGHT; i++)
        rig_write(&r, s, 1, i);
    t = clbi_proto_attach(&r.p, "t");
    clbi_proto_create(&r.p, t, 64, r.now + RIG_SEC);
    cr_assert_null(rig_out(&r));
    cr_assert(clbi_proto_busy(&r.p));
    cr_assert_eq(clbi_proto_next_deadline(&r.p), r.now + RIG_SEC);
    r.now += RIG_SEC;
    cr_assert(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(ev.kind, CLBI_EV_REFUSED);
    cr_assert_eq(ev.stream, t);
    cr_assert_eq(ev.err, CLB_ERR_TIMEOUT);
    cr_assert_not(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(r.p.stream[t].out, CLBI_HALF_NONE);
}

Test(rules, create_raises_an_open_half)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 64, 0);
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    cr_assert_null(rig_out(&r), "nothing to raise");
    clbi_proto_create(&r.p, s, 1000, r.now + RIG_SEC);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 65), CLB_ERR_NOBUFS, "not never: not yet");
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 64), CLB_OK, "the half stays usable");
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(h->size, 1024);
    cr_assert_eq(h->stream_id, 0);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, 0, 1024, 1), CLBI_EV_OPENED);
    cr_assert_eq(r.ev.size, 1024);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 1024), CLB_OK);
    cr_assert_not(clbi_proto_busy(&r.p));

    clbi_proto_create(&r.p, s, 4096, r.now + RIG_SEC);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, CLBI_ID_NONE, 0, 0x40),
                 CLBI_EV_REFUSED);
    cr_assert_eq(r.p.stream[s].out, CLBI_HALF_OPEN);
    cr_assert_eq(r.p.stream[s].out_window, 1024);
    cr_assert_null(rig_out(&r), "not tried for ever");
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 1025), CLB_ERR_TOOBIG);
}

Test(rules, create_with_more_while_the_first_is_unanswered)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = clbi_proto_attach(&r.p, "s");
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    clbi_proto_create(&r.p, s, 640, r.now + RIG_SEC);
    cr_assert_null(rig_out(&r));
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, 11, 9, 64, 1), CLBI_EV_OPENED);
    cr_assert_eq(r.p.stream[s].out_window, 64);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(h->size, 640);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, 9, 640, 1), CLBI_EV_OPENED);
    cr_assert_eq(r.p.stream[s].out_window, 640);
    cr_assert_null(rig_out(&r));
}

Test(rules, window_0_is_64_on_the_wire_and_the_largest_does_not_wrap)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "a"), 0, r.now + RIG_SEC);
    cr_assert_eq(expect_out(&r, CLBI_CREATE_STREAM_REQ)->size, 64);
    clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "b"), UINT64_MAX, r.now + RIG_SEC);
    cr_assert_eq(expect_out(&r, CLBI_CREATE_STREAM_REQ)->size, 0xFFFFFFC0u);
}

Test(rules, close_is_ended_by_any_answer)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        struct rig r;
        const struct clbi_wire_header *h;
        int s;

        rig_up(&r, CLB_ROLE_HOST);
        s = rig_open_out(&r, "s", 64, 0);
        clbi_proto_close(&r.p, s);
        h = expect_out(&r, CLBI_CLOSE_STREAM_REQ);
        cr_assert_eq(rig_resp(&r, CLBI_CLOSE_STREAM_RESP, h->id, 0, 0, flags), CLBI_EV_HALF_CLOSED);
        cr_assert_eq(r.p.stream[s].out, CLBI_HALF_NONE);
        cr_assert_eq(r.p.stream[s].out_window, 0);
        cr_assert_eq(clbi_proto_write_check(&r.p, s, 1), CLB_ERR_STATE);
        cr_assert_null(rig_out(&r));
    }
}

Test(rules, close_not_answered_ends_the_half)
{
    struct rig r;
    struct clbi_proto_event ev;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 64, 0);
    clbi_proto_close(&r.p, s);
    expect_out(&r, CLBI_CLOSE_STREAM_REQ);
    r.now += CLBI_REQUEST_TIMEOUT_NS;
    cr_assert(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(ev.kind, CLBI_EV_HALF_CLOSED);
    cr_assert_eq(ev.err, CLB_ERR_TIMEOUT);
    cr_assert_eq(ev.stream, s);
    cr_assert_eq(r.p.stream[s].out, CLBI_HALF_NONE);
    cr_assert_not(clbi_proto_busy(&r.p));
}

Test(rules, create_while_closing_goes_out_afterwards)
{
    for (int sent = 0; sent < 2; sent++) {
        struct rig r;
        const struct clbi_wire_header *h;
        int s;

        rig_up(&r, CLB_ROLE_HOST);
        s = rig_open_out(&r, "s", 1024, 0);
        clbi_proto_close(&r.p, s);
        if (!sent)
            clbi_proto_create(&r.p, s, 128, r.now + RIG_SEC);
        h = expect_out(&r, CLBI_CLOSE_STREAM_REQ);
        if (sent)
            clbi_proto_create(&r.p, s, 128, r.now + RIG_SEC);
        cr_assert_null(rig_out(&r), "the answer comes first");
        cr_assert_eq(rig_resp(&r, CLBI_CLOSE_STREAM_RESP, h->id, 0, 0, 2), CLBI_EV_HALF_CLOSED);
        cr_assert(clbi_proto_busy(&r.p));
        h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
        cr_assert_eq(h->size, 128);
        cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, h->stream_id, 128, 1),
                     CLBI_EV_OPENED);
        cr_assert_eq(r.p.stream[s].out_window, 128, "not the old one");
        cr_assert_not(clbi_proto_busy(&r.p));
    }
}

Test(rules, close_of_a_half_that_was_only_wanted)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = clbi_proto_attach(&r.p, "s");
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    clbi_proto_close(&r.p, s);
    cr_assert_eq(r.p.stream[s].out, CLBI_HALF_NONE);
    cr_assert_null(rig_out(&r));
    cr_assert_not(clbi_proto_busy(&r.p));
    clbi_proto_detach(&r.p, s);
    cr_assert_not(r.p.stream[s].used);
}

Test(rules, close_while_creating)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = clbi_proto_attach(&r.p, "s");
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    clbi_proto_close(&r.p, s);
    cr_assert_null(rig_out(&r));
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, 0, 64, 1), CLBI_EV_OPENED);
    h = expect_out(&r, CLBI_CLOSE_STREAM_REQ);
    cr_assert_eq(rig_resp(&r, CLBI_CLOSE_STREAM_RESP, h->id, 0, 0, 1), CLBI_EV_HALF_CLOSED);
}

Test(rules, close_waits_for_the_answer_to_a_write_that_is_released)
{
    struct rig r;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 64, 0);
    id = rig_write(&r, s, 5, 1);
    clbi_proto_close(&r.p, s);
    cr_assert_eq(rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 5), CLBI_EV_CREDIT);
    expect_out(&r, CLBI_READ_REL_RESP);
    cr_assert_null(rig_out(&r));
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 5, 1), CLBI_EV_WRITE_ACKED);
    expect_out(&r, CLBI_CLOSE_STREAM_REQ);
}

Test(rules, halves_are_independent)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_in(&r, "s", 64, 4);
    cr_assert_eq(rig_open_out(&r, "s", 64, 4), s);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 4, 0), CLBI_EV_PEER_CLOSED);
    rig_flush(&r);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 64), CLB_OK, "R19");
    cr_assert_eq(r.p.stream[s].id, 4);
    clbi_proto_close(&r.p, s);
    h = expect_out(&r, CLBI_CLOSE_STREAM_REQ);
    cr_assert_eq(rig_resp(&r, CLBI_CLOSE_STREAM_RESP, h->id, 4, 0, 1), CLBI_EV_HALF_CLOSED);
    cr_assert_eq(r.p.stream[s].id, CLBI_ID_NONE);
    cr_assert(r.p.stream[s].used, "pinned");
    clbi_proto_detach(&r.p, s);
    cr_assert_not(r.p.stream[s].used);
}

Test(rules, an_entry_is_not_recycled_while_an_answer_to_it_is_due)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_in(&r, "s", 64, 0);
    rig_peer_write(&r, 0, 1);
    clbi_proto_release(&r.p, s, 1);
    expect_out(&r, CLBI_WRITE_RESP);
    h = expect_out(&r, CLBI_READ_REL_REQ);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 0, 0), CLBI_EV_PEER_CLOSED);
    cr_assert(r.p.stream[s].used);
    cr_assert_eq(r.p.stream[s].id, CLBI_ID_NONE);
    cr_assert_eq(rig_resp(&r, CLBI_READ_REL_RESP, h->id, 0, 1, 1), CLBI_EV_NONE);
    cr_assert_not(r.p.stream[s].used);
}

/* --- stream ids --- */

Test(rules, ids_count_up_from_the_last_one)
{
    struct rig r;
    int s[4];

    rig_up(&r, CLB_ROLE_HOST);
    for (int i = 0; i < 4; i++) {
        const char name[] = {(char)('a' + i), 0};

        s[i] = rig_open_in(&r, name, 64, CLBI_ID_NONE);
        cr_assert_eq(r.p.stream[s[i]].id, (uint32_t)i);
    }
    rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 1, 0);
    rig_flush(&r);
    cr_assert_eq(r.p.stream[rig_open_in(&r, "e", 64, CLBI_ID_NONE)].id, 4);
    rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 4, 0);
    rig_flush(&r);
    cr_assert_eq(r.p.stream[rig_open_in(&r, "f", 64, CLBI_ID_NONE)].id, 4, "reuse of the last");
    r.p.last_stream_id = CLBI_ID_LIMIT - 1;
    cr_assert_eq(r.p.stream[rig_open_in(&r, "g", 64, CLBI_ID_NONE)].id, CLBI_ID_LIMIT - 1);
    cr_assert_eq(r.p.stream[rig_open_in(&r, "h", 64, CLBI_ID_NONE)].id, 1, "wraps, 0 is in use");
}

/* A host that closed its half may hand the number out anew: a device that is creating the other
 * half at that moment must not insist on it. */
Test(rules, device_forgets_the_id_when_the_hosts_half_closes_under_its_create)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_in(&r, "s", 64, 5);
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(h->stream_id, CLBI_ID_NONE);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 5, 0), CLBI_EV_PEER_CLOSED);
    cr_assert_eq(r.p.stream[s].id, CLBI_ID_NONE);
    rig_flush(&r);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, 11, 8, 64, 1), CLBI_EV_OPENED);
    cr_assert_eq(r.p.stream[s].id, 8);
}

Test(rules, device_adopts_the_id_of_the_hosts_create)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = clbi_proto_attach(&r.p, "s");
    clbi_proto_create(&r.p, s, 4096, r.now + RIG_SEC);
    h = expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(h->stream_id, CLBI_ID_NONE);
    cr_assert_eq(rig_open_in(&r, "s", 64, 3), s);
    cr_assert_eq(r.p.stream[s].id, 3);
    cr_assert_eq(rig_resp(&r, CLBI_CREATE_STREAM_RESP, 11, 3, 4096, 1), CLBI_EV_OPENED);
    cr_assert_eq(r.p.stream[s].id, 3);
}

/* --- request ids --- */

Test(rules, request_ids_wrap_below_the_largest_and_skip_pending_ones)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    r.p.next_id = 10;
    cr_assert_eq(rig_write(&r, s, 1, 0), 10);
    cr_assert_eq(rig_write(&r, s, 1, 1), 11);
    r.p.next_id = INT32_MAX - 1;
    cr_assert_eq(rig_write(&r, s, 1, 2), INT32_MAX - 1);
    cr_assert_eq(rig_write(&r, s, 1, 3), 12, "10 and 11 are pending");
    r.p.next_id = INT32_MAX;
    cr_assert_eq(rig_write(&r, s, 1, 4), 13);
}

Test(rules, request_ids_skip_forgotten_ones)
{
    struct rig r;
    struct clbi_proto_event ev;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    r.p.next_id = 20;
    rig_write(&r, s, 1, 0);
    cr_assert(clbi_proto_expire(&r.p, r.now + 10 * RIG_SEC, &ev));
    r.p.next_id = 20;
    cr_assert_eq(rig_write(&r, s, 1, 1), 21, "a late answer to 20 would be taken for this one's");
}

/* --- misuse by the owner: harmless --- */

Test(rules, calls_that_make_no_sense_change_nothing)
{
    struct rig r;
    uint8_t hdr[CLBI_WIRE_HEADER];
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    clbi_proto_payload_done(&r.p);
    clbi_proto_detach(&r.p, 3);
    clbi_proto_close(&r.p, -1);
    clbi_proto_create(&r.p, CLBI_MAX_STREAMS, 64, r.now);
    cr_assert_eq(clbi_proto_attach(&r.p, "0123456789012345678901234567890123456789012345678912"),
                 -1);
    cr_assert_null(rig_out(&r));
    s = rig_open_out(&r, "s", 64, 0);
    clbi_proto_write_begin(&r.p, s, 65, 1, r.now, hdr);
    cr_assert(r.p.failed, "a write without credit never goes out");
    cr_assert_eq(r.p.stream[s].out_fill, 0);
}
