/* SPDX-License-Identifier: Apache-2.0 */
/* See many_links.h. */
#include "many_links.h"

#include <stdlib.h>
#include <unistd.h>

#include "check.h"

#define FRAME 3000u
/* On a busy machine a link of a sanitized build may be silent for long without being dead. */
#define IDLE_SHORT SEC
#define IDLE_LONG (20 * SEC)

const char *fate_name(enum fate fate)
{
    static const char *const names[FATES] = {
        "none",        "close",     "stream-first", "shutdown", "peer-closes",     "peer-resets",
        "peer-silent", "peer-ends", "state-cb",     "ready-cb", "ready-cb-stream", "listener",
        "orphan",
    };
    return names[fate];
}

uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((((x ^ (x >> 31)) >> 32) * n) >> 32);
}

/* ---- the peer, on a thread -------------------------------------------------------------------- */

/* Its end comes in the middle of a payload, if there is credit for one. */
static void begin_frame(struct peer *p, const struct peer_stream *s)
{
    const uint8_t half[FRAME / 2] = {0};
    if (s->fill + FRAME <= s->window) {
        peer_send_header(p, CLBI_WRITE_REQ, p->next_id++, NULL, s->id, FRAME, CLBI_FLAG_ACK);
        peer_send_raw(p, half, sizeof half);
    }
}

static void peer_script(struct peer *p, void *arg)
{
    struct place *pl = arg;
    CHECK(peer_handshake(p));
    const int v = peer_create(p, "v", 4 * FRAME);
    int n = 0;
    while (atomic_load(&pl->order) == FATE_NONE && !p->eof) {
        n += peer_write_fill(p, v, n & 255, FRAME - (uint32_t)(n % 7), 5);
    }
    switch (atomic_load(&pl->order)) {
    case FATE_PEER_RESETS:
        begin_frame(p, &p->stream[v]);
        peer_abort(p);
        return;
    case FATE_PEER_ENDS:
        peer_send_header(p, CLBI_RESET_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK);
        peer_pump_to_end(p, 20000);
        break;
    case FATE_PEER_SILENT:
        begin_frame(p, &p->stream[v]);
        while (atomic_load(&pl->order) == FATE_PEER_SILENT) {
            check_sleep_ms(2);
        }
        break;
    case FATE_PEER_CLOSES: begin_frame(p, &p->stream[v]); break;
    default: peer_pump_to_end(p, 20000); break;
    }
    peer_close(p);
}

/* ---- callbacks -------------------------------------------------------------------------------- */

static void close_taken(struct place *pl, bool stream_too)
{
    clb_stream *s = stream_too ? atomic_exchange(&pl->stream, NULL) : NULL;
    clb_link *link = atomic_exchange(&pl->link, NULL);
    clb_stream_close(&s);
    clb_link_close(&link);
}

static void on_state(void *priv, clb_link *link, enum clb_link_state state)
{
    struct place *pl = priv;
    (void)link;
    if (state == CLB_LINK_CLOSING && atomic_load(&pl->armed) && pl->fate == FATE_STATE_CB) {
        close_taken(pl, false);
    }
    if (state == CLB_LINK_DOWN) {
        atomic_fetch_add(&pl->downs, 1); /* the last thing that we hear */
    }
}

static void on_ready(void *priv, clb_stream *s)
{
    struct place *pl = priv;
    (void)s;
    if (atomic_load(&pl->armed) &&
        (pl->fate == FATE_READY_CB || pl->fate == FATE_READY_CB_STREAM)) {
        close_taken(pl, pl->fate == FATE_READY_CB_STREAM);
    }
}

/* ---- the life of a link ----------------------------------------------------------------------- */

static clb_stream *open_in(struct place *pl, clb_link *link)
{
    clb_stream *s = NULL;
    talloc_init(&pl->memory, NULL);
    pl->memory_used = true;
    int err = clb_stream_open(
        &s, link,
        clb_stream_params(.name = "v", .allocator = talloc_allocator(&pl->memory),
                          .open_timeout_ns = 20 * SEC, .ready_cb = on_ready, .priv = pl));
    /* A busy machine may be silent for so long. */
    CHECK(err == CLB_OK || (err == CLB_ERR_LOST && pl->fate == FATE_PEER_SILENT));
    pl->ended = err < 0;
    return s;
}

/* Our own host connects to our own listener, all on the same loop. */
static void open_listener(struct driver *d, struct place *pl)
{
    clb_link *link = NULL;
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 2};
    lp.link.loop = d->loop;
    lp.link.connect_timeout_ns = 20 * SEC;
    CHECK_EQ(clb_listener_open(&pl->listener, &lp), CLB_OK);
    CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = clb_listener_uri(pl->listener),
                                                  .loop = d->loop, .connect_timeout_ns = 20 * SEC)),
             CLB_OK);
    atomic_store(&pl->link, link);
    if (pl->fate == FATE_LISTENER_ORPHAN) {
        return;
    }
    CHECK_EQ(clb_listener_accept(pl->listener, &pl->other, 20 * SEC), CLB_OK);
    CHECK_EQ(clb_stream_open(&pl->other_stream, pl->other,
                             clb_stream_params(.name = "v", .write_window = 4 * FRAME,
                                               .write_async = 1, .open_timeout_ns = 20 * SEC)),
             CLB_OK);
    atomic_store(&pl->stream, open_in(pl, link));
}

static void open_peer(struct driver *d, struct place *pl)
{
    const bool silent = pl->fate == FATE_PEER_SILENT;
    clb_link_params p = {.struct_size = sizeof p, .loop = d->loop, .priv = pl};
    p.state_cb = on_state;
    p.connect_timeout_ns = 20 * SEC;
    p.close_timeout_ns = 20 * SEC;
    p.idle_timeout_ns = silent ? IDLE_SHORT : IDLE_LONG;
    p.keepalive_ns = silent ? 100 * MS : 0;
    clb_link *link = NULL;
    pl->has_peer = true;
    pl->listen_fd = -1;
    if (pl->fate == FATE_PEER_RESETS || random_below(&d->random, 2)) {
        uint16_t port;
        char uri[40];
        pl->listen_fd = peer_listen(&port);
        snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
        p.uri = uri;
        peer_accept_later(&pl->peer, pl->listen_fd, peer_script, pl);
        CHECK_EQ(clb_link_open(&link, &p), CLB_OK);
        p.uri = NULL;
    } else {
        int fd = peer_pair(&pl->peer, false);
        peer_start(&pl->peer, peer_script, pl);
        CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, &p), CLB_OK);
    }
    atomic_store(&pl->link, link);
    atomic_store(&pl->stream, open_in(pl, link));
}

void place_open(struct driver *d, struct place *pl)
{
    place_check(pl);
    memset(pl, 0, sizeof *pl);
    pl->fate = FATE_NONE + 1 + (enum fate)random_below(&d->random, FATES - 1);
    d->made[pl->fate]++;
    if (pl->fate == FATE_LISTENER || pl->fate == FATE_LISTENER_ORPHAN) {
        open_listener(d, pl);
    } else {
        open_peer(d, pl);
    }
}

static void take(struct place *pl, clb_packet *p)
{
    const uint8_t *data = clb_packet_data(p);
    const size_t n = clb_packet_size(p);
    CHECK_EQ(n, FRAME - pl->got % 7);
    CHECK_EQ(data[0], pl->got & 255);
    CHECK_EQ(data[n / 2], pl->got & 255);
    CHECK_EQ(data[n - 1], pl->got & 255);
    pl->got++;
    clb_packet_free(&p);
}

static void feed(struct place *pl)
{
    uint8_t frame[FRAME];
    memset(frame, (int)(pl->sent & 255), sizeof frame);
    const struct clb_iovec iov = {frame, FRAME - pl->sent % 7};
    int err = clb_stream_write(pl->other_stream, &iov, 1, 0);
    CHECK(err == CLB_OK || err == CLB_ERR_AGAIN);
    pl->sent += err == CLB_OK;
}

/* An error other than "nothing there yet" */
static int read_some(struct place *pl, clb_stream *s)
{
    clb_packet *p = NULL;
    int err = CLB_OK;
    for (int i = 0; i < 8 && err == CLB_OK; i++) {
        err = clb_stream_read(s, &p, 0);
        if (err == CLB_OK) {
            take(pl, p);
        }
    }
    return err == CLB_ERR_AGAIN ? CLB_OK : err;
}

bool place_look(struct place *pl)
{
    if (pl->fate == FATE_LISTENER_ORPHAN) {
        pl->ended = true; /* never gets anything */
        return true;
    }
    if (pl->ended) {
        return true;
    }
    if (pl->fate == FATE_LISTENER) {
        feed(pl);
    }
    /* Not armed: no callback takes the stream meanwhile. */
    int err = read_some(pl, atomic_load(&pl->stream));
    CHECK(err == CLB_OK || (err == CLB_ERR_LOST && pl->fate == FATE_PEER_SILENT));
    pl->ended = err < 0;
    return pl->got > 0 || pl->ended;
}

/* Reads what is left, until the end comes. */
static void read_to(struct place *pl, int end, int or_end)
{
    clb_stream *s = atomic_load(&pl->stream);
    clb_packet *p = NULL;
    int err;
    if (pl->ended) {
        return;
    }
    while ((err = clb_stream_read(s, &p, 20 * SEC)) == CLB_OK) {
        take(pl, p);
    }
    CHECK(err == end || err == or_end);
}

static bool handle_gone(struct place *pl)
{
    return !atomic_load(&pl->link) &&
           (pl->fate != FATE_READY_CB_STREAM || !atomic_load(&pl->stream));
}

static void wait_for_callback(struct driver *d, struct place *pl)
{
    const int64_t limit = check_ms() + 20000;
    while (!handle_gone(pl)) {
        CHECK(check_ms() < limit);
        if (d->caller_driven) {
            clb_loop_dispatch(d->loop, 5 * MS);
        } else {
            check_sleep_ms(1);
        }
        /* The window must not stand in the way of the packet that triggers it. */
        clb_stream *s = pl->fate == FATE_READY_CB ? atomic_load(&pl->stream) : NULL;
        if (s && read_some(pl, s) < 0) {
            continue;
        }
    }
}

static void end_by_fate(struct driver *d, struct place *pl)
{
    clb_link *link = atomic_load(&pl->link);
    switch (pl->fate) {
    case FATE_SHUTDOWN:
        CHECK_EQ(clb_link_shutdown(link, 20 * SEC), CLB_OK);
        read_to(pl, CLB_ERR_CLOSED, CLB_ERR_CLOSED);
        CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_DOWN);
        break;
    case FATE_PEER_CLOSES:
    case FATE_PEER_RESETS:
    case FATE_PEER_SILENT:
        atomic_store(&pl->order, pl->fate);
        read_to(pl, CLB_ERR_LOST, CLB_ERR_LOST);
        break;
    case FATE_PEER_ENDS:
        atomic_store(&pl->order, pl->fate);
        read_to(pl, CLB_ERR_CLOSED, CLB_ERR_CLOSED);
        break;
    case FATE_STATE_CB:
        atomic_store(&pl->armed, 1);
        atomic_store(&pl->order, FATE_PEER_CLOSES);
        wait_for_callback(d, pl);
        read_to(pl, CLB_ERR_LOST, CLB_ERR_CLOSED);
        break;
    case FATE_READY_CB:
        atomic_store(&pl->armed, 1);
        wait_for_callback(d, pl);
        read_to(pl, CLB_ERR_CLOSED, CLB_ERR_CLOSED);
        break;
    case FATE_READY_CB_STREAM:
        /* The callback owns the stream from here. The window may be used up: then it is the end that
         * makes it ready. */
        atomic_store(&pl->armed, 1);
        check_sleep_ms((int)random_below(&d->random, 3));
        atomic_store(&pl->order, FATE_PEER_CLOSES);
        wait_for_callback(d, pl);
        break;
    case FATE_LISTENER:
        clb_listener_close(&pl->listener);
        feed(pl);
        CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_UP);
        clb_link_close(&pl->other);
        clb_stream_close(&pl->other_stream);
        read_to(pl, CLB_ERR_CLOSED, CLB_ERR_CLOSED);
        break;
    case FATE_LISTENER_ORPHAN: clb_listener_close(&pl->listener); break;
    default: break;
    }
}

void place_end(struct driver *d, struct place *pl, bool last)
{
    if (pl->fate == FATE_NONE) {
        return;
    }
    if (pl->fate == FATE_PEER_SILENT && !pl->ended && !last) {
        atomic_store(&pl->order, FATE_PEER_SILENT); /* the end comes by itself */
        return;
    }
    end_by_fate(d, pl);
    clb_stream *s = atomic_exchange(&pl->stream, NULL);
    clb_link *link = atomic_exchange(&pl->link, NULL);
    if (pl->fate == FATE_CLOSE_STREAM_FIRST || random_below(&d->random, 2)) {
        clb_stream_close(&s);
    }
    clb_link_close(&link);
    clb_stream_close(&s);
    clb_link_close(&pl->other);
    clb_stream_close(&pl->other_stream);
    clb_listener_close(&pl->listener);
    if (pl->has_peer) {
        if (atomic_load(&pl->order) == FATE_PEER_SILENT) {
            atomic_store(&pl->order, FATE_PEER_CLOSES);
        }
        /* A close from a callback ends on the loop. */
        const int64_t limit = check_ms() + 20000;
        while (atomic_load(&pl->downs) == 0) {
            CHECK(check_ms() < limit);
            if (d->caller_driven) {
                clb_loop_dispatch(d->loop, 5 * MS);
            } else {
                check_sleep_ms(1);
            }
        }
        CHECK_EQ(atomic_load(&pl->downs), 1);
        peer_join(&pl->peer);
        if (pl->listen_fd >= 0) {
            close(pl->listen_fd);
        }
    }
    pl->fate = FATE_NONE;
}

void place_check(struct place *pl)
{
    if (pl->memory_used) {
        talloc_check(&pl->memory);
        pl->memory_used = false;
    }
}
