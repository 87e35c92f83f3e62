/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heap allocations that fail. Linked with --wrap=malloc,--wrap=calloc,--wrap=posix_memalign,
 * --wrap=strdup, so that calls from our own objects alone are asked about. heap.c has the wrappers;
 * which call fails is said by heap_nth.c, or by a program of its own.
 */
#ifndef TESTS_HEAP_H
#define TESTS_HEAP_H

#include <stdbool.h>

/* Asked before each allocation. */
bool heap_fails(void);

/* ---- heap_nth.c: one allocation fails ---------------------------------------------------------- */

/* The n-th from now on. */
void heap_fail_nth(int n);
/* None any more; whether it has happened. */
bool heap_fail_end(void);
/* This thread belongs to the test: its allocations are not counted. */
extern _Thread_local bool heap_exempt;

#endif
