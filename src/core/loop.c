/* SPDX-License-Identifier: Apache-2.0 */
/* The reactor on epoll. See loop.h. */
#include "loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "log.h"
#include "os.h"

#define BATCH 64

struct clb_loop {
    atomic_uint refs;
    int epfd, wakefd, timerfd;
    clb_loop_params cfg;
    pthread_t thread;                          /* unless caller-driven */
    struct clbi_watch wake_watch, timer_watch; /* our own: told by address, without callbacks */

    pthread_mutex_t lock; /* guards what follows; never held across a callback */
    struct clbi_member *members;
    struct clbi_member *dirty_head, **dirty_tail;
    bool awake; /* the dispatcher will look at the dirty list without being woken */
    bool stop;
    bool self_free; /* the thread frees the loop when it ends */
    bool dispatching;
    pthread_t dispatcher;

    /* dispatching thread only */
    struct clbi_defer *defers, **defer_tail;
    struct epoll_event batch[BATCH];
    int batch_len;
    int64_t timer_armed;
};

/* ---- services for transports ------------------------------------------------------------------ */

static int loop_watch(void *arg, struct clbi_watch *w)
{
    clb_loop *loop = arg;
    struct epoll_event ev = {.events = w->events, .data.ptr = w};
    return epoll_ctl(loop->epfd, EPOLL_CTL_ADD, w->fd, &ev) < 0 ? errno : 0;
}

static int loop_rewatch(void *arg, struct clbi_watch *w)
{
    clb_loop *loop = arg;
    struct epoll_event ev = {.events = w->events, .data.ptr = w};
    return epoll_ctl(loop->epfd, EPOLL_CTL_MOD, w->fd, &ev) < 0 ? errno : 0;
}

static void loop_unwatch(void *arg, struct clbi_watch *w)
{
    clb_loop *loop = arg;
    epoll_ctl(loop->epfd, EPOLL_CTL_DEL, w->fd, NULL);
    /* An event of this batch may name the watch, whose memory goes now. */
    for (int i = 0; i < loop->batch_len; i++) {
        if (loop->batch[i].data.ptr == w) {
            loop->batch[i].data.ptr = NULL;
        }
    }
}

static void loop_defer(void *arg, struct clbi_defer *d)
{
    clb_loop *loop = arg;
    if (d->queued) {
        return;
    }
    d->queued = true;
    d->next = NULL;
    *loop->defer_tail = d;
    loop->defer_tail = &d->next;
}

static void loop_undefer(void *arg, struct clbi_defer *d)
{
    clb_loop *loop = arg;
    if (!d->queued) {
        return;
    }
    for (struct clbi_defer **p = &loop->defers; *p; p = &(*p)->next) {
        if (*p == d) {
            *p = d->next;
            if (loop->defer_tail == &d->next) {
                loop->defer_tail = p;
            }
            break;
        }
    }
    d->queued = false;
    d->next = NULL;
}

const struct clbi_loop_ops clbi_loop_ops = {
    .watch = loop_watch,
    .rewatch = loop_rewatch,
    .unwatch = loop_unwatch,
    .defer = loop_defer,
    .undefer = loop_undefer,
};

/* ---- members ---------------------------------------------------------------------------------- */

static void push_dirty(clb_loop *loop, struct clbi_member *m)
{
    if (!m->dirty) {
        m->dirty = true;
        m->dirty_next = NULL;
        *loop->dirty_tail = m;
        loop->dirty_tail = &m->dirty_next;
    }
}

static struct clbi_member *pop_dirty(clb_loop *loop)
{
    struct clbi_member *m = loop->dirty_head;
    if (m) {
        loop->dirty_head = m->dirty_next;
        if (!loop->dirty_head) {
            loop->dirty_tail = &loop->dirty_head;
        }
        m->dirty = false;
        m->dirty_next = NULL;
    }
    return m;
}

void clbi_loop_join(clb_loop *loop, struct clbi_member *m)
{
    pthread_mutex_lock(&loop->lock);
    m->prev = NULL;
    m->next = loop->members;
    if (m->next) {
        m->next->prev = m;
    }
    loop->members = m;
    m->joined = true;
    pthread_mutex_unlock(&loop->lock);
}

void clbi_loop_leave(clb_loop *loop, struct clbi_member *m)
{
    pthread_mutex_lock(&loop->lock);
    if (m->joined) {
        m->joined = false;
        if (m->prev) {
            m->prev->next = m->next;
        } else {
            loop->members = m->next;
        }
        if (m->next) {
            m->next->prev = m->prev;
        }
        for (struct clbi_member **p = &loop->dirty_head; m->dirty && *p; p = &(*p)->dirty_next) {
            if (*p == m) {
                *p = m->dirty_next;
                if (loop->dirty_tail == &m->dirty_next) {
                    loop->dirty_tail = p;
                }
                m->dirty = false;
                break;
            }
        }
    }
    pthread_mutex_unlock(&loop->lock);
}

void clbi_loop_kick(clb_loop *loop, struct clbi_member *m)
{
    pthread_mutex_lock(&loop->lock);
    if (m->joined) {
        push_dirty(loop, m);
        if (!loop->awake) {
            loop->awake = true;
            /* Under the lock: a loop that wakes for another reason may be gone right after it. */
            clbi_wakefd_set(loop->wakefd);
        }
    }
    pthread_mutex_unlock(&loop->lock);
}

bool clbi_loop_kick_awake(clb_loop *loop, struct clbi_member *m)
{
    pthread_mutex_lock(&loop->lock);
    const bool comes = m->joined && loop->awake;
    if (comes) {
        push_dirty(loop, m);
    }
    pthread_mutex_unlock(&loop->lock);
    return comes;
}

/* Lock held: marks who is due and returns the earliest deadline of the others. */
static int64_t collect_due(clb_loop *loop, int64_t now)
{
    int64_t earliest = CLBI_NEVER;
    for (struct clbi_member *m = loop->members; m; m = m->next) {
        if (m->deadline <= now) {
            push_dirty(loop, m);
        } else if (m->deadline < earliest) {
            earliest = m->deadline;
        }
    }
    return earliest;
}

/* ---- one round -------------------------------------------------------------------------------- */

static int timeout_ms(int64_t now, int64_t until)
{
    if (until <= now) {
        return 0;
    }
    int64_t ms = (until - now) / CLBI_MS;
    /* Rounded up: waking early would only spin. */
    return ms >= 60000 ? 60000 : (int)ms + 1;
}

static int run_defers(clb_loop *loop)
{
    int done = 0;
    struct clbi_defer *last = NULL;
    for (struct clbi_defer *d = loop->defers; d; d = d->next) {
        last = d;
    }
    /* Those that were queued up to here; what they queue runs in the next round. */
    while (loop->defers) {
        struct clbi_defer *d = loop->defers;
        bool is_last = d == last;
        loop_undefer(loop, d);
        d->fn(d->priv);
        done++;
        if (is_last) {
            break;
        }
    }
    return done;
}

static int serve_dirty(clb_loop *loop)
{
    int done = 0;
    int64_t now = clbi_now_ns();
    pthread_mutex_lock(&loop->lock);
    collect_due(loop, now);
    int batch = 0;
    for (struct clbi_member *m = loop->dirty_head; m; m = m->dirty_next) {
        batch++;
    }
    while (batch-- > 0) {
        struct clbi_member *m = pop_dirty(loop);
        if (!m) {
            break;
        }
        pthread_mutex_unlock(&loop->lock);
        m->service(m->priv, now);
        done++;
        pthread_mutex_lock(&loop->lock);
    }
    pthread_mutex_unlock(&loop->lock);
    return done;
}

/* Returns how many callbacks ran. */
static int round_once(clb_loop *loop, int64_t until)
{
    int64_t now = clbi_now_ns();
    pthread_mutex_lock(&loop->lock);
    int64_t earliest = collect_due(loop, now);
    if (loop->dirty_head || loop->defers || loop->stop) {
        until = 0;
    } else {
        loop->awake = false;
        until = earliest < until ? earliest : until;
    }
    pthread_mutex_unlock(&loop->lock);

    int n = epoll_wait(loop->epfd, loop->batch, BATCH, timeout_ms(now, until));
    pthread_mutex_lock(&loop->lock);
    loop->awake = true;
    pthread_mutex_unlock(&loop->lock);

    int done = 0;
    loop->batch_len = n > 0 ? n : 0;
    for (int i = 0; i < loop->batch_len; i++) {
        struct clbi_watch *w = loop->batch[i].data.ptr;
        if (w == &loop->wake_watch) {
            /* It has done its work, see there. */
        } else if (w == &loop->timer_watch) {
            uint64_t ticks;
            while (read(loop->timerfd, &ticks, sizeof ticks) < 0 && errno == EINTR) {
            }
            loop->timer_armed = CLBI_NEVER;
        } else if (w) {
            w->cb(w->priv, loop->batch[i].events);
            done++;
        }
    }
    loop->batch_len = 0;
    done += run_defers(loop);
    done += serve_dirty(loop);
    return done;
}

/* ---- drivers ---------------------------------------------------------------------------------- */

static void loop_free(clb_loop *loop)
{
    if (loop->epfd >= 0) {
        close(loop->epfd);
    }
    if (loop->wakefd >= 0) {
        close(loop->wakefd);
    }
    if (loop->timerfd >= 0) {
        close(loop->timerfd);
    }
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

static void *thread_main(void *arg)
{
    clb_loop *loop = arg;
    pthread_mutex_lock(&loop->lock);
    loop->dispatching = true;
    loop->dispatcher = pthread_self();
    pthread_mutex_unlock(&loop->lock);
    if (loop->cfg.on_thread_start) {
        loop->cfg.on_thread_start(loop->cfg.priv);
    }
    for (;;) {
        pthread_mutex_lock(&loop->lock);
        bool stop = loop->stop;
        bool self_free = loop->self_free;
        pthread_mutex_unlock(&loop->lock);
        if (stop) {
            if (self_free) {
                loop_free(loop);
            }
            return NULL;
        }
        round_once(loop, CLBI_NEVER);
    }
}

static bool caller_is_dispatcher(const clb_loop *loop)
{
    return loop->dispatching && pthread_equal(loop->dispatcher, pthread_self());
}

bool clbi_loop_on_thread(clb_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    bool on = caller_is_dispatcher(loop);
    pthread_mutex_unlock(&loop->lock);
    return on;
}

bool clbi_loop_caller_driven(const clb_loop *loop)
{
    return loop->cfg.caller_driven != 0;
}

/* Leaves clb_loop_fd() readable when there is something to do, and the timer set for the rest. */
static void arm_descriptor(clb_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    int64_t earliest = collect_due(loop, clbi_now_ns());
    bool due = loop->dirty_head || loop->defers;
    loop->awake = due;
    loop->dispatching = false;
    pthread_mutex_unlock(&loop->lock);
    if (due) {
        clbi_wakefd_set(loop->wakefd);
    }
    /* A deadline that moved on leaves the timer alone: it fires once for nothing, and is set again
     * then. */
    if (earliest < loop->timer_armed) {
        struct itimerspec it = {{0, 0}, {0, 0}};
        it.it_value.tv_sec = (time_t)(earliest / CLBI_SEC);
        it.it_value.tv_nsec = (long)(earliest % CLBI_SEC);
        timerfd_settime(loop->timerfd, TFD_TIMER_ABSTIME, &it, NULL);
        loop->timer_armed = earliest;
    }
}

/* Caller-driven: rounds until one does something. CLB_OK, TIMEOUT (nothing was done and the deadline
 * has passed), STATE (somebody else is inside, or called from a callback). */
static int run_rounds(clb_loop *loop, int64_t deadline)
{
    pthread_mutex_lock(&loop->lock);
    if (loop->dispatching || !loop->cfg.caller_driven) {
        pthread_mutex_unlock(&loop->lock);
        return CLB_ERR_STATE;
    }
    loop->dispatching = true;
    loop->dispatcher = pthread_self();
    pthread_mutex_unlock(&loop->lock);
    clbi_loop_ref(loop); /* a callback may drop the last one */
    int done;
    do {
        done = round_once(loop, deadline);
    } while (done == 0 && clbi_now_ns() < deadline);
    arm_descriptor(loop);
    clbi_loop_unref(loop);
    return done ? CLB_OK : CLB_ERR_TIMEOUT;
}

int clbi_loop_wait(clb_loop *loop, pthread_mutex_t *lock, pthread_cond_t *cond, int64_t deadline)
{
    if (loop->cfg.caller_driven) {
        clbi_loop_ref(loop); /* what the lock guards may go meanwhile */
        pthread_mutex_unlock(lock);
        int r = run_rounds(loop, deadline);
        clbi_loop_unref(loop);
        pthread_mutex_lock(lock);
        /* A loop that has something to do all the time must not keep a caller for ever. */
        return r == CLB_OK && clbi_now_ns() >= deadline ? CLB_ERR_TIMEOUT : r;
    }
    if (clbi_loop_on_thread(loop)) {
        return CLB_ERR_STATE; /* it would wait for itself */
    }
    return clbi_cond_wait_until(cond, lock, deadline) ? CLB_ERR_TIMEOUT : CLB_OK;
}

/* ---- public ----------------------------------------------------------------------------------- */

int clb_loop_create(clb_loop **out, const clb_loop_params *params)
{
    if (!out) {
        return CLB_ERR_INVAL;
    }
    *out = NULL;
    clb_loop_params cfg;
    if (clbi_params_copy(&cfg, sizeof cfg, params, sizeof cfg) < 0) {
        return CLB_ERR_INVAL;
    }
    clb_loop *loop = calloc(1, sizeof *loop);
    if (!loop) {
        return CLB_ERR_NOMEM;
    }
    atomic_init(&loop->refs, 1);
    loop->cfg = cfg;
    loop->cfg.thread_name = NULL; /* the caller's memory */
    loop->dirty_tail = &loop->dirty_head;
    loop->defer_tail = &loop->defers;
    loop->timer_armed = CLBI_NEVER;
    pthread_mutex_init(&loop->lock, NULL);
    loop->epfd = epoll_create1(EPOLL_CLOEXEC);
    loop->wakefd = clbi_wakefd_open();
    loop->timerfd =
        cfg.caller_driven ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK) : -1;
    if (loop->epfd < 0 || loop->wakefd < 0 || (cfg.caller_driven && loop->timerfd < 0)) {
        loop_free(loop);
        return CLB_ERR_IO;
    }
    /* Edge-triggered: each wake-up is told once, and nobody has to read the counter. */
    loop->wake_watch = (struct clbi_watch){.fd = loop->wakefd, .events = EPOLLIN | EPOLLET};
    loop->timer_watch = (struct clbi_watch){.fd = loop->timerfd, .events = EPOLLIN};
    if (loop_watch(loop, &loop->wake_watch) != 0 ||
        (cfg.caller_driven && loop_watch(loop, &loop->timer_watch) != 0)) {
        loop_free(loop);
        return CLB_ERR_IO;
    }
    if (!cfg.caller_driven) {
        const char *name = cfg.thread_name ? cfg.thread_name : "clb-io";
        int rc = clbi_thread_create(&loop->thread, name, thread_main, loop);
        if (rc != 0) {
            loop_free(loop);
            return rc == ENOMEM ? CLB_ERR_NOMEM : CLB_ERR_IO;
        }
    }
    *out = loop;
    return CLB_OK;
}

void clbi_loop_ref(clb_loop *loop)
{
    atomic_fetch_add_explicit(&loop->refs, 1, memory_order_relaxed);
}

void clbi_loop_unref(clb_loop *loop)
{
    if (!loop || atomic_fetch_sub_explicit(&loop->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (loop->cfg.caller_driven) {
        loop_free(loop);
        return;
    }
    pthread_t thread = loop->thread;
    pthread_mutex_lock(&loop->lock);
    bool own = caller_is_dispatcher(loop);
    loop->self_free = own;
    loop->stop = true;
    loop->awake = true;
    pthread_mutex_unlock(&loop->lock);
    if (own) {
        pthread_detach(thread);
    } else {
        clbi_wakefd_set(loop->wakefd);
        pthread_join(thread, NULL);
        loop_free(loop);
    }
}

int clb_loop_dispatch(clb_loop *loop, int64_t timeout_ns)
{
    if (!loop) {
        return CLB_ERR_INVAL;
    }
    return run_rounds(loop, clbi_deadline(timeout_ns));
}

int clb_loop_fd(clb_loop *loop)
{
    if (!loop) {
        return CLB_ERR_INVAL;
    }
    return loop->cfg.caller_driven ? loop->epfd : CLB_ERR_STATE;
}

void clb_loop_destroy(clb_loop **loop)
{
    if (loop && *loop) {
        clb_loop *l = *loop;
        *loop = NULL;
        clbi_loop_unref(l);
    }
}
