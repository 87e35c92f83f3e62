/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flow control on a scripted peer: CLB_FULL_BLOCK with spill, the pause before the first open, peers
 * that never answer releases, streams that nobody reads.
 */
#include "flow_kit.h"

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

int main(void)
{
    check_watchdog(200);
    RUN(block_window_1_pool_1());
    RUN(block_small_pools());
    RUN(block_enough_slots());
    RUN(open_at_once_copies_nothing());
    RUN(open_late());
    RUN(own_pool_spill_is_no_copy());
    RUN(mute_peer());
    RUN(unread_stream());
    RUN(descriptor());
    return 0;
}
