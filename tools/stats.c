/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures of a run.
 */
#include "stats.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define SEC INT64_C(1000000000)

static int64_t read_clock(clockid_t clock)
{
    struct timespec ts;

    if (clock_gettime(clock, &ts))
        return -1;
    return (int64_t)ts.tv_sec * SEC + ts.tv_nsec;
}

int64_t stats_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t stats_cpu_process_ns(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return ((int64_t)use.ru_utime.tv_sec + use.ru_stime.tv_sec) * SEC +
           ((int64_t)use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000;
}

void stats_on_thread_start(void *priv)
{
    struct io_thread *io = priv;
    clockid_t clock;

    if (pthread_getcpuclockid(pthread_self(), &clock))
        return;
    io->clock = (int)clock;
    io->tid = (int)gettid();
    atomic_store(&io->known, true);
}

int64_t stats_cpu_thread_ns(const struct io_thread *io)
{
    return atomic_load(&io->known) ? read_clock(io->clock) : -1;
}

/* proc(5): minflt is the 10th field of stat; the 2nd is the name in parentheses, which may itself
 * hold spaces and parentheses. */
int64_t stats_minor_faults(const struct io_thread *io)
{
    char path[64], line[1024];
    unsigned long long faults;
    const char *rest;
    size_t n;
    FILE *file;

    if (!atomic_load(&io->known))
        return -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", io->tid);
    file = fopen(path, "re");
    if (!file)
        return -1;
    n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';
    rest = strrchr(line, ')');
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %llu", &faults) != 1)
        return -1;
    return (int64_t)faults;
}

/* Values below 2 * SUB have a bucket each; above, each octave has SUB buckets. */
static size_t bucket_of(uint64_t value)
{
    unsigned shift = 0;
    size_t bucket;

    while (value >> shift >= 2 * LATENCY_SUB)
        shift++;
    bucket = (size_t)shift * LATENCY_SUB + (size_t)(value >> shift);
    return bucket < LATENCY_SUB * 32 ? bucket : LATENCY_SUB * 32 - 1;
}

static double middle_of(size_t bucket)
{
    unsigned shift = bucket < 2 * LATENCY_SUB ? 0 : (unsigned)(bucket / LATENCY_SUB) - 1;
    double low = (double)(bucket - (size_t)shift * LATENCY_SUB);

    return ldexp(low + (shift ? 0.5 : 0), (int)shift);
}

void latency_add(struct latency *l, int64_t ns)
{
    l->bucket[bucket_of(ns < 0 ? 0 : (uint64_t)ns)]++;
    l->count++;
}

double latency_us(const struct latency *l, double fraction)
{
    uint64_t rank, seen = 0;

    if (!l->count)
        return (double)NAN;
    rank = (uint64_t)ceil(fraction * (double)l->count);
    for (size_t i = 0; i < LATENCY_SUB * 32; i++) {
        seen += l->bucket[i];
        if (seen >= rank && seen)
            return middle_of(i) / 1000;
    }
    return (double)NAN;
}
