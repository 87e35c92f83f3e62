/* SPDX-License-Identifier: Apache-2.0 */
/* Sending over TCP and local sockets; cancelling and closing what is under way. */
#include "tcp_end.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* ---- sending --------------------------------------------------------------------------------- */

static int send_all(struct end *e, const struct iovec *iov, size_t n)
{
    int before = e->sent, rc = TCP->send(e->t, iov, n, &e->send_st);

    CHECK_EQ(e->sent, before);
    if (rc != CLBI_PENDING)
        return rc;
    UNTIL(e->loop, e->sent > before);
    return e->send_st.err;
}

/* More pieces than one call takes, to a reader that takes its time; meanwhile a receive goes on. */
static void gather_send(struct mini_loop *loop, bool local)
{
    enum { PIECES = 3000, PIECE = 3001, TOTAL = PIECES * PIECE };
    uint8_t *data = malloc(TOTAL), *got = malloc(TOTAL), small[3] = {0};
    struct iovec *iov = calloc(PIECES + 1, sizeof *iov);
    struct clbi_seg seg = plain(small, 3);
    struct end e;
    int peer = make_pair(loop, &e, local);
    size_t off = 0;
    uint64_t rx, tx;

    fill(data, TOTAL, 4);
    for (size_t i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){.iov_base = data + i * PIECE, .iov_len = PIECE};
    interrupt = true;
    CHECK_EQ(TCP->send(e.t, iov, PIECES + 1, &e.send_st), CLBI_PENDING);
    CHECK_EQ(TCP->send(e.t, iov, 1, NULL), CLB_ERR_STATE);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    loop->events = 0;
    for (int i = 0; i < 5; i++)
        mini_loop_step(loop, 2);
    CHECK_EQ(e.sent, 0);
    CHECK_LE(loop->events, 5);
    put(peer, "abc", 3);
    UNTIL(loop, e.received);
    CHECK(memcmp(small, "abc", 3) == 0);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    while (off < TOTAL) {
        ssize_t k = recv(peer, got + off, 70001, 0);
        if (k > 0)
            off += (size_t)k;
        mini_loop_step(loop, 0);
    }
    UNTIL(loop, e.sent);
    interrupt = false;
    CHECK_EQ(e.sent, 1);
    CHECK_EQ(e.send_st.err, CLB_OK);
    CHECK_EQ(e.send_bytes, TOTAL);
    CHECK(memcmp(got, data, TOTAL) == 0);
    TCP->progress(e.t, &rx, &tx);
    CHECK_EQ(tx, TOTAL);

    /* A small one is one call and done; EPOLLOUT is off again. */
    send_calls = 0;
    CHECK_EQ(TCP->send(e.t, iov, 2, &e.send_st), CLBI_DONE);
    CHECK_EQ(send_calls, 1);
    loop->events = 0;
    settle(loop);
    CHECK_EQ(loop->events, 0);
    CHECK_EQ(TCP->send(e.t, iov, 0, &e.send_st), CLBI_DONE);
    end_close(&e);
    close(peer);
    free(data);
    free(got);
    free(iov);
}

static volatile sig_atomic_t sigpipes;

static void count_sigpipe(int sig)
{
    (void)sig;
    sigpipes++;
}

/* a peer that vanished is an error code, not a signal, and nobody's handler is touched. */
static void a10_vanished_peer(struct mini_loop *loop, bool local)
{
    struct sigaction mine = {.sa_handler = count_sigpipe}, old, now;
    uint8_t data[100] = {0};
    struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
    struct end e;
    int peer = make_pair(loop, &e, local), rc = CLB_OK;

    sigaction(SIGPIPE, &mine, &old);
    sigpipes = 0;
    reset(peer);
    check_sleep_ms(5);
    for (int i = 0; i < 4; i++)
        rc = send_all(&e, &iov, 1);
    CHECK_EQ(rc, CLB_ERR_LOST);
    CHECK_EQ(e.send_st.domain, CLB_DOMAIN_ERRNO);
    CHECK_EQ(e.send_st.native, EPIPE);
    /* The reset was told to the sender; the receiver must not take it for an orderly end. */
    if (!local)
        CHECK_EQ(receive(&e, &(struct clbi_seg){.base = data, .row_bytes = 1, .rows = 1}, 1, 0),
                 CLB_ERR_LOST);
    end_close(&e);
    CHECK_EQ(sigpipes, 0);
    sigaction(SIGPIPE, &old, &now);
    CHECK(now.sa_handler == count_sigpipe);
}

/* A send that waits for room ends with the peer. */
static void send_to_vanishing_peer(struct mini_loop *loop)
{
    enum { BIG = 16 << 20 };
    uint8_t *data = calloc(1, BIG);
    struct iovec iov = {.iov_base = data, .iov_len = BIG};
    struct end e;
    int peer = make_pair(loop, &e, false);

    CHECK_EQ(TCP->send(e.t, &iov, 1, &e.send_st), CLBI_PENDING);
    settle(loop);
    reset(peer);
    UNTIL(loop, e.sent);
    CHECK_EQ(e.send_st.err, CLB_ERR_LOST);
    CHECK_LE(e.send_bytes, BIG - 1);
    end_close(&e);
    CHECK_EQ(e.sent, 1);
    free(data);
}

/* ---- cancelling and closing ------------------------------------------------------------------ */

static void cancel(struct mini_loop *loop)
{
    uint8_t mem[100];
    struct clbi_seg seg = plain(mem, 100);
    struct end e;
    int peer = make_pair(loop, &e, false);

    TCP->recv_cancel(e.t); /* nothing to cancel */
    settle(loop);
    CHECK_EQ(e.received, 0);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    put(peer, "0123456789", 10);
    settle(loop);
    TCP->recv_cancel(e.t);
    TCP->recv_cancel(e.t);
    CHECK_EQ(e.received, 0);
    CHECK_EQ(start(&e, &seg, 1, 0), CLB_ERR_STATE);
    put(peer, "abc", 3); /* arrives after the cancel: not touched */
    UNTIL(loop, e.received);
    CHECK_EQ(e.recv_st.err, CLB_ERR_CANCELED);
    CHECK_EQ(e.recv_bytes, 10);
    settle(loop);
    CHECK_EQ(e.received, 1);
    seg.row_bytes = 3;
    CHECK_EQ(receive(&e, &seg, 1, 0), CLB_OK);
    CHECK(memcmp(mem, "abc", 3) == 0);

    /* Cancel and close in one breath: one completion. */
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    e.received = 0;
    TCP->recv_cancel(e.t);
    end_close(&e);
    CHECK_EQ(e.received, 1);
    CHECK_EQ(e.recv_st.err, CLB_ERR_CANCELED);
    close(peer);
}

static void close_with_operations(struct mini_loop *loop, bool local)
{
    enum { BIG = 16 << 20 };
    uint8_t *data = calloc(1, BIG), mem[8];
    struct iovec iov = {.iov_base = data, .iov_len = BIG};
    struct clbi_seg seg = plain(mem, 8);
    struct end e;
    int peer = make_pair(loop, &e, local);

    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    CHECK_EQ(TCP->send(e.t, &iov, 1, &e.send_st), CLBI_PENDING);
    put(peer, "xy", 2);
    settle(loop);
    end_close(&e);
    CHECK_EQ(e.received, 1);
    CHECK_EQ(e.recv_st.err, CLB_ERR_CANCELED);
    CHECK_EQ(e.recv_bytes, 2);
    CHECK_EQ(e.sent, 1);
    CHECK_EQ(e.send_st.err, CLB_ERR_CANCELED);
    CHECK_LE(e.send_bytes, BIG - 1);
    close(peer);
    free(data);
}

/* Closing from inside a callback. */
static void close_in_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    struct end *e = owner;

    on_recv(e, bytes, failure);
    if (e->received == 1)
        TCP->close(e->t);
}

static void close_in_callback(struct mini_loop *loop)
{
    uint8_t mem[8];
    struct clbi_seg seg = plain(mem, 8);
    struct clbi_transport_env env;
    struct clb_status st;
    int fds[2];

    for (int canceled = 0; canceled < 2; canceled++) {
        struct end e = {.loop = loop};
        env = env_of(&e);
        env.on_recv = close_in_recv;
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_EQ(TCP->adopt(&e.t, &env, fds[0], &st), CLB_OK);
        CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
        if (canceled)
            TCP->recv_cancel(e.t);
        else
            put(fds[1], "01234567", 8);
        UNTIL(loop, e.closed);
        CHECK_EQ(e.received, 1);
        settle(loop);
        CHECK_EQ(e.closed, 1);
        close(fds[1]);
    }
}

/* The last words arrive although the peer's own bytes were never read. */
static void last_words(struct mini_loop *loop, bool local)
{
    static uint8_t junk[100000];
    uint8_t got[8];
    struct iovec iov = {.iov_base = (void *)"goodbye!", .iov_len = 8};
    struct end e;
    int peer = make_pair(loop, &e, local);

    fcntl(peer, F_SETFL, O_NONBLOCK);
    (void)!send(peer, junk, local ? 30000 : sizeof junk, MSG_NOSIGNAL);
    check_sleep_ms(20);
    CHECK_EQ(send_all(&e, &iov, 1), CLB_OK);
    end_close(&e);
    check_sleep_ms(20);
    CHECK_EQ(recv(peer, got, 8, 0), 8);
    CHECK(memcmp(got, "goodbye!", 8) == 0);
    CHECK_EQ(recv(peer, got, 8, 0), 0); /* and an orderly end, no reset */
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

    send_to_vanishing_peer(&loop);
    cancel(&loop);
    close_in_callback(&loop);
    for (int local = 0; local < 2; local++) {
        gather_send(&loop, local);
        a10_vanished_peer(&loop, local);
        close_with_operations(&loop, local);
        last_words(&loop, local);
    }

    check_back_to(fds, threads);
    mini_loop_fini(&loop);
    return 0;
}
