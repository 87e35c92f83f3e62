/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime that exists only in this process, in the place of OpenCL: it is stricter and stranger
 * than real ones, counts every call, and records every misuse.
 *
 *  - A map gives fresh memory at another address each time, filled with garbage unless it is mapped
 *    for reading; an unmap is a command that copies it to the "device" when it is executed, and
 *    destroys the old content.
 *  - Commands run only after a clFlush of their queue: on a thread of the double (dbl_start(true)), or
 *    when the test says so (dbl_step(), dbl_settle()).
 *  - "Kernels" are host functions with a wait list, arguments, and a gate that the test opens. Kernel
 *    objects stand for one such function, whatever their source.
 *  - Any entry can fail at its n-th call, give NULL with CL_SUCCESS, or make an event that fails.
 *  - Callbacks come at once, inside clSetEventCallback(), late, or never.
 *  - A failed command cuts the order of its queue as PoCL does, or kills the queue as rusticl 25 does.
 *
 * Recorded misuse ("violations"): use of a released object, a map or a copy under a running kernel, a
 * kernel that starts while an argument is mapped, two maps of one buffer, an unmap of something that
 * is not mapped, the release of a buffer that is mapped or being unmapped, a blocking map, a wait list on a map.
 */
#ifndef CLB_TEST_DOUBLE_H
#define CLB_TEST_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cl/cl_fns.h>

enum dbl_fn {
#define DBL_FN_(name) DBL_##name,
    CLBI_CL_FNS_MAP(DBL_FN_)
#undef DBL_FN_
        DBL_FN_COUNT
};

enum dbl_callbacks {
    DBL_CB_NORMAL, /* when the event ends, on the executing thread; inline when it has ended already */
    DBL_CB_INLINE, /* clSetEventCallback() executes what the event needs and calls on its own stack */
    DBL_CB_LATE,   /* 40 ms after the end */
    DBL_CB_NEVER,
};

enum dbl_failure {
    DBL_KEEP, /* the queue goes on in order, the dependents fail */
    DBL_CUT,  /* as PoCL: the order of the queue is lost around a failed command */
    DBL_KILL, /* as rusticl 25: everything later in the queue fails */
};

#define DBL_NULL_SUCCESS 1 /* as the code of dbl_fail(): NULL (or no event) with CL_SUCCESS */

extern const struct clbi_cl_fns dbl_fns;

/* Begins and ends a life of the double. finish returns the number of objects that were not released,
 * and prints them. threaded: a thread executes commands; else the test does. */
void dbl_start(bool threaded);
int dbl_finish(void);

void dbl_set_callbacks(enum dbl_callbacks mode);
void dbl_set_failure(enum dbl_failure mode);
void dbl_set_align(size_t align);     /* mapped pointers are odd multiples of this; default 64 */
void dbl_set_delay(int64_t ns);       /* from the moment a command could run to its execution */
void dbl_set_create_time(int64_t ns); /* how long clCreateBuffer() takes; default 0 */
void dbl_set_eager(bool eager); /* clFlush() executes what can run; on at start when not threaded */
void dbl_set_cheap(bool cheap); /* garbage in the first page only */
void dbl_set_max_alloc(size_t bytes); /* later than the device: a limit that nobody was told of */
void dbl_set_no_device(bool none);
void dbl_set_quiet(bool quiet); /* dbl_finish() prints nothing: something will be left */

/* Call number n (from 1, counted from now) of fn fails, and `times` - 1 after it. */
void dbl_fail(enum dbl_fn fn, unsigned n, unsigned times, cl_int code);
/* The event made by that call ends with this negative status. */
void dbl_fail_event(enum dbl_fn fn, unsigned n, unsigned times, cl_int status);

uint64_t dbl_calls(enum dbl_fn fn);
uint64_t dbl_total(void); /* of all functions */
const char *dbl_fn_name(enum dbl_fn fn);
uint64_t dbl_events_created(void), dbl_events_live(void);
unsigned dbl_live(void);                       /* objects of all kinds that exist */
unsigned dbl_mem_live(void), dbl_mapped(void); /* buffers that exist, that are mapped */
unsigned dbl_context_refs(cl_context context), dbl_queue_refs(cl_command_queue queue);

/* Violations so far; the first is printed when it happens. */
unsigned dbl_violations(void);

/* One turn of execution: everything that can run now runs, once. True = something did. */
bool dbl_step(void);
/* Steps until nothing more can run. Also for the threaded double: waits until nothing can run. */
void dbl_settle(void);

struct dbl_gate;
struct dbl_gate *dbl_gate_new(void); /* closed; freed by dbl_finish() */
void dbl_gate_open(struct dbl_gate *gate);

/* The bytes of the device, by a kernel function while it runs. */
typedef void (*dbl_kernel_fn)(void *priv, const unsigned char *bytes, size_t size);

/* What a kernel object does that is enqueued with clEnqueueNDRangeKernel(): fn looks at the buffer that
 * is its argument 0. NULL (at start) = nothing. */
void dbl_set_kernel(dbl_kernel_fn fn, void *priv);

struct dbl_kernel {
    dbl_kernel_fn fn; /* runs when the kernel ends (the gate is open); NULL = none */
    void *priv;
    cl_mem arg;            /* NULL = none */
    struct dbl_gate *gate; /* NULL = open */
    cl_int fail;           /* < 0: the command fails at once with this status */
    cl_uint num_wait;
    const cl_event *wait;
};

/* Enqueues one (not flushed). *ev may be NULL. */
cl_int dbl_enqueue(cl_command_queue queue, const struct dbl_kernel *kernel, cl_event *ev);
cl_int dbl_status(cl_event ev);

/* The test is the application too: a context and a queue of its own, to be imported. */
cl_device_id dbl_device(void);

#endif
