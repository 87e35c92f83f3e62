/* SPDX-License-Identifier: Apache-2.0 */
#include "compiler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

/* Programs kept; one more makes the one that was asked for longest ago go. */
enum { MAX_PROGRAMS = 64 };

struct entry {
    struct entry *next;
    cl_program program;
    uint64_t asked; /* when, by count */
    const char *source;
    char options[]; /* the key, together with source */
};

struct clbi_compiler {
    const struct clbi_cl_fns *fns;
    struct clb_log log;
    cl_context context;
    cl_device_id device;
    atomic_uint refs;
    pthread_mutex_t lock; /* the list, and a compilation: what two want at once is compiled once */
    struct entry *entries;
    unsigned count;
    uint64_t clock;
};

int clbi_compiler_create(struct clbi_compiler **out, const struct clbi_cl_fns *fns,
                         const struct clb_log *log, cl_context context, cl_device_id device,
                         const char *cache_dir)
{
    struct clbi_compiler *c = calloc(1, sizeof *c);
    cl_int code;

    (void)cache_dir;
    *out = NULL;
    if (!c)
        return CLB_ERR_NOMEM;
    code = fns->RetainContext(context);
    if (code != CL_SUCCESS) {
        free(c);
        return clbi_cl_err(code);
    }
    c->fns = fns;
    c->log = *log;
    c->context = context;
    c->device = device;
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return CLB_OK;
}

struct clbi_compiler *clbi_compiler_ref(struct clbi_compiler *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

void clbi_compiler_unref(struct clbi_compiler **c_ptr)
{
    struct clbi_compiler *c = *c_ptr;

    *c_ptr = NULL;
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    while (c->entries) {
        struct entry *e = c->entries;

        c->entries = e->next;
        c->fns->ReleaseProgram(e->program);
        free(e);
    }
    c->fns->ReleaseContext(c->context);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- compiling ------------------------------------------------------------------------------- */

static int failed(const struct clbi_compiler *c, const char *name, cl_int code, const char *what)
{
    return clbi_cl_fail(NULL, &c->log, clbi_cl_err(code), code, "kernel %s: %s failed", name, what);
}

/* The compiler's own words on one line, as far as they fit. */
static void log_build(const struct clbi_compiler *c, const char *name, cl_program program)
{
    char text[400] = "";
    size_t size = 0;
    char *all = NULL;

    if (c->fns->GetProgramBuildInfo(program, c->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) ==
            CL_SUCCESS &&
        size > 0 && (all = calloc(1, size + 1)) != NULL &&
        c->fns->GetProgramBuildInfo(program, c->device, CL_PROGRAM_BUILD_LOG, size, all, NULL) ==
            CL_SUCCESS) {
        const size_t n = size < sizeof text - 1 ? size : sizeof text - 1;

        for (size_t i = 0; i < n && all[i]; i++)
            text[i] = (unsigned char)all[i] < ' ' ? ' ' : all[i];
    }
    free(all);
    clbi_cl_log(&c->log, CLB_LOG_ERROR, "kernel %s: the compiler says: %s", name, text);
}

static int compile(const struct clbi_compiler *c, const char *name, const char *source,
                   size_t length, const char *options, cl_program *out)
{
    cl_int code = CL_SUCCESS;
    cl_program program = c->fns->CreateProgramWithSource(c->context, 1, &source, &length, &code);

    if (!program)
        return failed(c, name, code, "clCreateProgramWithSource");
    code = c->fns->BuildProgram(program, 1, &c->device, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        log_build(c, name, program);
        c->fns->ReleaseProgram(program);
        return failed(c, name, code, "clBuildProgram");
    }
    *out = program;
    return CLB_OK;
}

/* ---- the list -------------------------------------------------------------------------------- */

static struct entry *find(const struct clbi_compiler *c, const char *source, const char *options)
{
    struct entry *e = c->entries;

    while (e && (e->source != source || strcmp(e->options, options) != 0))
        e = e->next;
    return e;
}

static void forget_oldest(struct clbi_compiler *c)
{
    struct entry **oldest = &c->entries, *e;

    for (struct entry **at = &c->entries; *at; at = &(*at)->next)
        if ((*at)->asked < (*oldest)->asked)
            oldest = at;
    e = *oldest;
    *oldest = e->next;
    c->fns->ReleaseProgram(e->program);
    free(e);
    c->count--;
}

static int add(struct clbi_compiler *c, const char *name, const char *source, size_t length,
               const char *options, struct entry **out)
{
    const size_t size = strlen(options) + 1;
    struct entry *e = calloc(1, sizeof *e + size);
    int rc;

    if (!e)
        return clbi_cl_fail(NULL, &c->log, CLB_ERR_NOMEM, 0, "kernel %s: no memory", name);
    memcpy(e->options, options, size);
    e->source = source;
    rc = compile(c, name, source, length, options, &e->program);
    if (rc < 0) {
        free(e);
        return rc;
    }
    if (c->count == MAX_PROGRAMS)
        forget_oldest(c);
    e->next = c->entries;
    c->entries = e;
    c->count++;
    *out = e;
    return CLB_OK;
}

int clbi_compiler_get(struct clbi_compiler *c, const char *name, const char *source, size_t length,
                      const char *options, cl_program *out)
{
    struct entry *e;
    int rc = CLB_OK;

    pthread_mutex_lock(&c->lock);
    e = find(c, source, options);
    if (!e)
        rc = add(c, name, source, length, options, &e);
    if (rc == CLB_OK) {
        const cl_int code = c->fns->RetainProgram(e->program);

        e->asked = ++c->clock;
        if (code == CL_SUCCESS)
            *out = e->program;
        else
            rc = failed(c, name, code, "clRetainProgram");
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void clbi_compiler_save(struct clbi_compiler *c, cl_program program)
{
    (void)c;
    (void)program;
}
