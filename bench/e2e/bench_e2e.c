/* SPDX-License-Identifier: Apache-2.0 */
/* End-to-end benchmark: what the receive path costs beside a program that uses plain sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"
#include "measure.h"
#include "receive.h"

static const struct {
    const char *name;
    void (*fn)(const struct options *o);
} cases[] = {
    {"receive", case_receive_host},  {"receive-pool", case_receive_pool},
    {"round-trip", case_round_trip}, {"links", case_links},
    {"trailer", case_trailer},       {"repitch", case_repitch},
};

static void usage(FILE *to)
{
    fprintf(
        to,
        "Usage: bench_e2e [--case NAME] [--pairs N] [--quick] [--device SUBSTRING] [--json]\n"
        "                 [--strict]\n"
        "\n"
        "Runs each case N times (9) in turn with its baseline, a program of plain sockets, and\n"
        "prints the medians and the median of the ratios. The baseline of trailer and repitch\n"
        "are the same packets, received as they come. The sender is a process of its own.\n"
        "\n"
        "  --case NAME         one of: receive receive-pool round-trip links trailer repitch\n"
        "  --pairs N           1 to 64\n"
        "  --quick             fewer frames\n"
        "  --device SUBSTRING  OpenCL device by a part of its name\n"
        "  --json              one JSON object per line\n"
        "  --strict            exit status 1 when a target is missed\n");
}

int main(int argc, char **argv)
{
    struct options o = {.pairs = 9};
    bool strict = false, known = false;
    if (argc == 6 && strcmp(argv[1], "--feed") == 0) {
        return feed_main(argv + 2);
    }
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--case") == 0 && next) {
            o.only = argv[++i];
        } else if (strcmp(argv[i], "--pairs") == 0 && next) {
            o.pairs = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--device") == 0 && next) {
            o.device = argv[++i];
        } else if (strcmp(argv[i], "--quick") == 0) {
            o.quick = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
        } else if (strcmp(argv[i], "--threads") == 0) {
            o.threads = true;
        } else if (strcmp(argv[i], "--strict") == 0) {
            strict = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        } else {
            usage(stderr);
            return 2;
        }
    }
    if (o.pairs < 1 || o.pairs > 64 || (o.threads && o.json)) {
        usage(stderr);
        return 2;
    }
    const double start = now_s();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!o.only || strcmp(o.only, cases[i].name) == 0) {
            known = true;
            cases[i].fn(&o);
        }
    }
    if (!known) {
        fprintf(stderr, "bench_e2e: there is no case \"%s\"\n", o.only);
        return 2;
    }
    if (o.json) {
        printf("{\"event\":\"summary\",\"cases\":%d,\"missed\":%d,\"seconds\":%.1f}\n", reported,
               missed, now_s() - start);
    } else {
        printf("%d results, %d missed, %.0f s\n", reported, missed, now_s() - start);
    }
    return strict && missed ? 1 : 0;
}
