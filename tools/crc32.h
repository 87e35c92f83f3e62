/* SPDX-License-Identifier: Apache-2.0 */
/* The CRC-32 of zlib, PNG and Ethernet. */
#ifndef TOOLS_CRC32_H
#define TOOLS_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of `size` bytes; 0 for 0 bytes. */
uint32_t crc32_of(const void *data, size_t size);
/* Of all bytes of which `crc` is the CRC, and these behind them. */
uint32_t crc32_more(uint32_t crc, const void *data, size_t size);

#endif
