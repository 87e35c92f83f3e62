/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that stop, vanish or do not come at all, and ends at any moment. */
#include "attack_kit.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "talloc.h"

/* ---- silence ----------------------------------------------------------------------------------- */

static void half_payload(struct peer *p, const struct attack *a)
{
    int i = announce(p);
    until_opened(p, i);
    write_header(p, p->stream[i].id, 100000);
    send_zeros(p, a->arg);
    if (a->arg2 == 1) {
        check_sleep_ms(20);
        peer_close(p);
    } else if (a->arg2 == 2) {
        check_sleep_ms(20);
        peer_abort(p);
    }
}

static void only_silent(struct peer *p, const struct attack *a)
{
    (void)a;
    until_opened(p, announce(p));
}

static void pings_without_reading(struct peer *p, const struct attack *a)
{
    (void)a;
    until_opened(p, announce(p));
    int size = 4096;
    setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    /* The system keeps the window of a connection shut whose end still has bytes for us. */
    struct timeval limit = {.tv_sec = 2};
    setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    while (!atomic_load(&over) &&
           peer_send_header(p, CLBI_PING_REQ, p->next_id++, NULL, 0, 0, CLBI_FLAG_ACK)) {
    }
}

static void never_reads(struct peer *p, const struct attack *a)
{
    (void)a;
    until_opened(p, announce(p));
}

static const clb_link_params impatient = {
    .progress_timeout_ns = 150 * MS, .keepalive_ns = -1, .idle_timeout_ns = -1};

void idle_is_no_stall(void)
{
    for (int role = 0; role < 2; role++) {
        victim((struct attack){.fn = only_silent, .as_host = role, .link = impatient});
    }
}

void payload_cut_off(void)
{
    for (uint32_t how = 1; how <= 2; how++) {
        for (int tcp = 0; tcp < 2; tcp++) {
            victim((struct attack){.fn = half_payload,
                                   .arg = 50000,
                                   .arg2 = how,
                                   .tcp = tcp,
                                   .err = CLB_ERR_LOST,
                                   .allocs = 1});
        }
    }
}

void flood_unread(void)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        victim((struct attack){
            .fn = pings_without_reading, .tcp = tcp, .link = impatient, .err = CLB_ERR_LOST});
    }
}

void peer_never_reads(void)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        victim((struct attack){
            .fn = never_reads, .tcp = tcp, .link = impatient, .writes = true, .err = CLB_ERR_LOST});
    }
}

/* ---- a crowd at the door ----------------------------------------------------------------------- */

/* Clients that connect and never say PING occupy the listener no longer than connect_timeout. */
void silent_clients(void)
{
    clb_listener *l = NULL;
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0", .max_links = 4};
    lp.link.loop = honest_loop;
    lp.link.connect_timeout_ns = 300 * MS;
    CHECK_EQ(clb_listener_open(&l, &lp), CLB_OK);
    const uint16_t port = (uint16_t)atoi(strrchr(clb_listener_uri(l), ':') + 1);
    struct peer p[12];
    for (int i = 0; i < 12; i++) {
        peer_connect(&p[i], port);
    }
    clb_link *dev = NULL, *host = NULL;
    CHECK_EQ(clb_listener_accept(l, &dev, 10 * MS), CLB_ERR_TIMEOUT);
    const int64_t until = check_ms() + 10000;
    while (clb_link_open(&host, clb_link_params(.uri = clb_listener_uri(l))) < 0) {
        CHECK_LE(check_ms(), until);
        check_sleep_ms(20);
    }
    CHECK_EQ(clb_listener_accept(l, &dev, 10 * SEC), CLB_OK);
    for (int i = 0; i < 12; i++) {
        peer_close(&p[i]);
    }
    clb_link_close(&host);
    clb_link_close(&dev);
    clb_listener_close(&l);
    honest_check();
}

/* ---- ends at random moments -------------------------------------------------------------------- */

struct pair {
    uint32_t seed;
    clb_loop *loop; /* NULL = each its own */
    clb_listener *listener;
    int rounds;
};

struct traffic {
    clb_stream *s;
};

static void *keep_reading(void *arg)
{
    struct traffic *t = arg;
    clb_packet *p = NULL, *kept = NULL;
    int err;
    while ((err = clb_stream_read(t->s, &p, 10 * SEC)) == CLB_OK) {
        clb_packet_free(&kept);
        kept = p;
    }
    CHECK_EQ(err == CLB_ERR_LOST ? CLB_ERR_CLOSED : err, CLB_ERR_CLOSED);
    if (kept) {
        CHECK_EQ(clb_packet_size(kept), 5000);
    }
    clb_packet_free(&kept);
    return NULL;
}

static void *keep_writing(void *arg)
{
    struct traffic *t = arg;
    static const uint8_t data[5000];
    struct clb_iovec iov[2] = {{data, 1000}, {data + 1000, 4000}};
    int err;
    while ((err = clb_stream_write(t->s, iov, 2, 10 * SEC)) == CLB_OK) {
    }
    CHECK_EQ(err == CLB_ERR_LOST ? CLB_ERR_CLOSED : err, CLB_ERR_CLOSED);
    return NULL;
}

/* A pair of links with traffic; one end goes by shutdown or close, from this thread, at a random
 * moment; the other notices. */
static void *random_ends(void *arg)
{
    struct pair *pr = arg;
    for (int i = 0; i < pr->rounds; i++) {
        clb_link *host = NULL, *dev = NULL;
        struct traffic in = {0}, out = {0};
        pthread_t r, w;
        clb_link_params hp = {.struct_size = sizeof hp, .uri = clb_listener_uri(pr->listener)};
        hp.loop = pr->loop;
        CHECK_EQ(clb_link_open(&host, &hp), CLB_OK);
        CHECK_EQ(clb_listener_accept(pr->listener, &dev, 10 * SEC), CLB_OK);
        CHECK_EQ(
            clb_stream_open(&out.s, dev, clb_stream_params(.name = "v", .write_window = 20000)),
            CLB_OK);
        CHECK_EQ(clb_stream_open(&in.s, host, clb_stream_params(.name = "v")), CLB_OK);
        CHECK_EQ(pthread_create(&r, NULL, keep_reading, &in), 0);
        CHECK_EQ(pthread_create(&w, NULL, keep_writing, &out), 0);
        struct timespec nap = {.tv_nsec = rnd(&pr->seed) % 3000000};
        nanosleep(&nap, NULL);
        switch (rnd(&pr->seed) % 6) {
        case 0: clb_link_close(&host); break;
        case 1: clb_link_close(&dev); break;
        case 2: clb_link_shutdown(host, 0); break;
        case 3: clb_link_shutdown(dev, 5 * SEC); break;
        case 4: clb_link_shutdown(host, -1); break;
        default:
            clb_link_shutdown(host, 0);
            clb_link_shutdown(dev, 0);
            break;
        }
        nap.tv_nsec = rnd(&pr->seed) % 1000000;
        nanosleep(&nap, NULL);
        if (rnd(&pr->seed) % 2) {
            clb_link_close(&dev);
            clb_link_close(&host);
        } else {
            clb_link_close(&host);
            clb_link_close(&dev);
        }
        pthread_join(r, NULL);
        pthread_join(w, NULL);
        clb_stream_close(&in.s);
        clb_stream_close(&out.s);
    }
    return NULL;
}

void random_moments(bool shared, int threads_n, int rounds)
{
    struct pair pr[4];
    pthread_t t[4];
    for (int i = 0; i < threads_n; i++) {
        pr[i] = (struct pair){.seed = 77u + (uint32_t)i, .rounds = rounds};
        pr[i].loop = shared ? honest_loop : NULL;
        clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
        lp.link.loop = pr[i].loop;
        lp.max_links = 8;
        CHECK_EQ(clb_listener_open(&pr[i].listener, &lp), CLB_OK);
        CHECK_EQ(pthread_create(&t[i], NULL, random_ends, &pr[i]), 0);
    }
    for (int i = 0; i < threads_n; i++) {
        pthread_join(t[i], NULL);
        clb_listener_close(&pr[i].listener);
    }
    honest_check();
}
