/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core needs of the operating system (Linux): clock, deadlines, threads, wake-up
 * descriptors, aligned memory.
 */
#include "os.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Of x86-64 and of ARM64 with 4 KiB pages. Elsewhere it is a generous alignment. */
#define HUGE_PAGE ((size_t)2 << 20)

int64_t clbi_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * CLBI_SEC + ts.tv_nsec;
}

int64_t clbi_add_ns(int64_t now, int64_t delta)
{
    if (now == CLBI_NEVER || delta == CLBI_NEVER)
        return CLBI_NEVER;
    if (delta > 0 && now > CLBI_NEVER - delta)
        return CLBI_NEVER;
    if (delta < 0 && now < INT64_MIN - delta)
        return INT64_MIN;
    return now + delta;
}

int64_t clbi_deadline(int64_t timeout_ns)
{
    if (timeout_ns < 0)
        return CLBI_NEVER;
    if (timeout_ns == 0)
        return 0; /* the clock has passed that since the machine started */
    return clbi_add_ns(clbi_now_ns(), timeout_ns);
}

int64_t clbi_field_ns(int64_t value, int64_t def)
{
    if (value == 0)
        return def;
    return value < 0 ? CLBI_NEVER : value;
}

int clbi_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc)
        return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!rc)
        rc = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
}

int clbi_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    struct timespec ts;

    if (deadline == CLBI_NEVER)
        return pthread_cond_wait(cond, mutex);
    if (deadline < 0)
        deadline = 0; /* before the clock began: not representable, but as much past */
    ts.tv_sec = (time_t)(deadline / CLBI_SEC);
    ts.tv_nsec = (long)(deadline % CLBI_SEC);
    return pthread_cond_timedwait(cond, mutex, &ts);
}

struct thread_start {
    void *(*fn)(void *);
    void *arg;
    char name[16];
};

static void *thread_main(void *priv)
{
    struct thread_start start = *(struct thread_start *)priv;

    free(priv);
    if (start.name[0])
        pthread_setname_np(pthread_self(), start.name);
    return start.fn(start.arg);
}

int clbi_thread_create(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
    struct thread_start *start = calloc(1, sizeof *start);
    sigset_t all, old;
    int rc;

    if (!start)
        return ENOMEM;
    start->fn = fn;
    start->arg = arg;
    if (name)
        strncpy(start->name, name, sizeof start->name - 1);

    /* A new thread inherits the mask: blocked from its first instruction on. */
    sigfillset(&all);
    rc = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!rc) {
        rc = pthread_create(out, NULL, thread_main, start);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    if (rc)
        free(start);
    return rc;
}

int clbi_wakefd_open(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void clbi_wakefd_set(int fd)
{
    const uint64_t one = 1;
    ssize_t n;

    /* EAGAIN: the counter is full, so it is set already. */
    do
        n = write(fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}

void clbi_wakefd_clear(int fd)
{
    uint64_t count;
    ssize_t n;

    do
        n = read(fd, &count, sizeof count);
    while (n < 0 && errno == EINTR);
}

void *clbi_aligned_alloc(size_t align, size_t size)
{
    const bool huge = size >= HUGE_PAGE;
    void *ptr = NULL;

    if (huge && align < HUGE_PAGE)
        align = HUGE_PAGE;
    if (posix_memalign(&ptr, align, size ? size : 1))
        return NULL;
    /* A frame is written from one end to the other: with large pages that is one page fault for
     * 2 MiB, and a fraction of the address translations. The system may decline. */
    if (huge)
        madvise(ptr, size - size % HUGE_PAGE, MADV_HUGEPAGE);
    return ptr;
}

void clbi_aligned_free(void *ptr)
{
    free(ptr);
}
