/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows with gaps behind them, over TCP and local sockets: every byte of the stream goes to the one
 * place that a naive model has for it, whatever pieces it comes in, and no byte beside.
 */
#include "tcp_end.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GUARD 0xee
#define SINK 40
#define MEM 4096

static uint8_t mem[MEM], model[MEM], wire[MEM], sink[SINK + 16];

static size_t total_of(const struct clbi_seg *segs, size_t n)
{
    size_t total = 0;

    for (size_t i = 0; i < n; i++)
        total += segs[i].rows * (segs[i].row_bytes + segs[i].gap);
    return total;
}

/* What mem must look like when `bytes` of the stream are in. */
static void expect(const struct clbi_seg *segs, size_t n, size_t bytes)
{
    size_t at = 0;

    memset(model, GUARD, sizeof model);
    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < segs[i].rows; y++) {
            for (size_t x = 0; x < segs[i].row_bytes && at < bytes; x++)
                model[(size_t)((uint8_t *)segs[i].base - mem) + y * segs[i].pitch + x] = wire[at++];
            at += at < bytes ? segs[i].gap : 0;
        }
    CHECK(memcmp(mem, model, sizeof mem) == 0);
    for (size_t i = SINK; i < sizeof sink; i++)
        CHECK_EQ(sink[i], GUARD);
}

static void clean(void)
{
    memset(mem, GUARD, sizeof mem);
    memset(sink, GUARD, sizeof sink);
}

/* A peer that sends each piece at once. */
static int pair(struct mini_loop *loop, struct end *e, bool local)
{
    const int fd = make_pair(loop, e, local), on = 1;

    if (!local)
        CHECK_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    return fd;
}

/* Everything that a plan may hold: gaps, none, a gap alone, nothing at all, a gap behind the end. */
#define SEGS 7
static const struct clbi_seg segs[SEGS] = {
    {.base = mem + 16, .row_bytes = 7, .pitch = 16, .rows = 3, .gap = 2, .sink = sink},
    {.base = mem + 100, .row_bytes = 3, .pitch = 3, .rows = 2, .gap = 1, .sink = sink + 5},
    {.base = mem + 200, .row_bytes = 0, .pitch = 9, .rows = 2, .gap = 4, .sink = sink},
    {.base = NULL, .row_bytes = 0, .pitch = 0, .rows = 3, .gap = 0, .sink = NULL},
    {.base = mem + 300, .row_bytes = 5, .pitch = 5, .rows = 2, .gap = 0, .sink = NULL},
    {.base = mem + 310, .row_bytes = 1, .pitch = 4, .rows = 4, .gap = 0, .sink = NULL},
    {.base = mem + 400, .row_bytes = 6, .pitch = 8, .rows = 1, .gap = 9, .sink = sink},
};
#define TOTAL 72

/* Every cut, the bytes beyond included, with short and with interrupted calls. */
static void cuts(struct mini_loop *loop, bool local)
{
    enum { NEXT = 12 };
    uint8_t next[NEXT];
    const struct clbi_seg rest = plain(next, NEXT);
    struct end e;
    int peer = pair(loop, &e, local);

    CHECK_EQ(total_of(segs, SEGS), TOTAL);
    interrupt = true;
    for (size_t cut = 0; cut <= TOTAL + NEXT; cut++)
        for (recv_limit = 0; recv_limit < 4; recv_limit++) {
            const int before = e.received;
            uint64_t rx, tx;

            fill(wire, TOTAL + NEXT, (unsigned)cut);
            clean();
            TCP->progress(e.t, &rx, &tx);
            const uint64_t until = rx + (cut < TOTAL ? cut : TOTAL);
            put(peer, wire, cut);
            if (start(&e, segs, SEGS, NEXT) == CLBI_PENDING) {
                UNTIL(loop, (TCP->progress(e.t, &rx, &tx), rx >= until));
                expect(segs, SEGS, cut < TOTAL ? cut : TOTAL);
                put(peer, wire + cut, TOTAL + NEXT - cut);
                UNTIL(loop, e.received > before);
                CHECK_EQ(e.recv_st.err, CLB_OK);
                CHECK_EQ(e.recv_bytes, TOTAL);
            } else {
                CHECK_GE(cut, TOTAL);
                put(peer, wire + cut, TOTAL + NEXT - cut);
            }
            expect(segs, SEGS, TOTAL);
            CHECK_EQ(receive(&e, &rest, 1, 0), CLB_OK);
            CHECK(memcmp(next, wire + TOTAL, NEXT) == 0);
        }
    recv_limit = 0;
    interrupt = false;
    end_close(&e);
    close(peer);
}

/* In pieces of every size, from single bytes to all at once. */
static void pieces(struct mini_loop *loop, bool local)
{
    struct end e;
    int peer = pair(loop, &e, local);

    for (size_t piece = 1; piece <= TOTAL; piece++) {
        const int before = e.received;

        fill(wire, TOTAL, (unsigned)piece);
        clean();
        CHECK_EQ(start(&e, segs, SEGS, 0), CLBI_PENDING);
        for (size_t at = 0; at < TOTAL; at += piece) {
            put(peer, wire + at, piece < TOTAL - at ? piece : TOTAL - at);
            mini_loop_step(loop, 20);
        }
        UNTIL(loop, e.received > before);
        CHECK_EQ(e.recv_st.err, CLB_OK);
        CHECK_EQ(e.recv_bytes, TOTAL);
        expect(segs, SEGS, TOTAL);
    }
    end_close(&e);
    close(peer);
}

/* What came with the header fills the rows and the gaps first, up to every byte of them, and what it
 * does not fill is read. */
static void ahead(struct mini_loop *loop, bool local)
{
    enum { HEAD = 5, NEXT = 20 };
    uint8_t head[HEAD], next[NEXT], both[HEAD + TOTAL + NEXT];
    const struct clbi_seg h = plain(head, HEAD), rest = plain(next, NEXT);
    struct end e;
    int peer = pair(loop, &e, local);

    for (size_t n = 0; n <= TOTAL + NEXT; n++) {
        fill(wire, TOTAL + NEXT, (unsigned)n);
        fill(both, HEAD, 1);
        memcpy(both + HEAD, wire, n);
        clean();
        put(peer, both, HEAD + n);
        CHECK_EQ(receive(&e, &h, 1, n), CLB_OK);
        CHECK_EQ(TCP->looked_ahead(e.t), n);
        expect(segs, 0, 0);
        const int before = e.received, rc = start(&e, segs, SEGS, 0);
        CHECK_EQ(rc, n < TOTAL ? CLBI_PENDING : CLBI_DONE);
        expect(segs, SEGS, n < TOTAL ? n : TOTAL);
        put(peer, wire + n, TOTAL + NEXT - n);
        if (rc == CLBI_PENDING)
            UNTIL(loop, e.received > before);
        expect(segs, SEGS, TOTAL);
        CHECK_EQ(receive(&e, &rest, 1, 0), CLB_OK);
        CHECK(memcmp(next, wire + TOTAL, NEXT) == 0);
    }
    end_close(&e);
    close(peer);
}

/* The stream ends in a row, in a gap, behind the last byte. */
static void ends(struct mini_loop *loop, bool local)
{
    fill(wire, TOTAL, 4);
    for (size_t at = 0; at <= TOTAL; at++) {
        struct end e;
        int peer = pair(loop, &e, local);

        clean();
        CHECK_EQ(start(&e, segs, SEGS, 50), CLBI_PENDING);
        put(peer, wire, at);
        close(peer);
        UNTIL(loop, e.received);
        CHECK_EQ(e.recv_st.err, at < TOTAL ? CLB_ERR_CLOSED : CLB_OK);
        CHECK_EQ(e.recv_bytes, at);
        expect(segs, SEGS, at);
        end_close(&e);
    }
}

static uint32_t state = 1;

static size_t pick(size_t below)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}

static void at_random(struct mini_loop *loop, bool local)
{
    struct end e;
    int peer = pair(loop, &e, local);

    for (int round = 0; round < 300; round++) {
        struct clbi_seg any[8];
        const size_t n = 1 + pick(8);
        const int before = e.received;

        for (size_t i = 0; i < n; i++) {
            any[i] = (struct clbi_seg){.base = mem + i * (MEM / 8),
                                       .row_bytes = pick(20),
                                       .rows = 1 + pick(8),
                                       .gap = pick(2) * pick(SINK + 1),
                                       .sink = sink};
            any[i].pitch = any[i].row_bytes + pick(2) * pick(40);
        }
        const size_t total = total_of(any, n), piece = 1 + pick(pick(2) ? 9 : 900);
        fill(wire, total, (unsigned)round);
        clean();
        recv_limit = pick(2) * pick(30);
        const int rc = start(&e, any, n, 0);
        CHECK_EQ(rc, total > 0 ? CLBI_PENDING : CLBI_DONE);
        for (size_t at = 0; at < total; at += piece) {
            put(peer, wire + at, piece < total - at ? piece : total - at);
            mini_loop_step(loop, 0);
        }
        if (rc == CLBI_PENDING)
            UNTIL(loop, e.received > before);
        CHECK_EQ(e.recv_st.err, CLB_OK);
        CHECK_EQ(rc == CLBI_DONE || e.recv_bytes == total, 1);
        expect(any, n, total);
    }
    recv_limit = 0;
    end_close(&e);
    close(peer);
}

/* NV12 of 1920x1080 in rows of 2048 bytes, into rows of 1984: more rows than the system takes in one
 * call, and two entries for each of them. */
static void padded_nv12(struct mini_loop *loop, bool local)
{
    enum { ROW = 1920, ROWS = 1620, LUMA = 1080, FROM = 2048, TO = 1984, BEHIND = 100 };
    const size_t total = (size_t)FROM * (ROWS - 1) + ROW;
    static uint8_t stream[FROM * ROWS], picture[TO * ROWS + 2 * BEHIND], waste[FROM - ROW + 16];
    struct clbi_seg planes[] = {
        {.base = picture + BEHIND,
         .row_bytes = ROW,
         .pitch = TO,
         .rows = LUMA,
         .gap = FROM - ROW,
         .sink = waste},
        {.base = picture + BEHIND + LUMA * TO,
         .row_bytes = ROW,
         .pitch = TO,
         .rows = ROWS - LUMA - 1,
         .gap = FROM - ROW,
         .sink = waste},
        {.base = picture + BEHIND + (ROWS - 1) * TO, .row_bytes = ROW, .pitch = TO, .rows = 1},
    };
    struct end e;
    int peer = pair(loop, &e, local);
    uint64_t rx, tx;

    CHECK_EQ(total_of(planes, 3), total);
    fill(stream, total, 77);
    memset(picture, GUARD, sizeof picture);
    memset(waste, GUARD, sizeof waste);
    fcntl(peer, F_SETFL, fcntl(peer, F_GETFL) | O_NONBLOCK);
    CHECK_EQ(start(&e, planes, 3, 84), CLBI_PENDING);
    for (size_t at = 0; at < total;) {
        const ssize_t k = send(peer, stream + at, total - at, MSG_NOSIGNAL);
        at += k > 0 ? (size_t)k : 0;
        mini_loop_step(loop, 0);
    }
    UNTIL(loop, e.received);
    CHECK_EQ(e.recv_st.err, CLB_OK);
    CHECK_EQ(e.recv_bytes, total);
    TCP->progress(e.t, &rx, &tx);
    CHECK_EQ(rx, total);
    for (size_t y = 0; y < ROWS; y++) {
        const uint8_t *row = picture + BEHIND + y * TO;
        CHECK(memcmp(row, stream + y * FROM, ROW) == 0);
        for (size_t i = ROW; i < TO; i++)
            CHECK_EQ(row[i], GUARD);
    }
    for (size_t i = 0; i < BEHIND; i++) {
        CHECK_EQ(picture[i], GUARD);
        CHECK_EQ(picture[BEHIND + ROWS * TO + i], GUARD);
    }
    for (size_t i = FROM - ROW; i < sizeof waste; i++)
        CHECK_EQ(waste[i], GUARD);
    end_close(&e);
    close(peer);
}

/* Where all of it waits in the socket, as many calls as entries demand: 1023 in each. */
static void as_few_calls_as_entries_allow(struct mini_loop *loop)
{
    enum { ROW = 30, GAP = 10, BYTES = 80000 };
    static const struct {
        size_t gap, rows;
        unsigned calls;
    } of[] = {{0, 1023, 1},  {0, 1024, 2},   {0, 1620, 2},
              {GAP, 511, 1}, {GAP, 1023, 2}, {GAP, 1620, 4}};
    static uint8_t stream[BYTES], rows[64 * 1620];
    struct end e;
    int peer = pair(loop, &e, false);

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct clbi_seg seg = {.base = rows,
                                     .row_bytes = ROW,
                                     .pitch = 64,
                                     .rows = of[i].rows,
                                     .gap = of[i].gap,
                                     .sink = sink};
        const size_t total = total_of(&seg, 1);

        CHECK_LE(total, BYTES);
        fill(stream, total, (unsigned)i);
        memset(rows, GUARD, sizeof rows);
        put(peer, stream, total);
        for (int left = 1; left > 0;) {
            CHECK_EQ(ioctl(peer, SIOCOUTQ, &left), 0); /* acknowledged: it is in the other socket */
            check_sleep_ms(1);
        }
        recv_calls = 0;
        CHECK_EQ(receive(&e, &seg, 1, 0), CLB_OK);
        CHECK_LE(recv_calls, of[i].calls);
        for (size_t y = 0; y < of[i].rows; y++) {
            CHECK(memcmp(rows + y * 64, stream + y * (ROW + of[i].gap), ROW) == 0);
            CHECK_EQ(rows[y * 64 + ROW], GUARD);
        }
    }
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

    as_few_calls_as_entries_allow(&loop);
    for (int local = 0; local < 2; local++) {
        cuts(&loop, local);
        pieces(&loop, local);
        ahead(&loop, local);
        ends(&loop, local);
        at_random(&loop, local);
        padded_nv12(&loop, local);
    }

    check_back_to(fds, threads);
    mini_loop_fini(&loop);
    return 0;
}
