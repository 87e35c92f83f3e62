/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A-26, write the header byte by byte: the same golden bytes on every ABI. Built for 32 bit too,
 * of this file and wire.c alone.
 */
#include "wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define EXPECT_EQ(a, b)                                                                            \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) {                                                                            \
            fprintf(stderr, "line %d: %s is %lld, %s is %lld\n", __LINE__, #a, a_, #b, b_);        \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* Three guard bytes on either side of an odd address: nothing else may be read or written. */
#define GUARD 3

int main(void)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint8_t golden[CLBI_WIRE_HEADER], block[CLBI_WIRE_HEADER + 2 * GUARD];
    struct clbi_wire_header h;

    EXPECT_EQ(sizeof name - 1, CLBI_WIRE_NAME);
    EXPECT_EQ(CLBI_WIRE_HEADER, 84);

    /* id -2, type 3, a name without NUL, 999999999 ns, 0x0000000123456789 s, stream 0xDEADDEAD,
     * size 0x80000001, flags 0x41 */
    memset(golden, 0, sizeof golden);
    memcpy(golden, "\xFE\xFF\xFF\xFF\x03", 5);
    memcpy(golden + 8, name, CLBI_WIRE_NAME);
    memcpy(golden + 60, "\xFF\xC9\x9A\x3B", 4);
    memcpy(golden + 64, "\x89\x67\x45\x23\x01\x00\x00\x00", 8);
    memcpy(golden + 72, "\xAD\xDE\xAD\xDE\x01\x00\x00\x80\x41", 9);

    memset(block, 0xA5, sizeof block);
    memcpy(block + GUARD, golden, CLBI_WIRE_HEADER);
    memset(&h, 0x5A, sizeof h);
    clbi_wire_decode(&h, block + GUARD);
    EXPECT_EQ(h.id, -2);
    EXPECT_EQ(h.type, CLBI_CREATE_STREAM_REQ);
    EXPECT_EQ(memcmp(h.name, name, CLBI_WIRE_NAME), 0);
    EXPECT_EQ(clbi_wire_name_len(h.name), -1);
    EXPECT_EQ(h.tnsec, 999999999);
    EXPECT_EQ(h.tsec, INT64_C(4886718345));
    EXPECT_EQ(h.stream_id, CLBI_ID_NONE);
    EXPECT_EQ(h.size, 0x80000001u);
    EXPECT_EQ(h.flags, CLBI_FLAG_ACK | CLBI_FLAG_TOOBIG);
    EXPECT_EQ(clbi_wire_time_ns(&h), INT64_C(4886718345999999999));

    memset(block, 0xA5, sizeof block);
    clbi_wire_encode(block + GUARD, &h);
    EXPECT_EQ(memcmp(block + GUARD, golden, CLBI_WIRE_HEADER), 0);
    for (int i = 0; i < GUARD; i++) {
        EXPECT_EQ(block[i], 0xA5);
        EXPECT_EQ(block[GUARD + CLBI_WIRE_HEADER + i], 0xA5);
    }

    if (failures == 0)
        printf("ok, pointers of %u bits, int64_t aligned to %u, header struct of %u bytes\n",
               (unsigned)sizeof(void *) * 8, (unsigned)_Alignof(int64_t), (unsigned)sizeof h);
    return failures != 0;
}
