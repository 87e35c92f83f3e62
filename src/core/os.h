/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core needs of the operating system: a clock, waiting with a deadline, threads, wake-up
 * descriptors, aligned memory. Nothing here knows links or protocols.
 */
#ifndef CLBI_OS_H
#define CLBI_OS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLBI_NEVER INT64_MAX /* as a deadline: wait for ever */
#define CLBI_MS INT64_C(1000000)
#define CLBI_SEC INT64_C(1000000000)

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t clbi_now_ns(void);

/* timeout_ns as an argument of a public call (< 0 for ever, 0 poll) -> absolute deadline,
 * saturating. A poll gives a deadline in the past. */
int64_t clbi_deadline(int64_t timeout_ns);

/* Params field rule: 0 = def, < 0 = never (CLBI_NEVER), else the value. */
int64_t clbi_field_ns(int64_t value, int64_t def);

/* a + b for deadlines, saturating at CLBI_NEVER. */
int64_t clbi_add_ns(int64_t now, int64_t delta);

/* Condition variable on CLOCK_MONOTONIC. wait_until: 0, or ETIMEDOUT once the deadline passed. */
int clbi_cond_init(pthread_cond_t *cond);
int clbi_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline);

/* Starts a thread with all signals blocked and the given name (cut at 15 bytes). 0 or errno. */
int clbi_thread_create(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);

/* Wake-up descriptor: eventfd, non-blocking, close-on-exec. open gives -1 and errno on failure. */
int clbi_wakefd_open(void);
void clbi_wakefd_set(int fd);
void clbi_wakefd_clear(int fd);

/* Aligned memory: align a power of two, at least sizeof(void *); size 0 gives a valid pointer. */
void *clbi_aligned_alloc(size_t align, size_t size);
void clbi_aligned_free(void *ptr);

#endif
