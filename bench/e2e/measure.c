/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, medians and lines of the report. */
#include "measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int missed, reported;

void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "bench_e2e: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static double clock_s(clockid_t clock)
{
    struct timespec ts;
    if (clock_gettime(clock, &ts) != 0) {
        die("a thread's CPU clock cannot be read; has the thread ended?");
    }
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

double now_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

/* proc(5), /proc/pid/task/tid/stat: the 10th field, 7 behind the name in brackets and the state. */
static long faults_of(pid_t tid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", (long)tid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) {
        fclose(f);
    }
    text[n] = '\0';
    const char *p = text;
    for (const char *q = text; *q; q++) {
        p = *q == ')' ? q : p;
    }
    long faults = 0;
    if (sscanf(p, ") %*c %*d %*d %*d %*d %*d %*u %ld", &faults) != 1) {
        die("%s cannot be read", path);
    }
    return faults;
}

void gauge_this_thread(struct gauge *g)
{
    if (pthread_getcpuclockid(pthread_self(), &g->clock) != 0) {
        die("no CPU clock for a thread");
    }
    g->tid = gettid();
    g->set = true;
}

void gauge_start(struct gauge *g)
{
    if (!g->set) {
        die("the receiving thread has not started");
    }
    g->faults0 = faults_of(g->tid);
    g->process0 = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    g->cpu0 = clock_s(g->clock);
    g->running = true;
}

struct sample gauge_stop(const struct gauge *g, double units, double frames)
{
    struct sample s = {0};
    s.thread_cpu = (clock_s(g->clock) - g->cpu0) / units;
    s.process_cpu = (clock_s(CLOCK_PROCESS_CPUTIME_ID) - g->process0) / units;
    s.faults = (double)(faults_of(g->tid) - g->faults0) / frames * 1000.0;
    return s;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

void report(const struct options *o, const struct result *r)
{
    const double shown = r->baseline > 0 ? r->ratio : r->value;
    const bool met = r->target <= 0 || shown <= r->target;
    reported++;
    missed += !met;
    if (o->json) {
        printf("{\"event\":\"result\",\"case\":\"%s\",\"variant\":\"%s\",\"metric\":\"%s\","
               "\"unit\":\"%s\",\"value\":%.6g,\"baseline\":%.6g,\"ratio\":%.4g,"
               "\"ratio_min\":%.4g,\"ratio_max\":%.4g,\"runs\":%d,\"target\":%.4g,\"met\":%s}\n",
               r->name, r->variant, r->metric, r->unit, r->value, r->baseline, r->ratio,
               r->ratio_min, r->ratio_max, r->runs, r->target, met ? "true" : "false");
    } else {
        char target[32] = "";
        if (r->target > 0) {
            snprintf(target, sizeof target, "<= %.4g %s", r->target, met ? "met" : "MISSED");
        }
        if (r->baseline > 0) {
            printf("%-12s %-22s %-14s %11.5g %-8s baseline %11.5g  ratio %6.3f (%.3f to %.3f, %d "
                   "pairs) %s\n",
                   r->name, r->variant, r->metric, r->value, r->unit, r->baseline, r->ratio,
                   r->ratio_min, r->ratio_max, r->runs, target);
        } else {
            printf("%-12s %-22s %-14s %11.5g %-8s %s\n", r->name, r->variant, r->metric, r->value,
                   r->unit, target);
        }
    }
    fflush(stdout);
}

static double field_of(const struct sample *s, size_t field)
{
    return *(const double *)((const char *)s + field);
}

void report_pairs(const struct options *o, struct result r, const struct sample *a,
                  const struct sample *b, size_t n, size_t field)
{
    double ours[64], base[64], ratio[64];
    if (n == 0 || n > 64) {
        die("between 1 and 64 pairs");
    }
    for (size_t i = 0; i < n; i++) {
        ours[i] = field_of(&a[i], field);
        base[i] = b ? field_of(&b[i], field) : 0;
        ratio[i] = base[i] > 0 ? ours[i] / base[i] : 0;
    }
    r.ratio = median(ratio, n);
    r.ratio_min = ratio[0];
    r.ratio_max = ratio[n - 1];
    r.value = median(ours, n);
    r.baseline = median(base, n);
    r.runs = (int)n;
    report(o, &r);
}
