/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one run of a variant costs, and pairs of runs: ours and the baseline in turn, so that a change
 * of the machine's speed meets both. The median of the ratios is what counts, minimum and maximum
 * tell how noisy the machine was.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Seconds of CPU per GB (1e9 bytes), per frame where the case says so, seconds per round trip. */
struct sample {
    double thread_cpu;  /* of the thread that receives */
    double process_cpu; /* of the whole process */
    double faults;      /* minor page faults of the receiving thread per 1000 frames */
    double extra;       /* what the case names */
    double copied;      /* bytes that the library has copied */
};

/* A thread that is measured from outside it. */
struct gauge {
    clockid_t clock;
    pid_t tid;
    bool set;
    double cpu0, process0;
    long faults0;
    bool running;
};

/* Called on the thread that is to be measured. */
void gauge_this_thread(struct gauge *g);
void gauge_start(struct gauge *g);
/* Since gauge_start, divided by `units` (GB, frames) and by thousands of frames. */
struct sample gauge_stop(const struct gauge *g, double units, double frames);

double now_s(void);
double median(double *values, size_t n); /* sorts */

/* One line of the report. target 0 = none. */
struct result {
    const char *name, *variant, *metric, *unit;
    double value, baseline, ratio, ratio_min, ratio_max;
    int runs;
    double target;
};

struct options {
    int pairs;
    bool quick, json, threads;
    const char *only;   /* name of a case, NULL = all */
    const char *device; /* part of an OpenCL device's name */
};

/* Ratios of a[i] to b[i], through a field of struct sample. */
void report_pairs(const struct options *o, struct result r, const struct sample *a,
                  const struct sample *b, size_t n, size_t field);
void report(const struct options *o, const struct result *r);
/* Results of this process whose target was missed, and all of them. */
extern int missed, reported;

void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
