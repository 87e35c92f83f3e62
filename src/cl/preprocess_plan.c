/* SPDX-License-Identifier: Apache-2.0 */
/* From a recipe and a layout to a kernel that is ready to run: see preprocess_int.h. */
#include "preprocess_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clbi_kernels.h"
#include "util.h"

/* A cold compiler takes seconds at most; a runtime that is gone must not hold the caller for ever. */
#define WARM_UP_NS (30 * CLBI_CL_SEC)

/* Work-items along x at most: CPU runtimes make one loop of them, GPUs have limits of their own. */
enum { GROUP_CPU = 1024, GROUP_GPU = 256, GROUP_STEP = 16 };

/* The SOURCE_ numbers of kernels/resample.cl. */
enum source {
    SOURCE_NONE,
    SOURCE_GRAY8,
    SOURCE_GRAY16,
    SOURCE_SEMI,
    SOURCE_PLANAR,
    SOURCE_YUYV,
    SOURCE_UYVY,
    SOURCE_PACKED,
    SOURCE_PLANES,
    SOURCE_FLOATS,
    SOURCE_RAW8,
    SOURCE_RAW16,
    SOURCE_RAW10P,
    SOURCE_DEPTH,
};

/* How the kernel reads a format. */
struct reader {
    enum source source;
    bool swap;       /* V before U, or B before R */
    uint8_t step;    /* bytes of a packed pixel */
    uint8_t bits;    /* of a value of a mosaic */
    uint8_t natural; /* bytes at whose multiples rows and planes must start */
};

static struct reader reader_of(enum clb_pixfmt fmt)
{
    switch (fmt) {
    case CLB_PIXFMT_GRAY8: return (struct reader){.source = SOURCE_GRAY8};
    case CLB_PIXFMT_GRAY16: return (struct reader){.source = SOURCE_GRAY16, .natural = 2};
    case CLB_PIXFMT_NV12: return (struct reader){.source = SOURCE_SEMI};
    case CLB_PIXFMT_NV21: return (struct reader){.source = SOURCE_SEMI, .swap = true};
    case CLB_PIXFMT_I420: return (struct reader){.source = SOURCE_PLANAR};
    case CLB_PIXFMT_YV12: return (struct reader){.source = SOURCE_PLANAR, .swap = true};
    case CLB_PIXFMT_YUYV: return (struct reader){.source = SOURCE_YUYV};
    case CLB_PIXFMT_UYVY: return (struct reader){.source = SOURCE_UYVY};
    case CLB_PIXFMT_RGB24: return (struct reader){.source = SOURCE_PACKED, .step = 3};
    case CLB_PIXFMT_BGR24: return (struct reader){.source = SOURCE_PACKED, .step = 3, .swap = true};
    case CLB_PIXFMT_RGBA: return (struct reader){.source = SOURCE_PACKED, .step = 4};
    case CLB_PIXFMT_BGRA: return (struct reader){.source = SOURCE_PACKED, .step = 4, .swap = true};
    case CLB_PIXFMT_RGBP: return (struct reader){.source = SOURCE_PLANES};
    case CLB_PIXFMT_BGRP: return (struct reader){.source = SOURCE_PLANES, .swap = true};
    case CLB_PIXFMT_RGBPF32: return (struct reader){.source = SOURCE_FLOATS, .natural = 4};
    case CLB_PIXFMT_RAW8: return (struct reader){.source = SOURCE_RAW8, .bits = 8};
    case CLB_PIXFMT_RAW10: return (struct reader){.source = SOURCE_RAW16, .bits = 10, .natural = 2};
    case CLB_PIXFMT_RAW12: return (struct reader){.source = SOURCE_RAW16, .bits = 12, .natural = 2};
    case CLB_PIXFMT_RAW16: return (struct reader){.source = SOURCE_RAW16, .bits = 16, .natural = 2};
    case CLB_PIXFMT_RAW10P: return (struct reader){.source = SOURCE_RAW10P, .bits = 10};
    default: return (struct reader){.source = SOURCE_NONE};
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_layout(const clb_preprocess *pp, const struct clb_image *img)
{
    const struct reader rd = reader_of(img->fmt);
    const char *name = clb_pixfmt_name(img->fmt);

    if (rd.source == SOURCE_NONE)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_NOSYS, 0, "preprocess: no way to read %s",
                            name);
    for (uint32_t i = 0; rd.natural > 1 && i < img->num_planes; i++)
        if (img->plane[i].offset % rd.natural || img->plane[i].pitch % rd.natural)
            return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                                "preprocess: offset %zu or pitch %zu of %s is no multiple of %d",
                                img->plane[i].offset, img->plane[i].pitch, name, rd.natural);
    if (rd.bits && (img->bayer <= CLB_BAYER_NONE || img->bayer > CLB_BAYER_GBRG))
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: %s without a Bayer order: set the image's `bayer`", name);
    if (rd.bits && (img->width < 2 || img->height < 2))
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: %s of %ux%u: a mosaic has 2x2 pixels at least", name,
                            (unsigned)img->width, (unsigned)img->height);
    if (pp->params.depth && img->fmt != CLB_PIXFMT_GRAY16)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: %s is no depth: gray16 is", name);
    return CLB_OK;
}

int clbi_plan_geometry(const clb_preprocess *pp, const struct clb_image *img, size_t available,
                       struct clbi_geometry *g)
{
    const char *why = NULL;
    int rc;

    if (!img)
        return clbi_pp_refuse(pp, CLB_ERR_INVAL,
                              "the layout of the picture is unknown: set src or the frame's image");
    rc = clb_image_check(img, available);
    if (rc < 0)
        return clbi_cl_fail(NULL, &pp->log, rc, 0, "preprocess: %s %ux%u in %zu bytes: %s",
                            clb_pixfmt_name(img->fmt), (unsigned)img->width, (unsigned)img->height,
                            available, clb_error_str(rc));
    rc = check_layout(pp, img);
    if (rc < 0)
        return rc;
    rc = clbi_geometry_make(g, &pp->params, img, &why);
    return rc < 0 ? clbi_pp_refuse(pp, rc, why) : CLB_OK;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Of `width`, the largest number of whole steps that divides it, or parts of equal size. */
static size_t group_of(const clb_preprocess *pp, uint32_t width)
{
    cl_device_type type = CL_DEVICE_TYPE_CPU;
    size_t most = 0, limit;

    (void)pp->fns->GetDeviceInfo(pp->device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    limit = type & CL_DEVICE_TYPE_CPU ? GROUP_CPU : GROUP_GPU;
    if (pp->fns->GetDeviceInfo(pp->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most,
                               NULL) == CL_SUCCESS &&
        most < limit)
        limit = most < GROUP_STEP ? GROUP_STEP : most / GROUP_STEP * GROUP_STEP;
    for (size_t group = limit / GROUP_STEP * GROUP_STEP; group > 0; group -= GROUP_STEP)
        if (width % group == 0)
            return group;
    const size_t groups = (width + limit - 1) / limit;
    const size_t each = (width + groups - 1) / groups;
    return (each + GROUP_STEP - 1) / GROUP_STEP * GROUP_STEP;
}

static void options_of(const clb_preprocess *pp, const struct clbi_plan *plan, uint32_t sources,
                       char *out, size_t size)
{
    const clb_preprocess_params *p = &pp->params;
    const struct reader rd = reader_of(plan->img.fmt);
    const clb_preprocess_geometry *o = &plan->g.out;
    const struct clb_plane *chroma = &plan->img.plane[1];
    /* Only floats of the source can be no numbers; depth divides by a sum of weights. */
    const bool finite = rd.source != SOURCE_FLOATS && !p->depth;

    snprintf(out, size,
             "-cl-std=CL1.2 -cl-mad-enable -cl-no-signed-zeros%s -D FORMAT=%d -D TAPS=%d "
             "-D TURNED=%d -D CHANNELS=%d -D BGR=%d -D PLANAR=%d -D TYPE=%d -D PADDED=%d "
             "-D RAGGED=%d -D FRAMES=%d -D CHROMA_PAIR=%d -D VU=%d -D STEP=%d -D RED_AT=%d",
             finite ? " -cl-finite-math-only" : "", (int)(p->depth ? SOURCE_DEPTH : rd.source),
             plan->single                   ? 1
             : p->filter == CLB_FILTER_AREA ? 0
                                            : 2,
             plan->g.turned, (int)o->channels, p->order == CLB_ORDER_BGR,
             p->layout == CLB_LAYOUT_NCHW, 8 * (int)clbi_type_bytes(p->type),
             o->left || o->top || o->right || o->bottom, o->width % plan->group != 0, (int)sources,
             rd.source == SOURCE_SEMI && chroma->offset % 2 == 0 && chroma->pitch % 2 == 0,
             rd.source == SOURCE_SEMI && rd.swap, rd.step, rd.swap ? 2 : 0);
}

/* The formulas of preprocess.h times 255, see ADD_YUV in kernels/resample.cl; for RGB the weights of
 * luma. */
static void colour_of(const clb_preprocess *pp, const struct clbi_plan *plan, cl_float8 *colour,
                      cl_float4 *raw)
{
    const struct reader rd = reader_of(plan->img.fmt);
    const enum clb_matrix matrix = pp->params.matrix ? pp->params.matrix : plan->img.matrix;
    const enum clb_range range = pp->params.range ? pp->params.range : plan->img.range;
    const bool full = range == CLB_RANGE_FULL;
    const double kr = matrix == CLB_MATRIX_709 ? 0.2126 : 0.299;
    const double kb = matrix == CLB_MATRIX_709 ? 0.0722 : 0.114;
    const double kg = 1 - kr - kb;
    const double c = full ? 1.0 : 255.0 / 224.0;
    const double ky = full ? 1.0 : 255.0 / 219.0, black = full ? 0 : -16 * ky;
    const double kvr = 2 * (1 - kr) * c, kub = 2 * (1 - kb) * c;
    const double kug = -2 * kb * (1 - kb) / kg * c, kvg = -2 * kr * (1 - kr) / kg * c;

    memset(colour, 0, sizeof *colour);
    memset(raw, 0, sizeof *raw);
    if (rd.source >= SOURCE_SEMI && rd.source <= SOURCE_UYVY) {
        const double value[8] = {ky,
                                 kvr,
                                 kug,
                                 kvg,
                                 kub,
                                 black - 128 * kvr,
                                 black - 128 * (kug + kvg),
                                 black - 128 * kub};
        for (int i = 0; i < 8; i++)
            colour->s[i] = (cl_float)value[i];
        raw->s[0] = (cl_float)black;
        return;
    }
    colour->s[0] = (cl_float)kr;
    colour->s[1] = (cl_float)kg;
    colour->s[2] = (cl_float)kb;
    if (rd.bits) {
        const double most = (double)((1u << rd.bits) - 1);
        raw->s[0] = (cl_float)most;
        raw->s[1] = (cl_float)(255 / most);
    } else if (pp->params.depth) {
        raw->s[0] = (cl_float)pp->params.depth_none;
        raw->s[1] = pp->params.depth_invalid;
    }
}

/* Where of the 2x2 cell red is. */
static cl_int2 red_of(enum clb_bayer bayer)
{
    cl_int2 red = {{0, 0}};

    red.s[0] = bayer == CLB_BAYER_BGGR || bayer == CLB_BAYER_GRBG;
    red.s[1] = bayer == CLB_BAYER_BGGR || bayer == CLB_BAYER_GBRG;
    return red;
}

#define ARG(value)                                                                                 \
    do {                                                                                           \
        if (rc == CL_SUCCESS)                                                                      \
            rc = pp->fns->SetKernelArg(kernel, index++, sizeof(value), &(value));                  \
    } while (0)

/* Everything but what a run sets. For the warm-up the source has rows on one another and the output
 * one row, so that small buffers do. */
static cl_int fix_args(const clb_preprocess *pp, const struct clbi_plan *plan,
                       struct clbi_launch *launch, bool warm_up)
{
    const clb_preprocess_params *p = &pp->params;
    const clb_preprocess_geometry *o = &plan->g.out;
    const struct reader rd = reader_of(plan->img.fmt);
    const cl_kernel kernel = launch->kernel;
    cl_uint index = CLBI_ARG_FIXED;
    const cl_uint taps_x = plan->taps[0], taps_y = plan->taps[1], columns = plan->columns;
    const cl_uint width = o->width, height = warm_up ? 1 : o->height;
    cl_ulong4 offset = {{0}}, pitch = {{0}};
    const cl_int2 extent = {{(cl_int)plan->img.width, (cl_int)plan->img.height}};
    const cl_uint4 border = {{o->left, o->top, o->left + o->inner_width, o->top + o->inner_height}};
    const cl_int2 red = red_of(plan->img.bayer);
    cl_float8 colour;
    cl_float4 raw, scale = {{0}}, add = {{0}}, pad = {{0}};
    cl_int rc = CL_SUCCESS;

    colour_of(pp, plan, &colour, &raw);
    for (uint32_t i = 0; i < plan->img.num_planes && !warm_up; i++) {
        uint32_t from = i;
        if (rd.swap && rd.source == SOURCE_PLANAR && i > 0)
            from = 3 - i;
        if (rd.swap && rd.source == SOURCE_PLANES)
            from = 2 - i;
        offset.s[i] = plan->img.plane[from].offset;
        pitch.s[i] = plan->img.plane[from].pitch;
    }
    for (int i = 0; i < 4; i++) {
        const double by = p->scale[i] != 0 ? (double)p->scale[i] : 1;
        const double dev = p->dev[i] != 0 ? (double)p->dev[i] : 1;
        scale.s[i] = (cl_float)(by / dev);
        add.s[i] = (cl_float)(-(double)p->mean[i] / dev);
        pad.s[i] = (cl_float)(((double)p->pad[i] * by - (double)p->mean[i]) / dev);
    }
    ARG(plan->index);
    ARG(plan->weight);
    ARG(taps_x);
    ARG(taps_y);
    ARG(columns);
    ARG(width);
    ARG(height);
    ARG(offset);
    ARG(pitch);
    ARG(extent);
    ARG(border);
    ARG(colour);
    ARG(raw);
    ARG(red);
    ARG(scale);
    ARG(add);
    ARG(pad);
    launch->more_at = index;
    return rc;
}

cl_int clbi_plan_enqueue(clb_preprocess *pp, struct clbi_plan *plan, int which, uint32_t frames,
                         cl_command_queue queue, cl_mem tensor, size_t first, size_t stride,
                         cl_uint num_wait, const cl_event *wait, cl_event *event)
{
    struct clbi_launch *launch = &plan->launch[which];
    const cl_kernel kernel = launch->kernel;
    const cl_ulong from = first / clbi_type_bytes(pp->params.type);
    const cl_ulong step = stride / clbi_type_bytes(pp->params.type);
    const size_t global[3] = {plan->columns, plan->g.out.height, frames};
    const size_t local[3] = {plan->group, 1, 1};
    cl_uint index = CLBI_ARG_DST;
    cl_int rc = CL_SUCCESS;

    ARG(tensor);
    ARG(from);
    ARG(step);
    if (rc != CL_SUCCESS)
        return rc;
    return pp->fns->EnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, num_wait, wait,
                                         event);
}
#undef ARG

/* ---- making ---------------------------------------------------------------------------------- */

static int failed(const clb_preprocess *pp, cl_int code, const char *what)
{
    return clbi_cl_fail(NULL, &pp->log, clbi_cl_err(code), code, "preprocess: %s failed", what);
}

/* Weights beside those of the first tap? */
static bool only_first(const float *weight, uint32_t taps, size_t n)
{
    for (size_t i = n; i < taps * n; i++)
        if (weight[i] != 0)
            return false;
    return true;
}

static int make_tables(clb_preprocess *pp, struct clbi_plan *plan)
{
    const struct clbi_geometry *g = &plan->g;
    const enum clb_preprocess_filter filter = pp->params.filter;
    const size_t entries =
        (size_t)plan->taps[0] * plan->columns + (size_t)plan->taps[1] * g->row.size;
    const size_t rows_at = (size_t)plan->taps[0] * plan->columns;
    int32_t *index = calloc(entries, sizeof *index);
    float *weight = calloc(entries, sizeof *weight);
    cl_int rc = CL_SUCCESS;
    int ret = CLB_OK;

    if (!index || !weight) {
        ret = clbi_pp_refuse(pp, CLB_ERR_NOMEM, "no memory for the tables");
    } else {
        clbi_axis_table(&g->column, filter, plan->taps[0], plan->columns, index, weight);
        clbi_axis_table(&g->row, filter, plan->taps[1], g->row.size, index + rows_at,
                        weight + rows_at);
        plan->single = only_first(weight, plan->taps[0], plan->columns) &&
                       only_first(weight + rows_at, plan->taps[1], g->row.size);
        plan->index = pp->fns->CreateBuffer(pp->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                            entries * sizeof *index, index, &rc);
        if (plan->index)
            plan->weight =
                pp->fns->CreateBuffer(pp->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                      entries * sizeof *weight, weight, &rc);
        if (!plan->index || !plan->weight)
            ret = failed(pp, rc, "clCreateBuffer for the tables");
    }
    free(index);
    free(weight);
    return ret;
}

/* A kernel may take fewer work-items than the device: smaller groups that divide the columns too. */
static void shrink_group(struct clbi_plan *plan, size_t most)
{
    const size_t step = most < GROUP_STEP ? 1 : GROUP_STEP;

    if (most == 0 || plan->group <= most)
        return;
    plan->group = most / step * step;
    while (plan->columns % plan->group != 0)
        plan->group -= step;
}

static int make_kernel(clb_preprocess *pp, struct clbi_plan *plan, int which)
{
    struct clbi_launch *launch = &plan->launch[which];
    char options[512];
    size_t most = 0;
    cl_int rc;
    int ret;

    launch->sources = 1;
    while (which == CLBI_BATCH && launch->sources < pp->params.batch)
        launch->sources *= 2;
    options_of(pp, plan, launch->sources, options, sizeof options);
    ret = clbi_compiler_get(pp->compiler, "resample", clbi_kernel_resample,
                            clbi_kernel_resample_len, options, &launch->program);
    if (ret < 0)
        return ret;
    launch->kernel = pp->fns->CreateKernel(launch->program, "resample", &rc);
    if (!launch->kernel)
        return failed(pp, rc, "clCreateKernel");
    rc = pp->fns->GetKernelWorkGroupInfo(launch->kernel, pp->device, CL_KERNEL_WORK_GROUP_SIZE,
                                         sizeof most, &most, NULL);
    if (rc == CL_SUCCESS)
        shrink_group(plan, most);
    rc = fix_args(pp, plan, launch, false);
    return rc == CL_SUCCESS ? CLB_OK : failed(pp, rc, "clSetKernelArg");
}

/* Bytes of the widest row: what the warm-up reads of a source whose rows lie on one another. */
static size_t row_bytes(const struct clb_image *img)
{
    const size_t groups = ((size_t)img->width + 3) / 4;

    return groups * 4 * 4 + 16; /* no format has more than 4 bytes per pixel of a plane */
}

/* Runs the kernel on one row, with the work-group size of real runs: that is when CPU runtimes
 * compile. */
static int warm_up(clb_preprocess *pp, struct clbi_plan *plan, int which)
{
    struct clbi_launch *launch = &plan->launch[which];
    const struct clbi_cl_fns *fns = pp->fns;
    const size_t src_bytes = row_bytes(&plan->img);
    const size_t dst_bytes = (size_t)plan->g.out.width * 3 * 4;
    const size_t global[3] = {plan->columns, 1, 1}, local[3] = {plan->group, 1, 1};
    const cl_ulong none = 0;
    cl_mem src = NULL, dst = NULL;
    cl_event event = NULL;
    cl_int rc = CL_SUCCESS;
    int ret = CLB_OK;
    cl_command_queue queue = fns->CreateCommandQueue(pp->context, pp->device, 0, &rc);

    if (queue)
        src = fns->CreateBuffer(pp->context, CL_MEM_ALLOC_HOST_PTR, src_bytes, NULL, &rc);
    if (src)
        dst = fns->CreateBuffer(pp->context, CL_MEM_ALLOC_HOST_PTR, dst_bytes, NULL, &rc);
    if (!queue || !src || !dst) {
        ret = failed(pp, rc, "making a queue or buffer");
    } else {
        rc = fix_args(pp, plan, launch, true);
        if (rc == CL_SUCCESS)
            rc = fns->SetKernelArg(launch->kernel, CLBI_ARG_SRC, sizeof src, &src);
        if (rc == CL_SUCCESS)
            rc = fns->SetKernelArg(launch->kernel, CLBI_ARG_DST, sizeof dst, &dst);
        if (rc == CL_SUCCESS)
            rc = fns->SetKernelArg(launch->kernel, CLBI_ARG_FIRST, sizeof none, &none);
        if (rc == CL_SUCCESS)
            rc = fns->SetKernelArg(launch->kernel, CLBI_ARG_STRIDE, sizeof none, &none);
        for (uint32_t i = 1; i < launch->sources && rc == CL_SUCCESS; i++)
            rc = fns->SetKernelArg(launch->kernel, launch->more_at + i - 1, sizeof src, &src);
        if (rc == CL_SUCCESS)
            rc = fns->EnqueueNDRangeKernel(queue, launch->kernel, 3, NULL, global, local, 0, NULL,
                                           &event);
        if (rc == CL_SUCCESS)
            rc = fns->Flush(queue);
        if (rc == CL_SUCCESS)
            rc = event ? clbi_pp_wait(fns, event, WARM_UP_NS) : CL_INVALID_EVENT;
        if (rc > 0)
            ret = clbi_pp_refuse(pp, CLB_ERR_TIMEOUT, "the first run did not end within 30 s");
        else if (rc != CL_SUCCESS)
            ret = failed(pp, rc, "the first run of the kernel");
        else if ((rc = fix_args(pp, plan, launch, false)) != CL_SUCCESS)
            ret = failed(pp, rc, "clSetKernelArg");
    }
    if (event)
        fns->ReleaseEvent(event);
    if (dst)
        fns->ReleaseMemObject(dst);
    if (src)
        fns->ReleaseMemObject(src);
    if (queue)
        fns->ReleaseCommandQueue(queue);
    return ret;
}

void clbi_plan_free(clb_preprocess *pp, struct clbi_plan *plan)
{
    for (int i = 0; i < CLBI_LAUNCHES; i++) {
        if (plan->launch[i].kernel)
            pp->fns->ReleaseKernel(plan->launch[i].kernel);
        if (plan->launch[i].program)
            pp->fns->ReleaseProgram(plan->launch[i].program);
    }
    if (plan->index)
        pp->fns->ReleaseMemObject(plan->index);
    if (plan->weight)
        pp->fns->ReleaseMemObject(plan->weight);
    memset(plan, 0, sizeof *plan);
}

static int make_launch(clb_preprocess *pp, struct clbi_plan *plan, int which)
{
    int rc;

    if (plan->launch[which].kernel)
        return CLB_OK;
    rc = make_kernel(pp, plan, which);
    if (rc == CLB_OK)
        rc = warm_up(pp, plan, which);
    if (rc == CLB_OK)
        clbi_compiler_save(pp->compiler, plan->launch[which].program);
    return rc;
}

int clbi_plan_get(clb_preprocess *pp, const struct clb_image *img, const struct clbi_geometry *g,
                  int which, struct clbi_plan **out)
{
    struct clbi_plan *plan = &pp->plan[0];
    bool known = false;
    int rc = CLB_OK;

    for (int i = 0; i < CLBI_PLANS && !known; i++) {
        struct clbi_plan *at = &pp->plan[i];

        known = at->used && memcmp(&at->img, img, sizeof *img) == 0;
        if (known || (plan->used && (!at->used || at->age < plan->age)))
            plan = at;
    }
    if (!known) {
        clbi_plan_free(pp, plan);
        plan->g = *g;
        plan->img = *img;
        plan->taps[0] = clbi_axis_taps(&g->column, pp->params.filter);
        plan->taps[1] = clbi_axis_taps(&g->row, pp->params.filter);
        plan->group = group_of(pp, g->out.width);
        plan->columns = (uint32_t)((g->out.width + plan->group - 1) / plan->group * plan->group);
        rc = make_tables(pp, plan);
    }
    if (rc == CLB_OK)
        rc = make_launch(pp, plan, which);
    if (rc < 0) {
        clbi_plan_free(pp, plan);
        return rc;
    }
    plan->used = true;
    plan->age = ++pp->clock;
    *out = plan;
    return CLB_OK;
}
