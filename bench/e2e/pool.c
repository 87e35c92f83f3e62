/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of OpenCL buffers whose frames nobody computes on: what is left is the way of the memory. */
#include <clbridge/cl.h>
#include <stdlib.h>

#include "links.h"

struct bench_pool {
    clb_cl_device *device;
    clb_cl_pool *pool;
    clb_cl_device_info info;
};

struct bench_pool *bench_pool_open(const struct options *o, uint32_t frame)
{
    struct bench_pool *p = calloc(1, sizeof *p);
    struct clb_status st = {0};
    if (!p) {
        die("no memory");
    }
    clb_cl_device_params dp = {.struct_size = sizeof dp, .select = o->device, .status = &st};
    if (clb_cl_device_create(&p->device, &dp) < 0) {
        free(p);
        return NULL;
    }
    clb_cl_device_get_info(p->device, &p->info, sizeof p->info);
    clb_cl_pool_params pp = {.struct_size = sizeof pp, .buf_size = frame, .count = 12};
    must(clb_cl_pool_create(&p->pool, p->device, &pp), NULL, "pool");
    return p;
}

const char *bench_pool_name(const struct bench_pool *p)
{
    return p->info.platform;
}

struct clb_allocator bench_pool_allocator(struct bench_pool *p)
{
    return clb_cl_pool_allocator(p->pool);
}

void bench_pool_consume(struct bench_pool *p, clb_packet **packet)
{
    (void)p;
    clb_cl_frame *frame = NULL;
    must(clb_cl_frame_from_packet(&frame, packet), NULL, "frame");
    clb_cl_frame_unref(&frame);
}

void bench_pool_drain(struct bench_pool *p)
{
    must(clb_cl_device_drain(p->device, -1), NULL, "drain");
}

void bench_pool_close(struct bench_pool **pool)
{
    struct bench_pool *p = *pool;
    *pool = NULL;
    if (p) {
        clb_cl_pool_destroy(&p->pool);
        clb_cl_device_destroy(&p->device);
        free(p);
    }
}
