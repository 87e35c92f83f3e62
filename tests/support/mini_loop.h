/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest loop that a transport can live on, for tests of transports alone. One thread, and it
 * counts what it is asked for.
 */
#ifndef MINI_LOOP_H
#define MINI_LOOP_H

#include "transport.h"

struct mini_loop {
    int epfd;
    struct clbi_watch *watches[64];
    unsigned n_watches;
    struct clbi_defer *first, *last;
    unsigned rewatches, wakeups, events;
};

extern const struct clbi_loop_ops mini_loop_ops;

int mini_loop_init(struct mini_loop *l);
void mini_loop_fini(struct mini_loop *l);

/* One round: events that come within timeout_ms, then what is deferred. The number of both. */
int mini_loop_step(struct mini_loop *l, int timeout_ms);

#endif
