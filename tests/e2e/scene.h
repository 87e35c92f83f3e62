/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scene is one link of ours, in either role, and a scripted peer that stops or misbehaves at some
 * point. Where time matters the clock runs from the peer's last move. When the scene is over nothing
 * is left of it, and a fresh link to the same address works.
 */
#ifndef TESTS_SCENE_H
#define TESTS_SCENE_H

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

/* A thread that makes one call with the handles that the scene has now; call_end waits for it. */
struct call {
    clb_link *link;
    clb_stream *s;
    clb_listener *listener;
    int (*fn)(struct call *c);
    pthread_t thread;
    atomic_int result; /* 1 = inside */
};
void call_begin(struct call *c, const struct scene *sc, int (*fn)(struct call *c));
int call_end(struct call *c);
/* For fn: asks for streams until there is an error, which is the result. */
int call_next_streams(struct call *c);
/* Opens a stream (NULL = any) without limit, and closes it. */
int call_open_stream(struct call *c, const char *name);

/* Cases by place, for the table of a program. */
#define ADDR(x) (&(const int){x})
/* clang-format off */
#define BOTH(fn) {#fn ".host", fn, ADDR(HOST_TCP)}, {#fn ".device", fn, ADDR(DEVICE_TCP)}
#define BOTH_LOCAL(fn) {#fn ".host", fn, ADDR(HOST_UNIX)}, {#fn ".device", fn, ADDR(DEVICE_UNIX)}
#define ALONE(fn) {#fn, fn, NULL}
/* clang-format on */

#endif
