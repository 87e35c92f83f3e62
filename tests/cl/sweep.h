/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session on the double, again and again: each time another OpenCL call fails, or the command that
 * it enqueued, the n-th of each kind for every n.
 */
#ifndef CLB_TEST_SWEEP_H
#define CLB_TEST_SWEEP_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "double.h"

struct sweep_fault {
    enum dbl_fn fn;
    unsigned n; /* which call of fn */
    bool event; /* the command fails, not the call */
    cl_int code;
    unsigned times; /* how often from the n-th on */
    bool caller_driven;
};

struct sweep {
    /* Calls that make an object, and so may also give NULL with success; of these, those whose command
     * may fail. Both end with DBL_FN_COUNT. */
    const enum dbl_fn *makers, *commands;
    bool unanswered; /* also three clGetEventInfo in a row: no answer at all */
    /* One session; false = it made fewer than n calls of fn. */
    bool (*session)(const struct sweep_fault *f);
};

/* All of them, caller-driven and with a thread; how many sessions had their fault. */
unsigned sweep_run(const struct sweep *s);
/* Arms the double for a session. */
void sweep_arm(const struct sweep_fault *f);

/* The fault of the session that runs. */
extern struct sweep_fault sweep_now;

#define HOLDS(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s fails, call %u: %s does not hold (line %d)\n",                     \
                    dbl_fn_name(sweep_now.fn), sweep_now.n, #cond, __LINE__);                      \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#endif
