/* SPDX-License-Identifier: Apache-2.0 */
#include "mini_loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static void broken(const char *what)
{
    fprintf(stderr, "mini_loop: %s\n", what);
    abort();
}

static unsigned find(const struct mini_loop *l, const struct clbi_watch *w)
{
    unsigned i = 0;

    while (i < l->n_watches && l->watches[i] != w)
        i++;
    return i;
}

static int watch(void *loop, struct clbi_watch *w)
{
    struct mini_loop *l = loop;
    struct epoll_event ev = {.events = w->events, .data.ptr = w};

    if (find(l, w) < l->n_watches)
        broken("watched twice");
    if (l->n_watches == sizeof l->watches / sizeof *l->watches)
        return ENOSPC;
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, w->fd, &ev) < 0)
        return errno;
    l->watches[l->n_watches++] = w;
    return 0;
}

static int rewatch(void *loop, struct clbi_watch *w)
{
    struct mini_loop *l = loop;
    struct epoll_event ev = {.events = w->events, .data.ptr = w};

    if (find(l, w) == l->n_watches)
        broken("rewatch of what is not watched");
    l->rewatches++;
    return epoll_ctl(l->epfd, EPOLL_CTL_MOD, w->fd, &ev) < 0 ? errno : 0;
}

static void unwatch(void *loop, struct clbi_watch *w)
{
    struct mini_loop *l = loop;
    unsigned i = find(l, w);

    if (i == l->n_watches)
        broken("unwatch of what is not watched");
    if (epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL) < 0)
        broken("unwatch of a closed descriptor");
    l->watches[i] = l->watches[--l->n_watches];
}

static void defer(void *loop, struct clbi_defer *d)
{
    struct mini_loop *l = loop;

    if (d->queued)
        return;
    d->queued = true;
    d->next = NULL;
    if (l->last)
        l->last->next = d;
    else
        l->first = d;
    l->last = d;
}

static void undefer(void *loop, struct clbi_defer *d)
{
    struct mini_loop *l = loop;
    struct clbi_defer **at = &l->first;

    if (!d->queued)
        return;
    l->last = NULL;
    while (*at) {
        if (*at == d) {
            *at = d->next;
        } else {
            l->last = *at;
            at = &(*at)->next;
        }
    }
    d->queued = false;
}

const struct clbi_loop_ops mini_loop_ops = {
    .watch = watch,
    .rewatch = rewatch,
    .unwatch = unwatch,
    .defer = defer,
    .undefer = undefer,
};

int mini_loop_init(struct mini_loop *l)
{
    *l = (struct mini_loop){.epfd = epoll_create1(EPOLL_CLOEXEC)};
    return l->epfd < 0 ? errno : 0;
}

void mini_loop_fini(struct mini_loop *l)
{
    if (l->n_watches || l->first)
        broken("something is still watched or deferred");
    close(l->epfd);
}

int mini_loop_step(struct mini_loop *l, int timeout_ms)
{
    struct epoll_event ev[16];
    int n = epoll_wait(l->epfd, ev, 16, l->first ? 0 : timeout_ms), done = 0;

    l->wakeups++;
    for (int i = 0; i < n; i++) {
        struct clbi_watch *w = ev[i].data.ptr;
        if (find(l, w) == l->n_watches)
            continue; /* unwatched by one before it */
        l->events++;
        done++;
        w->cb(w->priv, ev[i].events);
    }
    for (struct clbi_defer *d = l->first, *end = l->last; d;) {
        bool was_end = d == end;
        l->first = d->next;
        if (!l->first)
            l->last = NULL;
        d->queued = false;
        done++;
        d->fn(d->priv);
        if (was_end)
            break;
        d = l->first;
    }
    return done;
}
