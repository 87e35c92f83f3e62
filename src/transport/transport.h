/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall between links and transports. A transport moves bytes; it knows no protocol. A link knows
 * no sockets. Everything here is called on the thread that drives the loop, one call at a time;
 * nothing here blocks.
 *
 * Completion rule: recv_start and send either finish inside the call (CLBI_DONE, no callback), or
 * return CLBI_PENDING and exactly one on_recv / on_send follows from the loop, never from inside a
 * call into the transport, or fail with a negative code (no callback). At most one recv and one
 * send are outstanding, independent of each other: reading never waits for writing.
 *
 * Log rule: open, adopt and listen log their failures. Those of recv_start, send and their
 * completions are described in the status alone: the link judges them, and logs what it makes of
 * them.
 *
 * End rule: close() lets outstanding operations complete with CLB_ERR_CANCELED first, then calls
 * on_closed, the last callback; the transport is gone when it returns. All of this happens from the
 * loop, after close() returned.
 */
#ifndef CLBI_TRANSPORT_H
#define CLBI_TRANSPORT_H

#include <clbridge/common.h>
#include <clbridge/link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define CLBI_PENDING 1
#define CLBI_DONE 0

/* A strided piece of caller memory: rows of row_bytes, pitch apart. rows = 1: plain bytes. After each
 * row, the last one too, `gap` bytes of the stream are thrown away: they go to `sink`, which may be
 * written at any time and by all of them, and is never read. */
struct clbi_seg {
    void *base;
    size_t row_bytes, pitch;
    size_t rows;
    size_t gap; /* 0 = rows follow each other in the stream */
    void *sink; /* `gap` bytes */
};

/* A descriptor that the loop watches. Lives inside its owner; fd must stay open while watched. */
struct clbi_watch {
    int fd;
    uint32_t events; /* EPOLLIN | EPOLLOUT, level-triggered; 0 = only errors and hang-up */
    void (*cb)(void *priv, uint32_t events);
    void *priv;
};

/* Something to run once from the loop. Lives inside its owner. */
struct clbi_defer {
    void (*fn)(void *priv);
    void *priv;
    struct clbi_defer *next; /* the loop's; NULL and queued false when idle */
    bool queued;
};

/* What a transport may ask of the loop that drives it. */
struct clbi_loop_ops {
    int (*watch)(void *loop, struct clbi_watch *w);   /* 0 or errno */
    int (*rewatch)(void *loop, struct clbi_watch *w); /* events changed */
    void (*unwatch)(void *loop,
                    struct clbi_watch *w); /* no cb afterwards, also inside a dispatch */
    /* Runs fn(priv) once from the loop, soon; used to deliver a completion from outside a call. */
    void (*defer)(void *loop, struct clbi_defer *d);
    void (*undefer)(void *loop, struct clbi_defer *d);
};

/* The events of one connection. */
struct clbi_transport_env {
    void *owner;
    void (*on_open)(void *owner, const struct clb_status *failure); /* NULL = connected */
    /* All of recv_start's bytes are in (failure NULL), or `bytes` of them and the reason: CLOSED =
     * orderly end of the stream by the peer, LOST = reset, CANCELED, IO. */
    void (*on_recv)(void *owner, size_t bytes, const struct clb_status *failure);
    void (*on_send)(void *owner, size_t bytes, const struct clb_status *failure);
    /* A wake-up brought bytes of the outstanding receive, but not the last one: where no deadline
     * runs yet, one begins. What was in when recv_start returned is told by progress(). NULL = not
     * wanted. */
    void (*on_partial)(void *owner);
    void (*on_closed)(void *owner);
    void *loop;
    const struct clbi_loop_ops *loop_ops;
    struct clb_log log;
};

struct clbi_transport_limits {
    bool can_scatter;    /* rows > 1 and several segments */
    size_t max_segs;     /* the most segments of a recv_start; rows do not count (batched inside) */
    size_t packet_bytes; /* reads are best multiples of this; 1 = a byte stream */
};

/* What close() leaves behind. */
enum clbi_leave {
    CLBI_LEAVE_FLUSHED, /* what was sent still goes out, then the end of the stream */
    CLBI_LEAVE_CUT,  /* a peer that takes nothing: what it has not taken is thrown away at once */
    CLBI_LEAVE_OPEN, /* the connection belongs to another descriptor: it stays as it is, with the
                           settings that adopt() found */
};

struct clbi_transport; /* each transport defines its own */
struct clbi_acceptor;

struct clbi_acceptor_env {
    void *owner;
    void (*on_accept)(void *owner, int fd, const char *peer); /* owner owns fd from here on */
    void *loop;
    const struct clbi_loop_ops *loop_ops;
    struct clb_log log;
};

struct clbi_transport_ops {
    const char *scheme; /* "tcp" */
    enum clb_transport kind;
    struct clbi_transport_limits limits;

    /* Starts to connect to `address` (the URI behind "scheme://"). *out is valid on CLB_OK, then
     * on_open follows exactly once, unless close() comes first. On failure *st tells the cause. */
    int (*open)(struct clbi_transport **out, const struct clbi_transport_env *env,
                const char *address, struct clb_status *st);

    /* Takes a connected descriptor; no on_open. fd stays the caller's on failure. Optional. */
    int (*adopt)(struct clbi_transport **out, const struct clbi_transport_env *env, int fd,
                 struct clb_status *st);

    /* Receives exactly the bytes that segs describe. segs and the memory are borrowed until the
     * completion. `ahead` is how many bytes may be read beyond them into the transport's own memory
     * when they are there anyway (a following header, at most CLBI_RECV_AHEAD_MAX); the next
     * recv_start gets those first. CLBI_DONE, CLBI_PENDING or error with *st filled. */
    int (*recv_start)(struct clbi_transport *t, const struct clbi_seg *segs, size_t n, size_t ahead,
                      struct clb_status *st);
    /* Bytes that were read ahead and that the next recv_start will copy from there. */
    size_t (*looked_ahead)(const struct clbi_transport *t);
    /* The outstanding recv completes soon with CANCELED and the bytes that are in. */
    void (*recv_cancel)(struct clbi_transport *t);

    /* Sends all bytes of iov in order, as one gather send where possible. iov and memory are borrowed
     * until the completion. */
    int (*send)(struct clbi_transport *t, const struct iovec *iov, size_t n, struct clb_status *st);

    /* Sends as much of iov as can go out without waiting, and tells how much: CLBI_DONE = all,
     * CLBI_PENDING = the rest is for send(), or error. The one function for other threads than the
     * dispatching one: called while no send is outstanding, on a connection that is up, and close()
     * is not called before it has returned. Optional (NULL: everything is sent from the loop). */
    int (*send_now)(struct clbi_transport *t, const struct iovec *iov, size_t n, size_t *sent,
                    struct clb_status *st);

    /* Bytes moved so far in each direction, partial operations included: the link's progress
     * deadlines look at these. */
    void (*progress)(const struct clbi_transport *t, uint64_t *rx, uint64_t *tx);

    /* Fills peer, transport, usb_speed, serial. */
    void (*get_info)(const struct clbi_transport *t, clb_link_info *info);

    /* Starts the end, see above. Callable once, also before on_open. Unsent data is flushed as far
     * as the system does that by itself, unless leave() said otherwise. */
    void (*close)(struct clbi_transport *t);
    /* Before close(). Optional. */
    void (*leave)(struct clbi_transport *t, enum clbi_leave how);

    /* Work that is due at a time: NULL when there is none ever. dispatch is also called when the
     * link looks for progress: what has come is taken then, also where the transport would rather
     * have waited for more. */
    int64_t (*next_deadline)(const struct clbi_transport *t);
    void (*dispatch)(struct clbi_transport *t, int64_t now);

    /* Listening. `uri` receives the whole URI with the real port. deadline bounds name resolution;
     * this one call may block, it is made on the application's thread. Optional (NULL = NOSYS). */
    int (*listen)(struct clbi_acceptor **out, const struct clbi_acceptor_env *env,
                  const char *address, int64_t deadline, char *uri, size_t uri_cap,
                  struct clb_status *st);
    /* Joins / leaves the loop (on its thread). After stop no on_accept comes. */
    int (*accept_start)(struct clbi_acceptor *a);
    void (*accept_stop)(struct clbi_acceptor *a);
    void (*accept_close)(struct clbi_acceptor *a);
};

#define CLBI_RECV_AHEAD_MAX 512

extern const struct clbi_transport_ops clbi_tcp_ops;
extern const struct clbi_transport_ops clbi_usb_ops;
extern const struct clbi_transport_ops clbi_local_ops;

/* src/registry.c, the only file that names the transports. */
const struct clbi_transport_ops *clbi_transport_find(const char *scheme, size_t len);
/* The one that adopts this kind of descriptor (an AF_INET, AF_INET6 or AF_UNIX stream socket). */
const struct clbi_transport_ops *clbi_transport_for_fd(int fd);

#endif
