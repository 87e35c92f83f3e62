/* SPDX-License-Identifier: Apache-2.0 */
/* What the flow control tests share: a link adopted from a socketpair, small pools, a peer that writes
 * numbered packets, and a gate that keeps two threads in step. */
#ifndef TESTS_FLOW_KIT_H
#define TESTS_FLOW_KIT_H

#include <clbridge/clbridge.h>
#include <pthread.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define PKT 4096u

static inline clb_link *adopt(int fd)
{
    clb_link *link = NULL;
    struct clb_status st = {0};
    int err = clb_link_adopt(&link, fd, CLB_ROLE_HOST,
                             clb_link_params(.status = &st, .log = {.cb = clb_log_stderr}));
    if (err < 0) {
        fprintf(stderr, "%s\n", st.text);
    }
    CHECK_EQ(err, CLB_OK);
    return link;
}

static inline clb_host_pool *pool_of(uint32_t count)
{
    clb_host_pool *pool = NULL;
    clb_host_pool_params p = {.struct_size = sizeof p, .buf_size = PKT, .count = count};
    CHECK_EQ(clb_host_pool_create(&pool, &p), CLB_OK);
    return pool;
}

static inline clb_stream *open_stream(clb_link *link, const char *name, clb_host_pool *pool,
                                      enum clb_full on_full, uint32_t queue_len)
{
    clb_stream *s = NULL;
    clb_stream_params p = {.struct_size = sizeof p, .name = name};
    if (pool) {
        p.allocator = clb_host_pool_allocator(pool);
    }
    p.on_full = on_full;
    p.queue_len = queue_len;
    CHECK_EQ(clb_stream_open(&s, link, &p), CLB_OK);
    return s;
}

static inline clb_stream_stats stats_of(clb_stream *s)
{
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    return st;
}

/* Waits until the stream has seen n packets arrive. */
static inline void wait_packets(clb_stream *s, uint64_t n)
{
    for (int i = 0; i < 1000 && stats_of(s).packets < n; i++) {
        check_sleep_ms(5);
    }
    CHECK_EQ(stats_of(s).packets, n);
}

/* Reads one packet whose every byte is value. */
static inline clb_packet *read_value(clb_stream *s, int value)
{
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
    const uint8_t *d = clb_packet_data(p);
    CHECK_EQ(clb_packet_size(p), PKT);
    CHECK_EQ(d[0], value);
    CHECK_EQ(d[PKT - 1], value);
    return p;
}

/* ---- a peer that writes n packets of value i & 255 on each of its streams --------------------- */

struct script {
    int streams;
    uint32_t window; /* packets */
    uint32_t packets;
    bool mute;
    bool no_wait; /* writes what the credit allows, then waits for credit without end */
};

static inline void run_script(struct peer *p, void *arg)
{
    const struct script *sc = arg;
    static const char *const names[] = {"a", "b"};
    int index[2];
    p->mute_releases = sc->mute;
    CHECK(peer_handshake(p));
    for (int k = 0; k < sc->streams; k++) {
        index[k] = peer_create(p, names[k], sc->window * PKT);
    }
    uint32_t sent[2] = {0, 0};
    const int64_t until = check_ms() + 60000;
    for (;;) {
        bool all = true;
        for (int k = 0; k < sc->streams; k++) {
            struct peer_stream *s = &p->stream[index[k]];
            if (sent[k] < sc->packets) {
                all = false;
                if (s->fill_packets < 64 && s->fill + PKT <= s->window &&
                    peer_write_fill(p, index[k], (int)(sent[k] & 255), PKT, 0)) {
                    sent[k]++;
                }
            }
        }
        if (all || p->eof || check_ms() > until) {
            break;
        }
        peer_pump(p, 1);
    }
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

static inline void finish(clb_link **link, struct peer *p)
{
    clb_link_close(link);
    peer_join(p);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int level;
};

static inline void gate_to(struct gate *g, int level)
{
    pthread_mutex_lock(&g->lock);
    g->level = level;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

static inline void gate_wait(struct gate *g, int level)
{
    pthread_mutex_lock(&g->lock);
    while (g->level < level) {
        pthread_cond_wait(&g->cond, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

/* Runs a case and sees that it leaves no thread and no descriptor. */
#define RUN(f)                                                                                     \
    do {                                                                                           \
        const int fds = check_fds(), threads = check_threads();                                    \
        fprintf(stderr, "%s\n", #f);                                                               \
        f;                                                                                         \
        check_back_to(fds, threads);                                                               \
    } while (0)

#endif
