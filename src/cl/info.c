/* SPDX-License-Identifier: Apache-2.0 */
/* What devices there are, what they say of themselves, and which one is meant. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "util.h"

/* Of OpenCL 2.0, asked by number: 1.x runtimes answer with an error, which means none. */
#define DEVICE_SVM_CAPABILITIES 0x1053
#define SVM_COARSE_GRAIN_BUFFER (1u << 0)
#define SVM_FINE_GRAIN_BUFFER (1u << 1)

#define NO_PLATFORM (-1001) /* of the ICD loader */
#define MAX_PLATFORMS 32
#define MAX_DEVICES 64

static const char *const mem_names[CLB_CL_MEM_COUNT] = {"auto",     "alloc-host", "use-host",
                                                        "svm-fine", "usm-host",   "staged"};

const char *clb_cl_mem_name(enum clb_cl_mem mem)
{
    return (unsigned)mem < CLB_CL_MEM_COUNT ? mem_names[mem] : "unknown";
}

int clb_cl_mem_from_name(const char *name)
{
    int i;

    for (i = 0; name && i < CLB_CL_MEM_COUNT; i++)
        if (strcmp(name, mem_names[i]) == 0)
            return i;
    return CLB_ERR_INVAL;
}

/* ---- one device ------------------------------------------------------------------------------ */

static cl_int device_text(const struct clbi_cl_fns *fns, cl_device_id id, cl_device_info what,
                          char *out, size_t size)
{
    char text[1024] = "";
    cl_int code = fns->GetDeviceInfo(id, what, sizeof(text) - 1, text, NULL);

    if (code != CL_SUCCESS)
        text[0] = 0;
    snprintf(out, size, "%.*s", (int)(size - 1), text);
    return code;
}

static int has_extension(const char *list, const char *name)
{
    size_t len = strlen(name);
    const char *at = list;

    while ((at = strstr(at, name)) != NULL) {
        if ((at == list || at[-1] == ' ') && (at[len] == 0 || at[len] == ' '))
            return 1;
        at += len;
    }
    return 0;
}

static void fill_extensions(const struct clbi_cl_fns *fns, cl_device_id id,
                            clb_cl_device_info *info)
{
    size_t size = 0;
    char *list;

    if (fns->GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, 0, NULL, &size) != CL_SUCCESS || size == 0)
        return;
    list = calloc(1, size + 1);
    if (list && fns->GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, size, list, NULL) == CL_SUCCESS) {
        info->usm_host = has_extension(list, "cl_intel_unified_shared_memory");
        info->fp16 = has_extension(list, "cl_khr_fp16");
    }
    free(list);
}

static const char *type_name(cl_device_type type)
{
    if (type & CL_DEVICE_TYPE_GPU)
        return "gpu";
    if (type & CL_DEVICE_TYPE_ACCELERATOR)
        return "accelerator";
    return type & CL_DEVICE_TYPE_CPU ? "cpu" : "other";
}

void clbi_cl_fill_info(const struct clbi_cl_fns *fns, cl_platform_id platform, cl_device_id id,
                       clb_cl_device_info *info)
{
    cl_bool unified = CL_FALSE, available = CL_FALSE;
    cl_device_type type = 0;
    cl_uint align_bits = 0;
    cl_ulong bytes = 0, svm = 0;
    cl_int code;

    memset(info, 0, sizeof(*info));
    info->platform_id = platform;
    info->device_id = id;
    if (platform)
        fns->GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(info->platform) - 1, info->platform,
                             NULL);
    code = device_text(fns, id, CL_DEVICE_NAME, info->name, sizeof(info->name));
    device_text(fns, id, CL_DEVICE_VENDOR, info->vendor, sizeof(info->vendor));
    device_text(fns, id, CL_DRIVER_VERSION, info->driver_version, sizeof(info->driver_version));
    device_text(fns, id, CL_DEVICE_VERSION, info->opencl_version, sizeof(info->opencl_version));
    fns->GetDeviceInfo(id, CL_DEVICE_TYPE, sizeof(type), &type, NULL);
    snprintf(info->type, sizeof(info->type), "%s", type_name(type));
    fns->GetDeviceInfo(id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(unified), &unified, NULL);
    info->unified_memory = unified ? 1 : 0;
    fns->GetDeviceInfo(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(align_bits), &align_bits, NULL);
    info->base_align_bytes = align_bits / 8; /* the figure is in bits */
    if (fns->GetDeviceInfo(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(bytes), &bytes, NULL) ==
        CL_SUCCESS)
        info->max_alloc_bytes = bytes;
    bytes = 0;
    if (fns->GetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(bytes), &bytes, NULL) ==
        CL_SUCCESS)
        info->global_mem_bytes = bytes;
    if (fns->GetDeviceInfo(id, DEVICE_SVM_CAPABILITIES, sizeof(svm), &svm, NULL) == CL_SUCCESS) {
        info->svm_coarse = (svm & SVM_COARSE_GRAIN_BUFFER) != 0;
        info->svm_fine = (svm & SVM_FINE_GRAIN_BUFFER) != 0;
    }
    fill_extensions(fns, id, info);
    info->memory_auto = CLB_CL_MEM_ALLOC_HOST;
    snprintf(info->memory_reason, sizeof(info->memory_reason),
             "alloc-host is what this version takes");
    fns->GetDeviceInfo(id, CL_DEVICE_AVAILABLE, sizeof(available), &available, NULL);
    info->usable = code == CL_SUCCESS && available;
    if (code != CL_SUCCESS)
        snprintf(info->error, sizeof(info->error), "cannot be asked: %s (%d)",
                 clbi_cl_error_name(code), code);
    else if (!available)
        snprintf(info->error, sizeof(info->error), "not available");
}

/* ---- all devices ----------------------------------------------------------------------------- */

typedef int (*visit_fn)(void *priv, const clb_cl_device_info *info);

static int visit_platform(const struct clbi_cl_fns *fns, cl_platform_id platform, visit_fn visit,
                          void *priv, clb_cl_device_info *info, uint32_t *index)
{
    cl_device_id ids[MAX_DEVICES];
    cl_uint n = 0, i;
    cl_int code = fns->GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_DEVICES, ids, &n);

    if (code == CL_DEVICE_NOT_FOUND)
        return 0;
    if (code != CL_SUCCESS) {
        memset(info, 0, sizeof(*info));
        info->index = (*index)++;
        info->platform_id = platform;
        fns->GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(info->platform) - 1, info->platform,
                             NULL);
        snprintf(info->type, sizeof(info->type), "other");
        snprintf(info->error, sizeof(info->error), "the platform gives no devices: %s (%d)",
                 clbi_cl_error_name(code), code);
        return visit(priv, info);
    }
    for (i = 0; i < n && i < MAX_DEVICES; i++) {
        clbi_cl_fill_info(fns, platform, ids[i], info);
        info->index = (*index)++;
        if (visit(priv, info))
            return 1;
    }
    return 0;
}

/* Until visit() says stop. Returns the code of the loader, CL_SUCCESS when there are platforms. */
static cl_int visit_all(const struct clbi_cl_fns *fns, visit_fn visit, void *priv)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    clb_cl_device_info *info;
    uint32_t index = 0;
    cl_uint n = 0, i;
    cl_int code = fns->GetPlatformIDs(MAX_PLATFORMS, platforms, &n);

    if (code != CL_SUCCESS)
        return code;
    info = calloc(1, sizeof(*info));
    if (!info)
        return CL_OUT_OF_HOST_MEMORY;
    for (i = 0; i < n && i < MAX_PLATFORMS; i++)
        if (visit_platform(fns, platforms[i], visit, priv, info, &index))
            break;
    free(info);
    return CL_SUCCESS;
}

static int no_device(struct clb_status *status, const struct clb_log *log, cl_int code)
{
    if (code == CL_OUT_OF_HOST_MEMORY) /* ours, or the loader's */
        return clbi_cl_fail(status, log, CLB_ERR_NOMEM, code,
                            "no memory to look for OpenCL devices");
    if (code == NO_PLATFORM)
        code = CL_SUCCESS;
    return clbi_cl_fail(status, log, CLB_ERR_NODEV, code,
                        "no OpenCL device: no .icd file in /etc/OpenCL/vendors (or the folder that "
                        "OCL_ICD_VENDORS names) gives one; PoCL shows none when its cache folder "
                        "(POCL_CACHE_DIR) is not writable");
}

struct lister {
    unsigned char *out;
    size_t elem_size, cap, count;
};

static int list_one(void *priv, const clb_cl_device_info *info)
{
    struct lister *l = priv;

    if (l->count < l->cap)
        clbi_cl_output_copy(l->out + l->count * l->elem_size, l->elem_size, info, sizeof(*info));
    l->count++;
    return 0;
}

int clbi_cl_device_list_with(const struct clbi_cl_fns *fns, clb_cl_device_info *out,
                             size_t elem_size, size_t cap, size_t *count, struct clb_status *status)
{
    struct lister l = {(unsigned char *)out, elem_size, cap, 0};
    cl_int code;

    if (!count)
        return CLB_ERR_INVAL;
    *count = 0;
    if (cap > 0 && (!out || elem_size == 0))
        return CLB_ERR_INVAL;
    code = visit_all(fns, list_one, &l);
    *count = l.count;
    if (code == CL_OUT_OF_HOST_MEMORY)
        return clbi_cl_fail(status, NULL, CLB_ERR_NOMEM, code, "cannot list the OpenCL devices");
    return l.count > 0 ? CLB_OK : no_device(status, NULL, code);
}

int clb_cl_device_list(clb_cl_device_info *out, size_t elem_size, size_t cap, size_t *count,
                       struct clb_status *status)
{
    return clbi_cl_device_list_with(&clbi_cl_loader_fns, out, elem_size, cap, count, status);
}

/* ---- the one that is meant ------------------------------------------------------------------- */

struct selector {
    const char *select;
    const struct clb_log *log;
    clb_cl_device_info *best;
    int rank;
    char seen[160]; /* for the message when none fits */
};

static int contains(const char *text, const char *part)
{
    size_t len = strlen(part);

    for (; *text; text++) {
        size_t i = 0;

        while (i < len && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == len)
            return 1;
    }
    return len == 0;
}

static int rank_of(const char *type)
{
    if (strcmp(type, "gpu") == 0)
        return 4;
    if (strcmp(type, "accelerator") == 0)
        return 3;
    return strcmp(type, "cpu") == 0 ? 2 : 1;
}

static int select_one(void *priv, const clb_cl_device_info *info)
{
    struct selector *s = priv;
    size_t used = strlen(s->seen);

    if (!info->usable) {
        clbi_cl_log(s->log, CLB_LOG_WARN, "OpenCL platform \"%s\" %s: skipped: %s", info->platform,
                    info->name, info->error);
        return 0;
    }
    snprintf(s->seen + used, sizeof(s->seen) - used, "%s\"%s\"", used ? ", " : "", info->name);
    if (!contains(info->platform, s->select) && !contains(info->name, s->select))
        return 0;
    if (rank_of(info->type) > s->rank) {
        *s->best = *info;
        s->rank = rank_of(info->type);
    }
    return 0;
}

int clbi_cl_select(const struct clbi_cl_fns *fns, const clb_cl_device_params *params,
                   clb_cl_device_info *info)
{
    struct selector s = {params->select ? params->select : "", &params->log, info, 0, ""};
    cl_int code = visit_all(fns, select_one, &s);

    if (s.rank > 0)
        return CLB_OK;
    if (code == CL_SUCCESS && s.seen[0])
        return clbi_cl_fail(
            params->status, &params->log, CLB_ERR_NODEV, 0,
            "no OpenCL device with \"%.40s\" in its or its platform's name; there are "
            "%.120s",
            s.select, s.seen);
    return no_device(params->status, &params->log, code);
}
