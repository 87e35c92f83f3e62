/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of trailers, see depthai_kit.h. */
#include "depthai_kit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TS INT64_C(1700123456000)
#define TS_DEVICE INT64_C(1699987654000)

const struct sample samples[] = {
    {"encoder/imgframe-v3.trailer.bin",
     CLB_DEPTHAI_V3_4,
     270000,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_BGR24, .width = 300, .height = 300},
      .frame_type = 10,
      .sequence_num = 1234,
      .ts_ns = INT64_C(1700123456789),
      .ts_device_ns = INT64_C(1699987654321),
      .exposure_us = 8333,
      .iso = 400,
      .lens_position = -1,
      .wb_color_temp = 5600,
      .lens_position_raw = 0.25f},
     {900},
     {0}},
    {"encoder/imgframe-v3-min.trailer.bin",
     CLB_DEPTHAI_V3_4,
     270000,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_BGR24, .width = 300, .height = 300},
      .frame_type = 10,
      .sequence_num = 1234,
      .ts_ns = INT64_C(1700123456789),
      .ts_device_ns = INT64_C(1699987654321),
      .exposure_us = 8333,
      .iso = 400,
      .lens_position = -1,
      .wb_color_temp = 5600,
      .lens_position_raw = 0.25f},
     {900},
     {0}},
    {"encoder/buffer-v3.trailer.bin",
     CLB_DEPTHAI_V3_4,
     0,
     {.object_type = 1,
      .kind = CLB_DEPTHAI_BUFFER,
      .frame_type = -1,
      .sequence_num = -5,
      .ts_ns = 1000000002,
      .ts_device_ns = INT64_C(3000000004)},
     {0},
     {0}},
    {"encoder/packetized-v3.trailer.bin",
     CLB_DEPTHAI_V3_4,
     0,
     {.object_type = 48,
      .kind = CLB_DEPTHAI_SPLIT,
      .frame_type = -1,
      .split_packets = 3,
      .split_bytes = 12000000},
     {0},
     {0}},
    {"v2.33/imgframe.packet.bin",
     CLB_DEPTHAI_V2,
     /* Its stride is a lie, and 8 bytes are there of 1800: sample_load() mends the stride. */
     1800,
     {.object_type = 1,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_BGR24, .width = 300, .height = 2},
      .frame_type = 10,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE,
      .camera_socket = 2,
      .category = 3},
     {900},
     {0}},
    {"v2.33/buffer.packet.bin",
     CLB_DEPTHAI_V2,
     8,
     {.object_type = 0, .kind = CLB_DEPTHAI_BUFFER, .frame_type = -1},
     {0},
     {0}},
    {"v3.4/imgframe-full-bgr888i.trailer.bin",
     CLB_DEPTHAI_V3_4,
     270000,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_BGR24, .width = 300, .height = 300},
      .frame_type = 10,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE,
      .camera_socket = 2,
      .category = 3},
     {900},
     {0}},
    {"v3.4/imgframe-nv12-64x48-stride80.trailer.bin",
     CLB_DEPTHAI_V3_4,
     5760,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_NV12, .width = 64, .height = 48},
      .frame_type = 22,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {80, 80},
     {0, 3840}},
    {"v3.4/buffer-stamped-data.trailer.bin",
     CLB_DEPTHAI_V3_4,
     100,
     {.object_type = 1,
      .kind = CLB_DEPTHAI_BUFFER,
      .frame_type = -1,
      .sequence_num = -5,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {0},
     {0}},
    {"v3.10/imgframe-bgr888i-300x300.trailer.bin",
     CLB_DEPTHAI_V3_10,
     270000,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_BGR24, .width = 300, .height = 300},
      .frame_type = 10,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {900},
     {0}},
    {"v3.10/imgframe-full-bgr888i.trailer.bin",
     CLB_DEPTHAI_V3_10,
     270000,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_BGR24, .width = 300, .height = 300},
      .frame_type = 10,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE,
      .ts_system_ns = INT64_C(1767323045678901000),
      .camera_socket = 2,
      .category = 3},
     {900},
     {0}},
    {"v3.10/imgframe-nv12-64x48-stride80.trailer.bin",
     CLB_DEPTHAI_V3_10,
     5760,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_NV12, .width = 64, .height = 48},
      .frame_type = 22,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {80, 80},
     {0, 3840}},
    {"v3.10/imgframe-raw16-60x40-stride128.trailer.bin",
     CLB_DEPTHAI_V3_10,
     5120,
     {.object_type = 2,
      .kind = CLB_DEPTHAI_FRAME,
      .image = {.fmt = CLB_PIXFMT_RAW16, .width = 60, .height = 40},
      .frame_type = 14,
      .sequence_num = 1234,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {128},
     {0}},
    {"v3.10/encodedframe-hevc.trailer.bin",
     CLB_DEPTHAI_V3_10,
     5000,
     {.object_type = 3,
      .kind = CLB_DEPTHAI_ENCODED,
      .image = {.width = 1280, .height = 720},
      .frame_type = -1,
      .sequence_num = 77,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {0},
     {0}},
    {"v3.10/buffer-stamped-data.trailer.bin",
     CLB_DEPTHAI_V3_10,
     100,
     {.object_type = 1,
      .kind = CLB_DEPTHAI_BUFFER,
      .frame_type = -1,
      .sequence_num = -5,
      .ts_ns = TS,
      .ts_device_ns = TS_DEVICE},
     {0},
     {0}},
    {"v3.10/messagegroup-2.trailer.bin",
     CLB_DEPTHAI_V3_10,
     0,
     {.object_type = 28,
      .kind = CLB_DEPTHAI_GROUP,
      .frame_type = -1,
      .sequence_num = 9,
      .group_members = 2},
     {0},
     {0}},
    {"v3.10/nndata-f32.trailer.bin",
     CLB_DEPTHAI_V3_10,
     48,
     {.object_type = 6, .kind = CLB_DEPTHAI_OTHER, .frame_type = -1},
     {0},
     {0}},
};

const size_t sample_count = sizeof samples / sizeof *samples;

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void sample_load(struct trailer *t, const struct sample *s)
{
    char path[512];
    uint8_t all[SAMPLE_MAX];

    snprintf(path, sizeof path, "%s/trailers/%s", CLB_TEST_DATA_DIR, s->file);
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    const size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    cr_assert(n > TRAILER_TAIL && n < sizeof all, "%s: %zu bytes", path, n);
    t->object_type = (int32_t)le32(all + n - TRAILER_TAIL);
    t->metadata = le32(all + n - TRAILER_TAIL + 4);
    t->size = t->metadata + TRAILER_TAIL;
    cr_assert(t->size <= n, "%s", path);
    memcpy(t->bytes, all + n - t->size, t->size);
    if (strcmp(s->file, "v2.33/imgframe.packet.bin") == 0) {
        cr_assert_eq(memcmp(t->bytes + V2_STRIDE, "\x81\x2c\x01", 3), 0);
        memcpy(t->bytes + V2_STRIDE, "\x81\x84\x03", 3);
    }
}

const struct sample *sample_named(const char *file)
{
    for (size_t i = 0; i < sample_count; i++)
        if (strcmp(samples[i].file, file) == 0)
            return &samples[i];
    cr_assert_fail("no sample %s", file);
    return NULL;
}

int parse_at_wall(clb_depthai_info *info, const void *metadata, size_t size, size_t data_size,
                  int32_t object_type, enum clb_depthai_release release)
{
    static uint8_t *wall;
    const size_t room = 65536;

    if (!wall) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *map =
            mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert(map != MAP_FAILED);
        cr_assert_eq(mprotect(map + room, page, PROT_NONE), 0);
        wall = map + room;
    }
    cr_assert_leq(size, room);
    memcpy(wall - size, metadata, size);
    return clb_depthai_parse(info, sizeof *info,
                             clb_depthai_parse_params(.metadata = wall - size,
                                                      .metadata_size = size, .data_size = data_size,
                                                      .object_type = object_type,
                                                      .release = release));
}

const char *info_differs(const clb_depthai_info *a, const clb_depthai_info *b)
{
#define SAME(member)                                                                               \
    if (a->member != b->member)                                                                    \
        return #member;
    SAME(object_type)
    SAME(kind)
    SAME(image.fmt)
    SAME(image.width)
    SAME(image.height)
    SAME(frame_type)
    SAME(sequence_num)
    SAME(ts_ns)
    SAME(ts_device_ns)
    SAME(ts_system_ns)
    SAME(camera_socket)
    SAME(exposure_us)
    SAME(iso)
    SAME(lens_position)
    SAME(wb_color_temp)
    SAME(category)
    SAME(split_packets)
    SAME(split_bytes)
    SAME(group_members)
#undef SAME
    return memcmp(&a->lens_position_raw, &b->lens_position_raw, sizeof a->lens_position_raw) == 0
               ? NULL
               : "lens_position_raw";
}
