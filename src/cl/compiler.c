/* SPDX-License-Identifier: Apache-2.0 */
#include "compiler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "program_binary.h"
#include "util.h"

/* Programs kept; one more makes the one that was asked for longest ago go. */
enum { MAX_PROGRAMS = 64 };

struct entry {
    struct entry *next;
    cl_program program;
    uint64_t asked; /* when, by count */
    const char *name, *source;
    size_t length;
    size_t kept;    /* bytes of its binary on disk, 0 = none */
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
    struct clbi_cache *cache; /* NULL = none */
    char identity[1024];      /* of library and device: begins every key of the cache */
};

/* Everything but options and source that a binary depends on, as far as the runtime tells. */
static bool identify(struct clbi_compiler *c, const clb_cl_device_info *info)
{
    char version[256] = "";

    if (!info->platform_id ||
        c->fns->GetPlatformInfo(info->platform_id, CL_PLATFORM_VERSION, sizeof version - 1, version,
                                NULL) != CL_SUCCESS)
        return false;
    snprintf(c->identity, sizeof c->identity,
             "clbridge %s\nplatform %s\nversion %s\ndevice %s\nvendor %s\n"
             "device version %s\ndriver %s\n",
             clb_version_str(), info->platform, version, info->name, info->vendor,
             info->opencl_version, info->driver_version);
    return true;
}

int clbi_compiler_create(struct clbi_compiler **out, const struct clbi_compiler_params *p)
{
    struct clbi_compiler *c = calloc(1, sizeof *c);
    cl_int code;
    int rc = CLB_OK;

    *out = NULL;
    if (!c)
        return clbi_cl_fail(p->status, p->log, CLB_ERR_NOMEM, 0, "compiler: no memory");
    c->fns = p->fns;
    c->log = *p->log;
    c->context = p->context;
    c->device = p->info->device_id;
    if (p->cache_dir && identify(c, p->info))
        rc = clbi_cache_open(&c->cache, p->cache_dir, p->log, p->status);
    else if (p->cache_dir)
        clbi_cl_log(p->log, CLB_LOG_WARN,
                    "kernel cache: not used, \"%s\" does not tell its version", p->info->name);
    if (rc == CLB_OK && (code = c->fns->RetainContext(c->context)) != CL_SUCCESS)
        rc = clbi_cl_fail(p->status, p->log, clbi_cl_err(code), code, "cannot retain the context");
    if (rc < 0) {
        clbi_cache_close(&c->cache);
        free(c);
        return rc;
    }
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
    clbi_cache_close(&c->cache);
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

static int compile(const struct clbi_compiler *c, struct entry *e)
{
    cl_int code = CL_SUCCESS;
    cl_program program =
        c->fns->CreateProgramWithSource(c->context, 1, &e->source, &e->length, &code);

    if (!program)
        return failed(c, e->name, code, "clCreateProgramWithSource");
    code = c->fns->BuildProgram(program, 1, &c->device, e->options, NULL, NULL);
    if (code != CL_SUCCESS) {
        log_build(c, e->name, program);
        c->fns->ReleaseProgram(program);
        return failed(c, e->name, code, "clBuildProgram");
    }
    e->program = program;
    return CLB_OK;
}

/* ---- the disk -------------------------------------------------------------------------------- */

/* The whole source is part of the key: no sum of it has to be trusted. */
static bool make_key(const struct clbi_compiler *c, const struct entry *e,
                     struct clbi_cache_key *key)
{
    const size_t most = strlen(c->identity) + strlen(e->options) + e->length + 32;
    char *text = malloc(most);

    if (!text)
        return false;
    key->name = e->name;
    key->bytes = text;
    key->size = (size_t)snprintf(text, most, "%soptions %s\nsource\n", c->identity, e->options);
    memcpy(text + key->size, e->source, e->length);
    key->size += e->length;
    return true;
}

/* False = the source has to be compiled. */
static bool load(struct clbi_compiler *c, struct entry *e)
{
    struct clbi_cache_key key;
    const unsigned char *binary;
    void *file = NULL;
    size_t size = 0;

    if (!c->cache || !make_key(c, e, &key))
        return false;
    if (clbi_cache_read(c->cache, &key, &file, &binary, &size) == 1) {
        cl_int code = CL_SUCCESS;

        e->program = clbi_binary_build(c->fns, c->context, c->device, binary, size, e->options,
                                       e->name, &code);
        if (e->program) {
            e->kept = size;
            clbi_cl_log(&c->log, CLB_LOG_DEBUG, "kernel %s: from the cache", e->name);
        } else if (!clbi_cl_is_nomem(code)) {
            clbi_cache_remove(c->cache, &key, "is not taken by the runtime");
        }
        free(file);
    }
    free((void *)key.bytes);
    return e->program != NULL;
}

/* The runtime's binary grows with every work-group size that it has compiled for. */
static void save(struct clbi_compiler *c, struct entry *e)
{
    struct clbi_cache_key key;
    unsigned char *binary;
    size_t size = clbi_binary_size(c->fns, e->program, c->device);

    if (size <= e->kept || size > CLBI_CACHE_MAX_BYTES || !make_key(c, e, &key))
        return;
    binary = clbi_binary_of(c->fns, e->program, c->device, &size);
    if (binary) {
        clbi_cache_write(c->cache, &key, binary, size);
        e->kept = size; /* when that failed, too: it would fail again */
        free(binary);
    }
    free((void *)key.bytes);
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
    e->name = name;
    e->source = source;
    e->length = length;
    rc = load(c, e) ? CLB_OK : compile(c, e);
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
    struct entry *e;

    if (!c->cache)
        return;
    pthread_mutex_lock(&c->lock);
    for (e = c->entries; e && e->program != program;)
        e = e->next;
    if (e)
        save(c, e);
    pthread_mutex_unlock(&c->lock);
}
