/* SPDX-License-Identifier: Apache-2.0 */
/* The world of a fuzz target. See world.h. */
#include "world.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#define FDS 64
#define TIMERS 4
#define BEGIN (1000 * SEC)
/* More waits than any input of a few kilobytes has a reason for. */
#define MOST_WAITS 50000

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *in, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *in, struct itimerspec *old);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *ts);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *ts);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);

static struct {
    bool on;
    int64_t now;
    unsigned waits;
    bool (*idle)(int64_t ns);
    bool open[FDS];
    struct {
        int fd;
        int64_t due; /* 0 = not set */
    } timer[TIMERS];
} world;

/* The clock of the library only: the fuzzer's own engine and the test's helpers keep the real one
 * while no input runs, and use CLOCK_REALTIME meanwhile. */
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (!world.on || id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, ts);
    world.now += 1000; /* it never stands still */
    ts->tv_sec = (time_t)(world.now / SEC);
    ts->tv_nsec = (long)(world.now % SEC);
    return 0;
}

static int64_t next_timer(void)
{
    int64_t due = INT64_MAX;

    for (int i = 0; i < TIMERS; i++)
        if (world.timer[i].due > 0 && world.timer[i].due < due)
            due = world.timer[i].due;
    return due;
}

/* Timers whose time has come go off, for the system too. */
static void fire_timers(void)
{
    const struct itimerspec now = {.it_value = {.tv_nsec = 1}};

    for (int i = 0; i < TIMERS; i++) {
        struct pollfd p = {.fd = world.timer[i].fd, .events = POLLIN};

        if (world.timer[i].due == 0 || world.timer[i].due > world.now)
            continue;
        world.timer[i].due = 0;
        if (__real_timerfd_settime(p.fd, 0, &now, NULL) == 0)
            poll(&p, 1, 1000);
    }
}

int __wrap_epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
    const int64_t ns = timeout < 0 ? 60 * SEC : timeout * MS;
    const int64_t until = world.now + ns;
    int n;

    if (!world.on)
        return __real_epoll_wait(epfd, events, max, timeout);
    for (;;) {
        fire_timers();
        n = __real_epoll_wait(epfd, events, max, 0);
        CHECK_LE(++world.waits, MOST_WAITS);
        if (n != 0 || world.now >= until)
            return n;
        int64_t next = next_timer();
        next = next < until ? next : until;
        if (!world.idle(next - world.now))
            world.now = next;
    }
}

/* Absolute ones make the descriptor of a caller-driven loop readable: nobody polls it here. */
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *in, struct itimerspec *old)
{
    const int64_t ns = in->it_value.tv_sec * SEC + in->it_value.tv_nsec;
    int at = -1;

    if (!world.on)
        return __real_timerfd_settime(fd, flags, in, old);
    if (flags & TFD_TIMER_ABSTIME)
        return 0;
    for (int i = 0; i < TIMERS; i++)
        if (world.timer[i].fd == fd || (at < 0 && world.timer[i].due == 0))
            at = i;
    CHECK_GE(at, 0);
    world.timer[at].fd = fd;
    world.timer[at].due = ns ? world.now + ns : 0;
    return __real_timerfd_settime(fd, flags, &(struct itimerspec){.it_value = {0}}, old);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *ts)
{
    int64_t until = ts->tv_sec * SEC + ts->tv_nsec;

    if (!world.on)
        return __real_pthread_cond_timedwait(c, m, ts);
    CHECK_LE(++world.waits, MOST_WAITS);
    if (until > world.now)
        world.now = until;
    return ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    CHECK(!world.on); /* with one thread it would never end */
    return __real_pthread_cond_wait(c, m);
}

static void look_at_fds(bool open[FDS])
{
    struct pollfd p[FDS];

    for (int i = 0; i < FDS; i++)
        p[i] = (struct pollfd){.fd = i};
    CHECK_GE(poll(p, FDS, 0), 0);
    for (int i = 0; i < FDS; i++)
        open[i] = !(p[i].revents & POLLNVAL);
}

void world_begin(bool (*idle)(int64_t ns))
{
    look_at_fds(world.open);
    world.now = BEGIN;
    world.waits = 0;
    world.idle = idle;
    memset(world.timer, 0, sizeof world.timer);
    world.on = true;
}

void world_end(void)
{
    bool open[FDS];

    world.on = false;
    look_at_fds(open);
    for (int i = 0; i < FDS; i++)
        CHECK_EQ(open[i], world.open[i]);
}

bool world_late(void)
{
    return world.now > BEGIN + 20 * SEC;
}

void world_pass(int64_t ns)
{
    world.now += ns;
}

int64_t world_limit(int64_t timeout_ns)
{
    return world.now + timeout_ns + SEC / 2 + 20 * MS; /* the loop rounds waits up */
}

void world_check_limit(int64_t limit, const char *what)
{
    if (world.now > limit)
        fprintf(stderr, "%s was not back in time\n", what);
    CHECK_LE(world.now, limit);
}

uint8_t take8(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

uint32_t take32(struct input *in)
{
    uint32_t v = take8(in);

    v |= (uint32_t)take8(in) << 8;
    v |= (uint32_t)take8(in) << 16;
    return v | (uint32_t)take8(in) << 24;
}

_Noreturn void fuzz_exit(int rc)
{
    (void)rc;
    abort();
}
