/* SPDX-License-Identifier: Apache-2.0 */
/* clb_link_shutdown() from any thread while every other call is inside. */
#include "deadline.h"

#define LIMIT 150

static const uint8_t data[MUCH];

static void opened_and_silent(struct peer *p, struct scene *sc)
{
    announced(p, 1 << 20);
    step(sc);
    if (sc->arg == 1) { /* takes what is said, and answers none of it */
        p->deaf = true;
        stay_polite(p, sc);
    }
    stay(sc);
}

/* A payload for which the reader's allocator has nothing: it waits inside of it. */
static void fills(struct peer *p, struct scene *sc)
{
    int i = announced(p, 1 << 20);
    peer_write_fill(p, i, 1, 1000, 5000);
    step(sc);
    stay(sc);
}

/* ---- calls ------------------------------------------------------------------------------------- */

static int do_read(struct call *c)
{
    clb_packet *p = NULL;
    return clb_stream_read(c->s, &p, -1);
}

static int do_write_much(struct call *c)
{
    struct clb_iovec iov = {data, sizeof data};
    return clb_stream_write(c->s, &iov, 1, -1);
}

static int do_write(struct call *c)
{
    struct clb_iovec iov = {data, 100};
    return clb_stream_write(c->s, &iov, 1, -1);
}

static int do_write_without_credit(struct call *c)
{
    struct clb_iovec iov = {data, MUCH / 2};
    int err;
    do {
        err = clb_stream_write(c->s, &iov, 1, -1);
    } while (err == CLB_OK);
    return err;
}

static int do_flush(struct call *c)
{
    struct clb_iovec iov = {data, 100};
    clb_stream *s = NULL;
    clb_stream_params sp = {
        .struct_size = sizeof sp, .name = "a", .write_window = 4096, .write_async = 1};
    int err = clb_stream_open(&s, c->link, &sp);
    err = err == CLB_OK ? clb_stream_write(s, &iov, 1, -1) : err;
    err = err == CLB_OK ? clb_stream_flush(s, CLB_FLUSH_RELEASED, -1) : err;
    clb_stream_close(&s);
    return err;
}

static int do_open(struct call *c)
{
    return call_open_stream(c, "never announced");
}

static int do_open_any(struct call *c)
{
    return call_open_stream(c, NULL);
}

static int do_shutdown(struct call *c)
{
    int err = clb_link_shutdown(c->link, LIMIT * MS);
    return err == CLB_OK ? CLB_ERR_CLOSED : err;
}

static int do_accept(struct call *c)
{
    clb_link *link = NULL;
    int err = clb_listener_accept(c->listener, &link, LIMIT * MS);
    CHECK_EQ(err, CLB_ERR_TIMEOUT); /* the listener has nothing to do with it */
    return CLB_ERR_CLOSED;
}

static int do_stream_close(struct call *c)
{
    clb_stream_close(&c->s);
    return CLB_ERR_CLOSED;
}

static const struct under {
    const char *name;
    int (*fn)(struct call *c);
    script peer;
    int arg;
    bool own_stream; /* the call opens one itself */
    bool no_memory;
} calls[] = {
    {"read", do_read, opened_and_silent, 0, false, false},
    {"read_waiting_for_memory", do_read, fills, 0, false, true},
    {"write_not_taken", do_write_much, opened_and_silent, 0, false, false},
    {"write_not_answered", do_write, opened_and_silent, 1, false, false},
    {"write_without_credit", do_write_without_credit, opened_and_silent, 1, false, false},
    {"flush", do_flush, opened_and_silent, 1, true, false},
    {"next_stream", call_next_streams, opened_and_silent, 0, false, false},
    {"open", do_open, opened_and_silent, 1, false, false},
    {"open_any", do_open_any, opened_and_silent, 0, false, false},
    {"shutdown", do_shutdown, opened_and_silent, 0, false, false},
    {"accept", do_accept, opened_and_silent, 0, false, false},
    {"stream_close", do_stream_close, opened_and_silent, 0, false, false},
};

/* Every call returns within the limit of the shutdown, whether that is waited for or not, by one or by
 * two. */
void shutdown_under(const void *arg)
{
    const int where = *(const int *)arg;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct under *u = &calls[i];
        struct scene sc = {.where = where, .fn = u->peer, .arg = u->arg};
        struct call c, other;
        if (u->fn == do_accept && where != DEVICE_TCP) {
            continue;
        }
        fprintf(stderr, "under %s\n", u->name);
        sc.params.close_timeout_ns = LIMIT * MS;
        sc.params.keepalive_ns = sc.params.idle_timeout_ns = -1;
        CHECK_EQ(scene_open(&sc), CLB_OK);
        if (u->no_memory) {
            sc.mem.plan = "w";
        }
        if (!u->own_stream) {
            CHECK_EQ(scene_stream(&sc, 2 * MUCH, 0), CLB_OK);
            scene_await(&sc, 1);
        }
        call_begin(&c, &sc, u->fn);
        sc.s = u->fn == do_stream_close ? NULL : sc.s;
        check_sleep_ms(u->fn == do_stream_close ? 0 : 40);
        const int64_t t0 = check_ms();
        if (i % 3 == 0) {
            CHECK_EQ(clb_link_shutdown(sc.link, 0), CLB_ERR_TIMEOUT);
        } else {
            call_begin(&other, &sc, do_shutdown); /* two at a time */
            CHECK_EQ(clb_link_shutdown(sc.link, LIMIT * MS), CLB_OK);
            CHECK_EQ(call_end(&other), CLB_ERR_CLOSED);
        }
        int err = call_end(&c);
        in_time(t0, LIMIT);
        CHECK(err == CLB_ERR_CLOSED || (u->no_memory && err == CLB_ERR_NOBUFS));
        clb_link_close(&sc.link);
        in_time(t0, LIMIT);
        scene_end(&sc);
    }
}

/* ---- from callbacks ---------------------------------------------------------------------------- */

static void state_shuts(void *priv, clb_link *link, enum clb_link_state state)
{
    atomic_int *n = priv;
    if (atomic_fetch_add(n, 1) == 0) {
        CHECK_EQ(state, CLB_LINK_UP);
        CHECK_EQ(clb_link_shutdown(link, -1), CLB_ERR_TIMEOUT);
    }
}

static void takes_reset(struct peer *p, struct scene *sc)
{
    peer_pump_to_end(p, 10000);
    CHECK(p->got_reset);
    (void)sc;
}

/* At the very moment of coming up, while the opener still waits for that. */
void shutdown_in_callback(const void *arg)
{
    atomic_int n = 0;
    struct scene sc = {.where = *(const int *)arg, .fn = takes_reset};
    sc.params.state_cb = state_shuts;
    sc.params.priv = &n;
    const int64_t t0 = check_ms();
    int err = scene_open(&sc);
    CHECK(err == CLB_OK || err == CLB_ERR_CLOSED);
    for (int i = 0; i < 5000 && sc.link && clb_link_get_state(sc.link, NULL) != CLB_LINK_DOWN;
         i++) {
        check_sleep_ms(1);
    }
    in_time(t0, 0);
    sc.params.state_cb = NULL;
    atomic_store(&n, 1000);
    scene_end(&sc);
}

/* ---- all at once ------------------------------------------------------------------------------- */

struct storm {
    clb_link *host, *dev;
    clb_stream *out, *in;
    uint32_t seed;
};

struct storm_call {
    struct storm *st;
    void (*fn)(struct storm *st);
};

static void ends(int err)
{
    CHECK(err == CLB_ERR_CLOSED || err == CLB_ERR_LOST);
}

static void storm_read(struct storm *st)
{
    clb_packet *p = NULL;
    int err;
    while ((err = clb_stream_read(st->in, &p, -1)) == CLB_OK) {
        clb_packet_free(&p);
    }
    ends(err);
}

static void storm_write(struct storm *st)
{
    struct clb_iovec iov = {data, 3000};
    int err;
    while ((err = clb_stream_write(st->out, &iov, 1, -1)) == CLB_OK) {
    }
    ends(err);
}

static void storm_flush(struct storm *st)
{
    int err = CLB_OK;
    while (err == CLB_OK && clb_link_get_state(st->dev, NULL) == CLB_LINK_UP) {
        err = clb_stream_flush(st->out, CLB_FLUSH_RELEASED, -1);
        check_sleep_ms(0);
    }
    if (err < 0) { /* what is flushed stays flushed */
        ends(err);
    }
}

static void storm_next(struct storm *st)
{
    clb_stream_info info;
    int err;
    while ((err = clb_link_next_stream(st->host, &info, sizeof info, -1)) == CLB_OK) {
    }
    ends(err);
}

static void storm_open(struct storm *st)
{
    int err = CLB_OK;
    while (err == CLB_OK) {
        clb_stream *s = NULL;
        clb_stream_params sp = {.struct_size = sizeof sp, .name = "b", .write_window = 64};
        err = clb_stream_open(&s, st->dev, &sp);
        clb_stream_close(&s);
    }
    ends(err);
}

static void storm_shutdown(struct storm *st)
{
    static const int64_t limits[] = {0, -1, 50 * MS, 1};
    check_sleep_ms((int)(st->seed % 7));
    (void)clb_link_shutdown(st->seed & 8 ? st->host : st->dev, limits[st->seed / 16 % 4]);
}

static void storm_shutdown_both(struct storm *st)
{
    check_sleep_ms((int)(st->seed / 64 % 9));
    (void)clb_link_shutdown(st->host, -1);
    (void)clb_link_shutdown(st->dev, 0);
}

static void *storm_main(void *arg)
{
    struct storm_call *c = arg;
    c->fn(c->st);
    return NULL;
}

/* Two links of ours in full traffic, all calls inside, ends from two threads at random moments. */
void shutdown_storm(const void *arg)
{
    static void (*const fns[])(struct storm *) = {storm_read,         storm_write, storm_flush,
                                                  storm_next,         storm_open,  storm_shutdown,
                                                  storm_shutdown_both};
    enum { N = sizeof fns / sizeof *fns };
    struct storm st = {.seed = 1};
    clb_listener *l = NULL;
    clb_loop *loop = NULL;
    if (*(const int *)arg) {
        CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
    }
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 4};
    lp.link.loop = loop;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    for (int round = 0; round < 60; round++) {
        pthread_t t[N];
        struct storm_call c[N];
        st.seed = st.seed * 1664525u + 1013904223u;
        st.seed ^= st.seed >> 13;
        CHECK_EQ(clb_link_open(&st.host, clb_link_params(.uri = clb_listener_uri(l), .loop = loop)),
                 CLB_OK);
        CHECK_EQ(clb_listener_accept(l, &st.dev, 10 * SEC), CLB_OK);
        CHECK_EQ(
            clb_stream_open(&st.out, st.dev, clb_stream_params(.name = "v", .write_window = 10000)),
            CLB_OK);
        CHECK_EQ(clb_stream_open(&st.in, st.host, clb_stream_params(.name = "v")), CLB_OK);
        for (int i = 0; i < N; i++) {
            c[i] = (struct storm_call){&st, fns[i]};
            CHECK_EQ(pthread_create(&t[i], NULL, storm_main, &c[i]), 0);
        }
        pthread_join(t[N - 1], NULL);
        const int64_t t0 = check_ms();
        for (int i = 0; i < N - 1; i++) {
            pthread_join(t[i], NULL);
        }
        clb_link_close(&st.host);
        clb_link_close(&st.dev);
        in_time(t0, 0);
        clb_stream_close(&st.in);
        clb_stream_close(&st.out);
    }
    clb_listener_close(&l);
    clb_loop_destroy(&loop);
}
