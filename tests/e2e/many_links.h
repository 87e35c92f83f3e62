/* SPDX-License-Identifier: Apache-2.0 */
/* A place where one link after the other lives and dies, for the test of many links on one loop. */
#ifndef TESTS_MANY_LINKS_H
#define TESTS_MANY_LINKS_H

#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)

/* How a link ends. */
enum fate {
    FATE_NONE, /* there is no link */
    FATE_CLOSE,
    FATE_CLOSE_STREAM_FIRST,
    FATE_SHUTDOWN,
    FATE_PEER_CLOSES,
    FATE_PEER_RESETS,     /* the connection, with RST */
    FATE_PEER_SILENT,     /* until the idle limit */
    FATE_PEER_ENDS,       /* orderly, with RESET */
    FATE_STATE_CB,        /* the peer closes; closed by our state_cb */
    FATE_READY_CB,        /* closed by our ready_cb, amid packets */
    FATE_READY_CB_STREAM, /* the stream too */
    FATE_LISTENER,        /* came through a listener, which is closed before the link */
    FATE_LISTENER_ORPHAN, /* the listener is closed before anybody accepts */
    FATES
};
const char *fate_name(enum fate fate);

struct place {
    enum fate fate;
    struct talloc memory; /* of its stream: all of it comes back */
    bool memory_used;
    struct peer peer;
    bool has_peer;
    int listen_fd;
    atomic_int order; /* what the peer does next: a fate */
    clb_listener *listener;
    clb_link *other; /* the accepted end */
    clb_stream *other_stream;
    _Atomic(clb_link *) link;     /* whoever takes it closes it */
    _Atomic(clb_stream *) stream; /* likewise */
    atomic_int armed;             /* the callback may close */
    atomic_int downs;             /* told by state_cb */
    uint64_t got, mark;
    uint32_t sent;
    bool ended; /* the reader was told so */
};

struct driver {
    clb_loop *loop;
    int caller_driven;
    struct place *places;
    uint32_t count;
    int ms;
    uint64_t random;
    pthread_t thread;
    uint32_t made[FATES];
};

uint32_t random_below(uint64_t *state, uint32_t n);
void place_open(struct driver *d, struct place *pl);
/* Takes what is there, checks it. false = not a packet yet: too young to die. */
bool place_look(struct place *pl);
/* Ends the link as its fate has it, and waits until it is gone: but for the peer that falls silent,
 * which takes its time, unless this is the last round. */
void place_end(struct driver *d, struct place *pl, bool last);
/* All of its memory is back. */
void place_check(struct place *pl);

#endif
