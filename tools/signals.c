/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals by signalfd. The lock orders the watcher's use of the link before its close.
 */
#include "signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stats.h"

/* A second signal this long after the first ends the process at once. Not earlier: timeout(1) and
 * terminals send the same signal twice in a row. */
#define PATIENCE_NS INT64_C(3000000000)

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    clb_link *link;
    bool leave_at_once;
    int (*farewell)(void *priv);
    void *priv;
    int signal_fd, stop_fd, quit_fd;
    _Atomic bool stop;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .signal_fd = -1, .stop_fd = -1, .quit_fd = -1};

static void set(int fd)
{
    uint64_t one = 1;
    ssize_t n;

    do
        n = write(fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}

/* lock held: what farewell sees is not touched by the thread that the end is taken out of the hands of. */
static void leave(void)
{
    _exit(watch.farewell ? watch.farewell(watch.priv) : 0);
}

void signals_request_stop(void)
{
    if (atomic_exchange(&watch.stop, true))
        return;
    set(watch.stop_fd);
    pthread_mutex_lock(&watch.lock);
    if (watch.leave_at_once)
        leave();
    if (watch.link)
        clb_link_shutdown(watch.link, 0);
    pthread_mutex_unlock(&watch.lock);
}

/* Only pipes and sockets have a reader that can go away. */
static bool has_reader(int fd)
{
    struct stat st;

    return !fstat(fd, &st) && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static void *watcher(void *arg)
{
    struct pollfd fds[3] = {
        {.fd = watch.quit_fd, .events = POLLIN},
        {.fd = watch.signal_fd, .events = POLLIN},
        {.fd = has_reader(STDOUT_FILENO) ? STDOUT_FILENO : -1, .events = 0},
    };
    int64_t first_ns = 0;

    (void)arg;
    for (;;) {
        if (poll(fds, 3, -1) < 0)
            continue;
        if (fds[0].revents)
            return NULL;
        if (fds[1].revents) {
            struct signalfd_siginfo info;

            if (read(watch.signal_fd, &info, sizeof info) != sizeof info)
                continue;
            if (!first_ns)
                first_ns = stats_now_ns();
            else if (stats_now_ns() - first_ns > PATIENCE_NS)
                _exit(128 + (int)info.ssi_signo);
            signals_request_stop();
        }
        if (fds[2].revents) {
            fds[2].fd = -1;
            signals_request_stop();
        }
    }
}

int signals_start(void)
{
    struct sigaction hangup;
    sigset_t set_of;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set_of);
    sigaddset(&set_of, SIGINT);
    sigaddset(&set_of, SIGTERM);
    /* Not below nohup(1): a signal that is ignored would still be read here. */
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
        sigaddset(&set_of, SIGHUP);
    rc = pthread_sigmask(SIG_BLOCK, &set_of, NULL);
    if (rc)
        return rc;
    watch.signal_fd = signalfd(-1, &set_of, SFD_CLOEXEC);
    watch.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch.quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch.signal_fd < 0 || watch.stop_fd < 0 || watch.quit_fd < 0)
        return errno;
    return pthread_create(&watch.thread, NULL, watcher, NULL);
}

void signals_end(void)
{
    set(watch.quit_fd);
    pthread_join(watch.thread, NULL);
}

bool signals_stop(void)
{
    return atomic_load(&watch.stop);
}

int signals_fd(void)
{
    return watch.stop_fd;
}

void signals_watch_link(clb_link *link)
{
    pthread_mutex_lock(&watch.lock);
    watch.link = link;
    /* A stop that came before the link was known has not reached it. */
    if (link && atomic_load(&watch.stop))
        clb_link_shutdown(link, 0);
    pthread_mutex_unlock(&watch.lock);
}

void signals_leave_at_once(bool yes, int (*farewell)(void *priv), void *priv)
{
    pthread_mutex_lock(&watch.lock);
    watch.leave_at_once = yes;
    watch.farewell = farewell;
    watch.priv = priv;
    if (yes && atomic_load(&watch.stop))
        leave();
    pthread_mutex_unlock(&watch.lock);
}
