/* SPDX-License-Identifier: Apache-2.0 */
/* See plain.h. */
#include "plain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "feed.h"

struct job {
    struct feed feed;
    struct gauge gauge;
    uint32_t frame;
    int n, warm, frames;
    struct sample result;
    long calls;
};

static uint8_t *frame_buffer(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes) != 0) {
        die("no memory for a frame");
    }
    memset(p, 0, bytes);
    return p;
}

static void *receive_thread(void *arg)
{
    struct job *job = arg;
    const size_t total = WIRE_HEADER + (size_t)job->frame;
    uint8_t *buf = frame_buffer(total);
    int fd = feed_connect(&job->feed);
    gauge_this_thread(&job->gauge);
    for (int i = 0; i < job->warm + job->frames; i++) {
        if (i == job->warm) {
            gauge_start(&job->gauge);
            job->calls = 0;
        }
        for (size_t got = 0; got < total;) {
            ssize_t n = recv(fd, buf + got, total - got, 0);
            if (n <= 0) {
                die("recv: %s", n ? strerror(errno) : "the sender has ended");
            }
            got += (size_t)n;
            job->calls++;
        }
    }
    job->result =
        gauge_stop(&job->gauge, (double)job->frames * job->frame / 1e9, (double)job->frames);
    job->result.extra = (double)job->calls / job->frames;
    close(fd);
    free(buf);
    return NULL;
}

static struct sample run(struct job *job, void *(*fn)(void *), int connections)
{
    pthread_t thread;
    feed_start(&job->feed, FEED_PLAIN, connections, job->frame, 0);
    if (pthread_create(&thread, NULL, fn, job) != 0) {
        die("no thread");
    }
    pthread_join(thread, NULL);
    feed_join(&job->feed);
    return job->result;
}

struct sample plain_receive(uint32_t frame, int warm, int frames)
{
    struct job job = {.frame = frame, .warm = warm, .frames = frames};
    return run(&job, receive_thread, 1);
}

struct plain_conn {
    int fd;
    uint8_t *buf;
    size_t got;
};

static void *receive_many_thread(void *arg)
{
    struct job *job = arg;
    const size_t total = WIRE_HEADER + (size_t)job->frame;
    struct plain_conn *conns = calloc((size_t)job->n, sizeof *conns);
    int ep = epoll_create1(EPOLL_CLOEXEC), done = 0;
    if (!conns) {
        die("no memory");
    }
    for (int i = 0; i < job->n; i++) {
        conns[i] = (struct plain_conn){feed_connect(&job->feed), frame_buffer(total), 0};
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &conns[i]};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &ev) != 0) {
            die("epoll: %s", strerror(errno));
        }
    }
    gauge_this_thread(&job->gauge);
    while (done < job->warm + job->frames) {
        struct epoll_event ev[64];
        int n = epoll_wait(ep, ev, 64, -1);
        for (int i = 0; i < n; i++) {
            struct plain_conn *c = ev[i].data.ptr;
            ssize_t got = recv(c->fd, c->buf + c->got, total - c->got, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) {
                die("recv: %s", got ? strerror(errno) : "the sender has ended");
            }
            c->got += got > 0 ? (size_t)got : 0;
            if (c->got == total) {
                c->got = 0;
                done++;
                if (done == job->warm) {
                    gauge_start(&job->gauge);
                }
            }
        }
    }
    job->result = gauge_stop(&job->gauge, (double)(done - job->warm), (double)job->frames);
    for (int i = 0; i < job->n; i++) {
        close(conns[i].fd);
        free(conns[i].buf);
    }
    close(ep);
    free(conns);
    return NULL;
}

struct sample plain_receive_many(int n, uint32_t frame, int warm, int frames)
{
    struct job job = {.frame = frame, .n = n, .warm = warm, .frames = frames};
    return run(&job, receive_many_thread, n);
}
