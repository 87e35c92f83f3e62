/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link set-up of `send` and `recv`.
 */
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "signals.h"

#define KEEPALIVE_NS INT64_C(2000000000)    /* the library's */
#define MAX_LINK_WINDOW ((size_t)256 << 20) /* the library's */
#define SLICE_NS 50000000 /* how often a wait that nobody can wake looks for a stop */

static const char *transport_name(enum clb_transport transport)
{
    switch (transport) {
    case CLB_TRANSPORT_TCP: return "tcp";
    case CLB_TRANSPORT_USB: return "usb";
    case CLB_TRANSPORT_LOCAL: return "local";
    case CLB_TRANSPORT_ANY: break;
    }
    return NULL;
}

static void print_listening(struct report *r, const char *uri)
{
    const char *colon = strrchr(uri, ':');
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    /* For people and scripts without --json the first line is the URI alone. */
    json_begin(&r->out, r->out.text ? uri : "listening");
    if (!r->out.text) {
        json_str(&r->out, "uri", uri);
        if (end && !*end && port)
            json_uint(&r->out, "port", port);
        else
            json_null(&r->out, "port");
        json_int(&r->out, "pid", getpid());
    }
    report_event(r);
}

static void print_connected(struct endpoint *e, struct report *r)
{
    clb_link_info info;

    clb_link_get_info(e->link, &info, sizeof info);
    json_begin(&r->out, "connected");
    json_str(&r->out, "peer", info.peer);
    json_str(&r->out, "transport", transport_name(info.transport));
    json_str(&r->out, "role", info.role == CLB_ROLE_HOST ? "host" : "device");
    report_event(r);
}

static enum endpoint_result accept_one(struct endpoint *e, struct report *r)
{
    int rc;

    for (;;) {
        if (signals_stop())
            return ENDPOINT_STOPPED;
        rc = clb_listener_accept(e->listener, &e->link, SLICE_NS);
        if (rc == CLB_OK)
            return ENDPOINT_UP;
        if (rc != CLB_ERR_TIMEOUT && rc != CLB_ERR_AGAIN) {
            report_status(r, rc, NULL, e->uri);
            return ENDPOINT_FAILED;
        }
    }
}

/* What cannot be a URI is wrong usage, and no later attempt mends it. */
static void fail_open(struct endpoint *e, struct report *r, int err,
                      const struct clb_status *status)
{
    if (err == CLB_ERR_INVAL)
        r->exit_status = EXIT_USAGE;
    else if (err != CLB_ERR_NOSYS && !e->listen)
        report_keep_next(r, e->lost);
    report_status(r, err, status, e->uri);
}

static enum endpoint_result listen_for_one(struct endpoint *e, struct report *r,
                                           const clb_link_params *link)
{
    enum endpoint_result result;
    int rc;

    if (!e->listener) {
        rc = clb_listener_open(&e->listener, clb_listener_params(.uri = e->uri, .link = *link));
        if (rc < 0) {
            fail_open(e, r, rc, link->status);
            return ENDPOINT_FAILED;
        }
        snprintf(e->real_uri, sizeof e->real_uri, "%s", clb_listener_uri(e->listener));
        e->uri = e->real_uri; /* with the port that was picked */
        print_listening(r, e->uri);
    }
    result = accept_one(e, r);
    /* One link at a time: whoever comes meanwhile is refused at once, and sees it. */
    if (!e->lost)
        clb_listener_close(&e->listener);
    return result;
}

static enum endpoint_result connect_to(struct endpoint *e, struct report *r, clb_link_params *link)
{
    int rc;

    link->uri = e->uri;
    link->connect_timeout_ns = e->timeout_ns;
    signals_leave_at_once(true, e->farewell, e->priv);
    rc = clb_link_open(&e->link, link);
    signals_leave_at_once(false, NULL, NULL);
    if (rc == CLB_OK)
        return ENDPOINT_UP;
    fail_open(e, r, rc, link->status);
    return ENDPOINT_FAILED;
}

/* Windows are announced in multiples of 64 bytes. */
size_t endpoint_max_window(size_t frame_bytes)
{
    size_t rounded = (frame_bytes + 63) / 64 * 64;

    return rounded > ENDPOINT_WINDOW ? rounded : ENDPOINT_WINDOW;
}

static void set_limits(const struct endpoint *e, clb_link_params *link)
{
    size_t window = endpoint_max_window(e->frame_bytes);

    if (window == ENDPOINT_WINDOW)
        return; /* the library's limits do */
    link->max_payload = e->frame_bytes;
    link->max_stream_window = window;
    link->max_link_window = window > MAX_LINK_WINDOW ? window : MAX_LINK_WINDOW;
}

enum endpoint_result endpoint_open(struct endpoint *e, struct report *r)
{
    struct clb_status status = {0};
    clb_link_params link = {.struct_size = sizeof link, .status = &status};
    enum endpoint_result result;
    int rc;

    rc = e->loop
             ? CLB_OK
             : clb_loop_create(&e->loop, clb_loop_params(.on_thread_start = stats_on_thread_start,
                                                         .priv = &e->io));
    if (rc < 0) {
        report_status(r, rc, NULL, "I/O thread");
        return ENDPOINT_FAILED;
    }
    link.loop = e->loop;
    link.log = report_log(e->verbose);
    link.idle_timeout_ns = e->idle_timeout_ns;
    /* A peer that is alive must get the chance to say so in time. */
    if (e->idle_timeout_ns && e->idle_timeout_ns / 4 < KEEPALIVE_NS)
        link.keepalive_ns = e->idle_timeout_ns / 4;
    link.first_open_ns = e->first_open_ns;
    link.progress_timeout_ns = e->progress_timeout_ns;
    set_limits(e, &link);
    result = e->listen ? listen_for_one(e, r, &link) : connect_to(e, r, &link);
    if (result != ENDPOINT_UP)
        return result;
    signals_watch_link(e->link);
    print_connected(e, r);
    return ENDPOINT_UP;
}

void endpoint_leave(struct endpoint *e)
{
    signals_watch_link(NULL);
    clb_link_close(&e->link);
}

void endpoint_close(struct endpoint *e)
{
    endpoint_leave(e);
    clb_listener_close(&e->listener);
    clb_loop_destroy(&e->loop);
}

int endpoint_fail(struct endpoint *e, struct report *r, int err)
{
    struct clb_status why = {0};

    clb_link_get_state(e->link, &why);
    report_keep_next(r, e->lost);
    return report_status(r, err, &why, e->uri);
}
