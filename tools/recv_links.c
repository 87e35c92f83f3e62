/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links of `recv`: one, or with --reconnect one after the other, with a wait between attempts that
 * grows while they bring no frame. Device and memory stay. Then the summary.
 */
#include "recv_run.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "signals.h"

#define NS_PER_MS 1000000
#define FIRST_WAIT_MS 100
#define MAX_WAIT_MS 5000
#define DOUBLINGS 6 /* then it is beyond the most */

/* ---- the end --------------------------------------------------------------------------------- */

static void judge(struct recv_run *r)
{
    const char *stream = r->announced.name[0] ? r->announced.name : "stream";

    if (r->verify_errors)
        report_fail(&r->report, CLB_ERR_IO, stream,
                    "%llu of %llu frames are not the pattern %s; the first is %s",
                    (unsigned long long)r->verify_errors, (unsigned long long)r->frames,
                    verify_name(&r->verify), r->first_bad);
    if (r->opt.count && r->frames < r->opt.count && !strcmp(r->ended_by, "peer"))
        report_fail(
            &r->report, CLB_ERR_CLOSED, stream,
            "the peer ended after %llu of %llu frames; send more, or give a smaller --count",
            (unsigned long long)r->frames, (unsigned long long)r->opt.count);
}

static int exit_status(const struct recv_run *r)
{
    return r->report.failed ? r->report.exit_status : EXIT_OK;
}

/* A stop while a connection is being made: see signals_leave_at_once(). */
static int farewell(void *priv)
{
    struct recv_run *r = priv;

    r->ended_by = "signal";
    judge(r);
    report_clear(&r->report);
    recv_print_summary(r);
    return exit_status(r);
}

/* ---- the time between two links --------------------------------------------------------------- */

/* Half of it is left to chance: many receivers that lose one peer do not come back all at once. */
static uint64_t wait_ms(const struct recv_run *r)
{
    uint64_t n = r->in_vain < DOUBLINGS ? r->in_vain : DOUBLINGS, most = FIRST_WAIT_MS << n;
    uint64_t chance = (uint64_t)stats_now_ns() ^ (uint64_t)getpid() << 32;

    most = most < MAX_WAIT_MS ? most : MAX_WAIT_MS;
    chance = (chance ^ chance >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return most / 2 + (chance >> 32) % (most / 2 + 1);
}

static void sleep_ms(uint64_t ms)
{
    struct pollfd stop = {.fd = signals_fd(), .events = POLLIN};
    int64_t end = stats_now_ns() + (int64_t)ms * NS_PER_MS, left;

    while ((left = end - stats_now_ns()) > 0)
        if (poll(&stop, 1, (int)(left / NS_PER_MS) + 1) > 0)
            return;
}

static void give_up(struct recv_run *r)
{
    char more[96];

    snprintf(more, sizeof more, "; gave up after %llu attempt%s in a row without a frame",
             (unsigned long long)r->in_vain, r->in_vain == 1 ? "" : "s");
    r->ended_by = "error";
    report_tell(&r->report, &r->lost, more);
}

/* Whether there is to be another link; comes back when it is time for it. */
static bool again(struct recv_run *r, bool up)
{
    uint64_t ms;

    if (!r->opt.reconnect || r->report.failed || !strcmp(r->ended_by, "count") ||
        !strcmp(r->ended_by, "signal"))
        return false;
    if (!r->lost.err) {
        r->lost.err = CLB_ERR_CLOSED;
        snprintf(r->lost.where, sizeof r->lost.where, "%s", r->endpoint.uri);
        snprintf(r->lost.message, sizeof r->lost.message, "the peer ended");
    }
    r->in_vain = up && r->link_frames ? 0 : r->in_vain + 1;
    if (r->opt.reconnect_max && r->in_vain >= r->opt.reconnect_max) {
        give_up(r);
        return false;
    }
    /* The next peer comes when it comes. */
    ms = r->endpoint.listen && up ? 0 : wait_ms(r);
    recv_print_reconnect(r, ms);
    report_doing(&r->report, "%s: %s; a new attempt in %.1f s ...", r->lost.where, r->lost.message,
                 (double)ms / 1e3);
    sleep_ms(ms);
    report_clear(&r->report);
    return true;
}

/* One attempt: true when there was a link. */
static bool attempt(struct recv_run *r)
{
    enum endpoint_result result;

    r->lost.err = CLB_OK;
    result = endpoint_open(&r->endpoint, &r->report);
    if (result != ENDPOINT_UP) {
        r->ended_by = result == ENDPOINT_STOPPED ? "signal" : "error";
        r->attempts_failed += result == ENDPOINT_FAILED;
        return false;
    }
    if (!r->links++) {
        r->cpu_start_ns = stats_cpu_process_ns();
        r->cpu_io_start_ns = stats_cpu_thread_ns(&r->endpoint.io);
    }
    recv_one_link(r);
    return true;
}

static void receive_over_links(struct recv_run *r)
{
    bool up, more;

    if (r->opt.reconnect) {
        r->endpoint.lost = &r->lost;
        r->endpoint.farewell = farewell;
        r->endpoint.priv = r;
    }
    do {
        up = attempt(r);
        /* The peer is told before we wait, and a new link does not meet the old one. */
        if (r->opt.reconnect)
            endpoint_leave(&r->endpoint);
        more = again(r, up);
        if (more && signals_stop()) {
            r->ended_by = "signal";
            more = false;
        }
    } while (more);
    if (r->links)
        judge(r);
    endpoint_close(&r->endpoint);
    if (r->links || r->opt.reconnect)
        recv_print_summary(r);
}

int recv_run(struct recv_run *r)
{
    int rc = recv_out_open(&r->out, &r->report);

    r->cpu_io_ns = r->allocs_steady = r->faults_steady = -1;
    if (!rc) {
        report_doing(&r->report, "starting %s ...",
                     r->ops == &recv_host_ops ? "with host memory" : "the OpenCL device");
        rc = r->ops->open(&r->backend, &r->setup);
        report_clear(&r->report);
    }
    if (rc)
        return EXIT_FAILED;
    receive_over_links(r);
    return exit_status(r);
}
