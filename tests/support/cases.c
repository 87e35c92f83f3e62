/* SPDX-License-Identifier: Apache-2.0 */
/* See cases.h. */
#include "cases.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* ---- how busy the machine is ------------------------------------------------------------------- */

#define SLOT_MS 20
#define SLOTS 8192
#define NAP_MS 4
#define WORK_MS 1

static struct weather {
    atomic_int_fast64_t looked; /* check_ms() */
    atomic_int_fast64_t lost;   /* ms kept waiting, all in all */
    atomic_int_fast64_t lost_at[SLOTS];
} * weather;

static void watch_weather(void)
{
    int64_t slot = check_ms() / SLOT_MS;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        const int64_t t0 = check_ms();
        check_sleep_ms(NAP_MS);
        for (volatile int i = 0; i < 20000; i++) {
        }
        const int64_t now = check_ms(), late = now - t0 - NAP_MS - WORK_MS;
        for (; slot <= now / SLOT_MS; slot++) {
            atomic_store(&weather->lost_at[slot % SLOTS], atomic_load(&weather->lost));
        }
        atomic_fetch_add(&weather->lost, late > 0 ? late : 0);
        atomic_store(&weather->looked, now);
    }
}

int cases_kept_waiting_ms(int64_t since)
{
    const int64_t now = check_ms(), looked = atomic_load(&weather->looked);
    int64_t lost = atomic_load(&weather->lost);
    if (since / SLOT_MS <= looked / SLOT_MS) {
        lost -= atomic_load(&weather->lost_at[since / SLOT_MS % SLOTS]);
    } else {
        lost = 0;
    }
    const int64_t from = looked > since ? looked : since; /* it may be waiting at this moment */
    return (int)(lost + (now - from > NAP_MS + WORK_MS ? now - from - NAP_MS - WORK_MS : 0));
}

static pid_t begin_weather(void)
{
    weather =
        mmap(NULL, sizeof *weather, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(weather != MAP_FAILED);
    atomic_store(&weather->looked, check_ms());
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        watch_weather();
    }
    return pid;
}

/* ---- cases ------------------------------------------------------------------------------------- */

struct running {
    pid_t pid;
    const struct test_case *what;
    int64_t since;
};

static void run_one(const struct test_case *c, int seconds)
{
    check_watchdog(seconds);
    const int fds = check_fds(), threads = check_threads();
    c->fn(c->arg);
    check_back_to(fds, threads);
    exit(0); /* not _exit: leaks are looked for */
}

static void begin(struct running *r, const struct test_case *c, int seconds)
{
    fflush(NULL);
    *r = (struct running){.pid = fork(), .what = c, .since = check_ms()};
    CHECK_GE(r->pid, 0);
    if (r->pid == 0) {
        run_one(c, seconds);
    }
}

/* Waits for the end of one; 1 = it failed. */
static int end_one(struct running *r, int at_once)
{
    int status = 0;
    pid_t pid = wait(&status);
    CHECK_GT(pid, 0);
    for (int i = 0; i < at_once; i++) {
        if (r[i].pid == pid) {
            int bad = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            fprintf(stderr, "%s %s, %d ms\n", bad ? "FAILED" : "passed", r[i].what->name,
                    (int)(check_ms() - r[i].since));
            if (WIFSIGNALED(status)) {
                fprintf(stderr, "FAILED %s: signal %d\n", r[i].what->name, WTERMSIG(status));
            }
            r[i].pid = 0;
            return bad;
        }
    }
    return 0;
}

static int matches(const struct test_case *cases, size_t n, size_t i, const char *want)
{
    for (size_t k = 0; want && k < n; k++) {
        if (strcmp(cases[k].name, want) == 0) {
            return i == k;
        }
    }
    return !want || strncmp(cases[i].name, want, strlen(want)) == 0;
}

int cases_run(int argc, char **argv, const struct test_case *cases, size_t n, int at_once,
              int seconds)
{
    const char *want = argc > 1 ? argv[1] : NULL;
    struct running r[64] = {{0}};
    int busy = 0, failed = 0, ran = 0;
    CHECK_LE(at_once, 64);
    if (want && strcmp(want, "--list") == 0) {
        for (size_t i = 0; i < n; i++) {
            puts(cases[i].name);
        }
        return 0;
    }
    const pid_t watcher = begin_weather();
    for (size_t i = 0; i < n; i++) {
        if (!matches(cases, n, i, want)) {
            continue;
        }
        if (busy == at_once) {
            failed += end_one(r, at_once);
            busy--;
        }
        int k = 0;
        while (r[k].pid) {
            k++;
        }
        begin(&r[k], &cases[i], seconds);
        busy++;
        ran++;
    }
    while (busy-- > 0) {
        failed += end_one(r, at_once);
    }
    kill(watcher, SIGKILL);
    waitpid(watcher, NULL, 0);
    munmap(weather, sizeof *weather);
    fprintf(stderr, "%d cases, %d failed\n", ran, failed);
    return failed || ran == 0;
}
