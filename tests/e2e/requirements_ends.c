/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements of section 12 of the wire protocol's description: operations, and how they end. */
#include "requirements.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t data[4096];

static int write_100(struct call *c)
{
    struct clb_iovec iov = {data, 100};
    return clb_stream_write(c->s, &iov, 1, -1);
}

static int write_until_it_fails(struct call *c)
{
    struct clb_iovec iov = {data, 2000};
    int err;
    do {
        err = clb_stream_write(c->s, &iov, 1, -1);
    } while (err == CLB_OK);
    return err;
}

static int flush_released(struct call *c)
{
    return clb_stream_flush(c->s, CLB_FLUSH_RELEASED, -1);
}

static int read_one(struct call *c)
{
    clb_packet *p = NULL;
    int err = clb_stream_read(c->s, &p, -1);
    clb_packet_free(&p);
    return err;
}

static int open_another(struct call *c)
{
    return call_open_stream(c, "b");
}

/* The next WRITE of the victim. */
static struct clbi_wire_header next_write(struct peer *p)
{
    struct clbi_wire_header h;
    do {
        CHECK(peer_recv(p, &h, NULL, 10000));
    } while (h.type != CLBI_WRITE_REQ);
    return h;
}

/* ---- R6 ---------------------------------------------------------------------------------------- */

static void errs_elsewhere(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    struct clbi_wire_header h = next_write(p);
    for (int k = 0; k < 10; k++) {
        peer_send_header(p, CLBI_WRITE_REQ, 700 + k, NULL, 4711, 10, CLBI_FLAG_ACK);
        peer_send_raw(p, data, 10);
        CHECK_EQ(answer(p, CLBI_WRITE_RESP, 700 + k)->flags, CLBI_FLAG_NACK);
        CHECK_EQ(ask(p, CLBI_READ_REL_REQ, NULL, 4711, 10)->flags, CLBI_FLAG_NACK);
        CHECK_EQ(ask(p, CLBI_CREATE_STREAM_REQ, "", 5, 64)->flags, CLBI_FLAG_TOOBIG);
        peer_send_header(p, CLBI_CREATE_STREAM_RESP, h.id, "a", 0, 64, CLBI_FLAG_ACK); /* stray */
    }
    step(sc);
    scene_await(sc, 2);
    peer_send_header(p, CLBI_WRITE_RESP, h.id, NULL, h.stream_id, h.size, CLBI_FLAG_ACK);
    stay_polite(p, sc);
}

/* What is wrong with one stream, or with none, completes nobody's operation. */
void r06_fault_stays_with_its_stream(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = errs_elsewhere};
    struct call c[2];
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 4096, 0), CLB_OK);
    call_begin(&c[0], &sc, write_100);
    call_begin(&c[1], &sc, read_one);
    scene_await(&sc, 1);
    CHECK_EQ(atomic_load(&c[0].result), 1);
    CHECK_EQ(atomic_load(&c[1].result), 1);
    step(&sc);
    CHECK_EQ(call_end(&c[0]), CLB_OK);
    CHECK_EQ(atomic_load(&c[1].result), 1);
    clb_link_shutdown(sc.link, 5 * SEC);
    CHECK_EQ(call_end(&c[1]), CLB_ERR_CLOSED);
    scene_end(&sc);
}

/* ---- R8 ---------------------------------------------------------------------------------------- */

static int64_t cpu_ms(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (int64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000 +
           (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1000;
}

static void leaves(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    p->deaf = true; /* no credit, no stream "b" */
    step(sc);
    while (atomic_load(&sc->made) < 2) {
        peer_pump(p, 1);
    }
    moved(sc);
    if (sc->arg) {
        peer_abort(p);
    } else {
        shutdown(p->fd, SHUT_WR);
        step(sc);
        while (recv(p->fd, &(char){0}, 1, 0) > 0) {
        }
    }
}

/* The end of the stream wakes all who wait, at once, and costs nothing afterwards. */
void r08_end_wakes_everyone(const void *where)
{
    static int (*const fns[])(struct call *) = {read_one, write_until_it_fails, flush_released,
                                                call_next_streams, open_another};
    enum { N = sizeof fns / sizeof *fns };
    for (int hard = 0; hard < 2; hard++) {
        struct scene sc = {.where = *(const int *)where, .fn = leaves, .arg = hard};
        struct call c[N];
        CHECK_EQ(scene_open(&sc), CLB_OK);
        CHECK_EQ(scene_stream(&sc, 4096, 0), CLB_OK);
        scene_await(&sc, 1);
        for (int i = 0; i < N; i++) {
            call_begin(&c[i], &sc, fns[i]);
            clb_stream_stats st = {0};
            while (fns[i] == write_until_it_fails && st.written == 0) {
                check_sleep_ms(1);
                clb_stream_get_stats(sc.s, &st, sizeof st);
            }
        }
        step(&sc);
        for (int i = 0; i < N; i++) {
            CHECK_EQ(call_end(&c[i]), CLB_ERR_LOST);
        }
        scene_lost(&sc, CLB_ERR_LOST, 0);
        const int64_t cpu = cpu_ms();
        check_sleep_ms(200);
        CHECK_LE(cpu_ms() - cpu, 100);
        scene_end(&sc);
    }
}

/* ---- R9 ---------------------------------------------------------------------------------------- */

static void takes_and_dies(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    next_write(p); /* received, and never answered */
    step(sc);
    scene_await(sc, 2);
    if (sc->arg) {
        peer_abort(p);
    }
}

/* Neither what was sent nor what was still to be sent has succeeded when the peer goes. */
void r09_unanswered_is_no_success(const void *where)
{
    for (int hard = 0; hard < 2; hard++) {
        struct scene sc = {.where = *(const int *)where, .fn = takes_and_dies, .arg = hard};
        struct clb_iovec iov = {data, 4096};
        struct call c[2];
        CHECK_EQ(scene_open(&sc), CLB_OK);
        clb_stream_params sp = {.struct_size = sizeof sp, .name = "a", .write_window = 8192};
        sp.write_async = 1;
        CHECK_EQ(clb_stream_open(&sc.s, sc.link, &sp), CLB_OK);
        CHECK_EQ(clb_stream_write(sc.s, &iov, 1, 5 * SEC), CLB_OK); /* on its way: told by flush */
        scene_await(&sc, 1);
        CHECK_EQ(clb_stream_write(sc.s, &iov, 1, 5 * SEC), CLB_OK);
        call_begin(&c[0], &sc, write_100); /* waits for credit */
        call_begin(&c[1], &sc, flush_released);
        check_sleep_ms(20);
        step(&sc);
        CHECK_EQ(call_end(&c[0]), CLB_ERR_LOST);
        CHECK_EQ(call_end(&c[1]), CLB_ERR_LOST);
        CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_ACKED, 0), CLB_ERR_LOST);
        scene_end(&sc);
    }
}

/* ---- R19 --------------------------------------------------------------------------------------- */

static void closes_its_half(struct peer *p, struct scene *sc)
{
    int i = announced(p, 4096);
    CHECK_EQ(ask(p, CLBI_CLOSE_STREAM_REQ, NULL, p->stream[i].id, 0)->flags, CLBI_FLAG_ACK);
    step(sc);
    stay_polite(p, sc);
}

void r19_halves_are_independent(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = closes_its_half};
    struct clb_iovec iov = {data, 4000};
    clb_packet *p = NULL;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 4096, 0), CLB_OK);
    scene_await(&sc, 1);
    CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_ERR_CLOSED);
    for (int k = 0; k < 20; k++) { /* with credit coming back */
        CHECK_EQ(clb_stream_write(sc.s, &iov, 1, 10 * SEC), CLB_OK);
    }
    CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_RELEASED, 10 * SEC), CLB_OK);
    scene_end(&sc);
}

/* ---- R24 --------------------------------------------------------------------------------------- */

#define THREADS 40

static void answers_backwards(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    for (int done = 0; done < THREADS;) {
        struct clbi_wire_header h[16];
        int n = 0;
        while (n < 16 && done + n < THREADS) {
            h[n++] = next_write(p);
        }
        done += n;
        while (n-- > 0) {
            peer_send_header(p, CLBI_WRITE_RESP, h[n].id, NULL, h[n].stream_id, h[n].size,
                             CLBI_FLAG_ACK);
        }
    }
    stay_polite(p, sc);
}

/* Many threads, any order of answers: each call ends with its own. */
void r24_operations_complete_one_by_one(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = answers_backwards};
    struct call c[THREADS];
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 1 << 16, 0), CLB_OK);
    for (int i = 0; i < THREADS; i++) {
        call_begin(&c[i], &sc, write_100);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(call_end(&c[i]), CLB_OK);
    }
    scene_end(&sc);
}

/* ---- R25 --------------------------------------------------------------------------------------- */

static void pings_twice(struct peer *p, void *arg)
{
    atomic_int *over = arg;
    CHECK(peer_handshake(p));
    p->pongs = 0;
    CHECK(peer_handshake(p));
    while (!atomic_load(over) && !p->eof) {
        peer_pump(p, 1);
    }
    peer_close(p);
}

static void *adopt_silent(void *arg)
{
    clb_link *link = NULL;
    int err = clb_link_adopt(&link, *(int *)arg, CLB_ROLE_DEVICE,
                             clb_link_params(.connect_timeout_ns = 300 * MS));
    CHECK_EQ(err, CLB_ERR_TIMEOUT);
    return NULL;
}

/* A PING on one link does not bring up another that waits for its own. */
void r25_links_share_nothing(const void *where)
{
    struct peer loud, silent;
    atomic_int over = 0;
    clb_link *link = NULL;
    pthread_t t;
    int fd[2] = {peer_pair(&loud, true), peer_pair(&silent, true)};
    (void)where;
    CHECK_EQ(pthread_create(&t, NULL, adopt_silent, &fd[1]), 0);
    check_sleep_ms(20);
    peer_start(&loud, pings_twice, &over);
    CHECK_EQ(clb_link_adopt(&link, fd[0], CLB_ROLE_DEVICE, NULL), CLB_OK);
    pthread_join(t, NULL);
    CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_UP);
    clb_link_close(&link);
    atomic_store(&over, 1);
    peer_join(&loud);
    peer_close(&silent);
    close(fd[1]);
}

/* ---- R27, R28 ---------------------------------------------------------------------------------- */

static void leaves_at_once(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    step(sc);
}

void r27_no_signal(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = leaves_at_once};
    struct clb_iovec iov = {data, 10};
    int err;
    signal(SIGPIPE, SIG_DFL);
    CHECK_EQ(scene_open(&sc), CLB_OK);
    err = scene_stream(&sc, 4096, 0);
    CHECK(err == CLB_OK || err == CLB_ERR_LOST);
    while (sc.s && (err = clb_stream_write(sc.s, &iov, 1, 5 * SEC)) == CLB_OK) {
    }
    CHECK_EQ(err, CLB_ERR_LOST);
    scene_end(&sc);
}

void r28_failed_connect_is_an_error(const void *where)
{
    struct clb_status st = {0};
    clb_link *link = NULL;
    uint16_t port;
    char uri[64];
    (void)where;
    close(peer_listen(&port)); /* nobody listens there */
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
    CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = uri, .status = &st)), CLB_ERR_IO);
    CHECK(link == NULL);
    CHECK_EQ(st.err, CLB_ERR_IO);
    CHECK(st.text[0] != '\0');
}

/* ---- R34 --------------------------------------------------------------------------------------- */

static long wake_ups(void)
{
    long sum = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d != NULL);
    for (const struct dirent *e; (e = readdir(d));) {
        char path[300], line[200];
        long n;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1) {
                sum += n;
            }
        }
        if (f) {
            fclose(f);
        }
    }
    closedir(d);
    return sum;
}

static void sleeps(struct peer *p, struct scene *sc)
{
    struct clbi_wire_header h;
    announced(p, 4096);
    step(sc);
    while (peer_recv(p, &h, NULL, 10000) && h.type != CLBI_RESET_REQ) {
    }
}

/* An idle link and a waiting reader: nobody wakes up to look whether something has come. */
void r34_idle_sleeps(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = sleeps};
    struct call c;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    scene_await(&sc, 1);
    call_begin(&c, &sc, read_one);
    check_sleep_ms(100);
    const long before = wake_ups();
    check_sleep_ms(600);
    /* This thread's own sleep, and a sanitizer's thread that looks around. */
    CHECK_LE(wake_ups() - before, CASES_SLACK_MS > 500 ? 40 : 6);
    clb_link_shutdown(sc.link, 5 * SEC);
    CHECK_EQ(call_end(&c), CLB_ERR_CLOSED);
    scene_end(&sc);
}
