/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a packet and the metadata in it, from a peer (wire section 9).
 *
 * The input: the release (low three bits), whether a trailer may lack its mark (bit 3) and whether the
 * rest is metadata alone (bit 4); four bytes that are the size of the pixels in front; the rest. What is found
 * must lie inside of the packet, a picture inside of its pixels, and what is foreseen from it leave room
 * for the trailer and fit the tail.
 */
#include <clbridge/depthai.h>
#include <stdlib.h>
#include <string.h>

#include "trailer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_METADATA 51200u
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            __builtin_trap();                                                                      \
    } while (0)

static void read_metadata(const uint8_t *metadata, size_t size, size_t data_size, int32_t type,
                          enum clb_depthai_release release)
{
    clb_depthai_info info, any;
    clb_depthai_parse_params p = {.struct_size = sizeof p,
                                  .metadata = metadata,
                                  .metadata_size = size,
                                  .data_size = data_size,
                                  .object_type = type,
                                  .release = release};
    int rc;

    memset(&info, 0x5A, sizeof info);
    rc = clb_depthai_parse(&info, sizeof info, &p);
    if (size > MAX_METADATA) {
        REQUIRE(rc == CLB_ERR_INVAL);
        return;
    }
    REQUIRE(rc == CLB_OK || rc == CLB_ERR_PROTO);
    if (rc < 0)
        return;
    REQUIRE(info.object_type == type);
    REQUIRE((unsigned)info.kind <= CLB_DEPTHAI_GROUP);
    if (info.image.fmt != CLB_PIXFMT_UNKNOWN) {
        REQUIRE(info.kind == CLB_DEPTHAI_FRAME);
        REQUIRE(clb_image_check(&info.image, data_size) == CLB_OK);
    }
    if (info.kind == CLB_DEPTHAI_SPLIT)
        REQUIRE(info.split_packets > 0 && info.split_packets <= info.split_bytes);
    REQUIRE(info.group_members <= size);
    /* The same bytes say the same. */
    REQUIRE(clb_depthai_parse(&any, sizeof any, &p) == CLB_OK);
    REQUIRE(memcmp(&any.image, &info.image, sizeof any.image) == 0);
}

static void foresee(const struct clbi_trailer *t, size_t total)
{
    struct clbi_split split = {.max_metadata = MAX_METADATA};
    size_t pixels = 1;

    for (int i = 0; i < 2; i++) {
        clbi_split_learn(&split, t, total);
        if (clbi_split_foresee(&split, total, &pixels) == CLBI_FORESEEN_EXACT)
            REQUIRE(pixels == t->pixels);
        REQUIRE(pixels <= total && total - pixels <= clbi_split_tail(MAX_METADATA));
    }
    REQUIRE(pixels == t->pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum clb_depthai_release release;
    struct clbi_trailer t;
    size_t total, front, have;
    uint8_t *packet;
    bool plain;

    if (size < 5)
        return 0;
    release = (enum clb_depthai_release)((data[0] & 7) % (CLB_DEPTHAI_V3_10 + 1));
    plain = data[0] & 8;
    front = (size_t)data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16 | (size_t)data[4] << 24;
    have = size - 5;
    packet = malloc(have ? have : 1); /* so that a read outside is seen */
    if (!packet)
        return 0;
    memcpy(packet, data + 5, have);
    if (data[0] & 16) {
        read_metadata(packet, have, front, (int32_t)(data[1] & 63), release);
        free(packet);
        return 0;
    }
    /* The first `front` bytes of the packet are somewhere else. */
    total = front + have;
    if (have < CLBI_TRAILER_MARKED)
        total = have;
    clbi_trailer_read(&t, packet, have, total, MAX_METADATA, plain);
    REQUIRE(t.pixels <= total);
    if (!t.valid) {
        REQUIRE(t.pixels == total);
    } else {
        const size_t behind = total - t.pixels;

        REQUIRE(t.marked || plain);
        REQUIRE(behind == t.claimed + (t.marked ? CLBI_TRAILER_MARKED : CLBI_TRAILER_PLAIN));
        foresee(&t, total);
        if (behind <= have)
            read_metadata(packet + have - behind, t.claimed, t.pixels, t.type, release);
    }
    free(packet);
    return 0;
}
