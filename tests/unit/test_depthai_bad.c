/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata that is cut, changed or lying: malformed, and nothing outside of it is read. */
#include "depthai_kit.h"
#include "nop_kit.h"

#include <criterion/criterion.h>
#include <string.h>

static const int64_t nv12[8] = {22, 64, 48, 80, 1, 0, 0, 0};

static int parse(clb_depthai_info *info, const struct nop *n, size_t data_size, int32_t type,
                 enum clb_depthai_release release)
{
    return parse_at_wall(info, n->bytes, n->size, data_size, type, release);
}

static void expect_sane(const clb_depthai_info *info, int rc, size_t data_size)
{
    cr_assert(rc == CLB_OK || rc == CLB_ERR_PROTO, "%d", rc);
    if (rc == CLB_OK && info->image.fmt != CLB_PIXFMT_UNKNOWN)
        cr_assert_eq(clb_image_check(&info->image, data_size), CLB_OK);
}

/* One structure fills the metadata: a part of it is never taken for the whole. */
Test(depthai_bad, every_truncation)
{
    clb_depthai_info info;
    struct trailer t;

    for (size_t i = 0; i < sample_count; i++) {
        const struct sample *s = &samples[i];
        sample_load(&t, s);
        for (size_t n = 0; n < t.metadata; n++)
            for (int r = 0; r <= CLB_DEPTHAI_V3_10; r++) {
                const int rc = parse_at_wall(&info, t.bytes, n, s->data_size, t.object_type,
                                             (enum clb_depthai_release)r);
                expect_sane(&info, rc, s->data_size);
                if (r == (int)s->release || r == CLB_DEPTHAI_ANY)
                    cr_assert_eq(
                        rc, n == 0 || s->expect.kind == CLB_DEPTHAI_OTHER ? CLB_OK : CLB_ERR_PROTO,
                        "%s, %zu bytes, release %d: %d", s->file, n, r, rc);
            }
    }
}

Test(depthai_bad, bytes_behind_the_structure)
{
    clb_depthai_info info;
    struct trailer t;

    for (size_t i = 0; i < sample_count; i++) {
        const struct sample *s = &samples[i];
        sample_load(&t, s);
        /* The tail follows: object type, size, mark. */
        const int rc =
            parse_at_wall(&info, t.bytes, t.metadata + 1, s->data_size, t.object_type, s->release);
        cr_expect_eq(rc, s->expect.kind == CLB_DEPTHAI_OTHER ? CLB_OK : CLB_ERR_PROTO, "%s: %d",
                     s->file, rc);
    }
}

Test(depthai_bad, every_change_of_one_byte)
{
    clb_depthai_info info;
    struct trailer t;
    size_t refused = 0;

    for (size_t i = 0; i < sample_count; i++) {
        const struct sample *s = &samples[i];
        sample_load(&t, s);
        for (size_t at = 0; at < t.metadata; at++) {
            const uint8_t was = t.bytes[at];
            for (int v = 0; v < 256; v++) {
                t.bytes[at] = (uint8_t)v;
                const int rc = parse_at_wall(&info, t.bytes, t.metadata, s->data_size,
                                             t.object_type, v & 1 ? s->release : CLB_DEPTHAI_ANY);
                expect_sane(&info, rc, s->data_size);
                refused += rc != CLB_OK;
            }
            t.bytes[at] = was;
        }
    }
    cr_expect_gt(refused, 10000);
}

/* A number whose release is known and another form: malformed. Without a release: something else. */
Test(depthai_bad, another_form_than_the_number_says)
{
    static const struct {
        int32_t type;
        enum clb_depthai_release release;
        int rc;
    } rows[] = {
        {0, CLB_DEPTHAI_V2, CLB_ERR_PROTO},
        {1, CLB_DEPTHAI_V2, CLB_ERR_PROTO},
        {2, CLB_DEPTHAI_V2, CLB_OK},
        {1, CLB_DEPTHAI_V3_4, CLB_ERR_PROTO},
        {2, CLB_DEPTHAI_V3_4, CLB_ERR_PROTO},
        {3, CLB_DEPTHAI_V3_4, CLB_ERR_PROTO},
        {27, CLB_DEPTHAI_V3_4, CLB_ERR_PROTO},
        {48, CLB_DEPTHAI_V3_4, CLB_ERR_PROTO},
        {27, CLB_DEPTHAI_V3_8, CLB_OK},
        {48, CLB_DEPTHAI_V3_8, CLB_OK},
        {28, CLB_DEPTHAI_V3_10, CLB_ERR_PROTO},
        {51, CLB_DEPTHAI_V3_10, CLB_ERR_PROTO},
        {0, CLB_DEPTHAI_ANY, CLB_OK},
        {1, CLB_DEPTHAI_ANY, CLB_OK},
        {2, CLB_DEPTHAI_ANY, CLB_OK},
        {3, CLB_DEPTHAI_ANY, CLB_OK},
        {48, CLB_DEPTHAI_ANY, CLB_OK},
        {28, CLB_DEPTHAI_ANY, CLB_OK},
    };
    static struct nop n;
    clb_depthai_info info;

    nop_struct(&n, 2); /* a float and a text: the beginning of no message */
    nop_fixed(&n, 0x88, 0, 4);
    nop_byte(&n, 0xBD);
    nop_byte(&n, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int rc = parse(&info, &n, 1000, rows[i].type, rows[i].release);
        cr_expect_eq(rc, rows[i].rc, "type %d, release %d: %d", rows[i].type, rows[i].release, rc);
        if (rc == CLB_OK)
            cr_expect_eq(info.kind, CLB_DEPTHAI_OTHER);
    }
}

/* Members that were added by releases to come are skipped, however many. */
Test(depthai_bad, members_that_nobody_knows_yet)
{
    static struct nop n;
    clb_depthai_info info;

    for (int times = 1; times <= 5; times++)
        for (uint32_t cam = 5; cam <= 11; cam++)
            for (uint32_t more = 0; more <= 40; more += 8) {
                nop_frame(&n, nv12, times, cam, more);
                const int rc = parse(&info, &n, 5760, 2, CLB_DEPTHAI_ANY);
                cr_assert_eq(rc, CLB_OK, "%d times, cam %u, %u more: %d", times, cam, more, rc);
                cr_expect_eq(info.kind, CLB_DEPTHAI_FRAME);
                cr_expect_eq(info.image.fmt, CLB_PIXFMT_NV12, "cam %u", cam);
                cr_expect_eq(info.image.width, 64);
                cr_expect_eq(info.sequence_num, 4321);
                cr_expect_eq(info.ts_ns, INT64_C(100000000000));
                cr_expect_eq(info.ts_device_ns, times > 1 ? INT64_C(101000000001) : 0);
                cr_expect_eq(info.ts_system_ns, times > 2 ? INT64_C(102000000002) : 0);
                cr_expect_eq(info.exposure_us, 1);
                cr_expect_eq(info.wb_color_temp, 4);
                cr_expect_float_eq(info.lens_position_raw, 0.25f, 1e-9f);
                cr_expect_eq(info.category, 7);
                cr_expect_eq(info.camera_socket, 2);
            }
}

/* Under a number that is in no table, what only begins as a frame does is none, and no error. */
Test(depthai_bad, almost_a_frame)
{
    static struct nop n;
    clb_depthai_info info;

    for (uint32_t members = 0; members <= 12; members++) {
        nop_frame(&n, nv12, 2, 5, 1);
        n.size--; /* in the place of transformation */
        nop_struct(&n, members);
        for (uint32_t i = 0; i < members; i++)
            nop_int(&n, 0);
        cr_assert_eq(parse(&info, &n, 5760, 77, CLB_DEPTHAI_ANY), CLB_OK, "%u", members);
        cr_expect_eq(info.kind, members >= 11 ? CLB_DEPTHAI_FRAME : CLB_DEPTHAI_OTHER, "%u",
                     members);
    }
    n.size = 0;
    nop_struct(&n, 2);
    nop_time(&n, 1, 1);
    nop_time(&n, 1, -1);
    cr_assert_eq(parse(&info, &n, 5760, 77, CLB_DEPTHAI_ANY), CLB_OK);
    cr_expect_eq(info.kind, CLB_DEPTHAI_OTHER);
    n.size--;
    cr_assert_eq(parse(&info, &n, 5760, 77, CLB_DEPTHAI_ANY), CLB_OK, "malformed, but not ours");
}

/* A frame that ends before what must be in it. */
Test(depthai_bad, members_that_are_missing)
{
    static struct nop n;
    clb_depthai_info info;

    /* Members of the outermost structure: 3 times, number, fb, sourceFb, cam, category, instance. */
    for (uint32_t keep = 1; keep <= 9; keep++) {
        struct nop part;
        nop_frame(&n, nv12, 3, 5, 0);
        part.size = 0;
        nop_struct(&part, keep);
        static const int64_t none[8] = {33};
        for (uint32_t i = 0; i < keep; i++) {
            if (i < 3)
                nop_time(&part, 1, 1);
            else if (i == 4 || i == 5)
                nop_fb(&part, i == 4 ? nv12 : none);
            else if (i == 6)
                nop_cam(&part, 5);
            else
                nop_int(&part, 1);
        }
        const int rc = parse(&info, &part, 5760, 2, CLB_DEPTHAI_ANY);
        cr_expect_eq(rc, keep == 9 ? CLB_OK : CLB_ERR_PROTO, "%u members: %d", keep, rc);
    }
    nop_frame(&n, nv12, 2, 4, 0);
    cr_expect_eq(parse(&info, &n, 5760, 2, CLB_DEPTHAI_V3_4), CLB_OK, "cam of 4 has no float");
    nop_frame(&n, nv12, 2, 3, 0);
    cr_expect_eq(parse(&info, &n, 5760, 2, CLB_DEPTHAI_V3_4), CLB_ERR_PROTO);
}

Test(depthai_bad, times)
{
    static const struct {
        int64_t sec, nsec, ns;
        int rc;
    } rows[] = {
        {0, 0, 0, CLB_OK},
        {1, 999999999, 1999999999, CLB_OK},
        {1, 1000000000, 0, CLB_ERR_PROTO},
        {1, -1, 0, CLB_ERR_PROTO},
        {-1, 5, -999999995, CLB_OK},
        {INT64_C(9223372036), 854775807, INT64_MAX, CLB_OK},
        {INT64_C(9223372036), 854775808, 0, CLB_ERR_PROTO},
        {INT64_C(9223372037), 0, 0, CLB_ERR_PROTO},
        {INT64_C(-9223372036), 0, INT64_C(-9223372036000000000), CLB_OK},
        {INT64_C(-9223372037), 0, 0, CLB_ERR_PROTO},
        {INT64_MAX, 0, 0, CLB_ERR_PROTO},
        {INT64_MIN, 0, 0, CLB_ERR_PROTO},
        {0, INT64_MIN, 0, CLB_ERR_PROTO},
    };
    clb_depthai_info info;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct nop n;
        n.size = 0;
        nop_struct(&n, 2);
        nop_int(&n, 1);
        nop_time(&n, rows[i].sec, rows[i].nsec);
        const int rc = parse(&info, &n, 0, 1, CLB_DEPTHAI_V3_4);
        cr_expect_eq(rc, rows[i].rc, "row %zu: %d", i, rc);
        if (rc == CLB_OK)
            cr_expect_eq(info.ts_ns, rows[i].ns, "row %zu", i);
    }
}

/* Numbers that do not fit where they go, in every place of fb. */
Test(depthai_bad, numbers_out_of_range)
{
    static struct nop n;
    clb_depthai_info info;

    for (int i = 0; i < 8; i++) {
        static const int64_t bad[] = {-1, INT64_C(0x100000000), INT64_MIN, INT64_MAX};
        for (size_t k = 0; k < 4; k++) {
            int64_t fb[8];
            memcpy(fb, nv12, sizeof fb);
            fb[i] = bad[k];
            nop_frame(&n, fb, 2, 5, 0);
            cr_expect_eq(parse(&info, &n, 5760, 2, CLB_DEPTHAI_V3_4), CLB_ERR_PROTO,
                         "member %d, value %zu", i, k);
        }
    }
    /* u64 above what an i64 holds, as a sequence number. */
    n.size = 0;
    nop_struct(&n, 2);
    nop_fixed(&n, 0x83, UINT64_C(1) << 63, 8);
    nop_time(&n, 1, 1);
    cr_expect_eq(parse(&info, &n, 0, 1, CLB_DEPTHAI_V3_4), CLB_ERR_PROTO);
}
