/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every limit of a link, met by a peer that does not do its part: each ends the wait within the limit
 * and half a second, leaves no thread, descriptor or buffer, and a fresh link to the same address
 * works.
 */
#include "deadline.h"

#define AT_ONCE 24

int main(int argc, char **argv)
{
    const struct test_case cases[] = {
        ALONE(connect_silent),
        ALONE(connect_backlog),
        BOTH(connect_dribble),
        BOTH_LOCAL(connect_gone),
        ALONE(resolve_hangs),
        ALONE(resolve_hangs_listener),
        BOTH_LOCAL(first_ping),
        ALONE(first_ping_listener),
        BOTH_LOCAL(adopt_gives_back),
        ALONE(adopt_gives_back_tcp),
        {"header_stops.1_of_84.host", HEADER_STOPS(HOST_TCP, 100, 0, 1, false)},
        {"header_stops.1_of_84.device", HEADER_STOPS(DEVICE_TCP, 100, 0, 1, false)},
        {"header_stops.83_of_84.host", HEADER_STOPS(HOST_TCP, 200, 150, 83, false)},
        {"header_stops.83_of_84.device", HEADER_STOPS(DEVICE_TCP, 200, 150, 83, false)},
        {"header_stops.long_limit.host", HEADER_STOPS(HOST_UNIX, 1300, 20, 42, false)},
        {"header_stops.long_limit.device", HEADER_STOPS(DEVICE_TCP, 1300, 0, 1, false)},
        {"header_stops.driven", HEADER_STOPS(HOST_UNIX, 1300, 20, 42, true)},
        BOTH(payload_stops),
        BOTH(drain_stops),
        BOTH(slow_but_moving),
        BOTH(slow_but_moving_large),
        BOTH(stall_behind_writes),
        BOTH(write_without_credit),
        BOTH(write_not_answered),
        BOTH(flush_not_answered),
        BOTH(write_not_taken),
        {"write_not_taken.local", write_not_taken, ADDR(HOST_UNIX)},
        BOTH(write_behind_a_stuck_one),
        BOTH(write_not_taken_cut),
        BOTH(open_not_answered),
        BOTH(reads_time_out),
        {"reads_time_out.driven", reads_time_out, ADDR(HOST_UNIX)},
        BOTH(close_not_answered),
        {"close_not_answered.driven", close_not_answered, ADDR(HOST_UNIX)},
        BOTH(close_not_read),
        BOTH(close_after_reset),
        BOTH(close_after_endless_shutdown),
        BOTH(close_keeps_unread_packets),
        BOTH(shutdown_not_answered),
        {"listener_close_many", listener_close_many, ADDR(0)},
        {"listener_close_many.one_loop", listener_close_many, ADDR(1)},
        BOTH(idle),
        {"idle.driven", idle, ADDR(HOST_UNIX)},
        BOTH(keepalive_keeps),
        BOTH(keepalive_while_paused),
        ALONE(keepalive_of_two_of_ours),
        BOTH(shutdown_under),
        BOTH(shutdown_in_callback),
        {"shutdown_storm", shutdown_storm, ADDR(0)},
        {"shutdown_storm.one_loop", shutdown_storm, ADDR(1)},
    };
    return cases_run(argc, argv, cases, sizeof cases / sizeof *cases, AT_ONCE, 30);
}
