/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that books everything: it may refuse, cheat or wait by plan, puts guards around each
 * block, fills what comes home with 0xDD, and ends the process when the contract of
 * clbridge/buffer.h is broken (freed twice, released twice, guard overwritten, bad request).
 */
#ifndef TESTS_TALLOC_H
#define TESTS_TALLOC_H

#include <clbridge/buffer.h>
#include <pthread.h>
#include <stdbool.h>

#define TALLOC_GUARD 64

/* What one call of alloc() does. */
enum talloc_do {
    TALLOC_OK = 'o',
    TALLOC_ERROR = 'e', /* CLB_ERR_NOMEM */
    TALLOC_NOBUFS = 'n',
    TALLOC_NULL = '0',    /* success without memory */
    TALLOC_SHORT = 's',   /* one byte too small */
    TALLOC_CROOKED = 'm', /* not aligned */
    TALLOC_SLOW = 'w',    /* waits all of wait_ns, then NOBUFS */
};

struct talloc {
    pthread_mutex_t lock;
    const char *plan; /* one letter per call; behind its end the last one counts. NULL = "o" */
    int limit;        /* NOBUFS while this many blocks are out; 0 = no limit */
    int fail_release; /* so many calls of release() fail with CLB_ERR_CL */
    uint32_t align_seen;
    size_t sizes[64]; /* payload of each call, the first 64 */
    int64_t max_wait; /* largest wait_ns asked */
    int calls, given, freed, released, release_calls, refs, unrefs;
    int free_of_released;
};

/* *t is filled; live until the last free. */
void talloc_init(struct talloc *t, const char *plan);
struct clb_allocator talloc_allocator(struct talloc *t);
/* Everything came home, every reference was dropped. Waits a moment for a loop thread to do it. */
void talloc_check(struct talloc *t);
/* context and data are those of a block that is out. */
bool talloc_owns(struct talloc *t, const void *context, const void *data);

#endif
