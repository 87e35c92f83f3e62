/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32: polynomial 0x04C11DB7, reflected in and out, start and final XOR all ones (ISO 3309,
 * RFC 1952 section 8). Eight bytes per step by eight tables: table[k][b] is the effect of byte b
 * that is followed by k zero bytes.
 */
#include "crc32.h"

#include <pthread.h>

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 255];
}

static uint32_t load_le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t crc32_of(const void *data, size_t size)
{
    return crc32_more(0, data, size);
}

uint32_t crc32_more(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *p = data;

    crc ^= 0xFFFFFFFFu;
    pthread_once(&once, make_tables);
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t lo = crc ^ load_le32(p), hi = load_le32(p + 4);

        crc = table[7][lo & 255] ^ table[6][lo >> 8 & 255] ^ table[5][lo >> 16 & 255] ^
              table[4][lo >> 24] ^ table[3][hi & 255] ^ table[2][hi >> 8 & 255] ^
              table[1][hi >> 16 & 255] ^ table[0][hi >> 24];
    }
    for (; size; size--, p++)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 255];
    return crc ^ 0xFFFFFFFFu;
}
