/* SPDX-License-Identifier: Apache-2.0 */
/* The double of an OpenCL runtime: see double.h. One lock, one list of commands per queue. */
#include "double_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct dbl_state dbl = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Never called and never freed: what they point at is for the leak checker still in use. */
static struct callback *lost;

static int the_device;

static const char *const fn_names[] = {
#define FN_NAME(name) "cl" #name,
    CLBI_CL_FNS_MAP(FN_NAME)
#undef FN_NAME
};

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void dbli_violation(const char *fmt, ...)
{
    va_list ap;

    if (dbl.violations++ > 3)
        return;
    va_start(ap, fmt);
    fprintf(stderr, "double: VIOLATION: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
}

cl_int dbli_enter(enum dbl_fn fn)
{
    uint64_t n;

    pthread_mutex_lock(&dbl.lock);
    dbl.total++;
    n = ++dbl.calls[fn];
    if (dbl.fail[fn].times > 0 && n >= dbl.fail[fn].at && n < dbl.fail[fn].at + dbl.fail[fn].times)
        return dbl.fail[fn].code;
    return CL_SUCCESS;
}

void dbli_leave(void)
{
    pthread_mutex_unlock(&dbl.lock);
}

/* ---- objects --------------------------------------------------------------------------------- */

void *dbli_obj_new(enum kind kind, size_t size)
{
    struct obj *o = calloc(1, size);

    if (!o)
        abort();
    o->kind = kind;
    o->refs = 1;
    o->next = dbl.live.next;
    o->prev = &dbl.live;
    dbl.live.next->prev = o;
    dbl.live.next = o;
    return o;
}

bool dbli_obj_is(const void *p, enum kind kind, const char *where)
{
    const struct obj *o = p;

    if (o && o->kind == kind && o->refs > 0)
        return true;
    if (o && o->kind == KIND_DEAD)
        dbli_violation("%s: the object was released before (kind %d)", where,
                       (int)o->was - KIND_CONTEXT);
    else
        dbli_violation("%s: no such object", where);
    return false;
}

/* True = that was the last one; the caller tears down, then buries. */
bool dbli_unref(struct obj *o)
{
    return --o->refs == 0;
}

void dbli_bury(struct obj *o)
{
    unsigned i = dbl.graves++ % GRAVES;

    o->prev->next = o->next;
    o->next->prev = o->prev;
    o->was = o->kind;
    o->kind = KIND_DEAD;
    free(dbl.grave[i]);
    dbl.grave[i] = o;
}

void dbli_context_unref(struct context *c)
{
    if (dbli_unref(&c->obj))
        dbli_bury(&c->obj);
}

void dbli_mem_unref(struct mem *m)
{
    if (!dbli_unref(&m->obj))
        return;
    free(m->device);
    free(m->block);
    free(m->old);
    m->device = m->block = m->old = NULL;
    dbl.mems--;
    if (m->ptr)
        dbl.mapped--;
    dbli_context_unref(m->context);
    dbli_bury(&m->obj);
}

void dbli_queue_unref(struct queue *q)
{
    struct queue **link = &dbl.queues;

    if (!dbli_unref(&q->obj))
        return;
    while (*link != q)
        link = &(*link)->next_queue;
    *link = q->next_queue;
    dbl.num_queues--;
    dbli_context_unref(q->context);
    dbli_bury(&q->obj);
}

void dbli_event_unref(struct event *e)
{
    if (!dbli_unref(&e->obj))
        return;
    dbl.events_live--;
    if (e->mem)
        dbli_mem_unref(e->mem);
    dbli_queue_unref(e->queue);
    while (e->num_wait > 0)
        dbli_event_unref(e->wait[--e->num_wait]);
    free(e->wait);
    dbli_bury(&e->obj);
}

/* ---- execution ------------------------------------------------------------------------------- */

/* Lets the callbacks of an ended event go to the late list, or runs them without the lock. */
void dbli_run_callbacks(struct event *e)
{
    struct callback *list = e->callbacks, *cb;

    e->callbacks = NULL;
    while ((cb = list) != NULL) {
        list = cb->next;
        if (dbl.callbacks == DBL_CB_NEVER) {
            cb->next = lost;
            lost = cb;
        } else if (dbl.callbacks == DBL_CB_LATE) {
            cb->due = now_ns() + LATE_NS;
            cb->event = e;
            e->obj.refs++;
            cb->next = dbl.late;
            dbl.late = cb;
        } else {
            cl_int status = e->status;

            pthread_mutex_unlock(&dbl.lock);
            cb->fn((cl_event)(void *)e, status, cb->priv);
            free(cb);
            pthread_mutex_lock(&dbl.lock);
        }
    }
}

static bool run_late(bool all)
{
    struct callback **link = &dbl.late, *cb;
    int64_t now = now_ns();

    while ((cb = *link) != NULL) {
        if (!all && cb->due > now) {
            link = &cb->next;
            continue;
        }
        *link = cb->next;
        pthread_mutex_unlock(&dbl.lock);
        cb->fn((cl_event)(void *)cb->event, cb->event->status, cb->priv);
        pthread_mutex_lock(&dbl.lock);
        dbli_event_unref(cb->event);
        free(cb);
        return true;
    }
    return false;
}

static void end_event(struct event *e, cl_int status);

/* PoCL: a failed command lets the markers before it end at once, and those behind it run. */
static void cut(struct queue *q, struct event *failed)
{
    struct event *e = q->head;

    q->cut = failed->seq;
    while (e) {
        struct event *next = e->next_cmd;

        if (e->seq < failed->seq && e->command == CMD_MARKER) {
            end_event(e, -1);
            e = q->head; /* the lock was given up for callbacks */
            continue;
        }
        e = next;
    }
}

static void end_event(struct event *e, cl_int status)
{
    struct queue *q = e->queue;
    struct event **link = &q->head, *prev = NULL;

    while (*link && *link != e) {
        prev = *link;
        link = &(*link)->next_cmd;
    }
    if (*link) {
        *link = e->next_cmd;
        if (q->tail == e)
            q->tail = prev;
    }
    if (e->command == CMD_KERNEL && e->mem) {
        e->mem->kernels--;
        e->mem->running -= e->status == CL_RUNNING;
    }
    if (e->command == CMD_UNMAP && status < 0)
        e->mem->unmapping = false; /* and still mapped */
    if ((e->command == CMD_UNMAP || e->command == CMD_MAP) && status < 0)
        e->mem->doubt = true;
    e->status = status;
    if (status < 0 && dbl.failure == DBL_KILL && !q->dead)
        q->dead = status;
    dbli_run_callbacks(e);
    if (status < 0 && dbl.failure == DBL_CUT && e->command != CMD_MARKER)
        cut(q, e);
    pthread_cond_broadcast(&dbl.cond);
    dbli_event_unref(e); /* the queue's */
}

static void execute(struct event *e)
{
    struct mem *m = e->mem;

    if (e->command == CMD_UNMAP) {
        if (m->running > 0)
            dbli_violation("the content of a buffer changes under %u kernels", m->running);
        memcpy(m->device, e->ptr, m->size);
        memset(e->ptr, 0xDD, dbl.cheap && m->size > 4096 ? 4096 : m->size);
        free(m->old);
        m->old = e->block;
        m->block = NULL;
        m->ptr = NULL;
        m->unmapping = false;
        dbl.mapped--;
    } else if (e->command == CMD_KERNEL && e->kernel.fn) {
        dbl_kernel_fn fn = e->kernel.fn;

        e->busy = true;
        pthread_mutex_unlock(&dbl.lock);
        fn(e->kernel.priv, m ? m->device : NULL, m ? m->size : 0);
        pthread_mutex_lock(&dbl.lock);
    }
    end_event(e, CL_COMPLETE);
}

/* One command of one queue makes one step. The lock may be given up. */
static bool step_queue(struct queue *q)
{
    struct event *e, *p;

    for (e = q->head; e; e = e->next_cmd) {
        cl_int fail = e->fail;
        bool wait = false;
        cl_uint i;

        if (!e->flushed)
            return false;
        for (i = 0; i < e->num_wait; i++) {
            if (e->wait[i]->status < 0)
                fail = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
            wait = wait || e->wait[i]->status > 0;
        }
        if (q->dead && !fail)
            fail = q->dead;
        if (fail && e->status != CL_RUNNING) {
            end_event(e, fail);
            return true;
        }
        for (p = q->head; p != e; p = p->next_cmd)
            if (!(q->cut > p->seq && q->cut < e->seq))
                wait = true; /* in order */
        if (e->status != CL_RUNNING) {
            if (wait)
                continue;
            if (!e->ready_at)
                e->ready_at = now_ns();
            if (dbl.delay && now_ns() - e->ready_at < dbl.delay)
                continue;
            e->status = CL_RUNNING;
            if (e->command == CMD_KERNEL && e->mem)
                e->mem->running++;
            if (e->command == CMD_KERNEL && e->mem && e->mem->ptr)
                dbli_violation("a kernel starts while its argument is mapped");
            if (e->command == CMD_KERNEL && e->kernel.gate && !e->kernel.gate->open)
                return true;
        }
        if (e->busy || (e->command == CMD_KERNEL && e->kernel.gate && !e->kernel.gate->open))
            continue;
        execute(e);
        return true;
    }
    return false;
}

/* Threaded: the queues take turns in no order. Else the oldest first, which is the consumer's: what it
 * must wait for is still undone. */
bool dbli_step_locked(void)
{
    struct queue *q = dbl.queues;
    unsigned i, skip = 0;

    if (run_late(false))
        return true;
    if (dbl.threaded && dbl.num_queues > 0) {
        dbl.random = dbl.random * 1103515245 + 12345;
        skip = (dbl.random >> 16) % dbl.num_queues;
    }
    for (i = 0; i < skip; i++)
        q = q->next_queue;
    for (i = 0; i < dbl.num_queues; i++) {
        if (!q)
            q = dbl.queues;
        if (step_queue(q))
            return true;
        q = q->next_queue;
    }
    return false;
}

unsigned dbl_live(void)
{
    const struct obj *o;
    unsigned n = 0;

    pthread_mutex_lock(&dbl.lock);
    for (o = dbl.live.next; o != &dbl.live; o = o->next)
        n++;
    pthread_mutex_unlock(&dbl.lock);
    return n;
}

bool dbl_step(void)
{
    bool did;

    pthread_mutex_lock(&dbl.lock);
    did = dbli_step_locked();
    pthread_mutex_unlock(&dbl.lock);
    return did;
}

void dbl_settle(void)
{
    while (dbl_step())
        ;
}

static void *executor(void *arg)
{
    pthread_mutex_lock(&dbl.lock);
    while (!dbl.quit) {
        struct timespec ts;

        if (dbli_step_locked())
            continue;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_nsec += dbl.delay || dbl.late ? 200000 : 20000000;
        if (ts.tv_nsec >= 1000000000) {
            ts.tv_nsec -= 1000000000;
            ts.tv_sec++;
        }
        pthread_cond_timedwait(&dbl.cond, &dbl.lock, &ts);
    }
    pthread_mutex_unlock(&dbl.lock);
    return arg;
}

/* ---- the test's side ------------------------------------------------------------------------- */

void dbl_start(bool threaded)
{
    memset(dbl.calls, 0, sizeof(dbl.calls));
    memset(dbl.fail, 0, sizeof(dbl.fail));
    memset(dbl.fail_event, 0, sizeof(dbl.fail_event));
    dbl.total = dbl.events_created = dbl.events_live = 0;
    dbl.violations = dbl.mems = dbl.mapped = 0;
    dbl.callbacks = DBL_CB_NORMAL;
    dbl.failure = DBL_KEEP;
    dbl.align = 64;
    dbl.max_alloc = (size_t)1 << 30;
    dbl.delay = dbl.create_time = 0;
    dbl.cheap = dbl.quit = dbl.no_device = dbl.quiet = false;
    dbl.eager = !threaded;
    dbl.threaded = threaded;
    dbl.live.next = dbl.live.prev = &dbl.live;
    dbl.live.kind = KIND_DEAD;
    dbl.kernel_fn = NULL;
    if (threaded && pthread_create(&dbl.thread, NULL, executor, NULL) != 0)
        abort();
}

int dbl_finish(void)
{
    static struct obj *attic;
    struct obj *o;
    int left = 0;
    unsigned i;

    if (dbl.threaded) {
        pthread_mutex_lock(&dbl.lock);
        dbl.quit = true;
        pthread_cond_broadcast(&dbl.cond);
        pthread_mutex_unlock(&dbl.lock);
        pthread_join(dbl.thread, NULL);
    }
    pthread_mutex_lock(&dbl.lock);
    while (run_late(true))
        ;
    for (o = dbl.live.next; o != &dbl.live; o = o->next) {
        if (left++ < 5 && !dbl.quiet)
            fprintf(stderr, "double: not released: kind %d, %d references\n",
                    (int)o->kind - KIND_CONTEXT, o->refs);
    }
    if (dbl.quiet) { /* what is left was meant to be left: kept in sight of leak checkers */
        for (o = dbl.live.next; o != &dbl.live; o = o->next) {
            o->prev = attic;
            attic = o;
        }
    }
    while (left == 0 && dbl.gates) {
        struct dbl_gate *gate = dbl.gates;

        dbl.gates = gate->next;
        free(gate);
    }
    for (i = 0; i < GRAVES; i++) {
        free(dbl.grave[i]);
        dbl.grave[i] = NULL;
    }
    dbl.graves = 0;
    pthread_mutex_unlock(&dbl.lock);
    return left;
}

#define SETTER(name, type, field)                                                                  \
    void dbl_set_##name(type value)                                                                \
    {                                                                                              \
        pthread_mutex_lock(&dbl.lock);                                                             \
        dbl.field = value;                                                                         \
        pthread_cond_broadcast(&dbl.cond);                                                         \
        pthread_mutex_unlock(&dbl.lock);                                                           \
    }
SETTER(callbacks, enum dbl_callbacks, callbacks)
SETTER(failure, enum dbl_failure, failure)
SETTER(align, size_t, align)
SETTER(delay, int64_t, delay)
SETTER(create_time, int64_t, create_time)
SETTER(cheap, bool, cheap)
SETTER(eager, bool, eager)
SETTER(max_alloc, size_t, max_alloc)
SETTER(no_device, bool, no_device)
SETTER(quiet, bool, quiet)

void dbl_set_kernel(dbl_kernel_fn fn, void *priv)
{
    pthread_mutex_lock(&dbl.lock);
    dbl.kernel_fn = fn;
    dbl.kernel_priv = priv;
    pthread_mutex_unlock(&dbl.lock);
}

void dbl_fail(enum dbl_fn fn, unsigned n, unsigned times, cl_int code)
{
    pthread_mutex_lock(&dbl.lock);
    dbl.fail[fn].at = dbl.calls[fn] + n;
    dbl.fail[fn].times = times;
    dbl.fail[fn].code = code;
    pthread_mutex_unlock(&dbl.lock);
}

void dbl_fail_event(enum dbl_fn fn, unsigned n, unsigned times, cl_int status)
{
    pthread_mutex_lock(&dbl.lock);
    dbl.fail_event[fn].at = dbl.calls[fn] + n;
    dbl.fail_event[fn].times = times;
    dbl.fail_event[fn].code = status;
    pthread_mutex_unlock(&dbl.lock);
}

#define GETTER(type, name, params, value)                                                          \
    type name params                                                                               \
    {                                                                                              \
        type out;                                                                                  \
        pthread_mutex_lock(&dbl.lock);                                                             \
        out = (value);                                                                             \
        pthread_mutex_unlock(&dbl.lock);                                                           \
        return out;                                                                                \
    }
GETTER(uint64_t, dbl_calls, (enum dbl_fn fn), dbl.calls[fn])
GETTER(uint64_t, dbl_total, (void), dbl.total)
GETTER(uint64_t, dbl_events_created, (void), dbl.events_created)
GETTER(uint64_t, dbl_events_live, (void), dbl.events_live)
GETTER(unsigned, dbl_mem_live, (void), dbl.mems)
GETTER(unsigned, dbl_mapped, (void), dbl.mapped)
GETTER(unsigned, dbl_violations, (void), dbl.violations)
GETTER(unsigned, dbl_context_refs, (cl_context c), (unsigned)((struct obj *)(void *)c)->refs)
GETTER(unsigned, dbl_queue_refs, (cl_command_queue q), (unsigned)((struct obj *)(void *)q)->refs)
GETTER(cl_int, dbl_status, (cl_event ev), ((struct event *)(void *)ev)->status)

const char *dbl_fn_name(enum dbl_fn fn)
{
    return fn_names[fn];
}

cl_device_id dbl_device(void)
{
    return (cl_device_id)(void *)&the_device;
}

struct dbl_gate *dbl_gate_new(void)
{
    struct dbl_gate *gate = calloc(1, sizeof(*gate));

    if (!gate)
        abort();
    pthread_mutex_lock(&dbl.lock);
    gate->next = dbl.gates;
    dbl.gates = gate;
    pthread_mutex_unlock(&dbl.lock);
    return gate;
}

void dbl_gate_open(struct dbl_gate *gate)
{
    pthread_mutex_lock(&dbl.lock);
    gate->open = true;
    pthread_cond_broadcast(&dbl.cond);
    pthread_mutex_unlock(&dbl.lock);
}
