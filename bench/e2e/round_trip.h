/* SPDX-License-Identifier: Apache-2.0 */
/* Five bytes there and back. */
#ifndef BENCH_ROUND_TRIP_H
#define BENCH_ROUND_TRIP_H

#include <stdbool.h>

/* Median time of a round trip in seconds. */
double plain_round_trip(int rounds);
/* Both ends are links, `driven` on loops that their callers drive, else with a thread each. */
double links_round_trip(bool driven, int rounds);

/* The far ends, in a process of their own (feed.h). */
void echo_plain(int door);
int echo_ours(bool driven);

#endif
