/* SPDX-License-Identifier: Apache-2.0 */
/* The link of `send` and `recv`: connect, or listen and take the first peer. For `recv --reconnect` one
 * link after the other. */
#ifndef TOOLS_ENDPOINT_H
#define TOOLS_ENDPOINT_H

#include <stdbool.h>

#include <clbridge/link.h>

#include "report.h"
#include "stats.h"

struct endpoint {
    const char *uri;
    bool listen;                 /* device role */
    int64_t timeout_ns;          /* until a link that we open is up */
    int64_t idle_timeout_ns;     /* 0 = the library's */
    int64_t first_open_ns;       /* 0 = the library's */
    int64_t progress_timeout_ns; /* 0 = the library's */
    size_t frame_bytes; /* of what we receive: limits are raised to one such frame; 0 = unknown */
    char real_uri[160]; /* where we listen */
    bool verbose;
    /* To be opened more than once: the listener stays, and why there is no link goes here and is not
     * told. NULL = one link, all failures are told. */
    struct report_failure *lost;
    int (*farewell)(void *priv); /* of signals_leave_at_once() while we connect */
    void *priv;
    struct io_thread io;
    clb_loop *loop;
    clb_listener *listener;
    clb_link *link;
};

/* Largest window of a stream that a peer may announce to `recv`, unless one frame is larger. */
#define ENDPOINT_WINDOW ((size_t)64 << 20)
/* A packet on the wire is smaller than 2 GiB. */
#define ENDPOINT_MAX_FRAME ((size_t)INT32_MAX)

size_t endpoint_max_window(size_t frame_bytes);

enum endpoint_result { ENDPOINT_UP, ENDPOINT_FAILED, ENDPOINT_STOPPED };

/* Prints `listening` (once) and `connected`. A failure was reported, or went to *lost when another
 * attempt may have more luck. */
enum endpoint_result endpoint_open(struct endpoint *e, struct report *r);

/* Takes leave of the peer within 2 s. The endpoint can be opened again. */
void endpoint_leave(struct endpoint *e);
void endpoint_close(struct endpoint *e);

/* Why the link ended, for a call that answered err: reported, or into *lost. */
int endpoint_fail(struct endpoint *e, struct report *r, int err);

#endif
