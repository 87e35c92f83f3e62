/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clean end: SIGINT, SIGTERM, SIGHUP and a reader of standard output that went away ask the command to
 * stop. A thread of its own waits for them, so that a call that blocks is woken: it shuts down the
 * link, which sends RESET to the peer and wakes everybody.
 */
#ifndef TOOLS_SIGNALS_H
#define TOOLS_SIGNALS_H

#include <stdbool.h>

#include <clbridge/link.h>

/* Before any other thread is started: blocks the signals, ignores SIGPIPE, starts the watcher. 0 or
 * errno. */
int signals_start(void);
void signals_end(void);

/* Someone asked to stop. Stays true. */
bool signals_stop(void);
void signals_request_stop(void);

/* Readable from then on; never read it. */
int signals_fd(void);

/* The link to shut down on a stop; NULL before it is closed. */
void signals_watch_link(clb_link *link);

/*
 * While true a stop ends the process at once: there is no peer yet to take leave of. farewell, which
 * may be NULL, is called before that on whatever thread it is, while the caller is inside a call that
 * nothing wakes; it returns the exit status, else that is 0.
 */
void signals_leave_at_once(bool yes, int (*farewell)(void *priv), void *priv);

#endif
