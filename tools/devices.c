/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge devices: the OpenCL devices of this machine and what is known about them.
 */
#include "args.h"
#include "commands.h"
#include "report.h"

#include <clbridge/config.h>

#if CLB_HAVE_CL
#include <stdlib.h>

#include <clbridge/cl.h>
#endif

struct options {
    int json;
};

static const struct arg_opt opts[] = {
    {"json", ARG_FLAG, offsetof(struct options, json), NULL,
     "one JSON object per line on standard output", NULL, 0, 0},
};

static const struct arg_spec spec = {
    .command = "devices",
    .synopsis = "devices [--json]",
    .about = "Lists the OpenCL devices. Exit status 1 when there is none.",
    .opts = opts,
    .num_opts = sizeof opts / sizeof opts[0],
    .notes = "Memory paths are not measured in this version (probe).",
};

#if CLB_HAVE_CL

static void print_probe(struct json *j, const clb_cl_device_info *d)
{
    bool any = false;

    for (int i = 0; i < CLB_CL_MEM_COUNT; i++)
        any |= d->probe[i].ran;
    if (!any) {
        json_null(j, "probe");
        return;
    }
    json_open(j, "probe", '{');
    for (int i = 0; i < CLB_CL_MEM_COUNT; i++) {
        if (!d->probe[i].ran)
            continue;
        json_open(j, clb_cl_mem_name((enum clb_cl_mem)i), '{');
        json_bool(j, "correct", d->probe[i].correct);
        json_real(j, "small_us", d->probe[i].small_us, 1);
        json_real(j, "large_us", d->probe[i].large_us, 1);
        json_bool(j, "copies", d->probe[i].copies);
        json_close(j, '}');
    }
    json_close(j, '}');
}

static const char *text(const char *value)
{
    return *value ? value : NULL;
}

/* A number of a device; a platform that failed has none. */
static void number(struct json *j, const char *key, const clb_cl_device_info *d, uint64_t value)
{
    if (d->device_id)
        json_uint(j, key, value);
    else
        json_null(j, key);
}

static void yes_no(struct json *j, const char *key, const clb_cl_device_info *d, int value)
{
    if (d->device_id)
        json_bool(j, key, value);
    else
        json_null(j, key);
}

static void print_device(struct report *r, const clb_cl_device_info *d)
{
    struct json *j = &r->out;

    json_begin(j, "device");
    json_uint(j, "index", d->index);
    json_str(j, "platform", text(d->platform));
    json_str(j, "name", text(d->name));
    json_str(j, "vendor", text(d->vendor));
    json_str(j, "type", text(d->type));
    json_str(j, "driver_version", text(d->driver_version));
    json_str(j, "opencl_version", text(d->opencl_version));
    yes_no(j, "unified_memory", d, d->unified_memory);
    number(j, "base_align_bytes", d, d->base_align_bytes);
    number(j, "max_alloc_bytes", d, d->max_alloc_bytes);
    number(j, "global_mem_bytes", d, d->global_mem_bytes);
    yes_no(j, "svm_coarse", d, d->svm_coarse);
    yes_no(j, "svm_fine", d, d->svm_fine);
    yes_no(j, "usm_host", d, d->usm_host);
    yes_no(j, "fp16", d, d->fp16);
    json_str(j, "memory_auto", d->usable ? clb_cl_mem_name(d->memory_auto) : NULL);
    json_str(j, "memory_reason", text(d->memory_reason));
    print_probe(j, d);
    json_bool(j, "usable", d->usable);
    json_str(j, "error", text(d->error));
    report_event(r);
}

/* The list, malloc; NULL after the failure was reported. */
static clb_cl_device_info *load(struct report *r, size_t *count)
{
    struct clb_status status = {0};
    clb_cl_device_info *list = NULL;
    int rc = clb_cl_device_list(NULL, sizeof *list, 0, count, &status);
    size_t cap = *count;

    if (rc == CLB_OK) {
        list = calloc(cap ? cap : 1, sizeof *list);
        rc = list ? clb_cl_device_list(list, sizeof *list, cap, count, &status) : CLB_ERR_NOMEM;
        if (*count > cap)
            *count = cap;
    }
    if (rc == CLB_OK)
        return list;
    report_status(r, rc, &status, "OpenCL");
    free(list);
    return NULL;
}

static void list_devices(struct report *r)
{
    size_t count = 0, usable = 0;
    clb_cl_device_info *list = load(r, &count);

    for (size_t i = 0; list && i < count; i++) {
        print_device(r, &list[i]);
        usable += list[i].usable != 0;
    }
    free(list);
    if (!usable)
        report_fail(
            r, CLB_ERR_NODEV, "OpenCL",
            "no usable device; look for .icd files in /etc/OpenCL/vendors (OCL_ICD_VENDORS), "
            "and for a cache folder that can be written (POCL_CACHE_DIR)");
    json_begin(&r->out, "summary");
    json_uint(&r->out, "devices", usable);
    report_event(r);
}

#else

static void list_devices(struct report *r)
{
    report_fail(r, CLB_ERR_NOSYS, "OpenCL", "this build has none; configure with -DCLB_WITH_CL=ON");
    json_begin(&r->out, "summary");
    json_uint(&r->out, "devices", 0);
    report_event(r);
}

#endif

int command_devices(int argc, char **argv)
{
    struct options o = {0};
    struct report r;
    int rc;

    switch (args_parse(&spec, argc, argv, &o, stdout, stderr)) {
    case ARG_HELP: return EXIT_OK;
    case ARG_BAD: return EXIT_USAGE;
    case ARG_OK: break;
    }
    report_init(&r, "devices", o.json);
    list_devices(&r);
    rc = r.failed ? EXIT_FAILED : EXIT_OK;
    report_end(&r);
    return rc;
}
