/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are opened and closed around a payload, and memory that is not there for it. */
#include "races_kit.h"

#include "check.h"

static void free_next(clb_stream *s)
{
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
    clb_packet_free(&p);
}

static void half_payload(struct peer *p, void *arg)
{
    uint8_t data[1000] = {7};
    (void)arg;
    p->by_hand = true;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4000);
    peer_send_header(p, CLBI_WRITE_REQ, 500, NULL, p->stream[a].id, sizeof data, CLBI_FLAG_ACK);
    peer_send_raw(p, data, 300);
    await(1);
    peer_send_raw(p, data + 300, sizeof data - 300);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* Opened while the first payload runs into host memory: it is delivered, and nothing was lost. */
void open_during_payload(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, half_payload, NULL);
    clb_link *link = adopt(fd, clb_link_params(.first_open_ns = -1));
    clb_link_stats ls;
    do {
        check_sleep_ms(2);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.rx_events < 3); /* PING answer, CREATE, WRITE */
    check_sleep_ms(20);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    atomic_store(&stage, 1);
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 5 * SEC), CLB_OK);
    clb_packet_info info;
    clb_packet_get_info(pk, &info, sizeof info);
    CHECK_EQ(info.seq, 0);
    CHECK_EQ(info.dropped_before, 0);
    CHECK_EQ(info.spilled, 1);
    CHECK_EQ(*(uint8_t *)clb_packet_data(pk), 7);
    clb_packet_free(&pk);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* Closed while a payload runs into the allocator's memory: it is completed, freed and credited, and
 * a stream that was opened meanwhile neither gets it nor counts it as lost. */
void reopen_during_payload(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, half_payload, NULL);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    clb_link_stats ls;
    do {
        check_sleep_ms(2);
        clb_link_get_stats(link, &ls, sizeof ls);
    } while (ls.rx_events < 3);
    check_sleep_ms(20);
    clb_stream_close(&s);
    s = open_stream(link, clb_stream_params(.name = "a"));
    atomic_store(&stage, 1);
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 300 * MS), CLB_ERR_TIMEOUT);
    CHECK_EQ(stats_of(s).queued, 0);
    clb_stream_close(&s);
    finish(&link, &p);
    CHECK_EQ(p.rel_count, 1);
}

/* The default pool, an alignment larger than that of spill blocks, packets that came before. */
void aligned_spill(void)
{
    int n = 12;
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, writes_a, &n);
    clb_link *link = adopt(fd, clb_link_params(.first_open_ns = -1));
    check_sleep_ms(100);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a", .align = 4096));
    for (int i = 0; i < n; i++) {
        clb_packet *pk = NULL;
        CHECK_EQ(clb_stream_read(s, &pk, 5 * SEC), CLB_OK);
        CHECK_EQ((uintptr_t)clb_packet_data(pk) % 4096, 0);
        CHECK_EQ(*(uint8_t *)clb_packet_data(pk), i);
        clb_packet_free(&pk);
    }
    CHECK_GE(stats_of(s).spilled, 1);
    clb_stream_close(&s);
    finish(&link, &p);
}

static void creates_again(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4000);
    CHECK(peer_write_fill(p, a, 1, 1000, 5000));
    p->mute_releases = true; /* the release of "a" stays unanswered */
    pump_until(p, 1);        /* until the application has closed "a" */
    for (int i = 0; i < 100; i++) {
        peer_pump(p, 1);
    }
    peer_send_header(p, CLBI_CLOSE_STREAM_REQ, 600, NULL, p->stream[a].id, 0, CLBI_FLAG_ACK);
    for (int i = 0; i < 50; i++) {
        peer_pump(p, 1);
    }
    /* Late: only now nothing names the entry of "a" any more. */
    peer_send_header(p, CLBI_READ_REL_RESP, p->last_release_id, NULL, 0, 0, CLBI_FLAG_ACK);
    p->mute_releases = false;
    p->stream[a].id = CLBI_ID_NONE; /* the host may give its number to another name now */
    int b = peer_create(p, "b", 4000);
    CHECK(peer_write_fill(p, b, 2, 1000, 5000));
    CHECK(peer_write_fill(p, b, 3, 1000, 5000));
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

/* What was remembered of a stream must not fall upon the one that takes its entry. */
void entry_taken_over(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, creates_again, NULL);
    clb_link *link = adopt(fd, NULL);
    clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
    free_next(s);
    clb_stream_close(&s);
    atomic_store(&stage, 1);
    clb_stream_info info;
    do {
        CHECK_EQ(clb_link_next_stream(link, &info, sizeof info, 5 * SEC), CLB_OK);
    } while (strcmp(info.name, "b") != 0);
    check_sleep_ms(200);
    s = open_stream(link, clb_stream_params(.name = "b"));
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 2 * SEC), CLB_OK);
    clb_packet_info pi;
    clb_packet_get_info(pk, &pi, sizeof pi);
    CHECK_EQ(*(uint8_t *)clb_packet_data(pk), 2);
    CHECK_EQ(pi.seq, 0);
    CHECK_EQ(pi.dropped_before, 0);
    clb_packet_free(&pk);
    clb_stream_close(&s);
    finish(&link, &p);
}

/* ---- allocators that do not wait --------------------------------------------------------------- */

static atomic_int refusals;

static int alloc_refuses(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    (void)opaque;
    (void)req;
    (void)out;
    atomic_fetch_add(&refusals, 1);
    return CLB_ERR_NOBUFS;
}

static void free_nothing(void *opaque, struct clb_buf *buf)
{
    (void)opaque;
    (void)buf;
}

/* NOBUFS at once although it might wait: the reader asks again at times, it does not spin. */
void impatient_allocator(void)
{
    int n = 1;
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, writes_a, &n);
    clb_link *link = adopt(fd, NULL);
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
    sp.allocator = (struct clb_allocator){.alloc = alloc_refuses, .free = free_nothing};
    clb_stream *s = open_stream(link, &sp);
    atomic_store(&refusals, 0);
    while (stats_of(s).packets < 1) {
        check_sleep_ms(2);
    }
    clb_packet *pk = NULL;
    CHECK_EQ(clb_stream_read(s, &pk, 300 * MS), CLB_ERR_NOBUFS);
    CHECK_LE(atomic_load(&refusals), 400);
    CHECK_EQ(stats_of(s).queued, 1);
    clb_stream_close(&s);
    finish(&link, &p);
}
