/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers and what frames contain. See soak.h. */
#include <string.h>

#include "soak.h"

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

struct rng rng_seed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return (struct rng){mix(mix(mix(mix(a) ^ b) ^ c) ^ d)};
}

uint64_t rng_next(struct rng *r)
{
    r->s += UINT64_C(0x9E3779B97F4A7C15);
    return mix(r->s);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

uint32_t rng_range(struct rng *r, uint32_t lo, uint32_t hi)
{
    return lo + rng_below(r, hi - lo + 1);
}

bool rng_percent(struct rng *r, uint32_t percent)
{
    return rng_below(r, 100) < percent;
}

uint32_t pattern_base(uint32_t lane, uint32_t stream, uint32_t epoch, uint32_t frame, size_t size)
{
    return (uint32_t)mix(mix(((uint64_t)(lane * STREAMS + stream) << 32) ^ frame) ^
                         ((uint64_t)epoch << 32) ^ size);
}

void pattern_fill(void *data, size_t n, uint32_t base)
{
    uint8_t *d = data;
    uint32_t word = base;
    for (; n >= 4; n -= 4, d += 4, word += PATTERN_STEP) {
        const uint8_t le[4] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                               (uint8_t)(word >> 24)};
        memcpy(d, le, 4);
    }
    for (; n > 0; n--, word >>= 8) {
        *d++ = (uint8_t)word;
    }
}

static size_t camera_size(uint32_t base)
{
    return base % 16 == 0 ? 0 : base / 16 % (CAMERA_MORE - 24);
}

size_t camera_fill(void *out, uint32_t base)
{
    static const uint8_t mark[16] = {0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89,
                                     0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};
    const size_t n = camera_size(base);
    uint8_t *end = (uint8_t *)out + n;
    pattern_fill(out, n, ~base);
    for (int i = 0; i < 4; i++) {
        end[i] = (uint8_t)(CAMERA_TYPE >> 8 * i);
        end[4 + i] = (uint8_t)(n >> 8 * i);
    }
    memcpy(end + 8, mark, sizeof mark);
    return n + 24;
}

bool camera_differs(const void *metadata, size_t n, uint32_t base)
{
    return n != camera_size(base) || pattern_differs(metadata, n, ~base) != n;
}

size_t pattern_differs(const void *data, size_t n, uint32_t base)
{
    const uint8_t *d = data;
    uint32_t word = base;
    size_t i = 0;
    for (; n - i >= 4; i += 4, word += PATTERN_STEP) {
        uint32_t got = (uint32_t)d[i] | (uint32_t)d[i + 1] << 8 | (uint32_t)d[i + 2] << 16 |
                       (uint32_t)d[i + 3] << 24;
        if (got != word) {
            return i;
        }
    }
    for (; i < n; i++, word >>= 8) {
        if (d[i] != (uint8_t)word) {
            return i;
        }
    }
    return n;
}
