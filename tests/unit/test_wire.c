/* SPDX-License-Identifier: Apache-2.0 */
/* The header codec: golden vectors and round trips. The ABI side of it is in a26_wire32.c. */
#include "wire.h"

#include <criterion/criterion.h>
#include <string.h>

/* The first CREATE_STREAM_REQ of the capture session-basic, h2d @84. */
static const uint8_t create_ctl[CLBI_WIRE_HEADER] = {
    [0] = 0x0c, [4] = 0x03, [8] = 'c', 't',  'l',         [60] = 0xdd, 0xb8,
    0x88,       0x00,       0x83,      0x08, [77] = 0x04, [80] = 0x01,
};

Test(wire, decodes_a_captured_header)
{
    struct clbi_wire_header h;

    clbi_wire_decode(&h, create_ctl);
    cr_assert_eq(h.id, 12);
    cr_assert_eq(h.type, CLBI_CREATE_STREAM_REQ);
    cr_assert_str_eq(h.name, "ctl");
    cr_assert_eq(h.tnsec, 0x0088b8dd);
    cr_assert_eq(h.tsec, 0x883);
    cr_assert_eq(h.stream_id, 0);
    cr_assert_eq(h.size, 1024);
    cr_assert_eq(h.flags, CLBI_FLAG_ACK);
    cr_assert_eq(clbi_wire_name_len(h.name), 3);
    cr_assert_eq(clbi_wire_time_ns(&h), INT64_C(0x883) * 1000000000 + 0x0088b8dd);
}

Test(wire, encodes_a_captured_header)
{
    struct clbi_wire_header h = {
        .id = 12,
        .type = CLBI_CREATE_STREAM_REQ,
        .name = "ctl",
        .tnsec = 0x0088b8dd,
        .tsec = 0x883,
        .size = 1024,
        .flags = CLBI_FLAG_ACK,
    };
    uint8_t out[CLBI_WIRE_HEADER];

    memset(out, 0xff, sizeof out);
    clbi_wire_encode(out, &h);
    cr_assert_arr_eq(out, create_ctl, sizeof out);
}

/* Each field alone, each of its bytes different: no two fields share a byte, and the order of the
 * bytes is the same on every machine. */
Test(wire, every_field_at_its_offset)
{
    static const struct {
        size_t off, len;
    } field[] = {{0, 4}, {4, 4}, {60, 4}, {64, 8}, {72, 4}, {76, 4}, {80, 4}};

    for (size_t f = 0; f < sizeof field / sizeof *field; f++) {
        uint8_t in[CLBI_WIRE_HEADER] = {0}, out[CLBI_WIRE_HEADER];
        struct clbi_wire_header h;
        uint64_t expect = 0, got;

        for (size_t i = 0; i < field[f].len; i++) {
            in[field[f].off + i] = (uint8_t)(0x81 + 0x11 * i);
            expect |= (uint64_t)in[field[f].off + i] << (8 * i);
        }
        clbi_wire_decode(&h, in);
        got = f == 0   ? (uint32_t)h.id
              : f == 1 ? h.type
              : f == 2 ? h.tnsec
              : f == 3 ? h.tsec
              : f == 4 ? h.stream_id
              : f == 5 ? h.size
                       : h.flags;
        cr_assert_eq(got, expect, "field at %zu: %#llx, expected %#llx", field[f].off,
                     (unsigned long long)got, (unsigned long long)expect);
        clbi_wire_encode(out, &h);
        cr_assert_arr_eq(out, in, sizeof in);
    }
}

Test(wire, any_84_bytes_survive_a_round_trip)
{
    uint64_t x = 88172645463325252u;

    for (int n = 0; n < 20000; n++) {
        uint8_t in[CLBI_WIRE_HEADER], out[CLBI_WIRE_HEADER];
        struct clbi_wire_header h;

        for (size_t i = 0; i < sizeof in; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            in[i] = (uint8_t)(x >> 24);
        }
        clbi_wire_decode(&h, in);
        clbi_wire_encode(out, &h);
        cr_assert_arr_eq(out, in, sizeof in);
    }
}

Test(wire, length_of_a_name)
{
    char name[CLBI_WIRE_NAME];

    memset(name, 'x', sizeof name);
    cr_assert_eq(clbi_wire_name_len(name), -1);
    name[51] = 0;
    cr_assert_eq(clbi_wire_name_len(name), 51);
    name[0] = 0;
    cr_assert_eq(clbi_wire_name_len(name), 0);
}

/* PROTOCOL 10, row "tnsec >= 10^9: treat time as unknown". */
Test(wire, row_tnsec_out_of_range_is_an_unknown_time)
{
    struct clbi_wire_header h = {.tsec = 5, .tnsec = 999999999};

    cr_assert_eq(clbi_wire_time_ns(&h), INT64_C(5999999999));
    h.tnsec = 1000000000;
    cr_assert_eq(clbi_wire_time_ns(&h), 0);
    h.tnsec = UINT32_MAX;
    cr_assert_eq(clbi_wire_time_ns(&h), 0);
}

/* PROTOCOL 10, row "tsec: far future": no overflow, unknown. */
Test(wire, row_tsec_far_future_is_an_unknown_time)
{
    struct clbi_wire_header h = {.tsec = 9223372036u, .tnsec = 854775807};

    cr_assert_eq(clbi_wire_time_ns(&h), INT64_MAX);
    h.tnsec++;
    cr_assert_eq(clbi_wire_time_ns(&h), 0);
    h = (struct clbi_wire_header){.tsec = UINT64_MAX, .tnsec = 1};
    cr_assert_eq(clbi_wire_time_ns(&h), 0);
}
