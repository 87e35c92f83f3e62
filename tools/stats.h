/* SPDX-License-Identifier: Apache-2.0 */
/* Measures of a run: clock, processor time, page faults, latency percentiles. */
#ifndef TOOLS_STATS_H
#define TOOLS_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t stats_now_ns(void);         /* CLOCK_MONOTONIC */
int64_t stats_cpu_process_ns(void); /* user and system time of this process so far */

/* The library's I/O thread, told by clb_loop_params.on_thread_start. */
struct io_thread {
    _Atomic bool known;
    int tid;
    int clock; /* clockid_t */
};

void stats_on_thread_start(void *priv);                  /* priv: struct io_thread */
int64_t stats_cpu_thread_ns(const struct io_thread *io); /* -1 = unknown */
int64_t stats_minor_faults(const struct io_thread *io);  /* -1 = unknown */

/* Times in ns, kept to better than 1 % in constant space. */
#define LATENCY_SUB 128
struct latency {
    uint64_t count;
    uint32_t bucket[LATENCY_SUB * 32];
};

void latency_add(struct latency *l, int64_t ns);
double latency_us(const struct latency *l, double fraction); /* NaN when nothing was added */

#endif
