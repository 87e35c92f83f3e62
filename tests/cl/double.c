/* SPDX-License-Identifier: Apache-2.0 */
/* The double of an OpenCL runtime: see double.h. One lock, one list of commands per queue. */
#include "double.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { KIND_CONTEXT = 0x43545854, KIND_QUEUE, KIND_MEM, KIND_EVENT, KIND_DEAD };
enum command { CMD_MAP, CMD_UNMAP, CMD_MARKER, CMD_KERNEL };

#define GRAVES 4096 /* dead objects that are still recognised */
#define LATE_NS INT64_C(40000000)

struct obj {
    enum kind kind, was;
    int refs;
    struct obj *next; /* all live ones */
    struct obj *prev;
};

struct context {
    struct obj obj;
};

struct mem {
    struct obj obj;
    struct context *context;
    size_t size;
    unsigned char *device; /* the bytes that kernels see */
    unsigned char *block;  /* allocation behind the mapping, NULL = not mapped */
    unsigned char *old;    /* the one before, so that addresses differ */
    unsigned char *ptr;    /* what the map gave */
    bool unmapping;        /* the unmap is enqueued */
    unsigned running;      /* of these, begun */
    unsigned kernels;      /* commands that use it and have not ended */
};

struct callback {
    struct callback *next;
    void(CL_CALLBACK *fn)(cl_event, cl_int, void *);
    void *priv;
    int64_t due; /* 0 = when the event ends */
    struct event *event;
};

struct event {
    struct obj obj;
    struct queue *queue;
    enum command command;
    cl_int status;
    cl_int fail; /* the status that it will end with */
    uint64_t seq;
    int64_t ready_at; /* could run since */
    bool flushed;
    bool busy; /* a thread runs its function without the lock */
    struct mem *mem;
    unsigned char *block; /* UNMAP: what to copy */
    unsigned char *ptr;
    struct dbl_kernel kernel;
    struct event **wait;
    cl_uint num_wait;
    struct callback *callbacks;
    struct event *next_cmd;
};

struct queue {
    struct obj obj;
    struct context *context;
    struct event *head, *tail; /* commands that have not ended */
    uint64_t cut;              /* commands behind this one ignore those before it */
    cl_int dead;               /* KILL: the status of all later ones */
    struct queue *next_queue;
};

struct dbl_gate {
    struct dbl_gate *next;
    bool open;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    pthread_t thread;
    bool threaded, quit, cheap, no_device, eager;
    enum dbl_callbacks callbacks;
    enum dbl_failure failure;
    size_t align, max_alloc;
    int64_t delay;
    uint64_t calls[DBL_FN_COUNT], total, events_created, events_live, seq;
    struct {
        uint64_t at;
        unsigned times;
        cl_int code;
    } fail[DBL_FN_COUNT], fail_event[DBL_FN_COUNT];
    unsigned violations, mems, mapped;
    struct obj live; /* head of a ring */
    struct obj *grave[GRAVES];
    unsigned graves;
    struct queue *queues; /* oldest first: an application's before a pool's */
    unsigned num_queues, random;
    struct callback *late;
    struct dbl_gate *gates;
} d = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Never called and never freed: what they point at is for the leak checker still in use. */
static struct callback *lost;

static int the_platform, the_device;

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

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static void
violation(const char *fmt, ...)
{
    va_list ap;

    if (d.violations++ > 3)
        return;
    va_start(ap, fmt);
    fprintf(stderr, "double: VIOLATION: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
}

/* Every entry begins here, with the lock taken: counts, and tells the failure that is due. */
static cl_int enter(enum dbl_fn fn)
{
    uint64_t n;

    pthread_mutex_lock(&d.lock);
    d.total++;
    n = ++d.calls[fn];
    if (d.fail[fn].times > 0 && n >= d.fail[fn].at && n < d.fail[fn].at + d.fail[fn].times)
        return d.fail[fn].code;
    return CL_SUCCESS;
}

static void leave(void)
{
    pthread_mutex_unlock(&d.lock);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void *obj_new(enum kind kind, size_t size)
{
    struct obj *o = calloc(1, size);

    if (!o)
        abort();
    o->kind = kind;
    o->refs = 1;
    o->next = d.live.next;
    o->prev = &d.live;
    d.live.next->prev = o;
    d.live.next = o;
    return o;
}

static bool obj_is(const void *p, enum kind kind, const char *where)
{
    const struct obj *o = p;

    if (o && o->kind == kind && o->refs > 0)
        return true;
    if (o && o->kind == KIND_DEAD)
        violation("%s: the object was released before (kind %d)", where,
                  (int)o->was - KIND_CONTEXT);
    else
        violation("%s: no such object", where);
    return false;
}

/* True = that was the last one; the caller tears down, then buries. */
static bool obj_unref(struct obj *o)
{
    return --o->refs == 0;
}

static void bury(struct obj *o)
{
    unsigned i = d.graves++ % GRAVES;

    o->prev->next = o->next;
    o->next->prev = o->prev;
    o->was = o->kind;
    o->kind = KIND_DEAD;
    free(d.grave[i]);
    d.grave[i] = o;
}

static void context_unref(struct context *c)
{
    if (obj_unref(&c->obj))
        bury(&c->obj);
}

static void mem_unref(struct mem *m)
{
    if (!obj_unref(&m->obj))
        return;
    free(m->device);
    free(m->block);
    free(m->old);
    m->device = m->block = m->old = NULL;
    d.mems--;
    if (m->ptr)
        d.mapped--;
    context_unref(m->context);
    bury(&m->obj);
}

static void queue_unref(struct queue *q)
{
    struct queue **link = &d.queues;

    if (!obj_unref(&q->obj))
        return;
    while (*link != q)
        link = &(*link)->next_queue;
    *link = q->next_queue;
    d.num_queues--;
    context_unref(q->context);
    bury(&q->obj);
}

static void event_unref(struct event *e)
{
    if (!obj_unref(&e->obj))
        return;
    d.events_live--;
    if (e->mem)
        mem_unref(e->mem);
    queue_unref(e->queue);
    while (e->num_wait > 0)
        event_unref(e->wait[--e->num_wait]);
    free(e->wait);
    bury(&e->obj);
}

/* ---- execution ------------------------------------------------------------------------------- */

/* Lets the callbacks of an ended event go to the late list, or runs them without the lock. */
static void run_callbacks(struct event *e)
{
    struct callback *list = e->callbacks, *cb;

    e->callbacks = NULL;
    while ((cb = list) != NULL) {
        list = cb->next;
        if (d.callbacks == DBL_CB_NEVER) {
            cb->next = lost;
            lost = cb;
        } else if (d.callbacks == DBL_CB_LATE) {
            cb->due = now_ns() + LATE_NS;
            cb->event = e;
            e->obj.refs++;
            cb->next = d.late;
            d.late = cb;
        } else {
            cl_int status = e->status;

            pthread_mutex_unlock(&d.lock);
            cb->fn((cl_event)(void *)e, status, cb->priv);
            free(cb);
            pthread_mutex_lock(&d.lock);
        }
    }
}

static bool run_late(bool all)
{
    struct callback **link = &d.late, *cb;
    int64_t now = now_ns();

    while ((cb = *link) != NULL) {
        if (!all && cb->due > now) {
            link = &cb->next;
            continue;
        }
        *link = cb->next;
        pthread_mutex_unlock(&d.lock);
        cb->fn((cl_event)(void *)cb->event, cb->event->status, cb->priv);
        pthread_mutex_lock(&d.lock);
        event_unref(cb->event);
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
    e->status = status;
    if (status < 0 && d.failure == DBL_KILL && !q->dead)
        q->dead = status;
    run_callbacks(e);
    if (status < 0 && d.failure == DBL_CUT && e->command != CMD_MARKER)
        cut(q, e);
    pthread_cond_broadcast(&d.cond);
    event_unref(e); /* the queue's */
}

static void execute(struct event *e)
{
    struct mem *m = e->mem;

    if (e->command == CMD_UNMAP) {
        if (m->running > 0)
            violation("the content of a buffer changes under %u kernels", m->running);
        memcpy(m->device, e->ptr, m->size);
        memset(e->ptr, 0xDD, d.cheap && m->size > 4096 ? 4096 : m->size);
        free(m->old);
        m->old = e->block;
        m->block = NULL;
        m->ptr = NULL;
        m->unmapping = false;
        d.mapped--;
    } else if (e->command == CMD_KERNEL && e->kernel.fn) {
        dbl_kernel_fn fn = e->kernel.fn;

        e->busy = true;
        pthread_mutex_unlock(&d.lock);
        fn(e->kernel.priv, m ? m->device : NULL, m ? m->size : 0);
        pthread_mutex_lock(&d.lock);
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
            if (d.delay && now_ns() - e->ready_at < d.delay)
                continue;
            e->status = CL_RUNNING;
            if (e->command == CMD_KERNEL && e->mem)
                e->mem->running++;
            if (e->command == CMD_KERNEL && e->mem && e->mem->ptr)
                violation("a kernel starts while its argument is mapped");
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
static bool step_locked(void)
{
    struct queue *q = d.queues;
    unsigned i, skip = 0;

    if (run_late(false))
        return true;
    if (d.threaded && d.num_queues > 0) {
        d.random = d.random * 1103515245 + 12345;
        skip = (d.random >> 16) % d.num_queues;
    }
    for (i = 0; i < skip; i++)
        q = q->next_queue;
    for (i = 0; i < d.num_queues; i++) {
        if (!q)
            q = d.queues;
        if (step_queue(q))
            return true;
        q = q->next_queue;
    }
    return false;
}

bool dbl_step(void)
{
    bool did;

    pthread_mutex_lock(&d.lock);
    did = step_locked();
    pthread_mutex_unlock(&d.lock);
    return did;
}

void dbl_settle(void)
{
    while (dbl_step())
        ;
}

static void *executor(void *arg)
{
    pthread_mutex_lock(&d.lock);
    while (!d.quit) {
        struct timespec ts;

        if (step_locked())
            continue;
        clock_gettime(CLOCK_REALTIME, &ts);
        ts.tv_nsec += d.delay || d.late ? 200000 : 20000000;
        if (ts.tv_nsec >= 1000000000) {
            ts.tv_nsec -= 1000000000;
            ts.tv_sec++;
        }
        pthread_cond_timedwait(&d.cond, &d.lock, &ts);
    }
    pthread_mutex_unlock(&d.lock);
    return arg;
}

/* ---- the test's side ------------------------------------------------------------------------- */

void dbl_start(bool threaded)
{
    memset(d.calls, 0, sizeof(d.calls));
    memset(d.fail, 0, sizeof(d.fail));
    memset(d.fail_event, 0, sizeof(d.fail_event));
    d.total = d.events_created = d.events_live = 0;
    d.violations = d.mems = d.mapped = 0;
    d.callbacks = DBL_CB_NORMAL;
    d.failure = DBL_KEEP;
    d.align = 64;
    d.max_alloc = (size_t)1 << 30;
    d.delay = 0;
    d.cheap = d.quit = d.no_device = false;
    d.eager = !threaded;
    d.threaded = threaded;
    d.live.next = d.live.prev = &d.live;
    d.live.kind = KIND_DEAD;
    if (threaded && pthread_create(&d.thread, NULL, executor, NULL) != 0)
        abort();
}

int dbl_finish(void)
{
    struct obj *o;
    int left = 0;
    unsigned i;

    if (d.threaded) {
        pthread_mutex_lock(&d.lock);
        d.quit = true;
        pthread_cond_broadcast(&d.cond);
        pthread_mutex_unlock(&d.lock);
        pthread_join(d.thread, NULL);
    }
    pthread_mutex_lock(&d.lock);
    while (run_late(true))
        ;
    for (o = d.live.next; o != &d.live; o = o->next) {
        if (left++ < 5)
            fprintf(stderr, "double: not released: kind %d, %d references\n",
                    (int)o->kind - KIND_CONTEXT, o->refs);
    }
    while (left == 0 && d.gates) {
        struct dbl_gate *gate = d.gates;

        d.gates = gate->next;
        free(gate);
    }
    for (i = 0; i < GRAVES; i++) {
        free(d.grave[i]);
        d.grave[i] = NULL;
    }
    d.graves = 0;
    pthread_mutex_unlock(&d.lock);
    return left;
}

#define SETTER(name, type, field)                                                                  \
    void dbl_set_##name(type value)                                                                \
    {                                                                                              \
        pthread_mutex_lock(&d.lock);                                                               \
        d.field = value;                                                                           \
        pthread_cond_broadcast(&d.cond);                                                           \
        pthread_mutex_unlock(&d.lock);                                                             \
    }
SETTER(callbacks, enum dbl_callbacks, callbacks)
SETTER(failure, enum dbl_failure, failure)
SETTER(align, size_t, align)
SETTER(delay, int64_t, delay)
SETTER(cheap, bool, cheap)
SETTER(eager, bool, eager)
SETTER(max_alloc, size_t, max_alloc)
SETTER(no_device, bool, no_device)

void dbl_fail(enum dbl_fn fn, unsigned n, unsigned times, cl_int code)
{
    pthread_mutex_lock(&d.lock);
    d.fail[fn].at = d.calls[fn] + n;
    d.fail[fn].times = times;
    d.fail[fn].code = code;
    pthread_mutex_unlock(&d.lock);
}

void dbl_fail_event(enum dbl_fn fn, unsigned n, unsigned times, cl_int status)
{
    pthread_mutex_lock(&d.lock);
    d.fail_event[fn].at = d.calls[fn] + n;
    d.fail_event[fn].times = times;
    d.fail_event[fn].code = status;
    pthread_mutex_unlock(&d.lock);
}

#define GETTER(type, name, params, value)                                                          \
    type name params                                                                               \
    {                                                                                              \
        type out;                                                                                  \
        pthread_mutex_lock(&d.lock);                                                               \
        out = (value);                                                                             \
        pthread_mutex_unlock(&d.lock);                                                             \
        return out;                                                                                \
    }
GETTER(uint64_t, dbl_calls, (enum dbl_fn fn), d.calls[fn])
GETTER(uint64_t, dbl_total, (void), d.total)
GETTER(uint64_t, dbl_events_created, (void), d.events_created)
GETTER(uint64_t, dbl_events_live, (void), d.events_live)
GETTER(unsigned, dbl_mem_live, (void), d.mems)
GETTER(unsigned, dbl_mapped, (void), d.mapped)
GETTER(unsigned, dbl_violations, (void), d.violations)
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
    pthread_mutex_lock(&d.lock);
    gate->next = d.gates;
    d.gates = gate;
    pthread_mutex_unlock(&d.lock);
    return gate;
}

void dbl_gate_open(struct dbl_gate *gate)
{
    pthread_mutex_lock(&d.lock);
    gate->open = true;
    pthread_cond_broadcast(&d.cond);
    pthread_mutex_unlock(&d.lock);
}

/* ---- commands -------------------------------------------------------------------------------- */

static struct event *command(struct queue *q, enum command what, enum dbl_fn fn, struct mem *m,
                             cl_uint num_wait, const cl_event *wait, cl_event *ev)
{
    struct event *e = obj_new(KIND_EVENT, sizeof(*e));
    cl_uint i;

    d.events_created++;
    d.events_live++;
    e->queue = q;
    q->obj.refs++;
    e->command = what;
    e->status = CL_QUEUED;
    e->seq = ++d.seq;
    e->mem = m;
    if (m)
        m->obj.refs++;
    if (fn < DBL_FN_COUNT && d.fail_event[fn].times > 0 && d.calls[fn] >= d.fail_event[fn].at &&
        d.calls[fn] < d.fail_event[fn].at + d.fail_event[fn].times)
        e->fail = d.fail_event[fn].code;
    if (num_wait > 0) {
        e->wait = calloc(num_wait, sizeof(*e->wait));
        if (!e->wait)
            abort();
        for (i = 0; i < num_wait; i++) {
            if (!obj_is(wait[i], KIND_EVENT, "wait list"))
                abort();
            e->wait[e->num_wait++] = (struct event *)(void *)wait[i];
            ((struct obj *)(void *)wait[i])->refs++;
        }
    }
    if (q->tail)
        q->tail->next_cmd = e;
    else
        q->head = e;
    q->tail = e;
    if (ev) {
        e->obj.refs++; /* one for the caller, one for the queue */
        *ev = (cl_event)(void *)e;
    }
    return e;
}

cl_int dbl_enqueue(cl_command_queue queue, const struct dbl_kernel *kernel, cl_event *ev)
{
    struct event *e;
    struct mem *m = (struct mem *)(void *)kernel->arg;

    pthread_mutex_lock(&d.lock);
    if (!obj_is(queue, KIND_QUEUE, "kernel") || (m && !obj_is(m, KIND_MEM, "kernel argument"))) {
        pthread_mutex_unlock(&d.lock);
        return CL_INVALID_VALUE;
    }
    e = command((struct queue *)(void *)queue, CMD_KERNEL, DBL_FN_COUNT, m, kernel->num_wait,
                kernel->wait, ev);
    e->kernel = *kernel;
    e->fail = kernel->fail;
    if (m)
        m->kernels++;
    pthread_mutex_unlock(&d.lock);
    return CL_SUCCESS;
}

static void *CL_API_CALL dblEnqueueMapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                             cl_map_flags flags, size_t offset, size_t size,
                                             cl_uint num_wait, const cl_event *wait, cl_event *ev,
                                             cl_int *err)
{
    struct queue *q = (struct queue *)(void *)queue;
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = enter(DBL_EnqueueMapBuffer);
    void *ptr = NULL;

    if (blocking)
        violation("a blocking map");
    if (num_wait > 0 || wait)
        violation("a wait list on a map");
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!obj_is(q, KIND_QUEUE, "map") || !obj_is(m, KIND_MEM, "map") ||
            offset + size > m->size) {
            code = CL_INVALID_VALUE;
        } else if (q->dead) {
            code = q->dead;
        } else {
            size_t align = d.align ? d.align : 1, odd;

            if (m->ptr)
                violation("a second map of one buffer");
            if (m->kernels > 0)
                violation("a map under %u kernels", m->kernels);
            m->block = malloc(m->size + 4 * align);
            if (!m->block)
                abort();
            odd = ((uintptr_t)m->block + align - 1) / align | 1; /* an odd multiple, no more */
            m->ptr = (unsigned char *)(odd * align);
            if (flags & CL_MAP_READ)
                memcpy(m->ptr, m->device, m->size);
            else
                memset(m->ptr, 0xA5, d.cheap && m->size > 4096 ? 4096 : m->size);
            d.mapped++;
            ptr = m->ptr + offset;
            command(q, CMD_MAP, DBL_EnqueueMapBuffer, m, 0, NULL, ev);
        }
    }
    leave();
    if (err)
        *err = code;
    return ptr;
}

static cl_int CL_API_CALL dblEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem, void *ptr,
                                                   cl_uint num_wait, const cl_event *wait,
                                                   cl_event *ev)
{
    struct queue *q = (struct queue *)(void *)queue;
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = enter(DBL_EnqueueUnmapMemObject);

    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!obj_is(q, KIND_QUEUE, "unmap") || !obj_is(m, KIND_MEM, "unmap")) {
            code = CL_INVALID_VALUE;
        } else if (!m->ptr || m->unmapping || ptr != m->ptr) {
            violation("an unmap of what is not mapped there");
            code = CL_INVALID_VALUE;
        } else {
            struct event *e =
                command(q, CMD_UNMAP, DBL_EnqueueUnmapMemObject, m, num_wait, wait, ev);

            e->block = m->block;
            e->ptr = m->ptr;
            m->unmapping = true;
        }
    }
    leave();
    return code;
}

static cl_int CL_API_CALL dblEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint num_wait,
                                                       const cl_event *wait, cl_event *ev)
{
    cl_int code = enter(DBL_EnqueueMarkerWithWaitList);

    if (code == DBL_NULL_SUCCESS)
        code = CL_SUCCESS;
    else if (code == CL_SUCCESS && !obj_is(queue, KIND_QUEUE, "marker"))
        code = CL_INVALID_COMMAND_QUEUE;
    else if (code == CL_SUCCESS)
        command((struct queue *)(void *)queue, CMD_MARKER, DBL_EnqueueMarkerWithWaitList, NULL,
                num_wait, wait, ev);
    leave();
    return code;
}

static cl_int CL_API_CALL dblFlush(cl_command_queue queue)
{
    struct queue *q = (struct queue *)(void *)queue;
    cl_int code = enter(DBL_Flush);
    struct event *e;

    if (code == CL_SUCCESS && !obj_is(q, KIND_QUEUE, "flush")) {
        code = CL_INVALID_COMMAND_QUEUE;
    } else if (code == CL_SUCCESS) {
        for (e = q->head; e; e = e->next_cmd)
            e->flushed = true;
        while (d.eager && step_locked())
            ;
        pthread_cond_broadcast(&d.cond);
    }
    leave();
    return code;
}

/* ---- events ---------------------------------------------------------------------------------- */

static cl_int CL_API_CALL dblGetEventInfo(cl_event ev, cl_event_info what, size_t size, void *out,
                                          size_t *ret)
{
    struct event *e = (struct event *)(void *)ev;
    cl_int code = enter(DBL_GetEventInfo);

    (void)ret;
    if (code == CL_SUCCESS && !obj_is(e, KIND_EVENT, "event status"))
        code = CL_INVALID_EVENT;
    else if (code == CL_SUCCESS && what == CL_EVENT_COMMAND_EXECUTION_STATUS &&
             size == sizeof(cl_int))
        memcpy(out, &e->status, sizeof(cl_int));
    else if (code == CL_SUCCESS)
        code = CL_INVALID_VALUE;
    leave();
    return code;
}

static cl_int CL_API_CALL dblRetainEvent(cl_event ev)
{
    cl_int code = enter(DBL_RetainEvent);

    if (code == CL_SUCCESS && !obj_is(ev, KIND_EVENT, "retain event"))
        code = CL_INVALID_EVENT;
    else if (code == CL_SUCCESS)
        ((struct obj *)(void *)ev)->refs++;
    leave();
    return code;
}

static cl_int CL_API_CALL dblReleaseEvent(cl_event ev)
{
    cl_int code = enter(DBL_ReleaseEvent);

    if (code == CL_SUCCESS && !obj_is(ev, KIND_EVENT, "release event"))
        code = CL_INVALID_EVENT;
    else if (code == CL_SUCCESS)
        event_unref((struct event *)(void *)ev);
    leave();
    return code;
}

static cl_int CL_API_CALL dblSetEventCallback(cl_event ev, cl_int type,
                                              void(CL_CALLBACK *fn)(cl_event, cl_int, void *),
                                              void *priv)
{
    struct event *e = (struct event *)(void *)ev;
    cl_int code = enter(DBL_SetEventCallback);
    struct callback *cb;

    if (code == CL_SUCCESS && (!obj_is(e, KIND_EVENT, "callback") || type != CL_COMPLETE))
        code = CL_INVALID_EVENT;
    if (code == CL_SUCCESS) {
        cb = calloc(1, sizeof(*cb));
        if (!cb)
            abort();
        cb->fn = fn;
        cb->priv = priv;
        cb->next = e->callbacks;
        e->callbacks = cb;
        e->obj.refs++;
        if (d.callbacks == DBL_CB_INLINE)
            while (e->status > 0 && step_locked())
                ;
        if (e->status <= 0)
            run_callbacks(e);
        event_unref(e);
    }
    leave();
    return code;
}

/* ---- buffers, queues, contexts --------------------------------------------------------------- */

static cl_mem CL_API_CALL dblCreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                                          void *host, cl_int *err)
{
    cl_int code = enter(DBL_CreateBuffer);
    struct mem *m = NULL;

    if (flags &
        ((cl_mem_flags)(CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY)))
        violation("a CL_MEM_HOST_ flag");
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS) {
        if (!obj_is(context, KIND_CONTEXT, "create buffer") || host) {
            code = CL_INVALID_VALUE;
        } else {
            m = obj_new(KIND_MEM, sizeof(*m));
            m->context = (struct context *)(void *)context;
            m->context->obj.refs++;
            m->size = size;
            m->device = calloc(1, size);
            if (!m->device)
                abort();
            d.mems++;
        }
    }
    leave();
    if (err)
        *err = code;
    return (cl_mem)(void *)m;
}

static cl_int CL_API_CALL dblReleaseMemObject(cl_mem mem)
{
    struct mem *m = (struct mem *)(void *)mem;
    cl_int code = enter(DBL_ReleaseMemObject);

    if (code == CL_SUCCESS && !obj_is(m, KIND_MEM, "release buffer")) {
        code = CL_INVALID_MEM_OBJECT;
    } else if (code == CL_SUCCESS) {
        if (m->unmapping)
            violation("a buffer is released before its unmap has ended");
        mem_unref(m);
    }
    leave();
    return code;
}

static cl_command_queue CL_API_CALL dblCreateCommandQueue(cl_context context, cl_device_id device,
                                                          cl_command_queue_properties props,
                                                          cl_int *err)
{
    cl_int code = enter(DBL_CreateCommandQueue);
    struct queue *q = NULL, **link;

    (void)device;
    (void)props;
    if (code == DBL_NULL_SUCCESS) {
        code = CL_SUCCESS;
    } else if (code == CL_SUCCESS && obj_is(context, KIND_CONTEXT, "create queue")) {
        q = obj_new(KIND_QUEUE, sizeof(*q));
        q->context = (struct context *)(void *)context;
        q->context->obj.refs++;
        link = &d.queues;
        while (*link)
            link = &(*link)->next_queue;
        *link = q;
        d.num_queues++;
    }
    leave();
    if (err)
        *err = code;
    return (cl_command_queue)(void *)q;
}

static cl_int CL_API_CALL dblRetainCommandQueue(cl_command_queue queue)
{
    cl_int code = enter(DBL_RetainCommandQueue);

    if (code == CL_SUCCESS && !obj_is(queue, KIND_QUEUE, "retain queue"))
        code = CL_INVALID_COMMAND_QUEUE;
    else if (code == CL_SUCCESS)
        ((struct obj *)(void *)queue)->refs++;
    leave();
    return code;
}

static cl_int CL_API_CALL dblReleaseCommandQueue(cl_command_queue queue)
{
    struct queue *q = (struct queue *)(void *)queue;
    cl_int code = enter(DBL_ReleaseCommandQueue);
    struct event *e;

    if (code == CL_SUCCESS && !obj_is(q, KIND_QUEUE, "release queue")) {
        code = CL_INVALID_COMMAND_QUEUE;
    } else if (code == CL_SUCCESS) {
        for (e = q->head; e; e = e->next_cmd) /* an implicit flush */
            e->flushed = true;
        pthread_cond_broadcast(&d.cond);
        queue_unref(q);
    }
    leave();
    return code;
}

static cl_int CL_API_CALL dblGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info what,
                                                 size_t size, void *out, size_t *ret)
{
    struct queue *q = (struct queue *)(void *)queue;
    cl_int code = enter(DBL_GetCommandQueueInfo);
    cl_context context;
    cl_device_id id = dbl_device();

    (void)ret;
    if (code == CL_SUCCESS && !obj_is(q, KIND_QUEUE, "queue info"))
        code = CL_INVALID_COMMAND_QUEUE;
    if (code == CL_SUCCESS && size == sizeof(void *)) {
        context = (cl_context)(void *)q->context;
        if (what == CL_QUEUE_CONTEXT)
            memcpy(out, &context, sizeof(context));
        else
            memcpy(out, &id, sizeof(id));
    }
    leave();
    return code;
}

static cl_context CL_API_CALL dblCreateContext(
    const cl_context_properties *props, cl_uint n, const cl_device_id *devices,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *priv, cl_int *err)
{
    cl_int code = enter(DBL_CreateContext);
    struct context *c = NULL;

    (void)props, (void)n, (void)devices, (void)notify, (void)priv;
    if (code == CL_SUCCESS)
        c = obj_new(KIND_CONTEXT, sizeof(*c));
    leave();
    if (err)
        *err = code == DBL_NULL_SUCCESS ? CL_SUCCESS : code;
    return (cl_context)(void *)c;
}

static cl_int CL_API_CALL dblRetainContext(cl_context context)
{
    cl_int code = enter(DBL_RetainContext);

    if (code == CL_SUCCESS && obj_is(context, KIND_CONTEXT, "retain context"))
        ((struct obj *)(void *)context)->refs++;
    leave();
    return code;
}

static cl_int CL_API_CALL dblReleaseContext(cl_context context)
{
    cl_int code = enter(DBL_ReleaseContext);

    if (code == CL_SUCCESS && obj_is(context, KIND_CONTEXT, "release context"))
        context_unref((struct context *)(void *)context);
    leave();
    return code;
}

/* ---- platform and device --------------------------------------------------------------------- */

static cl_int CL_API_CALL dblGetPlatformIDs(cl_uint cap, cl_platform_id *out, cl_uint *n)
{
    cl_int code = enter(DBL_GetPlatformIDs);

    if (code == CL_SUCCESS) {
        if (cap > 0 && out)
            out[0] = (cl_platform_id)(void *)&the_platform;
        if (n)
            *n = 1;
    }
    leave();
    return code;
}

static cl_int give(size_t size, void *out, size_t *ret, const void *value, size_t len)
{
    if (ret)
        *ret = len;
    if (!out)
        return CL_SUCCESS;
    if (size < len)
        return CL_INVALID_VALUE;
    memcpy(out, value, len);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL dblGetPlatformInfo(cl_platform_id platform, cl_platform_info what,
                                             size_t size, void *out, size_t *ret)
{
    cl_int code = enter(DBL_GetPlatformInfo);

    (void)platform, (void)what;
    if (code == CL_SUCCESS)
        code = give(size, out, ret, "Double", 7);
    leave();
    return code;
}

static cl_int CL_API_CALL dblGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint cap,
                                          cl_device_id *out, cl_uint *n)
{
    cl_int code = enter(DBL_GetDeviceIDs);

    (void)platform, (void)type;
    if (code == CL_SUCCESS && d.no_device)
        code = CL_DEVICE_NOT_FOUND;
    if (code == CL_SUCCESS) {
        if (cap > 0 && out)
            out[0] = dbl_device();
        if (n)
            *n = 1;
    }
    leave();
    return code;
}

static cl_int CL_API_CALL dblGetDeviceInfo(cl_device_id id, cl_device_info what, size_t size,
                                           void *out, size_t *ret)
{
    cl_int code = enter(DBL_GetDeviceInfo);
    cl_platform_id platform = (cl_platform_id)(void *)&the_platform;
    cl_device_type type = CL_DEVICE_TYPE_CPU;
    cl_ulong bytes = d.max_alloc;
    cl_bool yes = CL_TRUE;
    cl_uint bits = 1024;

    (void)id;
    if (code == CL_SUCCESS) {
        switch (what) {
        case CL_DEVICE_NAME: code = give(size, out, ret, "double", 7); break;
        case CL_DEVICE_VENDOR: code = give(size, out, ret, "tests", 6); break;
        case CL_DRIVER_VERSION: code = give(size, out, ret, "1", 2); break;
        case CL_DEVICE_VERSION: code = give(size, out, ret, "OpenCL 1.2", 11); break;
        case CL_DEVICE_EXTENSIONS: code = give(size, out, ret, "cl_khr_fp16 cl_x", 17); break;
        case CL_DEVICE_TYPE: code = give(size, out, ret, &type, sizeof(type)); break;
        case CL_DEVICE_PLATFORM: code = give(size, out, ret, &platform, sizeof(platform)); break;
        case CL_DEVICE_AVAILABLE:
        case CL_DEVICE_HOST_UNIFIED_MEMORY: code = give(size, out, ret, &yes, sizeof(yes)); break;
        case CL_DEVICE_MEM_BASE_ADDR_ALIGN: code = give(size, out, ret, &bits, sizeof(bits)); break;
        case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        case CL_DEVICE_GLOBAL_MEM_SIZE: code = give(size, out, ret, &bytes, sizeof(bytes)); break;
        default: code = CL_INVALID_VALUE; break;
        }
    }
    leave();
    return code;
}

const struct clbi_cl_fns dbl_fns = {
    .GetPlatformIDs = dblGetPlatformIDs,
    .GetPlatformInfo = dblGetPlatformInfo,
    .GetDeviceIDs = dblGetDeviceIDs,
    .GetDeviceInfo = dblGetDeviceInfo,
    .CreateContext = dblCreateContext,
    .RetainContext = dblRetainContext,
    .ReleaseContext = dblReleaseContext,
    .CreateCommandQueue = dblCreateCommandQueue,
    .RetainCommandQueue = dblRetainCommandQueue,
    .ReleaseCommandQueue = dblReleaseCommandQueue,
    .GetCommandQueueInfo = dblGetCommandQueueInfo,
    .CreateBuffer = dblCreateBuffer,
    .ReleaseMemObject = dblReleaseMemObject,
    .EnqueueMapBuffer = dblEnqueueMapBuffer,
    .EnqueueUnmapMemObject = dblEnqueueUnmapMemObject,
    .EnqueueMarkerWithWaitList = dblEnqueueMarkerWithWaitList,
    .Flush = dblFlush,
    .GetEventInfo = dblGetEventInfo,
    .RetainEvent = dblRetainEvent,
    .ReleaseEvent = dblReleaseEvent,
    .SetEventCallback = dblSetEventCallback,
};
