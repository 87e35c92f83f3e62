/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that fail as the input says. See faults.h. */
#include "faults.h"

#include "heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Calls that a session makes a few times only: one of them fails once. */
enum rare {
    RARE_NONE,
    RARE_EPOLL_CTL,
    RARE_EPOLL_CREATE,
    RARE_EVENTFD,
    RARE_TIMERFD,
    RARE_FCNTL,
    RARE_SETSOCKOPT,
    RARE_GETSOCKOPT,
    RARE_GETPEERNAME,
    RARE_ACCEPT,
    RARE_COUNT
};

static struct {
    int paused;
    unsigned alloc[2]; /* countdowns, 0 = none */
    enum rare rare;
    unsigned rare_in;
    int rare_errno;
    const uint8_t *script;
    size_t script_left;
} faults = {.paused = 1};

void faults_begin(struct input *in)
{
    static const int errnos[] = {ENOMEM, ENOBUFS, EMFILE, EINTR, EIO, ENOSPC, ECONNABORTED, EINVAL};

    faults.paused = 1;
    faults.alloc[0] = take8(in);
    faults.alloc[1] = take8(in);
    faults.rare = take8(in) % RARE_COUNT;
    faults.rare_in = take8(in) % 32 + 1;
    faults.rare_errno = errnos[take8(in) % 8];
    faults.script_left = take8(in);
    if (faults.script_left > in->left)
        faults.script_left = in->left;
    faults.script = in->at;
    in->at += faults.script_left;
    in->left -= faults.script_left;
}

void faults_pause(void)
{
    faults.paused++;
}

void faults_resume(void)
{
    faults.paused--;
}

/* ---- the heap -------------------------------------------------------------------------------- */

bool heap_fails(void)
{
    bool hit = false;

    if (faults.paused > 0)
        return false;
    for (int i = 0; i < 2; i++)
        hit |= faults.alloc[i] > 0 && --faults.alloc[i] == 0;
    return hit;
}

/* ---- moving bytes ---------------------------------------------------------------------------- */

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

/* 0 = as it is; an errno; or -n: at most n bytes */
static int next_fault(void)
{
    static const int errnos[] = {EINTR,  EAGAIN,    EAGAIN, ECONNRESET, ENOBUFS,
                                 ENOMEM, ETIMEDOUT, EIO,    EPIPE};
    uint8_t b;

    if (faults.paused > 0 || faults.script_left == 0)
        return 0;
    faults.script_left--;
    b = *faults.script++;
    if (b < 0x60)
        return 0;
    if (b < 0xc0)
        return -(int)(b - 0x5f);
    return errnos[(b - 0xc0) % (sizeof errnos / sizeof errnos[0])];
}

/* A copy of *msg with at most `most` bytes. */
static struct msghdr cut(const struct msghdr *msg, struct iovec *one, size_t most)
{
    struct msghdr m = *msg;

    for (size_t i = 0; i < msg->msg_iovlen; i++) {
        if (msg->msg_iov[i].iov_len == 0)
            continue;
        *one = msg->msg_iov[i];
        if (one->iov_len > most)
            one->iov_len = most;
        m.msg_iov = one;
        m.msg_iovlen = 1;
        break;
    }
    return m;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct iovec one;
    struct msghdr m;
    int f = next_fault();

    if (f > 0) {
        errno = f == EPIPE ? ECONNRESET : f;
        return -1;
    }
    if (f == 0)
        return __real_recvmsg(fd, msg, flags);
    m = cut(msg, &one, (size_t)-f);
    return __real_recvmsg(fd, &m, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    struct iovec one;
    struct msghdr m;
    int f = next_fault();

    if (f > 0) {
        errno = f;
        return -1;
    }
    if (f == 0)
        return __real_sendmsg(fd, msg, flags);
    m = cut(msg, &one, (size_t)-f);
    return __real_sendmsg(fd, &m, flags);
}

/* ---- the rare ones --------------------------------------------------------------------------- */

static bool fails(enum rare call)
{
    if (faults.paused > 0 || faults.rare != call || faults.rare_in == 0 || --faults.rare_in > 0)
        return false;
    errno = faults.rare_errno;
    return true;
}

int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);
int __real_fcntl(int fd, int cmd, long arg);
int __wrap_fcntl(int fd, int cmd, long arg);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __real_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len);

/* Taking a descriptor out of the set has no reason to fail. */
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
    return op != EPOLL_CTL_DEL && fails(RARE_EPOLL_CTL) ? -1 : __real_epoll_ctl(epfd, op, fd, ev);
}

int __wrap_epoll_create1(int flags)
{
    return fails(RARE_EPOLL_CREATE) ? -1 : __real_epoll_create1(flags);
}

int __wrap_eventfd(unsigned count, int flags)
{
    return fails(RARE_EVENTFD) ? -1 : __real_eventfd(count, flags);
}

int __wrap_timerfd_create(int clock, int flags)
{
    return fails(RARE_TIMERFD) ? -1 : __real_timerfd_create(clock, flags);
}

int __wrap_fcntl(int fd, int cmd, long arg)
{
    return fails(RARE_FCNTL) ? -1 : __real_fcntl(fd, cmd, arg);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    return fails(RARE_SETSOCKOPT) ? -1 : __real_setsockopt(fd, level, name, value, len);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    return fails(RARE_GETSOCKOPT) ? -1 : __real_getsockopt(fd, level, name, value, len);
}

int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
    return fails(RARE_GETPEERNAME) ? -1 : __real_getpeername(fd, addr, len);
}
