/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One link to a peer that follows a script, whose steps the test lets happen one by one.
 */
#ifndef TESTS_RACES_KIT_H
#define TESTS_RACES_KIT_H

#include <clbridge/clbridge.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)

/* What the script of a peer may do next. */
extern atomic_int stage;
void await(int n);
/* As await, but goes on answering. */
void pump_until(struct peer *p, int n);

/* Runs a script from stage 0; finish lets it do all and waits for it. */
void start(struct peer *p, void (*fn)(struct peer *p, void *arg), void *arg);
void finish(clb_link **link, struct peer *p);

/* Scripts that several tests use. writes_a announces "a" with a window of 4 packets of 1000 bytes
 * and writes *(int *)arg of them. */
void well_behaved(struct peer *p, void *arg);
void writes_a(struct peer *p, void *arg);

clb_link *adopt(int fd, const clb_link_params *params);
clb_stream *open_stream(clb_link *link, const clb_stream_params *params);
clb_stream_stats stats_of(clb_stream *s);
/* Thread: reads from the stream arg until it is closed. */
void *read_until_closed(void *arg);

void wait_int(atomic_int *n, int at_least);
/* A call of another thread is inside: to close under it before it has begun would be our mistake. */
void until_inside(clb_link *link, const uint32_t *callers);

/* ---- races_writes.c ---------------------------------------------------------------------------- */

void early_answer(void);
void refused_while_writing(void);
void close_while_unanswered(void);
void reopened_writer_waits(void);
void polled_write(void);
void shutdown_amid_write(void);

/* ---- races_payload.c --------------------------------------------------------------------------- */

void open_during_payload(void);
void reopen_during_payload(void);
void aligned_spill(void);
void entry_taken_over(void);
void impatient_allocator(void);

/* ---- races_callbacks.c ------------------------------------------------------------------------- */

void close_in_last_ready(bool link_too);
void close_in_state(enum clb_link_state at);
void no_callback_after_close(void);
void close_in_ready_of_another(void);
void close_link_under_a_call(void);
void close_listener_in_callback(void);
void ready_tells_all(void);

/* ---- races_loops.c ----------------------------------------------------------------------------- */

void idle_costs_nothing(void);
void close_needs_no_answer(void);
void busy_neighbour(void);
void close_from_another_thread(void);
void close_under_accept(int caller_driven);

#endif
