/* SPDX-License-Identifier: Apache-2.0 */
#include "proto_rig.h"

#include <criterion/criterion.h>
#include <string.h>

struct clbi_proto_config rig_config(enum clb_role role)
{
    return (struct clbi_proto_config){
        .role = role,
        .max_payload = 64u << 20,
        .max_stream_window = 64u << 20,
        .max_link_window = 256u << 20,
        .write_timeout_ns = 10 * RIG_SEC,
    };
}

void rig_init(struct rig *r, enum clb_role role)
{
    struct clbi_proto_config cfg = rig_config(role);

    memset(r, 0, sizeof *r);
    r->now = 100 * RIG_SEC;
    r->peer_id = 1000;
    clbi_proto_init(&r->p, &cfg);
}

void rig_up(struct rig *r, enum clb_role role)
{
    const struct clbi_wire_header *h;

    rig_init(r, role);
    if (role == CLB_ROLE_HOST) {
        h = rig_out(r);
        cr_assert(h && h->type == CLBI_PING_REQ);
        cr_assert_eq(rig_resp(r, CLBI_PING_RESP, h->id, 0, 0, 1), CLBI_EV_UP);
    } else {
        cr_assert_eq(rig_req(r, CLBI_PING_REQ, NULL, 0, 0), CLBI_EV_UP);
        h = rig_out(r);
        cr_assert(h && h->type == CLBI_PING_RESP);
    }
    cr_assert_null(rig_out(r));
}

enum clbi_event_kind rig_in(struct rig *r, const struct clbi_wire_header *h)
{
    uint8_t bytes[CLBI_WIRE_HEADER];

    clbi_wire_encode(bytes, h);
    clbi_proto_header(&r->p, bytes, r->now, &r->ev);
    return r->ev.kind;
}

enum clbi_event_kind rig_req(struct rig *r, uint32_t type, const char *name, uint32_t stream_id,
                             uint32_t size)
{
    struct clbi_wire_header h = {
        .id = r->peer_id++, .type = type, .stream_id = stream_id, .size = size, .flags = 1};

    if (name)
        strncpy(h.name, name, sizeof h.name - 1);
    return rig_in(r, &h);
}

enum clbi_event_kind rig_resp(struct rig *r, uint32_t type, int32_t id, uint32_t stream_id,
                              uint32_t size, uint32_t flags)
{
    struct clbi_wire_header h = {
        .id = id, .type = type, .stream_id = stream_id, .size = size, .flags = flags};

    return rig_in(r, &h);
}

enum clbi_event_kind rig_peer_write(struct rig *r, uint32_t stream_id, uint32_t size)
{
    enum clbi_event_kind kind = rig_req(r, CLBI_WRITE_REQ, NULL, stream_id, size);

    if (kind == CLBI_EV_PAYLOAD || kind == CLBI_EV_SKIP)
        clbi_proto_payload_done(&r->p);
    return kind;
}

const struct clbi_wire_header *rig_out(struct rig *r)
{
    if (r->out_pos == r->out_len) {
        uint8_t bytes[256 * CLBI_WIRE_HEADER];
        bool said = clbi_proto_has_out(&r->p);

        r->out_pos = 0;
        r->out_len = clbi_proto_out(&r->p, r->now, bytes, 256);
        cr_assert_eq(said, r->out_len > 0, "has_out said %d, out gave %zu", said, r->out_len);
        for (size_t i = 0; i < r->out_len; i++)
            clbi_wire_decode(&r->out[i], bytes + i * CLBI_WIRE_HEADER);
    }
    return r->out_pos < r->out_len ? &r->out[r->out_pos++] : NULL;
}

size_t rig_flush(struct rig *r)
{
    size_t n = 0;

    while (rig_out(r))
        n++;
    return n;
}

int rig_open_out(struct rig *r, const char *name, uint64_t window, uint32_t id)
{
    int i = clbi_proto_attach(&r->p, name);
    const struct clbi_wire_header *h;

    cr_assert_geq(i, 0);
    clbi_proto_create(&r->p, i, window, r->now + 5 * RIG_SEC);
    h = rig_out(r);
    cr_assert(h && h->type == CLBI_CREATE_STREAM_REQ);
    cr_assert_eq(rig_resp(r, CLBI_CREATE_STREAM_RESP, h->id, id, h->size, 1), CLBI_EV_OPENED);
    cr_assert_eq(r->ev.stream, i);
    return i;
}

int rig_open_in(struct rig *r, const char *name, uint32_t window, uint32_t id)
{
    const struct clbi_wire_header *h;

    cr_assert_eq(rig_req(r, CLBI_CREATE_STREAM_REQ, name, id, window), CLBI_EV_ANNOUNCED);
    h = rig_out(r);
    cr_assert(h && h->type == CLBI_CREATE_STREAM_RESP && h->flags == CLBI_FLAG_ACK);
    return r->ev.stream;
}

int32_t rig_write(struct rig *r, int stream, uint32_t n, uint64_t token)
{
    uint8_t bytes[CLBI_WIRE_HEADER];
    struct clbi_wire_header h;

    cr_assert_eq(clbi_proto_write_check(&r->p, stream, n), CLB_OK);
    clbi_proto_write_begin(&r->p, stream, n, token, r->now, bytes);
    clbi_proto_write_sent(&r->p, token, r->now);
    clbi_wire_decode(&h, bytes);
    return h.id;
}
