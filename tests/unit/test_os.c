/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines, waiting, threads, wake-up descriptors, aligned memory. A program: it has threads. */
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int failures;

#define EQ(got, want)                                                                              \
    do {                                                                                           \
        int64_t got_ = (int64_t)(got), want_ = (int64_t)(want);                                    \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", want %s = %" PRId64 "\n", __FILE__,         \
                    __LINE__, #got, got_, #want, want_);                                           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static void deadlines(void)
{
    int64_t now = clbi_now_ns();

    EQ(now > 0, 1);
    EQ(clbi_deadline(-1), CLBI_NEVER);
    EQ(clbi_deadline(0) <= now, 1);
    EQ(clbi_deadline(INT64_MAX), CLBI_NEVER);
    EQ(clbi_deadline(CLBI_SEC) >= now + CLBI_SEC, 1);
    EQ(clbi_field_ns(0, 5), 5);
    EQ(clbi_field_ns(-3, 5), CLBI_NEVER);
    EQ(clbi_field_ns(7, 5), 7);
    EQ(clbi_add_ns(1, 2), 3);
    EQ(clbi_add_ns(CLBI_NEVER - 1, 2), CLBI_NEVER);
    EQ(clbi_add_ns(CLBI_NEVER, -2), CLBI_NEVER);
    EQ(clbi_add_ns(0, CLBI_NEVER), CLBI_NEVER);
    EQ(clbi_add_ns(INT64_MIN + 1, -2), INT64_MIN);
}

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int ready, blocked, term_blocked;
    char name[32];
};

static void *thread_fn(void *arg)
{
    struct shared *s = arg;
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    pthread_mutex_lock(&s->mutex);
    s->blocked = sigismember(&mask, SIGINT);
    s->term_blocked = sigismember(&mask, SIGTERM);
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    s->ready = 1;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static void threads(void)
{
    struct shared s = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    sigset_t mask;
    pthread_t thread;

    EQ(clbi_cond_init(&s.cond), 0);
    pthread_mutex_lock(&s.mutex);
    EQ(clbi_cond_wait_until(&s.cond, &s.mutex, clbi_deadline(0)), ETIMEDOUT);
    EQ(clbi_cond_wait_until(&s.cond, &s.mutex, INT64_MIN), ETIMEDOUT);
    EQ(clbi_cond_wait_until(&s.cond, &s.mutex, clbi_deadline(CLBI_MS)), ETIMEDOUT);
    EQ(clbi_thread_create(&thread, "a name that is too long", thread_fn, &s), 0);
    while (!s.ready)
        if (clbi_cond_wait_until(&s.cond, &s.mutex, clbi_deadline(20 * CLBI_SEC)))
            break;
    EQ(s.ready, 1);
    pthread_mutex_unlock(&s.mutex);
    pthread_join(thread, NULL);
    EQ(s.blocked, 1);
    EQ(s.term_blocked, 1);
    EQ(strcmp(s.name, "a name that is "), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    EQ(sigismember(&mask, SIGINT), 0);
    pthread_cond_destroy(&s.cond);
}

static void wakefd(void)
{
    int fd = clbi_wakefd_open();
    struct pollfd p = {.fd = fd, .events = POLLIN};

    EQ(fd >= 0, 1);
    EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    EQ(poll(&p, 1, 0), 0);
    clbi_wakefd_set(fd);
    clbi_wakefd_set(fd);
    EQ(poll(&p, 1, 0), 1);
    clbi_wakefd_clear(fd);
    EQ(poll(&p, 1, 0), 0);
    clbi_wakefd_clear(fd); /* must not block */
    close(fd);
}

static void memory(void)
{
    for (size_t align = sizeof(void *); align <= 4096; align *= 2) {
        void *p = clbi_aligned_alloc(align, align + 1);
        EQ(p != NULL, 1);
        EQ((uintptr_t)p % align, 0);
        clbi_aligned_free(p);
    }
    void *p = clbi_aligned_alloc(64, 0);
    EQ(p != NULL, 1);
    clbi_aligned_free(p);
}

int main(void)
{
    deadlines();
    threads();
    wakefd();
    memory();
    return failures ? 1 : 0;
}
