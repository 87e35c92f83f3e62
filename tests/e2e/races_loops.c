/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that must neither spin nor starve a caller, and calls that another thread ends. */
#include "races_kit.h"

#include <pthread.h>
#include <sys/resource.h>

#include "check.h"
#include "link_priv.h"

static int64_t cpu_ms(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000 +
           (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1000;
}

/* ---- timers ----------------------------------------------------------------------------------- */

/* No bytes of a header are in: the progress limit has nothing to say, and nobody spins. */
void idle_costs_nothing(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, well_behaved, NULL);
    clb_link *link = adopt(fd, clb_link_params(.progress_timeout_ns = 50 * MS, .keepalive_ns = -1,
                                               .idle_timeout_ns = -1));
    int64_t before = cpu_ms();
    check_sleep_ms(700);
    CHECK_LE(cpu_ms() - before, 100);
    CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_UP);
    finish(&link, &p);
}

static void silent_after_up(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    await(1);
    peer_close(p);
}

/* close_timeout "never" and a peer that is silent: the RESET has a limit of its own. */
void close_needs_no_answer(void)
{
    struct peer p;
    int fd = peer_pair(&p, false);
    start(&p, silent_after_up, NULL);
    clb_link *link = adopt(fd, clb_link_params(.close_timeout_ns = -1));
    clb_link_close(&link);
    atomic_store(&stage, 1);
    peer_join(&p);
}

/* ---- caller-driven loops ---------------------------------------------------------------------- */

/* A loop that always has something to do: the deadline of a call on another link holds all the same. */
void busy_neighbour(void)
{
    int n = 1000000;
    struct peer p, q;
    clb_loop *loop = NULL;
    CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
    int fd = peer_pair(&p, false), quiet = peer_pair(&q, false);
    start(&p, writes_a, &n);
    peer_start(&q, well_behaved, NULL);
    clb_link *busy = adopt(fd, clb_link_params(.loop = loop)),
             *idle = adopt(quiet, clb_link_params(.loop = loop));
    clb_stream *drop = open_stream(
        busy, clb_stream_params(.name = "a", .on_full = CLB_FULL_DROP_OLDEST, .queue_len = 1));
    clb_stream *s = open_stream(idle, clb_stream_params(.name = "x"));
    clb_packet *pk = NULL;
    for (int i = 0; i < 20; i++) {
        int64_t t0 = check_ms();
        CHECK_EQ(clb_stream_read(s, &pk, 0), CLB_ERR_AGAIN);
        CHECK_EQ(clb_stream_read(s, &pk, 5 * MS), CLB_ERR_TIMEOUT);
        CHECK_LE(check_ms() - t0, 2000);
    }
    clb_stream_close(&drop);
    clb_stream_close(&s);
    clb_link_close(&busy);
    clb_link_close(&idle);
    peer_join(&p);
    peer_join(&q);
    clb_loop_destroy(&loop);
}

/* Another thread closes stream and link while one dispatches inside a read. */
void close_from_another_thread(void)
{
    for (int i = 0; i < 20; i++) {
        struct peer p;
        clb_loop *loop = NULL;
        CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
        int fd = peer_pair(&p, false);
        start(&p, well_behaved, NULL);
        clb_link *link = adopt(fd, clb_link_params(.loop = loop, .close_timeout_ns = 200 * MS));
        clb_stream *s = open_stream(link, clb_stream_params(.name = "a"));
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, read_until_closed, s), 0);
        until_inside(link, &s->callers);
        check_sleep_ms(i);
        if (i % 2) {
            clb_link_close(&link);
            pthread_join(t, NULL);
            clb_stream_close(&s);
        } else {
            clb_stream_close(&s);
            pthread_join(t, NULL);
            clb_link_close(&link);
        }
        /* What was deferred is done by whoever drives the loop next. */
        while (clb_loop_dispatch(loop, 20 * MS) == CLB_OK) {
        }
        clb_loop_destroy(&loop);
        peer_join(&p);
    }
}

static void *accept_until_closed(void *arg)
{
    clb_link *link = NULL;
    atomic_store(&stage, 1);
    CHECK_EQ(clb_listener_accept(arg, &link, -1), CLB_ERR_CLOSED);
    return NULL;
}

/* A listener is closed while a thread waits in accept, with its own thread or dispatching. */
void close_under_accept(int caller_driven)
{
    for (int i = 0; i < 8; i++) {
        clb_loop *loop = NULL;
        clb_listener *l = NULL;
        CHECK_EQ(clb_loop_create(&loop, clb_loop_params(.caller_driven = caller_driven)), CLB_OK);
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link.loop = loop;
        CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
        pthread_t t;
        atomic_store(&stage, 0);
        CHECK_EQ(pthread_create(&t, NULL, accept_until_closed, l), 0);
        await(1);
        check_sleep_ms(100 + i); /* it is inside by now */
        clb_listener_close(&l);
        pthread_join(t, NULL);
        while (caller_driven && clb_loop_dispatch(loop, 0) == CLB_OK) {
        }
        clb_loop_destroy(&loop);
    }
}
