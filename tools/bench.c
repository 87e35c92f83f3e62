/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge bench: the place of the benchmarks.
 */
#include "args.h"
#include "commands.h"
#include "report.h"

struct options {
    const char *device;
    int quick, strict, json;
};

#define OPT(field) offsetof(struct options, field)

static const struct arg_opt opts[] = {
    {"quick", ARG_FLAG, OPT(quick), NULL, "fewer and shorter runs", NULL, 0, 0},
    {"strict", ARG_FLAG, OPT(strict), NULL, "exit status 1 when a target is missed", NULL, 0, 0},
    {"device", ARG_STR, OPT(device), "SUBSTRING",
     "OpenCL device, by part of its or its platform's name", NULL, 0, 0},
    {"json", ARG_FLAG, OPT(json), NULL, "one JSON object per line on standard output", NULL, 0, 0},
};

static const struct arg_spec spec = {
    .command = "bench",
    .synopsis = "bench [OPTIONS]",
    .about = "Measures. Not in this version: exit status 1.",
    .opts = opts,
    .num_opts = sizeof opts / sizeof opts[0],
};

int command_bench(int argc, char **argv)
{
    struct options o = {0};
    struct report r;
    int rc;

    switch (args_parse(&spec, argc, argv, &o, stdout, stderr)) {
    case ARG_HELP: return EXIT_OK;
    case ARG_BAD: return EXIT_USAGE;
    case ARG_OK: break;
    }
    report_init(&r, "bench", o.json);
    rc = report_fail(&r, CLB_ERR_NOSYS, "benchmarks",
                     "not supported in this version; the summary of recv has times and rates");
    report_end(&r);
    return rc;
}
