/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending side, in a process of its own: one thread, plain sockets, no code of the library but for
 * the bytes of the metadata. With FEED_WIRE it is an XLink device that writes on one stream per connection within its window, else
 * it sends the same bytes without asking for anything back.
 */
#ifndef BENCH_FEED_H
#define BENCH_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WIRE_HEADER 84u

enum feed_kind {
    FEED_PLAIN,
    FEED_WIRE,
    FEED_CAMERA, /* as FEED_WIRE, each packet ends with the metadata of a depthai camera */
    FEED_ECHO_PLAIN,
    FEED_ECHO_OURS,
    FEED_ECHO_OURS_DRIVEN,
};

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
/* The metadata and trailer of FEED_CAMERA, for a GRAY8 picture of so many pixels. The size. */
#define FEED_TRAILER_MAX 1024
size_t feed_trailer(uint8_t *out, uint32_t width, uint32_t height);
/* The picture: rows of so many pixels. */
#define FEED_WIDTH 2048u
/* main() of that process. */
int feed_main(char **argv);

/* Connects to it; plain sockets, TCP_NODELAY. */
int feed_connect(const struct feed *f);

#endif
