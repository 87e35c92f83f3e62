/* SPDX-License-Identifier: Apache-2.0 */
/* See round_trip.h. */
#include "round_trip.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "feed.h"
#include "links.h"

#define BYTES 5
#define WARM 100

/* ---- plain ------------------------------------------------------------------------------------ */

static bool pass(int fd, bool out, char *buf)
{
    for (size_t done = 0; done < BYTES;) {
        ssize_t n = out ? send(fd, buf + done, BYTES - done, MSG_NOSIGNAL)
                        : recv(fd, buf + done, BYTES - done, 0);
        if (n <= 0) {
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

void echo_plain(int door)
{
    const int on = 1;
    char buf[BYTES];
    int fd = accept(door, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (pass(fd, false, buf) && pass(fd, true, buf)) {
    }
    close(fd);
}

static double *times_of(int rounds)
{
    double *times = calloc((size_t)rounds, sizeof *times);
    if (!times) {
        die("no memory");
    }
    return times;
}

static double middle(double *times, int rounds)
{
    double m = median(times, (size_t)rounds);
    free(times);
    return m;
}

double plain_round_trip(int rounds)
{
    struct feed feed;
    char buf[BYTES] = "ping";
    double *times = times_of(rounds);
    feed_start(&feed, FEED_ECHO_PLAIN, 1, 0, 0);
    int fd = feed_connect(&feed);
    for (int i = -WARM; i < rounds; i++) {
        const double start = now_s();
        if (!pass(fd, true, buf) || !pass(fd, false, buf)) {
            die("the other end of the ping-pong has gone");
        }
        if (i >= 0) {
            times[i] = now_s() - start;
        }
    }
    close(fd);
    feed_join(&feed);
    return middle(times, rounds);
}

/* ---- through links ---------------------------------------------------------------------------- */

static clb_loop *driven_loop(bool driven)
{
    clb_loop *loop = NULL;
    if (driven) {
        clb_loop_params lp = {.struct_size = sizeof lp, .caller_driven = 1};
        must(clb_loop_create(&loop, &lp), NULL, "loop");
    }
    return loop;
}

static clb_stream *both_ways(clb_link *link)
{
    clb_stream *s = NULL;
    clb_stream_params sp = {
        .struct_size = sizeof sp, .name = "ping", .write_window = 65536, .write_async = 1};
    must(clb_stream_open(&s, link, &sp), NULL, "stream");
    return s;
}

int echo_ours(bool driven)
{
    struct clb_status st = {0};
    clb_listener *listener = NULL;
    clb_link *link = NULL;
    clb_loop *loop = driven_loop(driven);
    clb_listener_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:0"};
    lp.link.loop = loop;
    lp.link.status = &st;
    must(clb_listener_open(&listener, &lp), &st, "listener");
    printf("%s\n", strrchr(clb_listener_uri(listener), ':') + 1);
    fflush(stdout);
    close(1);
    must(clb_listener_accept(listener, &link, INT64_C(10000000000)), &st, "accept");
    clb_stream *s = both_ways(link);
    clb_packet *p = NULL;
    while (clb_stream_read(s, &p, -1) == CLB_OK) {
        const struct clb_iovec iov = {clb_packet_data(p), clb_packet_size(p)};
        int err = clb_stream_write(s, &iov, 1, -1);
        clb_packet_free(&p);
        if (err < 0) {
            break;
        }
    }
    clb_stream_close(&s);
    clb_link_close(&link);
    clb_listener_close(&listener);
    clb_loop_destroy(&loop);
    return 0;
}

double links_round_trip(bool driven, int rounds)
{
    struct feed feed;
    struct clb_status st = {0};
    char uri[64];
    clb_link *link = NULL;
    clb_loop *loop = driven_loop(driven);
    double *times = times_of(rounds);
    feed_start(&feed, driven ? FEED_ECHO_OURS_DRIVEN : FEED_ECHO_OURS, 1, 0, 0);
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", feed.port);
    clb_link_params lp = {.struct_size = sizeof lp, .uri = uri, .loop = loop, .status = &st};
    must(clb_link_open(&link, &lp), &st, uri);
    clb_stream *s = both_ways(link);
    for (int i = -WARM; i < rounds; i++) {
        const struct clb_iovec iov = {"ping", BYTES};
        clb_packet *p = NULL;
        const double start = now_s();
        must(clb_stream_write(s, &iov, 1, -1), NULL, "write");
        must(clb_stream_read(s, &p, -1), NULL, "read");
        if (i >= 0) {
            times[i] = now_s() - start;
        }
        if (clb_packet_size(p) != BYTES) {
            die("an echo of the wrong size");
        }
        clb_packet_free(&p);
    }
    clb_stream_close(&s);
    clb_link_close(&link);
    clb_loop_destroy(&loop);
    feed_join(&feed);
    return middle(times, rounds);
}
