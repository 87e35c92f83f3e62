/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits for company before it is sent (src/core/link_hold.c): in a conversation one send for
 * each packet that is answered, nothing ever waits for long, and what was read along with a header
 * is counted. Sends of the library are counted by a wrapper.
 */
#include <clbridge/clbridge.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define SMALL 5u
#define LARGE 100000u
#define WINDOW (4 * LARGE)
#define ROUNDS 50
/* Before these a conversation has begun. */
#define WARM 12

static atomic_long sends;
static _Thread_local bool is_peer;
static _Thread_local atomic_int *hold_up; /* this thread's next send takes its time: 1, then 2 */

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    if (!is_peer) {
        atomic_fetch_add(&sends, 1);
    }
    if (hold_up && atomic_load(hold_up) == 0) {
        atomic_store(hold_up, 1);
        check_sleep_ms(300);
        atomic_store(hold_up, 2);
    }
    return __real_sendmsg(fd, msg, flags);
}

/* ---- a link and its peer, both driven by this thread once they are connected --------------------- */

struct pair {
    struct peer peer;
    clb_loop *loop;
    clb_link *link;
    clb_stream *s;
};

static void connect_peer(struct peer *p, void *arg)
{
    atomic_int *done = arg;
    is_peer = true;
    CHECK(peer_handshake(p));
    CHECK_EQ(peer_create(p, "a", WINDOW), 0);
    for (int i = 0; i < 500 && !p->stream[0].created; i++) {
        peer_pump(p, 10);
    }
    CHECK(p->stream[0].created);
    atomic_store(done, 1);
}

static int our_buffer; /* bytes that our end may have under way, 0 = as it is */

static void pair_open(struct pair *t, bool caller_driven, void (*ready)(void *, clb_stream *))
{
    *t = (struct pair){0};
    clb_loop_params lp = {.struct_size = sizeof lp, .caller_driven = caller_driven};
    CHECK_EQ(clb_loop_create(&t->loop, &lp), CLB_OK);
    int fd = peer_pair(&t->peer, false);
    if (our_buffer) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &our_buffer, sizeof our_buffer);
    }
    atomic_int done = 0;
    peer_start(&t->peer, connect_peer, &done);
    clb_link_params kp = {.struct_size = sizeof kp, .loop = t->loop};
    kp.keepalive_ns = kp.idle_timeout_ns = -1; /* nothing wakes the loop but what is tried */
    CHECK_EQ(clb_link_adopt(&t->link, fd, CLB_ROLE_HOST, &kp), CLB_OK);
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .write_window = 65536};
    sp.write_async = 1;
    sp.ready_cb = ready;
    sp.priv = t;
    CHECK_EQ(clb_stream_open(&t->s, t->link, &sp), CLB_OK);
    while (!atomic_load(&done)) {
        clb_loop_dispatch(t->loop, 10 * MS);
    }
    peer_join(&t->peer);
}

static void pair_close(struct pair *t)
{
    clb_stream_close(&t->s);
    peer_close(&t->peer);
    clb_link_close(&t->link);
    clb_loop_destroy(&t->loop);
}

/* A WRITE header and `have` bytes of its payload, each `value`, behind each other in out. */
static size_t put_write(struct peer *p, uint8_t *out, uint32_t size, uint32_t have, int value)
{
    const struct clbi_wire_header h = {.id = p->next_id++,
                                       .type = CLBI_WRITE_REQ,
                                       .stream_id = p->stream[0].id,
                                       .size = size,
                                       .flags = CLBI_FLAG_ACK};
    clbi_wire_encode(out, &h);
    memset(out + CLBI_WIRE_HEADER, value, have);
    p->stream[0].fill += size;
    p->stream[0].fill_packets++;
    return CLBI_WIRE_HEADER + have;
}

static void send_small(struct pair *t, int value)
{
    uint8_t out[CLBI_WIRE_HEADER + SMALL];
    is_peer = true;
    CHECK(peer_send_raw(&t->peer, out, put_write(&t->peer, out, SMALL, SMALL, value)));
    is_peer = false;
}

/* Until the peer has seen so many acks. */
static bool peer_takes(struct pair *t, uint64_t acked, uint64_t released, int ms)
{
    is_peer = true;
    for (int64_t until = check_ms() + ms; check_ms() < until;) {
        if (t->peer.stream[0].acked >= acked && t->peer.stream[0].released >= released) {
            break;
        }
        if (t->loop) {
            is_peer = false;
            clb_loop_dispatch(t->loop, 0); /* STATE on a loop with a thread */
            is_peer = true;
        }
        peer_pump(&t->peer, 1);
    }
    is_peer = false;
    return t->peer.stream[0].acked >= acked && t->peer.stream[0].released >= released;
}

static clb_packet *read_one(struct pair *t, uint32_t size, int value)
{
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(t->s, &p, 5 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), size);
    const uint8_t *d = clb_packet_data(p);
    for (uint32_t i = 0; i < size; i++) {
        CHECK_EQ(d[i], value);
    }
    return p;
}

/* The peer says something, the application answers, the peer takes the answer. */
static void round_of(struct pair *t, int value)
{
    send_small(t, value);
    clb_packet *p = read_one(t, SMALL, value);
    const struct clb_iovec iov = {clb_packet_data(p), SMALL};
    CHECK_EQ(clb_stream_write(t->s, &iov, 1, 5 * SEC), CLB_OK);
    clb_packet_free(&p);
    is_peer = true;
    do {
        CHECK(peer_pump(&t->peer, 5000));
    } while (t->peer.last.type != CLBI_WRITE_REQ);
    is_peer = false;
}

/* ---- cases -------------------------------------------------------------------------------------- */

/* One send for each round: answer, credit of the round before, and what the application says. On a
 * machine that stops us for longer than anything may wait the conversation ends, and begins anew: then
 * the case is tried again. */
static void one_send_for_each_round(void)
{
    long best = 1000;
    for (int i = 0; i < 20 && best > ROUNDS; i++) {
        struct pair t;
        pair_open(&t, true, NULL);
        for (int k = 0; k < WARM; k++) {
            round_of(&t, k);
        }
        const long before = atomic_load(&sends);
        for (int k = 0; k < ROUNDS; k++) {
            round_of(&t, k);
        }
        const long n = atomic_load(&sends) - before;
        best = n < best ? n : best;
        clb_stream_stats st;
        clb_stream_get_stats(t.s, &st, sizeof st);
        CHECK_EQ(st.packets, WARM + ROUNDS);
        CHECK_LE(st.moved_bytes, st.packets * SMALL);
        if (n == ROUNDS) {
            CHECK_GE(st.moved_bytes, ROUNDS * SMALL);
        }
        pair_close(&t);
    }
    printf("%ld sends in %d rounds of a conversation\n", best, ROUNDS);
    CHECK_EQ(best, ROUNDS);
}

/* The application stops to answer: answers and credit go out all the same, and soon. */
static void an_answer_that_does_not_come(bool caller_driven)
{
    struct pair t;
    pair_open(&t, caller_driven, NULL);
    for (int k = 0; k < WARM; k++) {
        round_of(&t, k);
    }
    for (uint64_t k = 0; k < 3; k++) {
        send_small(&t, 77);
        clb_packet *p = read_one(&t, SMALL, 77);
        CHECK(peer_takes(&t, WARM + k + 1, 0, 2000)); /* while the packet is held */
        clb_packet_free(&p);
        CHECK(peer_takes(&t, WARM + k + 1, WARM + k + 1, 2000));
    }
    pair_close(&t);
}

/* Pixels that were read along with a header of a conversation are whole, and counted. */
static void large_packet_in_a_conversation(void)
{
    static uint8_t out[2 * (CLBI_WIRE_HEADER + LARGE)];
    struct pair t;
    clb_packet_info info;
    pair_open(&t, true, NULL);
    for (int k = 0; k < WARM; k++) {
        round_of(&t, k);
    }
    clb_stream_stats before, after;
    clb_stream_get_stats(t.s, &before, sizeof before);
    size_t n = put_write(&t.peer, out, SMALL, SMALL, 1);
    n += put_write(&t.peer, out + n, LARGE, LARGE, 2);
    is_peer = true;
    CHECK(peer_send_raw(&t.peer, out, n));
    is_peer = false;
    clb_packet *p = read_one(&t, SMALL, 1);
    clb_packet_get_info(p, &info, sizeof info);
    size_t moved = info.moved_bytes;
    clb_packet_free(&p);
    p = read_one(&t, LARGE, 2);
    clb_packet_get_info(p, &info, sizeof info);
    CHECK_LE(info.moved_bytes, 512);
    moved += info.moved_bytes;
    clb_packet_free(&p);
    clb_stream_get_stats(t.s, &after, sizeof after);
    CHECK_EQ(after.moved_bytes - before.moved_bytes, moved);
    /* That was the end of the conversation: the next ones go straight to where they belong. */
    for (int k = 0; k < 2; k++) {
        n = put_write(&t.peer, out, LARGE, LARGE, 3 + k);
        is_peer = true;
        CHECK(peer_send_raw(&t.peer, out, n));
        is_peer = false;
        p = read_one(&t, LARGE, 3 + k);
        clb_packet_get_info(p, &info, sizeof info);
        CHECK_EQ(info.moved_bytes, 0);
        clb_packet_free(&p);
    }
    CHECK(peer_takes(&t, WARM + 4, WARM + 4, 2000));
    pair_close(&t);
}

static void take_and_free(void *priv, clb_stream *s)
{
    clb_packet *p = NULL;
    (void)priv;
    if (clb_stream_read(s, &p, 0) == CLB_OK) {
        clb_packet_free(&p);
    }
}

/* Credit that is given back while the next payload comes in waits for its answer; when that payload
 * stops half-way the credit goes out alone. */
static void credit_beside_a_payload_that_stops(void)
{
    static uint8_t out[2 * (CLBI_WIRE_HEADER + LARGE)];
    struct pair t;
    pair_open(&t, false, take_and_free);
    size_t n = put_write(&t.peer, out, LARGE, LARGE, 1);
    n += put_write(&t.peer, out + n, LARGE, LARGE / 2, 2);
    is_peer = true;
    CHECK(peer_send_raw(&t.peer, out, n));
    is_peer = false;
    t.peer.mute_releases = true; /* in the middle of a payload there can be no answer */
    CHECK(peer_takes(&t, 1, 1, 2000));
    t.peer.mute_releases = false;
    memset(out, 2, LARGE / 2);
    is_peer = true;
    CHECK(peer_send_raw(&t.peer, out, LARGE / 2));
    is_peer = false;
    CHECK(peer_takes(&t, 2, 2, 2000));
    pair_close(&t);
}

/* ---- two threads want to send ------------------------------------------------------------------- */

struct releaser {
    clb_packet *packet;
    atomic_int held_up;
};

static void *release_slowly(void *arg)
{
    struct releaser *r = arg;
    hold_up = &r->held_up;
    clb_packet_free(&r->packet);
    return NULL;
}

/* While a thread sends a release, a write finds the way blocked, and so does the loop that it wakes: it
 * goes out when the release has. Nothing else would wake the loop. */
static void a_write_behind_a_release(void)
{
    struct pair t;
    pthread_t thread;
    struct releaser r = {0};
    pair_open(&t, false, NULL);
    static uint8_t out[CLBI_WIRE_HEADER + LARGE];
    const size_t n = put_write(&t.peer, out, LARGE, LARGE, 1);
    is_peer = true;
    CHECK(peer_send_raw(&t.peer, out, n));
    is_peer = false;
    r.packet = read_one(&t, LARGE, 1);
    CHECK(peer_takes(&t, 1, 0, 2000));
    check_sleep_ms(50); /* the loop sleeps */
    CHECK_EQ(pthread_create(&thread, NULL, release_slowly, &r), 0);
    while (atomic_load(&r.held_up) == 0) {
        check_sleep_ms(1);
    }
    const struct clb_iovec iov = {"hello", SMALL};
    const int err = clb_stream_write(t.s, &iov, 1, SEC);
    CHECK_EQ(err, CLB_OK);
    CHECK_EQ(atomic_load(&r.held_up), 2); /* it did have to wait */
    pthread_join(thread, NULL);
    CHECK(peer_takes(&t, 1, 1, 2000));
    pair_close(&t);
}

/* A peer says all that it has to say before it takes an answer: reading pauses when 64 wait, and goes on
 * when they go out. The last ones are answered as well, though nothing more comes. */
static void answers_behind_a_pause(int pings)
{
    struct pair t;
    our_buffer = 4608;
    pair_open(&t, false, NULL);
    our_buffer = 0;
    is_peer = true;
    for (int i = 0; i < pings; i++) {
        CHECK(peer_send_header(&t.peer, CLBI_PING_REQ, 1000 + i, NULL, 0, 0, CLBI_FLAG_ACK));
    }
    check_sleep_ms(20); /* ours reads as much of that as it may */
    static uint8_t in[CLBI_WIRE_HEADER * 64];
    size_t done = 0;
    const size_t all = (size_t)pings * CLBI_WIRE_HEADER;
    for (int64_t until = check_ms() + 3000; done < all && check_ms() < until;) {
        const ssize_t n = recv(t.peer.fd, in, sizeof in, MSG_DONTWAIT);
        done += n > 0 ? (size_t)n : 0;
        if (n <= 0) {
            check_sleep_ms(1);
        }
    }
    is_peer = false;
    CHECK_EQ(done, all);
    pair_close(&t);
}

int main(void)
{
    check_watchdog(60);
    const int fds = check_fds(), threads = check_threads();
    one_send_for_each_round();
    an_answer_that_does_not_come(true);
    an_answer_that_does_not_come(false);
    large_packet_in_a_conversation();
    credit_beside_a_payload_that_stops();
    a_write_behind_a_release();
    for (int pings = 70; pings < 150; pings += 6) {
        answers_behind_a_pause(pings);
    }
    check_back_to(fds, threads);
    return 0;
}
