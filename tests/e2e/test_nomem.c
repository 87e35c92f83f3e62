/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th heap allocation of the library fails, for every n of a small session in each role: either
 * one clear error, or a loss that is counted; no crash, no hang, nothing left behind. Linked with
 * --wrap, so that only calls from our objects are counted.
 */
#include <clbridge/clbridge.h>
#include <unistd.h>

#include "check.h"
#include "heap.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define PKT 3000u
#define PACKETS 6

/* "a" is opened late, so its first packets spill; "b" is opened and closed, so its packets drain. */
static void run(struct peer *p, void *arg)
{
    (void)arg;
    heap_exempt = true;
    if (!peer_handshake(p)) {
        peer_close(p);
        return;
    }
    int index[2];
    for (int k = 0; k < 2; k++) {
        struct peer_stream *s = &p->stream[k];
        *s = (struct peer_stream){
            .used = true, .id = (uint32_t)(p->host ? k : (int)CLBI_ID_NONE), .window = 3 * PKT};
        s->name[0] = (char)('a' + k);
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, p->next_id++, s->name, s->id, 3 * PKT,
                         CLBI_FLAG_ACK);
        while (p->last.type != CLBI_CREATE_STREAM_RESP && !p->eof) {
            peer_pump(p, 20);
        }
        p->last.type = 99;
        index[k] = k;
    }
    for (int i = 0; i < PACKETS && !p->eof; i++) {
        for (int k = 0; k < 2; k++) {
            peer_write_fill(p, index[k], i + 1, PKT, k ? 100 : 20000);
        }
    }
    peer_pump_to_end(p, 20000);
    peer_close(p);
}

struct outcome {
    int open, stream_b, stream_a, write;
    int read;     /* packets of "a" */
    int ended;    /* what ended the reading */
    uint64_t gap; /* sum of dropped_before */
    clb_stream_stats st;
};

static clb_link *open_link(struct peer *peer, bool listener, struct outcome *o, int *door)
{
    clb_link *link = NULL;
    struct clb_status st = {0};
    clb_link_params lp = {.struct_size = sizeof lp, .status = &st, .first_open_ns = -1};
    lp.connect_timeout_ns = SEC;
    lp.close_timeout_ns = 300 * MS;
    if (!listener) {
        uint16_t port;
        char uri[64];
        heap_exempt = true;
        int fd = peer_listen(&port);
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
        lp.uri = uri;
        peer_accept_later(peer, fd, run, NULL);
        heap_exempt = false;
        o->open = clb_link_open(&link, &lp);
        if (o->open < 0) {
            CHECK_EQ(st.err, o->open);
            CHECK(st.text[0] != '\0');
            /* Nobody may have come to the peer's door. */
            struct peer knock;
            peer_connect(&knock, port);
            peer_close(&knock);
        }
        *door = fd;
        return link;
    }
    clb_listener *l = NULL;
    clb_listener_params p = {.struct_size = sizeof p, .uri = "tcp://127.0.0.1:0", .link = lp};
    o->open = clb_listener_open(&l, &p);
    if (o->open < 0) {
        CHECK_EQ(st.err, o->open);
        CHECK(st.text[0] != '\0');
        peer->thread = pthread_self();
        return NULL;
    }
    heap_exempt = true;
    peer_connect(peer, (uint16_t)atoi(strrchr(clb_listener_uri(l), ':') + 1));
    peer_start(peer, run, NULL);
    heap_exempt = false;
    o->open = clb_listener_accept(l, &link, SEC);
    clb_listener_close(&l);
    return link;
}

static void session(bool listener, struct outcome *o)
{
    struct peer peer;
    clb_stream *a = NULL, *b = NULL;
    memset(&peer, 0, sizeof peer);
    int door = -1;
    clb_link *link = open_link(&peer, listener, o, &door);
    if (link) {
        clb_stream_params sp = {.struct_size = sizeof sp, .name = "b"};
        sp.open_timeout_ns = 2 * SEC;
        o->stream_b = clb_stream_open(&b, link, &sp);
        clb_stream_close(&b);
        sp.name = "a";
        sp.write_window = 4096;
        sp.align = 256;
        o->stream_a = clb_stream_open(&a, link, &sp);
        struct clb_iovec many[20];
        for (int i = 0; i < 20; i++) {
            many[i] = (struct clb_iovec){"0123456789", 10};
        }
        o->write = a ? clb_stream_write(a, many, 20, 2 * SEC) : o->stream_a;
        clb_packet *p = NULL;
        while (a && o->st.packets + o->st.alloc_failed < 100 &&
               (o->ended = clb_stream_read(a, &p, 2 * SEC)) == CLB_OK) {
            const uint8_t *d = clb_packet_data(p);
            CHECK_EQ(clb_packet_size(p), PKT);
            CHECK_EQ(d[0], d[PKT - 1]);
            CHECK_EQ((uintptr_t)d % 256, 0);
            clb_packet_info info;
            clb_packet_get_info(p, &info, sizeof info);
            o->gap += info.dropped_before;
            CHECK_EQ(info.seq + 1, d[0]);
            o->read++;
            clb_packet_free(&p);
            clb_stream_get_stats(a, &o->st, sizeof o->st);
            if (o->st.packets >= PACKETS && o->st.queued == 0) {
                break;
            }
        }
        clb_stream_get_stats(a, &o->st, sizeof o->st);
        clb_stream_close(&a);
    }
    clb_link_close(&link);
    if (!pthread_equal(peer.thread, pthread_self())) {
        peer_join(&peer);
    }
    if (door >= 0) {
        close(door);
    }
}

/* Returns whether an allocation failed. */
static bool sweep_step(bool listener, int n)
{
    struct outcome o = {0};
    heap_fail_nth(n);
    session(listener, &o);
    const bool hit = heap_fail_end();
    fprintf(stderr, "%s %d: %s open %s, b %s, a %s, write %s, %d read, %d failed, %s\n",
            listener ? "listener" : "host", n, hit ? "hit," : "clean,", clb_error_name(o.open),
            clb_error_name(o.stream_b), clb_error_name(o.stream_a), clb_error_name(o.write), o.read,
            (int)o.st.alloc_failed, clb_error_name(o.ended));
    if (!hit) {
        CHECK_EQ(o.open, CLB_OK);
        CHECK_EQ(o.stream_b, CLB_OK);
        CHECK_EQ(o.stream_a, CLB_OK);
        CHECK_EQ(o.write, CLB_OK);
        CHECK_EQ(o.read, PACKETS);
        return false;
    }
    /* One failure, one effect: an error of one call, or packets that are counted. */
    CHECK(o.open == CLB_OK || o.open == CLB_ERR_NOMEM || o.open == CLB_ERR_IO ||
          (listener && o.open == CLB_ERR_TIMEOUT));
    if (o.open == CLB_OK && o.stream_a == CLB_OK) {
        CHECK_EQ(o.read + (int)o.st.alloc_failed, PACKETS);
        CHECK_GE(o.read, PACKETS - 1);
        CHECK_LE(o.gap, o.st.alloc_failed);
        CHECK_EQ(o.st.packets, PACKETS);
        CHECK_EQ(o.st.bytes, PACKETS * PKT);
    }
    return true;
}

int main(void)
{
    check_watchdog(200);
    const int fds = check_fds(), threads = check_threads();
    for (int listener = 0; listener < 2; listener++) {
        int n = 1;
        while (sweep_step(listener, n)) {
            check_back_to(fds, threads);
            n++;
            CHECK_LE(n, 200);
        }
        check_back_to(fds, threads);
        CHECK_GE(n, 8);
    }
    return 0;
}
