/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flow control on a scripted peer: the three full-queue policies, spill, the pause before the first
 * open, peers that never answer releases, streams that nobody reads.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define PKT 4096u

static clb_link *adopt(int fd)
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

static clb_host_pool *pool_of(uint32_t count)
{
    clb_host_pool *pool = NULL;
    clb_host_pool_params p = {.struct_size = sizeof p, .buf_size = PKT, .count = count};
    CHECK_EQ(clb_host_pool_create(&pool, &p), CLB_OK);
    return pool;
}

static clb_stream *open_stream(clb_link *link, const char *name, clb_host_pool *pool,
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

static clb_stream_stats stats_of(clb_stream *s)
{
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    return st;
}

/* Waits until the stream has seen n packets arrive. */
static void wait_packets(clb_stream *s, uint64_t n)
{
    for (int i = 0; i < 1000 && stats_of(s).packets < n; i++) {
        check_sleep_ms(5);
    }
    CHECK_EQ(stats_of(s).packets, n);
}

/* Reads one packet whose every byte is value. */
static clb_packet *read_value(clb_stream *s, int value)
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

static void run_script(struct peer *p, void *arg)
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

static void finish(clb_link **link, struct peer *p)
{
    clb_link_close(link);
    peer_join(p);
}

/* ---- BLOCK ------------------------------------------------------------------------------------ */

/* Window 1, pool 1: the peer is credited at release while the buffer is still out, so every packet
 * that comes before the free spills: one counted copy, never stuck. */
static void block_window_1_pool_1(void)
{
    struct script sc = {.streams = 1, .window = 1, .packets = 20};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_host_pool *pool = pool_of(1);
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_BLOCK, 0);
    for (int i = 0; i < 20; i++) {
        clb_packet *pk = read_value(s, i);
        struct clb_allocator a = clb_packet_allocator(pk);
        struct clb_buf buf;
        CHECK_EQ(clb_packet_release(pk, &buf), CLB_OK);
        /* The "kernel": slower than the peer. The next packet has arrived before the buffer is free. */
        if (i < 19) {
            wait_packets(s, (uint64_t)i + 2);
            clb_packet *none = NULL;
            CHECK_EQ(clb_stream_read(s, &none, 0), CLB_ERR_NOBUFS);
        }
        clb_buf_free(&a, &buf);
        clb_packet_free(&pk);
    }
    clb_stream_stats st = stats_of(s);
    CHECK_EQ(st.packets, 20);
    CHECK_EQ(st.spilled, 19);
    CHECK_EQ(st.spill_bytes, 19 * PKT);
    CHECK_EQ(st.alloc_failed, 0);
    CHECK_EQ(st.held, 0);
    clb_stream_close(&s);
    finish(&link, &p);
    clb_host_pool_destroy(&pool);
}

/* Windows 1 to 4, slots 1 or 2, and the application frees in the wrong order. */
static void block_small_pools(void)
{
    for (uint32_t window = 1; window <= 4; window++) {
        for (uint32_t slots = 1; slots <= 2; slots++) {
            struct script sc = {.streams = 1, .window = window, .packets = 60};
            struct peer p;
            int fd = peer_pair(&p, false);
            peer_start(&p, run_script, &sc);
            clb_link *link = adopt(fd);
            clb_host_pool *pool = pool_of(slots);
            clb_stream *s = open_stream(link, "a", pool, CLB_FULL_BLOCK, 0);
            for (int i = 0; i < 60;) {
                clb_packet *held[2];
                int n = 0;
                while (n < (int)slots && n < (int)window && i + n < 60) {
                    held[n] = read_value(s, i + n);
                    n++;
                }
                i += n;
                while (n > 0) { /* last read, first freed */
                    clb_packet_free(&held[--n]);
                }
            }
            CHECK_EQ(stats_of(s).packets, 60);
            CHECK_EQ(stats_of(s).alloc_failed, 0);
            clb_stream_close(&s);
            finish(&link, &p);
            clb_host_pool_destroy(&pool);
        }
    }
}

/* A buffer for every packet of the window and one more: nothing spills, whatever the pace. */
static void block_enough_slots(void)
{
    struct script sc = {.streams = 1, .window = 3, .packets = 300};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_host_pool *pool = pool_of(4);
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_BLOCK, 0);
    uint64_t heap = 0;
    for (int i = 0; i < 300; i++) {
        clb_packet *pk = read_value(s, i & 255);
        if (i % 10 == 0) {
            check_sleep_ms(1);
        }
        clb_packet_free(&pk);
        clb_link_stats ls;
        clb_link_get_stats(link, &ls, sizeof ls);
        if (i == 100) {
            heap = ls.heap_allocs;
        }
        CHECK(i < 100 || ls.heap_allocs == heap); /* steady state: no allocation of ours */
    }
    /* Packets that came before the handle existed lay in host memory; none after it did. */
    CHECK_LE(stats_of(s).spilled, 3);
    clb_host_pool_stats ps;
    clb_host_pool_get_stats(pool, &ps, sizeof ps);
    CHECK_LE(ps.heap_allocs, 8);
    clb_stream_close(&s);
    finish(&link, &p);
    clb_host_pool_destroy(&pool);
}

/* ---- drop policies ---------------------------------------------------------------------------- */

static void drop_oldest_pool_1(void)
{
    struct script sc = {.streams = 1, .window = 8, .packets = 100};
    struct peer p;
    int fd = peer_pair(&p, false);
    clb_host_pool *pool = pool_of(1);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_DROP_OLDEST, 4);
    /* Unread: each packet takes the place of the one before. */
    wait_packets(s, 100);
    clb_packet *pk = read_value(s, 99);
    clb_packet_info info;
    clb_packet_get_info(pk, &info, sizeof info);
    CHECK_EQ(info.seq, 99);
    CHECK_EQ(info.dropped_before, 99);
    CHECK_EQ(stats_of(s).dropped_oldest + stats_of(s).dropped_newest, 99);
    clb_packet_free(&pk);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.stream[0].released, 100);
    clb_host_pool_destroy(&pool);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int level;
};

static void gate_to(struct gate *g, int level)
{
    pthread_mutex_lock(&g->lock);
    g->level = level;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->lock);
}

static void gate_wait(struct gate *g, int level)
{
    pthread_mutex_lock(&g->lock);
    while (g->level < level) {
        pthread_cond_wait(&g->cond, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

static struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void run_gated(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    gate_wait(&gate, 1);
    CHECK(peer_write_fill(p, a, 1, PKT, 5000));
    CHECK(peer_wait_acked(p, 5000));
    gate_wait(&gate, 2);
    for (int i = 2; i <= 6; i++) {
        CHECK(peer_write_fill(p, a, i, PKT, 5000));
    }
    CHECK(peer_wait_acked(p, 5000));
    gate_wait(&gate, 3);
    CHECK(peer_write_fill(p, a, 7, PKT, 5000));
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

/* Held: the incoming packets are dropped, the held one does not change, and it goes on afterwards. */
static void drop_while_held(enum clb_full policy)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    clb_host_pool *pool = pool_of(1);
    gate_to(&gate, 0);
    peer_start(&p, run_gated, NULL);
    clb_link *link = adopt(fd);
    clb_stream *s = open_stream(link, "a", pool, policy, 4);
    gate_to(&gate, 1);
    clb_packet *held = read_value(s, 1);
    gate_to(&gate, 2);
    wait_packets(s, 6);
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(s, &none, 0), CLB_ERR_AGAIN);
    CHECK_EQ(stats_of(s).dropped_newest, 5);
    CHECK_EQ(stats_of(s).dropped_oldest, 0);
    const uint8_t *d = clb_packet_data(held);
    for (uint32_t i = 0; i < PKT; i++) {
        CHECK_EQ(d[i], 1);
    }
    clb_packet_free(&held);
    gate_to(&gate, 3);
    clb_packet *last = read_value(s, 7);
    clb_packet_info info;
    clb_packet_get_info(last, &info, sizeof info);
    CHECK_EQ(info.dropped_before, 5);
    CHECK_EQ(info.seq, 6);
    clb_packet_free(&last);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.stream[0].released, 7);
    clb_host_pool_destroy(&pool);
}

/* DROP_NEWEST keeps the first queue_len and drops what comes behind; everything is credited. */
static void drop_newest_keeps_first(void)
{
    struct script sc = {.streams = 1, .window = 8, .packets = 50};
    struct peer p;
    int fd = peer_pair(&p, false);
    clb_host_pool *pool = pool_of(8);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_DROP_NEWEST, 3);
    wait_packets(s, 50);
    clb_stream_stats st = stats_of(s);
    CHECK_EQ(st.queued, 3);
    CHECK_EQ(st.dropped_newest + st.dropped_oldest, 47);
    CHECK_GE(st.full_events, st.dropped_newest);
    for (int i = 0; i < 3; i++) {
        clb_packet *pk = NULL;
        CHECK_EQ(clb_stream_read(s, &pk, SEC), CLB_OK);
        clb_packet_free(&pk);
    }
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.stream[0].released, 50);
    clb_host_pool_destroy(&pool);
}

/* ---- a stream that is not opened -------------------------------------------------------------- */

/* Opened at once: nothing was taken out of the socket before, so nothing is copied. */
static void open_at_once_copies_nothing(void)
{
    struct script sc = {.streams = 1, .window = 4, .packets = 8};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_host_pool *pool = pool_of(6);
    clb_stream_info info;
    CHECK_EQ(clb_link_next_stream(link, &info, sizeof info, 5 * SEC), CLB_OK);
    check_sleep_ms(200); /* the peer writes meanwhile */
    clb_stream *s = open_stream(link, NULL, pool, CLB_FULL_BLOCK, 0);
    for (int i = 0; i < 8; i++) {
        clb_packet *pk = read_value(s, i);
        clb_packet_free(&pk);
    }
    CHECK_EQ(stats_of(s).spilled, 0);
    CHECK_EQ(stats_of(s).spill_bytes, 0);
    clb_stream_close(&s);
    finish(&link, &p);
    clb_host_pool_destroy(&pool);
}

/* Opened after the pause: the window's packets lie in host memory, in order; credit was withheld. */
static void open_late(void)
{
    struct script sc = {.streams = 1, .window = 4, .packets = 12};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.first_open_ns = 100000000)),
             CLB_OK);
    clb_host_pool *pool = pool_of(2);
    clb_link_stats ls;
    for (int i = 0; i < 500; i++) {
        clb_link_get_stats(link, &ls, sizeof ls);
        if (ls.rx_bytes >= 4 * PKT) {
            break;
        }
        check_sleep_ms(5);
    }
    check_sleep_ms(100);
    clb_link_get_stats(link, &ls, sizeof ls);
    CHECK_LE(ls.rx_bytes, 4 * PKT + 20 * 84); /* four packets, then nothing: no credit */
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_BLOCK, 0);
    for (int i = 0; i < 12; i++) {
        clb_packet *pk = read_value(s, i);
        clb_packet_free(&pk);
    }
    CHECK_GE(stats_of(s).spilled, 4);
    clb_stream_close(&s);
    finish(&link, &p);
    clb_host_pool_destroy(&pool);
}

/* The link's own pool: a spilled packet is delivered where it lies. */
static void own_pool_spill_is_no_copy(void)
{
    struct script sc = {.streams = 1, .window = 4, .packets = 12};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.first_open_ns = -1)),
             CLB_OK);
    check_sleep_ms(100);
    clb_stream *s = open_stream(link, "a", NULL, CLB_FULL_BLOCK, 0);
    for (int i = 0; i < 12; i++) {
        clb_packet *pk = read_value(s, i);
        CHECK_EQ((uintptr_t)clb_packet_data(pk) % 64, 0);
        clb_packet_free(&pk);
    }
    CHECK_GE(stats_of(s).spilled, 1);
    CHECK_EQ(stats_of(s).spill_bytes, 0);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* Opened late with a drop policy: the newest queue_len are kept, all are credited. */
static void open_late_drop(void)
{
    struct script sc = {.streams = 1, .window = 8, .packets = 8};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.first_open_ns = -1)),
             CLB_OK);
    clb_link_stats ls;
    do {
        check_sleep_ms(5);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.rx_bytes < 8 * PKT);
    check_sleep_ms(50);
    clb_host_pool *pool = pool_of(4);
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_DROP_OLDEST, 2);
    clb_packet *pk = read_value(s, 6);
    clb_packet_info info;
    clb_packet_get_info(pk, &info, sizeof info);
    CHECK_EQ(info.dropped_before, 6);
    clb_packet_free(&pk);
    pk = read_value(s, 7);
    clb_packet_free(&pk);
    CHECK_EQ(stats_of(s).dropped_oldest, 6);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.stream[0].released, 8);
    clb_host_pool_destroy(&pool);
}

/* ---- peers ------------------------------------------------------------------------------------ */

/* Releases are never answered: 16 in flight, forgotten after 2 s, a few rounds; then full speed. */
static void mute_peer(void)
{
    struct script sc = {.streams = 1, .window = 4, .packets = 500, .mute = true};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_stream *s = open_stream(link, "a", NULL, CLB_FULL_BLOCK, 0);
    for (int i = 0; i < 500; i++) {
        clb_packet *pk = read_value(s, i & 255);
        clb_packet_free(&pk);
    }
    clb_link_stats ls;
    clb_link_get_stats(link, &ls, sizeof ls);
    CHECK_GE(ls.forgotten, 16);
    CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_UP);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* Two streams with pools of their own; nobody reads "a": "b" gets all its packets, in order. */
static void unread_stream(void)
{
    struct script sc = {.streams = 2, .window = 8, .packets = 1000};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_host_pool *pa = pool_of(4), *pb = pool_of(9);
    clb_stream *a = open_stream(link, "a", pa, CLB_FULL_BLOCK, 0);
    clb_stream *b = open_stream(link, "b", pb, CLB_FULL_BLOCK, 0);
    for (int i = 0; i < 1000; i++) {
        clb_packet *pk = read_value(b, i & 255);
        clb_packet_free(&pk);
    }
    CHECK_LE(stats_of(a).packets, 8);
    /* Read later: 0 to 7, then the rest. */
    for (int i = 0; i < 1000; i++) {
        clb_packet *pk = read_value(a, i & 255);
        clb_packet_free(&pk);
    }
    clb_stream_close(&a);
    clb_stream_close(&b);
    finish(&link, &p);
    clb_host_pool_destroy(&pa);
    clb_host_pool_destroy(&pb);
}

/* The descriptor follows the queue and is silent for a moment after NOBUFS. */
static void descriptor(void)
{
    struct script sc = {.streams = 1, .window = 2, .packets = 2};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt(fd);
    clb_host_pool *pool = pool_of(1);
    clb_stream *s = open_stream(link, "a", pool, CLB_FULL_BLOCK, 0);
    int sfd = clb_stream_fd(s);
    CHECK_GE(sfd, 0);
    wait_packets(s, 2);
    clb_packet *first = read_value(s, 0), *second = NULL;
    CHECK_EQ(clb_stream_read(s, &second, 0), CLB_ERR_NOBUFS);
    clb_packet_free(&first);
    int64_t until = check_ms() + 5000;
    while (clb_stream_read(s, &second, 0) == CLB_ERR_NOBUFS && check_ms() < until) {
    }
    CHECK(second != NULL);
    clb_packet_free(&second);
    CHECK_EQ(clb_stream_read(s, &second, 0), CLB_ERR_AGAIN);
    clb_stream_interrupt(s);
    CHECK_EQ(clb_stream_read(s, &second, 5 * SEC), CLB_ERR_CANCELED);
    CHECK_EQ(clb_stream_read(s, &second, 1000000), CLB_ERR_TIMEOUT);
    clb_stream_close(&s);
    finish(&link, &p);
    clb_host_pool_destroy(&pool);
}

/* ---- a peer that stops in the middle of a header ---------------------------------------------- */

static void half_header(struct peer *p, void *arg)
{
    (void)arg;
    uint8_t bytes[CLBI_WIRE_HEADER + PKT + CLBI_WIRE_HEADER / 2] = {0};
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    struct clbi_wire_header h = {
        .id = 7, .type = CLBI_WRITE_REQ, .stream_id = p->stream[a].id, .size = PKT, .flags = 1};
    clbi_wire_encode(bytes, &h);
    gate_wait(&gate, 1);
    CHECK(peer_send_raw(p, bytes, sizeof bytes)); /* in one piece: it is read ahead */
    p->deaf = true;
    peer_pump_to_end(p, 20000);
    peer_close(p);
}

/* A started header has to move on, also when its first half came with the payload before it. */
static void half_header_is_noticed(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    gate_to(&gate, 0);
    peer_start(&p, half_header, NULL);
    clb_link *link = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST,
                            clb_link_params(.progress_timeout_ns = 300000000, .keepalive_ns = -1,
                                            .idle_timeout_ns = -1)),
             CLB_OK);
    clb_stream *s = open_stream(link, "a", NULL, CLB_FULL_BLOCK, 0);
    gate_to(&gate, 1);
    clb_packet *pk = read_value(s, 0);
    clb_packet_free(&pk);
    CHECK_EQ(clb_stream_read(s, &pk, 10 * SEC), CLB_ERR_LOST);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* ---- a peer that says goodbye and goes -------------------------------------------------------- */

static void write_reset_close(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    gate_wait(&gate, 1);
    for (int i = 0; i < 4; i++) {
        CHECK(peer_write_fill(p, a, i, PKT, 5000));
    }
    CHECK(peer_send_header(p, CLBI_RESET_REQ, 900, NULL, 0, 0, CLBI_FLAG_ACK));
    peer_close(p);
    gate_to(&gate, 2);
}

/* Our answers meet a closed socket while packets and the RESET are not read yet: all of them count, and
 * the end is an orderly one. */
static void goodbye_in_the_socket(bool tcp)
{
    struct peer p;
    uint16_t port;
    int listen_fd = tcp ? peer_listen(&port) : -1;
    int fd = -1;
    gate_to(&gate, 0);
    if (tcp) {
        struct peer us;
        peer_connect(&us, port);
        fd = us.fd;
        peer_accept(&p, listen_fd);
        close(listen_fd);
    } else {
        fd = peer_pair(&p, false);
    }
    peer_start(&p, write_reset_close, NULL);
    clb_loop *loop = NULL;
    clb_link *link = NULL;
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.loop = loop)), CLB_OK);
    clb_stream *s = open_stream(link, "a", NULL, CLB_FULL_BLOCK, 0);
    gate_to(&gate, 1);
    gate_wait(&gate, 2); /* all is said and the socket closed; nobody has looked at ours */
    for (int i = 0; i < 4; i++) {
        clb_packet *pk = read_value(s, i);
        clb_packet_free(&pk);
    }
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(s, &none, 5 * SEC), CLB_ERR_CLOSED);
    struct clb_status why;
    clb_link_get_state(link, &why);
    CHECK_EQ(why.err, CLB_ERR_CLOSED);
    clb_stream_close(&s);
    clb_link_close(&link);
    clb_loop_destroy(&loop);
    peer_join(&p);
}

int main(void)
{
    check_watchdog(200);
    const int fds = check_fds(), threads = check_threads();
#define RUN(f)                                                                                     \
    do {                                                                                           \
        fprintf(stderr, "%s\n", #f);                                                               \
        f;                                                                                         \
        check_back_to(fds, threads);                                                               \
    } while (0)
    RUN(block_window_1_pool_1());
    RUN(block_small_pools());
    RUN(block_enough_slots());
    RUN(drop_oldest_pool_1());
    RUN(drop_while_held(CLB_FULL_DROP_OLDEST));
    RUN(drop_while_held(CLB_FULL_DROP_NEWEST));
    RUN(drop_newest_keeps_first());
    RUN(open_at_once_copies_nothing());
    RUN(open_late());
    RUN(own_pool_spill_is_no_copy());
    RUN(open_late_drop());
    RUN(mute_peer());
    RUN(unread_stream());
    RUN(descriptor());
    RUN(half_header_is_noticed());
    RUN(goodbye_in_the_socket(true));
    RUN(goodbye_in_the_socket(false));
    return 0;
}
