/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending side, in a process of its own: one thread, plain sockets, no code of the library. With
 * FEED_WIRE it is an XLink device that writes on one stream per connection within its window, else
 * it sends the same bytes without asking for anything back.
 */
#ifndef BENCH_FEED_H
#define BENCH_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_HEADER 84u

enum feed_kind { FEED_PLAIN, FEED_WIRE, FEED_ECHO_PLAIN, FEED_ECHO_OURS, FEED_ECHO_OURS_DRIVEN };

struct feed {
    pid_t pid;
    uint16_t port;
};

/* Starts the process; `frame` is the payload in bytes, `window` the one announced. It ends when all
 * its connections have ended. */
void feed_start(struct feed *f, enum feed_kind kind, int connections, uint32_t frame,
                uint32_t window);
/* Waits for its end. */
void feed_join(struct feed *f);
/* main() of that process. */
int feed_main(char **argv);

/* Connects to it; plain sockets, TCP_NODELAY. */
int feed_connect(const struct feed *f);

#endif
