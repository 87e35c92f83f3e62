/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events, failures and progress.
 */
#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "signals.h"
#include "stats.h"

#define PROGRESS_NS 200000000

void report_init(struct report *r, const char *command, bool json)
{
    memset(r, 0, sizeof *r);
    r->command = command;
    r->exit_status = EXIT_FAILED;
    json_init(&r->out, STDOUT_FILENO, !json);
    r->terminal = isatty(STDERR_FILENO) == 1;
    r->same_terminal = r->terminal && isatty(STDOUT_FILENO) == 1;
}

void report_clear(struct report *r)
{
    if (r->line_shown)
        fputs("\r\033[K", stderr);
    r->line_shown = false;
}

void report_end(struct report *r)
{
    report_clear(r);
    json_free(&r->out);
}

static const char *domain_name(enum clb_domain domain)
{
    switch (domain) {
    case CLB_DOMAIN_ERRNO: return "errno";
    case CLB_DOMAIN_LIBUSB: return "libusb";
    case CLB_DOMAIN_OPENCL: return "opencl";
    case CLB_DOMAIN_RESOLVER: return "resolver";
    case CLB_DOMAIN_NONE: break;
    }
    return NULL;
}

/* A message is one line, and nothing in it steers a terminal. */
static void one_line(char *text)
{
    size_t len = strlen(text);

    while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
        text[--len] = '\0';
    for (; *text; text++) {
        const unsigned char *c = (const unsigned char *)text;

        if (c[0] < 0x20 || c[0] == 0x7f)
            *text = ' ';
        else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* the second set of controls */
            text[0] = text[1] = ' ';
    }
}

static int fail(struct report *r, int err, enum clb_domain domain, int native, const char *where,
                char *message)
{
    struct report_failure *keep = r->keep;
    char place[256];

    r->keep = NULL;
    if (r->failed)
        return EXIT_FAILED;
    one_line(message);
    snprintf(place, sizeof place, "%s", where);
    if (keep) {
        *keep = (struct report_failure){.err = err, .domain = domain, .native = native};
        memcpy(keep->where, place, sizeof place);
        snprintf(keep->message, sizeof keep->message, "%.*s", (int)sizeof keep->message - 1,
                 message);
        return EXIT_FAILED;
    }
    r->failed = true;
    one_line(place);
    if (!r->out.text) {
        json_begin(&r->out, "error");
        json_str(&r->out, "code", clb_error_name(err));
        json_str(&r->out, "domain", domain_name(domain));
        if (domain == CLB_DOMAIN_NONE)
            json_null(&r->out, "native");
        else
            json_int(&r->out, "native", native);
        json_str(&r->out, "where", where);
        json_str(&r->out, "message", message);
        json_end(&r->out);
    }
    report_clear(r);
    fprintf(stderr, "clbridge %s: %s: %s\n", r->command, place, message);
    return EXIT_FAILED;
}

int report_fail(struct report *r, int err, const char *where, const char *fmt, ...)
{
    char message[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return fail(r, err, CLB_DOMAIN_NONE, 0, where, message);
}

int report_status(struct report *r, int err, const struct clb_status *status, const char *where)
{
    char message[512];
    bool told = status && status->err != CLB_OK && status->text[0];

    snprintf(message, sizeof message, "%s", told ? status->text : clb_error_str(err));
    return fail(r, err, told ? status->domain : CLB_DOMAIN_NONE, told ? status->native : 0, where,
                message);
}

int report_errno(struct report *r, int number, const char *where, const char *hint)
{
    enum clb_error err = number == ENOMEM ? CLB_ERR_NOMEM : CLB_ERR_IO;
    char message[512];

    if (number == EACCES || number == EPERM || number == EROFS)
        err = CLB_ERR_ACCESS;
    snprintf(message, sizeof message, "%s%s", strerror(number), hint);
    return fail(r, err, CLB_DOMAIN_ERRNO, number, where, message);
}

void report_keep_next(struct report *r, struct report_failure *keep)
{
    r->keep = keep;
}

int report_tell(struct report *r, const struct report_failure *kept, const char *more)
{
    char message[sizeof kept->message + 128];

    snprintf(message, sizeof message, "%s%s", kept->message, more);
    return fail(r, kept->err, kept->domain, kept->native, kept->where, message);
}

void report_event(struct report *r)
{
    bool failed_before = r->out.failed;

    if (r->same_terminal)
        report_clear(r);
    if (json_end(&r->out) == 0 || failed_before)
        return;
    if (!r->out.closed)
        report_errno(r, r->out.failed, "standard output", "");
    signals_request_stop();
}

__attribute__((format(printf, 2, 0))) static void show_line(struct report *r, const char *fmt,
                                                            va_list ap)
{
    fprintf(stderr, "\r\033[Kclbridge %s: ", r->command);
    vfprintf(stderr, fmt, ap);
    fflush(stderr);
    r->line_shown = true;
}

void report_progress(struct report *r, const char *fmt, ...)
{
    int64_t now;
    va_list ap;

    if (!r->terminal)
        return;
    now = stats_now_ns();
    if (now < r->next_line_ns)
        return;
    r->next_line_ns = now + PROGRESS_NS;
    va_start(ap, fmt);
    show_line(r, fmt, ap);
    va_end(ap);
}

void report_doing(struct report *r, const char *fmt, ...)
{
    va_list ap;

    if (!r->terminal)
        return;
    va_start(ap, fmt);
    show_line(r, fmt, ap);
    va_end(ap);
}

const char *report_escape(char *buf, size_t size, const char *text)
{
    size_t at = 0;

    for (; *text && at + 5 < size; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20 || c > 0x7e || c == '\\' || c == '"')
            at += (size_t)snprintf(buf + at, size - at, "\\x%02x", c);
        else
            buf[at++] = (char)c;
    }
    buf[at] = '\0';
    return buf;
}

struct clb_log report_log(bool verbose)
{
    struct clb_log log = {0};

    if (verbose) {
        log.cb = clb_log_stderr;
        log.level = CLB_LOG_INFO;
    }
    return log;
}
