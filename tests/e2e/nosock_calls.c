/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that fail on order. See nosock_calls.h. */
#include "nosock_calls.h"

#include "check.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static atomic_int armed = -1; /* enum nosock_call */
static atomic_int left, code, hits;
static _Thread_local bool exempt;

#define COSTS(name, code)                                                                          \
    {                                                                                              \
#name, NOSOCK_##name, code, false                                                          \
    }
#define FREE(name, code)                                                                           \
    {                                                                                              \
#name, NOSOCK_##name, code, true                                                           \
    }

const struct nosock_fault nosock_faults[] = {
    COSTS(socket, EMFILE),
    COSTS(socket, ENOBUFS),
    COSTS(connect, ECONNREFUSED),
    COSTS(connect, EADDRNOTAVAIL),
    COSTS(connect, ENETUNREACH),
    COSTS(bind, EADDRINUSE),
    COSTS(bind, EACCES),
    COSTS(bind, EADDRNOTAVAIL),
    COSTS(listen, EADDRINUSE),
    FREE(accept4, EMFILE),
    FREE(accept4, ECONNABORTED),
    FREE(accept4, ENOMEM),
    FREE(accept4, EINTR),
    FREE(accept4, EAGAIN),
    COSTS(fcntl, EMFILE),
    COSTS(getsockopt, ENOBUFS),
    FREE(setsockopt, ENOPROTOOPT),
    COSTS(getsockname, ENOBUFS),
    COSTS(getpeername, ENOBUFS),
    COSTS(recvmsg, ECONNRESET),
    COSTS(recvmsg, ENOMEM),
    COSTS(recvmsg, EIO),
    FREE(recvmsg, EINTR),
    FREE(recvmsg, EAGAIN),
    FREE(recv, EINTR),
    FREE(recv, ECONNRESET),
    COSTS(sendmsg, EPIPE),
    COSTS(sendmsg, ECONNRESET),
    COSTS(sendmsg, ENOBUFS),
    FREE(sendmsg, EINTR),
    FREE(sendmsg, EAGAIN),
    FREE(shutdown, ENOTCONN),
    COSTS(epoll_create1, EMFILE),
    COSTS(epoll_create1, ENOMEM),
    COSTS(epoll_ctl, ENOMEM),
    COSTS(epoll_ctl, ENOSPC),
    FREE(epoll_wait, EINTR),
    COSTS(eventfd, EMFILE),
    COSTS(eventfd, ENOMEM),
    FREE(read, EINTR),
    FREE(read, EAGAIN),
    FREE(write, EINTR),
    FREE(write, EAGAIN),
    FREE(close, EINTR),
    FREE(close, EIO),
    FREE(poll, EINTR),
    COSTS(timerfd_create, EMFILE),
    FREE(timerfd_settime, EINVAL),
    COSTS(pthread_create, EAGAIN),
    COSTS(getaddrinfo, EAI_AGAIN),
    COSTS(getaddrinfo, EAI_MEMORY),
    COSTS(getaddrinfo, EAI_SYSTEM),
    FREE(getnameinfo, EAI_MEMORY),
    {.name = NULL},
};

void nosock_arm(const struct nosock_fault *fault, int n)
{
    atomic_store(&armed, -1);
    atomic_store(&hits, 0);
    if (!fault)
        return;
    atomic_store(&code, fault->code);
    atomic_store(&left, n);
    atomic_store(&armed, (int)fault->call);
}

bool nosock_hit(void)
{
    return atomic_load(&hits) > 0;
}

void nosock_exempt(bool yes)
{
    exempt = yes;
}

/* 0, or what this call fails with. */
static int strike(enum nosock_call call)
{
    if (exempt || atomic_load(&armed) != (int)call || atomic_load(&left) <= 0 ||
        atomic_fetch_sub(&left, 1) != 1)
        return 0;
    atomic_fetch_add(&hits, 1);
    return atomic_load(&code);
}

static int fail_with(int err)
{
    errno = err;
    return -1;
}

/* A call that gives -1 and errno. */
#define CALL(type, name, params, args)                                                             \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        const int err = strike(NOSOCK_##name);                                                     \
        return err ? fail_with(err) : __real_##name args;                                          \
    }
/* One that gives the code itself. */
#define CODE_CALL(name, params, args)                                                              \
    int __real_##name params;                                                                      \
    int __wrap_##name params;                                                                      \
    int __wrap_##name params                                                                       \
    {                                                                                              \
        const int err = strike(NOSOCK_##name);                                                     \
        return err ? err : __real_##name args;                                                     \
    }

CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
CALL(int, bind, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len))
CALL(int, listen, (int fd, int backlog), (fd, backlog))
CALL(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags),
     (fd, addr, len, flags))
CALL(int, fcntl, (int fd, int cmd, long arg), (fd, cmd, arg))
CALL(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len),
     (fd, level, name, value, len))
CALL(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len),
     (fd, level, name, value, len))
CALL(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
CALL(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len))
CALL(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags))
CALL(ssize_t, recv, (int fd, void *data, size_t n, int flags), (fd, data, n, flags))
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags))
CALL(int, shutdown, (int fd, int how), (fd, how))
CALL(int, epoll_create1, (int flags), (flags))
CALL(int, epoll_wait, (int epfd, struct epoll_event *events, int max, int timeout),
     (epfd, events, max, timeout))
CALL(int, eventfd, (unsigned count, int flags), (count, flags))
CALL(ssize_t, read, (int fd, void *data, size_t n), (fd, data, n))
CALL(int, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout))
CALL(int, timerfd_create, (int clock, int flags), (clock, flags))
CALL(int, timerfd_settime, (int fd, int flags, const struct itimerspec *in, struct itimerspec *out),
     (fd, flags, in, out))
CODE_CALL(getnameinfo,
          (const struct sockaddr *addr, socklen_t len, char *host, socklen_t host_len, char *port,
           socklen_t port_len, int flags),
          (addr, len, host, host_len, port, port_len, flags))

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int __real_close(int fd);
int __wrap_close(int fd);

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

/* A name takes a moment, so that there is somebody who waits for it. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    const int err = strike(NOSOCK_getaddrinfo);

    if (!(hints->ai_flags & AI_NUMERICHOST))
        check_sleep_ms(3);
    errno = err ? EMFILE : errno; /* of EAI_SYSTEM */
    return err ? err : __real_getaddrinfo(host, port, hints, out);
}

struct start {
    void *(*fn)(void *);
    void *arg;
};

static void *exempt_main(void *arg)
{
    const struct start start = *(struct start *)arg;

    free(arg);
    exempt = true;
    return start.fn(start.arg);
}

/* What an exempt thread starts is exempt, too. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
    struct start *start;
    int err = strike(NOSOCK_pthread_create);

    if (err || !exempt)
        return err ? err : __real_pthread_create(thread, attr, fn, arg);
    start = malloc(sizeof *start);
    if (!start)
        return ENOMEM;
    *start = (struct start){fn, arg};
    err = __real_pthread_create(thread, attr, exempt_main, start);
    if (err)
        free(start);
    return err;
}

/* Taking a descriptor out has no reason to fail. */
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
    const int err = op == EPOLL_CTL_DEL ? 0 : strike(NOSOCK_epoll_ctl);

    return err ? fail_with(err) : __real_epoll_ctl(epfd, op, fd, ev);
}

/* An eventfd says EAGAIN when it is full, and so set already. */
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    const int err = strike(NOSOCK_write);

    if (err == EINTR)
        return fail_with(err);
    ssize_t r = __real_write(fd, data, n);
    return err ? fail_with(err) : r;
}

/* The descriptor is gone whatever close() says (Linux). */
int __wrap_close(int fd)
{
    const int err = strike(NOSOCK_close);
    const int r = __real_close(fd);

    return err ? fail_with(err) : r;
}
