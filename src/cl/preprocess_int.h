/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preprocessing inside. A recipe (preprocess.c) has a plan for each layout of source that it has
 * met (preprocess_plan.c): geometry, tables on the device, a kernel whose arguments are set but for
 * frames and tensor. A run (preprocess_run.c) checks, sets these, enqueues, records the use and
 * flushes. Arguments belong to the kernel object, not to the enqueue, so both happen under one lock
 * (sharing a kernel without it gave wrong pictures on every runtime tried).
 */
#ifndef CLBI_PREPROCESS_INT_H
#define CLBI_PREPROCESS_INT_H

#include <clbridge/preprocess.h>
#include <pthread.h>
#include <stdbool.h>

#include "cl_fns.h"
#include "compiler.h"
#include "geometry.h"

/* Layouts that a recipe without `src` remembers. */
#define CLBI_PLANS 4

/* Kernels of a plan: for one frame, and for the batch. */
enum { CLBI_SINGLE, CLBI_BATCH, CLBI_LAUNCHES };

/* kernels/resample.cl: where the arguments are that a run sets. */
enum { CLBI_ARG_SRC, CLBI_ARG_DST, CLBI_ARG_FIRST, CLBI_ARG_STRIDE, CLBI_ARG_FIXED };

struct clbi_launch {
    cl_program program;
    cl_kernel kernel; /* NULL = never asked for */
    uint32_t sources; /* parameters of the kernel for frames: a power of two */
    cl_uint more_at;  /* argument of the second frame; the others follow */
    size_t local[3];  /* work-group */
};

struct clbi_plan {
    bool used;
    uint64_t age; /* of the last run, for the oldest to give way */
    struct clb_image img;
    struct clbi_geometry g;
    uint32_t taps[2]; /* of a column, of a row */
    bool single;      /* only the first tap has weight: one pixel each, whatever the filter */
    uint32_t columns; /* entries of a column table: width in whole work-groups */
    size_t group;     /* work-items along x */
    cl_mem index, weight;
    struct clbi_launch launch[CLBI_LAUNCHES];
};

struct clb_preprocess {
    const struct clbi_cl_fns *fns;
    struct clb_log log;
    struct clbi_compiler *compiler;
    clb_preprocess_params params; /* params.src points to src or is NULL */
    struct clb_image src;
    cl_context context;
    cl_device_id device;
    pthread_mutex_t lock; /* plans, and from the first argument of a kernel to its enqueue */
    uint64_t clock;       /* counts runs */
    struct clbi_plan plan[CLBI_PLANS];
};

/* Logs one line; returns err. */
int clbi_pp_refuse(const clb_preprocess *pp, int err, const char *what);

/* Looks instead of calling clWaitForEvents(), which has no deadline. Returns the event's status, > 0
 * when it has not ended in time, or the error of asking. */
cl_int clbi_pp_wait(const struct clbi_cl_fns *fns, cl_event event, int64_t timeout_ns);

/* Checks a layout against the recipe and the bytes there are, and lays the geometry out: no memory,
 * no OpenCL. */
int clbi_plan_geometry(const clb_preprocess *pp, const struct clb_image *img, size_t available,
                       struct clbi_geometry *g);

/* The plan for a layout and its geometry, made and warmed up when it is new. pp->lock is held, or nobody else has pp.
 * *out stays valid until the next call. */
int clbi_plan_get(clb_preprocess *pp, const struct clb_image *img, const struct clbi_geometry *g,
                  int launch, struct clbi_plan **out);

void clbi_plan_free(clb_preprocess *pp, struct clbi_plan *plan);

/* Sets the arguments that a run sets, but for the frames, and enqueues. */
cl_int clbi_plan_enqueue(clb_preprocess *pp, struct clbi_plan *plan, int launch, uint32_t frames,
                         cl_command_queue queue, cl_mem tensor, size_t first, size_t stride,
                         cl_uint num_wait, const cl_event *wait, cl_event *event);

#endif
