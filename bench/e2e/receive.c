/* SPDX-License-Identifier: Apache-2.0 */
/* See receive.h. */
#include "receive.h"

#include <clbridge/config.h>
#include <stddef.h>
#include <stdio.h>

#include "links.h"
#include "plain.h"
#include "round_trip.h"
#include "threads.h"

#define MIB (1u << 20)
#define MAX_PAIRS 64
#define FIELD(f) offsetof(struct sample, f)

/* First frames, not measured: connections grow their windows, memory is touched. */
#define WARM 100

static int frames_for(const struct options *o, uint32_t frame)
{
    const double bytes = o->quick ? 0.6e9 : 2.5e9;
    const int n = (int)(bytes / frame);
    return n < 100 ? 100 : n;
}

static void pairs_of(const struct options *o, struct bench_pool *pool, uint32_t frame,
                     struct sample *ours, struct sample *base)
{
    const int frames = frames_for(o, frame);
    for (int i = 0; i < o->pairs; i++) {
        /* Who goes first alternates, too. */
        if (i % 2) {
            base[i] = plain_receive(frame, WARM, frames);
            ours[i] = links_receive(pool, frame, WARM, frames);
        } else {
            ours[i] = links_receive(pool, frame, WARM, frames);
            base[i] = plain_receive(frame, WARM, frames);
        }
    }
}

static void receive(const struct options *o, struct bench_pool *pool, const char *name,
                    uint32_t frame, double thread_target, double process_target)
{
    struct sample ours[MAX_PAIRS], base[MAX_PAIRS];
    char variant[48];
    pairs_of(o, pool, frame, ours, base);
    snprintf(variant, sizeof variant, "%s, %u MiB", pool ? bench_pool_name(pool) : "host memory",
             frame / MIB);
    struct result r = {.name = name, .variant = variant, .unit = "s/GB"};
    r.metric = "cpu_io";
    r.target = thread_target;
    report_pairs(o, r, ours, base, (size_t)o->pairs, FIELD(thread_cpu));
    r.metric = "cpu_process";
    r.target = process_target;
    report_pairs(o, r, ours, base, (size_t)o->pairs, FIELD(process_cpu));
    r.metric = "faults_io";
    r.unit = "/1000";
    r.target = 10;
    report_pairs(o, r, ours, NULL, (size_t)o->pairs, FIELD(faults));
    r.metric = "spilled";
    r.unit = "frames";
    r.target = 0;
    report_pairs(o, r, ours, NULL, (size_t)o->pairs, FIELD(extra));
    if (o->threads) {
        threads_print(variant);
    }
}

void case_receive_host(const struct options *o)
{
    receive(o, NULL, "receive", 2 * MIB, 1.10, 1.15);
    receive(o, NULL, "receive", 8 * MIB, 0, 1.15);
}

void case_receive_pool(const struct options *o)
{
#if CLB_HAVE_CL
    static const uint32_t sizes[] = {2 * MIB, 8 * MIB};
    for (size_t i = 0; i < 2; i++) {
        struct bench_pool *pool = bench_pool_open(o, sizes[i]);
        if (!pool) {
            fprintf(stderr, "bench_e2e: no OpenCL device: the pool is not measured\n");
            return;
        }
        receive(o, pool, "receive", sizes[i], i ? 0 : 1.10, i ? 1.15 : 1.35);
        bench_pool_close(&pool);
    }
#else
    (void)o;
#endif
}

void case_round_trip(const struct options *o)
{
    struct sample threads[MAX_PAIRS] = {0}, driven[MAX_PAIRS] = {0}, base[MAX_PAIRS] = {0};
    const int rounds = o->quick ? 2000 : 10000;
    for (int i = 0; i < o->pairs; i++) {
        threads[i].extra = links_round_trip(false, rounds) * 1e6;
        base[i].extra = plain_round_trip(rounds) * 1e6;
        driven[i].extra = links_round_trip(true, rounds) * 1e6;
    }
    struct result r = {.name = "round_trip", .metric = "median", .unit = "us"};
    r.variant = "a thread per link";
    r.target = 3;
    report_pairs(o, r, threads, base, (size_t)o->pairs, FIELD(extra));
    r.variant = "caller-driven";
    r.target = 1.5;
    report_pairs(o, r, driven, base, (size_t)o->pairs, FIELD(extra));
}

void case_links(const struct options *o)
{
    struct sample ours[MAX_PAIRS], base[MAX_PAIRS], more[MAX_PAIRS];
    const uint32_t frame = 100000;
    const int frames = o->quick ? 5000 : 20000;
    for (int i = 0; i < o->pairs; i++) {
        ours[i] = links_receive_many(64, frame, 64 * 8, frames);
        base[i] = plain_receive_many(64, frame, 64 * 8, frames);
        more[i] = links_receive_many(256, frame, 256 * 8, frames);
        ours[i].thread_cpu *= 1e6;
        base[i].thread_cpu *= 1e6;
        more[i].thread_cpu *= 1e6;
    }
    struct result r = {.name = "links", .metric = "cpu_io", .unit = "us/frame"};
    r.variant = "64 on one loop";
    r.target = 1.15;
    report_pairs(o, r, ours, base, (size_t)o->pairs, FIELD(thread_cpu));
    r.variant = "256 against 64";
    r.target = 0;
    report_pairs(o, r, more, ours, (size_t)o->pairs, FIELD(thread_cpu));
    r.metric = "memory";
    r.unit = "B/link";
    report_pairs(o, r, more, ours, (size_t)o->pairs, FIELD(extra));
    if (o->threads) {
        threads_print("64 and 256 on one loop");
    }
}
