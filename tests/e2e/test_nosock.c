/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every system call of the library fails once: each kind, each n of a small receiving session, with
 * the errnos that make sense for it; as host and as listener, by address and by name, on a thread and
 * on a loop that the caller drives, and for an adopted socket. What is only an interruption costs
 * nothing. Everything else gives one clear error, or ends the link with a cause; nothing crashes,
 * hangs or is left behind, and a link that lives on has given every credit back.
 *
 * Several processes share the work: most of a session is waiting.
 */
#include <clbridge/clbridge.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "nosock_calls.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define PKT 1000u
#define PACKETS 4
#define WORKERS 12

enum mode { HOST, HOST_DRIVEN, HOST_NAME, LISTEN, LISTEN_DRIVEN, LISTEN_NAME, ADOPT_DRIVEN, MODES };

static const char *const mode_names[] = {"host",
                                         "host, caller-driven",
                                         "host by name",
                                         "listener",
                                         "listener, caller-driven",
                                         "listener by name",
                                         "adopted, caller-driven"};

static bool is_listener(enum mode m)
{
    return m == LISTEN || m == LISTEN_DRIVEN || m == LISTEN_NAME;
}

static bool is_driven(enum mode m)
{
    return m == HOST_DRIVEN || m == LISTEN_DRIVEN || m == ADOPT_DRIVEN;
}

struct outcome {
    int loop, open, stream, write, ended, fd;
    int read; /* packets */
    struct clb_status st, why;
    enum clb_link_state state; /* when the reading has ended */
    int lines;                 /* in the log, errors and warnings */
    struct peer peer;
    bool met; /* peer and link have met */
};

/* ---- the peer -------------------------------------------------------------------------------- */

static atomic_bool peer_met, peer_gone;

static atomic_bool hasty;

/* Once something has failed that may end the link, a peer that hears nothing goes: what has been lost
 * is learnt soon. */
static bool hears(struct peer *p)
{
    const int64_t start = check_ms();

    while (!p->eof && !peer_pump(p, 20)) {
        const int64_t quiet = check_ms() - start;
        if (quiet > 10000 || (quiet > 150 && nosock_hit() && atomic_load(&hasty)))
            return false;
    }
    return !p->eof;
}

static void run(struct peer *p, void *arg)
{
    struct peer_stream *s = &p->stream[0];
    bool here = true;

    (void)arg;
    nosock_exempt(true);
    atomic_store(&peer_met, true);
    if (p->host)
        peer_send_header(p, CLBI_PING_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK);
    while (here && (p->host ? p->pongs : p->pings) == 0)
        here = hears(p);
    *s = (struct peer_stream){
        .used = true, .name = "s", .id = p->host ? 7 : CLBI_ID_NONE, .window = 2 * PKT};
    if (here)
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, p->next_id++, s->name, s->id, 2 * PKT,
                         CLBI_FLAG_ACK);
    while (here && s->id == CLBI_ID_NONE)
        here = hears(p);
    for (int i = 0; here && i < PACKETS; i++) {
        while (here && s->fill + PKT > s->window)
            here = hears(p);
        if (here)
            peer_write_fill(p, 0, i + 1, PKT, 0);
    }
    while (here && (s->released < PACKETS || !s->created))
        here = hears(p);
    if (here)
        peer_send_header(p, CLBI_CLOSE_STREAM_REQ, p->next_id++, NULL, s->id, 0, CLBI_FLAG_ACK);
    while (here)
        here = hears(p);
    peer_close(p);
    atomic_store(&peer_gone, true);
}

/* ---- the session ----------------------------------------------------------------------------- */

static void on_log(void *priv, enum clb_log_level level, const char *msg)
{
    (void)level;
    CHECK(msg[0] != '\0');
    atomic_fetch_add((atomic_int *)priv, 1);
}

static clb_link *open_host(struct outcome *o, enum mode m, clb_link_params *lp, int *door)
{
    clb_link *link = NULL;
    uint16_t port;
    char uri[64];

    nosock_exempt(true);
    *door = peer_listen(&port);
    snprintf(uri, sizeof uri, "tcp://%s:%u", m == HOST_NAME ? "localhost" : "127.0.0.1", port);
    lp->uri = uri;
    peer_accept_later(&o->peer, *door, run, NULL);
    nosock_exempt(false);
    o->open = clb_link_open(&link, lp);
    nosock_exempt(true);
    if (o->open < 0 && !atomic_load(&peer_met)) {
        struct peer knock; /* nobody may have come to the peer's door */
        peer_connect(&knock, port);
        peer_close(&knock);
    }
    o->met = true;
    return link;
}

static clb_link *open_listener(struct outcome *o, enum mode m, const clb_link_params *lp)
{
    clb_link *link = NULL;
    clb_listener *l = NULL;
    clb_listener_params p = {.struct_size = sizeof p, .link = *lp};

    p.uri = m == LISTEN_NAME ? "tcp://localhost:0" : "tcp://127.0.0.1:0";
    nosock_exempt(false);
    o->open = clb_listener_open(&l, &p);
    nosock_exempt(true);
    CHECK_EQ(o->open == CLB_OK, l != NULL);
    if (!l)
        return NULL;
    const char *uri = clb_listener_uri(l);
    const char *port = strrchr(uri, ':');
    CHECK(port != NULL);
    if (strchr(uri, '[') || atoi(port + 1) == 0) {
        nosock_exempt(false);
        clb_listener_close(&l); /* ::1, or its address could not be written */
        nosock_exempt(true);
        o->open = CLB_ERR_AGAIN;
        return NULL;
    }
    peer_connect(&o->peer, (uint16_t)atoi(port + 1));
    peer_start(&o->peer, run, NULL);
    o->met = true;
    nosock_exempt(false);
    const int64_t until = check_ms() + 3000;
    do {
        o->open = clb_listener_accept(l, &link, 50 * MS);
    } while (o->open == CLB_ERR_TIMEOUT && !atomic_load(&peer_gone) && check_ms() < until);
    clb_listener_close(&l);
    nosock_exempt(true);
    return link;
}

static clb_link *adopt(struct outcome *o, const clb_link_params *lp)
{
    clb_link *link = NULL;
    int fd = peer_pair(&o->peer, false);

    peer_start(&o->peer, run, NULL);
    o->met = true;
    nosock_exempt(false);
    o->open = clb_link_adopt(&link, fd, CLB_ROLE_HOST, lp);
    nosock_exempt(true);
    if (o->open < 0)
        close(fd);
    return link;
}

/* The library is called, nosock_exempt(false). */
static void use(struct outcome *o, clb_link *link)
{
    clb_stream_params sp = {.struct_size = sizeof sp, .name = "s", .write_window = 4096};
    const struct clb_iovec iov = {"0123456789", 10};
    clb_stream *s = NULL;
    clb_packet *p = NULL;

    sp.open_timeout_ns = 3 * SEC;
    o->stream = clb_stream_open(&s, link, &sp);
    o->fd = s ? clb_stream_fd(s) : 0;
    o->write = s ? clb_stream_write(s, &iov, 1, 3 * SEC) : o->stream;
    o->ended = o->stream;
    while (s && (o->ended = clb_stream_read(s, &p, 3 * SEC)) == CLB_OK) {
        const uint8_t *d = clb_packet_data(p);
        CHECK_EQ(clb_packet_size(p), PKT);
        CHECK_EQ(d[0], o->read + 1);
        CHECK_EQ(d[PKT - 1], o->read + 1);
        o->read++;
        clb_packet_free(&p);
    }
    o->state = clb_link_get_state(link, &o->why);
    clb_stream_close(&s);
}

static void session(enum mode m, struct outcome *o)
{
    const clb_loop_params driven = {.struct_size = sizeof driven, .caller_driven = 1};
    atomic_int lines = 0;
    clb_link_params lp = {.struct_size = sizeof lp,
                          .status = &o->st,
                          .log = {.level = CLB_LOG_WARN, .cb = on_log, .priv = &lines}};
    clb_link *link = NULL;
    int door = -1;

    lp.connect_timeout_ns = 3 * SEC;
    lp.close_timeout_ns = SEC;
    lp.first_open_ns = -1;
    atomic_store(&peer_met, false);
    atomic_store(&peer_gone, false);
    nosock_exempt(false);
    o->loop = is_driven(m) ? clb_loop_create(&lp.loop, &driven) : CLB_OK;
    nosock_exempt(true);
    if (o->loop == CLB_OK) {
        link = m == ADOPT_DRIVEN ? adopt(o, &lp)
               : is_listener(m)  ? open_listener(o, m, &lp)
                                 : open_host(o, m, &lp, &door);
        CHECK_EQ(o->open == CLB_OK, link != NULL);
    }
    nosock_exempt(false);
    if (link)
        use(o, link);
    clb_link_close(&link);
    clb_loop_destroy(&lp.loop);
    nosock_exempt(true);
    if (o->met)
        peer_join(&o->peer);
    if (door >= 0)
        close(door);
    o->lines = atomic_load(&lines);
}

/* ---- what may come of it --------------------------------------------------------------------- */

static void check_perfect(const struct outcome *o)
{
    CHECK_EQ(o->loop, CLB_OK);
    CHECK_EQ(o->open, CLB_OK);
    CHECK_EQ(o->stream, CLB_OK);
    CHECK_GE(o->fd, 0);
    CHECK_EQ(o->write, CLB_OK);
    CHECK_EQ(o->read, PACKETS);
    CHECK_EQ(o->ended, CLB_ERR_CLOSED);
    CHECK_EQ(o->peer.stream[0].released, PACKETS);
    CHECK_EQ(o->peer.stream[0].acked, PACKETS);
    CHECK(o->peer.got_reset);
}

static bool is_link_error(int err)
{
    return err == CLB_OK || err == CLB_ERR_LOST || err == CLB_ERR_CLOSED ||
           err == CLB_ERR_TIMEOUT || err == CLB_ERR_NOMEM || err == CLB_ERR_IO;
}

static void check_outcome(enum mode m, const struct outcome *o)
{
    if (o->loop < 0) {
        CHECK(o->loop == CLB_ERR_IO || o->loop == CLB_ERR_NOMEM);
        return;
    }
    if (o->open < 0) {
        /* One clear error: of the call itself, or the log says what became of the connection. */
        CHECK(is_listener(m) || o->st.err == o->open);
        if (o->open == CLB_ERR_AGAIN || (is_listener(m) && o->open == CLB_ERR_TIMEOUT)) {
            CHECK(m == LISTEN_NAME || o->lines > 0);
        } else {
            CHECK_EQ(o->st.err, o->open);
            CHECK(o->st.text[0] != '\0');
            CHECK_GT(o->lines, 0);
        }
        return;
    }
    CHECK(is_link_error(o->stream) && is_link_error(o->write) && is_link_error(o->ended));
    if (o->read == PACKETS && o->write == CLB_OK && o->ended == CLB_ERR_CLOSED) {
        CHECK_EQ(o->peer.stream[0].released, PACKETS);
        return; /* it cost one call at most, or came when everything was over */
    }
    /* The link has ended, and says why. */
    CHECK(o->state >= CLB_LINK_CLOSING);
    CHECK(o->why.err != CLB_OK);
    CHECK(o->why.text[0] != '\0');
    CHECK(o->why.err == CLB_ERR_CLOSED || o->lines > 0);
}

/* Returns whether a call has failed. */
static bool step(enum mode m, const struct nosock_fault *f, int n)
{
    struct outcome o = {0};

    atomic_store(&hasty, !f->free);
    nosock_arm(f, n);
    session(m, &o);
    const bool hit = nosock_hit();
    nosock_arm(NULL, 0);
    if (getenv("CLB_TEST_VERBOSE"))
        fprintf(stderr, "%s, %s %d, %d: %s, open %s, stream %s, write %s, %d read, %s\n",
                mode_names[m], f->name, f->code, n, hit ? "hit" : "clean", clb_error_name(o.open),
                clb_error_name(o.stream), clb_error_name(o.write), o.read, clb_error_name(o.ended));
    if ((!hit || f->free) && o.open != CLB_ERR_AGAIN)
        check_perfect(&o);
    else
        check_outcome(m, &o);
    return hit;
}

/* ---- the work, shared ------------------------------------------------------------------------ */

#define TEXT 160

/* What the processes tell each other. */
static struct shared {
    char text[WORKERS][TEXT]; /* what is being done, for the parent to tell when it ends badly */
    atomic_int hits[NOSOCK_CALLS];
} * shared;

static void work(int worker, const char *only)
{
    char *text = shared->text[worker];
    const int fds = check_fds(), threads = check_threads();
    int sessions = 0, job = 0;

    nosock_exempt(true);
    for (int m = 0; m < MODES; m++) {
        for (const struct nosock_fault *f = nosock_faults; f->name; f++) {
            if (job++ % WORKERS != worker)
                continue;
            const int64_t begin = check_ms();
            for (int n = 1;; n++) {
                snprintf(text, TEXT, "%s: call %d of %s fails with %d", mode_names[m], n, f->name,
                         f->code);
                if (only && !strstr(text, only))
                    break;
                bool hit = step((enum mode)m, f, n);
                check_back_to(fds, threads);
                sessions++;
                CHECK_LE(n, 400);
                atomic_fetch_add(&shared->hits[f->call], hit);
                if (!hit)
                    break;
            }
            if (getenv("CLB_TEST_VERBOSE"))
                fprintf(stderr, "%s: %d ms\n", text, (int)(check_ms() - begin));
        }
    }
    printf("worker %d: %d sessions\n", worker, sessions);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pid_t child[WORKERS];
    int status, bad = 0;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    check_watchdog(300);
    for (int i = 0; i < WORKERS; i++) {
        child[i] = fork();
        CHECK_GE(child[i], 0);
        if (child[i] == 0) {
            check_watchdog(280);
            work(i, argc > 1 ? argv[1] : NULL);
            exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        CHECK_EQ(waitpid(child[i], &status, 0), child[i]);
        if (status != 0)
            fprintf(stderr, "worker %d: %s: status %d\n", i, shared->text[i], status);
        bad |= status != 0;
    }
    /* A call that is never made here has not been tried. */
    for (const struct nosock_fault *f = nosock_faults; argc == 1 && f->name; f++) {
        if (atomic_load(&shared->hits[f->call]) == 0) {
            fprintf(stderr, "%s has never failed\n", f->name);
            bad = 1;
        }
    }
    return bad;
}
