/* SPDX-License-Identifier: Apache-2.0 */
/* See cases.h. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

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
    fprintf(stderr, "%d cases, %d failed\n", ran, failed);
    return failed || ran == 0;
}
