/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at whole frames as the OpenCL device sees them: a kernel that compares every byte, or a
 * read-back. The frame is dropped before the look has taken place. See soak.h.
 */
#include <stdlib.h>
#include <string.h>

#include "soak.h"

#define ITEMS 64

/* result[2 i] = number of words that differ among those of item i, result[2 i + 1] = the first one */
static const char source[] =
    "__kernel void check(__global const uchar *restrict in, uint bytes, uint base,\n"
    "                    __global uint *restrict result)\n"
    "{\n"
    "    uint id = get_global_id(0), items = get_global_size(0), words = bytes / 4;\n"
    "    uint bad = 0, first = 0xFFFFFFFFu;\n"
    "    __global const uint *w = (__global const uint *)in;\n"
    "    for (uint i = id; i < words; i += items) {\n"
    "        if (w[i] != base + i * 0x9E3779B1u) {\n"
    "            bad++;\n"
    "            first = min(first, i);\n"
    "        }\n"
    "    }\n"
    "    if (id == 0) {\n"
    "        for (uint i = words * 4; i < bytes; i++) {\n"
    "            if (in[i] != (uchar)((base + words * 0x9E3779B1u) >> (8 * (i & 3)))) {\n"
    "                bad++;\n"
    "                first = min(first, words);\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    result[2 * id] = bad;\n"
    "    result[2 * id + 1] = first;\n"
    "}\n";

void device_rig_start(struct device_rig *rig)
{
    struct clb_status st = {0};
    if (clb_cl_device_create(
            &rig->dev, clb_cl_device_params(.status = &st, .log = {.cb = clb_log_stderr})) < 0) {
        fprintf(stderr, "%s\n", st.text);
        _Exit(1);
    }
    cl_int err;
    const char *src = source;
    cl_device_id id = clb_cl_device_id(rig->dev);
    rig->program = clCreateProgramWithSource(clb_cl_device_context(rig->dev), 1, &src, NULL, &err);
    CHECK_EQ(err, CL_SUCCESS);
    CHECK_EQ(clBuildProgram(rig->program, 1, &id, "", NULL, NULL), CL_SUCCESS);
}

void device_rig_end(struct device_rig *rig)
{
    clReleaseProgram(rig->program);
    clb_cl_device_destroy(&rig->dev);
}

void checker_start(struct checker *c, const struct device_rig *rig, size_t max_frame,
                   bool own_queue)
{
    cl_int err;
    cl_context ctx = clb_cl_device_context(rig->dev);
    c->dev = rig->dev;
    c->own_queue = own_queue;
    c->queue = clb_cl_device_queue(rig->dev);
    if (own_queue) {
        c->queue = clCreateCommandQueue(ctx, clb_cl_device_id(rig->dev), 0, &err);
        CHECK_EQ(err, CL_SUCCESS);
    }
    c->kernel = clCreateKernel(rig->program, "check", &err);
    CHECK_EQ(err, CL_SUCCESS);
    for (int i = 0; i < CHECK_SLOTS; i++) {
        c->slot[i].mem =
            clCreateBuffer(ctx, CL_MEM_READ_WRITE, sizeof c->slot[i].result, NULL, &err);
        CHECK_EQ(err, CL_SUCCESS);
        c->slot[i].bytes = malloc(max_frame);
        CHECK(c->slot[i].bytes != NULL);
    }
}

void checker_end(struct checker *c)
{
    for (int i = 0; i < CHECK_SLOTS; i++) {
        clReleaseMemObject(c->slot[i].mem);
        free(c->slot[i].bytes);
    }
    clReleaseKernel(c->kernel);
    if (c->own_queue) {
        clReleaseCommandQueue(c->queue);
    }
}

static void tell_bad(const struct episode *ep, const char *how, uint32_t frame, size_t size,
                     size_t at, uint32_t base, uint32_t count)
{
    FAIL(ep, "frame %u of %zu bytes, %s: byte %zu is not its own (base %08x, %u words differ)",
         frame, size, how, at, base, count);
}

void checker_finish_one(struct checker *c, const struct episode *ep)
{
    if (c->used == 0) {
        return;
    }
    uint32_t i = c->first;
    c->first = (c->first + 1) % CHECK_SLOTS;
    c->used--;
    CHECK_EQ(clWaitForEvents(1, &c->slot[i].done), CL_SUCCESS);
    clReleaseEvent(c->slot[i].done);
    c->slot[i].done = NULL;
    if (c->slot[i].read_back) {
        size_t n = c->slot[i].size, at = pattern_differs(c->slot[i].bytes, n, c->slot[i].base);
        if (at < n) {
            uint32_t word = 0;
            memcpy(&word, c->slot[i].bytes + (at & ~(size_t)3), n - at >= 4 ? 4 : 1);
            fprintf(stderr, "found %08x there, as if of base %08x\n", word,
                    word - (uint32_t)(at / 4) * PATTERN_STEP);
            tell_bad(ep, "read back", c->slot[i].frame, n, at, c->slot[i].base, 0);
        }
    } else {
        uint32_t bad = 0, first = UINT32_MAX;
        for (int k = 0; k < ITEMS; k++) {
            bad += c->slot[i].result[2 * k];
            uint32_t f = c->slot[i].result[2 * k + 1];
            first = f < first ? f : first;
        }
        if (bad) {
            tell_bad(ep, "seen by a kernel", c->slot[i].frame, c->slot[i].size, (size_t)first * 4,
                     c->slot[i].base, bad);
        }
    }
    soak_count(&soak.device_looks, 1);
}

void checker_finish(struct checker *c, const struct episode *ep)
{
    while (c->used > 0) {
        checker_finish_one(c, ep);
    }
}

void checker_look(struct checker *c, const struct episode *ep, clb_cl_frame **frame,
                  enum check_way way, uint32_t base, uint32_t number)
{
    if (c->used == CHECK_SLOTS) {
        checker_finish_one(c, ep);
    }
    uint32_t i = (c->first + c->used++) % CHECK_SLOTS;
    clb_cl_frame *f = *frame;
    cl_event ready = clb_cl_frame_ready(f), used = NULL;
    size_t bytes = clb_cl_frame_size(f), items = ITEMS;
    c->slot[i].read_back = way != CHECK_KERNEL && bytes > 0;
    c->slot[i].size = bytes;
    c->slot[i].base = base;
    c->slot[i].frame = number;
    if (c->slot[i].read_back) {
        CHECK_EQ(clEnqueueReadBuffer(c->queue, clb_cl_frame_mem(f), way == CHECK_READ_BLOCKING, 0,
                                     bytes, c->slot[i].bytes, 1, &ready, &used),
                 CL_SUCCESS);
    } else {
        const cl_uint n = (cl_uint)bytes;
        CHECK_EQ(clb_cl_frame_set_arg(f, c->kernel, 0), CLB_OK);
        CHECK_EQ(clSetKernelArg(c->kernel, 1, sizeof n, &n), CL_SUCCESS);
        CHECK_EQ(clSetKernelArg(c->kernel, 2, sizeof base, &base), CL_SUCCESS);
        CHECK_EQ(clSetKernelArg(c->kernel, 3, sizeof(cl_mem), &c->slot[i].mem), CL_SUCCESS);
        CHECK_EQ(
            clEnqueueNDRangeKernel(c->queue, c->kernel, 1, NULL, &items, &items, 1, &ready, &used),
            CL_SUCCESS);
    }
    CHECK_EQ(clb_cl_frame_used(f, 1, &used), CLB_OK);
    if (c->slot[i].read_back) {
        c->slot[i].done = used;
    } else {
        CHECK_EQ(clEnqueueReadBuffer(c->queue, c->slot[i].mem, CL_FALSE, 0,
                                     sizeof c->slot[i].result, c->slot[i].result, 1, &used,
                                     &c->slot[i].done),
                 CL_SUCCESS);
        clReleaseEvent(used);
    }
    CHECK_EQ(clFlush(c->queue), CL_SUCCESS);
    clb_cl_frame_unref(frame);
}
