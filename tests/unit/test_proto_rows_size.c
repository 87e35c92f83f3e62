/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of the rows of section 10: sizes, windows, releases, floods, ends. */
#include "proto_expect.h"

static const enum clb_role roles[] = {CLB_ROLE_HOST, CLB_ROLE_DEVICE};

Test(rows, size_of_write_larger_than_the_window)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    rig_open_in(&r, "cam", 64, 3);
    rig_req(&r, CLBI_WRITE_REQ, NULL, 3, 65);
    expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 3, 65);
    cr_assert_null(rig_out(&r));
    cr_assert(strstr(r.ev.text, "65 bytes") && strstr(r.ev.text, "stream 3") &&
                  strstr(r.ev.text, "window of 64") && strstr(r.ev.text, "\"cam\""),
              "%s", r.ev.text);
    expect_fail(&r, "window");
}

Test(rows, size_of_write_larger_than_what_is_left_of_the_window)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "cam", 128, CLBI_ID_NONE);
    cr_assert_eq(rig_peer_write(&r, 0, 100), CLBI_EV_PAYLOAD);
    cr_assert_eq(rig_peer_write(&r, 0, 28), CLBI_EV_PAYLOAD);
    rig_flush(&r);
    clbi_proto_release(&r.p, s, 28);
    rig_flush(&r);
    cr_assert_eq(rig_peer_write(&r, 0, 28), CLBI_EV_PAYLOAD, "credit came back");
    rig_flush(&r);
    rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 1);
    expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0, 1);
    expect_fail(&r, "128 bytes, 2 packets");
}

/* 4 GiB - 1 and 2 GiB, with windows and limits that would allow them (R2). */
Test(rows, size_of_write_of_2_gib)
{
    static const uint32_t sizes[] = {0x80000000u, 0xFFFFFFFFu, 0xFFFFFFC1u};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct clbi_proto_config cfg = rig_config(CLB_ROLE_HOST);
        struct rig r;

        cfg.max_payload = cfg.max_stream_window = cfg.max_link_window = UINT64_MAX;
        rig_up(&r, CLB_ROLE_HOST);
        r.p.cfg = cfg;
        rig_open_in(&r, "cam", UINT32_MAX, CLBI_ID_NONE);
        cr_assert_eq(rig_peer_write(&r, 0, 0x7FFFFFFF), CLBI_EV_PAYLOAD);
        rig_flush(&r);
        rig_req(&r, CLBI_WRITE_REQ, NULL, 0, sizes[i]);
        expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0, sizes[i]);
        expect_fail(&r, "limit");
    }
}

Test(rows, size_of_write_larger_than_the_configured_maximum)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    r.p.cfg.max_payload = 1000;
    rig_open_in(&r, "cam", 4096, CLBI_ID_NONE);
    cr_assert_eq(rig_peer_write(&r, 0, 1000), CLBI_EV_PAYLOAD);
    rig_flush(&r);
    rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 1001);
    expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0, 1001);
    expect_fail(&r, "limit of 1000");
}

Test(rows, packets_more_than_64)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    rig_open_in(&r, "cam", 4096, 0);
    for (int i = 0; i < CLBI_MAX_PACKETS; i++) {
        cr_assert_eq(rig_peer_write(&r, 0, 10), CLBI_EV_PAYLOAD);
        rig_flush(&r);
    }
    rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 10);
    expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0, 10);
    expect_fail(&r, "64 packets");
}

Test(rows, size_0_write_is_bounded_by_the_packets)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    rig_open_in(&r, "cam", 64, 0);
    for (int i = 0; i < CLBI_MAX_PACKETS; i++) {
        cr_assert_eq(rig_peer_write(&r, 0, 0), CLBI_EV_PAYLOAD);
        cr_assert_eq(r.ev.size, 0);
        expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_ACK, 0, 0);
    }
    rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 0);
    expect_fail(&r, "64 packets");
}

Test(rows, size_0_on_create)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "z", 0, 0), CLBI_EV_ANNOUNCED);
    cr_assert_eq(r.ev.size, 0);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, 0);
    cr_assert_eq(rig_peer_write(&r, 0, 0), CLBI_EV_PAYLOAD, "0 bytes fit any window");
    rig_flush(&r);
    rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 1);
    expect_fail(&r, "window of 0");
}

Test(rows, size_huge_on_create)
{
    for (int role = 0; role < 2; role++) {
        struct rig r;

        rig_up(&r, roles[role]);
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 0, UINT32_MAX), CLBI_EV_NONE);
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, UINT32_MAX);
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 0, (64u << 20) + 1), CLBI_EV_NONE);
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, (64u << 20) + 1);
        cr_assert_eq(clbi_proto_find(&r.p, "a"), -1);
        for (uint32_t i = 0; i < 4; i++) {
            const char name[] = {(char)('a' + i), 0};

            rig_open_in(&r, name, 64u << 20, i);
        }
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "e", 4, 64), CLBI_EV_NONE, "link's cap");
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "e", 4, 0), CLBI_EV_ANNOUNCED);
        rig_flush(&r);
        cr_assert_eq(r.p.in_window_total, 256u << 20);
        cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 1, 0), CLBI_EV_PEER_CLOSED);
        rig_flush(&r);
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "f", 5, 64u << 20), CLBI_EV_ANNOUNCED,
                     "a closed half gives its window back");
    }
}

Test(rows, create_of_a_33rd_stream)
{
    for (int role = 0; role < 2; role++) {
        struct rig r;
        char name[8];

        rig_up(&r, roles[role]);
        for (uint32_t i = 0; i < CLBI_MAX_STREAMS; i++) {
            snprintf(name, sizeof name, "s%u", i);
            rig_open_in(&r, name, 64, i);
        }
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "more", 32, 64), CLBI_EV_NONE);
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
        cr_assert_eq(clbi_proto_attach(&r.p, "more"), -1);
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "s31", 32, 64), CLBI_EV_NONE,
                     "known names still work");
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 31, 64);
    }
}

Test(rows, create_and_close_for_ever)
{
    for (int role = 0; role < 2; role++) {
        struct rig r;
        char name[16];

        rig_up(&r, roles[role]);
        for (uint32_t i = 0; i < 1000; i++) {
            int s;

            snprintf(name, sizeof name, "s%u", i);
            s = rig_open_in(&r, name, 64, i);
            cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, r.p.stream[s].id, 0),
                         CLBI_EV_PEER_CLOSED);
            rig_flush(&r);
            cr_assert_not(r.p.stream[s].used, "recycled");
        }
        cr_assert_eq(r.p.in_window_total, 0);
    }
}

Test(rows, create_raises_a_window_repeatedly)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "a", 64, CLBI_ID_NONE);
    for (uint32_t w = 128; w <= 64u << 20; w *= 2) {
        cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 0, w), CLBI_EV_ANNOUNCED);
        cr_assert_eq(r.ev.size, w);
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, w);
        cr_assert_eq(r.p.in_window_total, w);
    }
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 0, (64u << 20) + 64), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, (64u << 20) + 64);
    cr_assert_eq(r.p.stream[s].in_window, 64u << 20);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 0, 64), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, 64);
    cr_assert_eq(r.p.stream[s].in_window, 64u << 20, "a smaller size leaves it");
}

Test(rows, release_larger_than_what_is_unreleased)
{
    for (int spec = 0; spec < 2; spec++) {
        uint32_t type = spec ? CLBI_READ_REL_SPEC_REQ : CLBI_READ_REL_REQ;
        struct rig r;
        int s;

        rig_up(&r, CLB_ROLE_HOST);
        s = rig_open_out(&r, "s", 1024, 0);
        rig_write(&r, s, 10, 1);
        rig_write(&r, s, 20, 2);
        cr_assert_eq(rig_req(&r, type, NULL, 0, 20), CLBI_EV_CREDIT, "in any order");
        expect_answer(&r, type == CLBI_READ_REL_REQ ? 10 : 27, CLBI_FLAG_ACK, 0, 0);
        cr_assert_eq(r.p.stream[s].out_fill, 10);
        rig_req(&r, type, NULL, 0, 11);
        expect_fail(&r, "11 bytes");
    }
}

Test(rows, release_when_nothing_is_unreleased)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_out(&r, "s", 1024, 0);
    rig_write(&r, s, 0, 1);
    cr_assert_eq(rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 0), CLBI_EV_CREDIT);
    rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 0);
    expect_fail(&r, "0 packets");
}

Test(rows, release_on_a_half_that_is_not_ours)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    rig_open_in(&r, "s", 64, 0);
    rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 0);
    expect_fail(&r, "release");
}

Test(rows, write_answer_never_sent)
{
    struct rig r;
    struct clbi_proto_event ev;
    int s, left = 0;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    for (uint64_t t = 0; t < CLBI_MAX_INFLIGHT; t++)
        rig_write(&r, s, 1, t);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 1), CLB_ERR_AGAIN);
    r.now += 11 * RIG_SEC;
    while (clbi_proto_expire(&r.p, r.now, &ev))
        left++;
    cr_assert_eq(left, CLBI_MAX_INFLIGHT);
    cr_assert_eq(r.p.in_flight, 0);
    cr_assert_eq(clbi_proto_write_check(&r.p, s, 1), CLB_OK, "the link survives");
    cr_assert_eq(r.p.stream[s].out_packets, CLBI_MAX_INFLIGHT);
}

Test(rows, requests_flood)
{
    struct rig r;
    unsigned n = 0;

    rig_up(&r, CLB_ROLE_HOST);
    while (!clbi_proto_must_pause(&r.p)) {
        cr_assert_eq(rig_req(&r, CLBI_PING_REQ, NULL, 0, 0), CLBI_EV_NONE);
        cr_assert_lt(++n, 1000);
    }
    cr_assert_eq(n, CLBI_MAX_ANSWERS);
    for (unsigned i = 0; i < n; i++) {
        const struct clbi_wire_header *h = rig_out(&r);

        cr_assert(h && h->type == CLBI_PING_RESP && h->id == (int32_t)(1000 + i), "none is lost");
    }
    cr_assert_not(clbi_proto_must_pause(&r.p));
    cr_assert_null(rig_out(&r));
}

/* A payload that is due when the queue is nearly full still finds room for its answer. */
Test(rows, requests_flood_before_a_write)
{
    struct rig r;
    size_t n = 0;

    rig_up(&r, CLB_ROLE_HOST);
    rig_open_in(&r, "s", 64, CLBI_ID_NONE);
    for (int i = 0; i < CLBI_MAX_ANSWERS - 1; i++)
        rig_req(&r, CLBI_PING_REQ, NULL, 0, 0);
    cr_assert_not(clbi_proto_must_pause(&r.p));
    cr_assert_eq(rig_peer_write(&r, 0, 1), CLBI_EV_PAYLOAD);
    cr_assert(clbi_proto_must_pause(&r.p));
    for (const struct clbi_wire_header *h; (h = rig_out(&r));)
        n += h->type == CLBI_WRITE_RESP;
    cr_assert_eq(n, 1);
}

Test(rows, requests_flood_of_creates_and_closes_while_answers_wait)
{
    struct rig r;
    char name[16];
    const struct clbi_wire_header *h;
    int refused = 0;

    rig_up(&r, CLB_ROLE_HOST);
    for (int i = 0; i < CLBI_MAX_ANSWERS / 2; i++) {
        snprintf(name, sizeof name, "s%d", i);
        if (rig_req(&r, CLBI_CREATE_STREAM_REQ, name, CLBI_ID_NONE, 64) != CLBI_EV_ANNOUNCED)
            refused++;
        rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 0, 0);
    }
    for (int i = 0; (h = rig_out(&r)); i++)
        if (h->type == CLBI_CREATE_STREAM_RESP && h->flags == CLBI_FLAG_ACK) {
            snprintf(name, sizeof name, "s%d", i / 2);
            cr_assert_str_eq(h->name, name, "each answer names its own stream");
        }
    cr_assert_eq(refused, 0);
    for (int i = 0; i < CLBI_MAX_STREAMS; i++)
        cr_assert(!r.p.stream[i].used || r.p.stream[i].in_open);
}

Test(rows, close_with_data_unreleased)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_in(&r, "s", 1024, 0);
    rig_peer_write(&r, 0, 2);
    rig_flush(&r);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 0, 0), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_NACK, 0, 0);
    cr_assert(r.p.stream[s].in_open);
    cr_assert_eq(rig_peer_write(&r, 0, 2), CLBI_EV_PAYLOAD, "the half stays");
    rig_flush(&r);
    clbi_proto_release(&r.p, s, 2);
    clbi_proto_release(&r.p, s, 2);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 0, 0), CLBI_EV_NONE,
                 "released here, but the peer does not know yet");
    expect_answer(&r, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_NACK, 0, 0);
    cr_assert_eq(rig_flush(&r), 2);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 0, 0), CLBI_EV_PEER_CLOSED);
    expect_answer(&r, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_ACK, 0, 0);
    cr_assert_eq(r.ev.stream, s);
}

Test(rows, reset_at_any_time)
{
    for (int role = 0; role < 2; role++) {
        struct rig r;
        int s;

        rig_init(&r, roles[role]);
        cr_assert_eq(rig_req(&r, CLBI_RESET_REQ, NULL, 0, 0), CLBI_EV_RESET, "before the PING");
        expect_answer(&r, CLBI_RESET_RESP, CLBI_FLAG_ACK, 0, 0);

        rig_up(&r, roles[role]);
        s = rig_open_in(&r, "s", 64, 0);
        rig_peer_write(&r, 0, 1);
        rig_flush(&r);
        clbi_proto_release(&r.p, s, 1);
        cr_assert_eq(rig_req(&r, CLBI_RESET_REQ, NULL, 0, 0), CLBI_EV_RESET);
        expect_answer(&r, CLBI_RESET_RESP, CLBI_FLAG_ACK, 0, 0);
        cr_assert_null(rig_out(&r), "nothing of ours follows");
        cr_assert_not(clbi_proto_busy(&r.p));
    }
}

Test(rows, device_role_first_event_not_ping)
{
    struct rig r;

    rig_init(&r, CLB_ROLE_DEVICE);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "s", 0, 64), CLBI_EV_ANNOUNCED);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, 64);
    cr_assert_not(r.p.up);
    cr_assert_eq(rig_req(&r, CLBI_PING_REQ, NULL, 0, 0), CLBI_EV_UP);
}

/* R15: whatever came before, no byte without meaning is set. */
Test(rows, memory_reuse_answers_carry_no_old_bytes)
{
    static const uint32_t types[] = {CLBI_PING_REQ, CLBI_READ_REL_REQ, CLBI_CLOSE_STREAM_REQ,
                                     CLBI_WRITE_REQ};
    static const char zeros[CLBI_WIRE_NAME];
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct clbi_wire_header h = {
            .id = 1, .type = types[i], .stream_id = 0x12345, .size = 77, .flags = 0xffffffff};
        const struct clbi_wire_header *a;

        memset(h.name, 0xA5, sizeof h.name);
        if (rig_in(&r, &h) == CLBI_EV_SKIP)
            clbi_proto_payload_done(&r.p);
        a = rig_out(&r);
        cr_assert_arr_eq(a->name, zeros, sizeof zeros);
        if (types[i] == CLBI_PING_REQ || types[i] == CLBI_READ_REL_REQ)
            cr_assert_eq(a->stream_id, 0);
        if (types[i] != CLBI_WRITE_REQ)
            cr_assert_eq(a->size, 0);
    }
}

/* Section 3: 24 is answered with 27, 25 is a write that is answered with 28. */
Test(rows, dialect_b_requests_are_served)
{
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_in(&r, "s", 64, CLBI_ID_NONE);
    cr_assert_eq(rig_req(&r, CLBI_WRITE_FD_REQ, NULL, 0, 5), CLBI_EV_PAYLOAD);
    clbi_proto_payload_done(&r.p);
    expect_answer(&r, CLBI_WRITE_FD_RESP, CLBI_FLAG_ACK, 0, 5);
    cr_assert_eq(r.p.stream[s].in_fill, 5);
    cr_assert_eq(rig_req(&r, CLBI_WRITE_FD_REQ, NULL, 9, 5), CLBI_EV_SKIP);
    clbi_proto_payload_done(&r.p);
    expect_answer(&r, CLBI_WRITE_FD_RESP, CLBI_FLAG_NACK, 9, 5);
}

Test(rows, header_where_a_payload_is_due)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    rig_open_in(&r, "s", 64, CLBI_ID_NONE);
    cr_assert_eq(rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 5), CLBI_EV_PAYLOAD);
    rig_req(&r, CLBI_PING_REQ, NULL, 0, 0);
    expect_fail(&r, "payload");
}
