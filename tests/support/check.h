/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions for test programs: they print both operands, survive NDEBUG and end the process, so a
 * failing check in any thread fails the test.
 */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_OP(a, op, b)                                                                         \
    do {                                                                                           \
        const int64_t check_a = (int64_t)(a), check_b = (int64_t)(b);                              \
        if (!(check_a op check_b)) {                                                               \
            fprintf(stderr,                                                                        \
                    "%s:%d: %s: %s %s %s does not hold: %" PRId64 " against %" PRId64 "\n",        \
                    __FILE__, __LINE__, __func__, #a, #op, #b, check_a, check_b);                  \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_GE(a, b) CHECK_OP(a, >=, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) CHECK_OP(a, >, b)
#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, __func__, #x);    \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Milliseconds on CLOCK_MONOTONIC. */
int64_t check_ms(void);
void check_sleep_ms(int ms);
/* Open descriptors and threads of this process: taken before and after, they must agree. Threads
 * that are ending are given a bounded time. */
int check_fds(void);
int check_threads(void);
void check_back_to(int fds, int threads);
/* Ends the process with a message when the test hangs. */
void check_watchdog(int seconds);

#endif
