/* SPDX-License-Identifier: Apache-2.0 */
/* What metadata says: every sample of every release, numbers and forms, layouts of pixels. */
#include "depthai_kit.h"
#include "nop_kit.h"

#include <criterion/criterion.h>
#include <string.h>

static int parse(clb_depthai_info *info, const struct sample *s, const struct trailer *t,
                 enum clb_depthai_release release)
{
    return parse_at_wall(info, t->bytes, t->metadata, s->data_size, t->object_type, release);
}

/* cam of 3.4 is left-over memory of who wrote it. */
static void forget_cam(clb_depthai_info *info)
{
    info->exposure_us = 0;
    info->iso = info->lens_position = info->wb_color_temp = 0;
    info->lens_position_raw = 0;
}

static void check_sample(const struct sample *s, enum clb_depthai_release release)
{
    clb_depthai_info info, expect = s->expect;
    struct trailer t;

    sample_load(&t, s);
    memset(&info, 0x5A, sizeof info);
    const int rc = parse(&info, s, &t, release);
    cr_assert_eq(rc, CLB_OK, "%s, release %d: %d", s->file, release, rc);
    if (strncmp(s->file, "v3.4/", 5) == 0)
        forget_cam(&info);
    const char *differs = info_differs(&info, &expect);
    cr_expect_null(differs, "%s, release %d: %s", s->file, release, differs);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(info.image.plane[i].pitch, s->pitch[i], "%s: pitch %d is %zu", s->file, i,
                     info.image.plane[i].pitch);
        cr_expect_eq(info.image.plane[i].offset, s->offset[i], "%s: offset %d is %zu", s->file, i,
                     info.image.plane[i].offset);
    }
    cr_expect_eq(info.image.bayer, CLB_BAYER_NONE);
    if (info.image.fmt)
        cr_expect_eq(clb_image_check(&info.image, s->data_size), CLB_OK, "%s", s->file);
}

Test(depthai, samples_with_their_release)
{
    for (size_t i = 0; i < sample_count; i++)
        check_sample(&samples[i], samples[i].release);
}

Test(depthai, samples_with_any_release)
{
    for (size_t i = 0; i < sample_count; i++)
        check_sample(&samples[i], CLB_DEPTHAI_ANY);
}

/* The form, not the count: ImgFrame, Buffer and EncodedFrame kept their numbers inside v3. */
Test(depthai, samples_with_every_release_of_v3)
{
    for (size_t i = 0; i < sample_count; i++)
        for (int r = CLB_DEPTHAI_V3_0; r <= CLB_DEPTHAI_V3_10; r++)
            if (samples[i].release >= CLB_DEPTHAI_V3_0 && samples[i].expect.object_type <= 3)
                check_sample(&samples[i], (enum clb_depthai_release)r);
}

/* 300 bytes from row to row of 300 triples (wire section 9.4). */
Test(depthai, a_stride_that_lies)
{
    const struct sample *s = sample_named("v2.33/imgframe.packet.bin");
    clb_depthai_info info;
    struct trailer t;

    sample_load(&t, s);
    cr_assert_eq(parse(&info, s, &t, CLB_DEPTHAI_V2), CLB_OK);
    memcpy(t.bytes + V2_STRIDE, "\x81\x2c\x01", 3);
    cr_expect_eq(parse(&info, s, &t, CLB_DEPTHAI_V2), CLB_ERR_PROTO);
    cr_expect_eq(parse(&info, s, &t, CLB_DEPTHAI_ANY), CLB_ERR_PROTO);
}

/* What other releases of v2 are said to write: sourceFb, cam of 4 or none, an angle, one time. */
Test(depthai, other_forms_of_v2)
{
    static const int64_t fb[8] = {22, 64, 48, 80, 1, 0, 0, 0}, none[8] = {33};

    for (int bits = 0; bits < 32; bits++) {
        const bool source = bits & 1, cam = bits & 2, angle = bits & 4, device = bits & 8,
                   more = bits & 16;
        static struct nop n;
        clb_depthai_info info;

        n.size = 0;
        nop_struct(&n, 5u + source + cam + angle + device + more);
        nop_fb(&n, fb);
        if (source)
            nop_fb(&n, none);
        if (cam)
            nop_cam(&n, 4);
        if (angle)
            nop_fixed(&n, 0x88, 0, 4);
        nop_int(&n, 3);
        nop_int(&n, 2);
        nop_int(&n, 1234);
        nop_time(&n, 5, 6);
        if (device)
            nop_time(&n, 7, 8);
        if (more)
            nop_array(&n, 0);
        for (int r = CLB_DEPTHAI_ANY; r <= CLB_DEPTHAI_V2; r++) {
            cr_assert_eq(
                parse_at_wall(&info, n.bytes, n.size, 5760, 1, (enum clb_depthai_release)r), CLB_OK,
                "%d", bits);
            cr_expect(info.kind == CLB_DEPTHAI_FRAME && info.image.fmt == CLB_PIXFMT_NV12);
            cr_expect_eq(info.category, 3);
            cr_expect_eq(info.camera_socket, 2);
            cr_expect_eq(info.sequence_num, 1234);
            cr_expect_eq(info.ts_ns, INT64_C(5000000006));
            cr_expect_eq(info.ts_device_ns, device ? INT64_C(7000000008) : 0);
            cr_expect_eq(info.iso, cam ? 2 : 0);
        }
    }
}

Test(depthai, the_frame_of_an_unknown_number)
{
    clb_depthai_info info;
    struct trailer t;

    for (size_t i = 0; i < sample_count; i++) {
        const struct sample *s = &samples[i];
        sample_load(&t, s);
        t.object_type = 77;
        cr_assert_eq(parse(&info, s, &t, CLB_DEPTHAI_ANY), CLB_OK, "%s", s->file);
        cr_expect_eq(info.object_type, 77);
        cr_expect_eq(info.kind,
                     s->expect.kind == CLB_DEPTHAI_FRAME && s->release != CLB_DEPTHAI_V2
                         ? CLB_DEPTHAI_FRAME
                         : CLB_DEPTHAI_OTHER,
                     "%s: kind %d", s->file, info.kind);
        cr_assert_eq(parse(&info, s, &t, s->release), CLB_OK);
        cr_expect_eq(info.kind, CLB_DEPTHAI_OTHER, "%s: the table of a release decides", s->file);
    }
}

/* A number that means one thing in one release and the form of something else. */
Test(depthai, nothing_becomes_a_frame_by_accident)
{
    clb_depthai_info info;
    struct trailer t;

    for (size_t i = 0; i < sample_count; i++) {
        const struct sample *s = &samples[i];
        if (s->expect.kind == CLB_DEPTHAI_FRAME)
            continue;
        sample_load(&t, s);
        for (t.object_type = -1; t.object_type < 60; t.object_type++)
            for (int r = 0; r <= CLB_DEPTHAI_V3_10; r++)
                if (parse(&info, s, &t, (enum clb_depthai_release)r) == CLB_OK)
                    cr_expect(info.kind != CLB_DEPTHAI_FRAME && info.image.fmt == 0,
                              "%s as type %d, release %d", s->file, t.object_type, r);
    }
}

Test(depthai, numbers_of_split_and_group)
{
    static const struct {
        enum clb_depthai_release release;
        int32_t split[2], group[2];
    } rows[] = {
        {CLB_DEPTHAI_ANY, {48, 51}, {27, 28}},   {CLB_DEPTHAI_ANY, {48, 51}, {24, 28}},
        {CLB_DEPTHAI_V3_0, {-1, -1}, {24, 24}},  {CLB_DEPTHAI_V3_4, {48, 48}, {27, 27}},
        {CLB_DEPTHAI_V3_6, {48, 51}, {27, 28}},  {CLB_DEPTHAI_V3_8, {48, 51}, {27, 28}},
        {CLB_DEPTHAI_V3_10, {51, 51}, {28, 28}},
    };
    const struct sample *split = sample_named("encoder/packetized-v3.trailer.bin");
    const struct sample *group = sample_named("v3.10/messagegroup-2.trailer.bin");
    clb_depthai_info info;
    struct trailer s, g;

    sample_load(&s, split);
    sample_load(&g, group);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int n = 0; n < 2; n++) {
            s.object_type = rows[i].split[n];
            cr_assert_eq(parse(&info, split, &s, rows[i].release), CLB_OK);
            cr_expect_eq(info.kind, s.object_type < 0 ? CLB_DEPTHAI_OTHER : CLB_DEPTHAI_SPLIT,
                         "row %zu", i);
            g.object_type = rows[i].group[n];
            cr_assert_eq(parse(&info, group, &g, rows[i].release), CLB_OK);
            cr_expect_eq(info.kind, CLB_DEPTHAI_GROUP, "row %zu", i);
        }
    }
    /* The other release's numbers are other messages: ToFConfig, MapData ... */
    s.object_type = 51;
    cr_assert_eq(parse(&info, split, &s, CLB_DEPTHAI_V3_4), CLB_OK);
    cr_expect_eq(info.kind, CLB_DEPTHAI_OTHER);
    g.object_type = 27;
    cr_assert_eq(parse(&info, group, &g, CLB_DEPTHAI_V3_10), CLB_OK);
    cr_expect_eq(info.kind, CLB_DEPTHAI_OTHER);
    cr_expect_eq(info.group_members, 0);
}

/* An announcement has no pixels and announces something. */
Test(depthai, splits_that_cannot_be)
{
    static const struct {
        int64_t packets, bytes;
        size_t data;
        int rc;
    } rows[] = {
        {3, 3, 0, CLB_OK},          {1, UINT32_MAX, 0, CLB_OK},
        {0, 100, 0, CLB_ERR_PROTO}, {4, 3, 0, CLB_ERR_PROTO},
        {-1, 3, 0, CLB_ERR_PROTO},  {3, (int64_t)UINT32_MAX + 1, 0, CLB_ERR_PROTO},
        {3, 12, 1, CLB_ERR_PROTO},
    };
    clb_depthai_info info;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct nop n = {0};
        nop_struct(&n, 2);
        nop_int(&n, rows[i].packets);
        nop_int(&n, rows[i].bytes);
        const int rc = parse_at_wall(&info, n.bytes, n.size, rows[i].data, 48, CLB_DEPTHAI_V3_4);
        cr_expect_eq(rc, rows[i].rc, "row %zu: %d", i, rc);
        if (rc == CLB_OK)
            cr_expect(info.split_packets == rows[i].packets && info.split_bytes == rows[i].bytes);
    }
}

Test(depthai, metadata_of_no_bytes_is_nothing_special)
{
    for (int32_t type = 0; type < 60; type++) {
        clb_depthai_info info;
        memset(&info, 0x5A, sizeof info);
        cr_assert_eq(
            clb_depthai_parse(&info, sizeof info, clb_depthai_parse_params(.object_type = type)),
            CLB_OK);
        cr_expect_eq(info.kind, CLB_DEPTHAI_OTHER);
        cr_expect_eq(info.object_type, type);
        cr_expect_eq(info.frame_type, -1);
        cr_expect_eq(info.image.fmt, 0);
    }
}

Test(depthai, arguments)
{
    static const uint8_t big[51201] = {0xB9};
    struct {
        clb_depthai_parse_params p;
        int more;
    } grown = {.p = {.struct_size = sizeof grown}};
    clb_depthai_info info, before;
    union {
        clb_depthai_info info;
        uint8_t bytes[sizeof(clb_depthai_info) + 8];
    } larger;
    clb_depthai_parse_params p = {0};

    memset(&info, 0x5A, sizeof info);
    before = info;
    cr_expect_eq(clb_depthai_parse(NULL, sizeof info, &p), CLB_ERR_INVAL);
    cr_expect_eq(clb_depthai_parse(&info, 0, &p), CLB_ERR_INVAL);
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, NULL), CLB_ERR_INVAL);
    p.metadata_size = 1;
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, &p), CLB_ERR_INVAL, "size without bytes");
    p.metadata = big;
    p.metadata_size = sizeof big;
    p.object_type = 77;
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, &p), CLB_ERR_INVAL);
    p.metadata_size = 0;
    p.release = (enum clb_depthai_release)(CLB_DEPTHAI_V3_10 + 1);
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, &p), CLB_ERR_INVAL);
    p.release = CLB_DEPTHAI_ANY;
    p.struct_size = sizeof p - 1;
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, &p), CLB_ERR_INVAL);
    grown.more = 1;
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, &grown.p), CLB_ERR_INVAL);
    cr_expect_eq(memcmp(&info, &before, sizeof info), 0, "written on success only");
    grown.more = 0;
    cr_expect_eq(clb_depthai_parse(&info, sizeof info, &grown.p), CLB_OK);

    /* A caller that knows fewer members, and one that knows more. */
    p.struct_size = 0;
    p.metadata_size = sizeof big - 1;
    info = before;
    cr_expect_eq(clb_depthai_parse(&info, sizeof(int32_t), &p), CLB_OK);
    cr_expect_eq(info.object_type, 77);
    cr_expect_eq(memcmp((char *)&info + 4, (char *)&before + 4, sizeof info - 4), 0);
    memset(&larger, 0x5A, sizeof larger);
    cr_expect_eq(clb_depthai_parse(&larger.info, sizeof larger, &p), CLB_OK);
    for (size_t i = sizeof info; i < sizeof larger; i++)
        cr_expect_eq(larger.bytes[i], 0);
}
