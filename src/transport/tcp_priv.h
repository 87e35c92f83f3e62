/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the TCP transport share.
 */
#ifndef CLBI_TCP_PRIV_H
#define CLBI_TCP_PRIV_H

#include "transport.h"
#include "uri.h"

#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define CLBI_TCP_PORT 11490
#define CLBI_TCP_BUDGET 64 /* system calls per wake-up */

enum tcp_state {
    ST_RESOLVING,
    ST_CONNECTING,
    ST_UP,
    ST_DEAD,    /* the connection never came up; close() is all that is left */
    ST_CLOSING, /* close() was called */
};

/* A receive in progress: where the next byte goes. */
struct tcp_rx {
    const struct clbi_seg *segs; /* NULL = none outstanding */
    size_t n;
    size_t seg, row, byte; /* the cursor; byte counts the gap behind the row, too */
    size_t ahead;
    size_t total;        /* bytes of the segments */
    size_t done;         /* of these, what is in */
    int64_t waits_since; /* with a packet begun, 0 = it does not wait */
    bool canceled;       /* completes from the defer */
    /* The last read came back short: the socket was empty, and EPOLLIN tells when it is not. */
    bool drained;
    /* What was read beyond the segments. */
    size_t look_at, look_len;
    uint8_t look[CLBI_RECV_AHEAD_MAX];
};

struct tcp_tx {
    const struct iovec *iov; /* NULL = none outstanding */
    size_t n;
    size_t at, byte; /* the cursor */
    size_t done;
};

struct clbi_transport {
    struct clbi_transport_env env;
    enum tcp_state state;
    int fd;     /* -1 = none. Without O_NONBLOCK when adopted: the flag is not ours alone, so every
               call says MSG_DONTWAIT */
    int domain; /* AF_ */
    char peer[128];

    struct clbi_watch watch; /* of fd */
    bool watched;
    struct clbi_defer defer;

    /* Opening. */
    struct clbi_tcp_resolve *resolve; /* NULL = none in progress */
    struct clbi_watch resolve_watch;
    struct addrinfo *addrs, *addr; /* all, and the one being tried */
    int64_t attempt_end;           /* when the next one gets its turn, CLBI_NEVER = not */
    struct clb_status failure;     /* of the last attempt */
    int open_told; /* result that on_open gets from the defer; CLBI_PENDING = none */

    struct tcp_rx rx;
    struct tcp_tx tx;
    unsigned budget; /* system calls that this wake-up may still make */
    atomic_int lost; /* errno that told the loss; an end of stream after it is none */
    size_t wake_at;  /* SO_RCVLOWAT */
    unsigned gaps;   /* see rx_woken in tcp_io.c */
    enum clbi_leave leave;
    int found_nodelay; /* by adopt() */
    uint64_t rx_total, tx_total;
};

/* ---- tcp_io.c -------------------------------------------------------------------------------- */

int clbi_tcp_recv_start(struct clbi_transport *t, const struct clbi_seg *segs, size_t n,
                        size_t ahead, struct clb_status *st);
void clbi_tcp_recv_cancel(struct clbi_transport *t);
int clbi_tcp_send(struct clbi_transport *t, const struct iovec *iov, size_t n,
                  struct clb_status *st);
int clbi_tcp_send_now(struct clbi_transport *t, const struct iovec *iov, size_t n, size_t *sent,
                      struct clb_status *st);
/* Between two wake-ups: takes what has come meanwhile. */
void clbi_tcp_look(struct clbi_transport *t);
/* The socket of a connection that is up has something to say. */
void clbi_tcp_io_event(struct clbi_transport *t, uint32_t events);
/* Asks the loop for these events; 0 or errno. */
int clbi_tcp_want(struct clbi_transport *t, uint32_t events);
void clbi_tcp_unwatch(struct clbi_transport *t);

/* ---- tcp_resolve.c --------------------------------------------------------------------------- */

/* Fails like clbi_fail, with the system's message in the middle: "WHAT: MESSAGE; HINT". */
int clbi_tcp_fail(struct clb_status *st, const struct clb_log *log, enum clb_error err, int native,
                  const char *hint, const char *fmt, ...) CLBI_PRINTF(6, 7);

/* "127.0.0.1:80", "[::1]:80", "unix". */
void clbi_tcp_addr_text(char *out, size_t cap, const struct sockaddr *addr, socklen_t len);

/* Numeric addresses, at once. 0 or an EAI_ code. */
int clbi_tcp_numeric(const struct clbi_hostport *hp, int flags, struct addrinfo **out);

/* Names, by a thread of its own, which may outlive everybody: the system's resolver cannot be
 * stopped. NULL with errno when it cannot be started. */
struct clbi_tcp_resolve *clbi_tcp_resolve_start(const struct clbi_hostport *hp, int flags);
/* Readable when the result is there. */
int clbi_tcp_resolve_fd(const struct clbi_tcp_resolve *job);
/* CLB_OK with *out the caller's (freeaddrinfo), AGAIN, or the failure. */
int clbi_tcp_resolve_result(struct clbi_tcp_resolve *job, struct addrinfo **out,
                            struct clb_status *st, const struct clb_log *log);
/* The caller is not interested any more (or is done). */
void clbi_tcp_resolve_drop(struct clbi_tcp_resolve *job);
/* The failure of a resolution as a status. */
int clbi_tcp_resolve_fail(struct clb_status *st, const struct clb_log *log, const char *host,
                          int gai, int sys);

/* ---- tcp_listen.c ---------------------------------------------------------------------------- */

int clbi_tcp_listen(struct clbi_acceptor **out, const struct clbi_acceptor_env *env,
                    const char *address, int64_t deadline, char *uri, size_t uri_cap,
                    struct clb_status *st);
int clbi_tcp_accept_start(struct clbi_acceptor *a);
void clbi_tcp_accept_stop(struct clbi_acceptor *a);
void clbi_tcp_accept_close(struct clbi_acceptor *a);

#endif
