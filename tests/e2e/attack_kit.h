/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on one link while a pair of honest links shares its loop, and the pieces of which attackers
 * are made.
 */
#ifndef TESTS_ATTACK_KIT_H
#define TESTS_ATTACK_KIT_H

#include <clbridge/clbridge.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define WINDOW (1u << 20)
/* More than the sockets of both ends hold. */
#define WRITE_SIZE (8u << 20)

/* Two links on a loop that all attacks use; check sends a packet across. */
extern clb_loop *honest_loop;
void honest_start(void);
void honest_check(void);
void honest_stop(void);

struct attack {
    void (*fn)(struct peer *p, const struct attack *a);
    uint32_t arg, arg2;
    bool writes;  /* the victim writes */
    bool as_host; /* the attacker plays the host, the victim is in the device role */
    bool tcp;
    enum clb_full on_full;
    clb_link_params link;
    /* what the victim must see */
    int err;          /* of clb_link_get_state(), CLB_OK = it lives */
    uint64_t packets; /* complete ones */
    int allocs;       /* -1 = any */
    uint64_t nacks;   /* at least */
};

extern atomic_int over; /* the victim has seen enough */

/* Script of a peer, arg is a struct attack: says hello, attacks, stays there in silence. */
void run_attack(struct peer *p, void *arg);
/* A link under this attack, and everything that the attack says of it. */
void victim(struct attack a);

/* Announces "a" with a window of WINDOW bytes. */
int announce(struct peer *p);
void write_header(struct peer *p, uint32_t stream_id, uint32_t size);
/* Answers until the victim has opened its half. */
void until_opened(struct peer *p, int a);
void send_zeros(struct peer *p, size_t n);

uint32_t rnd(uint32_t *state);

/* ---- what is tried: attack_lies.c, attack_ends.c, attack_noise.c ------------------------------- */

void size_beyond_window(void);
void size_beyond_maximum(void);
void size_beyond_what_is_left(void);
void packets_beyond_64(void);
void empty_packets_beyond_64(void);
void stream_unknown_on_write(void);
void release_beyond_fill(void);
void release_of_nothing(void);
void create_flood(void);

void idle_is_no_stall(void);
void payload_cut_off(void);
void flood_unread(void);
void peer_never_reads(void);
void silent_clients(void);
void random_moments(bool shared, int threads_n, int rounds);

void noise(uint32_t rounds);

#endif
