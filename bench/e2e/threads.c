/* SPDX-License-Identifier: Apache-2.0 */
/* See threads.h. */
#include "threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

#define MAX_THREADS 64

struct entry {
    int tid;
    char name[32];
    double cpu; /* s; in `sum` the total */
};

static struct entry before[MAX_THREADS], sum[MAX_THREADS];
static int n_before, n_sum;
static double frames_in_all;

/* proc(5): the first number of schedstat is the time on a CPU, in ns. */
static int snapshot(struct entry *out)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    if (!dir) {
        die("/proc/self/task cannot be read");
    }
    for (struct dirent *d; (d = readdir(dir)) && n < MAX_THREADS;) {
        char path[300];
        struct entry *e = &out[n];
        unsigned long long ns = 0;
        *e = (struct entry){.tid = atoi(d->d_name)};
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", d->d_name);
        FILE *f = e->tid > 0 ? fopen(path, "r") : NULL;
        if (!f || fscanf(f, "%llu", &ns) != 1) {
            ns = 0;
        }
        if (f) {
            fclose(f);
        }
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        f = e->tid > 0 ? fopen(path, "r") : NULL;
        if (f && fscanf(f, "%31s", e->name) == 1) {
            e->cpu = (double)ns / 1e9;
            n++;
        }
        if (f) {
            fclose(f);
        }
    }
    closedir(dir);
    return n;
}

void threads_begin(void)
{
    n_before = snapshot(before);
}

static void add(const char *name, double cpu)
{
    int i = 0;
    while (i < n_sum && strcmp(sum[i].name, name) != 0) {
        i++;
    }
    if (i == n_sum) {
        if (n_sum == MAX_THREADS) {
            return;
        }
        sum[n_sum++] = (struct entry){0};
        snprintf(sum[i].name, sizeof sum[i].name, "%s", name);
    }
    sum[i].cpu += cpu;
}

void threads_end(double frames)
{
    struct entry after[MAX_THREADS];
    const int n = snapshot(after);
    for (int i = 0; i < n; i++) {
        double since = 0;
        for (int k = 0; k < n_before; k++) {
            since = before[k].tid == after[i].tid ? before[k].cpu : since;
        }
        const bool ours = strncmp(after[i].name, "clb-", 4) == 0;
        add(after[i].tid == getpid() ? "application"
            : ours                   ? after[i].name
                                     : "others",
            after[i].cpu - since);
    }
    frames_in_all += frames;
}

void threads_print(const char *what)
{
    for (int i = 0; i < n_sum && frames_in_all > 0; i++) {
        printf("%-12s %-22s %-14s %11.5g us/frame\n", "threads", what, sum[i].name,
               sum[i].cpu / frames_in_all * 1e6);
    }
    n_sum = 0;
    frames_in_all = 0;
}
