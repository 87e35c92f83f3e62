/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits as users feel them: a scene is one link of ours, in either role, and a scripted peer that
 * stops at some point. The clock runs from the peer's last move. Afterwards a fresh link to the same
 * address works.
 */
#ifndef TESTS_DEADLINE_KIT_H
#define TESTS_DEADLINE_KIT_H

#include <clbridge/clbridge.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cases.h"
#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
/* More than the sockets of both ends hold. */
#define MUCH (8u << 20)

enum where { HOST_TCP, DEVICE_TCP, HOST_UNIX, DEVICE_UNIX, PLACES };

struct scene;
typedef void (*script)(struct peer *p, struct scene *sc);

struct scene {
    enum where where;
    script fn;
    int arg;
    clb_link_params params; /* uri, loop and struct_size are filled in */
    bool no_handshake;      /* the script begins at the first byte */
    bool driven;            /* on a caller-driven loop */
    bool nonblock;          /* the descriptor that is adopted */

    struct peer peer;
    clb_loop *loop;
    clb_link *link;
    clb_stream *s;
    struct talloc mem;
    int l; /* HOST_TCP: of the peer */
    uint16_t port;
    char uri[64];
    clb_listener *listener;    /* DEVICE_TCP: ours */
    int fd;                    /* UNIX: what is adopted; -1 when it was */
    atomic_int over;           /* the script may end */
    atomic_int_fast64_t moved; /* when the peer did something last */
    atomic_int made;           /* steps that the script has made */
};

static inline bool is_device(const struct scene *sc)
{
    return sc->where == DEVICE_TCP || sc->where == DEVICE_UNIX;
}

/* Opens the link, *params of the scene apply; the result of the call. */
int scene_open(struct scene *sc);
/* Opens stream "a" with the booking allocator; the result of the call. */
int scene_stream(struct scene *sc, uint32_t write_window, int64_t timeout_ns);
/* Ends all, checks the buffers and tries a fresh link to the same address. */
void scene_end(struct scene *sc);
/* Waits until the script has made n steps. */
void scene_await(struct scene *sc, int n);
/* Waits until the link is down, and checks why; it must be so within limit_ms of the last move. */
void scene_lost(struct scene *sc, int err, int limit_ms);

/* For scripts. */
void moved(struct scene *sc);
void step(struct scene *sc);
void stay(struct scene *sc);                        /* in silence, until the scene is over */
void stay_polite(struct peer *p, struct scene *sc); /* the same, but answers */
/* Announces "a" and answers until our side has opened it. */
int announced(struct peer *p, uint32_t window);

/* since: check_ms() */
void in_time(int64_t since, int limit_ms);

/* A whole session of a well-behaved peer over a listening socket of the peer, or our listener. */
void fresh_host(int listen_fd, uint16_t port);
void fresh_device(clb_listener *listener);

/* A thread that makes one call on the scene's link; call_ends waits for it. */
struct call {
    struct scene *sc;
    int (*fn)(struct scene *sc);
    pthread_t thread;
    atomic_int result; /* 1 = inside */
};
void call_begin(struct call *c, struct scene *sc, int (*fn)(struct scene *sc));
int call_end(struct call *c);

/* ---- cases: deadline_connect.c, _progress.c, _write.c, _close.c, _alive.c ---------------------- */

#define ADDR(x) (&(const int){x})

void connect_silent(const void *arg);
void connect_backlog(const void *arg);
void connect_dribble(const void *arg);
void connect_gone(const void *arg);
void resolve_hangs(const void *arg);
void resolve_hangs_listener(const void *arg);
void first_ping(const void *arg);
void first_ping_listener(const void *arg);
void adopt_gives_back(const void *arg);
void adopt_gives_back_tcp(const void *arg);

struct header_case {
    enum where where;
    int limit, pause, bytes;
    bool driven;
};
#define HEADER_STOPS(...) header_stops, (&(const struct header_case){__VA_ARGS__})
void header_stops(const void *arg);
void payload_stops(const void *arg);
void drain_stops(const void *arg);
void slow_but_moving(const void *arg);
void stall_behind_writes(const void *arg);

void write_without_credit(const void *arg);
void write_not_taken(const void *arg);
void write_not_taken_cut(const void *arg);
void write_not_answered(const void *arg);
void write_behind_a_stuck_one(const void *arg);
void flush_not_answered(const void *arg);
void open_not_answered(const void *arg);
void reads_time_out(const void *arg);

void close_not_answered(const void *arg);
void close_not_read(const void *arg);
void close_after_reset(const void *arg);
void close_after_endless_shutdown(const void *arg);
void close_keeps_unread_packets(const void *arg);
void shutdown_not_answered(const void *arg);
void listener_close_many(const void *arg);

void idle(const void *arg);
void keepalive_keeps(const void *arg);
void keepalive_while_paused(const void *arg);
void keepalive_of_two_of_ours(const void *arg);

void shutdown_under(const void *arg);
void shutdown_in_callback(const void *arg);
void shutdown_storm(const void *arg);

#endif
