/* SPDX-License-Identifier: Apache-2.0 */
/* A recipe's life: parameters checked, made, asked, ended. See preprocess_int.h. */
#include "preprocess_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "util.h"

int clbi_pp_refuse(const clb_preprocess *pp, int err, const char *what)
{
    return clbi_cl_fail(NULL, &pp->log, err, 0, "preprocess: %s", what);
}

cl_int clbi_pp_wait(const struct clbi_cl_fns *fns, cl_event event, int64_t timeout_ns)
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

/* ---- parameters ------------------------------------------------------------------------------ */

static bool in_range(int value, int last)
{
    return value >= 0 && value <= last;
}

static int check_numbers(const clb_preprocess *pp)
{
    const clb_preprocess_params *p = &pp->params;

    for (int i = 0; i < 4; i++) {
        if (!isfinite(p->scale[i]) || !isfinite(p->mean[i]) || !isfinite(p->dev[i]) ||
            !isfinite(p->pad[i]))
            return clbi_pp_refuse(pp, CLB_ERR_INVAL, "scale, mean, dev and pad must be finite");
        if (!p->depth && (p->pad[i] < 0 || p->pad[i] > 255))
            return clbi_pp_refuse(pp, CLB_ERR_INVAL, "pad is on the scale 0..255");
    }
    /* Written so that a NaN fails. */
    const struct clb_preprocess_rect *c = &p->crop;
    const bool given = c->x != 0 || c->y != 0 || c->w != 0 || c->h != 0;
    if (given && !(c->x >= 0 && c->y >= 0 && c->w > 0 && c->h > 0 && isfinite(c->x + c->w) &&
                   isfinite(c->y + c->h)))
        return clbi_pp_refuse(pp, CLB_ERR_INVAL,
                              "the crop rectangle is empty or begins before the picture");
    if (p->batch > CLB_PREPROCESS_MAX_BATCH)
        return clbi_cl_fail(NULL, &pp->log, CLB_ERR_INVAL, 0,
                            "preprocess: a batch of %u: at most %d frames", (unsigned)p->batch,
                            CLB_PREPROCESS_MAX_BATCH);
    return CLB_OK;
}

static int check_depth(const clb_preprocess *pp)
{
    const clb_preprocess_params *p = &pp->params;

    if (!in_range(p->depth, 1))
        return clbi_pp_refuse(pp, CLB_ERR_INVAL, "depth is 0 or 1");
    if (!p->depth && (p->depth_none != 0 || p->depth_invalid != 0))
        return clbi_pp_refuse(pp, CLB_ERR_INVAL, "depth_none and depth_invalid need depth = 1");
    if (!p->depth)
        return CLB_OK;
    if (p->depth_none > UINT16_MAX)
        return clbi_pp_refuse(pp, CLB_ERR_INVAL, "depth_none is a 16-bit value");
    if (p->order != CLB_ORDER_GRAY || p->type == CLB_TYPE_U8)
        return clbi_pp_refuse(pp, CLB_ERR_INVAL,
                              "depth needs the order GRAY and the type f16 or f32");
    return CLB_OK;
}

/* What can be said without knowing the picture. */
static int check_params(const clb_preprocess *pp)
{
    const clb_preprocess_params *p = &pp->params;
    int rc;

    if (!in_range((int)p->fit, CLB_FIT_COVER) || !in_range((int)p->filter, CLB_FILTER_AREA) ||
        !in_range((int)p->order, CLB_ORDER_GRAY) || !in_range((int)p->layout, CLB_LAYOUT_NCHW) ||
        !in_range((int)p->type, CLB_TYPE_F32) || !in_range((int)p->matrix, CLB_MATRIX_709) ||
        !in_range((int)p->range, CLB_RANGE_FULL) || !in_range((int)p->flip, CLB_FLIP_BOTH) ||
        !in_range((int)p->rotate, CLB_ROTATE_270))
        return clbi_pp_refuse(pp, CLB_ERR_INVAL, "an enumeration has a value that does not exist");
    rc = check_numbers(pp);
    return rc < 0 ? rc : check_depth(pp);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* With a known layout everything is made and warmed up here, the batch's kernel too. */
static int prepare(clb_preprocess *pp)
{
    struct clbi_geometry g;
    struct clbi_plan *plan;
    int rc = clbi_plan_geometry(pp, &pp->src, SIZE_MAX, &g);

    if (rc == CLB_OK)
        rc = clbi_plan_get(pp, &pp->src, &g, CLBI_SINGLE, &plan);
    if (rc == CLB_OK && pp->params.batch > 1)
        rc = clbi_plan_get(pp, &pp->src, &g, CLBI_BATCH, &plan);
    return rc;
}

int clb_preprocess_create(clb_preprocess **out, clb_cl_device *dev,
                          const clb_preprocess_params *params)
{
    clb_preprocess *pp;
    int rc;

    if (!out)
        return CLB_ERR_INVAL;
    *out = NULL;
    if (!dev)
        return CLB_ERR_INVAL;
    pp = calloc(1, sizeof *pp);
    if (!pp)
        return clbi_cl_fail(NULL, clbi_cl_device_log(dev), CLB_ERR_NOMEM, 0,
                            "preprocess: no memory");
    pp->fns = clbi_cl_device_fns(dev);
    pp->log = *clbi_cl_device_log(dev);
    pp->context = clb_cl_device_context(dev); /* kept by the compiler */
    pp->device = clb_cl_device_id(dev);
    pp->compiler = clbi_compiler_ref(clbi_cl_device_compiler(dev));
    pthread_mutex_init(&pp->lock, NULL);
    rc = clbi_cl_params_copy(&pp->params, sizeof pp->params, params, sizeof pp->params);
    if (rc < 0)
        rc = clbi_pp_refuse(pp, rc, "struct_size does not match");
    if (rc == CLB_OK)
        rc = check_params(pp);
    if (rc == CLB_OK && pp->params.src) {
        pp->src = *pp->params.src;
        pp->params.src = &pp->src;
        rc = prepare(pp);
    }
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
    for (int i = 0; i < CLBI_PLANS; i++)
        clbi_plan_free(pp, &pp->plan[i]);
    clbi_compiler_unref(&pp->compiler);
    pthread_mutex_destroy(&pp->lock);
    free(pp);
}

int clb_preprocess_get_geometry(const clb_preprocess *pp, const struct clb_image *src,
                                clb_preprocess_geometry *out, size_t size)
{
    struct clbi_geometry g;
    int rc;

    if (!pp || !out || size == 0)
        return CLB_ERR_INVAL;
    rc = clbi_plan_geometry(pp, src ? src : pp->params.src, SIZE_MAX, &g);
    if (rc < 0)
        return rc;
    clbi_cl_output_copy(out, size, &g.out, sizeof g.out);
    return CLB_OK;
}
