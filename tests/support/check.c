/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of test programs. See check.h. */
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

int64_t check_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void check_sleep_ms(int ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&ts, NULL);
}

static int count_dir(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    CHECK(d != NULL);
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

int check_fds(void)
{
    return count_dir("/proc/self/fd");
}

int check_threads(void)
{
    return count_dir("/proc/self/task");
}

void check_back_to(int fds, int threads)
{
    for (int i = 0; i < 300 && (check_fds() > fds || check_threads() > threads); i++) {
        check_sleep_ms(10);
    }
    CHECK_LE(check_fds(), fds);
    CHECK_LE(check_threads(), threads);
}

static void bark(int sig)
{
    static const char text[] = "watchdog: the test hangs\n";
    (void)sig;
    if (write(2, text, sizeof text - 1) < 0) {
        _exit(3);
    }
    _exit(2);
}

static void *nothing(void *arg)
{
    return arg;
}

void check_watchdog(int seconds)
{
    /* ThreadSanitizer starts a thread of its own beside the first one: before anybody counts. */
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, nothing, NULL), 0);
    pthread_join(t, NULL);
    signal(SIGALRM, bark);
    alarm((unsigned)seconds);
}
