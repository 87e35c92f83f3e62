/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soak: four links with two streams each, for minutes, over cables that stall and die. Frames are
 * whole and in order, the books of both sides agree, no buffer, descriptor or thread is lost, and
 * memory does not grow. See soak.h.
 *
 *   test_soak [--seconds N (60)] [--seed N]
 *
 * Ends early, and properly, on SIGINT.
 */
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "soak.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#define REST_SECONDS 15
#define MOST_SAMPLES 4000
/* Memory is judged from the first rest after so many episodes: by then all kinds of them took place,
 * and pools, kernels and heap have their size. */
#define WARM_EPISODES 40
/* Of the resident size from there to the last rest: what PoCL's and our heap may still take in. One
 * buffer or packet per episode would be more. */
#define MAY_GROW_KB 3072
/* While frames are on their way it goes up and down with them: the windows of all streams are 11 MB,
 * and a frame may lie with the sender and with the receiver. */
#define IN_FLIGHT_KB 24576

struct soak soak;
static struct lane lanes[LANES];
static volatile sig_atomic_t interrupted;

static void on_sigint(int sig)
{
    (void)sig;
    interrupted = 1;
}

void soak_fail(const struct episode *ep, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    char text[400];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "the longest pause that the system has made so far: %llu ms\n",
            (unsigned long long)atomic_load(&soak.longest_pause));
    fprintf(stderr, "%s:%d: seed %llu, lane %u, episode %u, %lld ms in, %s, policies %d %d: %s\n",
            file, line, (unsigned long long)soak.seed, ep->lane->index, ep->number,
            (long long)(check_ms() - ep->began_ms), ending_name(ep), (int)ep->run[0].on_full,
            (int)ep->run[1].on_full, text);
    _Exit(1);
}

/* ---- the state of the process ----------------------------------------------------------------- */

static long resident_kb(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0, all;
    CHECK(f != NULL);
    CHECK_EQ(fscanf(f, "%ld %ld", &all, &pages), 2);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int by_value(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return x < y ? -1 : x > y;
}

static long median(const long *v, int n)
{
    long sorted[MOST_SAMPLES];
    for (int i = 0; i < n; i++) {
        sorted[i] = v[i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static unsigned long long now_at(atomic_uint_fast64_t *n)
{
    return (unsigned long long)atomic_load(n);
}

static unsigned long long episodes(void)
{
    return now_at(&soak.ended[0]) + now_at(&soak.ended[1]) + now_at(&soak.ended[2]);
}

/* ---- lanes and their rests -------------------------------------------------------------------- */

static pthread_mutex_t rest_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rest_cond = PTHREAD_COND_INITIALIZER;
static int resting;
static unsigned rests; /* so far: one may begin before all have woken from the one before */

/* How long a thread that wants to run has to wait: limits that expire on a machine that stands still
 * say nothing about links. */
static void *watch_pauses(void *arg)
{
    const atomic_bool *stop = arg;
    int64_t last = check_ms();
    while (!atomic_load(stop)) {
        check_sleep_ms(20);
        const int64_t now = check_ms();
        if ((uint64_t)(now - last) > atomic_load(&soak.longest_pause)) {
            atomic_store(&soak.longest_pause, (uint64_t)(now - last));
        }
        last = now;
    }
    return NULL;
}

static void *lane_main(void *arg)
{
    struct lane *lane = arg;
    while (!atomic_load(&soak.stop)) {
        episode_run(lane);
        pthread_mutex_lock(&rest_lock);
        while (atomic_load(&soak.rest)) {
            const unsigned this_one = rests;
            resting++;
            pthread_cond_broadcast(&rest_cond);
            while (atomic_load(&soak.rest) && rests == this_one) {
                pthread_cond_wait(&rest_cond, &rest_lock);
            }
        }
        pthread_mutex_unlock(&rest_lock);
    }
    return NULL;
}

struct at_rest {
    int fds, threads, count;
    long rss_kb, last_rss_kb;
};

/* Between two episodes of all lanes there is nothing but what the run began with. */
static void rest(struct at_rest *at)
{
    pthread_mutex_lock(&rest_lock);
    resting = 0;
    rests++;
    atomic_store(&soak.rest, true);
    pthread_cond_broadcast(&rest_cond);
    while (resting < LANES) {
        pthread_cond_wait(&rest_cond, &rest_lock);
    }
    pthread_mutex_unlock(&rest_lock);
    for (int i = 0; i < LANES; i++) {
        lane_check_pools(&lanes[i], at->count == 0);
    }
    if (at->count++ == 0) {
        check_sleep_ms(200);
        at->fds = check_fds();
        at->threads = check_threads();
    }
    check_back_to(at->fds, at->threads);
    at->last_rss_kb = resident_kb();
    if (at->rss_kb == 0 && episodes() >= WARM_EPISODES) {
        at->rss_kb = at->last_rss_kb;
    }
    const struct mallinfo2 heap = mallinfo2();
    fprintf(stderr, "at rest: rss %ld kB, heap %zu kB of %zu, mapped %zu kB, %d fds, %d threads\n",
            at->last_rss_kb, heap.uordblks / 1024, heap.arena / 1024, heap.hblkhd / 1024,
            check_fds(), check_threads());
    pthread_mutex_lock(&rest_lock);
    atomic_store(&soak.rest, false);
    pthread_cond_broadcast(&rest_cond);
    pthread_mutex_unlock(&rest_lock);
}

/* ---- the run ---------------------------------------------------------------------------------- */

static void progress(int64_t seconds, long rss_kb)
{
    fprintf(stderr,
            "%3lld s: %llu episodes (%llu cut), %llu frames sent, %llu delivered, %llu MB, rss %ld "
            "kB, %d fds, %d threads\n",
            (long long)seconds, episodes(), now_at(&soak.ended[2]), now_at(&soak.sent),
            now_at(&soak.delivered), now_at(&soak.bytes) / 1000000, rss_kb, check_fds(),
            check_threads());
}

static void summary(int64_t ms, const struct at_rest *at, long early, long late)
{
    printf("soak: %lld s, seed %llu%s: %llu episodes (%llu ended by the device, %llu by the host, "
           "cut: %llu closed, %llu reset, %llu silent, %llu half closed), frames %llu sent, %llu "
           "delivered, %llu dropped, %llu refused, %llu spilled, %llu MB, looked at %llu by the "
           "host, %llu by the device, metadata %llu times (%llu bad), %llu windows tried, %llu "
           "commands, %llu stalls, %llu "
           "interrupts, slowest open %llu ms, longest pause %llu ms, rss %ld kB then %ld kB (at "
           "rest %ld, %ld), %d fds, "
           "%d threads: ok\n",
           (long long)(ms / 1000), (unsigned long long)soak.seed,
           interrupted ? " (interrupted)" : "", episodes(), now_at(&soak.ended[END_BY_DEVICE]),
           now_at(&soak.ended[END_BY_HOST]), now_at(&soak.cut[CUT_CLOSE]),
           now_at(&soak.cut[CUT_RESET]), now_at(&soak.cut[CUT_SILENT]), now_at(&soak.cut[CUT_HALF]),
           now_at(&soak.sent), now_at(&soak.delivered), now_at(&soak.dropped),
           now_at(&soak.alloc_failed), now_at(&soak.spilled), now_at(&soak.bytes) / 1000000,
           now_at(&soak.looked_at), now_at(&soak.device_looks), now_at(&soak.metadata),
           now_at(&soak.bad_metadata), now_at(&soak.probes), now_at(&soak.commands),
           now_at(&soak.stalls), now_at(&soak.interrupts), now_at(&soak.slowest_open),
           now_at(&soak.longest_pause), early, late, at->rss_kb, at->last_rss_kb, at->fds,
           at->threads);
}

static bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#else
    return false;
#endif
}

int main(int argc, char **argv)
{
    int64_t seconds = 60;
    soak.seed = (uint64_t)check_ms() * 2654435761u % 1000000000u;
    soak.slack = sanitized() ? 4 : 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        char *end = NULL;
        uint64_t value = strtoull(argv[i + 1], &end, 10);
        CHECK(*end == '\0' && argv[i + 1][0] != '\0');
        if (strcmp(argv[i], "--seconds") == 0) {
            seconds = (int64_t)value;
        } else if (strcmp(argv[i], "--seed") == 0) {
            soak.seed = value;
        } else {
            fprintf(stderr, "usage: %s [--seconds N] [--seed N]\n", argv[0]);
            return 2;
        }
    }
    CHECK(seconds > 0 && seconds < MOST_SAMPLES);
    fprintf(stderr, "soak: %lld s, seed %llu\n", (long long)seconds, (unsigned long long)soak.seed);
    check_watchdog((int)seconds + 120 * soak.slack);
    struct sigaction sa = {.sa_handler = on_sigint};
    sigaction(SIGINT, &sa, NULL);
    /* Threads come and go with every episode. glibc gives each its arena, and what a freed one keeps
     * depends on which thread took it over: noise of megabytes that says nothing about leaks. */
    mallopt(M_ARENA_MAX, 2);
    /* Frames go back to the system when they are freed: glibc would raise this limit by itself, and
     * what is resident would tell how badly the heap is broken up, not how much is in use. */
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);

    device_rig_start(&soak.rig);
    const int fds = check_fds(), threads = check_threads();
    CHECK_EQ(clb_loop_create(&soak.shared_loop, NULL), CLB_OK);
    for (uint32_t i = 0; i < LANES; i++) {
        lane_start(&lanes[i], i);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        CHECK_EQ(pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]), 0);
    }

    static atomic_bool enough;
    pthread_t pauses;
    CHECK_EQ(pthread_create(&pauses, NULL, watch_pauses, &enough), 0);

    static long samples[MOST_SAMPLES];
    int n = 0, first = -1; /* the first sample after the first rest */
    struct at_rest at = {0};
    const int64_t begin = check_ms();
    int64_t next_rest = seconds < 4 * REST_SECONDS ? seconds / 4 : REST_SECONDS;
    while (!interrupted && check_ms() < begin + seconds * 1000 && n < MOST_SAMPLES) {
        check_sleep_ms(1000);
        samples[n++] = resident_kb();
        const int64_t passed = (check_ms() - begin) / 1000;
        if (n % 10 == 0) {
            progress(passed, samples[n - 1]);
        }
        if (passed >= next_rest && passed + 5 < seconds) {
            rest(&at);
            next_rest = (check_ms() - begin) / 1000 + REST_SECONDS;
            first = first < 0 && at.rss_kb > 0 ? n : first;
        }
    }
    if (at.count == 0 || !interrupted) {
        rest(&at);
    }
    atomic_store(&soak.stop, true);
    for (int i = 0; i < LANES; i++) {
        CHECK_EQ(pthread_join(lanes[i].thread, NULL), 0);
        lane_check_pools(&lanes[i], false);
    }
    atomic_store(&enough, true);
    CHECK_EQ(pthread_join(pauses, NULL), 0);
    const int64_t took = check_ms() - begin;
    long early = 0, late = 0;
    if (first >= 0 && n - first >= 4) {
        const int window = (n - first) / 4;
        early = median(samples + first, window);
        late = median(samples + n - window, window);
        if (!sanitized()) {
            CHECK_LE(late, early + IN_FLIGHT_KB);
            CHECK_LE(at.last_rss_kb, at.rss_kb + MAY_GROW_KB);
        }
    }
    for (int i = 0; i < LANES; i++) {
        lane_end(&lanes[i]);
    }
    clb_loop_destroy(&soak.shared_loop);
    check_back_to(fds, threads);
    device_rig_end(&soak.rig);
    CHECK_GT(now_at(&soak.delivered), 0);
    summary(took, &at, early, late);
    return 0;
}
