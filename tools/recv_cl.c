/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recv on an OpenCL device. For each frame: unmap (clb_cl_frame_from_packet), the preprocess kernel
 * when the layout is known, and read-backs of what is to be looked at: always of the device's view,
 * on the result path, counted in result_bytes. The frame is kept until all of it has ended.
 */
#include "recv.h"

#include <clbridge/config.h>

#if CLB_HAVE_CL

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <clbridge/cl.h>
#include <clbridge/preprocess.h>

#include "pattern.h"
#include "signals.h"
#include "stats.h"

#define MAX_PENDING 16
#define HOME_WAIT_NS INT64_C(20000000000)
#define HOME_SLICE_NS INT64_C(20000000)
#define STAMP_WAIT_NS 2000000 /* a callback may run after the wait for its event returned */
#define PAGE 4096

/* When a kernel ended. Shared by the callback and the waiting thread; the last one frees it. */
struct stamp {
    _Atomic int users;
    _Atomic int64_t ns;
};

struct slot {
    clb_packet_info info;
    struct recv_about about;
    clb_cl_frame *frame;
    cl_event done, pixels_read, rgb_read;
    struct stamp *stamp; /* of done; NULL = none */
    uint8_t *pixels;     /* room for a frame */
    size_t pixels_size;
    uint8_t *rgb; /* likewise, of its result */
    size_t rgb_bytes;
    struct arg_size rgb_size;
    size_t result_bytes; /* of them, read back */
    struct npy_shape shape;
    cl_mem tensor;
    size_t tensor_bytes;
};

struct recv_backend {
    const struct recv_setup *setup;
    clb_cl_device *dev;
    clb_cl_device_info info;
    clb_cl_pool *pool;
    clb_preprocess *preprocess; /* NULL = none yet, or none that knows the format */
    bool for_all;               /* it was made for every layout */
    struct clb_image layout;    /* of the last frame that had one; fmt 0 = none yet */
    bool draws;                 /* the recipe serves that; then: */
    clb_preprocess_geometry geometry;
    struct slot slot[MAX_PENDING];
    uint32_t keep, first, count; /* slots [first, first + count) modulo keep are with the device */
    uint64_t result_bytes;
    struct recv_counters past; /* of earlier pools */
};

static int fail_cl(struct recv_backend *b, const char *where, cl_int code)
{
    struct clb_status status = {.err = CLB_ERR_CL, .domain = CLB_DOMAIN_OPENCL, .native = code};

    snprintf(status.text, sizeof status.text, "OpenCL error %d on %s; see `clbridge devices`", code,
             b->info.name);
    return report_status(b->setup->report, CLB_ERR_CL, &status, where);
}

static int fail_clb(struct recv_backend *b, const char *where, int err, const char *hint)
{
    return report_fail(b->setup->report, err, where, "%s on %s%s", clb_error_str(err), b->info.name,
                       hint);
}

/* src NULL = for frames of every layout. */
static int make_preprocess(struct recv_backend *b, const struct clb_image *src)
{
    const struct recv_recipe *recipe = &b->setup->recipe;
    clb_preprocess_params params = {.struct_size = sizeof params, .src = src};

    if (recipe->given) {
        params.width = recipe->size.width;
        params.height = recipe->size.height;
        params.fit = (enum clb_preprocess_fit)recipe->fit;
        params.type = (enum clb_preprocess_type)recipe->type;
        params.layout = (enum clb_preprocess_layout)recipe->layout;
        params.order = (enum clb_preprocess_order)recipe->order;
    }
    b->for_all = src == NULL;
    return clb_preprocess_create(&b->preprocess, b->dev, &params);
}

static int fail_recipe(struct recv_backend *b, int err)
{
    return fail_clb(b, "preprocess", err, "; --verbose tells what does not fit");
}

/* Makes the recipe fit a layout. The first one gets a recipe of its own, which compiles the one kernel
 * that it needs; when layouts change in mid stream, there will be one for all. */
static int adapt(struct recv_backend *b, const struct clb_image *image)
{
    int rc = CLB_OK;

    if (b->layout.fmt && pattern_same_layout(&b->layout, image))
        return 0;
    if (b->layout.fmt && !b->for_all)
        clb_preprocess_destroy(&b->preprocess);
    if (!b->preprocess)
        rc = make_preprocess(b, b->layout.fmt ? NULL : image);
    if (rc == CLB_OK)
        rc = clb_preprocess_get_geometry(b->preprocess, image, &b->geometry, sizeof b->geometry);
    b->layout = *image;
    b->draws = rc == CLB_OK;
    /* Nobody asked for a kernel: then frames that none is there for go without, a mosaic of unknown
     * order for one. */
    if ((rc == CLB_ERR_NOSYS || rc == CLB_ERR_INVAL) && !b->setup->recipe.given)
        return 0;
    return rc < 0 ? fail_recipe(b, rc) : 0;
}

static int cl_open(struct recv_backend **out, const struct recv_setup *setup)
{
    struct clb_status status = {0};
    struct recv_backend *b = calloc(1, sizeof *b);
    int rc;

    if (!b)
        return report_fail(setup->report, CLB_ERR_NOMEM, "device", "out of memory");
    *out = b;
    b->setup = setup;
    rc = clb_cl_device_create(&b->dev,
                              clb_cl_device_params(.select = setup->select, .status = &status,
                                                   .log = report_log(setup->verbose)));
    if (rc < 0)
        return report_status(setup->report, rc, &status, setup->select ? setup->select : "device");
    clb_cl_device_get_info(b->dev, &b->info, sizeof b->info);
    if (setup->has_image)
        return adapt(b, &setup->here);
    if (!setup->recipe.given)
        return 0;
    rc = make_preprocess(b, NULL);
    return rc < 0 ? fail_recipe(b, rc) : 0;
}

static int grow_tensor(struct recv_backend *b, struct slot *s)
{
    cl_int code;

    if (s->tensor_bytes >= b->geometry.bytes)
        return 0;
    if (s->tensor)
        clReleaseMemObject(s->tensor);
    s->tensor = clCreateBuffer(clb_cl_device_context(b->dev), CL_MEM_READ_WRITE, b->geometry.bytes,
                               NULL, &code);
    s->tensor_bytes = s->tensor ? b->geometry.bytes : 0;
    return s->tensor ? 0 : fail_cl(b, "result buffer", code);
}

static void cl_get_counters(struct recv_backend *b, struct recv_counters *out);

static void drop_pool(struct recv_backend *b)
{
    struct recv_counters sum;

    cl_get_counters(b, &sum);
    b->past = sum;
    clb_cl_pool_destroy(&b->pool);
    b->first = 0;
}

static int cl_make_pool(struct recv_backend *b, size_t slot_bytes, uint32_t slots, uint32_t keep,
                        struct clb_allocator *out)
{
    struct clb_status status = {0};
    int mem = clb_cl_mem_from_name(b->setup->requested), rc;

    if (b->pool)
        drop_pool(b);
    b->keep = keep < MAX_PENDING ? keep : MAX_PENDING;
    rc = clb_cl_pool_create(&b->pool, b->dev,
                            clb_cl_pool_params(.buf_size = slot_bytes, .count = slots,
                                               .mem = (enum clb_cl_mem)(mem < 0 ? 0 : mem),
                                               .status = &status));
    if (rc < 0)
        return report_status(b->setup->report, rc, &status, b->info.name);
    *out = clb_cl_pool_allocator(b->pool);
    return 0;
}

static void cl_describe(struct recv_backend *b, struct json *j)
{
    clb_cl_pool_stats stats;

    clb_cl_pool_get_stats(b->pool, &stats, sizeof stats);
    json_str(j, "reason", stats.reason);
    json_str(j, "platform", b->info.platform);
    json_str(j, "device", b->info.name);
    json_str(j, "driver_version", b->info.driver_version);
}

static bool cl_has_room(struct recv_backend *b)
{
    return b->count < b->keep;
}

static uint32_t cl_pending(struct recv_backend *b)
{
    return b->count;
}

static void stamp_drop(struct stamp *stamp)
{
    if (stamp && atomic_fetch_sub(&stamp->users, 1) == 1)
        free(stamp);
}

static void CL_CALLBACK on_done(cl_event event, cl_int status, void *priv)
{
    struct stamp *stamp = priv;

    (void)event;
    (void)status;
    atomic_store(&stamp->ns, stats_now_ns());
    stamp_drop(stamp);
}

static void stamp_event(struct slot *s)
{
    s->stamp = calloc(1, sizeof *s->stamp);
    if (!s->stamp)
        return;
    atomic_init(&s->stamp->users, 2);
    if (clSetEventCallback(s->done, CL_COMPLETE, on_done, s->stamp) != CL_SUCCESS) {
        free(s->stamp);
        s->stamp = NULL;
    }
}

static int64_t read_stamp(struct stamp *stamp)
{
    int64_t deadline = stats_now_ns() + STAMP_WAIT_NS, ns;

    if (!stamp)
        return stats_now_ns();
    while (!(ns = atomic_load(&stamp->ns)) && stats_now_ns() < deadline)
        sched_yield();
    return ns ? ns : stats_now_ns();
}

/* Pages that are there before the first read-back, so that it measures nothing but itself. */
static int grow_pixels(struct slot *s, size_t size)
{
    size_t rounded = (size + PAGE - 1) / PAGE * PAGE;

    if (s->pixels_size >= size)
        return 0;
    free(s->pixels);
    s->pixels = aligned_alloc(PAGE, rounded);
    s->pixels_size = s->pixels ? rounded : 0;
    if (!s->pixels)
        return -1;
    memset(s->pixels, 0, rounded);
    return 0;
}

static int read_pixels(struct recv_backend *b, struct slot *s)
{
    cl_event ready = clb_cl_frame_ready(s->frame);
    cl_int code;
    int rc;

    if (grow_pixels(s, s->info.size))
        return fail_clb(b, "read-back", CLB_ERR_NOMEM, "");
    code = clEnqueueReadBuffer(clb_cl_device_queue(b->dev), clb_cl_frame_mem(s->frame), CL_FALSE, 0,
                               s->info.size, s->pixels, 1, &ready, &s->pixels_read);
    if (code != CL_SUCCESS)
        return fail_cl(b, "read-back of a frame", code);
    b->result_bytes += s->info.size;
    rc = clb_cl_frame_used(s->frame, 1, &s->pixels_read);
    return rc < 0 ? fail_clb(b, "read-back of a frame", rc, "") : 0;
}

static int run_kernel(struct recv_backend *b, struct slot *s)
{
    int rc;

    if (grow_tensor(b, s))
        return EXIT_FAILED;
    rc = clb_preprocess_run(b->preprocess, clb_cl_device_queue(b->dev), s->frame, s->tensor, 0,
                            &s->done);
    if (rc < 0) {
        s->done = NULL;
        return fail_clb(b, "preprocess", rc, "; do --format and --size tell what the peer sends?");
    }
    stamp_event(s);
    return 0;
}

static void set_shape(const struct recv_backend *b, struct slot *s)
{
    static const char *const types[] = {
        [CLB_TYPE_U8] = "|u1", [CLB_TYPE_F16] = "<f2", [CLB_TYPE_F32] = "<f4"};
    const clb_preprocess_geometry *g = &b->geometry;

    s->shape.type = types[b->setup->recipe.given ? b->setup->recipe.type : CLB_TYPE_U8];
    if (b->setup->recipe.given && b->setup->recipe.layout == CLB_LAYOUT_NCHW)
        memcpy(s->shape.size, (const uint32_t[]){g->channels, g->height, g->width},
               sizeof s->shape.size);
    else
        memcpy(s->shape.size, (const uint32_t[]){g->height, g->width, g->channels},
               sizeof s->shape.size);
}

static int read_result(struct recv_backend *b, struct slot *s)
{
    cl_int code;

    if (s->rgb_bytes < b->geometry.bytes) {
        free(s->rgb);
        s->rgb = malloc(b->geometry.bytes);
        s->rgb_bytes = s->rgb ? b->geometry.bytes : 0;
    }
    if (!s->rgb)
        return fail_clb(b, "result", CLB_ERR_NOMEM, "");
    s->rgb_size = (struct arg_size){b->geometry.width, b->geometry.height};
    s->result_bytes = b->geometry.bytes;
    set_shape(b, s);
    code = clEnqueueReadBuffer(clb_cl_device_queue(b->dev), s->tensor, CL_FALSE, 0,
                               b->geometry.bytes, s->rgb, 1, &s->done, &s->rgb_read);
    if (code != CL_SUCCESS)
        return fail_cl(b, "read-back of a result", code);
    b->result_bytes += b->geometry.bytes;
    return 0;
}

/* A slot that was released comes back a moment after its commands ended. Without waiting for that, the
 * number beyond release could grow past `keep`. */
static void wait_for_homecoming(struct recv_backend *b)
{
    /* Slow devices take their time; a device that never ends must not keep us for ever. */
    for (int64_t left = HOME_WAIT_NS; left > 0 && !signals_stop(); left -= HOME_SLICE_NS) {
        clb_cl_pool_stats stats;

        clb_cl_pool_get_stats(b->pool, &stats, sizeof stats);
        if (stats.device + stats.retired + stats.remapping < b->keep)
            return;
        (void)clb_cl_device_drain(b->dev, HOME_SLICE_NS);
    }
}

static int cl_submit(struct recv_backend *b, clb_packet **packet, bool want_pixels,
                     bool want_result)
{
    struct slot *s = &b->slot[(b->first + b->count) % b->keep];
    int rc;

    wait_for_homecoming(b);
    rc = clb_cl_frame_from_packet(&s->frame, packet);
    if (rc < 0)
        return fail_clb(b, "unmap", rc, "");
    b->count++;
    clb_cl_frame_get_info(s->frame, &s->info, sizeof s->info);
    recv_about(&s->about, &b->setup->geometry, &s->info, clb_cl_frame_image(s->frame),
               clb_cl_frame_metadata(s->frame, NULL));
    if (s->about.has_image && (adapt(b, &s->about.image) || (b->draws && run_kernel(b, s))))
        return EXIT_FAILED;
    if (want_pixels && s->info.size && read_pixels(b, s))
        return EXIT_FAILED;
    if (want_result && s->done && read_result(b, s))
        return EXIT_FAILED;
    clFlush(clb_cl_device_queue(b->dev));
    return 0;
}

static bool event_ended(cl_event event)
{
    cl_int status = CL_COMPLETE;

    if (!event || clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                                 NULL) != CL_SUCCESS)
        return true;
    return status <= CL_COMPLETE;
}

static bool cl_oldest_done(struct recv_backend *b)
{
    struct slot *s = &b->slot[b->first];

    return b->count && event_ended(clb_cl_frame_ready(s->frame)) && event_ended(s->done) &&
           event_ended(s->pixels_read) && event_ended(s->rgb_read);
}

static cl_int wait_and_release(cl_event *event)
{
    cl_int code = CL_SUCCESS;

    if (*event) {
        code = clWaitForEvents(1, event);
        clReleaseEvent(*event);
        *event = NULL;
    }
    return code;
}

static void swap_red_and_blue(uint8_t *pixel, size_t bytes)
{
    for (; bytes >= 3; bytes -= 3, pixel += 3) {
        uint8_t first = pixel[0];

        pixel[0] = pixel[2];
        pixel[2] = first;
    }
}

static int cl_collect(struct recv_backend *b, struct recv_frame *out)
{
    struct slot *s = &b->slot[b->first];
    bool kernel = s->done != NULL, pixels = s->pixels_read != NULL, rgb = s->rgb_read != NULL;
    cl_event ready = clb_cl_frame_ready(s->frame);
    cl_int code = CL_SUCCESS, one;

    if (!kernel && !pixels)
        code = clWaitForEvents(1, &ready);
    if ((one = wait_and_release(&s->done)) != CL_SUCCESS)
        code = one;
    memset(out, 0, sizeof *out);
    out->info = s->info;
    out->about = &s->about;
    if (kernel)
        out->done_ns = read_stamp(s->stamp);
    if ((one = wait_and_release(&s->pixels_read)) != CL_SUCCESS)
        code = one;
    if ((one = wait_and_release(&s->rgb_read)) != CL_SUCCESS)
        code = one;
    stamp_drop(s->stamp);
    s->stamp = NULL;
    clb_cl_frame_unref(&s->frame);
    b->first = (b->first + 1) % b->keep;
    b->count--;
    if (code != CL_SUCCESS)
        return fail_cl(b, "commands of a frame", code);
    out->pixels = pixels ? s->pixels : NULL;
    if (rgb && b->setup->save_tensor) {
        out->tensor = s->rgb;
        out->tensor_bytes = s->result_bytes;
        out->shape = s->shape;
    } else if (rgb) {
        if (b->setup->recipe.order == CLB_ORDER_BGR)
            swap_red_and_blue(s->rgb, (size_t)s->rgb_size.width * s->rgb_size.height * 3);
        out->rgb = s->rgb;
        out->rgb_size = s->rgb_size;
    }
    return 0;
}

/* The slot's read-backs are overwritten by a later frame only; the frame itself went home before. */
static void cl_put(struct recv_backend *b)
{
    (void)b;
}

static void cl_get_counters(struct recv_backend *b, struct recv_counters *out)
{
    clb_cl_pool_stats stats;

    memset(out, 0, sizeof *out);
    clb_cl_pool_get_stats(b->pool, &stats, sizeof stats);
    out->cl_copied_bytes = b->past.cl_copied_bytes + stats.cl_copied_bytes;
    out->result_bytes = b->result_bytes;
    out->hits = b->past.hits + stats.allocs;
    out->misses = b->past.misses + stats.alloc_misses;
    out->poisoned = b->past.poisoned + stats.poisoned;
    out->created = b->past.created + stats.created;
    out->heap_allocs = b->past.heap_allocs + stats.heap_allocs;
    out->slots = stats.slots;
    out->slot_bytes = stats.slot_bytes;
    out->path = clb_cl_mem_name(stats.mem);
    out->device = b->info.name;
}

static void cl_close(struct recv_backend *b)
{
    struct recv_frame frame;

    if (!b)
        return;
    while (b->count)
        (void)cl_collect(b, &frame);
    for (uint32_t i = 0; i < MAX_PENDING; i++) {
        if (b->slot[i].tensor)
            clReleaseMemObject(b->slot[i].tensor);
        free(b->slot[i].pixels);
        free(b->slot[i].rgb);
    }
    clb_preprocess_destroy(&b->preprocess);
    clb_cl_pool_destroy(&b->pool);
    clb_cl_device_destroy(&b->dev);
    free(b);
}

#else /* no OpenCL in this build */

static int cl_open(struct recv_backend **out, const struct recv_setup *setup)
{
    *out = NULL;
    return report_fail(setup->report, CLB_ERR_NOSYS, "--memory",
                       "this build has no OpenCL; use --memory host");
}

static void cl_close(struct recv_backend *b)
{
    (void)b;
}

#define cl_make_pool NULL
#define cl_describe NULL
#define cl_submit NULL
#define cl_has_room NULL
#define cl_pending NULL
#define cl_oldest_done NULL
#define cl_collect NULL
#define cl_put NULL
#define cl_get_counters NULL

#endif

const struct recv_backend_ops recv_cl_ops = {
    .open = cl_open,
    .make_pool = cl_make_pool,
    .describe = cl_describe,
    .submit = cl_submit,
    .has_room = cl_has_room,
    .pending = cl_pending,
    .oldest_done = cl_oldest_done,
    .collect = cl_collect,
    .put = cl_put,
    .get_counters = cl_get_counters,
    .close = cl_close,
    .write_only = true, /* mapped for writing alone */
};
