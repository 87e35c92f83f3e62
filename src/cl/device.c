/* SPDX-License-Identifier: Apache-2.0 */
/* The device: its queues, its registered queues, its beginning and end. */
#include "device.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "pool.h"
#include "util.h"
#include "worker.h"

/* ---- private queues -------------------------------------------------------------------------- */

int clbi_cl_privq_init(clb_cl_device *dev, struct clbi_privq *q, cl_int *code)
{
    q->queue = dev->fns->CreateCommandQueue(dev->context, dev->id, 0, code);
    if (*code == CL_SUCCESS && !q->queue)
        *code = CL_OUT_OF_RESOURCES;
    return *code == CL_SUCCESS ? CLB_OK : clbi_cl_err(*code);
}

bool clbi_cl_privq_mend(clb_cl_device *dev, struct clbi_privq *q, const char *name)
{
    cl_command_queue fresh, old;
    cl_int code = CL_SUCCESS;

    if (!atomic_load(&q->broken))
        return true;
    fresh = dev->fns->CreateCommandQueue(dev->context, dev->id, 0, &code);
    if (code != CL_SUCCESS || !fresh) {
        if (!q->mend_logged)
            clbi_cl_log(&dev->log, CLB_LOG_ERROR, "cannot replace the %s queue: %s (%d)", name,
                        clbi_cl_error_name(code), code);
        q->mend_logged = true;
        return false;
    }
    clbi_cl_log(&dev->log, CLB_LOG_INFO, "the %s queue is replaced after a failure", name);
    pthread_mutex_lock(&q->lock);
    old = q->queue;
    q->queue = fresh;
    q->gen++;
    atomic_store(&q->broken, false); /* a failure from here on is of the new one */
    pthread_mutex_unlock(&q->lock);
    q->mend_logged = false;
    dev->fns->ReleaseCommandQueue(old);
    return true;
}

/* ---- waking and sleeping --------------------------------------------------------------------- */

bool clbi_cl_device_is_over(clb_cl_device *dev)
{
    bool over;

    if (!dev->caller_driven)
        return false;
    pthread_mutex_lock(&dev->lock);
    over = dev->end != CLBI_CL_OPEN;
    pthread_mutex_unlock(&dev->lock);
    return over;
}

void clbi_cl_device_sleep(clb_cl_device *dev, int64_t deadline)
{
    struct timespec ts;

    if (deadline == CLBI_CL_NEVER) {
        while (sem_wait(&dev->wake) != 0 && errno == EINTR)
            ;
        return;
    }
    if (deadline <= 0)
        return;
    clbi_cl_timespec(&ts, deadline);
    while (sem_clockwait(&dev->wake, CLOCK_MONOTONIC, &ts) != 0 && errno == EINTR)
        ;
}

/* Passes of the worker until one finds nothing to do, at most until deadline. */
static void run_until(clb_cl_device *dev, int64_t deadline)
{
    for (;;) {
        bool did;
        int64_t next = clbi_worker_run(dev, &did);

        if (next == CLBI_CL_NEVER || clbi_cl_now() >= deadline)
            return;
        clbi_cl_device_sleep(dev, next < deadline ? next : deadline);
    }
}

void clbi_cl_device_enter(clb_cl_device *dev)
{
    atomic_fetch_add(&dev->inside, 1);
}

void clbi_cl_device_wake(clb_cl_device *dev)
{
    if (clbi_cl_device_is_over(dev))
        run_until(dev, clbi_cl_now() + CLBI_CL_GRACE_NS + CLBI_CL_SEC);
    else
        sem_post(&dev->wake);
}

void clbi_cl_device_leave(clb_cl_device *dev)
{
    bool mine = false;

    if (dev->caller_driven) {
        pthread_mutex_lock(&dev->lock);
        mine = dev->end == CLBI_CL_DETACHED && !dev->pools && !dev->freeing;
        if (mine)
            dev->freeing = true;
        pthread_mutex_unlock(&dev->lock);
    }
    atomic_fetch_sub(&dev->inside, 1);
    if (mine)
        clbi_cl_device_free(dev);
}

/* ---- registered queues ----------------------------------------------------------------------- */

static int add_queue(clb_cl_device *dev, cl_command_queue queue, bool retain)
{
    struct clbi_reg *place = NULL;
    int err = CLB_OK;
    unsigned i;

    if (retain && dev->fns->RetainCommandQueue(queue) != CL_SUCCESS)
        return CLB_ERR_CL;
    pthread_mutex_lock(&dev->lock);
    for (i = 0; i < CLBI_CL_MAX_QUEUES; i++) {
        struct clbi_reg *reg = &dev->reg[i];

        if (reg->users > 0 && !reg->removed && reg->queue == queue)
            err = CLB_ERR_BUSY;
        if (reg->users == 0 && !place)
            place = reg;
    }
    if (err == CLB_OK && !place)
        err = CLB_ERR_TOOBIG;
    if (err == CLB_OK) {
        place->queue = queue;
        place->users = 1;
        place->removed = place->logged = false;
    }
    pthread_mutex_unlock(&dev->lock);
    if (err != CLB_OK && retain)
        dev->fns->ReleaseCommandQueue(queue);
    return err;
}

int clb_cl_device_add_queue(clb_cl_device *dev, cl_command_queue queue)
{
    cl_context context = NULL;

    if (!dev || !queue)
        return CLB_ERR_INVAL;
    if (dev->fns->GetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL) !=
            CL_SUCCESS ||
        context != dev->context)
        return clbi_cl_fail(NULL, &dev->log, CLB_ERR_INVAL, 0,
                            "a queue of another context cannot be registered");
    return add_queue(dev, queue, true);
}

int clb_cl_device_remove_queue(clb_cl_device *dev, cl_command_queue queue)
{
    cl_command_queue gone = NULL;
    int err = CLB_ERR_INVAL;
    unsigned i;

    if (!dev || !queue)
        return CLB_ERR_INVAL;
    pthread_mutex_lock(&dev->lock);
    for (i = 0; i < CLBI_CL_MAX_QUEUES && err != CLB_OK; i++) {
        struct clbi_reg *reg = &dev->reg[i];

        if (reg->users == 0 || reg->removed || reg->queue != queue)
            continue;
        err = CLB_OK;
        reg->removed = true;
        if (--reg->users == 0) { /* else the worker is the last one and releases it */
            gone = reg->queue;
            reg->queue = NULL;
        }
    }
    pthread_mutex_unlock(&dev->lock);
    if (gone)
        dev->fns->ReleaseCommandQueue(gone);
    return err;
}

/* ---- create ---------------------------------------------------------------------------------- */

static int cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);

    if (err)
        return err;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    err = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return err;
}

static int import(clb_cl_device *dev, const clb_cl_device_params *p)
{
    const struct clbi_cl_fns *fns = dev->fns;
    cl_platform_id platform = NULL;
    cl_context context = NULL;
    cl_device_id id = NULL;

    if (!p->context || !p->device || !p->queue)
        return clbi_cl_fail(p->status, &dev->log, CLB_ERR_INVAL, 0,
                            "import needs context, device and queue, all three");
    if (fns->GetCommandQueueInfo(p->queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL) !=
            CL_SUCCESS ||
        fns->GetCommandQueueInfo(p->queue, CL_QUEUE_DEVICE, sizeof(id), &id, NULL) != CL_SUCCESS ||
        context != p->context || id != p->device)
        return clbi_cl_fail(p->status, &dev->log, CLB_ERR_INVAL, 0,
                            "the imported queue belongs to another context or device");
    fns->GetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof(platform), &platform, NULL);
    clbi_cl_fill_info(fns, platform, id, &dev->info);
    dev->info.index = UINT32_MAX;
    if (fns->RetainContext(context) != CL_SUCCESS)
        return clbi_cl_fail(p->status, &dev->log, CLB_ERR_CL, 0, "cannot retain the context");
    dev->context = context;
    if (fns->RetainCommandQueue(p->queue) != CL_SUCCESS)
        return clbi_cl_fail(p->status, &dev->log, CLB_ERR_CL, 0, "cannot retain the queue");
    dev->queue = p->queue;
    dev->id = id;
    return CLB_OK;
}

static int open_own(clb_cl_device *dev, const clb_cl_device_params *p)
{
    cl_context_properties props[3] = {CL_CONTEXT_PLATFORM, 0, 0};
    cl_int code = CL_SUCCESS;
    int err = clbi_cl_select(dev->fns, p, &dev->info);

    if (err != CLB_OK)
        return err;
    dev->id = dev->info.device_id;
    props[1] = (cl_context_properties)dev->info.platform_id;
    dev->context = dev->fns->CreateContext(props, 1, &dev->id, NULL, NULL, &code);
    if (code != CL_SUCCESS || !dev->context) {
        dev->context = NULL;
        return clbi_cl_fail(p->status, &dev->log, clbi_cl_err(code), code,
                            "cannot make a context on \"%s\"", dev->info.name);
    }
    dev->queue = dev->fns->CreateCommandQueue(dev->context, dev->id, 0, &code);
    if (code != CL_SUCCESS || !dev->queue) {
        dev->queue = NULL;
        return clbi_cl_fail(p->status, &dev->log, clbi_cl_err(code), code,
                            "cannot make a queue on \"%s\"", dev->info.name);
    }
    return CLB_OK;
}

static int start_thread(clb_cl_device *dev)
{
    sigset_t all, old;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    err = pthread_create(&dev->thread, NULL, clbi_worker_main, dev);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!err)
        pthread_setname_np(dev->thread, "clb-cl");
    return err;
}

int clbi_cl_device_create_with(const struct clbi_cl_fns *fns, clb_cl_device **out,
                               const clb_cl_device_params *params)
{
    clb_cl_device_params p;
    clb_cl_device *dev;
    cl_int code = CL_SUCCESS;
    int err;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    err = clbi_cl_params_copy(&p, sizeof(p), params, sizeof(p));
    if (err != CLB_OK)
        return clbi_cl_fail(NULL, NULL, err, 0, "device params");
    dev = calloc(1, sizeof(*dev));
    if (dev)
        dev->fns = fns;
    if (!dev || clbi_worker_init(dev) != CLB_OK) {
        free(dev);
        return clbi_cl_fail(p.status, &p.log, CLB_ERR_NOMEM, 0, "out of memory for a device");
    }
    atomic_init(&dev->callbacks, 1);
    dev->log = p.log;
    dev->caller_driven = p.caller_driven != 0;
    pthread_mutex_init(&dev->lock, NULL);
    pthread_mutex_init(&dev->work_lock, NULL);
    pthread_mutex_init(&dev->unmapq.lock, NULL);
    pthread_mutex_init(&dev->remapq.lock, NULL);
    cond_init(&dev->home);
    sem_init(&dev->wake, 0, 0);

    err = p.context || p.device || p.queue ? import(dev, &p) : open_own(dev, &p);
    if (err == CLB_OK && (clbi_cl_privq_init(dev, &dev->unmapq, &code) != CLB_OK ||
                          clbi_cl_privq_init(dev, &dev->remapq, &code) != CLB_OK))
        err = clbi_cl_fail(p.status, &dev->log, clbi_cl_err(code), code,
                           "cannot make a queue on \"%s\"", dev->info.name);
    if (err == CLB_OK) {
        err = add_queue(dev, dev->queue, true);
        if (err != CLB_OK)
            clbi_cl_fail(p.status, &dev->log, err, 0, "cannot retain the queue");
    }
    if (err == CLB_OK) {
        const struct clbi_compiler_params compiler = {.fns = fns,
                                                      .log = &dev->log,
                                                      .status = p.status,
                                                      .context = dev->context,
                                                      .info = &dev->info,
                                                      .cache_dir = p.cache_dir};
        err = clbi_compiler_create(&dev->compiler, &compiler);
    }
    if (err == CLB_OK && !dev->caller_driven && start_thread(dev) != 0)
        err = clbi_cl_fail(p.status, &dev->log, CLB_ERR_NOMEM, 0, "cannot start the worker thread");
    if (err != CLB_OK) {
        clbi_cl_device_free(dev);
        return err;
    }
    *out = dev;
    return CLB_OK;
}

int clb_cl_device_create(clb_cl_device **out, const clb_cl_device_params *params)
{
    return clbi_cl_device_create_with(&clbi_cl_loader_fns, out, params);
}

/* ---- getters --------------------------------------------------------------------------------- */

void clb_cl_device_get_info(const clb_cl_device *dev, clb_cl_device_info *out, size_t size)
{
    static const clb_cl_device_info none;

    clbi_cl_output_copy(out, size, dev ? &dev->info : &none, sizeof(none));
}

cl_context clb_cl_device_context(const clb_cl_device *dev)
{
    return dev ? dev->context : NULL;
}

cl_device_id clb_cl_device_id(const clb_cl_device *dev)
{
    return dev ? dev->id : NULL;
}

cl_command_queue clb_cl_device_queue(const clb_cl_device *dev)
{
    return dev ? dev->queue : NULL;
}

const struct clbi_cl_fns *clbi_cl_device_fns(const clb_cl_device *dev)
{
    return dev->fns;
}

const struct clb_log *clbi_cl_device_log(const clb_cl_device *dev)
{
    return &dev->log;
}

struct clbi_compiler *clbi_cl_device_compiler(const clb_cl_device *dev)
{
    return dev->compiler;
}

/* ---- poll, drain, end ------------------------------------------------------------------------ */

int clb_cl_device_poll(clb_cl_device *dev, int64_t timeout_ns)
{
    int64_t deadline;

    if (!dev)
        return CLB_ERR_INVAL;
    if (!dev->caller_driven)
        return CLB_ERR_STATE;
    deadline = clbi_cl_deadline(timeout_ns);
    for (;;) {
        bool did;
        int64_t next = clbi_worker_run(dev, &did);

        if (did)
            return CLB_OK;
        if (timeout_ns == 0)
            return CLB_ERR_AGAIN;
        if (deadline != CLBI_CL_NEVER && clbi_cl_now() >= deadline)
            return CLB_ERR_TIMEOUT;
        clbi_cl_device_sleep(dev, next < deadline ? next : deadline);
    }
}

/* Retired slots, maps and closing unmaps that have not ended, pools that have not grown as they can,
 * ended pools that are not gone. */
static unsigned count_away(clb_cl_device *dev)
{
    clb_cl_pool *pool;
    unsigned away = 0;
    uint32_t i;

    for (pool = dev->pools; pool; pool = pool->next) {
        pthread_mutex_lock(&pool->lock);
        away += pool->growing && !pool->closing;
        for (i = 0; i < pool->count; i++) {
            switch (pool->slot[i].state) {
            case CLBI_SLOT_UNMAPPED:
            case CLBI_SLOT_REMAPPING:
            case CLBI_SLOT_RETIRED:
            case CLBI_SLOT_CLOSING: away++; break;
            case CLBI_SLOT_MAPPED: away += pool->closing; break;
            default: break;
            }
        }
        pthread_mutex_unlock(&pool->lock);
    }
    return away;
}

/* An ended pool with nothing out that the worker has not taken apart yet. */
static bool has_dead_pool(clb_cl_device *dev)
{
    clb_cl_pool *pool;
    bool dead = false;

    for (pool = dev->pools; pool && !dead; pool = pool->next) {
        pthread_mutex_lock(&pool->lock);
        dead = pool->closing && atomic_load(&pool->refs) == 0;
        pthread_mutex_unlock(&pool->lock);
    }
    return dead;
}

static bool wait_home(clb_cl_device *dev, int64_t deadline, bool pools)
{
    bool home;

    pthread_mutex_lock(&dev->lock);
    for (;;) {
        struct timespec ts;

        home = count_away(dev) == 0 && !(pools && has_dead_pool(dev));
        if (home || (deadline != CLBI_CL_NEVER && clbi_cl_now() >= deadline))
            break;
        if (dev->caller_driven) {
            bool did;
            int64_t next;

            pthread_mutex_unlock(&dev->lock);
            next = clbi_worker_run(dev, &did);
            if (!did)
                clbi_cl_device_sleep(dev, next < deadline ? next : deadline);
            pthread_mutex_lock(&dev->lock);
        } else if (deadline == CLBI_CL_NEVER) {
            pthread_cond_wait(&dev->home, &dev->lock);
        } else {
            clbi_cl_timespec(&ts, deadline);
            pthread_cond_timedwait(&dev->home, &dev->lock, &ts);
        }
    }
    pthread_mutex_unlock(&dev->lock);
    return home;
}

int clb_cl_device_drain(clb_cl_device *dev, int64_t timeout_ns)
{
    if (!dev)
        return CLB_ERR_INVAL;
    if (timeout_ns == 0 && dev->caller_driven) {
        bool did;

        clbi_worker_run(dev, &did);
    }
    if (wait_home(dev, clbi_cl_deadline(timeout_ns), false))
        return CLB_OK;
    return timeout_ns == 0 ? CLB_ERR_AGAIN : CLB_ERR_TIMEOUT;
}

void clb_cl_device_destroy(clb_cl_device **handle)
{
    clb_cl_device *dev;
    enum clbi_cl_end end;
    int64_t grace;

    if (!handle || !*handle)
        return;
    dev = *handle;
    *handle = NULL;
    clbi_cl_device_enter(dev);
    grace = clbi_cl_now() + CLBI_CL_GRACE_NS;
    pthread_mutex_lock(&dev->lock);
    dev->closing = true;
    dev->closing_at = clbi_cl_now();
    pthread_mutex_unlock(&dev->lock);
    sem_post(&dev->wake);
    if (!wait_home(dev, grace, true)) {
        unsigned away;

        pthread_mutex_lock(&dev->lock);
        away = count_away(dev);
        pthread_mutex_unlock(&dev->lock);
        clbi_cl_log(&dev->log, CLB_LOG_WARN,
                    "%u buffers are left behind: the commands that use them did not end within 2 s",
                    away);
        /* Those of ended pools are let go now; pools that are still open keep theirs. */
        sem_post(&dev->wake);
        wait_home(dev, clbi_cl_now() + CLBI_CL_SEC, true);
    }
    pthread_mutex_lock(&dev->lock);
    end = dev->pools || dev->caller_driven ? CLBI_CL_DETACHED : CLBI_CL_JOIN;
    dev->end = end;
    pthread_mutex_unlock(&dev->lock);
    if (end == CLBI_CL_JOIN) {
        sem_post(&dev->wake);
        pthread_join(dev->thread, NULL);
        atomic_fetch_sub(&dev->inside, 1);
        clbi_cl_device_free(dev);
        return;
    }
    /* Caller-driven: from here on nothing is mapped any more, see clbi_cl_device_is_over(). */
    clbi_cl_device_wake(dev);
    clbi_cl_device_leave(dev);
}

void clbi_cl_device_free(clb_cl_device *dev)
{
    const struct clbi_cl_fns *fns = dev->fns;
    int64_t deadline = clbi_cl_now() + CLBI_CL_GRACE_NS;
    const struct timespec nap = {0, 100000};
    unsigned i;

    /* Threads that gave the last reference away are about to leave; callbacks may come later than the
     * status of their event, and even than a clFinish(). */
    while (atomic_load(&dev->inside) > 0)
        nanosleep(&nap, NULL);
    while (atomic_load(&dev->callbacks) > 1 && clbi_cl_now() < deadline)
        nanosleep(&nap, NULL);
    for (i = 0; i < CLBI_CL_MAX_QUEUES; i++)
        if (dev->reg[i].queue)
            fns->ReleaseCommandQueue(dev->reg[i].queue);
    if (dev->unmapq.queue)
        fns->ReleaseCommandQueue(dev->unmapq.queue);
    if (dev->remapq.queue)
        fns->ReleaseCommandQueue(dev->remapq.queue);
    if (dev->queue)
        fns->ReleaseCommandQueue(dev->queue);
    if (dev->compiler)
        clbi_compiler_unref(&dev->compiler);
    if (dev->context)
        fns->ReleaseContext(dev->context);
    if (atomic_load(&dev->callbacks) > 1)
        clbi_cl_log(&dev->log, CLB_LOG_WARN, "%u event callbacks have not come yet",
                    atomic_load(&dev->callbacks) - 1);
    clbi_cl_device_put(dev);
}

void clbi_cl_device_put(clb_cl_device *dev)
{
    if (atomic_fetch_sub(&dev->callbacks, 1) != 1)
        return;
    clbi_worker_fini(dev);
    sem_destroy(&dev->wake);
    pthread_cond_destroy(&dev->home);
    pthread_mutex_destroy(&dev->lock);
    pthread_mutex_destroy(&dev->work_lock);
    pthread_mutex_destroy(&dev->unmapq.lock);
    pthread_mutex_destroy(&dev->remapq.lock);
    free(dev);
}
