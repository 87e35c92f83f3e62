/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted peer: plain blocking sockets and the header codec, nothing else of the library, so that
 * it can behave well or do anything wrong. One thread drives one peer.
 */
#ifndef TESTS_PEER_H
#define TESTS_PEER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define PEER_STREAMS 8

struct peer_stream {
    bool used;
    char name[52];
    uint32_t id;     /* CLBI_ID_NONE until the host has answered */
    uint64_t window; /* ours, 0 = we do not write */
    uint64_t their_window;
    uint64_t fill; /* bytes written and not released */
    uint32_t fill_packets;
    uint64_t sent, acked, nacked, released, released_bytes;
    bool created; /* the other side created its half */
};

struct peer {
    int fd;
    bool host; /* our role */
    int32_t next_id;
    bool mute_releases; /* READ_REL_REQ is taken but never answered */
    bool deaf;          /* nothing is answered */
    bool by_hand;       /* writes were sent by hand: releases are only counted */
    bool limited;       /* may send only so many bytes more; then it is dead, and sends nothing */
    size_t send_left;
    bool dead;
    bool eof, got_reset, reset_answered;
    uint32_t pings, pongs;
    struct peer_stream stream[PEER_STREAMS];
    /* releases in order of arrival, sizes; the last 256 */
    uint32_t rel_log[256];
    uint32_t rel_count;
    int32_t last_release_id;      /* of the last READ_REL_REQ taken */
    struct clbi_wire_header last; /* the last header taken */
    pthread_t thread;
    int listen_fd; /* of peer_accept_later, and what follows it there */
    void (*fn_later)(struct peer *p, void *arg);
    void *arg_later;
    void (*fn)(struct peer *p, void *arg);
    void *arg;
};

/* A socketpair: p->fd is ours, the other end is returned. */
int peer_pair(struct peer *p, bool host);
/* A TCP listener on 127.0.0.1; *port is its port. */
int peer_listen(uint16_t *port);
/* Accepts one connection (5 s at most) in the device role. */
void peer_accept(struct peer *p, int listen_fd);
/* Connects to 127.0.0.1:port in the host role. */
void peer_connect(struct peer *p, uint16_t port);
void peer_close(struct peer *p);
/* Closes with RST. */
void peer_abort(struct peer *p);

/* Runs fn(p, arg) on a thread; join waits for it. */
void peer_start(struct peer *p, void (*fn)(struct peer *p, void *arg), void *arg);
void peer_join(struct peer *p);
/* On a thread: accepts one connection as peer_accept does, then runs fn(p, arg). */
void peer_accept_later(struct peer *p, int listen_fd, void (*fn)(struct peer *p, void *arg),
                       void *arg);

/* Raw: anything may be said. false = the other side is gone. */
bool peer_send_raw(struct peer *p, const void *data, size_t n);
bool peer_send_header(struct peer *p, uint32_t type, int32_t id, const char *name,
                      uint32_t stream_id, uint32_t size, uint32_t flags);
/* The next header within ms, with its payload (if it is a WRITE) in *payload (malloc'ed, may be
 * NULL = dropped). false = none, or end of the stream (p->eof). */
bool peer_recv(struct peer *p, struct clbi_wire_header *h, void **payload, int ms);

/* Well-behaved: takes one header within ms, keeps the books and answers. false = nothing came. */
bool peer_pump(struct peer *p, int ms);
/* Pumps until cond(p, arg) or ms have passed; returns the condition. */
bool peer_pump_until(struct peer *p, bool (*cond)(struct peer *p, void *arg), void *arg, int ms);
/* Pumps until the end of the stream, ms at most. */
void peer_pump_to_end(struct peer *p, int ms);

/* Device: waits for the PING and answers. Host: sends PING and waits. */
bool peer_handshake(struct peer *p);
/* Sends CREATE and waits for the answer. Returns the index. */
int peer_create(struct peer *p, const char *name, uint32_t window);
/* One WRITE of n bytes; waits for credit, ms at most. false = no credit or gone. */
bool peer_write(struct peer *p, int stream, const void *data, uint32_t n, int ms);
/* The same with every byte = value. */
bool peer_write_fill(struct peer *p, int stream, int value, uint32_t n, int ms);
/* Pumps until the packets sent on all streams are acknowledged. */
bool peer_wait_acked(struct peer *p, int ms);

#endif
