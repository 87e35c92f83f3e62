/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many links on one loop, with a thread or driven by its caller: they open, carry packets and die at
 * random, in every way that a link can, and what is left over afterwards is nothing. No link starves
 * while others come and go. 256 at once work.
 *
 *   test_many_links [SEED]
 */
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "check.h"
#include "many_links.h"

/* ---- links that come and go ------------------------------------------------------------------- */

/* Each driver looks after its places, one after the other, for so long. */
static void *drive(void *arg)
{
    struct driver *d = arg;
    const int64_t end = check_ms() + d->ms;
    while (check_ms() < end) {
        struct place *pl = &d->places[random_below(&d->random, d->count)];
        if (pl->fate == FATE_NONE) {
            place_open(d, pl);
        } else if (place_look(pl) && random_below(&d->random, 100) < 12) {
            place_end(d, pl, false);
        }
    }
    /* All live now, and nothing ends: each must get something, however many there are. */
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->places[i].fate == FATE_NONE) {
            place_open(d, &d->places[i]);
        }
        d->places[i].mark = d->places[i].got;
    }
    const int64_t limit = check_ms() + 20000;
    for (uint32_t left = d->count; left > 0;) {
        left = 0;
        for (uint32_t i = 0; i < d->count; i++) {
            struct place *pl = &d->places[i];
            place_look(pl);
            left += pl->got < pl->mark + 5 && !pl->ended && atomic_load(&pl->order) == FATE_NONE;
        }
        if (check_ms() > limit) {
            fprintf(stderr, "%u links starve\n", left);
            _Exit(1);
        }
    }
    for (int last = 0; last < 2; last++) {
        for (uint32_t i = 0; i < d->count; i++) {
            /* Those that take their time take it together. */
            if (last || d->places[i].fate == FATE_PEER_SILENT) {
                place_end(d, &d->places[i], last);
            }
        }
    }
    return NULL;
}

#define DRIVERS 4
#define PLACES 48

static void come_and_go(int caller_driven, int ms, uint64_t seed)
{
    const int fds = check_fds(), threads = check_threads();
    const uint32_t drivers = caller_driven ? 1 : DRIVERS;
    struct place *places = calloc(PLACES, sizeof *places);
    struct driver d[DRIVERS] = {{0}};
    clb_loop *loop = NULL;
    uint32_t made[FATES] = {0}, all = 0;
    CHECK(places != NULL);
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = caller_driven)), CLB_OK);
    for (uint32_t i = 0; i < drivers; i++) {
        d[i] = (struct driver){.loop = loop,
                               .caller_driven = caller_driven,
                               .places = places + i * (PLACES / drivers),
                               .count = PLACES / drivers,
                               .ms = ms,
                               .random = seed + i};
        if (!caller_driven) {
            CHECK_EQ(pthread_create(&d[i].thread, NULL, drive, &d[i]), 0);
        }
    }
    if (caller_driven) {
        drive(&d[0]);
    }
    for (uint32_t i = 0; i < drivers; i++) {
        if (!caller_driven) {
            CHECK_EQ(pthread_join(d[i].thread, NULL), 0);
        }
        for (int k = 0; k < FATES; k++) {
            made[k] += d[i].made[k];
            all += d[i].made[k];
        }
    }
    /* What callbacks have closed ends on the loop. */
    while (caller_driven && clb_loop_dispatch(loop, 0) == CLB_OK) {
    }
    clb_loop_destroy(&loop);
    check_back_to(fds, threads);
    for (uint32_t i = 0; i < PLACES; i++) {
        place_check(&places[i]);
    }
    free(places);
    fprintf(stderr, "%s: %u links:", caller_driven ? "caller-driven" : "one thread", all);
    for (int k = FATE_NONE + 1; k < FATES; k++) {
        fprintf(stderr, " %s %u", fate_name((enum fate)k), made[k]);
    }
    fprintf(stderr, "\n");
}

/* ---- many at once ----------------------------------------------------------------------------- */

#define AT_ONCE 256
#define LONG (60 * SEC)

struct pair {
    clb_link *host, *device;
    clb_stream *in, *out;
    uint32_t number; /* of the link, told by its first packet */
};

static void close_pairs(struct pair *pairs, int n, uint64_t *random)
{
    for (int left = n; left > 0; left--) {
        /* In any order, from either end, with or without what hangs on it. */
        int i = (int)random_below(random, (uint32_t)left);
        struct pair *p = &pairs[i];
        if (random_below(random, 2)) {
            clb_stream_close(&p->in);
        }
        if (random_below(random, 2)) {
            clb_link_close(&p->host);
        }
        clb_link_close(&p->device);
        clb_stream_close(&p->out);
        clb_link_close(&p->host);
        clb_stream_close(&p->in);
        *p = pairs[left - 1];
    }
}

/* Both ends of 256 links, and the listener, on one loop: 512 links. */
static void all_alive(int caller_driven, uint64_t seed)
{
    const int fds = check_fds(), threads = check_threads();
    struct pair *pairs = calloc(AT_ONCE, sizeof *pairs);
    clb_loop *loop = NULL;
    clb_listener *l = NULL;
    struct clb_status st = {0};
    CHECK(pairs != NULL);
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = caller_driven)), CLB_OK);
    /* No limit is tried out here: on a busy machine each would pass. */
    clb_link_params patient = {.struct_size = sizeof patient,
                               .loop = loop,
                               .connect_timeout_ns = LONG,
                               .idle_timeout_ns = -1,
                               .progress_timeout_ns = -1,
                               .close_timeout_ns = LONG,
                               .status = &st};
    clb_listener_params lp = {
        .struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = AT_ONCE};
    lp.link = patient;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    for (int i = 0; i < AT_ONCE; i++) {
        patient.uri = clb_listener_uri(l);
        int err = clb_link_open(&pairs[i].host, &patient);
        if (err < 0) {
            fprintf(stderr, "link %d: %s\n", i, st.text);
        }
        CHECK_EQ(err, CLB_OK);
        CHECK_EQ(clb_listener_accept(l, &pairs[i].device, LONG), CLB_OK);
        CHECK_EQ(
            clb_stream_open(&pairs[i].out, pairs[i].device,
                            clb_stream_params(.name = "v", .write_window = 4096, .write_async = 1)),
            CLB_OK);
        CHECK_EQ(clb_stream_open(&pairs[i].in, pairs[i].host,
                                 clb_stream_params(.name = "v", .open_timeout_ns = LONG)),
                 CLB_OK);
    }
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t words[2] = {i, round};
            const struct clb_iovec iov = {words, sizeof words};
            CHECK_EQ(clb_stream_write(pairs[i].out, &iov, 1, LONG), CLB_OK);
        }
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            clb_packet *p = NULL;
            uint32_t words[2];
            CHECK_EQ(clb_stream_read(pairs[i].in, &p, LONG), CLB_OK);
            CHECK_EQ(clb_packet_size(p), sizeof words);
            memcpy(words, clb_packet_data(p), sizeof words);
            CHECK_EQ(words[0], i);
            CHECK_EQ(words[1], round);
            clb_packet_free(&p);
        }
    }
    for (int i = 0; i < AT_ONCE; i++) {
        CHECK_EQ(clb_link_get_state(pairs[i].host, NULL), CLB_LINK_UP);
        CHECK_EQ(clb_link_get_state(pairs[i].device, NULL), CLB_LINK_UP);
        CHECK_EQ(clb_stream_flush(pairs[i].out, CLB_FLUSH_RELEASED, LONG), CLB_OK);
    }
    /* One more than max_links is turned away, and the others do not notice. */
    clb_link *surplus = NULL;
    CHECK(clb_link_open(&surplus, clb_link_params(.uri = clb_listener_uri(l), .loop = loop)) < 0);
    if (seed % 2) {
        clb_listener_close(&l);
    }
    close_pairs(pairs, AT_ONCE, &seed);
    clb_listener_close(&l);
    while (caller_driven && clb_loop_dispatch(loop, 0) == CLB_OK) {
    }
    clb_loop_destroy(&loop);
    check_back_to(fds, threads);
    free(pairs);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)check_ms();
    struct rlimit files;
    check_watchdog(200);
    /* 512 sockets, and some. */
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 2048 ? files.rlim_max : 2048;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
#define RUN(f)                                                                                     \
    do {                                                                                           \
        const int64_t start = check_ms();                                                          \
        f;                                                                                         \
        fprintf(stderr, "%s %d ms\n", #f, (int)(check_ms() - start));                              \
    } while (0)
    RUN(come_and_go(0, 1000, seed));
    RUN(come_and_go(1, 1000, seed + 100));
    RUN(all_alive(0, seed));
    RUN(all_alive(1, seed + 1));
    return 0;
}
