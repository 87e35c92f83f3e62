/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-15: the peer's length is checked before anybody's allocator is asked. A window of 1 MiB
 * and writes of 0xFFFFFFFF, 0x80000000, 1 MiB + 1 and 1 MiB bytes, and one of 16 to a stream that does not
 * exist. Too large ends the link (wire section 10), the unknown stream is answered by a nack. A second
 * link on the same loop goes on.
 */
#include <clbridge/clbridge.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define WINDOW (1u << 20)

/* Sanitizers have memory of their own. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static long resident_bytes(void)
{
    long pages = 0, total;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL);
    CHECK_EQ(fscanf(f, "%ld %ld", &total, &pages), 2);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

struct lie {
    uint32_t size;
    bool unknown; /* to a stream that was never created */
    int err;      /* what becomes of the link; CLB_OK = it lives */
};

static bool opened(struct peer *p, void *arg)
{
    (void)arg;
    return p->stream[0].created;
}

/* One write as told, with its payload where the link is to live; then whatever the other side says. */
static void run(struct peer *p, void *arg)
{
    const struct lie *lie = arg;
    static const uint8_t payload[WINDOW] = {0};
    CHECK(peer_handshake(p));
    const int a = peer_create(p, "a", WINDOW);
    CHECK(peer_pump_until(p, opened, NULL, 20000));
    p->by_hand = true;
    peer_send_header(p, CLBI_WRITE_REQ, 7, NULL, lie->unknown ? 77 : p->stream[a].id, lie->size,
                     CLBI_FLAG_ACK);
    if (lie->err == CLB_OK) {
        struct clbi_wire_header h;
        CHECK(peer_send_raw(p, payload, lie->size));
        CHECK(peer_recv(p, &h, NULL, 10000));
        CHECK_EQ(h.type, CLBI_WRITE_RESP);
        CHECK_EQ(h.id, 7);
        CHECK_EQ(h.flags & CLBI_FLAG_ACK, lie->unknown ? 0 : CLBI_FLAG_ACK);
    }
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

struct pair {
    struct peer peer;
    clb_link *link;
    clb_stream *s;
    struct talloc t;
};

static void start(struct pair *x, clb_loop *loop, void (*fn)(struct peer *, void *), void *arg)
{
    const int fd = peer_pair(&x->peer, false);
    talloc_init(&x->t, NULL);
    peer_start(&x->peer, fn, arg);
    CHECK_EQ(clb_link_adopt(&x->link, fd, CLB_ROLE_HOST, clb_link_params(.loop = loop)), CLB_OK);
    CHECK_EQ(clb_stream_open(&x->s, x->link,
                             clb_stream_params(.name = "a", .allocator = talloc_allocator(&x->t))),
             CLB_OK);
}

static void stop(struct pair *x)
{
    clb_stream_close(&x->s);
    clb_link_close(&x->link);
    peer_join(&x->peer);
    talloc_check(&x->t);
}

/* ---- the link that must not notice --------------------------------------------------------------- */

#define NEIGHBOUR_PACKETS 200

static void neighbour(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    const int a = peer_create(p, "a", 4096);
    for (int i = 0; i < NEIGHBOUR_PACKETS; i++) {
        CHECK(peer_write_fill(p, a, i & 255, 1000, 30000));
    }
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

static void neighbour_gets(struct pair *x, int from, int to)
{
    for (int i = from; i < to; i++) {
        clb_packet *p = NULL;
        CHECK_EQ(clb_stream_read(x->s, &p, 20 * SEC), CLB_OK);
        const uint8_t *d = clb_packet_data(p);
        CHECK_EQ(d[0], i & 255);
        clb_packet_free(&p);
    }
}

static void one(const struct lie *lie, clb_loop *loop)
{
    static struct pair x;
    const bool good = lie->size == WINDOW;
    clb_packet *p = NULL;
    struct clb_status why;
    start(&x, loop, run, (void *)(uintptr_t)lie);
    const int err = clb_stream_read(x.s, &p, lie->unknown ? SEC / 20 : 20 * SEC);
    CHECK_EQ(err, good ? CLB_OK : lie->unknown ? CLB_ERR_TIMEOUT : CLB_ERR_LOST);
    clb_packet_free(&p);
    CHECK_EQ(x.t.calls, good ? 1 : 0);
    CHECK(!good || x.t.sizes[0] == WINDOW);
    const enum clb_link_state state = clb_link_get_state(x.link, &why);
    CHECK_EQ(why.err, lie->err);
    CHECK_EQ(state == CLB_LINK_UP, lie->err == CLB_OK);
    stop(&x);
}

int main(void)
{
    static const struct lie lies[] = {
        {0xFFFFFFFFu, false, CLB_ERR_PROTO},
        {0x80000000u, false, CLB_ERR_PROTO},
        {WINDOW + 1, false, CLB_ERR_PROTO},
        {WINDOW, false, CLB_OK},
        {16, true, CLB_OK},
    };
    const int n = sizeof lies / sizeof lies[0];
    static struct pair other;
    clb_loop *loop = NULL;
    check_watchdog(55);
    const int fds = check_fds(), threads = check_threads();
    CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
    start(&other, loop, neighbour, NULL);
    neighbour_gets(&other, 0, 20);
    const long before = resident_bytes();
    for (int i = 0; i < n; i++) {
        one(&lies[i], loop);
        neighbour_gets(&other, 20 + 20 * i, 40 + 20 * i);
    }
    CHECK(SANITIZED || resident_bytes() - before < 2 * (long)WINDOW);
    neighbour_gets(&other, 20 + 20 * n, NEIGHBOUR_PACKETS);
    stop(&other);
    clb_loop_destroy(&loop);
    check_back_to(fds, threads);
    return 0;
}
