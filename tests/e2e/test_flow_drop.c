/* SPDX-License-Identifier: Apache-2.0 */
/* The two drop policies on a scripted peer: who gives way, and that everything is credited. */
#include "flow_kit.h"

static struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

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

/* A link on which so many bytes have arrived already, with no stream open for them. */
static clb_link *adopt_with(int fd, uint64_t bytes)
{
    clb_link *link = NULL;
    clb_link_stats ls;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.first_open_ns = -1)),
             CLB_OK);
    do {
        check_sleep_ms(5);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.rx_bytes < bytes);
    return link;
}

static void open_late_drop(void)
{
    struct script sc = {.streams = 1, .window = 8, .packets = 8};
    struct peer p;
    int fd = peer_pair(&p, false);
    peer_start(&p, run_script, &sc);
    clb_link *link = adopt_with(fd, 8 * PKT);
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

static void run_late(struct peer *p, void *arg)
{
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 8 * PKT);
    CHECK(peer_write_fill(p, a, 1, PKT, 5000));
    CHECK(peer_wait_acked(p, 5000));
    gate_wait(&gate, 1);
    for (int i = 0; i < *(int *)arg; i++) {
        CHECK(peer_write_fill(p, a, 2 + i, PKT, 5000));
    }
    CHECK(peer_wait_acked(p, 5000));
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

/* The first packet has come before the stream was opened, and has no buffer; the ones behind it have them all.
 * With nobody to come and nobody to go, one of them gives way. */
static void buffers_behind(enum clb_full policy, int more)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    clb_host_pool *pool = pool_of(2);
    const bool oldest = policy == CLB_FULL_DROP_OLDEST;
    gate_to(&gate, 0);
    peer_start(&p, run_late, &more);
    clb_link *link = adopt_with(fd, PKT);
    check_sleep_ms(50);
    clb_stream *s = open_stream(link, "a", pool, policy, 6);
    gate_to(&gate, 1);
    wait_packets(s, 1 + (unsigned)more);
    for (int i = 0; i < 2; i++) {
        clb_packet *pk = read_value(s, oldest ? 2 + i : 1 + i);
        clb_packet_info info;
        clb_packet_get_info(pk, &info, sizeof info);
        CHECK_EQ(info.spilled, !oldest && i == 0);
        CHECK_EQ(info.dropped_before, oldest && i == 0);
        clb_packet_free(&pk);
    }
    CHECK_EQ(stats_of(s).dropped_oldest, oldest);
    CHECK_EQ(stats_of(s).dropped_newest, oldest ? 0 : more - 1);
    CHECK_EQ(stats_of(s).alloc_failed, 0);
    CHECK_EQ(stats_of(s).queued, 0);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.stream[0].released, 1 + more);
    clb_host_pool_destroy(&pool);
}

/* Nobody behind it has a buffer: it waits, whatever the policy. */
static void nobody_behind(enum clb_full policy)
{
    struct peer p;
    int none = 0, fd = peer_pair(&p, false);
    clb_host_pool *pool = pool_of(1);
    const struct clb_allocator a = clb_host_pool_allocator(pool);
    const struct clb_alloc_req req = {.payload = PKT, .expect = PKT, .capacity = PKT, .align = 64};
    struct clb_buf taken = {0};
    clb_packet *pk = NULL;
    gate_to(&gate, 1);
    peer_start(&p, run_late, &none);
    clb_link *link = adopt_with(fd, PKT);
    CHECK_EQ(a.alloc(a.opaque, &req, &taken), CLB_OK);
    clb_stream *s = open_stream(link, "a", pool, policy, 4);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(clb_stream_read(s, &pk, 0), CLB_ERR_NOBUFS);
    }
    CHECK_EQ(stats_of(s).queued, 1);
    a.free(a.opaque, &taken);
    pk = read_value(s, 1);
    clb_packet_free(&pk);
    CHECK_EQ(stats_of(s).dropped_oldest + stats_of(s).dropped_newest, 0);
    clb_stream_close(&s);
    finish(&link, &p);
    clb_host_pool_destroy(&pool);
}

/* ---- one that comes while another is moved ---- */

static struct {
    struct clb_allocator pool;
    clb_stream *stream;
    pthread_t reader;
} during;

static int alloc_during(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    if (pthread_equal(pthread_self(), during.reader)) {
        gate_to(&gate, 1);
        wait_packets(during.stream, 2);
    }
    return during.pool.alloc(opaque, req, out);
}

/* The buffers are enough for both: nobody gives way. */
static void buffers_for_all(enum clb_full policy)
{
    struct peer p;
    int one = 1, fd = peer_pair(&p, false);
    clb_host_pool *pool = pool_of(2);
    gate_to(&gate, 0);
    peer_start(&p, run_late, &one);
    clb_link *link = adopt_with(fd, PKT);
    during.pool = clb_host_pool_allocator(pool);
    during.reader = pthread_self();
    struct clb_allocator a = during.pool;
    a.alloc = alloc_during;
    CHECK_EQ(clb_stream_open(&during.stream, link,
                             clb_stream_params(.name = "a", .allocator = a, .on_full = policy)),
             CLB_OK);
    for (int i = 1; i <= 2; i++) {
        clb_packet *pk = read_value(during.stream, i);
        clb_packet_free(&pk);
    }
    const clb_stream_stats st = stats_of(during.stream);
    CHECK_EQ(st.dropped_oldest + st.dropped_newest + st.alloc_failed, 0);
    CHECK_EQ(st.spilled, policy == CLB_FULL_BLOCK ? 2 : 1);
    clb_stream_close(&during.stream);
    finish(&link, &p);
    CHECK_EQ(p.stream[0].released, 2);
    clb_host_pool_destroy(&pool);
}

int main(void)
{
    check_watchdog(200);
    RUN(drop_oldest_pool_1());
    RUN(drop_while_held(CLB_FULL_DROP_OLDEST));
    RUN(drop_while_held(CLB_FULL_DROP_NEWEST));
    RUN(drop_newest_keeps_first());
    RUN(open_late_drop());
    RUN(buffers_behind(CLB_FULL_DROP_OLDEST, 2));
    RUN(buffers_behind(CLB_FULL_DROP_NEWEST, 2));
    RUN(buffers_behind(CLB_FULL_DROP_NEWEST, 5));
    RUN(nobody_behind(CLB_FULL_BLOCK));
    RUN(nobody_behind(CLB_FULL_DROP_OLDEST));
    RUN(nobody_behind(CLB_FULL_DROP_NEWEST));
    RUN(buffers_for_all(CLB_FULL_BLOCK));
    RUN(buffers_for_all(CLB_FULL_DROP_OLDEST));
    RUN(buffers_for_all(CLB_FULL_DROP_NEWEST));
    return 0;
}
