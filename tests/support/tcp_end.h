/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the TCP transport share: one transport on a loop of the test's own, a raw socket
 * as its peer, and wrappers of system calls (linked with --wrap: recvmsg, sendmsg, getaddrinfo,
 * setsockopt).
 */
#ifndef TCP_END_H
#define TCP_END_H

#include "check.h"
#include "mini_loop.h"

#include <stdbool.h>
#include <sys/socket.h>

/* Calls so far, without interrupted ones. */
extern unsigned recv_calls, send_calls;
extern unsigned quickacks; /* times that TCP_QUICKACK was set */
extern bool interrupt;     /* every other call fails with EINTR first */
extern size_t recv_limit;  /* at most this many bytes per call; 0 = no limit */
/* The resolver knows "several", which has these two addresses, and "slow", which takes its time to
 * fail. */
extern char several[2][64];

struct end {
    struct mini_loop *loop;
    struct clbi_transport *t;
    int opened, received, sent, closed; /* callbacks so far */
    struct clb_status open_st, recv_st, send_st;
    size_t recv_bytes, send_bytes;
};

#define TCP (&clbi_tcp_ops)

/* Steps until cond holds, 20 s at most. */
#define UNTIL(loop, cond)                                                                          \
    do {                                                                                           \
        const int64_t until_end = check_ms() + 20000;                                              \
        while (!(cond)) {                                                                          \
            mini_loop_step(loop, 20);                                                              \
            CHECK_LE(check_ms(), until_end);                                                       \
        }                                                                                          \
    } while (0)

/* The callbacks: they count, and keep what they were told. */
void on_open(void *owner, const struct clb_status *failure);
void on_recv(void *owner, size_t bytes, const struct clb_status *failure);
void on_send(void *owner, size_t bytes, const struct clb_status *failure);
void on_closed(void *owner);
struct clbi_transport_env env_of(struct end *e);

/* Lets the loop run dry, and what is on its way arrive. */
void settle(struct mini_loop *loop);
/* Closes and waits for the end. */
void end_close(struct end *e);

/* Raw peers. */
int listen_at(int family, int backlog, char *address, size_t cap);
/* A transport and a raw socket, connected: over loopback, or by a socketpair. */
int make_pair(struct mini_loop *loop, struct end *e, bool local);
void reset(int fd);
void put(int fd, const void *data, size_t n);

void fill(uint8_t *p, size_t n, unsigned seed);
struct clbi_seg plain(void *p, size_t n);
int start(struct end *e, const struct clbi_seg *segs, size_t n, size_t ahead);
/* Receives all, whether at once or later; the code. */
int receive(struct end *e, const struct clbi_seg *segs, size_t n, size_t ahead);

#endif
