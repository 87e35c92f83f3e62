/* SPDX-License-Identifier: Apache-2.0 */
/* The link handle: making, ending, looking at it. What happens on the loop is in link_io.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link_priv.h"
#include "uri.h"

#define CONNECT_NS (5 * CLBI_SEC)
#define CLOSE_NS (2 * CLBI_SEC)
#define FIRST_OPEN_NS (2 * CLBI_SEC)
#define PROGRESS_NS (10 * CLBI_SEC)
#define KEEPALIVE_NS (2 * CLBI_SEC)
#define IDLE_NS (10 * CLBI_SEC)
#define MAX_PAYLOAD ((size_t)64 << 20)
#define MAX_STREAM_WINDOW ((size_t)64 << 20)
#define MAX_LINK_WINDOW ((size_t)256 << 20)
#define DEFAULT_POOL_SLOTS 64u

void *clbi_link_calloc(clb_link *link, size_t size)
{
    atomic_fetch_add_explicit(&link->heap_allocs, 1, memory_order_relaxed);
    return calloc(1, size);
}

int clbi_link_config(clb_link_params *cfg, const clb_link_params *params)
{
    if (clbi_params_copy(cfg, sizeof *cfg, params, sizeof *cfg) < 0) {
        return CLB_ERR_INVAL;
    }
    if (!clbi_allocator_valid(&cfg->allocator)) {
        return clbi_fail(cfg->status, &cfg->log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "link: an allocator needs both alloc and free, and both or none of ref "
                         "and unref");
    }
    cfg->connect_timeout_ns = clbi_field_ns(cfg->connect_timeout_ns, CONNECT_NS);
    cfg->close_timeout_ns = clbi_field_ns(cfg->close_timeout_ns, CLOSE_NS);
    cfg->first_open_ns =
        cfg->first_open_ns < 0 ? 0 : clbi_field_ns(cfg->first_open_ns, FIRST_OPEN_NS);
    cfg->progress_timeout_ns = clbi_field_ns(cfg->progress_timeout_ns, PROGRESS_NS);
    cfg->keepalive_ns = clbi_field_ns(cfg->keepalive_ns, KEEPALIVE_NS);
    cfg->idle_timeout_ns = clbi_field_ns(cfg->idle_timeout_ns, IDLE_NS);
    cfg->max_payload = cfg->max_payload ? cfg->max_payload : MAX_PAYLOAD;
    cfg->max_stream_window = cfg->max_stream_window ? cfg->max_stream_window : MAX_STREAM_WINDOW;
    cfg->max_link_window = cfg->max_link_window ? cfg->max_link_window : MAX_LINK_WINDOW;
    return CLB_OK;
}

/* ---- making and freeing ----------------------------------------------------------------------- */

clb_link *clbi_link_new(const clb_link_params *cfg, enum clb_role role,
                        const struct clbi_transport_ops *ops, const char *address, int fd,
                        clb_loop *loop, struct clb_status *st)
{
    clb_link *link = calloc(1, sizeof *link);
    char *copy = address ? strdup(address) : NULL;
    int err = !link || (address && !copy) ? CLB_ERR_NOMEM : CLB_OK;
    clb_loop *own = NULL;
    if (err == CLB_OK && !loop) {
        err = clb_loop_create(&own, NULL);
        loop = own;
    }
    if (err < 0) {
        clbi_fail(st, &cfg->log, err, CLB_DOMAIN_NONE, 0,
                  err == CLB_ERR_NOMEM
                      ? "no memory for a link"
                      : "cannot start the link's I/O thread; look at the limits of "
                        "descriptors and threads (ulimit -n, -u)");
        free(copy);
        free(link);
        return NULL;
    }
    if (!own) {
        clbi_loop_ref(loop);
    }
    atomic_init(&link->refs, 1);
    atomic_init(&link->heap_allocs, 1);
    link->cfg = *cfg;
    link->cfg.uri = NULL;
    link->cfg.loop = NULL;
    link->cfg.status = NULL;
    link->role = role;
    link->ops = ops;
    link->address = copy;
    link->adopt_fd = fd;
    link->loop = loop;
    link->state = CLB_LINK_CONNECTING;
    link->info.role = role;
    link->info.transport = ops->kind;
    link->next_token = 1;
    link->allocator = cfg->allocator;
    if (link->allocator.ref) {
        link->allocator.ref(link->allocator.opaque);
    }
    pthread_mutex_init(&link->lock, NULL);
    clbi_cond_init(&link->cond);
    const struct clbi_proto_config pc = {
        .role = role,
        .max_payload = cfg->max_payload,
        .max_stream_window = cfg->max_stream_window,
        .max_link_window = cfg->max_link_window,
        .write_timeout_ns = cfg->progress_timeout_ns,
    };
    clbi_proto_init(&link->proto, &pc);
    link->connect_deadline = clbi_add_ns(clbi_now_ns(), cfg->connect_timeout_ns);
    link->close_deadline = CLBI_NEVER;
    link->member = (struct clbi_member){
        .service = clbi_link_service, .priv = link, .deadline = link->connect_deadline};
    return link;
}

void clbi_link_ref(clb_link *link)
{
    atomic_fetch_add_explicit(&link->refs, 1, memory_order_relaxed);
}

void clbi_link_unref(clb_link *link)
{
    if (atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    while (link->packet_slabs) {
        struct clbi_packet_slab *slab = link->packet_slabs;
        link->packet_slabs = slab->next;
        free(slab);
    }
    clbi_spill_clear(link);
    clb_host_pool_destroy(&link->pool);
    if (link->allocator.unref) {
        link->allocator.unref(link->allocator.opaque);
    }
    if (link->adopt_fd >= 0) {
        close(link->adopt_fd);
    }
    free(link->drain);
    free(link->address);
    pthread_cond_destroy(&link->cond);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

void clbi_link_start(clb_link *link)
{
    clbi_link_ref(link); /* of the membership, dropped at DOWN */
    clbi_loop_join(link->loop, &link->member);
    clbi_loop_kick(link->loop, &link->member);
}

/* ---- calls that are inside -------------------------------------------------------------------- */

void clbi_link_enter(clb_link *link)
{
    clbi_link_ref(link);
    pthread_mutex_lock(&link->lock);
    link->callers++;
}

void clbi_link_leave(clb_link *link)
{
    if (--link->callers == 0) {
        pthread_cond_broadcast(&link->cond);
    }
    pthread_mutex_unlock(&link->lock);
    clbi_link_unref(link);
}

/* ---- waiting ---------------------------------------------------------------------------------- */

enum clbi_end clbi_link_end(const clb_link *link)
{
    if (link->state < CLB_LINK_CLOSING && !link->shutdown_wanted) {
        return CLBI_END_NONE;
    }
    bool orderly = link->why.err == CLB_OK || link->why.err == CLB_ERR_CLOSED;
    return orderly ? CLBI_END_CLOSED : CLBI_END_LOST;
}

int clbi_end_error(enum clbi_end end)
{
    return end == CLBI_END_LOST ? CLB_ERR_LOST : CLB_ERR_CLOSED;
}

void clbi_link_kick(clb_link *link)
{
    if (link->loop && link->state != CLB_LINK_DOWN) {
        clbi_loop_kick(link->loop, &link->member);
    }
}

void clbi_link_wake_all(clb_link *link)
{
    pthread_cond_broadcast(&link->cond);
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        clb_stream *s = link->slot[i].stream;
        if (s) {
            pthread_cond_broadcast(&s->cond);
            clbi_stream_update_fd(s);
        }
    }
}

bool clbi_link_on_loop(clb_link *link)
{
    return link->loop && !link->finished && clbi_loop_on_thread(link->loop);
}

int clbi_link_wait(clb_link *link, pthread_cond_t *cond, int64_t deadline)
{
    if (link->loop && !link->finished) {
        return clbi_loop_wait(link->loop, &link->lock, cond, deadline);
    }
    return clbi_cond_wait_until(cond, &link->lock, deadline) ? CLB_ERR_TIMEOUT : CLB_OK;
}

void clbi_slot_collect(clb_link *link, int index)
{
    struct clbi_slot *slot = &link->slot[index];
    bool marked = slot->announce_order || slot->closed_once || slot->seq;
    if (marked && !slot->stream && slot->unopened.len == 0 && !link->proto.stream[index].used) {
        *slot = (struct clbi_slot){0};
    }
}

void clbi_slots_collect(clb_link *link)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        clbi_slot_collect(link, i);
    }
}

/* ---- opening ---------------------------------------------------------------------------------- */

static int open_common(clb_link **out, clb_link *link, struct clb_status *st)
{
    clbi_link_start(link);
    pthread_mutex_lock(&link->lock);
    int err = CLB_OK;
    /* The deadline is kept by the loop, which then ends the link with its own words. */
    while (link->state == CLB_LINK_CONNECTING && err == CLB_OK) {
        err = clbi_link_wait(link, &link->cond, CLBI_NEVER);
        err = err == CLB_ERR_TIMEOUT ? CLB_OK : err;
    }
    bool up = err == CLB_OK && link->state == CLB_LINK_UP;
    link->caller_has_fd = link->caller_has_fd && !up;
    struct clb_status why = link->why;
    pthread_mutex_unlock(&link->lock);
    if (up) {
        *out = link;
        return CLB_OK;
    }
    if (err == CLB_ERR_STATE) {
        clbi_fail(
            &why, &link->cfg.log, CLB_ERR_STATE, CLB_DOMAIN_NONE, 0,
            "cannot open a link here: its loop is being dispatched by another thread or this is "
            "one of its callbacks");
    } else if (why.err == CLB_OK) {
        why.err = CLB_ERR_CLOSED;
    }
    if (st) {
        *st = why;
    }
    clb_link_close(&link);
    return why.err;
}

int clb_link_open(clb_link **out, const clb_link_params *params)
{
    if (!out) {
        return CLB_ERR_INVAL;
    }
    *out = NULL;
    clb_link_params cfg;
    int err = clbi_link_config(&cfg, params);
    if (err < 0) {
        return err;
    }
    struct clb_status *st = cfg.status;
    struct clbi_uri uri;
    err = clbi_uri_parse(&uri, cfg.uri, st, &cfg.log);
    if (err < 0) {
        return err;
    }
    const struct clbi_transport_ops *ops = clbi_transport_find(uri.scheme, uri.scheme_len);
    if (!ops) {
        return clbi_fail(st, &cfg.log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "unknown scheme in \"%s\"; use tcp://host[:port]", cfg.uri);
    }
    struct clb_status failure;
    clb_link *link = clbi_link_new(&cfg, CLB_ROLE_HOST, ops, uri.rest, -1, cfg.loop, &failure);
    if (!link) {
        if (st) {
            *st = failure;
        }
        return failure.err;
    }
    return open_common(out, link, st);
}

int clb_link_adopt(clb_link **out, int fd, enum clb_role role, const clb_link_params *params)
{
    if (!out) {
        return CLB_ERR_INVAL;
    }
    *out = NULL;
    clb_link_params cfg;
    int err = clbi_link_config(&cfg, params);
    if (err < 0) {
        return err;
    }
    const struct clbi_transport_ops *ops = fd >= 0 ? clbi_transport_for_fd(fd) : NULL;
    if (!ops || !ops->adopt || (role != CLB_ROLE_HOST && role != CLB_ROLE_DEVICE)) {
        return clbi_fail(cfg.status, &cfg.log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "descriptor %d cannot be adopted; it must be a connected stream socket",
                         fd);
    }
    /* The link works on a duplicate until it is up, so that a failure leaves the caller's alone. */
    int dup_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (dup_fd < 0) {
        return clbi_fail(cfg.status, &cfg.log, CLB_ERR_IO, CLB_DOMAIN_ERRNO, errno,
                         "cannot duplicate descriptor %d", fd);
    }
    struct clb_status failure;
    clb_link *link = clbi_link_new(&cfg, role, ops, NULL, dup_fd, cfg.loop, &failure);
    if (!link) {
        close(dup_fd);
        if (cfg.status) {
            *cfg.status = failure;
        }
        return failure.err;
    }
    link->caller_has_fd = true;
    err = open_common(out, link, cfg.status);
    if (err == CLB_OK) {
        close(fd);
    }
    return err;
}

/* ---- ending ----------------------------------------------------------------------------------- */

/* lock held */
static void want_shutdown(clb_link *link, int64_t deadline)
{
    if (!link->shutdown_wanted) {
        link->shutdown_wanted = true;
        link->shutdown_deadline = deadline;
        clbi_link_wake_all(link);
    }
    clbi_link_kick(link);
}

int clb_link_shutdown(clb_link *link, int64_t timeout_ns)
{
    if (!link) {
        return CLB_ERR_INVAL;
    }
    clbi_link_enter(link);
    int64_t deadline = clbi_deadline(timeout_ns ? timeout_ns : link->cfg.close_timeout_ns);
    want_shutdown(link, deadline);
    /* The loop closes hard at the deadline; this wait is a little longer, to see it done. */
    deadline = clbi_add_ns(deadline, 500 * CLBI_MS);
    int err = CLB_OK;
    bool own_thread = clbi_link_on_loop(link);
    while (link->state != CLB_LINK_DOWN) {
        if (own_thread || timeout_ns == 0) {
            err = CLB_ERR_TIMEOUT; /* it ends by itself */
            break;
        }
        err = clbi_link_wait(link, &link->cond, deadline);
        if (err < 0) {
            break;
        }
    }
    if (link->state == CLB_LINK_DOWN) {
        err = CLB_OK;
    }
    clbi_link_leave(link);
    return err;
}

void clbi_link_take_unopened(clb_link *link, struct clbi_queue *list)
{
    for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
        clbi_queue_splice(list, &link->slot[i].unopened);
    }
}

void clb_link_close(clb_link **handle)
{
    if (!handle || !*handle) {
        return;
    }
    clb_link *link = *handle;
    *handle = NULL;
    struct clbi_queue list = {0};
    pthread_mutex_lock(&link->lock);
    const int64_t limit = clbi_add_ns(clbi_now_ns(), link->cfg.close_timeout_ns);
    want_shutdown(link, limit);
    if (limit < link->shutdown_deadline) {
        link->shutdown_deadline = limit; /* of a shutdown that had more time */
    }
    if (clbi_link_on_loop(link)) {
        link->handle_closed = true;
        pthread_mutex_unlock(&link->lock);
        return;
    }
    while (!link->finished || link->callers > 0) {
        int err = clbi_link_wait(link, &link->cond, CLBI_NEVER);
        if (err == CLB_ERR_STATE && !link->finished) {
            /* A caller-driven loop that another thread dispatches: the end happens there. */
            link->handle_closed = true;
            pthread_mutex_unlock(&link->lock);
            return;
        }
    }
    clbi_link_take_unopened(link, &list);
    clb_loop *loop = link->loop;
    link->loop = NULL;
    pthread_mutex_unlock(&link->lock);
    clbi_packets_drop(link, &list);
    clbi_loop_unref(loop);
    clbi_link_unref(link);
}

/* ---- looking ---------------------------------------------------------------------------------- */

enum clb_link_state clb_link_get_state(const clb_link *link, struct clb_status *why)
{
    if (!link) {
        if (why) {
            *why = (struct clb_status){.err = CLB_ERR_INVAL};
        }
        return CLB_LINK_DOWN;
    }
    clb_link *l = (clb_link *)link; /* the lock is not part of what is looked at */
    pthread_mutex_lock(&l->lock);
    enum clb_link_state state = l->state;
    if (state == CLB_LINK_UP && l->shutdown_wanted) {
        state = CLB_LINK_CLOSING;
    }
    if (why) {
        *why = l->why;
    }
    pthread_mutex_unlock(&l->lock);
    return state;
}

void clb_link_get_info(const clb_link *link, clb_link_info *out, size_t size)
{
    clb_link_info info = {0};
    if (link) {
        clb_link *l = (clb_link *)link;
        pthread_mutex_lock(&l->lock);
        info = l->info;
        pthread_mutex_unlock(&l->lock);
    }
    clbi_output_copy(out, size, &info, sizeof info);
}

void clb_link_get_stats(const clb_link *link, clb_link_stats *out, size_t size)
{
    clb_link_stats s = {0};
    if (link) {
        clb_link *l = (clb_link *)link;
        clb_host_pool_stats pool = {0};
        pthread_mutex_lock(&l->lock);
        s.rx_bytes = l->rx_bytes;
        s.tx_bytes = l->tx_bytes;
        s.rx_events = l->proto.rx_events;
        s.tx_events = l->proto.tx_events;
        s.ignored_answers = l->proto.ignored_answers;
        s.nacks_sent = l->proto.nacks;
        s.rtt_ns = l->proto.rtt_ns;
        s.forgotten = l->proto.forgotten_count;
        clb_host_pool_get_stats(l->pool, &pool, sizeof pool);
        pthread_mutex_unlock(&l->lock);
        s.heap_allocs = atomic_load(&l->heap_allocs) + pool.heap_allocs;
    }
    clbi_output_copy(out, size, &s, sizeof s);
}

int clb_link_next_stream(clb_link *link, clb_stream_info *out, size_t size, int64_t timeout_ns)
{
    if (!link || !out) {
        return CLB_ERR_INVAL;
    }
    const int64_t deadline = clbi_deadline(timeout_ns);
    int err = CLB_OK;
    clbi_link_enter(link);
    for (bool waited = false;; waited = true) {
        struct clbi_slot *next = NULL;
        for (int i = 0; i < CLBI_MAX_STREAMS; i++) {
            struct clbi_slot *s = &link->slot[i];
            if (s->announced && !s->told && (!next || s->announce_order < next->announce_order)) {
                next = s;
            }
        }
        if (next) {
            int i = (int)(next - link->slot);
            const struct clbi_proto_stream *ps = &link->proto.stream[i];
            clb_stream_info info = {.id = ps->id,
                                    .peer_window = ps->in_window,
                                    .write_window = ps->out == CLBI_HALF_OPEN ? ps->out_window : 0,
                                    .opened = next->stream != NULL};
            memcpy(info.name, ps->name, sizeof info.name);
            next->told = true;
            clbi_output_copy(out, size, &info, sizeof info);
            err = CLB_OK;
            break;
        }
        enum clbi_end end = clbi_link_end(link);
        if (end != CLBI_END_NONE) {
            err = clbi_end_error(end);
            break;
        }
        if (waited && err < 0) {
            err = err == CLB_ERR_TIMEOUT && timeout_ns == 0 ? CLB_ERR_AGAIN : err;
            break;
        }
        err = clbi_link_wait(link, &link->cond, deadline);
    }
    clbi_link_leave(link);
    return err;
}

/* ---- allocators ------------------------------------------------------------------------------- */

bool clbi_allocator_valid(const struct clb_allocator *a)
{
    return (a->alloc == NULL) == (a->free == NULL) && (a->ref == NULL) == (a->unref == NULL);
}

/* lock held. The pool is made when the first stream without an allocator of its own is opened. */
int clbi_link_default_allocator(clb_link *link, struct clb_allocator *out, bool *own_pool)
{
    *own_pool = false;
    if (link->allocator.alloc) {
        *out = link->allocator;
        return CLB_OK;
    }
    if (!link->pool) {
        clb_host_pool_params pp = {.struct_size = sizeof pp,
                                   .count = DEFAULT_POOL_SLOTS,
                                   .max_bytes = link->cfg.max_link_window};
        int err = clb_host_pool_create(&link->pool, &pp);
        if (err < 0) {
            return err;
        }
    }
    *out = clb_host_pool_allocator(link->pool);
    *own_pool = true;
    return CLB_OK;
}
