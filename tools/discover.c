/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge discover: looks for cameras.
 */
#include <clbridge/link.h>

#include "args.h"
#include "commands.h"
#include "report.h"
#include "signals.h"

#define MAX_CAMERAS 64

struct options {
    int64_t timeout_ns;
    int json;
};

static const struct arg_opt opts[] = {
    {"timeout", ARG_MS, offsetof(struct options, timeout_ns), "MS", "how long to look (2000)", NULL,
     1, 600000},
    {"json", ARG_FLAG, offsetof(struct options, json), NULL,
     "one JSON object per line on standard output", NULL, 0, 0},
};

static const struct arg_spec spec = {
    .command = "discover",
    .synopsis = "discover [--timeout MS] [--json]",
    .about = "Looks for cameras. Finding none is no failure.",
    .opts = opts,
    .num_opts = sizeof opts / sizeof opts[0],
    .notes = "No transport of this version can look for cameras: exit status 1.",
};

static void print_camera(struct report *r, const clb_device_info *d)
{
    static const char *const transports[] = {NULL, "tcp", "usb", "local"};
    struct json *j = &r->out;

    json_begin(j, "camera");
    json_str(j, "transport", (unsigned)d->transport < 4 ? transports[d->transport] : NULL);
    json_str(j, "uri", d->uri);
    json_str(j, "serial", d->serial[0] ? d->serial : NULL);
    json_str(j, "state", d->state[0] ? d->state : NULL);
    json_str(j, "protocol", d->protocol[0] ? d->protocol : NULL);
    json_str(j, "platform", d->platform[0] ? d->platform : NULL);
    if (d->usb_speed)
        json_uint(j, "usb_speed", d->usb_speed);
    else
        json_null(j, "usb_speed");
    json_str(j, "address", d->address[0] ? d->address : NULL);
    report_event(r);
}

static void look(struct report *r, int64_t timeout_ns)
{
    static clb_device_info found[MAX_CAMERAS];
    size_t count = 0;
    int rc;

    signals_leave_at_once(true, NULL, NULL);
    rc = clb_discover(CLB_TRANSPORT_ANY, timeout_ns, found, sizeof found[0], MAX_CAMERAS, &count);
    signals_leave_at_once(false, NULL, NULL);
    if (rc < 0) {
        count = 0;
        if (rc == CLB_ERR_NOSYS)
            report_fail(r, rc, "cameras",
                        "no transport of this version can look for cameras; give a URI to recv");
        else
            report_status(r, rc, NULL, "cameras");
    }
    for (size_t i = 0; i < count && i < MAX_CAMERAS; i++)
        print_camera(r, &found[i]);
    json_begin(&r->out, "summary");
    json_uint(&r->out, "cameras", count);
    report_event(r);
}

int command_discover(int argc, char **argv)
{
    struct options o = {.timeout_ns = INT64_C(2000000000)};
    struct report r;
    int rc;

    switch (args_parse(&spec, argc, argv, &o, stdout, stderr)) {
    case ARG_HELP: return EXIT_OK;
    case ARG_BAD: return EXIT_USAGE;
    case ARG_OK: break;
    }
    report_init(&r, "discover", o.json);
    look(&r, o.timeout_ns);
    rc = r.failed ? EXIT_FAILED : EXIT_OK;
    report_end(&r);
    return rc;
}
