/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recv --memory host: frames stay in host memory, the "device" is the processor. Needs no OpenCL.
 */
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "recv.h"
#include "rgb.h"

struct recv_backend {
    const struct recv_setup *setup;
    clb_host_pool *pool;
    uint32_t slots; /* the pool makes them when first needed */
    uint64_t warm_up_allocs;
    struct recv_counters past; /* of earlier pools */
    clb_packet *packet;        /* submitted and not collected */
    clb_packet *current;       /* collected: its memory is being looked at */
    struct recv_about about;   /* of that */
    bool want_rgb;
    uint8_t *rgb; /* made when first wanted */
    size_t rgb_bytes;
};

static int host_open(struct recv_backend **out, const struct recv_setup *setup)
{
    struct recv_backend *b = calloc(1, sizeof *b);

    if (!b)
        return report_fail(setup->report, CLB_ERR_NOMEM, "host memory", "out of memory");
    b->setup = setup;
    *out = b;
    return 0;
}

/* Makes and touches all slots now: a page fault or an allocation later would be taken for one of a
 * frame. */
static int warm_up(struct recv_backend *b, size_t slot_bytes, uint32_t slots)
{
    struct clb_allocator allocator = clb_host_pool_allocator(b->pool);
    struct clb_alloc_req req = {
        .payload = slot_bytes, .capacity = slot_bytes, .align = 64, .stream_name = ""};
    struct clb_buf *bufs = calloc(slots, sizeof *bufs);
    int rc = bufs ? CLB_OK : CLB_ERR_NOMEM;
    uint32_t made = 0;

    while (rc == CLB_OK && made < slots) {
        rc = allocator.alloc(allocator.opaque, &req, &bufs[made]);
        if (rc == CLB_OK)
            memset(bufs[made++].data, 0, slot_bytes);
    }
    while (made)
        allocator.free(allocator.opaque, &bufs[--made]);
    free(bufs);
    b->warm_up_allocs = slots;
    return rc;
}

static void host_get_counters(struct recv_backend *b, struct recv_counters *out);

static int host_make_pool(struct recv_backend *b, size_t slot_bytes, uint32_t slots, uint32_t keep,
                          struct clb_allocator *out)
{
    int rc;

    (void)keep;
    if (b->pool) {
        struct recv_counters sum;

        host_get_counters(b, &sum);
        b->past = sum;
        clb_host_pool_destroy(&b->pool);
    }
    rc = clb_host_pool_create(&b->pool,
                              clb_host_pool_params(.buf_size = slot_bytes, .count = slots,
                                                   .max_bytes = (slot_bytes + 64) * slots));
    if (rc == CLB_OK)
        rc = warm_up(b, slot_bytes, slots);
    if (rc < 0)
        return report_fail(b->setup->report, rc, "host memory", "%u slots of %zu bytes: %s", slots,
                           slot_bytes, clb_error_str(rc));
    b->slots = slots;
    *out = clb_host_pool_allocator(b->pool);
    return 0;
}

static void host_describe(struct recv_backend *b, struct json *j)
{
    (void)b;
    json_str(j, "reason", "asked for");
    json_null(j, "platform");
    json_null(j, "device");
    json_null(j, "driver_version");
}

static int host_submit(struct recv_backend *b, clb_packet **packet, bool want_pixels,
                       bool want_result)
{
    (void)want_pixels;
    b->packet = *packet;
    b->want_rgb = want_result;
    *packet = NULL;
    return 0;
}

static bool host_has_room(struct recv_backend *b)
{
    return !b->packet;
}

static uint32_t host_pending(struct recv_backend *b)
{
    return b->packet ? 1 : 0;
}

static bool host_oldest_done(struct recv_backend *b)
{
    return b->packet != NULL;
}

static const uint8_t *picture(struct recv_backend *b, const uint8_t *pixels)
{
    const struct clb_image *image = &b->about.image;
    size_t bytes = (size_t)image->width * image->height * 3;

    if (!b->about.has_image || !pattern_draws(image->fmt))
        return NULL;
    if (b->rgb_bytes < bytes) {
        free(b->rgb);
        b->rgb = malloc(bytes);
        b->rgb_bytes = b->rgb ? bytes : 0;
    }
    if (b->rgb)
        rgb_from_image(image, pixels, b->rgb);
    return b->rgb;
}

static int host_collect(struct recv_backend *b, struct recv_frame *out)
{
    b->current = b->packet;
    b->packet = NULL;
    memset(out, 0, sizeof *out);
    clb_packet_get_info(b->current, &out->info, sizeof out->info);
    recv_about(&b->about, &b->setup->geometry, &out->info, clb_packet_image(b->current),
               clb_packet_metadata(b->current, NULL));
    out->about = &b->about;
    out->pixels = clb_packet_data(b->current);
    if (b->want_rgb)
        out->rgb = picture(b, out->pixels);
    out->rgb_size = (struct arg_size){b->about.image.width, b->about.image.height};
    return 0;
}

/* Only now the peer gets its credit back. */
static void host_put(struct recv_backend *b)
{
    clb_packet_free(&b->current);
}

static void host_get_counters(struct recv_backend *b, struct recv_counters *out)
{
    clb_host_pool_stats stats;

    memset(out, 0, sizeof *out);
    clb_host_pool_get_stats(b->pool, &stats, sizeof stats);
    out->hits = b->past.hits + stats.allocs - b->warm_up_allocs;
    out->misses = b->past.misses + stats.alloc_misses;
    out->heap_allocs = b->past.heap_allocs + stats.heap_allocs;
    out->slots = b->slots;
    out->slot_bytes = stats.slot_bytes;
    out->path = "host";
}

static void host_close(struct recv_backend *b)
{
    if (!b)
        return;
    clb_packet_free(&b->packet);
    clb_packet_free(&b->current);
    clb_host_pool_destroy(&b->pool);
    free(b->rgb);
    free(b);
}

const struct recv_backend_ops recv_host_ops = {
    .open = host_open,
    .make_pool = host_make_pool,
    .describe = host_describe,
    .submit = host_submit,
    .has_room = host_has_room,
    .pending = host_pending,
    .oldest_done = host_oldest_done,
    .collect = host_collect,
    .put = host_put,
    .get_counters = host_get_counters,
    .close = host_close,
};
