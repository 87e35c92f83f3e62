/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of test_deadline.c: limits as users feel them. */
#ifndef TESTS_DEADLINE_H
#define TESTS_DEADLINE_H

#include "scene.h"

/* deadline_connect.c, deadline_progress.c, deadline_write.c, deadline_close.c, deadline_shutdown.c */
void connect_silent(const void *arg);
void connect_backlog(const void *arg);
void connect_dribble(const void *arg);
void connect_gone(const void *arg);
void resolve_hangs(const void *arg);
void resolve_hangs_listener(const void *arg);
void first_ping(const void *arg);
void first_ping_listener(const void *arg);
void adopt_gives_back(const void *arg);
void adopt_gives_back_tcp(const void *arg);

struct header_case {
    enum where where;
    int limit, pause, bytes;
    bool driven;
};
#define HEADER_STOPS(...) header_stops, (&(const struct header_case){__VA_ARGS__})
void header_stops(const void *arg);
void payload_stops(const void *arg);
void drain_stops(const void *arg);
void slow_but_moving(const void *arg);
void slow_but_moving_large(const void *arg);
void stall_behind_writes(const void *arg);

void write_without_credit(const void *arg);
void write_not_taken(const void *arg);
void write_not_taken_cut(const void *arg);
void write_not_answered(const void *arg);
void write_behind_a_stuck_one(const void *arg);
void flush_not_answered(const void *arg);
void open_not_answered(const void *arg);
void reads_time_out(const void *arg);

void close_not_answered(const void *arg);
void close_not_read(const void *arg);
void close_after_reset(const void *arg);
void close_after_endless_shutdown(const void *arg);
void close_keeps_unread_packets(const void *arg);
void shutdown_not_answered(const void *arg);
void listener_close_many(const void *arg);

void idle(const void *arg);
void keepalive_keeps(const void *arg);
void keepalive_while_paused(const void *arg);
void keepalive_of_two_of_ours(const void *arg);

void shutdown_under(const void *arg);
void shutdown_in_callback(const void *arg);
void shutdown_storm(const void *arg);

#endif
