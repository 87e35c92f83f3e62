/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named cases, each in a process of its own and several at a time: most of them wait for a limit. A
 * case begins with as many threads and descriptors as it must end with.
 */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <stddef.h>
#include <stdint.h>

/* What a limit may be exceeded by, milliseconds. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CASES_SLACK_MS 2000
#else
#define CASES_SLACK_MS 500
#endif

/* What a busy machine has kept us waiting for since then (check_ms()), as a process of its own that
 * sleeps and works a little in turn has met it. */
int cases_kept_waiting_ms(int64_t since);

struct test_case {
    const char *name;
    void (*fn)(const void *arg);
    const void *arg; /* of fn */
};

/* The body of main. Arguments: none = all cases, at_once of them at a time; "--list" = only their
 * names; else the case of that name, or all whose names begin so. Each has `seconds` of its own.
 * Returns the exit status. */
int cases_run(int argc, char **argv, const struct test_case *cases, size_t n, int at_once,
              int seconds);

#endif
