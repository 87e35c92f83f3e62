/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire header by offset: no struct of ours is ever laid over bytes, so neither padding, nor
 * alignment, nor byte order, nor the width of a type of this machine can change the 84 bytes.
 */
#include "wire.h"

#include <string.h>

enum {
    OFF_ID = 0,
    OFF_TYPE = 4,
    OFF_NAME = 8,
    OFF_TNSEC = 60,
    OFF_TSEC_LOW = 64,
    OFF_TSEC_HIGH = 68,
    OFF_STREAM = 72,
    OFF_SIZE = 76,
    OFF_FLAGS = 80,
};

static void put32(uint8_t *at, uint32_t v)
{
    at[0] = (uint8_t)v;
    at[1] = (uint8_t)(v >> 8);
    at[2] = (uint8_t)(v >> 16);
    at[3] = (uint8_t)(v >> 24);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void clbi_wire_encode(uint8_t out[CLBI_WIRE_HEADER], const struct clbi_wire_header *h)
{
    put32(out + OFF_ID, (uint32_t)h->id);
    put32(out + OFF_TYPE, h->type);
    memcpy(out + OFF_NAME, h->name, CLBI_WIRE_NAME);
    put32(out + OFF_TNSEC, h->tnsec);
    put32(out + OFF_TSEC_LOW, (uint32_t)(h->tsec & 0xFFFFFFFFu));
    put32(out + OFF_TSEC_HIGH, (uint32_t)(h->tsec >> 32));
    put32(out + OFF_STREAM, h->stream_id);
    put32(out + OFF_SIZE, h->size);
    put32(out + OFF_FLAGS, h->flags);
}

void clbi_wire_decode(struct clbi_wire_header *h, const uint8_t in[CLBI_WIRE_HEADER])
{
    uint32_t id = get32(in + OFF_ID);

    /* Any bit pattern is a valid id; the copy avoids an implementation-defined conversion. */
    memcpy(&h->id, &id, sizeof h->id);
    h->type = get32(in + OFF_TYPE);
    memcpy(h->name, in + OFF_NAME, CLBI_WIRE_NAME);
    h->tnsec = get32(in + OFF_TNSEC);
    h->tsec = (uint64_t)get32(in + OFF_TSEC_HIGH) << 32 | get32(in + OFF_TSEC_LOW);
    h->stream_id = get32(in + OFF_STREAM);
    h->size = get32(in + OFF_SIZE);
    h->flags = get32(in + OFF_FLAGS);
}

int clbi_wire_name_len(const char name[CLBI_WIRE_NAME])
{
    const char *nul = memchr(name, 0, CLBI_WIRE_NAME);

    return nul ? (int)(nul - name) : -1;
}

int64_t clbi_wire_time_ns(const struct clbi_wire_header *h)
{
    const uint64_t giga = 1000000000u;

    if (h->tnsec >= giga || h->tsec > ((uint64_t)INT64_MAX - h->tnsec) / giga)
        return 0;
    return (int64_t)(h->tsec * giga + h->tnsec);
}
