/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving over TCP and local sockets: scatter, bytes ahead, ends, bounded work. */
#include "tcp_end.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define ROWS 1620
#define ROW 97
#define PITCH 128

static void strided_scatter(struct mini_loop *loop, bool local)
{
    const size_t total = ROWS * ROW + 11 + 5;
    static uint8_t wire[ROWS * ROW + 16], mem[ROWS * PITCH + 64], head[11], tail[5];
    struct clbi_seg segs[] = {
        plain(head, 11),
        {.base = NULL, .row_bytes = 10, .pitch = 10, .rows = 0},
        {.base = NULL, .row_bytes = 0, .pitch = 0, .rows = 3},
        {.base = mem + 32, .row_bytes = ROW, .pitch = PITCH, .rows = ROWS},
        plain(tail, 5),
    };
    struct end e;
    int peer = make_pair(loop, &e, local), flags;
    uint64_t rx, tx;

    fill(wire, total, 3);
    memset(mem, 0xee, sizeof mem);
    flags = fcntl(peer, F_GETFL);
    fcntl(peer, F_SETFL, flags | O_NONBLOCK);
    CHECK_EQ(start(&e, segs, 5, 0), CLBI_PENDING);
    /* In pieces of odd sizes, which end inside rows. */
    for (size_t off = 0; off < total;) {
        size_t n = 1 + off % 30011;
        ssize_t k = send(peer, wire + off, n < total - off ? n : total - off, MSG_NOSIGNAL);
        if (k > 0)
            off += (size_t)k;
        mini_loop_step(loop, 0);
    }
    UNTIL(loop, e.received);
    CHECK_EQ(e.received, 1);
    CHECK_EQ(e.recv_st.err, CLB_OK);
    CHECK_EQ(e.recv_bytes, total);
    CHECK(memcmp(head, wire, 11) == 0);
    for (size_t r = 0; r < ROWS; r++) {
        const uint8_t *row = mem + 32 + r * PITCH;
        CHECK(memcmp(row, wire + 11 + r * ROW, ROW) == 0);
        for (size_t i = ROW; i < PITCH; i++)
            CHECK_EQ(row[i], 0xee);
    }
    for (size_t i = 0; i < 32; i++)
        CHECK_EQ(mem[i], 0xee);
    CHECK(memcmp(tail, wire + 11 + ROWS * ROW, 5) == 0);
    TCP->progress(e.t, &rx, &tx);
    CHECK_EQ(rx, total);
    CHECK_EQ(tx, 0);

    /* All there already: as many calls as the batches need, two of 1024 rows. */
    if (!local) {
        memset(mem, 0, sizeof mem);
        put(peer, wire, 80000);
        check_sleep_ms(20);
        recv_calls = 0;
        segs[3].rows = (80000 - 16) / ROW;
        size_t less = 16 + segs[3].rows * ROW;
        CHECK_EQ(receive(&e, segs, 5, 0), CLB_OK);
        CHECK_LE(recv_calls, 2);
        CHECK(memcmp(mem + 32 + PITCH, wire + 11 + ROW, ROW) == 0);
        CHECK_EQ(receive(&e,
                         &(struct clbi_seg){
                             .base = mem, .row_bytes = 1, .pitch = 1, .rows = 80000 - less},
                         1, 0),
                 CLB_OK);
    }
    end_close(&e);
    close(peer);
}

/* Every cut inside the segments, the bytes beyond included, with interrupted calls. */
static void cuts(struct mini_loop *loop)
{
    uint8_t wire[64], mem[64], next[12];
    struct clbi_seg segs[] = {{.base = mem, .row_bytes = 7, .pitch = 9, .rows = 3},
                              plain(mem + 40, 3)};
    struct end e;
    int peer = make_pair(loop, &e, false);

    interrupt = true;
    for (size_t cut = 0; cut <= 36; cut++)
        for (recv_limit = 0; recv_limit < 4; recv_limit++) {
            struct clbi_seg rest = plain(next, 12);
            int before = e.received;

            fill(wire, 36, (unsigned)cut);
            memset(mem, 0xee, sizeof mem);
            put(peer, wire, cut);
            settle(loop);
            if (start(&e, segs, 2, 12) == CLBI_PENDING) {
                for (int i = 0; i < 40; i++)
                    mini_loop_step(loop, 0);
                CHECK_EQ(e.received, before + (cut >= 24));
                put(peer, wire + cut, 36 - cut);
                UNTIL(loop, e.received > before);
                CHECK_EQ(e.recv_st.err, CLB_OK);
                CHECK_EQ(e.recv_bytes, 24);
            } else {
                put(peer, wire + cut, 36 - cut);
            }
            for (size_t r = 0; r < 3; r++) {
                CHECK(memcmp(mem + r * 9, wire + r * 7, 7) == 0);
                CHECK_EQ(mem[r * 9 + 7], 0xee);
                CHECK_EQ(mem[r * 9 + 8], 0xee);
            }
            CHECK(memcmp(mem + 40, wire + 21, 3) == 0);
            CHECK_EQ(mem[43], 0xee);
            CHECK_EQ(receive(&e, &rest, 1, 0), CLB_OK);
            CHECK(memcmp(next, wire + 24, 12) == 0);
        }
    recv_limit = 0;
    interrupt = false;
    end_close(&e);
    close(peer);
}

static void byte_at_a_time(struct mini_loop *loop, bool local)
{
    uint8_t wire[200], mem[200];
    struct clbi_seg segs[] = {plain(mem, 84),
                              {.base = mem + 84, .row_bytes = 29, .pitch = 29, .rows = 4}};
    struct end e;
    int peer = make_pair(loop, &e, local);

    fill(wire, sizeof wire, 9);
    CHECK_EQ(start(&e, segs, 2, 0), CLBI_PENDING);
    for (size_t i = 0; i < sizeof wire; i++) {
        uint64_t rx, tx;
        CHECK_EQ(e.received, 0);
        put(peer, wire + i, 1);
        do {
            mini_loop_step(loop, 20);
            TCP->progress(e.t, &rx, &tx);
        } while (rx <= i);
    }
    CHECK_EQ(e.received, 1);
    CHECK(memcmp(mem, wire, sizeof wire) == 0);
    end_close(&e);
    close(peer);
}

/* Header and payload as a link asks for them: the header of the next packet comes with the payload
 * of this one, and an empty socket is not asked again. */
static void ahead_saves_calls(struct mini_loop *loop)
{
    enum { FRAMES = 20, SIZE = 3000 };
    uint8_t head[84], frame[84 + SIZE], mem[SIZE];
    struct clbi_seg h = plain(head, 84), p = plain(mem, SIZE);
    struct end e;
    int peer = make_pair(loop, &e, false);

    /* One after the other: nothing is ahead. */
    CHECK_EQ(start(&e, &h, 1, 0), CLBI_PENDING);
    settle(loop);
    recv_calls = loop->rewatches = 0;
    for (unsigned i = 0; i < FRAMES; i++) {
        int before = e.received;
        fill(frame, sizeof frame, i);
        put(peer, frame, sizeof frame);
        UNTIL(loop, e.received > before);
        CHECK(memcmp(head, frame, 84) == 0);
        CHECK_EQ(receive(&e, &p, 1, 84), CLB_OK);
        CHECK(memcmp(mem, frame + 84, SIZE) == 0);
        /* The payload came short of payload and header: drained, so no call here. */
        CHECK_EQ(start(&e, &h, 1, 0), CLBI_PENDING);
    }
    CHECK_EQ(recv_calls, 2 * FRAMES);
    CHECK_EQ(loop->rewatches, 0);

    /* All at once: one call per frame, and the last header's one. */
    for (unsigned i = 0; i < FRAMES; i++) {
        fill(frame, sizeof frame, i);
        put(peer, frame, sizeof frame);
    }
    check_sleep_ms(20);
    recv_calls = 0;
    UNTIL(loop, e.received > FRAMES);
    for (unsigned i = 0; i < FRAMES; i++) {
        fill(frame, sizeof frame, i);
        if (i > 0)
            CHECK_EQ(receive(&e, &h, 1, 0), CLB_OK);
        CHECK(memcmp(head, frame, 84) == 0);
        CHECK_EQ(receive(&e, &p, 1, 84), CLB_OK);
        CHECK(memcmp(mem, frame + 84, SIZE) == 0);
    }
    CHECK_EQ(recv_calls, FRAMES + 1);
    printf("recvmsg calls for %d frames: %d one by one, %u when they queue up\n", FRAMES,
           2 * FRAMES, recv_calls);
    end_close(&e);
    close(peer);
}

static uint8_t chain_mem[16];

static void chain_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    static struct clbi_seg seg;
    struct end *e = owner;

    seg = plain(chain_mem, sizeof chain_mem);
    do
        on_recv(e, bytes, failure);
    while (start(e, &seg, 1, 0) == CLBI_DONE);
}

/* One wake-up may not read for ever, however much is there: others share the loop. */
static void bounded_work(struct mini_loop *loop)
{
    enum { COUNT = 1000, BIG = 24 << 20 };
    struct clbi_seg seg = plain(chain_mem, sizeof chain_mem);
    uint8_t *data = calloc(1, BIG);
    struct clbi_transport_env env;
    struct clb_status st;
    struct end e = {.loop = loop};
    uint64_t rx, before, tx;
    int fds[2];

    env = env_of(&e);
    env.on_recv = chain_recv;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    CHECK_EQ(TCP->adopt(&e.t, &env, fds[0], &st), CLB_OK);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    put(fds[1], data, COUNT * sizeof chain_mem);
    recv_calls = 0;
    for (int i = 0; i < 30 && e.received < COUNT; i++) {
        unsigned calls = recv_calls;
        mini_loop_step(loop, 20);
        CHECK_LE(recv_calls - calls, 64);
    }
    CHECK_EQ(e.received, COUNT);
    end_close(&e);
    close(fds[1]);

    /* Nor move without limit, where the socket holds that much. */
    int peer = make_pair(loop, &e, false);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    seg = plain(data, BIG);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    for (size_t off = 0; !e.received;) {
        ssize_t k = off < BIG ? send(peer, data, BIG - off, MSG_NOSIGNAL) : 0;
        if (k > 0)
            off += (size_t)k;
        TCP->progress(e.t, &before, &tx);
        mini_loop_step(loop, 1);
        TCP->progress(e.t, &rx, &tx);
        CHECK_LE(rx - before, 8 << 20);
    }
    CHECK_EQ(e.recv_bytes, BIG);
    end_close(&e);
    close(peer);
    free(data);
}

/* The stream ends, or is reset, after every number of bytes. */
static void ends_at_every_offset(struct mini_loop *loop, bool hard, bool local)
{
    enum { N = 100 };
    uint8_t wire[N], mem[N];
    struct clbi_seg segs[] = {plain(mem, 84),
                              {.base = mem + 84, .row_bytes = 4, .pitch = 4, .rows = 4}};

    fill(wire, N, 5);
    for (size_t off = 0; off <= N; off++)
        for (int early = 0; early < 2; early++) {
            struct end e;
            int peer = make_pair(loop, &e, local), rc = 1;

            memset(mem, 0, N);
            if (early)
                CHECK_EQ(start(&e, segs, 2, 84), CLBI_PENDING);
            put(peer, wire, off);
            /* A reset may throw away what was not read yet: let it be read. */
            if (early)
                mini_loop_step(loop, 1);
            if (hard)
                reset(peer);
            else
                close(peer);
            if (early)
                UNTIL(loop, e.received);
            else
                rc = receive(&e, segs, 2, 84);
            if (early)
                rc = e.recv_st.err;
            if (off == N) {
                CHECK_EQ(rc, CLB_OK);
                rc = receive(&e, segs, 1, 0);
                CHECK_EQ(e.recv_bytes == 0 || e.recv_bytes == N, 1);
            } else if (early) {
                CHECK_EQ(e.recv_bytes, off);
            }
            CHECK_EQ(rc, hard ? CLB_ERR_LOST : CLB_ERR_CLOSED);
            CHECK_EQ(e.recv_st.domain, hard ? CLB_DOMAIN_ERRNO : CLB_DOMAIN_NONE);
            CHECK_EQ(e.recv_st.native, hard ? ECONNRESET : 0);
            CHECK(strstr(e.recv_st.text, local ? "unix" : "127.0.0.1:"));
            if (!hard || early)
                CHECK(memcmp(mem, wire, off) == 0);
            /* It stays that way. */
            CHECK_EQ(receive(&e, segs, 2, 0), hard ? CLB_ERR_LOST : CLB_ERR_CLOSED);
            end_close(&e);
        }
}

/* While nobody receives, an end must neither spin the loop nor be missed afterwards. */
static void end_while_idle(struct mini_loop *loop, bool hard, bool local)
{
    uint8_t mem[84];
    struct clbi_seg seg = plain(mem, 84);
    struct end e;
    int peer = make_pair(loop, &e, local);

    /* A first receive, so that the socket is watched and known to be empty. */
    CHECK_EQ(start(&e, &seg, 1, 84), CLBI_PENDING);
    put(peer, mem, 84);
    UNTIL(loop, e.received);
    if (hard)
        reset(peer);
    else
        close(peer);
    loop->events = 0;
    for (int i = 0; i < 20; i++)
        mini_loop_step(loop, 2);
    CHECK_LE(loop->events, 3);
    CHECK_EQ(receive(&e, &seg, 1, 84), hard ? CLB_ERR_LOST : CLB_ERR_CLOSED);
    CHECK_LE(e.received, 2);
    end_close(&e);
}

/* Bytes that nobody wants yet must not spin the loop either, and are there later. */
static void bytes_while_idle(struct mini_loop *loop)
{
    uint8_t mem[84], wire[168];
    struct clbi_seg seg = plain(mem, 84);
    struct end e;
    int peer = make_pair(loop, &e, false);

    fill(wire, 168, 8);
    CHECK_EQ(start(&e, &seg, 1, 84), CLBI_PENDING);
    put(peer, wire, 84);
    UNTIL(loop, e.received); /* and drained, as nothing was ahead */
    put(peer, wire + 84, 84);
    loop->events = 0;
    for (int i = 0; i < 20; i++)
        mini_loop_step(loop, 2);
    CHECK_LE(loop->events, 2);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_DONE);
    CHECK(memcmp(mem, wire + 84, 84) == 0);
    end_close(&e);
    close(peer);
}

/* Acknowledgements are hurried for a peer that waits for them in the middle of its packets, and for no
 * other: each costs both ends a packet. */
static void hurries_for_those_who_wait(struct mini_loop *loop)
{
    static uint8_t wire[1000], mem[1000];
    const struct clbi_seg seg = plain(mem, sizeof mem);
    struct end e;
    int peer = make_pair(loop, &e, false);

    quickacks = 0;
    for (int i = 0; i < 20; i++) {
        put(peer, wire, sizeof wire);
        CHECK_EQ(receive(&e, &seg, 1, 84), CLB_OK);
    }
    CHECK_EQ(quickacks, 0);
    for (int i = 0; i < 3; i++) {
        const int before = e.received;
        put(peer, wire, 500);
        settle(loop);
        CHECK_EQ(start(&e, &seg, 1, 84), CLBI_PENDING);
        mini_loop_step(loop, 10);
        check_sleep_ms(40);
        put(peer, wire, 500);
        UNTIL(loop, e.received > before);
    }
    put(peer, wire, sizeof wire);
    CHECK_EQ(receive(&e, &seg, 1, 84), CLB_OK);
    CHECK_GE(quickacks, 2);
    end_close(&e);
    close(peer);
}

int main(void)
{
    struct mini_loop loop;
    int fds, threads;

    check_watchdog(200);
    CHECK_EQ(mini_loop_init(&loop), 0);
    fds = check_fds();
    threads = check_threads();

    cuts(&loop);
    ahead_saves_calls(&loop);
    bounded_work(&loop);
    bytes_while_idle(&loop);
    hurries_for_those_who_wait(&loop);
    for (int local = 0; local < 2; local++) {
        strided_scatter(&loop, local);
        byte_at_a_time(&loop, local);
        ends_at_every_offset(&loop, false, local);
        end_while_idle(&loop, false, local);
    }
    ends_at_every_offset(&loop, true, false);
    end_while_idle(&loop, true, false);

    check_back_to(fds, threads);
    mini_loop_fini(&loop);
    return 0;
}
