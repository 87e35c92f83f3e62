/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that fail on order: the n-th one that the library makes, of one kind, with one errno.
 * Linked with --wrap; threads of the test are exempt. nosock_names.py checks that no call of the
 * library is missing here.
 */
#ifndef TESTS_NOSOCK_CALLS_H
#define TESTS_NOSOCK_CALLS_H

#include <stdbool.h>

#define NOSOCK_NAMES(X)                                                                            \
    X(socket)                                                                                      \
    X(connect)                                                                                     \
    X(bind)                                                                                        \
    X(listen)                                                                                      \
    X(accept4)                                                                                     \
    X(fcntl)                                                                                       \
    X(getsockopt)                                                                                  \
    X(setsockopt)                                                                                  \
    X(getsockname)                                                                                 \
    X(getpeername)                                                                                 \
    X(recvmsg)                                                                                     \
    X(recv)                                                                                        \
    X(sendmsg)                                                                                     \
    X(shutdown)                                                                                    \
    X(epoll_create1)                                                                               \
    X(epoll_ctl)                                                                                   \
    X(epoll_wait)                                                                                  \
    X(eventfd)                                                                                     \
    X(read)                                                                                        \
    X(write)                                                                                       \
    X(close)                                                                                       \
    X(poll)                                                                                        \
    X(timerfd_create)                                                                              \
    X(timerfd_settime)                                                                             \
    X(pthread_create)                                                                              \
    X(getaddrinfo)                                                                                 \
    X(getnameinfo)

enum nosock_call {
#define NOSOCK_ENUM_(name) NOSOCK_##name,
    NOSOCK_NAMES(NOSOCK_ENUM_)
#undef NOSOCK_ENUM_
        NOSOCK_CALLS
};

struct nosock_fault {
    const char *name;
    enum nosock_call call;
    int code;
    bool free; /* nothing may come of it: the session goes on */
};

/* All of them; the last one has no name. */
extern const struct nosock_fault nosock_faults[];

/* From now on the n-th call fails, once. */
void nosock_arm(const struct nosock_fault *fault, int n);
/* Whether it has come to that. */
bool nosock_hit(void);
/* This thread belongs to the test (true), or calls the library now (false). */
void nosock_exempt(bool yes);

#endif
