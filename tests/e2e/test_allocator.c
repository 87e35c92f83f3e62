/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator contract of clbridge/buffer.h against a scripted peer: allocators that refuse, cheat
 * or wait, whose allocator is asked, exact counts of every callback, release and free in each order
 * that handles can be destroyed in.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>

#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define MAX_SIZES 8

/* ---- a peer that writes packets of given sizes, packet i filled with i + 1 --------------------- */

struct script {
    const char *names[3]; /* one round of packets on each */
    uint32_t sizes[MAX_SIZES];
    int n;
    uint32_t window;
};

static void run_script(struct peer *p, void *arg)
{
    const struct script *sc = arg;
    int index[3], streams = 0;
    CHECK(peer_handshake(p));
    for (int k = 0; k < 3 && sc->names[k]; k++) {
        index[streams++] = peer_create(p, sc->names[k], sc->window);
    }
    for (int i = 0; i < sc->n && !p->eof; i++) {
        for (int k = 0; k < streams; k++) {
            peer_write_fill(p, index[k], i + 1, sc->sizes[i], 30000);
        }
    }
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

struct setup {
    struct peer peer;
    struct script script;
    clb_link *link;
};

static void begin(struct setup *s, const clb_link_params *params)
{
    int fd = peer_pair(&s->peer, false);
    if (!s->script.window) {
        s->script.window = 1 << 20;
    }
    peer_start(&s->peer, run_script, &s->script);
    CHECK_EQ(clb_link_adopt(&s->link, fd, CLB_ROLE_HOST, params), CLB_OK);
}

static void end(struct setup *s)
{
    clb_link_close(&s->link);
    peer_join(&s->peer);
}

static clb_stream *open_with(clb_link *link, const char *name, struct talloc *t,
                             enum clb_full on_full)
{
    clb_stream *s = NULL;
    clb_stream_params p = {.struct_size = sizeof p, .name = name, .on_full = on_full};
    p.queue_len = 64;
    if (t) {
        p.allocator = talloc_allocator(t);
    }
    CHECK_EQ(clb_stream_open(&s, link, &p), CLB_OK);
    return s;
}

static clb_stream_stats stats_of(clb_stream *s)
{
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    return st;
}

static void wait_packets(clb_stream *s, uint64_t n)
{
    for (int i = 0; i < 2000 && stats_of(s).packets < n; i++) {
        check_sleep_ms(2);
    }
    CHECK_EQ(stats_of(s).packets, n);
}

static clb_packet *read_packet(clb_stream *s, int value, size_t size)
{
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(p), size);
    const uint8_t *d = clb_packet_data(p);
    for (size_t i = 0; i < size; i++) {
        CHECK_EQ(d[i], value);
    }
    return p;
}

/* ---- allocators that refuse or cheat ----------------------------------------------------------- */

/* The second of three allocations goes wrong: that packet is drained, counted and credited, the
 * others are untouched; what was handed out is given back. */
static void goes_wrong(enum talloc_do how, enum clb_full on_full)
{
    const char plan[] = {'o', (char)how, 'o', 0};
    struct talloc t;
    struct setup su = {.script = {.names = {"a"}, .sizes = {100, 4096, 33}, .n = 3}};
    talloc_init(&t, plan);
    begin(&su, NULL);
    clb_stream *s = open_with(su.link, "a", &t, on_full);
    wait_packets(s, 3);
    clb_packet *p0 = read_packet(s, 1, 100), *p2 = read_packet(s, 3, 33), *none = NULL;
    CHECK_EQ(clb_stream_read(s, &none, 0), CLB_ERR_AGAIN);
    clb_packet_info info;
    clb_packet_get_info(p2, &info, sizeof info);
    CHECK_EQ(info.seq, 2);
    CHECK_EQ(info.dropped_before, 1);
    clb_stream_stats st = stats_of(s);
    CHECK_EQ(st.packets, 3);
    CHECK_EQ(st.bytes, 100 + 4096 + 33);
    CHECK_EQ(st.alloc_failed, 1);
    CHECK_EQ(st.held, 2);
    CHECK_EQ(st.queued, 0);
    CHECK_EQ(st.spilled + st.dropped_oldest + st.dropped_newest, 0);
    clb_packet_free(&p0);
    clb_packet_free(&p2);
    CHECK_EQ(stats_of(s).held, 0);
    CHECK_EQ(t.calls, 3);
    CHECK_EQ(t.max_wait, 0);
    clb_stream_close(&s);
    end(&su);
    CHECK_EQ(su.peer.stream[0].released, 3);
    CHECK_EQ(su.peer.stream[0].acked, 3);
    CHECK_EQ(su.peer.stream[0].released_bytes, 100 + 4096 + 33);
    CHECK_EQ(t.given, how == TALLOC_SHORT || how == TALLOC_CROOKED ? 3 : 2);
    CHECK_EQ(t.release_calls, 0);
    talloc_check(&t);
}

/* NOBUFS, then an error when the reader asks again: dropped there, the next packet follows. */
static void fails_in_read(enum talloc_do how)
{
    const char plan[] = {'o', 'n', (char)how, 'o', 0};
    struct talloc t;
    struct setup su = {.script = {.names = {"a"}, .sizes = {64, 65, 66}, .n = 3}};
    talloc_init(&t, plan);
    begin(&su, NULL);
    clb_stream *s = open_with(su.link, "a", &t, CLB_FULL_BLOCK);
    wait_packets(s, 3);
    CHECK_EQ(t.calls, 2); /* the third was not asked for: it would take the second one's buffer */
    clb_packet *p = read_packet(s, 1, 64);
    clb_packet_free(&p);
    p = read_packet(s, 3, 66);
    clb_packet_info info;
    clb_packet_get_info(p, &info, sizeof info);
    CHECK_EQ(info.dropped_before, 1);
    CHECK_EQ(info.spilled, 1);
    clb_packet_free(&p);
    clb_stream_stats st = stats_of(s);
    CHECK_EQ(st.alloc_failed, 1);
    CHECK_EQ(st.spilled, 2);
    CHECK_EQ(st.spill_bytes, 66);
    CHECK_EQ(t.calls, 4);
    clb_stream_close(&s);
    end(&su);
    CHECK_EQ(su.peer.stream[0].released, 3);
    talloc_check(&t);
}

static void *do_interrupt(void *arg)
{
    check_sleep_ms(50);
    clb_stream_interrupt(arg);
    return NULL;
}

static void *do_shutdown(void *arg)
{
    check_sleep_ms(50);
    clb_link_shutdown(arg, 5 * SEC);
    return NULL;
}

/* An allocator that uses all the time it is given, and never has anything. */
static void slow(void)
{
    struct talloc t;
    struct setup su = {.script = {.names = {"a"}, .sizes = {1000}, .n = 1}};
    pthread_t th;
    talloc_init(&t, "w");
    begin(&su, NULL);
    clb_stream *s = open_with(su.link, "a", &t, CLB_FULL_BLOCK);
    wait_packets(s, 1);
    CHECK_EQ(t.max_wait, 0); /* the I/O thread must not be made to wait */
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(s, &p, 0), CLB_ERR_NOBUFS);
    CHECK_EQ(t.max_wait, 0);
    CHECK_EQ(clb_stream_read(s, &p, 100 * MS), CLB_ERR_NOBUFS);
    CHECK_GT(t.max_wait, 0);
    CHECK_LE(t.max_wait, 20 * MS);
    CHECK_GE(t.calls, 5);
    /* Between two slices the reader looks for other things to do. */
    CHECK_EQ(pthread_create(&th, NULL, do_interrupt, s), 0);
    CHECK_EQ(clb_stream_read(s, &p, 30 * SEC), CLB_ERR_CANCELED);
    pthread_join(th, NULL);
    CHECK_EQ(pthread_create(&th, NULL, do_shutdown, su.link), 0);
    CHECK_EQ(clb_stream_read(s, &p, 30 * SEC),
             CLB_ERR_NOBUFS); /* it waits, complete, behind the end */
    pthread_join(th, NULL);
    CHECK_EQ(clb_stream_read(s, &p, 30 * SEC), CLB_ERR_NOBUFS);
    CHECK_LE(t.max_wait, 20 * MS);
    t.plan = "o";
    p = read_packet(s, 1, 1000);
    clb_packet *none = NULL;
    CHECK_EQ(clb_stream_read(s, &none, 0), CLB_ERR_CLOSED);
    clb_packet_free(&p);
    clb_stream_close(&s);
    end(&su);
    talloc_check(&t);
}

/* ---- whose allocator is asked ------------------------------------------------------------------ */

static void choice(void)
{
    struct talloc of_link, of_stream;
    struct setup su = {.script = {.names = {"a", "b"}, .sizes = {10, 20}, .n = 2}};
    clb_link_params lp = {.struct_size = sizeof lp};
    talloc_init(&of_link, NULL);
    talloc_init(&of_stream, NULL);
    lp.allocator = talloc_allocator(&of_link);
    begin(&su, &lp);
    clb_stream *a = open_with(su.link, "a", &of_stream, CLB_FULL_BLOCK);
    clb_stream *b = open_with(su.link, "b", NULL, CLB_FULL_BLOCK);
    for (int i = 1; i <= 2; i++) {
        clb_packet *pa = read_packet(a, i, (size_t)i * 10), *pb = read_packet(b, i, (size_t)i * 10);
        CHECK(talloc_owns(&of_stream, clb_packet_context(pa), clb_packet_data(pa)));
        CHECK(talloc_owns(&of_link, clb_packet_context(pb), clb_packet_data(pb)));
        CHECK(clb_packet_allocator(pa).opaque == &of_stream);
        CHECK(clb_packet_allocator(pb).opaque == &of_link);
        clb_packet_free(&pa);
        clb_packet_free(&pb);
    }
    clb_stream_close(&a);
    clb_stream_close(&b);
    end(&su);
    CHECK_EQ(of_stream.given, 2);
    CHECK_EQ(of_link.given, 2);
    talloc_check(&of_stream);
    talloc_check(&of_link);

    /* Neither: a pool of the link's own, which outlives it until the last packet is free. */
    su = (struct setup){.script = {.names = {"a"}, .sizes = {10, 20, 5000}, .n = 3}};
    begin(&su, NULL);
    a = open_with(su.link, "a", NULL, CLB_FULL_BLOCK);
    clb_packet *p0 = read_packet(a, 1, 10), *p1 = read_packet(a, 2, 20),
               *p2 = read_packet(a, 3, 5000);
    struct clb_buf buf;
    struct clb_allocator al = clb_packet_allocator(p1);
    CHECK_EQ(clb_packet_release(p1, &buf), CLB_OK);
    clb_stream_close(&a);
    end(&su);
    CHECK_EQ(*(uint8_t *)clb_packet_data(p2), 3);
    clb_packet_free(&p0);
    clb_packet_free(&p2);
    clb_packet_free(&p1);
    CHECK_EQ(*(uint8_t *)buf.data, 2);
    clb_buf_free(&al, &buf);
    CHECK(buf.data == NULL);
}

/* ---- release and free -------------------------------------------------------------------------- */

static void empty_packets(void)
{
    struct talloc t;
    struct setup su = {.script = {.names = {"a"}, .sizes = {0, 5, 0}, .n = 3}};
    talloc_init(&t, NULL);
    begin(&su, NULL);
    clb_stream *s = open_with(su.link, "a", &t, CLB_FULL_BLOCK);
    clb_packet *p[3] = {read_packet(s, 1, 0), read_packet(s, 2, 5), read_packet(s, 3, 0)};
    struct clb_buf buf;
    CHECK_EQ(clb_packet_release(p[2], &buf), CLB_OK);
    struct clb_allocator al = talloc_allocator(&t);
    clb_buf_free(&al, &buf);
    for (int i = 0; i < 3; i++) {
        clb_packet_free(&p[i]);
    }
    clb_stream_close(&s);
    end(&su);
    CHECK_EQ(su.peer.stream[0].released, 3);
    CHECK_EQ(t.given, 3);
    CHECK_EQ(t.released, 1);
    talloc_check(&t);
}

struct hand_over {
    clb_packet *packet;
    struct clb_buf buf;
    int err;
};

static void *release_elsewhere(void *arg)
{
    struct hand_over *h = arg;
    h->err = clb_packet_release(h->packet, &h->buf);
    return NULL;
}

/* A failed release leaves the packet as it was and gives no credit; the next one may succeed, on
 * another thread; the third is an error that changes nothing. The window is one packet, so credit
 * shows in the next one's arrival. */
static void release_fails(void)
{
    struct talloc t;
    struct setup su = {.script = {.names = {"a"}, .sizes = {512, 512}, .n = 2, .window = 512}};
    talloc_init(&t, NULL);
    t.fail_release = 2;
    begin(&su, NULL);
    clb_stream *s = open_with(su.link, "a", &t, CLB_FULL_BLOCK);
    struct hand_over h = {.packet = read_packet(s, 1, 512)};
    void *data = clb_packet_data(h.packet), *context = clb_packet_context(h.packet);
    for (int i = 0; i < 2; i++) {
        h.buf = (struct clb_buf){.size = 77};
        CHECK_EQ(clb_packet_release(h.packet, &h.buf), CLB_ERR_CL);
        CHECK_EQ(h.buf.size, 77);
        CHECK(clb_packet_data(h.packet) == data);
        CHECK_EQ(*(uint8_t *)data, 1);
        CHECK_EQ(stats_of(s).held, 1);
    }
    clb_packet *next = NULL;
    CHECK_EQ(clb_stream_read(s, &next, 100 * MS), CLB_ERR_TIMEOUT);
    pthread_t th;
    CHECK_EQ(pthread_create(&th, NULL, release_elsewhere, &h), 0);
    pthread_join(th, NULL);
    CHECK_EQ(h.err, CLB_OK);
    CHECK(h.buf.context == context);
    CHECK_EQ(stats_of(s).held, 0);
    next = read_packet(s, 2, 512);
    struct clb_buf again = {.size = 77};
    CHECK_EQ(clb_packet_release(h.packet, &again), CLB_ERR_STATE);
    CHECK_EQ(again.size, 77);
    CHECK_EQ(clb_packet_release(h.packet, NULL), CLB_ERR_INVAL);
    CHECK_EQ(clb_packet_release(NULL, &again), CLB_ERR_INVAL);
    CHECK(clb_packet_data(h.packet) == NULL);
    CHECK_EQ(clb_packet_size(h.packet), 512);
    CHECK(clb_packet_context(h.packet) == context);
    clb_packet_free(&h.packet);
    CHECK_EQ(t.freed, 0);
    struct clb_allocator al = talloc_allocator(&t);
    clb_buf_free(&al, &h.buf);
    CHECK_EQ(t.freed, 1);
    clb_packet_free(&next);
    clb_stream_close(&s);
    end(&su);
    CHECK_EQ(su.peer.stream[0].released, 2);
    CHECK_EQ(t.release_calls, 3);
    talloc_check(&t);
}

/* ---- every order ------------------------------------------------------------------------------- */

/* The k-th permutation of 0..n-1. */
static void permutation(int k, int n, int *out)
{
    int left[8];
    for (int i = 0; i < n; i++) {
        left[i] = i;
    }
    for (int i = n; i > 0; i--) {
        int at = k % i;
        k /= i;
        out[n - i] = left[at];
        memmove(left + at, left + at + 1, (size_t)(i - at - 1) * sizeof *left);
    }
}

/* Four packets: held, released, released and its packet kept, unread (one of them spilled). */
static void every_order(bool pooled, int step)
{
    enum { HELD, PACKET, BUFFER, STREAM, LINK, LOOP_OR_POOL, ACTIONS };
    for (int k = 0; k < 720; k += step) {
        int order[ACTIONS];
        struct talloc t;
        struct setup su = {.script = {.names = {"a"}, .sizes = {100, 100, 100, 100}, .n = 4}};
        clb_link_params lp = {.struct_size = sizeof lp};
        clb_stream_params sp = {.struct_size = sizeof sp, .name = "a"};
        clb_host_pool *pool = NULL;
        clb_stream *s = NULL;
        talloc_init(&t, NULL);
        t.limit = 3;
        if (pooled) {
            clb_host_pool_params pp = {.struct_size = sizeof pp, .count = 3};
            CHECK_EQ(clb_host_pool_create(&pool, &pp), CLB_OK);
            sp.allocator = clb_host_pool_allocator(pool);
        } else {
            CHECK_EQ(clb_loop_create(&lp.loop, NULL), CLB_OK);
            sp.allocator = talloc_allocator(&t);
        }
        begin(&su, &lp);
        CHECK_EQ(clb_stream_open(&s, su.link, &sp), CLB_OK);
        clb_packet *held = read_packet(s, 1, 100), *packet = read_packet(s, 2, 100);
        struct clb_allocator al = clb_packet_allocator(packet);
        struct clb_buf buf;
        CHECK_EQ(clb_packet_release(packet, &buf), CLB_OK);
        wait_packets(s, 4);
        permutation(k, ACTIONS, order);
        for (int i = 0; i < ACTIONS; i++) {
            switch (order[i]) {
            case HELD:
                CHECK_EQ(*(uint8_t *)clb_packet_data(held), 1);
                clb_packet_free(&held);
                break;
            case PACKET: clb_packet_free(&packet); break;
            case BUFFER: clb_buf_free(&al, &buf); break;
            case STREAM: clb_stream_close(&s); break;
            case LINK: clb_link_close(&su.link); break;
            default:
                clb_loop_destroy(&lp.loop);
                clb_host_pool_destroy(&pool);
                break;
            }
        }
        peer_join(&su.peer);
        CHECK_EQ(t.given, pooled ? 0 : 3);
        CHECK_EQ(t.released, pooled ? 0 : 1);
        talloc_check(&t);
    }
}

/* Listener, both links, both streams and the loop. */
static void every_order_of_listener(int step)
{
    enum { LISTENER, HOST, DEVICE, IN, OUT, LOOP, ACTIONS };
    for (int k = 0; k < 720; k += step) {
        int order[ACTIONS];
        struct talloc t;
        clb_loop *loop = NULL;
        clb_listener *l = NULL;
        clb_link *host = NULL, *dev = NULL;
        clb_stream *in = NULL, *out = NULL;
        talloc_init(&t, NULL);
        CHECK_EQ(clb_loop_create(&loop, NULL), CLB_OK);
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link.loop = loop;
        lp.link.allocator = talloc_allocator(&t);
        CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
        clb_link_params hp = {.struct_size = sizeof hp, .uri = clb_listener_uri(l)};
        hp.allocator = talloc_allocator(&t);
        hp.loop = k % 2 ? loop : NULL;
        CHECK_EQ(clb_link_open(&host, &hp), CLB_OK);
        CHECK_EQ(clb_listener_accept(l, &dev, 10 * SEC), CLB_OK);
        CHECK_EQ(clb_stream_open(&out, dev, clb_stream_params(.name = "v", .write_window = 64)),
                 CLB_OK);
        CHECK_EQ(clb_stream_open(&in, host, clb_stream_params(.name = "v")), CLB_OK);
        struct clb_iovec iov = {"x", 1};
        CHECK_EQ(clb_stream_write(out, &iov, 1, 10 * SEC), CLB_OK);
        permutation(k, ACTIONS, order);
        for (int i = 0; i < ACTIONS; i++) {
            switch (order[i]) {
            case LISTENER: clb_listener_close(&l); break;
            case HOST: clb_link_close(&host); break;
            case DEVICE: clb_link_close(&dev); break;
            case IN: clb_stream_close(&in); break;
            case OUT: clb_stream_close(&out); break;
            default: clb_loop_destroy(&loop); break;
            }
        }
        talloc_check(&t);
    }
}

int main(int argc, char **argv)
{
    check_watchdog(100);
    const int fds = check_fds(), threads = check_threads();
#define RUN(f)                                                                                     \
    do {                                                                                           \
        if (argc < 2 || strstr(#f, argv[1])) {                                                     \
            fprintf(stderr, "%s\n", #f);                                                           \
            f;                                                                                     \
            check_back_to(fds, threads);                                                           \
        }                                                                                          \
    } while (0)
    for (enum clb_full f = CLB_FULL_BLOCK; f <= CLB_FULL_DROP_NEWEST; f++) {
        RUN(goes_wrong(TALLOC_ERROR, f));
        RUN(goes_wrong(TALLOC_NULL, f));
        RUN(goes_wrong(TALLOC_SHORT, f));
        RUN(goes_wrong(TALLOC_CROOKED, f));
    }
    RUN(fails_in_read(TALLOC_ERROR));
    RUN(fails_in_read(TALLOC_NULL));
    RUN(fails_in_read(TALLOC_SHORT));
    RUN(fails_in_read(TALLOC_CROOKED));
    RUN(slow());
    RUN(choice());
    RUN(empty_packets());
    RUN(release_fails());
    RUN(every_order(false, 1));
    RUN(every_order(true, 1));
    RUN(every_order_of_listener(1));
    return 0;
}
