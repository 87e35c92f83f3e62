/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of the kernel cache, whatever is in it: who can write there has the rights of this user, but a
 * disk can damage anything.
 *
 * The input: flags; the size of the key that is asked for (one byte); that key; the rest. The rest is
 * the file; with REPAIR its last eight bytes are made the sum of what is in front, or the fuzzer would
 * never see behind it. With MAKE the rest is a binary, of which a file is made that has to be taken.
 * No byte outside of the file and the key may be read, the binary lies in the file, and a file that is
 * taken is exactly what its key and its binary make.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REPAIR = 1, MAKE = 2, HEAD = 24, SUM = 8 };

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            __builtin_trap();                                                                      \
    } while (0)

static void put64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* FNV-1a, written down here once more: the format is what cache.h says. */
static void put_sum(uint8_t *file, size_t size)
{
    uint64_t sum = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < size - SUM; i++)
        sum = (sum ^ file[i]) * UINT64_C(1099511628211);
    put64(file + size - SUM, sum);
}

static void make_file(uint8_t *file, const struct clbi_cache_key *key, const uint8_t *binary,
                      size_t size)
{
    memcpy(file, "CLBPROG1", 8);
    put64(file + 8, key->size);
    put64(file + 16, size);
    memcpy(file + HEAD, key->bytes, key->size);
    memcpy(file + HEAD + key->size, binary, size);
    put_sum(file, HEAD + key->size + size + SUM);
}

/* A block of exactly that size, so that a sanitizer sees what lies beyond it. */
static uint8_t *exact(size_t size)
{
    uint8_t *p = malloc(size);

    if (!p && size > 0)
        abort();
    return p;
}

static void parse(const uint8_t *file, size_t size, const struct clbi_cache_key *key, bool must)
{
    size_t binary_size = SIZE_MAX;
    const uint8_t *binary = clbi_cache_parse(file, size, key, &binary_size);
    uint8_t *again;

    if (!binary) {
        REQUIRE(!must && binary_size == SIZE_MAX);
        return;
    }
    REQUIRE(binary >= file && (size_t)(binary - file) <= size);
    REQUIRE(binary_size > 0 && binary_size <= size - (size_t)(binary - file));
    REQUIRE(size == HEAD + key->size + binary_size + SUM);
    again = exact(size);
    make_file(again, key, binary, binary_size);
    REQUIRE(memcmp(again, file, size) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clbi_cache_key key = {.name = "fuzz"};
    uint8_t *key_bytes, *file;
    unsigned flags;
    size_t rest;

    if (size < 2 || data[1] > size - 2)
        return 0;
    flags = data[0];
    key.size = data[1];
    key.bytes = key_bytes = exact(key.size);
    if (key.size)
        memcpy(key_bytes, data + 2, key.size);
    data += 2 + key.size;
    rest = size - 2 - key.size;
    if (flags & MAKE) {
        size = HEAD + key.size + rest + SUM;
        file = exact(size);
        make_file(file, &key, data, rest);
    } else {
        size = rest;
        file = exact(size);
        if (size)
            memcpy(file, data, size);
        if ((flags & REPAIR) && size >= SUM)
            put_sum(file, size);
    }
    parse(file, size, &key, (flags & MAKE) && rest > 0);
    free(file);
    free(key_bytes);
    return 0;
}
