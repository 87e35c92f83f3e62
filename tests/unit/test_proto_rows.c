/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a malicious or broken peer can do: one test for each row of the table in section 10 of the
 * wire protocol's description that concerns the protocol machine, named after the row. Here types,
 * ids, names and streams; sizes, floods and the rest are in test_proto_rows_size.c.
 */
#include "proto_expect.h"

static const enum clb_role roles[] = {CLB_ROLE_HOST, CLB_ROLE_DEVICE};

Test(rows, type_out_of_table)
{
    for (unsigned type = 0; type < 70; type++) {
        static const uint32_t good[] = {0, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 24, 25, 27, 28};
        bool known = false;
        struct rig r;

        for (size_t i = 0; i < sizeof good / sizeof *good; i++)
            known |= good[i] == type;
        rig_up(&r, roles[type % 2]);
        rig_req(&r, type, "n", 0, 0);
        if (known) {
            cr_assert_neq(r.ev.kind, CLBI_EV_FAIL, "type %u", type);
            continue;
        }
        expect_fail(&r, "type");
        cr_assert_null(rig_out(&r), "type %u: no answer", type);
    }
    for (unsigned bit = 7; bit < 32; bit++) {
        struct rig r;

        rig_up(&r, CLB_ROLE_HOST);
        rig_req(&r, CLBI_PING_REQ | 1u << bit, NULL, 0, 0);
        expect_fail(&r, "type");
    }
}

Test(rows, response_without_request)
{
    struct rig r;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    id = rig_write(&r, s, 10, 1);
    cr_assert_eq(rig_resp(&r, CLBI_READ_REL_RESP, id, 0, 10, 1), CLBI_EV_NONE,
                 "the id alone is not enough");
    cr_assert_eq(r.p.ignored_answers, 1);
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 10, 1), CLBI_EV_WRITE_ACKED);
    for (int i = 2; i <= CLBI_MAX_STRAYS; i++)
        cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, 4711, 0, 0, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.ignored_answers, 16);
    rig_resp(&r, CLBI_PING_RESP, 4711, 0, 0, 1);
    expect_fail(&r, "4711");
}

Test(rows, response_duplicate)
{
    struct rig r;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_DEVICE);
    s = rig_open_out(&r, "s", 1024, 3);
    id = rig_write(&r, s, 10, 1);
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 3, 10, 1), CLBI_EV_WRITE_ACKED);
    for (int i = 0; i < CLBI_MAX_STRAYS; i++)
        cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 3, 10, 1), CLBI_EV_NONE);
    rig_resp(&r, CLBI_WRITE_RESP, id, 3, 10, 1);
    expect_fail(&r, "answer 8");
}

/* Also the two types that answer requests which we never send. */
Test(rows, response_of_dialect_b)
{
    struct rig r;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    id = rig_write(&r, s, 10, 1);
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_FD_RESP, id, 0, 10, 1), CLBI_EV_NONE);
    cr_assert_eq(rig_resp(&r, CLBI_READ_REL_SPEC_RESP, id, 0, 10, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.strays, 2);
}

/* Answers to what we gave up waiting for: not counted, each once, of its own type. */
Test(rows, response_of_a_forgotten_request)
{
    struct rig r;
    struct clbi_proto_event ev;
    int s;
    int32_t id;

    rig_up(&r, CLB_ROLE_HOST);
    s = rig_open_out(&r, "s", 1024, 0);
    id = rig_write(&r, s, 10, 42);
    cr_assert_eq(clbi_proto_next_deadline(&r.p), r.now + 10 * RIG_SEC);
    cr_assert_not(clbi_proto_expire(&r.p, r.now + 10 * RIG_SEC - 1, &ev));
    r.now += 10 * RIG_SEC;
    cr_assert(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(ev.kind, CLBI_EV_WRITE_FAILED);
    cr_assert_eq(ev.err, CLB_ERR_TIMEOUT);
    cr_assert_eq(ev.token, 42);
    cr_assert_not(clbi_proto_expire(&r.p, r.now, &ev));
    cr_assert_eq(r.p.stream[s].out_fill, 10, "the credit stays used");
    cr_assert_eq(r.p.forgotten_count, 1);

    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 10, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.ignored_answers, 0);
    cr_assert_eq(r.p.strays, 0);
    cr_assert_eq(rig_resp(&r, CLBI_WRITE_RESP, id, 0, 10, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.strays, 1, "the second time it is a stray");
    cr_assert_eq(rig_req(&r, CLBI_READ_REL_REQ, NULL, 0, 10), CLBI_EV_CREDIT);
    cr_assert_eq(r.p.stream[s].out_fill, 0);
}

/* A link that does not read for long asks for signs of life all the same: all answers come at once
 * then, more than there is room to remember, and end nothing. */
Test(rows, response_to_more_pings_than_are_remembered)
{
    enum { PINGS = CLBI_MAX_FORGOTTEN + 40 };
    struct rig r;
    struct clbi_proto_event ev;
    uint8_t out[4 * CLBI_WIRE_HEADER];
    int32_t id[PINGS];

    rig_up(&r, CLB_ROLE_HOST);
    for (int i = 0; i < PINGS; i++) {
        struct clbi_wire_header h;
        clbi_proto_ping(&r.p);
        cr_assert_eq(clbi_proto_out(&r.p, r.now, out, 4), 1);
        clbi_wire_decode(&h, out);
        cr_assert_eq(h.type, CLBI_PING_REQ);
        id[i] = h.id;
        r.now += 2 * RIG_SEC;
        cr_assert(clbi_proto_expire(&r.p, r.now, &ev));
    }
    for (int i = 0; i < PINGS; i++)
        cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, id[i], 0, 0, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.strays, 0);
    cr_assert_eq(rig_resp(&r, CLBI_PING_RESP, id[0], 0, 0, 1), CLBI_EV_NONE);
    cr_assert_eq(r.p.strays, 1, "one more than was asked for");
}

Test(rows, id_any_value)
{
    static const int32_t ids[] = {0, -1, 1, INT32_MIN, INT32_MAX, 11, 11};

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct clbi_wire_header h = {.id = ids[i], .type = CLBI_PING_REQ};
        const struct clbi_wire_header *a;
        struct rig r;

        rig_up(&r, CLB_ROLE_HOST);
        cr_assert_eq(rig_in(&r, &h), CLBI_EV_NONE);
        a = rig_out(&r);
        cr_assert(a && a->type == CLBI_PING_RESP);
        cr_assert_eq(a->id, ids[i]);
    }
}

Test(rows, flags_of_requests_are_ignored)
{
    static const uint32_t flags[] = {0, 2, 0x40, 0xffffffff};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct clbi_wire_header h = {
            .id = 5, .type = CLBI_CREATE_STREAM_REQ, .name = "s", .size = 64, .flags = flags[i]};
        struct rig r;

        rig_up(&r, CLB_ROLE_DEVICE);
        cr_assert_eq(rig_in(&r, &h), CLBI_EV_ANNOUNCED);
        cr_assert_eq(rig_out(&r)->flags, CLBI_FLAG_ACK);
    }
}

Test(rows, name_without_nul)
{
    for (int role = 0; role < 2; role++) {
        struct clbi_wire_header h = {.type = CLBI_CREATE_STREAM_REQ, .size = 64};
        struct rig r;

        rig_up(&r, roles[role]);
        memset(h.name, 'x', sizeof h.name);
        h.id = r.peer_id++;
        cr_assert_eq(rig_in(&r, &h), CLBI_EV_NONE);
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
        for (int i = 0; i < CLBI_MAX_STREAMS; i++)
            cr_assert_not(r.p.stream[i].used);

        h.name[51] = 0;
        h.id = r.peer_id++;
        cr_assert_eq(rig_in(&r, &h), CLBI_EV_ANNOUNCED, "51 bytes are allowed");
        expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, 64);
    }
}

Test(rows, name_empty)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "", CLBI_ID_NONE, 64), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
    cr_assert_eq(clbi_proto_attach(&r.p, ""), -1);
}

Test(rows, name_is_opaque_bytes_and_escaped_in_texts)
{
    static const char name[] = "../\x01\xff%s\n";
    const struct clbi_wire_header *h;
    struct rig r;
    int s;

    rig_up(&r, CLB_ROLE_DEVICE);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, name, 1, 64), CLBI_EV_ANNOUNCED);
    s = r.ev.stream;
    cr_assert_str_eq(r.p.stream[s].name, name);
    h = rig_out(&r);
    cr_assert_str_eq(h->name, name);
    rig_req(&r, CLBI_WRITE_REQ, NULL, 1, 65);
    expect_fail(&r, "\\x01\\xff%s\\x0a");
    for (const char *c = r.ev.text; *c; c++)
        cr_assert(*c >= 0x20 && *c < 0x7f);
}

/* Bytes behind the NUL are left-overs: the same name. */
Test(rows, name_with_left_overs_behind_its_nul)
{
    struct clbi_wire_header h = {
        .type = CLBI_CREATE_STREAM_REQ, .id = 1, .name = "s\0left", .stream_id = 4, .size = 64};
    struct rig r;
    const struct clbi_wire_header *a;

    rig_up(&r, CLB_ROLE_DEVICE);
    cr_assert_eq(rig_in(&r, &h), CLBI_EV_ANNOUNCED);
    cr_assert_eq(clbi_proto_find(&r.p, "s"), r.ev.stream);
    a = rig_out(&r);
    for (size_t i = 1; i < CLBI_WIRE_NAME; i++)
        cr_assert_eq(a->name[i], 0);
}

Test(rows, stream_unknown_on_write)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    for (int i = 0; i < CLBI_MAX_STRAYS; i++) {
        cr_assert_eq(rig_req(&r, CLBI_WRITE_REQ, NULL, 0x4d, 40), CLBI_EV_SKIP);
        cr_assert_eq(r.ev.size, 40);
        cr_assert_eq(r.ev.stream, -1);
        cr_assert_null(rig_out(&r));
        clbi_proto_payload_done(&r.p);
        expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0x4d, 40);
    }
    rig_req(&r, CLBI_WRITE_REQ, NULL, 0x4d, 40);
    expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0x4d, 40);
    expect_fail(&r, "unknown stream 77");
    cr_assert_eq(r.p.nacks, 17);
}

/* A stream of which only our half exists is unknown to a writer. */
Test(rows, stream_without_the_peers_half_on_write)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    rig_open_out(&r, "s", 64, 0);
    cr_assert_eq(rig_req(&r, CLBI_WRITE_REQ, NULL, 0, 0), CLBI_EV_SKIP);
    clbi_proto_payload_done(&r.p);
    expect_answer(&r, CLBI_WRITE_RESP, CLBI_FLAG_NACK, 0, 0);
}

Test(rows, stream_unknown_on_write_larger_than_the_limit)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    rig_req(&r, CLBI_WRITE_REQ, NULL, 9, (64u << 20) + 1);
    expect_fail(&r, "limit");
}

Test(rows, stream_unknown_on_release)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(rig_req(&r, CLBI_READ_REL_REQ, NULL, 0x37, 1), CLBI_EV_NONE);
        expect_answer(&r, CLBI_READ_REL_RESP, CLBI_FLAG_NACK, 0, 0);
    }
    cr_assert_eq(r.p.nacks, 100);
    cr_assert_eq(rig_req(&r, CLBI_READ_REL_SPEC_REQ, NULL, CLBI_ID_NONE, 1), CLBI_EV_NONE);
    expect_answer(&r, CLBI_READ_REL_SPEC_RESP, CLBI_FLAG_NACK, 0, 0);
}

Test(rows, stream_unknown_on_close)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, 0x37, 0), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_ACK, 0x37, 0);
    cr_assert_eq(rig_req(&r, CLBI_CLOSE_STREAM_REQ, NULL, CLBI_ID_NONE, 0), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CLOSE_STREAM_RESP, CLBI_FLAG_ACK, CLBI_ID_NONE, 0);
}

Test(rows, stream_id_out_of_range_in_create)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 1u << 24, 64), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 0xDEADFFFF, 64), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
    cr_assert_eq(clbi_proto_find(&r.p, "a"), -1);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", (1u << 24) - 1, 64), CLBI_EV_ANNOUNCED);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, (1u << 24) - 1, 64);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "b", CLBI_ID_NONE, 64), CLBI_EV_ANNOUNCED,
                 "the device picks one");
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, 64);
}

Test(rows, stream_id_out_of_range_in_the_answer_to_create)
{
    static const uint32_t ids[] = {1u << 24, CLBI_ID_NONE, 0xDEADFFFF, UINT32_MAX};

    for (size_t i = 0; i < 2 * sizeof ids / sizeof *ids; i++) {
        const struct clbi_wire_header *h;
        struct rig r;

        rig_up(&r, roles[i % 2]);
        clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "s"), 64, r.now + RIG_SEC);
        h = rig_out(&r);
        rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, ids[i / 2], 64, 1);
        expect_fail(&r, "contradicts");
    }
}

Test(rows, stream_id_used_by_another_name_in_create)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_DEVICE);
    rig_open_in(&r, "a", 64, 5);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "b", 5, 64), CLBI_EV_NONE);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_TOOBIG, CLBI_ID_NONE, 64);
    cr_assert_eq(clbi_proto_find(&r.p, "b"), -1);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 9, 128), CLBI_EV_ANNOUNCED,
                 "the same name: its id whatever the request carries");
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 5, 128);
}

Test(rows, stream_id_used_by_another_name_in_the_answer_to_create)
{
    for (int role = 0; role < 2; role++) {
        const struct clbi_wire_header *h;
        struct rig r;

        rig_up(&r, roles[role]);
        rig_open_out(&r, "a", 64, 0);
        clbi_proto_create(&r.p, clbi_proto_attach(&r.p, "b"), 64, r.now + RIG_SEC);
        h = rig_out(&r);
        rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, 0, 64, 1);
        expect_fail(&r, "contradicts");
    }
}

Test(rows, stream_id_in_the_answer_differs_from_the_one_in_use)
{
    for (int role = 0; role < 2; role++) {
        const struct clbi_wire_header *h;
        struct rig r;

        rig_up(&r, roles[role]);
        clbi_proto_create(&r.p, rig_open_in(&r, "a", 64, 0), 64, r.now + RIG_SEC);
        h = rig_out(&r);
        rig_resp(&r, CLBI_CREATE_STREAM_RESP, h->id, 1, 64, 1);
        expect_fail(&r, "contradicts");
    }
}

Test(rows, stream_id_proposed_by_a_device_is_ignored)
{
    struct rig r;

    rig_up(&r, CLB_ROLE_HOST);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "a", 7, 64), CLBI_EV_ANNOUNCED);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 0, 64);
    cr_assert_eq(rig_req(&r, CLBI_CREATE_STREAM_REQ, "b", 0, 64), CLBI_EV_ANNOUNCED);
    expect_answer(&r, CLBI_CREATE_STREAM_RESP, CLBI_FLAG_ACK, 1, 64);
}
