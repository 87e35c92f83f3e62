/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listener: takes connections on its loop, lets each come up on a loop of its own (or the shared
 * one), and hands out those whose peer has said PING.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link_priv.h"
#include "log.h"
#include "uri.h"

/* A link that came from here and is not down yet, or waits for accept. */
struct child {
    struct child *next;
    struct clb_listener *listener; /* referenced */
    clb_link *link;
    bool up, accepted, down;
};

struct clb_listener {
    atomic_uint refs; /* handle, loop membership, children */
    clb_link_params cfg;
    struct clb_allocator allocator; /* of cfg, referenced when set */
    uint32_t max_links;
    const struct clbi_transport_ops *ops;
    char uri[320];
    clb_loop *shared; /* for the links, borrowed from cfg and referenced; NULL = each its own */

    pthread_mutex_t lock;
    pthread_cond_t cond;
    clb_loop *loop; /* of the listener, referenced by the membership */
    struct clbi_member member;
    struct child *children;
    uint32_t alive;
    uint32_t callers;
    bool closing, stopped;
    bool deferred; /* nobody waits for `stopped`: what is left is closed on the loop */
    bool started;  /* [io] */
    struct clbi_acceptor *acceptor;
};

static void listener_unref(clb_listener *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (l->allocator.unref) {
        l->allocator.unref(l->allocator.opaque);
    }
    clbi_loop_unref(l->shared);
    pthread_cond_destroy(&l->cond);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* lock held */
static void remove_child(clb_listener *l, struct child *c)
{
    for (struct child **p = &l->children; *p; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }
}

static void child_up(void *priv, clb_link *link)
{
    struct child *c = priv;
    (void)link;
    pthread_mutex_lock(&c->listener->lock);
    c->up = true;
    pthread_cond_broadcast(&c->listener->cond);
    if (c->listener->loop && !c->listener->stopped) {
        /* A caller-driven accept waits in the loop, not on the condition. */
        clbi_loop_kick(c->listener->loop, &c->listener->member);
    }
    pthread_mutex_unlock(&c->listener->lock);
}

/* Its place is free before its peer can know that the connection is over, and comes again. */
static void child_leaving(void *priv)
{
    struct child *c = priv;
    pthread_mutex_lock(&c->listener->lock);
    c->listener->alive--;
    pthread_mutex_unlock(&c->listener->lock);
}

static void child_down(void *priv, clb_link *link)
{
    struct child *c = priv;
    clb_listener *l = c->listener;
    pthread_mutex_lock(&l->lock);
    c->down = true;
    bool keep = c->up && !c->accepted && !l->closing; /* accept may still want it */
    if (!keep) {
        remove_child(l, c);
    }
    bool own_handle = !keep && !c->accepted;
    pthread_cond_broadcast(&l->cond);
    pthread_mutex_unlock(&l->lock);
    if (own_handle) {
        clb_link_close(&link); /* nobody else has the handle */
    }
    if (!keep) {
        free(c);
        listener_unref(l);
    }
}

static void on_accept(void *owner, int fd, const char *peer)
{
    clb_listener *l = owner;
    pthread_mutex_lock(&l->lock);
    bool full = l->alive >= l->max_links || l->closing;
    l->alive += !full;
    pthread_mutex_unlock(&l->lock);
    if (full) {
        clbi_log(&l->cfg.log, CLB_LOG_INFO, "%s: connection from %s closed, %u links are alive",
                 l->uri, peer, l->max_links);
        close(fd);
        return;
    }
    struct child *c = calloc(1, sizeof *c);
    clb_link *link = NULL;
    if (c) {
        link = clbi_link_new(&l->cfg, CLB_ROLE_DEVICE, l->ops, NULL, fd, l->shared, NULL);
    } else {
        clbi_fail(NULL, &l->cfg.log, CLB_ERR_NOMEM, CLB_DOMAIN_NONE, 0,
                  "%s: no memory for the connection from %s; it is closed", l->uri, peer);
    }
    if (!link) {
        free(c);
        close(fd);
        pthread_mutex_lock(&l->lock);
        l->alive--;
        pthread_mutex_unlock(&l->lock);
        return;
    }
    atomic_fetch_add(&l->refs, 1);
    c->listener = l;
    c->link = link;
    link->hook = (struct clbi_listener_hook){
        .up = child_up, .leaving = child_leaving, .down = child_down, .priv = c};
    pthread_mutex_lock(&l->lock);
    struct child **tail = &l->children;
    while (*tail) {
        tail = &(*tail)->next;
    }
    *tail = c;
    pthread_mutex_unlock(&l->lock);
    clbi_link_start(link);
}

/* Links that nobody took: their handles are ours. */
static void close_orphans(clb_listener *l)
{
    pthread_mutex_lock(&l->lock);
    for (struct child *c = l->children; c; c = c->next) {
        if (!c->accepted) {
            (void)clb_link_shutdown(c->link,
                                    0); /* all at once: their peers may be slow to answer */
        }
    }
    for (;;) {
        struct child *c = l->children;
        while (c && c->accepted) {
            c = c->next;
        }
        if (!c) {
            break;
        }
        c->accepted = true;
        clb_link *link = c->link;
        bool down = c->down;
        if (down) {
            remove_child(l, c);
        }
        pthread_mutex_unlock(&l->lock);
        clb_link_close(&link);
        if (down) {
            free(c);
            listener_unref(l);
        }
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
}

static void service(void *priv, int64_t now)
{
    clb_listener *l = priv;
    (void)now;
    pthread_mutex_lock(&l->lock);
    bool closing = l->closing;
    pthread_mutex_unlock(&l->lock);
    if (!closing) {
        if (!l->started) {
            l->started = true;
            l->ops->accept_start(l->acceptor);
        }
        return;
    }
    if (l->started) {
        l->ops->accept_stop(l->acceptor);
    }
    l->ops->accept_close(l->acceptor);
    l->acceptor = NULL;
    clb_loop *loop = l->loop;
    clbi_loop_leave(loop, &l->member);
    pthread_mutex_lock(&l->lock);
    l->stopped = true;
    bool deferred = l->deferred;
    pthread_cond_broadcast(&l->cond);
    pthread_mutex_unlock(&l->lock);
    if (deferred) {
        close_orphans(l);
    }
    listener_unref(l); /* of the membership */
    clbi_loop_unref(loop);
}

/* lock held, dropped while waiting */
static int wait_change(clb_listener *l, int64_t deadline)
{
    return clbi_loop_wait(l->loop, &l->lock, &l->cond, deadline);
}

/* ---- public ----------------------------------------------------------------------------------- */

static int listen_with(clb_listener *l, const char *address, struct clb_status *st)
{
    struct clbi_acceptor_env env = {.owner = l,
                                    .on_accept = on_accept,
                                    .loop = l->loop,
                                    .loop_ops = &clbi_loop_ops,
                                    .log = l->cfg.log};
    int64_t deadline = clbi_add_ns(clbi_now_ns(), l->cfg.connect_timeout_ns);
    return l->ops->listen(&l->acceptor, &env, address, deadline, l->uri, sizeof l->uri, st);
}

/* Without a loop yet. NULL = out of memory */
static clb_listener *make_listener(const clb_link_params *cfg, uint32_t max_links,
                                   const struct clbi_transport_ops *ops)
{
    clb_listener *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    atomic_init(&l->refs, 1);
    l->cfg = *cfg;
    l->cfg.uri = NULL;
    l->cfg.status = NULL;
    l->ops = ops;
    l->max_links = max_links ? max_links : 1;
    l->allocator = cfg->allocator;
    if (l->allocator.ref) {
        l->allocator.ref(l->allocator.opaque);
    }
    pthread_mutex_init(&l->lock, NULL);
    clbi_cond_init(&l->cond);
    return l;
}

int clb_listener_open(clb_listener **out, const clb_listener_params *params)
{
    if (!out) {
        return CLB_ERR_INVAL;
    }
    *out = NULL;
    clb_listener_params p;
    clb_link_params cfg;
    if (clbi_params_copy(&p, sizeof p, params, sizeof p) < 0 ||
        clbi_link_config(&cfg, &p.link) < 0) {
        return CLB_ERR_INVAL;
    }
    struct clb_status *st = cfg.status;
    struct clbi_uri uri;
    int err = clbi_uri_parse(&uri, p.uri, st, &cfg.log);
    if (err < 0) {
        return err;
    }
    const struct clbi_transport_ops *ops = clbi_transport_find(uri.scheme, uri.scheme_len);
    if (!ops || !ops->listen) {
        return clbi_fail(st, &cfg.log, ops ? CLB_ERR_NOSYS : CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "cannot listen on \"%s\"; use tcp://address[:port]", p.uri);
    }
    clb_listener *l = make_listener(&cfg, p.max_links, ops);
    if (!l) {
        return clbi_fail(st, &cfg.log, CLB_ERR_NOMEM, CLB_DOMAIN_NONE, 0,
                         "no memory for a listener");
    }
    if (cfg.loop) {
        l->shared = cfg.loop;
        clbi_loop_ref(cfg.loop);
        l->loop = cfg.loop;
        clbi_loop_ref(cfg.loop);
    } else {
        err = clb_loop_create(&l->loop, NULL);
    }
    if (err == CLB_OK) {
        err = listen_with(l, uri.rest, st);
    } else {
        clbi_fail(st, &cfg.log, err, CLB_DOMAIN_NONE, 0, "cannot start the listener's thread");
    }
    if (err < 0) {
        clb_loop *loop = l->loop;
        listener_unref(l);
        clbi_loop_unref(loop);
        return err;
    }
    l->member = (struct clbi_member){.service = service, .priv = l, .deadline = CLBI_NEVER};
    atomic_fetch_add(&l->refs, 1);
    clbi_loop_join(l->loop, &l->member);
    clbi_loop_kick(l->loop, &l->member);
    *out = l;
    return CLB_OK;
}

int clb_listener_accept(clb_listener *l, clb_link **link, int64_t timeout_ns)
{
    if (!link) {
        return CLB_ERR_INVAL;
    }
    *link = NULL;
    if (!l) {
        return CLB_ERR_INVAL;
    }
    const int64_t deadline = clbi_deadline(timeout_ns);
    struct child *gone = NULL;
    int err = CLB_OK;
    atomic_fetch_add(&l->refs, 1);
    pthread_mutex_lock(&l->lock);
    l->callers++;
    for (;;) {
        struct child *c = l->children;
        while (c && (!c->up || c->accepted)) {
            c = c->next;
        }
        if (l->closing) {
            err = CLB_ERR_CLOSED;
            break;
        }
        if (c) {
            c->accepted = true;
            *link = c->link;
            if (c->down) {
                remove_child(l, c);
                gone = c;
            }
            err = CLB_OK;
            break;
        }
        if (err < 0) {
            err = err == CLB_ERR_TIMEOUT && timeout_ns == 0 ? CLB_ERR_AGAIN : err;
            break;
        }
        err = wait_change(l, deadline);
    }
    if (--l->callers == 0) {
        pthread_cond_broadcast(&l->cond);
    }
    pthread_mutex_unlock(&l->lock);
    if (gone) {
        free(gone);
        listener_unref(l);
    }
    listener_unref(l);
    return err;
}

const char *clb_listener_uri(const clb_listener *l)
{
    return l ? l->uri : NULL;
}

void clb_listener_close(clb_listener **handle)
{
    if (!handle || !*handle) {
        return;
    }
    clb_listener *l = *handle;
    *handle = NULL;
    /* Held here, so that the loop outlives the waiting and its thread is not joined by itself. */
    clb_loop *loop = l->loop;
    clbi_loop_ref(loop);
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->cond);
    clbi_loop_kick(loop, &l->member);
    bool deferred = clbi_loop_on_thread(loop);
    while (!deferred && (!l->stopped || l->callers > 0)) {
        if (l->stopped) {
            clbi_cond_wait_until(&l->cond, &l->lock, clbi_add_ns(clbi_now_ns(), 20 * CLBI_MS));
        } else if (wait_change(l, clbi_add_ns(clbi_now_ns(), 20 * CLBI_MS)) == CLB_ERR_STATE) {
            deferred = true; /* caller-driven, another thread is inside: it ends there */
        }
    }
    l->deferred = deferred && !l->stopped;
    pthread_mutex_unlock(&l->lock);
    close_orphans(l);
    listener_unref(l);
    clbi_loop_unref(loop);
}
