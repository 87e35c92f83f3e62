/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a subcommand says: events on standard output, one line on standard error when it fails, a
 * progress line while somebody looks.
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <clbridge/common.h>

#include "json.h"

/* A failure that was not told, or not yet. */
struct report_failure {
    int err; /* CLB_OK = none */
    enum clb_domain domain;
    int native;
    char where[256];
    char message[512];
};

struct report {
    const char *command; /* "recv" */
    struct json out;
    bool failed;     /* a failure was reported; later ones are consequences and stay silent */
    int exit_status; /* of the failure: EXIT_FAILED, or EXIT_USAGE */
    bool terminal;   /* standard error is one */
    bool
        same_terminal; /* standard output may be the same: nothing is to be printed into the line */
    bool line_shown;   /* a progress line stands there */
    int64_t next_line_ns;
    struct report_failure *keep; /* where the next failure goes; NULL = it is told */
};

void report_init(struct report *r, const char *command, bool json);
void report_end(struct report *r);

/*
 * Reports the failure of the command, once: an `error` event and one line "clbridge recv: WHERE:
 * what" on standard error. status NULL or without a text: the message is made of fmt. Returns
 * EXIT_FAILED.
 */
int report_fail(struct report *r, int err, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int report_status(struct report *r, int err, const struct clb_status *status, const char *where);
/* A system call: the message is its text and the hint, domain and native tell the number. */
int report_errno(struct report *r, int number, const char *where, const char *hint);

/* The next failure goes to *keep and is not told: the command goes on. NULL = as ever. */
void report_keep_next(struct report *r, struct report_failure *keep);
/* Reports such a failure after all; `more` follows its message. */
int report_tell(struct report *r, const struct report_failure *kept, const char *more);

/* Ends an event: its line is written. When that fails the command is asked to stop, and if the reason
 * is not that the reader went away, it has failed. */
void report_event(struct report *r);

/* A line that overwrites itself, a few times per second, on a terminal only. */
void report_progress(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What begins now and may take long, at once; a terminal only. It stands there until report_clear(). */
void report_doing(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void report_clear(struct report *r);

/* Bytes of a peer in a message: what is not printable ASCII becomes \xNN. Returns buf. */
const char *report_escape(char *buf, size_t size, const char *text);

/* Log sink: lines of the library on standard error, for --verbose; else silent. */
struct clb_log report_log(bool verbose);

#endif
