/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that lie, stop, vanish or flood. Each attack runs on a loop that it shares with a pair of
 * honest links, which must not notice; the attacked link ends as documented or survives; whatever
 * happens, memory, descriptors, threads and the books of the allocator come out even.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define WINDOW (1u << 20)
/* More than the sockets of both ends hold. */
#define WRITE_SIZE (8u << 20)

/* ---- the honest pair --------------------------------------------------------------------------- */

static struct {
    clb_loop *loop;
    clb_link *host, *dev;
    clb_stream *in, *out;
} honest;

static void honest_start(void)
{
    clb_listener *l = NULL;
    CHECK_EQ(clb_loop_create(&honest.loop, NULL), CLB_OK);
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
    lp.link.loop = honest.loop;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    CHECK_EQ(clb_link_open(&honest.host,
                           clb_link_params(.uri = clb_listener_uri(l), .loop = honest.loop)),
             CLB_OK);
    CHECK_EQ(clb_listener_accept(l, &honest.dev, 10 * SEC), CLB_OK);
    clb_listener_close(&l);
    CHECK_EQ(clb_stream_open(&honest.out, honest.dev,
                             clb_stream_params(.name = "v", .write_window = 100000)),
             CLB_OK);
    CHECK_EQ(clb_stream_open(&honest.in, honest.host, clb_stream_params(.name = "v")), CLB_OK);
}

static void honest_check(void)
{
    static const uint8_t data[50000] = {42};
    struct clb_iovec iov = {data, sizeof data};
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_write(honest.out, &iov, 1, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_stream_read(honest.in, &p, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), sizeof data);
    CHECK_EQ(*(uint8_t *)clb_packet_data(p), 42);
    clb_packet_free(&p);
}

static void honest_stop(void)
{
    clb_stream_close(&honest.in);
    clb_stream_close(&honest.out);
    clb_link_close(&honest.host);
    clb_link_close(&honest.dev);
    clb_loop_destroy(&honest.loop);
}

/* ---- one attack -------------------------------------------------------------------------------- */

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

static atomic_int over; /* the victim has seen enough */

static void run_attack(struct peer *p, void *arg)
{
    const struct attack *a = arg;
    CHECK(peer_handshake(p));
    a->fn(p, a);
    if (p->fd >= 0) {
        /* Silent from here on, and still there. */
        for (int i = 0; i < 20000 && !atomic_load(&over); i++) {
            check_sleep_ms(1);
        }
        peer_close(p);
    }
}

static void *write_on(void *arg)
{
    static const uint8_t data[WRITE_SIZE];
    struct clb_iovec iov = {data, sizeof data};
    int err;
    /* TIMEOUT: in the socket, and not answered in time. */
    do {
        err = clb_stream_write(arg, &iov, 1, 20 * SEC);
    } while (err == CLB_OK || err == CLB_ERR_TIMEOUT);
    CHECK(err == CLB_ERR_LOST || err == CLB_ERR_CLOSED || err == CLB_ERR_IO);
    return NULL;
}

static void victim(struct attack a)
{
    struct peer peer;
    struct talloc t;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    pthread_t writer;
    struct clb_status why = {0};
    talloc_init(&t, NULL);
    atomic_store(&over, 0);
    a.link.struct_size = sizeof a.link;
    a.link.loop = honest.loop;
    a.link.close_timeout_ns = 100 * MS;
    if (a.tcp) {
        uint16_t port;
        char uri[64];
        int l = peer_listen(&port);
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
        a.link.uri = uri;
        peer_accept_later(&peer, l, run_attack, &a);
        CHECK_EQ(clb_link_open(&link, &a.link), CLB_OK);
        close(l);
    } else {
        int fd = peer_pair(&peer, a.as_host);
        peer_start(&peer, run_attack, &a);
        CHECK_EQ(clb_link_adopt(&link, fd, a.as_host ? CLB_ROLE_DEVICE : CLB_ROLE_HOST, &a.link),
                 CLB_OK);
    }
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .on_full = a.on_full};
    sp.allocator = talloc_allocator(&t);
    sp.write_window = a.writes ? 4 * WRITE_SIZE : 0;
    sp.queue_len = 64;
    int err = clb_stream_open(&s, link, &sp);
    CHECK(err == CLB_OK || (a.err && (err == CLB_ERR_LOST || err == CLB_ERR_CLOSED)));
    if (s && a.writes) {
        CHECK_EQ(pthread_create(&writer, NULL, write_on, s), 0);
    }
    uint64_t packets = 0;
    clb_packet *p = NULL;
    while (s && (err = clb_stream_read(
                     s, &p, a.err || packets < a.packets ? 15 * SEC : 300 * MS)) == CLB_OK) {
        CHECK_LE(clb_packet_size(p), WINDOW);
        packets++;
        clb_packet_free(&p);
    }
    enum clb_link_state state = clb_link_get_state(link, &why);
    CHECK_EQ(why.err, a.err);
    if (a.err) {
        CHECK_GE(state, CLB_LINK_CLOSING);
        CHECK(why.text[0] != '\0');
        CHECK(!s || err == CLB_ERR_LOST || err == CLB_ERR_CLOSED);
    } else {
        CHECK_EQ(state, CLB_LINK_UP);
        CHECK_EQ(err, CLB_ERR_TIMEOUT);
    }
    CHECK_EQ(packets, a.packets);
    clb_link_stats ls;
    clb_link_get_stats(link, &ls, sizeof ls);
    CHECK_GE(ls.nacks_sent, a.nacks);
    honest_check();
    atomic_store(&over, 1);
    clb_link_close(&link);
    if (s && a.writes) {
        pthread_join(writer, NULL);
    }
    clb_stream_close(&s);
    peer_join(&peer);
    if (a.allocs >= 0) {
        CHECK_EQ(t.calls, a.allocs);
    }
    talloc_check(&t);
}

/* ---- lies about sizes and streams -------------------------------------------------------------- */

static int announce(struct peer *p)
{
    return peer_create(p, "a", WINDOW);
}

static void write_header(struct peer *p, uint32_t stream_id, uint32_t size)
{
    peer_send_header(p, CLBI_WRITE_REQ, p->next_id++, NULL, stream_id, size, CLBI_FLAG_ACK);
}

static void until_opened(struct peer *p, int a)
{
    for (int i = 0; i < 2000 && !p->stream[a].created && !p->eof; i++) {
        peer_pump(p, 5);
    }
}

static void send_zeros(struct peer *p, size_t n)
{
    static const uint8_t block[65536];
    while (n > 0 && peer_send_raw(p, block, n < sizeof block ? n : sizeof block)) {
        n -= n < sizeof block ? n : sizeof block;
    }
}

/* arg bytes are announced; the payload follows when it could be true. */
static void lie_size(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    write_header(p, p->stream[i].id, a->arg);
    if (a->arg <= WINDOW) {
        send_zeros(p, a->arg);
    }
}

/* The first packet fits, the second exceeds what is left of the window by one byte. */
static void lie_fill(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    p->deaf = true;
    write_header(p, p->stream[i].id, 1000);
    send_zeros(p, 1000);
    write_header(p, p->stream[i].id, WINDOW - 1000 + a->arg);
    send_zeros(p, a->arg ? 0 : WINDOW - 1000);
}

/* arg packets of arg2 bytes, whatever the other side says. With BLOCK and nobody reading. */
static void too_many(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    for (uint32_t k = 0; k < a->arg; k++) {
        write_header(p, p->stream[i].id, a->arg2);
        send_zeros(p, a->arg2);
    }
}

static void unknown_streams(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    for (uint32_t k = 0; k < a->arg; k++) {
        write_header(p, k % 2 ? 0x00FFFFFF : CLBI_ID_NONE, a->arg2);
        send_zeros(p, a->arg2);
    }
    p->by_hand = true;
    write_header(p, p->stream[i].id, 10);
    send_zeros(p, 10);
}

/* Nobody reads 2 GiB and more to keep in step. */
static void unknown_huge(struct peer *p, const struct attack *a)
{
    until_opened(p, announce(p));
    write_header(p, 0x00FFFFFF, a->arg);
}

static void bad_type(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    peer_send_header(p, a->arg, 1, "a", p->stream[i].id, 0, CLBI_FLAG_ACK);
}

static void unasked_answers(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    for (uint32_t k = 0; k < a->arg; k++) {
        peer_send_header(p, CLBI_WRITE_RESP, (int32_t)(100000 + k), NULL, p->stream[i].id, 5,
                         CLBI_FLAG_ACK);
    }
}

static void forged_release(struct peer *p, const struct attack *a)
{
    struct clbi_wire_header h;
    int i = announce(p);
    until_opened(p, i);
    if (a->writes) { /* one packet is out: name more bytes than it had, or twice */
        do {
            CHECK(peer_recv(p, &h, NULL, 5000));
        } while (h.type != CLBI_WRITE_REQ);
        peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    }
    for (uint32_t k = 0; k < 20; k++) {
        peer_send_header(p, CLBI_READ_REL_REQ, p->next_id++, NULL, p->stream[i].id, a->arg,
                         CLBI_FLAG_ACK);
    }
}

static void lies(void)
{
    const uint32_t sizes[] = {0xFFFFFFFF, 0xFFFFFFC1, 0x80000000, 0x7FFFFFFF, WINDOW + 1};
    for (int role = 0; role < 2; role++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            victim((struct attack){
                .fn = lie_size, .arg = sizes[i], .as_host = role, .err = CLB_ERR_PROTO});
        }
        victim((struct attack){
            .fn = lie_size, .arg = WINDOW, .as_host = role, .packets = 1, .allocs = 1});
        victim((struct attack){.fn = unknown_streams,
                               .arg = 16,
                               .arg2 = 100,
                               .as_host = role,
                               .packets = 1,
                               .allocs = 1,
                               .nacks = 16});
        victim((struct attack){
            .fn = unknown_streams, .arg = 17, .arg2 = 0, .as_host = role, .err = CLB_ERR_PROTO});
    }
    const uint32_t types[] = {1, 7, 9, 15, 16, 23, 26, 29, 0x100, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        victim((struct attack){.fn = bad_type, .arg = types[i], .err = CLB_ERR_PROTO});
    }
    victim((struct attack){.fn = unknown_huge, .arg = 0xFFFFFFFF, .err = CLB_ERR_PROTO});
    victim((struct attack){.fn = unknown_huge, .arg = (64u << 20) + 1, .err = CLB_ERR_PROTO});
    victim((struct attack){.fn = unasked_answers, .arg = 16});
    victim((struct attack){.fn = unasked_answers, .arg = 17, .err = CLB_ERR_PROTO});
    victim((struct attack){.fn = forged_release, .arg = 0, .err = CLB_ERR_PROTO});
    victim((struct attack){
        .fn = forged_release, .arg = WRITE_SIZE + 1, .writes = true, .err = CLB_ERR_PROTO});
    victim((struct attack){.fn = forged_release,
                           .arg = WRITE_SIZE,
                           .writes = true,
                           .err = CLB_ERR_PROTO,
                           .allocs = -1});
}

/* Nobody reads: the 65th packet, or the first byte beyond the window, ends the link; what was
 * complete before is still there. */
static void beyond_the_window(void)
{
    const struct {
        void (*fn)(struct peer *, const struct attack *);
        uint32_t arg, arg2;
        uint64_t packets;
        int err;
    } cases[] = {
        {too_many, 64, 0, 64, CLB_OK},     {too_many, 65, 0, 64, CLB_ERR_PROTO},
        {too_many, 64, 16384, 64, CLB_OK}, {too_many, 5, WINDOW / 4, 4, CLB_ERR_PROTO},
        {lie_fill, 0, 0, 2, CLB_OK},       {lie_fill, 1, 0, 1, CLB_ERR_PROTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int spill = 0; spill < 2; spill++) {
            struct attack a = {.fn = cases[i].fn, .arg = cases[i].arg, .arg2 = cases[i].arg2};
            struct peer peer;
            struct talloc t;
            clb_link *link = NULL;
            clb_stream *s = NULL;
            struct clb_status why;
            clb_link_stats ls;
            talloc_init(&t, NULL);
            t.limit = spill ? 1 : 0;
            atomic_store(&over, 0);
            int fd = peer_pair(&peer, false);
            peer_start(&peer, run_attack, &a);
            CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, clb_link_params(.loop = honest.loop)),
                     CLB_OK);
            clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
            sp.allocator = talloc_allocator(&t);
            CHECK_EQ(clb_stream_open(&s, link, &sp), CLB_OK);
            for (int k = 0; k < 5000; k++) {
                clb_stream_stats st;
                clb_stream_get_stats(s, &st, sizeof st);
                if (st.packets >= cases[i].packets &&
                    (!cases[i].err || clb_link_get_state(link, NULL) == CLB_LINK_DOWN)) {
                    break;
                }
                check_sleep_ms(2);
            }
            clb_link_get_state(link, &why);
            CHECK_EQ(why.err, cases[i].err);
            clb_link_get_stats(link, &ls, sizeof ls);
            honest_check();
            for (uint64_t k = 0; k < cases[i].packets; k++) {
                clb_packet *p = NULL;
                CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
                clb_packet_free(&p);
            }
            clb_packet *p = NULL;
            CHECK_EQ(clb_stream_read(s, &p, 0), cases[i].err ? CLB_ERR_LOST : CLB_ERR_AGAIN);
            atomic_store(&over, 1);
            clb_link_close(&link);
            clb_stream_close(&s);
            peer_join(&peer);
            talloc_check(&t);
        }
    }
}

/* ---- silence ----------------------------------------------------------------------------------- */

static void half_header(struct peer *p, const struct attack *a)
{
    const uint8_t zeros[84] = {0};
    int i = announce(p);
    until_opened(p, i);
    peer_send_raw(p, zeros, a->arg);
}

static void half_payload(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    write_header(p, p->stream[i].id, 100000);
    send_zeros(p, a->arg);
    if (a->arg2 == 1) {
        check_sleep_ms(20);
        peer_close(p);
    } else if (a->arg2 == 2) {
        check_sleep_ms(20);
        peer_abort(p);
    }
}

static void only_silent(struct peer *p, const struct attack *a)
{
    (void)a;
    until_opened(p, announce(p));
}

static void pings_without_reading(struct peer *p, const struct attack *a)
{
    (void)a;
    until_opened(p, announce(p));
    int size = 4096;
    setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    /* The system keeps the window of a connection shut whose end still has bytes for us. */
    struct timeval limit = {.tv_sec = 2};
    setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    while (!atomic_load(&over) &&
           peer_send_header(p, CLBI_PING_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK)) {
    }
}

static void never_reads(struct peer *p, const struct attack *a)
{
    (void)a;
    until_opened(p, announce(p));
}

static void silence(void)
{
    const clb_link_params impatient = {
        .progress_timeout_ns = 150 * MS, .keepalive_ns = -1, .idle_timeout_ns = -1};
    const clb_link_params idle = {.keepalive_ns = 50 * MS, .idle_timeout_ns = 200 * MS};
    victim((struct attack){.fn = half_header, .arg = 1, .link = impatient, .err = CLB_ERR_LOST});
    victim((struct attack){.fn = half_header, .arg = 83, .link = impatient, .err = CLB_ERR_LOST});
    victim(
        (struct attack){.fn = half_payload, .link = impatient, .err = CLB_ERR_LOST, .allocs = 1});
    victim((struct attack){
        .fn = half_payload, .arg = 99999, .link = impatient, .err = CLB_ERR_LOST, .allocs = 1});
    victim((struct attack){.fn = only_silent, .link = impatient}); /* idle is no stall */
    victim((struct attack){.fn = only_silent, .link = idle, .err = CLB_ERR_LOST});
    for (uint32_t how = 1; how <= 2; how++) {
        for (int tcp = 0; tcp < 2; tcp++) {
            victim((struct attack){.fn = half_payload,
                                   .arg = 50000,
                                   .arg2 = how,
                                   .tcp = tcp,
                                   .err = CLB_ERR_LOST,
                                   .allocs = 1});
        }
    }
    for (int tcp = 0; tcp < 2; tcp++) {
        victim((struct attack){
            .fn = pings_without_reading, .tcp = tcp, .link = impatient, .err = CLB_ERR_LOST});
        victim((struct attack){
            .fn = never_reads, .tcp = tcp, .link = impatient, .writes = true, .err = CLB_ERR_LOST});
    }
}

/* ---- floods ------------------------------------------------------------------------------------ */

static void create_flood(struct peer *p, const struct attack *a)
{
    char name[40];
    struct clbi_wire_header h;
    int i = announce(p);
    until_opened(p, i);
    for (uint32_t k = 0; k < a->arg; k++) {
        snprintf(name, sizeof name, "s%u", a->arg2 ? k % a->arg2 : k);
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, (int32_t)(k + 1000), name, CLBI_ID_NONE,
                         k % 7 ? 64 + k : 0xFFFFFFFF, CLBI_FLAG_ACK);
        while (peer_recv(p, &h, NULL, 0)) {
            if (h.type == CLBI_CREATE_STREAM_RESP && (h.flags & CLBI_FLAG_ACK)) {
                peer_send_header(p, CLBI_CLOSE_STREAM_REQ, (int32_t)(k + 1000), NULL, h.stream_id,
                                 0, CLBI_FLAG_ACK);
            }
        }
    }
    while (peer_recv(p, &h, NULL, 100)) {
    }
    write_header(p, p->stream[i].id, 10);
    send_zeros(p, 10);
    while (peer_recv(p, &h, NULL, 100)) {
    }
}

static void bad_names(struct peer *p, const struct attack *a)
{
    uint8_t hdr[CLBI_WIRE_HEADER];
    struct clbi_wire_header h = {.id = 50, .type = CLBI_CREATE_STREAM_REQ, .size = 64};
    (void)a;
    int i = announce(p);
    until_opened(p, i);
    for (int k = 0; k < 3; k++) {
        memset(h.name, k == 0 ? 'x' : 0, sizeof h.name); /* no NUL; empty; "../" with controls */
        memcpy(h.name, "../\n\x1b[2J\xff", k == 2 ? 9 : 0);
        h.stream_id = k == 2 ? p->stream[i].id : CLBI_ID_NONE;
        clbi_wire_encode(hdr, &h);
        peer_send_raw(p, hdr, sizeof hdr);
    }
    p->by_hand = true;
    write_header(p, p->stream[i].id, 10);
    send_zeros(p, 10);
    struct clbi_wire_header got;
    while (peer_recv(p, &got, NULL, 100)) {
    }
}

static void floods(void)
{
    victim(
        (struct attack){.fn = create_flood, .arg = 3000, .packets = 1, .allocs = 1, .nacks = 100});
    victim((struct attack){.fn = create_flood, .arg = 3000, .arg2 = 20, .packets = 1, .allocs = 1});
    victim((struct attack){.fn = bad_names, .packets = 1, .allocs = 1, .nacks = 2});
}

/* ---- death after every byte -------------------------------------------------------------------- */

static size_t put(uint8_t *at, uint32_t type, int32_t id, const char *name, uint32_t stream_id,
                  uint32_t size)
{
    struct clbi_wire_header h = {
        .id = id, .type = type, .stream_id = stream_id, .size = size, .flags = CLBI_FLAG_ACK};
    strncpy(h.name, name, sizeof h.name - 1);
    clbi_wire_encode(at, &h);
    return CLBI_WIRE_HEADER;
}

struct canned {
    const uint8_t *bytes;
    size_t n;
    bool hard;
};

static void say_and_die(struct peer *p, void *arg)
{
    const struct canned *c = arg;
    struct clbi_wire_header h;
    if (!p->host) {
        CHECK(peer_recv(p, &h, NULL, 5000)); /* an answer before the PING would be none */
    }
    peer_send_raw(p, c->bytes, c->n);
    if (!c->hard) {
        /* Takes what is said until the other side is idle, so that this is an orderly FIN. */
        shutdown(p->fd, SHUT_WR);
        while (peer_recv(p, &h, NULL, 2000)) {
        }
    }
    peer_close(p);
}

/* PING (or its answer), CREATE, two packets: the peer dies behind byte k. */
static void death_at_every_byte(bool as_host)
{
    uint8_t bytes[1024];
    size_t n = 0, up, first, second;
    n += as_host ? put(bytes + n, CLBI_PING_REQ, 1, "", 0, 0)
                 : put(bytes + n, CLBI_PING_RESP, 11, "", 0, 0); /* ids begin at 11 */
    up = n;
    n += put(bytes + n, CLBI_CREATE_STREAM_REQ, 2, "a", as_host ? 0 : CLBI_ID_NONE, 4096);
    n += put(bytes + n, CLBI_WRITE_REQ, 3, "", 0, 70);
    memset(bytes + n, 1, 70);
    n += 70;
    first = n;
    n += put(bytes + n, CLBI_WRITE_REQ, 4, "", 0, 50);
    memset(bytes + n, 2, 50);
    n += 50;
    second = n;
    for (size_t k = 0; k <= n; k++) {
        for (int hard = 0; hard < 2; hard++) {
            struct canned c = {bytes, k, hard};
            struct peer peer;
            struct talloc t;
            clb_link *link = NULL;
            clb_stream *s = NULL;
            talloc_init(&t, NULL);
            int fd = peer_pair(&peer, as_host);
            peer_start(&peer, say_and_die, &c);
            int err = clb_link_adopt(&link, fd, as_host ? CLB_ROLE_DEVICE : CLB_ROLE_HOST,
                                     clb_link_params(.loop = honest.loop));
            if (err < 0) {
                close(fd);
                CHECK(err == CLB_ERR_LOST || err == CLB_ERR_IO);
                /* Lost in the moment it came up, unless a payload holds the end back. */
                CHECK(hard || k < up + 2 * CLBI_WIRE_HEADER);
                peer_join(&peer);
                continue;
            }
            CHECK_GE(k, up);
            clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
            sp.allocator = talloc_allocator(&t);
            err = clb_stream_open(&s, link, &sp);
            CHECK(err == CLB_OK || err == CLB_ERR_LOST);
            int got = 0;
            clb_packet *p = NULL;
            while (s && (err = clb_stream_read(s, &p, 10 * SEC)) == CLB_OK) {
                got++;
                CHECK_EQ(clb_packet_size(p), got == 1 ? 70 : 50);
                for (size_t i = 0; i < clb_packet_size(p); i++) {
                    CHECK_EQ(((uint8_t *)clb_packet_data(p))[i], got);
                }
                clb_packet_free(&p);
            }
            CHECK_EQ(err, CLB_ERR_LOST);
            CHECK_LE(got, (k >= first) + (k >= second));
            if (!hard && s) {
                CHECK_EQ(got, (k >= first) + (k >= second));
            }
            clb_stream_close(&s);
            clb_link_close(&link);
            peer_join(&peer);
            talloc_check(&t);
        }
    }
    honest_check();
}

/* ---- noise ------------------------------------------------------------------------------------- */

static uint32_t rnd(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Headers whose fields are nearly right, with payloads that are sometimes there. */
static void noise_of(struct peer *p, void *arg)
{
    static const uint32_t types[] = {0, 0, 0, 2, 3, 4, 5, 8, 10, 11, 12, 13, 24, 25, 27, 28, 6, 14};
    static const char *const names[] = {"a", "b", "c", ""};
    uint32_t state = *(uint32_t *)arg;
    if (!peer_handshake(p)) {
        peer_close(p);
        return;
    }
    p->by_hand = true;
    for (int i = 0; i < 60 && !p->eof; i++) {
        uint32_t type = types[rnd(&state) % (i < 40 ? 16 : 18)];
        uint32_t size = rnd(&state) % 4 == 0 ? rnd(&state) : rnd(&state) % 3000;
        uint32_t id = rnd(&state) % 8 == 0 ? rnd(&state) : rnd(&state) % 3;
        if (type == CLBI_CREATE_STREAM_REQ) {
            size = rnd(&state) % 4 ? 100000 : size;
        }
        if (!peer_send_header(p, type, (int32_t)(11 + rnd(&state) % 12), names[rnd(&state) % 4], id,
                              size, rnd(&state) & 0x67)) {
            break;
        }
        if ((type == 0 || type == 25) && size < 3000 && rnd(&state) % 16) {
            send_zeros(p, size);
        }
        struct clbi_wire_header h;
        while (rnd(&state) % 3 && peer_recv(p, &h, NULL, 0)) {
        }
    }
    if (rnd(&state) % 2) {
        peer_abort(p);
    }
    peer_close(p);
}

static void noise(uint32_t rounds)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        struct peer peer;
        struct talloc t;
        clb_link *link = NULL;
        clb_stream *s[2] = {NULL, NULL};
        uint32_t seed = i * 2654435761u;
        talloc_init(&t, "ooonoeosomon");
        int fd = peer_pair(&peer, i & 1);
        peer_start(&peer, noise_of, &seed);
        clb_link_params lp = {.struct_size = sizeof lp, .loop = honest.loop};
        lp.allocator = talloc_allocator(&t);
        lp.first_open_ns = i & 2 ? -1 : 10 * MS;
        lp.progress_timeout_ns = 300 * MS;
        lp.close_timeout_ns = 50 * MS;
        if (clb_link_adopt(&link, fd, i & 1 ? CLB_ROLE_DEVICE : CLB_ROLE_HOST, &lp) < 0) {
            close(fd);
        } else {
            for (int k = 0; k < 2; k++) {
                clb_stream_params sp = {.struct_size = sizeof sp, .name = k ? "b" : "a"};
                sp.on_full = (enum clb_full)(i % 3);
                sp.open_timeout_ns = 5 * MS;
                sp.write_window = k ? 1000 : 0;
                (void)!clb_stream_open(&s[k], link, &sp);
            }
            struct clb_iovec iov = {&seed, sizeof seed};
            for (int k = 0; k < 12; k++) {
                clb_packet *p = NULL;
                if (s[k & 1] && clb_stream_read(s[k & 1], &p, 2 * MS) == CLB_OK) {
                    clb_packet_free(&p);
                }
                if (s[1]) {
                    (void)!clb_stream_write(s[1], &iov, 1, 0);
                }
                if (k == 6 && i % 5 == 0) {
                    clb_stream_close(&s[0]);
                }
            }
            if (i % 2) {
                clb_link_close(&link);
            }
            clb_stream_close(&s[0]);
            clb_stream_close(&s[1]);
            clb_link_close(&link);
        }
        peer_join(&peer);
        talloc_check(&t);
    }
    honest_check();
}

/* ---- a crowd at the door ----------------------------------------------------------------------- */

/* Clients that connect and never say PING occupy the listener no longer than connect_timeout. */
static void silent_clients(void)
{
    clb_listener *l = NULL;
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 4};
    lp.link.loop = honest.loop;
    lp.link.connect_timeout_ns = 300 * MS;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    const uint16_t port = (uint16_t)atoi(strrchr(clb_listener_uri(l), ':') + 1);
    struct peer p[12];
    for (int i = 0; i < 12; i++) {
        peer_connect(&p[i], port);
    }
    clb_link *dev = NULL, *host = NULL;
    CHECK_EQ(clb_listener_accept(l, &dev, 10 * MS), CLB_ERR_TIMEOUT);
    const int64_t until = check_ms() + 10000;
    while (clb_link_open(&host, clb_link_params(.uri = clb_listener_uri(l))) < 0) {
        CHECK_LE(check_ms(), until);
        check_sleep_ms(20);
    }
    CHECK_EQ(clb_listener_accept(l, &dev, 10 * SEC), CLB_OK);
    for (int i = 0; i < 12; i++) {
        peer_close(&p[i]);
    }
    clb_link_close(&host);
    clb_link_close(&dev);
    clb_listener_close(&l);
    honest_check();
}

/* ---- ends at random moments -------------------------------------------------------------------- */

struct pair {
    uint32_t seed;
    clb_loop *loop; /* NULL = each its own */
    clb_listener *listener;
    int rounds;
};

struct traffic {
    clb_stream *s;
};

static void *keep_reading(void *arg)
{
    struct traffic *t = arg;
    clb_packet *p = NULL, *kept = NULL;
    int err;
    while ((err = clb_stream_read(t->s, &p, 10 * SEC)) == CLB_OK) {
        clb_packet_free(&kept);
        kept = p;
    }
    CHECK_EQ(err == CLB_ERR_LOST ? CLB_ERR_CLOSED : err, CLB_ERR_CLOSED);
    if (kept) {
        CHECK_EQ(clb_packet_size(kept), 5000);
    }
    clb_packet_free(&kept);
    return NULL;
}

static void *keep_writing(void *arg)
{
    struct traffic *t = arg;
    static const uint8_t data[5000];
    struct clb_iovec iov[2] = {{data, 1000}, {data + 1000, 4000}};
    int err;
    while ((err = clb_stream_write(t->s, iov, 2, 10 * SEC)) == CLB_OK) {
    }
    CHECK_EQ(err == CLB_ERR_LOST ? CLB_ERR_CLOSED : err, CLB_ERR_CLOSED);
    return NULL;
}

/* A pair of links with traffic; one end goes by shutdown or close, from this thread, at a random
 * moment; the other notices. */
static void *random_ends(void *arg)
{
    struct pair *pr = arg;
    for (int i = 0; i < pr->rounds; i++) {
        clb_link *host = NULL, *dev = NULL;
        struct traffic in = {0}, out = {0};
        pthread_t r, w;
        clb_link_params hp = {.struct_size = sizeof hp, .uri = clb_listener_uri(pr->listener)};
        hp.loop = pr->loop;
        CHECK_EQ(clb_link_open(&host, &hp), CLB_OK);
        CHECK_EQ(clb_listener_accept(pr->listener, &dev, 10 * SEC), CLB_OK);
        CHECK_EQ(
            clb_stream_open(&out.s, dev, clb_stream_params(.name = "v", .write_window = 20000)),
            CLB_OK);
        CHECK_EQ(clb_stream_open(&in.s, host, clb_stream_params(.name = "v")), CLB_OK);
        CHECK_EQ(pthread_create(&r, NULL, keep_reading, &in), 0);
        CHECK_EQ(pthread_create(&w, NULL, keep_writing, &out), 0);
        struct timespec nap = {.tv_nsec = rnd(&pr->seed) % 3000000};
        nanosleep(&nap, NULL);
        switch (rnd(&pr->seed) % 6) {
        case 0: clb_link_close(&host); break;
        case 1: clb_link_close(&dev); break;
        case 2: clb_link_shutdown(host, 0); break;
        case 3: clb_link_shutdown(dev, 5 * SEC); break;
        case 4: clb_link_shutdown(host, -1); break;
        default:
            clb_link_shutdown(host, 0);
            clb_link_shutdown(dev, 0);
            break;
        }
        nap.tv_nsec = rnd(&pr->seed) % 1000000;
        nanosleep(&nap, NULL);
        if (rnd(&pr->seed) % 2) {
            clb_link_close(&dev);
            clb_link_close(&host);
        } else {
            clb_link_close(&host);
            clb_link_close(&dev);
        }
        pthread_join(r, NULL);
        pthread_join(w, NULL);
        clb_stream_close(&in.s);
        clb_stream_close(&out.s);
    }
    return NULL;
}

static void random_moments(bool shared, int threads_n, int rounds)
{
    struct pair pr[4];
    pthread_t t[4];
    for (int i = 0; i < threads_n; i++) {
        pr[i] = (struct pair){.seed = 77u + (uint32_t)i, .rounds = rounds};
        pr[i].loop = shared ? honest.loop : NULL;
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link.loop = pr[i].loop;
        lp.max_links = 8;
        CHECK_EQ(clb_listener_open(&pr[i].listener, &lp), CLB_OK);
        CHECK_EQ(pthread_create(&t[i], NULL, random_ends, &pr[i]), 0);
    }
    for (int i = 0; i < threads_n; i++) {
        pthread_join(t[i], NULL);
        clb_listener_close(&pr[i].listener);
    }
    honest_check();
}

int main(int argc, char **argv)
{
    check_watchdog(200);
    const int fds0 = check_fds(), threads0 = check_threads();
    honest_start();
    const int fds = check_fds(), threads = check_threads();
#define RUN(f)                                                                                     \
    do {                                                                                           \
        if (argc < 2 || strstr(#f, argv[1])) {                                                     \
            int64_t t0 = check_ms();                                                               \
            f;                                                                                     \
            check_back_to(fds, threads);                                                           \
            fprintf(stderr, "%s: %d ms\n", #f, (int)(check_ms() - t0));                            \
        }                                                                                          \
    } while (0)
    RUN(lies());
    RUN(beyond_the_window());
    RUN(silence());
    RUN(floods());
    RUN(death_at_every_byte(false));
    RUN(death_at_every_byte(true));
    RUN(noise(1500));
    RUN(silent_clients());
    RUN(random_moments(true, 4, 150));
    RUN(random_moments(false, 4, 150));
    honest_stop();
    check_back_to(fds0, threads0);
    return 0;
}
