/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of the XLink wire protocol: 84 bytes, little-endian, encoded and decoded by offset.
 *
 *   offset size field
 *        0    4 id          i32, number of the request, echoed in its response
 *        4    4 type        u32, enum clbi_wire_type
 *        8   52 name        NUL-terminated, not trusted to be
 *       60    4 tnsec       u32, nanoseconds of the sender's monotonic clock
 *       64    4 tsec low    u32
 *       68    4 tsec high   u32
 *       72    4 stream id   u32
 *       76    4 size        u32, meaning by type
 *       80    4 flags       u32, CLBI_FLAG_*
 */
#ifndef CLBI_WIRE_H
#define CLBI_WIRE_H

#include <stdint.h>

#define CLBI_WIRE_HEADER 84u
#define CLBI_WIRE_NAME 52u
#define CLBI_ID_NONE 0xDEADDEADu /* "no stream id yet" on the wire */
#define CLBI_ID_LIMIT (1u << 24) /* real stream ids are below */

enum clbi_wire_type {
    CLBI_WRITE_REQ = 0,
    CLBI_READ_REQ = 1, /* never on the wire */
    CLBI_READ_REL_REQ = 2,
    CLBI_CREATE_STREAM_REQ = 3,
    CLBI_CLOSE_STREAM_REQ = 4,
    CLBI_PING_REQ = 5,
    CLBI_RESET_REQ = 6,
    CLBI_WRITE_RESP = 8,
    CLBI_READ_RESP = 9, /* never on the wire */
    CLBI_READ_REL_RESP = 10,
    CLBI_CREATE_STREAM_RESP = 11,
    CLBI_CLOSE_STREAM_RESP = 12,
    CLBI_PING_RESP = 13,
    CLBI_RESET_RESP = 14,
    CLBI_READ_REL_SPEC_REQ = 24,
    CLBI_WRITE_FD_REQ = 25,
    CLBI_READ_REL_SPEC_RESP = 27,
    CLBI_WRITE_FD_RESP = 28,
};

#define CLBI_FLAG_ACK 0x01u
#define CLBI_FLAG_NACK 0x02u
#define CLBI_FLAG_TOOBIG 0x40u

struct clbi_wire_header {
    int32_t id;
    uint32_t type;
    char name[CLBI_WIRE_NAME]; /* as on the wire, perhaps without NUL */
    uint32_t tnsec;
    uint64_t tsec;
    uint32_t stream_id;
    uint32_t size;
    uint32_t flags;
};

void clbi_wire_encode(uint8_t out[CLBI_WIRE_HEADER], const struct clbi_wire_header *h);
void clbi_wire_decode(struct clbi_wire_header *h, const uint8_t in[CLBI_WIRE_HEADER]);

/* Length of the name, or -1 when it has no NUL within its 52 bytes. */
int clbi_wire_name_len(const char name[CLBI_WIRE_NAME]);

/* Send time in nanoseconds, 0 = unknown (tnsec >= 1e9, or beyond int64). */
int64_t clbi_wire_time_ns(const struct clbi_wire_header *h);

#endif
