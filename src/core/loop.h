/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor: one function drives any number of members (links, listeners). By default a thread of
 * its own runs it; caller-driven it runs inside clb_loop_dispatch() and inside calls with a deadline.
 *
 * Invariants: watches, defers and member deadlines are touched on the dispatching thread only; kick
 * is the one entry for other threads. No loop lock is held while a callback runs.
 */
#ifndef CLBI_LOOP_H
#define CLBI_LOOP_H

#include <clbridge/link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport.h"

/* Something that the loop serves. Lives inside its owner. */
struct clbi_member {
    void (*service)(void *priv, int64_t now); /* after a kick, or when deadline has passed */
    void *priv;
    int64_t deadline; /* CLBI_NEVER = none; set by service */
    struct clbi_member *prev, *next;
    struct clbi_member *dirty_next;
    bool dirty, joined;
};

extern const struct clbi_loop_ops clbi_loop_ops;

void clbi_loop_ref(clb_loop *loop);
/* Ends the thread with the last reference; joins it unless called on it. */
void clbi_loop_unref(clb_loop *loop);

void clbi_loop_join(clb_loop *loop, struct clbi_member *m);
/* On the dispatching thread. No service afterwards. */
void clbi_loop_leave(clb_loop *loop, struct clbi_member *m);
/* Any thread: service runs soon. Nothing happens when m is not joined. */
void clbi_loop_kick(clb_loop *loop, struct clbi_member *m);
/* The same when the dispatcher is at work and comes to it without being woken; false = it sleeps, and
 * nothing was done. */
bool clbi_loop_kick_awake(clb_loop *loop, struct clbi_member *member);

bool clbi_loop_caller_driven(const clb_loop *loop);
/* The calling thread is the one that runs callbacks of this loop at this moment. */
bool clbi_loop_on_thread(clb_loop *loop);
/* One wait of a call with a deadline for what the loop does; the caller looks again afterwards.
 * lock is held, and dropped meanwhile: sleeps on cond, or drives a caller-driven loop until it did
 * something. CLB_OK, TIMEOUT, or STATE (called on the loop's own thread; caller-driven: somebody
 * else is inside, or called from a callback). */
int clbi_loop_wait(clb_loop *loop, pthread_mutex_t *lock, pthread_cond_t *cond, int64_t deadline);

#endif
