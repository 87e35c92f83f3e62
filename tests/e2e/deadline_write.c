/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of writing, and of other calls that wait for the peer. */
#include "deadline.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t data[MUCH];

static void opened_and_silent(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    step(sc);
    stay(sc);
}

/* Takes writes and says so, and never gives credit back; arg 1: does not even say so. */
static void never_releases(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    step(sc);
    while (!atomic_load(&sc->over) && !p->eof) {
        struct clbi_wire_header h;
        if (!peer_recv(p, &h, NULL, 1)) {
            continue;
        }
        if (h.type == CLBI_WRITE_REQ && !sc->arg) {
            peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
        } else if (h.type == CLBI_RESET_REQ) {
            peer_send_header(p, CLBI_RESET_RESP, h.id, NULL, 0, 0, CLBI_FLAG_ACK);
        }
    }
}

static void open_scene(struct scene *sc, uint32_t window)
{
    sc->params.keepalive_ns = sc->params.idle_timeout_ns = -1;
    CHECK_EQ(scene_open(sc), CLB_OK);
    CHECK_EQ(scene_stream(sc, window, 0), CLB_OK);
    scene_await(sc, 1);
}

static void still_up(struct scene *sc)
{
    CHECK_EQ(clb_link_get_state(sc->link, NULL), CLB_LINK_UP);
    scene_end(sc);
}

void write_without_credit(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = never_releases};
    struct clb_iovec full = {data, 4096}, one = {data, 1}, more = {data, 4097};
    sc.params.close_timeout_ns = 100 * MS;
    open_scene(&sc, 4096);
    CHECK_EQ(clb_stream_write(sc.s, &full, 1, 5 * SEC), CLB_OK);
    int64_t t0 = check_ms();
    CHECK_EQ(clb_stream_write(sc.s, &one, 1, 200 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 200);
    t0 = check_ms();
    CHECK_EQ(clb_stream_write(sc.s, &one, 1, 0), CLB_ERR_AGAIN);
    CHECK_EQ(clb_stream_write(sc.s, &more, 1, -1), CLB_ERR_TOOBIG); /* never possible: at once */
    CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_ACKED, 200 * MS), CLB_OK);
    in_time(t0, 0);
    t0 = check_ms();
    CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_RELEASED, 200 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 200);
    still_up(&sc);
}

void write_not_answered(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = never_releases, .arg = 1};
    struct clb_iovec one = {data, 100};
    sc.params.progress_timeout_ns = 250 * MS;
    open_scene(&sc, 4096);
    for (int i = 0; i < 2; i++) {
        const int64_t t0 = check_ms();
        CHECK_EQ(clb_stream_write(sc.s, &one, 1, i ? -1 : 50 * MS), CLB_ERR_TIMEOUT);
        in_time(t0, 250);
    }
    still_up(&sc);
}

void flush_not_answered(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = never_releases, .arg = 1};
    struct clb_iovec one = {data, 100};
    sc.params.keepalive_ns = sc.params.idle_timeout_ns = -1;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    clb_stream_params sp = {
        .struct_size = sizeof sp, .name = "a", .write_window = 4096, .write_async = 1};
    CHECK_EQ(clb_stream_open(&sc.s, sc.link, &sp), CLB_OK);
    CHECK_EQ(clb_stream_write(sc.s, &one, 1, 5 * SEC), CLB_OK);
    const int64_t t0 = check_ms();
    CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_ACKED, 150 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 150);
    CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_ACKED, 0), CLB_ERR_AGAIN);
    still_up(&sc);
}

static int write_much(struct call *c)
{
    struct clb_iovec iov = {data, sizeof data};
    return clb_stream_write(c->s, &iov, 1, -1);
}

static int write_here(const struct scene *sc)
{
    struct call c = {.s = sc->s};
    return write_much(&c);
}

void write_not_taken(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    sc.params.progress_timeout_ns = 250 * MS;
    open_scene(&sc, 2 * MUCH);
    const int64_t t0 = check_ms();
    CHECK_EQ(write_here(&sc), CLB_ERR_LOST);
    in_time(t0, 250);
    moved(&sc);
    scene_lost(&sc, CLB_ERR_LOST, 0);
    scene_end(&sc);
}

/* A writer behind one whose bytes nobody takes has a limit of its own. */
void write_behind_a_stuck_one(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    struct clb_iovec one = {data, 100};
    struct call c;
    sc.params.progress_timeout_ns = (200 + 2 * CASES_SLACK_MS) * MS;
    open_scene(&sc, 2 * MUCH);
    call_begin(&c, &sc, write_much);
    check_sleep_ms(50);
    const int64_t t0 = check_ms();
    CHECK_EQ(clb_stream_write(sc.s, &one, 1, 100 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 100);
    CHECK_EQ(atomic_load(&c.result), 1);
    clb_link_shutdown(sc.link, 50 * MS);
    CHECK_EQ(call_end(&c), CLB_ERR_CLOSED);
    scene_end(&sc);
}

/* ---- what the system keeps --------------------------------------------------------------------- */

static void silent_then_reads(struct peer *p, struct scene *sc)
{
    static char sink[65536];
    ssize_t n;
    announced(p, 4096);
    step(sc);
    while (atomic_load(&sc->made) < 2) {
        check_sleep_ms(1);
    }
    while ((n = recv(p->fd, sink, sizeof sink, 0)) > 0) {
    }
    CHECK(n < 0 && errno == ECONNRESET);
    stay(sc);
}

/* A lost peer that takes nothing is cut off, and its connection with all that it did not take is gone
 * from the system: a reset, where an orderly end would stay behind what is unsent for minutes. */
void write_not_taken_cut(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = silent_then_reads};
    sc.params.progress_timeout_ns = 150 * MS;
    open_scene(&sc, 2 * MUCH);
    CHECK_EQ(write_here(&sc), CLB_ERR_LOST);
    moved(&sc);
    scene_lost(&sc, CLB_ERR_LOST, 0);
    step(&sc);
    scene_end(&sc);
}

/* ---- other calls ------------------------------------------------------------------------------- */

static void mute(struct peer *p, struct scene *sc)
{
    (void)p;
    step(sc);
    stay(sc);
}

void open_not_answered(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = mute};
    clb_stream *s = NULL;
    sc.params.keepalive_ns = sc.params.idle_timeout_ns = -1;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    for (int named = 0; named < 2; named++) {
        clb_stream_params sp = {.struct_size = sizeof sp, .open_timeout_ns = 150 * MS};
        sp.name = named ? "a" : NULL;
        sp.write_window = 4096;
        const int64_t t0 = check_ms();
        CHECK_EQ(clb_stream_open(&s, sc.link, &sp), CLB_ERR_TIMEOUT);
        in_time(t0, 150);
    }
    still_up(&sc);
}

void reads_time_out(const void *arg)
{
    struct scene sc = {.where = *(const int *)arg, .fn = opened_and_silent};
    clb_packet *p = NULL;
    clb_stream_info info;
    clb_link *none = NULL;
    sc.driven = sc.where == HOST_UNIX;
    open_scene(&sc, 0);
    CHECK_EQ(clb_link_next_stream(sc.link, &info, sizeof info, 0), CLB_OK);
    int64_t t0 = check_ms();
    CHECK_EQ(clb_stream_read(sc.s, &p, 0), CLB_ERR_AGAIN);
    CHECK_EQ(clb_link_next_stream(sc.link, &info, sizeof info, 0), CLB_ERR_AGAIN);
    in_time(t0, 0);
    t0 = check_ms();
    CHECK_EQ(clb_stream_read(sc.s, &p, 120 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 120);
    t0 = check_ms();
    CHECK_EQ(clb_link_next_stream(sc.link, &info, sizeof info, 120 * MS), CLB_ERR_TIMEOUT);
    in_time(t0, 120);
    if (sc.listener) {
        t0 = check_ms();
        CHECK_EQ(clb_listener_accept(sc.listener, &none, 120 * MS), CLB_ERR_TIMEOUT);
        in_time(t0, 120);
    }
    still_up(&sc);
}
