/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of our side: order and limits of what goes out, deadlines, peers that do not answer, writes. */
#include "proto_expect.h"

/* --- what goes out, and when --- */

Test(rules, at_most_16_unanswered)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s, n;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 4096, CLBI_ID_NONE);
    for (int i = 0; i < 20; i++)
        rig_peer_write(&r, 0, 1);
    rig_flush(&r);
    for (int i = 0; i < 20; i++)
        clbi_proto_release(&r.p, s, 1);
    for (n = 0; (h = rig_out(&r)); n++)
        cr_assert_eq(h->type, CLBI_READ_REL_REQ);
    cr_assert_eq(n, CLBI_MAX_INFLIGHT);
    cr_assert_eq(r.p.stream[s].in_packets, 4);
    clbi_proto_ping(&r.p);
    h = expect_out(&r, CLBI_PING_REQ);
    clbi_proto_ping(&r.p);
    cr_assert_null(rig_out(&r), "one PING at a time");
    cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, h->id, 0, 0, 1), CLBI_EV_PONG);
    cr_assert_eq(rig_resp(&r, CLBI_READ_REL_RESP, 12, 0, 0, 1), CLBI_EV_NONE);
    expect_out(&r, CLBI_READ_REL_REQ);
    cr_assert_null(rig_out(&r));
}

Test(rules, releases_and_creates_take_turns)
{
    struct rig r;
    const struct clbi_wire_header *h;
    unsigned count[4] = {0}, creates = 0;
    int s[3];

    rig_up(&r, CLB_ROLE_HOST);
    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('a' + i), 0};

        s[i] = rig_open_in(&r, name, 4096, CLBI_ID_NONE);
        for (int k = 0; k < 30; k++)
            rig_peer_write(&r, (uint32_t)i, 1);
        rig_flush(&r);
    }
    for (int i = 0; i < 90; i++)
        clbi_proto_release(&r.p, s[i / 30], 1);
    clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "z"), 64, r.now + RIG_SEC);
    while ((h = rig_out(&r))) {
        if (h->type == CLBI_READ_REL_REQ)
            count[h->stream_id]++;
        else
            creates++;
    }
    cr_assert_eq(creates, 1);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(count[i], 5, "stream %d: %u of 15", i, count[i]);
}

Test(rules, answers_go_before_requests)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 4096, CLBI_ID_NONE);
    rig_peer_write(&r, 0, 1);
    clbi_proto_release(&r.p, s, 1);
    clbi_proto_ping(&r.p);
    rig_peer_write(&r, 0, 1);
    expect_out(&r, CLBI_WRITE_RESP);
    expect_out(&r, CLBI_WRITE_RESP);
    expect_out(&r, CLBI_PING_REQ);
    expect_out(&r, CLBI_READ_REL_REQ);
}

Test(rules, out_gives_no_more_than_asked)
{
    struct rig r;
    uint8_t buf[3 * CLBI_WIRE_HEADER];

    rig_up(&r, CLB_ROLE_HOST);
    for (int i = 0; i < 5; i++)
        rig_req(&r, CLBI_PING_REQ, NULL, 0, 0);
    memset(buf, 0xA5, sizeof buf);
    cr_assert_eq(clbi_proto_out(&r.p, r.now, buf, 0), 0);
    cr_assert_eq(clbi_proto_out(&r.p, r.now, buf, 2), 2);
    for (size_t i = 2 * CLBI_WIRE_HEADER; i < sizeof buf; i++)
        cr_assert_eq(buf[i], 0xA5);
    cr_assert_eq(clbi_proto_out(&r.p, r.now, buf, 3), 3);
    cr_assert_eq(clbi_proto_out(&r.p, r.now, buf, 3), 0);
}

Test(rules, more_releases_than_packets_are_ignored)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 64, CLBI_ID_NONE);
    clbi_proto_release(&r.p, s, 1);
    rig_peer_write(&r, 0, 1);
    rig_flush(&r);
    clbi_proto_release(&r.p, s, 1);
    clbi_proto_release(&r.p, s, 1);
    clbi_proto_release(&r.p, -1, 1);
    clbi_proto_release(&r.p, 32, 1);
    cr_assert_eq(rig_flush(&r), 1);
    cr_assert_eq(r.p.stream[s].in_packets, 0);
}

/* --- a peer that does not answer releases --- */

static void receive_and_release(struct rig *r, int s, int n)
{
    for (int i = 0; i < n; i++) {
        cr_assert_eq(rig_peer_write(r, r->p.stream[s].id, 1), CLBI_EV_PAYLOAD);
        rig_flush(r);
        clbi_proto_release(&r->p, s, 1);
    }
}

Test(rules, silent_releases_stop_counting_after_16)
{
    struct rig r;
    struct clbi_proto_event ev;
    const struct clbi_wire_header *h;
    int32_t ids[64];
    int s, n = 0;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 4096, CLBI_ID_NONE);
    receive_and_release(&r, s, 16);
    while ((h = rig_out(&r)))
        n++;
    receive_and_release(&r, s, 30);
    cr_assert_null(rig_out(&r), "16 are unanswered");
    r.now += CLBI_REQUEST_TIMEOUT_NS;
    for (n = 0; clbi_proto_expire(&r.p, r.now, &ev); n++) {
        cr_assert_eq(ev.kind, CLBI_EV_FORGOTTEN);
        cr_assert_eq(ev.stream, s);
    }
    cr_assert_eq(n, 16);
    cr_assert_eq(r.p.forgotten_count, 16);
    for (n = 0; (h = rig_out(&r)); n++)
        ids[n] = h->id;
    cr_assert_eq(n, 30, "all at once from now on: %d", n);
    cr_assert_eq(r.p.in_flight, 0);
    cr_assert_not(clbi_proto_busy(&r.p));
    cr_assert_eq(r.p.stream[s].in_fill, 0);

    /* Late answers are harmless, whatever their number. */
    for (int i = 0; i < 30; i++)
        cr_assert_eq(rig_resp(&r, CLBI_READ_REL_RESP, ids[i], 0, 0, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.ignored_answers, 0);
    for (int i = 0; i < 600; i++)
        cr_assert_eq(rig_resp(&r, CLBI_READ_REL_RESP, i - 1000, 0, 0, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.ignored_answers, 600);
}

/* The peer that never answers a release may well be slow with other answers. */
Test(rules, silent_releases_go_out_past_16_unanswered_requests)
{
    struct rig r;
    int s, t;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 4096, CLBI_ID_NONE);
    t = rig_open_out(&r, "t", 4096, 1);
    r.p.silent_releases = CLBI_MAX_INFLIGHT;
    for (uint64_t i = 0; i < CLBI_MAX_INFLIGHT; i++)
        rig_write(&r, t, 1, i);
    receive_and_release(&r, s, 1);
    expect_out(&r, CLBI_READ_REL_REQ);
    cr_assert_eq(r.p.in_flight, CLBI_MAX_INFLIGHT);
}

Test(rules, an_answered_release_starts_the_count_anew)
{
    struct rig r;
    struct clbi_proto_event ev;
    int32_t id;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 4096, CLBI_ID_NONE);
    receive_and_release(&r, s, 15);
    rig_flush(&r);
    r.now += CLBI_REQUEST_TIMEOUT_NS;
    while (clbi_proto_expire(&r.p, r.now, &ev))
        ;
    cr_assert_eq(r.p.silent_releases, 15);
    receive_and_release(&r, s, 1);
    id = expect_out(&r, CLBI_READ_REL_REQ)->id;
    rig_resp(&r, CLBI_READ_REL_RESP, id, 0, 0, 1);
    cr_assert_eq(r.p.silent_releases, 0);
    receive_and_release(&r, s, 20);
    rig_flush(&r);
    cr_assert_eq(r.p.in_flight, CLBI_MAX_INFLIGHT);
    cr_assert_eq(r.p.stream[s].rel_len, 4);
}

/* --- PING and RESET --- */

Test(rules, ping_not_answered)
{
    struct rig r;
    struct clbi_proto_event ev;
    int32_t late;

    rig_up(&r, CLB_ROLE_DEVICE);
    clbi_proto_ping(&r.p);
    late = expect_out(&r, CLBI_PING_REQ)->id;
    cr_assert_eq(clbi_proto_next_deadline(&r.p), r.now + CLBI_REQUEST_TIMEOUT_NS);
    r.now += CLBI_REQUEST_TIMEOUT_NS;
    cr_assert(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(ev.kind, CLBI_EV_FORGOTTEN);
    clbi_proto_ping(&r.p);
    expect_out(&r, CLBI_PING_REQ);
    cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, late, 0, 0, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.strays, 0);
}

Test(rules, the_first_ping_has_no_deadline_of_its_own)
{
    struct rig r;

    rig_init(&r, CLB_ROLE_HOST);
    expect_out(&r, CLBI_PING_REQ);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), INT64_MAX);
    r.now += 4 * RIG_SEC;
    cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, 11, 0, 0, 1), CLBI_EV_UP);
}

Test(rules, reset_goes_last)
{
    struct rig r;
    struct clbi_proto_event ev;
    int s, t;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 4096, CLBI_ID_NONE);
    t = rig_open_out(&r, "t", 64, 1);
    rig_peer_write(&r, 0, 1);
    clbi_proto_reset(&r.p);
    clbi_proto_release(&r.p, s, 1);
    clbi_proto_close(&r.p, t);
    expect_out(&r, CLBI_WRITE_RESP);
    rig_out(&r);
    rig_out(&r);
    expect_out(&r, CLBI_RESET_REQ);
    cr_assert(clbi_proto_busy(&r.p));
    cr_assert_eq(clbi_proto_write_check(&r.p, t, 1), CLB_ERR_STATE);
    clbi_proto_ping(&r.p);
    cr_assert_null(rig_out(&r), "nothing follows it");
    rig_req(&r, CLBI_PING_REQ, NULL, 0, 0);
    expect_out(&r, CLBI_PING_RESP);

    r.now += CLBI_REQUEST_TIMEOUT_NS;
    while (clbi_proto_expire(&r.p, r.now, &ev) && ev.kind != CLBI_EV_RESET_DONE)
        ;
    cr_assert_eq(ev.kind, CLBI_EV_RESET_DONE);
    cr_assert_eq(ev.err, CLB_ERR_TIMEOUT);
}

Test(rules, reset_does_not_wait_for_answers)
{
    struct rig r;
    const struct clbi_wire_header *h;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 64, 0);
    for (uint64_t i = 0; i < CLBI_MAX_INFLIGHT; i++)
        rig_write(&r, s, 1, i);
    clbi_proto_close(&r.p, s);
    clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "t"), 64, r.now + RIG_SEC);
    clbi_proto_reset(&r.p);
    h = expect_out(&r, CLBI_RESET_REQ);
    cr_assert_eq(rig_resp(&r, CLBI_RESET_RESP, h->id, 0, 0, 1), CLBI_EV_RESET_DONE);
    cr_assert_eq(r.ev.err, CLB_OK);
}

Test(rules, reset_only_once_the_link_is_up_also_after_fail)
{
    struct rig r;

    rig_init(&r, CLB_ROLE_HOST);
    clbi_proto_reset(&r.p);
    expect_out(&r, CLBI_PING_REQ);
    cr_assert_null(rig_out(&r));

    rig_up(&r, CLB_ROLE_HOST);
    rig_req(&r, CLBI_READ_REQ, NULL, 0, 0);
    cr_assert(r.p.failed);
    cr_assert_null(rig_out(&r));
    clbi_proto_reset(&r.p);
    expect_out(&r, CLBI_RESET_REQ);
    cr_assert_null(rig_out(&r));
}

/* --- writes --- */

Test(rules, credit_is_bytes_and_packets)
{
    struct rig r;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 4096, 0);
    for (uint64_t i = 0; i < CLBI_MAX_PACKETS; i++) {
        id = rig_write(&r, s, 10, i);
        cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 10, 1), CLBI_EV_WRITE_ACKED);
    }
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 0), CLB_ERR_NOBUFS);
    rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 10);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 4096 - 630), CLB_OK);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 4096 - 629), CLB_ERR_NOBUFS);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 4097), CLB_ERR_TOOBIG);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, UINT64_MAX), CLB_ERR_TOOBIG);
}

Test(rules, write_on_what_is_not_open)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    cr_assert_eq(clbi_proto_write_check(&r.p, -1, 0), CLB_ERR_STATE);
    cr_assert_eq(clbi_proto_write_check(&r.p, 32, 0), CLB_ERR_STATE);
    cr_assert_eq(clbi_proto_write_check(&r.p, 0, 0), CLB_ERR_STATE);
    s = rig_open_in(&r, "s", 64, CLBI_ID_NONE);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 0), CLB_ERR_STATE);
    clbi_proto_create(&r.p, s, 64, r.now + RIG_SEC);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 0), CLB_ERR_STATE);
    expect_out(&r, CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 0), CLB_ERR_STATE);
}

Test(rules, write_refused_gives_its_credit_back)
{
    struct rig r;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 64, 0);
    id = rig_write(&r, s, 64, 5);
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 64, 2), CLBI_EV_WRITE_FAILED);
    cr_assert_eq(r.ev.err, CLB_ERR_IO);
    cr_assert_eq(r.ev.token, 5);
    cr_assert_eq(r.p.stream[s].out_fill, 0);
    cr_assert_eq(r.p.stream[s].out_packets, 0);
}

Test(rules, write_has_no_deadline_before_its_last_byte_is_out)
{
    struct rig r;
    uint8_t hdr[CLBI_WIRE_HEADER];
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 64, 0);
    clbi_proto_write_begin(&r.p, s, 64, 5, r.now, hdr);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), INT64_MAX);
    clbi_proto_write_sent(&r.p, 6, r.now);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), INT64_MAX);
    clbi_proto_write_sent(&r.p, 5, r.now + 7);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), r.now + 7 + 10 * RIG_SEC);
    r.p.cfg.write_timeout_ns = -1;
    clbi_proto_write_sent(&r.p, 5, r.now + 7);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), INT64_MAX, "never");
    r.p.cfg.write_timeout_ns = INT64_MAX;
    clbi_proto_write_sent(&r.p, 5, r.now + 7);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), INT64_MAX, "saturates");
}
