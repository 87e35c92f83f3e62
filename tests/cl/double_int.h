/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the double share: double.c (objects, execution, the test's side), double_api.c (the
 * entry points) and double_kernels.c (those of programs and kernels). Everything is under one lock. */
#ifndef CLB_TEST_DOUBLE_INT_H
#define CLB_TEST_DOUBLE_INT_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "double.h"

enum kind {
    KIND_CONTEXT = 0x43545854,
    KIND_QUEUE,
    KIND_MEM,
    KIND_EVENT,
    KIND_PROGRAM,
    KIND_KERNEL,
    KIND_DEAD
};
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
    bool doubt;            /* a map or unmap failed: mapped or not, nobody knows */
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

struct dbl_state {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    pthread_t thread;
    bool threaded, quit, cheap, no_device, eager, quiet;
    enum dbl_callbacks callbacks;
    enum dbl_failure failure;
    size_t align, max_alloc;
    int64_t delay, create_time;
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
    dbl_kernel_fn kernel_fn; /* of the kernels that clEnqueueNDRangeKernel() begins */
    void *kernel_priv;
};

extern struct dbl_state dbl;

void dbli_violation(const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* Every entry begins with this, which takes the lock, counts, and tells the failure that is due. */
cl_int dbli_enter(enum dbl_fn fn);
void dbli_leave(void);

void *dbli_obj_new(enum kind kind, size_t size);
bool dbli_obj_is(const void *p, enum kind kind, const char *where);
void dbli_context_unref(struct context *c);
void dbli_mem_unref(struct mem *m);
void dbli_queue_unref(struct queue *q);
void dbli_event_unref(struct event *e);

/* A new command at the end of a queue. *ev (may be NULL) gets a reference of the caller's. */
struct event *dbli_command(struct queue *q, enum command what, enum dbl_fn fn, struct mem *m,
                           cl_uint num_wait, const cl_event *wait, cl_event *ev);
void dbli_bury(struct obj *o);
/* The last one? */
bool dbli_unref(struct obj *o);

/* The entry points of double_kernels.c. */
#define DBL_DECLARE_(name) extern __typeof__(cl##name) dbli_##name;
CLBI_CL_KERNEL_FNS_MAP(DBL_DECLARE_)
#undef DBL_DECLARE_

/* Runs or postpones the callbacks of an ended event; gives the lock up meanwhile. */
void dbli_run_callbacks(struct event *e);
/* One step of execution; gives the lock up meanwhile. */
bool dbli_step_locked(void);

#endif
