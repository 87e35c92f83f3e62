/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preprocessing: a compiled recipe that turns a frame into a tensor with one kernel.
 *
 * Everything that a run needs is made at creation; a run checks, sets arguments, enqueues, records
 * the use and flushes. Arguments belong to the kernel object, not to the enqueue, so both happen
 * under one lock (sharing a kernel without it gave wrong pictures on every runtime tried).
 */
#include <clbridge/preprocess.h>

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cl_fns.h"
#include "clbi_kernels.h"
#include "device.h"
#include "util.h"

enum { CHANNELS = 3 };

/* Work-items along x. One size for every picture: CPU runtimes compile a kernel again for each new
 * work-group size, which takes 80 to 200 ms. */
enum { GROUP = 64 };

/* A cold compiler takes seconds at most; a runtime that is gone must not hold the caller for ever. */
#define WARM_UP_NS (30 * CLBI_CL_SEC)
#define FINISH_NS (2 * CLBI_CL_SEC)

enum kernel_id { KERNEL_NV12, KERNEL_PACKED, KERNEL_GRAY, KERNEL_COUNT };

static const char *const kernel_names[KERNEL_COUNT] = {"convert_nv12", "convert_packed",
                                                       "convert_gray"};

/* Pixels of a row that one work-item converts. */
static const unsigned kernel_pixels[KERNEL_COUNT] = {8, 1, 1};

struct clb_preprocess {
    const struct clbi_cl_fns *fns;
    struct clb_log log;
    clb_preprocess_params params; /* params.src points to src or is NULL */
    struct clb_image src;
    cl_context context;
    cl_program program;
    pthread_mutex_t lock;           /* from the first argument of a kernel to its enqueue */
    cl_kernel kernel[KERNEL_COUNT]; /* NULL = never needed */
    size_t group[KERNEL_COUNT];
};

/* What one run does, checked. */
struct plan {
    struct clb_image img;
    enum kernel_id kernel;
    size_t bytes;
};

/* Colour as 16.16 fixed point, see kernels/convert.cl. */
struct colour {
    cl_int black, ky, kvr, kug, kvg, kub;
};

static int refuse(const struct clb_log *log, int err, const char *what)
{
    return clbi_cl_fail(NULL, log, err, 0, "preprocess: %s", what);
}

static cl_int fixed(double value)
{
    return (cl_int)(value < 0 ? value - 0.5 : value + 0.5);
}

/* The formulas of preprocess.h times 255. */
static struct colour colour_of(enum clb_matrix matrix, enum clb_range range)
{
    const bool full = range == CLB_RANGE_FULL;
    const double kr = matrix == CLB_MATRIX_709 ? 0.2126 : 0.299;
    const double kb = matrix == CLB_MATRIX_709 ? 0.0722 : 0.114;
    const double kg = 1 - kr - kb;
    const double one = 65536;
    const double c = (full ? 1.0 : 255.0 / 224.0) * one;

    return (struct colour){
        .black = full ? 0 : 16,
        .ky = fixed((full ? 1.0 : 255.0 / 219.0) * one),
        .kvr = fixed(2 * (1 - kr) * c),
        .kug = fixed(-2 * kb * (1 - kb) / kg * c),
        .kvg = fixed(-2 * kr * (1 - kr) / kg * c),
        .kub = fixed(2 * (1 - kb) * c),
    };
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool crop_given(const clb_preprocess_params *p)
{
    return p->crop.x != 0 || p->crop.y != 0 || p->crop.w != 0 || p->crop.h != 0;
}

static bool in_range(int value, int last)
{
    return value >= 0 && value <= last;
}

/* What can be said without knowing the picture. Contradictions first: they are errors in every
 * version, whatever it supports. */
static int check_params(const clb_preprocess_params *p, const struct clb_log *log)
{
    if (!in_range((int)p->fit, CLB_FIT_COVER) || !in_range((int)p->filter, CLB_FILTER_AREA) ||
        !in_range((int)p->order, CLB_ORDER_GRAY) || !in_range((int)p->layout, CLB_LAYOUT_NCHW) ||
        !in_range((int)p->type, CLB_TYPE_F32) || !in_range((int)p->matrix, CLB_MATRIX_709) ||
        !in_range((int)p->range, CLB_RANGE_FULL) || !in_range((int)p->flip, CLB_FLIP_BOTH) ||
        !in_range((int)p->rotate, CLB_ROTATE_270))
        return refuse(log, CLB_ERR_INVAL, "an enumeration has a value that does not exist");
    for (int i = 0; i < 4; i++)
        if (!isfinite(p->scale[i]) || !isfinite(p->mean[i]) || !isfinite(p->dev[i]) ||
            !isfinite(p->pad[i]))
            return refuse(log, CLB_ERR_INVAL, "scale, mean, dev and pad must be finite");
    /* Written so that a NaN fails. */
    if (crop_given(p) && !(p->crop.x >= 0 && p->crop.y >= 0 && p->crop.w > 0 && p->crop.h > 0 &&
                           isfinite(p->crop.x + p->crop.w) && isfinite(p->crop.y + p->crop.h)))
        return refuse(log, CLB_ERR_INVAL,
                      "the crop rectangle is empty or begins before the picture");

    for (int i = 0; i < CHANNELS; i++)
        if ((p->scale[i] != 0 && p->scale[i] != 1) || p->mean[i] != 0 ||
            (p->dev[i] != 0 && p->dev[i] != 1))
            return refuse(log, CLB_ERR_NOSYS, "scale, mean and dev are not supported yet");
    if (p->order == CLB_ORDER_GRAY)
        return refuse(log, CLB_ERR_NOSYS, "grey output is not supported yet");
    if (p->layout != CLB_LAYOUT_NHWC)
        return refuse(log, CLB_ERR_NOSYS, "only the layout NHWC is supported yet");
    if (p->type != CLB_TYPE_U8)
        return refuse(log, CLB_ERR_NOSYS, "only the type u8 is supported yet");
    if (p->flip != CLB_FLIP_NONE || p->rotate != CLB_ROTATE_0)
        return refuse(log, CLB_ERR_NOSYS, "flip and rotate are not supported yet");
    return CLB_OK;
}

/* *plan has a value whatever comes back. */
static int plan_for(const clb_preprocess_params *p, const struct clb_log *log,
                    const struct clb_image *img, size_t available, struct plan *plan)
{
    int rc;

    *plan = (struct plan){0};
    if (!img)
        return refuse(log, CLB_ERR_INVAL,
                      "the layout of the picture is unknown: set src or the frame's image");
    rc = clb_image_check(img, available);
    if (rc < 0)
        return clbi_cl_fail(NULL, log, rc, 0, "preprocess: %s %ux%u in %zu bytes: %s",
                            clb_pixfmt_name(img->fmt), (unsigned)img->width, (unsigned)img->height,
                            available, clb_error_str(rc));
    switch (img->fmt) {
    case CLB_PIXFMT_NV12: plan->kernel = KERNEL_NV12; break;
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24: plan->kernel = KERNEL_PACKED; break;
    case CLB_PIXFMT_GRAY8: plan->kernel = KERNEL_GRAY; break;
    default:
        return clbi_cl_fail(NULL, log, CLB_ERR_NOSYS, 0, "preprocess: no conversion from %s yet",
                            clb_pixfmt_name(img->fmt));
    }
    if (crop_given(p)) {
        if (p->crop.x + p->crop.w > img->width || p->crop.y + p->crop.h > img->height)
            return refuse(log, CLB_ERR_INVAL, "the crop rectangle ends behind the picture");
        if (p->crop.w != img->width || p->crop.h != img->height)
            return refuse(log, CLB_ERR_NOSYS, "crop is not supported yet");
    }
    if ((p->width != 0 && p->width != img->width) || (p->height != 0 && p->height != img->height))
        return clbi_cl_fail(NULL, log, CLB_ERR_NOSYS, 0,
                            "preprocess: %ux%u to %ux%u: resizing is not supported yet",
                            (unsigned)img->width, (unsigned)img->height,
                            (unsigned)(p->width ? p->width : img->width),
                            (unsigned)(p->height ? p->height : img->height));
    /* The product of two 32-bit numbers fits 64 bits, three times it need not. */
    const uint64_t pixels = (uint64_t)img->width * img->height;
    if (pixels > SIZE_MAX / CHANNELS)
        return refuse(log, CLB_ERR_TOOBIG, "the result does not fit the address space");
    plan->bytes = (size_t)pixels * CHANNELS;
    plan->img = *img;
    return CLB_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Looks instead of calling clWaitForEvents(), which has no deadline. */
static int wait_event(const struct clbi_cl_fns *fns, cl_event event, int64_t timeout_ns)
{
    const int64_t deadline = clbi_cl_deadline(timeout_ns);
    int64_t pause = 20 * CLBI_CL_US;

    for (;;) {
        cl_int status = CL_QUEUED;
        const cl_int rc = fns->GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                            &status, NULL);
        if (rc != CL_SUCCESS)
            return rc;
        if (status <= CL_COMPLETE)
            return status;
        if (clbi_cl_now() >= deadline)
            return CL_SUBMITTED;
        struct timespec ts;
        clbi_cl_timespec(&ts, pause);
        nanosleep(&ts, NULL);
        if (pause < CLBI_CL_MS)
            pause *= 2;
    }
}

static int build(clb_preprocess *pp, cl_device_id device)
{
    const char *source = clbi_kernel_convert;
    const size_t length = clbi_kernel_convert_len;
    cl_int rc;

    pp->program = pp->fns->CreateProgramWithSource(pp->context, 1, &source, &length, &rc);
    if (!pp->program)
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(rc), rc,
                            "preprocess: clCreateProgramWithSource failed");
    rc = pp->fns->BuildProgram(pp->program, 1, &device, "-cl-std=CL1.2", NULL, NULL);
    if (rc != CL_SUCCESS) {
        char text[400] = "";
        size_t size = 0;
        char *all = NULL;

        if (pp->fns->GetProgramBuildInfo(pp->program, device, CL_PROGRAM_BUILD_LOG, 0, NULL,
                                         &size) == CL_SUCCESS &&
            size > 0 && (all = calloc(1, size + 1)) != NULL &&
            pp->fns->GetProgramBuildInfo(pp->program, device, CL_PROGRAM_BUILD_LOG, size, all,
                                         NULL) == CL_SUCCESS) {
            const size_t n = size < sizeof text - 1 ? size : sizeof text - 1;
            for (size_t i = 0; i < n && all[i]; i++)
                text[i] = (unsigned char)all[i] < ' ' ? ' ' : all[i];
        }
        free(all);
        clbi_cl_log(&pp->log, CLB_LOG_ERROR, "preprocess: the compiler says: %s", text);
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(rc), rc,
                            "preprocess: clBuildProgram failed");
    }
    return CLB_OK;
}

static int create_kernel(clb_preprocess *pp, cl_device_id device, enum kernel_id id)
{
    size_t most = 0;
    cl_int rc;

    pp->kernel[id] = pp->fns->CreateKernel(pp->program, kernel_names[id], &rc);
    if (!pp->kernel[id])
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(rc), rc,
                            "preprocess: clCreateKernel %s failed", kernel_names[id]);
    rc = pp->fns->GetKernelWorkGroupInfo(pp->kernel[id], device, CL_KERNEL_WORK_GROUP_SIZE,
                                         sizeof most, &most, NULL);
    pp->group[id] = GROUP;
    while (rc == CL_SUCCESS && pp->group[id] > most && pp->group[id] > 1)
        pp->group[id] /= 2;
    return CLB_OK;
}

/* Sets the arguments behind the source buffer and enqueues. The caller holds the lock, or is alone. */
static cl_int enqueue(clb_preprocess *pp, const struct plan *plan, cl_command_queue queue,
                      cl_mem tensor, size_t byte_offset, cl_uint num_wait, const cl_event *wait,
                      cl_event *event)
{
    const struct clb_image *img = &plan->img;
    const cl_kernel kernel = pp->kernel[plan->kernel];
    const enum clb_matrix matrix = pp->params.matrix ? pp->params.matrix : img->matrix;
    const enum clb_range range = pp->params.range ? pp->params.range : img->range;
    const struct colour colour = colour_of(matrix, range);
    const cl_ulong offset[2] = {img->plane[0].offset, img->plane[1].offset};
    const cl_ulong pitch[2] = {img->plane[0].pitch, img->plane[1].pitch};
    const cl_ulong dst_offset = byte_offset;
    const cl_uint width = img->width, height = img->height;
    const cl_int bgr = pp->params.order == CLB_ORDER_BGR;
    const cl_int swap =
        (img->fmt == CLB_PIXFMT_BGR24) != (pp->params.order == CLB_ORDER_BGR) ? 2 : 0;
    cl_uint index = 1;
    cl_int rc = CL_SUCCESS;

#define ARG(value)                                                                                 \
    do {                                                                                           \
        if (rc == CL_SUCCESS)                                                                      \
            rc = pp->fns->SetKernelArg(kernel, index++, sizeof(value), &(value));                  \
    } while (0)
    ARG(tensor);
    ARG(offset[0]);
    ARG(pitch[0]);
    if (plan->kernel == KERNEL_NV12) {
        ARG(offset[1]);
        ARG(pitch[1]);
    }
    ARG(dst_offset);
    ARG(width);
    ARG(height);
    if (plan->kernel == KERNEL_PACKED)
        ARG(swap);
    if (plan->kernel == KERNEL_NV12) {
        ARG(bgr);
        ARG(colour.black);
        ARG(colour.ky);
        ARG(colour.kvr);
        ARG(colour.kug);
        ARG(colour.kvg);
        ARG(colour.kub);
    }
#undef ARG
    if (rc != CL_SUCCESS)
        return rc;

    const size_t group = pp->group[plan->kernel];
    const size_t local[2] = {group, 1};
    const size_t across = group * kernel_pixels[plan->kernel];
    const size_t global[2] = {((size_t)width + across - 1) / across * group, height ? height : 1};

    return pp->fns->EnqueueNDRangeKernel(queue, kernel, 2, NULL, global, local, num_wait, wait,
                                         event);
}

/* Runs every kernel once over an empty picture, with the work-group size of real runs: that is
 * when CPU runtimes compile. */
static int warm_up(clb_preprocess *pp, cl_device_id device)
{
    cl_command_queue queue;
    cl_mem mem[2] = {NULL, NULL};
    cl_int rc;
    int ret = CLB_OK;

    queue = pp->fns->CreateCommandQueue(pp->context, device, 0, &rc);
    for (int i = 0; queue && i < 2 && rc == CL_SUCCESS; i++)
        mem[i] = pp->fns->CreateBuffer(pp->context, CL_MEM_ALLOC_HOST_PTR, 4096, NULL, &rc);
    if (!queue || !mem[0] || !mem[1])
        ret = clbi_cl_fail(NULL, &pp->log, clbi_cl_err(rc), rc, "preprocess: no queue or buffer");
    for (int id = 0; id < KERNEL_COUNT && ret == CLB_OK; id++) {
        struct plan plan = {.kernel = (enum kernel_id)id};
        cl_event event = NULL;

        if (!pp->kernel[id])
            continue;
        /* One row of no pixels in one work-group: every work-item returns at once. */
        plan.img.width = 1;
        rc = pp->fns->SetKernelArg(pp->kernel[id], 0, sizeof mem[0], &mem[0]);
        if (rc == CL_SUCCESS)
            rc = enqueue(pp, &plan, queue, mem[1], 0, 0, NULL, &event);
        if (rc == CL_SUCCESS)
            rc = pp->fns->Flush(queue);
        if (rc == CL_SUCCESS)
            rc = event ? wait_event(pp->fns, event, WARM_UP_NS) : CL_INVALID_EVENT;
        if (event)
            pp->fns->ReleaseEvent(event);
        if (rc != CL_SUCCESS)
            ret = clbi_cl_fail(NULL, &pp->log, rc > 0 ? CLB_ERR_TIMEOUT : clbi_cl_err(rc),
                               rc > 0 ? 0 : rc, "preprocess: the first run of %s failed",
                               kernel_names[id]);
    }
    for (int i = 0; i < 2; i++)
        if (mem[i])
            pp->fns->ReleaseMemObject(mem[i]);
    if (queue)
        pp->fns->ReleaseCommandQueue(queue);
    return ret;
}

int clb_preprocess_create(clb_preprocess **out, clb_cl_device *dev,
                          const clb_preprocess_params *params)
{
    clb_preprocess *pp;
    struct plan plan = {.kernel = KERNEL_COUNT};
    cl_int err;
    int rc;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    if (!dev)
        return CLB_ERR_INVAL;
    pp = calloc(1, sizeof *pp);
    if (!pp)
        return refuse(clbi_cl_device_log(dev), CLB_ERR_NOMEM, "no memory");
    pp->fns = clbi_cl_device_fns(dev);
    pp->log = *clbi_cl_device_log(dev);
    rc = clbi_cl_params_copy(&pp->params, sizeof pp->params, params, sizeof pp->params);
    if (rc < 0)
        rc = refuse(&pp->log, rc, "struct_size does not match");
    if (rc == CLB_OK)
        rc = check_params(&pp->params, &pp->log);
    if (rc == CLB_OK && pp->params.src) {
        pp->src = *pp->params.src;
        pp->params.src = &pp->src;
        rc = plan_for(&pp->params, &pp->log, &pp->src, SIZE_MAX, &plan);
    }
    if (rc < 0) {
        free(pp);
        return rc;
    }
    err = pp->fns->RetainContext(clb_cl_device_context(dev));
    if (err != CL_SUCCESS) {
        rc = clbi_cl_fail(NULL, &pp->log, clbi_cl_err(err), err,
                          "preprocess: clRetainContext failed");
        free(pp);
        return rc;
    }
    pp->context = clb_cl_device_context(dev);
    pthread_mutex_init(&pp->lock, NULL);

    rc = build(pp, clb_cl_device_id(dev));
    for (int id = 0; id < KERNEL_COUNT && rc == CLB_OK; id++)
        if (!pp->params.src || plan.kernel == (enum kernel_id)id)
            rc = create_kernel(pp, clb_cl_device_id(dev), (enum kernel_id)id);
    if (rc == CLB_OK)
        rc = warm_up(pp, clb_cl_device_id(dev));
    if (rc < 0) {
        clb_preprocess_destroy(&pp);
        return rc;
    }
    *out = pp;
    return CLB_OK;
}

void clb_preprocess_destroy(clb_preprocess **pp_ptr)
{
    clb_preprocess *pp = pp_ptr ? *pp_ptr : NULL;

    if (!pp)
        return;
    *pp_ptr = NULL;
    for (int id = 0; id < KERNEL_COUNT; id++)
        if (pp->kernel[id])
            pp->fns->ReleaseKernel(pp->kernel[id]);
    if (pp->program)
        pp->fns->ReleaseProgram(pp->program);
    pp->fns->ReleaseContext(pp->context);
    pthread_mutex_destroy(&pp->lock);
    free(pp);
}

/* ---- use ------------------------------------------------------------------------------------- */

static int check_tensor(const clb_preprocess *pp, const struct plan *plan, cl_mem tensor,
                        size_t byte_offset)
{
    cl_mem_object_type type = 0;
    size_t size = 0;
    cl_int rc;

    rc = pp->fns->GetMemObjectInfo(tensor, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (rc == CL_SUCCESS)
        rc = pp->fns->GetMemObjectInfo(tensor, CL_MEM_TYPE, sizeof type, &type, NULL);
    if (rc != CL_SUCCESS)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, rc,
                            "preprocess: the tensor is unusable");
    if (type != CL_MEM_OBJECT_BUFFER)
        return refuse(&pp->log, CLB_ERR_INVAL, "the tensor is not a buffer");
    if (byte_offset > size || plan->bytes > size - byte_offset)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_TOOBIG, 0,
                            "preprocess: %zu bytes at offset %zu do not fit a tensor of %zu",
                            plan->bytes, byte_offset, size);
    return CLB_OK;
}

int clb_preprocess_run(clb_preprocess *pp, cl_command_queue queue, clb_cl_frame *frame,
                       cl_mem tensor, size_t byte_offset, cl_event *done)
{
    struct plan plan;
    cl_event ready, event = NULL;
    cl_int err;
    int rc;

    if (!pp)
        return CLB_ERR_INVAL;
    if (!queue || !frame || !tensor || tensor == clb_cl_frame_mem(frame))
        return refuse(&pp->log, CLB_ERR_INVAL, "queue, frame or tensor is missing or the same");
    rc =
        plan_for(&pp->params, &pp->log, pp->params.src ? pp->params.src : clb_cl_frame_image(frame),
                 clb_cl_frame_size(frame), &plan);
    if (rc == CLB_OK)
        rc = check_tensor(pp, &plan, tensor, byte_offset);
    if (rc < 0)
        return rc;

    ready = clb_cl_frame_ready(frame);
    pthread_mutex_lock(&pp->lock);
    rc = clb_cl_frame_set_arg(frame, pp->kernel[plan.kernel], 0);
    err = rc < 0 ? CL_SUCCESS : enqueue(pp, &plan, queue, tensor, byte_offset, 1, &ready, &event);
    pthread_mutex_unlock(&pp->lock);
    if (rc < 0)
        return rc;
    if (err != CL_SUCCESS)
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(err), err,
                            "preprocess: %s was not enqueued", kernel_names[plan.kernel]);

    rc = clb_cl_frame_used(frame, 1, &event);
    err = pp->fns->Flush(queue);
    if (!event) /* the frame knows that it must not trust its buffer */
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_CL, CL_INVALID_EVENT,
                            "preprocess: %s was enqueued, but without an event",
                            kernel_names[plan.kernel]);
    if (rc < 0) {
        /* Unknown to the frame: it must not go home before this kernel has ended. */
        clbi_cl_log(&pp->log, CLB_LOG_WARN, "preprocess: the use was not recorded: waiting for it");
        (void)wait_event(pp->fns, event, FINISH_NS);
    }
    if (err != CL_SUCCESS) {
        pp->fns->ReleaseEvent(event);
        return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(err), err, "preprocess: clFlush failed");
    }
    if (done)
        *done = event;
    else
        pp->fns->ReleaseEvent(event);
    return CLB_OK;
}

int clb_preprocess_run_batch(clb_preprocess *pp, cl_command_queue queue,
                             clb_cl_frame *const *frames, cl_uint n, cl_mem tensor,
                             size_t byte_offset, size_t stride, cl_event *done)
{
    if (!pp || !frames || n != 1)
        return CLB_ERR_INVAL;
    (void)stride;
    return clb_preprocess_run(pp, queue, frames[0], tensor, byte_offset, done);
}

int clb_preprocess_get_geometry(const clb_preprocess *pp, const struct clb_image *src,
                                clb_preprocess_geometry *out, size_t size)
{
    clb_preprocess_geometry geometry = {0};
    struct plan plan;
    int rc;

    if (!pp || !out || size == 0)
        return CLB_ERR_INVAL;
    rc = plan_for(&pp->params, &pp->log, src ? src : pp->params.src, SIZE_MAX, &plan);
    if (rc < 0)
        return rc;
    geometry.width = geometry.inner_width = plan.img.width;
    geometry.height = geometry.inner_height = plan.img.height;
    geometry.channels = CHANNELS;
    geometry.bytes = plan.bytes;
    geometry.scale_x = geometry.scale_y = 1;
    geometry.source.w = plan.img.width;
    geometry.source.h = plan.img.height;
    clbi_cl_output_copy(out, size, &geometry, sizeof geometry);
    return CLB_OK;
}
