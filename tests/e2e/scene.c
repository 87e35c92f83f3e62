/* SPDX-License-Identifier: Apache-2.0 */
/* See scene.h. */
#include "scene.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a fresh link ------------------------------------------------------------------------------ */

static void polite_writer(struct peer *p, void *arg)
{
    CHECK(peer_handshake(p));
    int i = peer_create(p, "fresh", 4096);
    CHECK(peer_write_fill(p, i, 7, 100, 5000));
    peer_pump_to_end(p, 10000);
    CHECK(p->got_reset || p->eof);
    peer_close(p);
    (void)arg;
}

static void one_packet(clb_link *link)
{
    clb_stream *s = NULL;
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "fresh")), CLB_OK);
    CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), 100);
    CHECK_EQ(*(const uint8_t *)clb_packet_data(p), 7);
    clb_packet_free(&p);
    clb_stream_close(&s);
}

void fresh_host(int listen_fd, uint16_t port)
{
    struct peer p;
    clb_link *link = NULL;
    char uri[64];
    /* What earlier attempts left in the backlog. */
    struct pollfd pfd = {.fd = listen_fd, .events = POLLIN};
    while (poll(&pfd, 1, 0) == 1) {
        close(accept(listen_fd, NULL, NULL));
    }
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
    peer_accept_later(&p, listen_fd, polite_writer, NULL);
    CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = uri)), CLB_OK);
    one_packet(link);
    clb_link_close(&link);
    peer_join(&p);
}

void fresh_device(clb_listener *listener)
{
    struct peer p;
    clb_link *link = NULL;
    peer_connect(&p, (uint16_t)atoi(strrchr(clb_listener_uri(listener), ':') + 1));
    peer_start(&p, polite_writer, NULL);
    CHECK_EQ(clb_listener_accept(listener, &link, 10 * SEC), CLB_OK);
    one_packet(link);
    clb_link_close(&link);
    peer_join(&p);
}

/* ---- scenes ------------------------------------------------------------------------------------ */

static void play(struct peer *p, void *arg)
{
    struct scene *sc = arg;
    if (sc->no_handshake || peer_handshake(p)) {
        moved(sc);
        sc->fn(p, sc);
    }
    if (p->fd >= 0) {
        peer_close(p);
    }
}

int scene_open(struct scene *sc)
{
    int err;
    sc->params.struct_size = sizeof sc->params;
    sc->l = sc->fd = -1;
    talloc_init(&sc->mem, NULL);
    if (sc->driven) {
        CHECK_EQ(clb_loop_create(&sc->loop, clb_loop_params(.caller_driven = 1)), CLB_OK);
        sc->params.loop = sc->loop;
    }
    moved(sc);
    if (sc->where == HOST_TCP) {
        sc->l = peer_listen(&sc->port);
        snprintf(sc->uri, sizeof sc->uri, "tcp://127.0.0.1:%u", sc->port);
        sc->params.uri = sc->uri;
        peer_accept_later(&sc->peer, sc->l, play, sc);
        return clb_link_open(&sc->link, &sc->params);
    }
    if (sc->where == DEVICE_TCP) {
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link = sc->params;
        CHECK_EQ(clb_listener_open(&sc->listener, &lp), CLB_OK);
        peer_connect(&sc->peer, (uint16_t)atoi(strrchr(clb_listener_uri(sc->listener), ':') + 1));
        peer_start(&sc->peer, play, sc);
        return clb_listener_accept(sc->listener, &sc->link, 10 * SEC);
    }
    sc->fd = peer_pair(&sc->peer, is_device(sc));
    if (sc->nonblock) {
        fcntl(sc->fd, F_SETFL, fcntl(sc->fd, F_GETFL) | O_NONBLOCK);
    }
    peer_start(&sc->peer, play, sc);
    err = clb_link_adopt(&sc->link, sc->fd, is_device(sc) ? CLB_ROLE_DEVICE : CLB_ROLE_HOST,
                         &sc->params);
    sc->fd = err == CLB_OK ? -1 : sc->fd;
    return err;
}

int scene_stream(struct scene *sc, uint32_t write_window, int64_t timeout_ns)
{
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .write_window = write_window};
    sp.allocator = talloc_allocator(&sc->mem);
    sp.open_timeout_ns = timeout_ns;
    return clb_stream_open(&sc->s, sc->link, &sp);
}

void scene_end(struct scene *sc)
{
    atomic_store(&sc->over, 1);
    clb_link_close(&sc->link);
    clb_stream_close(&sc->s);
    peer_join(&sc->peer);
    talloc_check(&sc->mem);
    if (sc->fd >= 0) {
        close(sc->fd);
    }
    clb_loop_destroy(&sc->loop);
    if (sc->l >= 0) {
        fresh_host(sc->l, sc->port);
        close(sc->l);
    }
    if (sc->listener && !sc->driven) {
        fresh_device(sc->listener);
    }
    clb_listener_close(&sc->listener);
}

void scene_await(struct scene *sc, int n)
{
    for (int i = 0; i < 10000 && atomic_load(&sc->made) < n; i++) {
        if (sc->driven) {
            (void)clb_loop_dispatch(sc->loop, MS);
        } else {
            check_sleep_ms(1);
        }
    }
    CHECK_GE(atomic_load(&sc->made), n);
}

void scene_lost(struct scene *sc, int err, int limit_ms)
{
    struct clb_status why;
    const int64_t stop = check_ms() + 20000;
    while (clb_link_get_state(sc->link, &why) != CLB_LINK_DOWN) {
        CHECK_LE(check_ms(), stop);
        if (sc->driven) {
            (void)clb_loop_dispatch(sc->loop, 5 * MS);
        } else {
            check_sleep_ms(2);
        }
    }
    in_time(atomic_load(&sc->moved), limit_ms);
    CHECK_EQ(why.err, err);
    CHECK(err == CLB_OK || why.text[0] != '\0');
}

/* ---- scripts ----------------------------------------------------------------------------------- */

void moved(struct scene *sc)
{
    atomic_store(&sc->moved, check_ms());
}

void step(struct scene *sc)
{
    moved(sc);
    atomic_fetch_add(&sc->made, 1);
}

void stay(struct scene *sc)
{
    for (int i = 0; i < 20000 && !atomic_load(&sc->over); i++) {
        check_sleep_ms(1);
    }
}

void stay_polite(struct peer *p, struct scene *sc)
{
    for (int i = 0; i < 20000 && !atomic_load(&sc->over) && !p->eof; i++) {
        peer_pump(p, 1);
    }
}

int announced(struct peer *p, uint32_t window)
{
    int i = peer_create(p, "a", window);
    for (int k = 0; k < 2000 && !p->stream[i].created && !p->eof; k++) {
        peer_pump(p, 5);
    }
    return i;
}

void in_time(int64_t since, int limit_ms)
{
    const int64_t took = check_ms() - since;
    CHECK_LE(took, limit_ms + CASES_SLACK_MS + 2 * cases_kept_waiting_ms(since));
}

/* ---- calls ------------------------------------------------------------------------------------- */

static void *call_main(void *arg)
{
    struct call *c = arg;
    atomic_store(&c->result, c->fn(c));
    return NULL;
}

void call_begin(struct call *c, const struct scene *sc, int (*fn)(struct call *c))
{
    c->link = sc->link;
    c->s = sc->s;
    c->listener = sc->listener;
    c->fn = fn;
    atomic_init(&c->result, 1);
    CHECK_EQ(pthread_create(&c->thread, NULL, call_main, c), 0);
}

int call_end(struct call *c)
{
    CHECK_EQ(pthread_join(c->thread, NULL), 0);
    return atomic_load(&c->result);
}

int call_next_streams(struct call *c)
{
    clb_stream_info info;
    int err;
    do {
        err = clb_link_next_stream(c->link, &info, sizeof info, -1);
    } while (err == CLB_OK);
    return err;
}

int call_open_stream(struct call *c, const char *name)
{
    clb_stream *s = NULL;
    clb_stream_params sp = {.struct_size = sizeof sp, .name = name, .open_timeout_ns = -1};
    sp.write_window = 100;
    int err = clb_stream_open(&s, c->link, &sp);
    clb_stream_close(&s);
    return err;
}
