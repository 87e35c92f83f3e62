/* SPDX-License-Identifier: Apache-2.0 */
/* See links.h. */
#include "links.h"

#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "feed.h"
#include "threads.h"

#define WINDOW_FRAMES 8u

void must(int err, const struct clb_status *status, const char *what)
{
    if (err < 0) {
        die("%s: %s%s%s", what, clb_error_str(err), status && status->text[0] ? ": " : "",
            status ? status->text : "");
    }
}

static void on_thread(void *priv)
{
    gauge_this_thread(priv);
}

struct one {
    clb_link *link;
    clb_stream *stream;
    struct pollfd *poll;
};

static void open_one(struct one *c, const struct feed *feed, clb_loop *loop,
                     const clb_stream_params *as)
{
    char uri[64];
    struct clb_status st = {0};
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", feed->port);
    clb_link_params lp = {.struct_size = sizeof lp, .uri = uri, .loop = loop, .status = &st};
    must(clb_link_open(&c->link, &lp), &st, uri);
    must(clb_stream_open(&c->stream, c->link, as), NULL, "stream");
}

static void close_one(struct one *c)
{
    clb_stream_close(&c->stream);
    clb_link_close(&c->link);
}

/* Bytes that the library has copied. */
static double copied(const clb_stream *stream)
{
    clb_stream_stats stats;
    clb_stream_get_stats(stream, &stats, sizeof stats);
    return (double)(stats.spill_bytes + stats.moved_bytes + stats.readback_bytes);
}

struct sample links_receive(struct bench_pool *pool, uint32_t frame, int warm, int frames)
{
    clb_stream_params as = {.struct_size = sizeof as};
    if (pool) {
        as.allocator = bench_pool_allocator(pool);
    }
    return links_receive_as(pool, &as, FEED_WIRE, frame, warm, frames);
}

struct sample links_receive_as(struct bench_pool *pool, const clb_stream_params *as,
                               enum feed_kind kind, uint32_t frame, int warm, int frames)
{
    struct feed feed;
    struct gauge gauge = {0};
    struct one c = {0};
    clb_loop *loop = NULL;
    double before = 0;
    feed_start(&feed, kind, 1, frame, WINDOW_FRAMES * frame);
    clb_loop_params params = {
        .struct_size = sizeof params, .on_thread_start = on_thread, .priv = &gauge};
    must(clb_loop_create(&loop, &params), NULL, "loop");
    open_one(&c, &feed, loop, as);
    for (int i = 0; i < warm + frames; i++) {
        clb_packet *packet = NULL;
        if (i == warm) {
            before = copied(c.stream);
            threads_begin();
            gauge_start(&gauge);
        }
        must(clb_stream_read(c.stream, &packet, -1), NULL, "read");
        if (pool) {
            bench_pool_consume(pool, &packet);
        }
        clb_packet_free(&packet);
    }
    struct sample s = gauge_stop(&gauge, (double)frames * frame / 1e9, (double)frames);
    threads_end(frames);
    clb_stream_stats stats;
    clb_stream_get_stats(c.stream, &stats, sizeof stats);
    s.extra = (double)stats.spilled;
    s.copied = copied(c.stream) - before;
    close_one(&c);
    clb_loop_destroy(&loop);
    feed_join(&feed);
    if (pool) {
        bench_pool_drain(pool);
    }
    return s;
}

/* What earlier runs have left to the heap is given back first. */
static long resident_kb(void)
{
    long pages = 0;
    malloc_trim(0);
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) {
        die("/proc/self/statm cannot be read");
    }
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

struct sample links_receive_many(int n, uint32_t frame, int warm, int frames)
{
    struct feed feed;
    struct gauge gauge = {0};
    clb_loop *loop = NULL;
    struct one *conns = calloc((size_t)n, sizeof *conns);
    struct pollfd *poller = calloc((size_t)n, sizeof *poller);
    if (!conns || !poller) {
        die("no memory");
    }
    feed_start(&feed, FEED_WIRE, n, frame, WINDOW_FRAMES * frame);
    const clb_stream_params as = {.struct_size = sizeof as};
    const long before = resident_kb();
    clb_loop_params params = {
        .struct_size = sizeof params, .on_thread_start = on_thread, .priv = &gauge};
    must(clb_loop_create(&loop, &params), NULL, "loop");
    for (int i = 0; i < n; i++) {
        open_one(&conns[i], &feed, loop, &as);
        poller[i] = (struct pollfd){clb_stream_fd(conns[i].stream), POLLIN, 0};
    }
    const double memory = (double)(resident_kb() - before) * 1024 / n;
    int done = 0;
    while (done < warm + frames) {
        if (poll(poller, (nfds_t)n, 10000) <= 0) {
            die("nothing has arrived for 10 s");
        }
        for (int i = 0; i < n; i++) {
            clb_packet *packet = NULL;
            while ((poller[i].revents & POLLIN) &&
                   clb_stream_read(conns[i].stream, &packet, 0) == CLB_OK) {
                clb_packet_free(&packet);
                if (++done == warm) {
                    threads_begin();
                    gauge_start(&gauge);
                }
            }
        }
    }
    struct sample s = gauge_stop(&gauge, (double)(done - warm), (double)(done - warm));
    threads_end(done - warm);
    s.extra = memory;
    for (int i = 0; i < n; i++) {
        close_one(&conns[i]);
    }
    clb_loop_destroy(&loop);
    free(conns);
    free(poller);
    feed_join(&feed);
    return s;
}
