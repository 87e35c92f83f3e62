/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of a fuzz target that drives whole links in one thread: its clock moves only when the
 * library waits, so nothing sleeps and every run of an input is the same. Linked with --wrap for the
 * clock, epoll_wait and the waits on conditions.
 *
 * When the library would wait, the peer is asked first; when it has nothing to say, the time that the
 * library is willing to wait has passed. A call that overruns its limit on that clock fails the run.
 */
#ifndef TESTS_FUZZ_WORLD_H
#define TESTS_FUZZ_WORLD_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS INT64_C(1000000)
#define SEC INT64_C(1000000000)

/* What is left of the input; 0 behind its end. */
struct input {
    const uint8_t *at;
    size_t left;
};

uint8_t take8(struct input *in);
uint32_t take32(struct input *in);

/* Begins a run: `idle` is what the peer does while the library waits for up to `ns` (true = it has
 * done something, look again). */
void world_begin(bool (*idle)(int64_t ns));
/* Ends it: no descriptor is left that was not open before. */
void world_end(void);
/* The input has used up its time: what is left of it is not done. */
bool world_late(void);
void world_pass(int64_t ns);

/* Around one call of the library with a limit: it must be back within the limit + 0.5 s. */
int64_t world_limit(int64_t timeout_ns);
void world_check_limit(int64_t limit, const char *what);

/* Stands in for _Exit in the sources of a fuzz target, so that a failed CHECK is a crash, whose input
 * libFuzzer keeps. */
_Noreturn void fuzz_exit(int rc);

#endif
