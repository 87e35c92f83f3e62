/* SPDX-License-Identifier: Apache-2.0 */
/* Packed MIPI RAW10 to whole values, as an application without a library for it does it. */
#ifndef BENCH_PREPROCESS_RAW10_H
#define BENCH_PREPROCESS_RAW10_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows first..last - 1 of a picture; width is a multiple of 4; dst is packed. */
void raw10_unpack16(uint16_t *dst, const uint8_t *src, size_t pitch, size_t width, size_t first,
                    size_t last);
/* The upper 8 bits alone. */
void raw10_unpack8(uint8_t *dst, const uint8_t *src, size_t pitch, size_t width, size_t first,
                   size_t last);

#ifdef __cplusplus
}
#endif

#endif
