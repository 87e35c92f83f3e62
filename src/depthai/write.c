/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the trailer of an ImgFrame (wire sections 9.1 to 9.3) in the layouts of 3.4 and 3.10, every
 * integer in the shortest form that its sign and value allow, as libnop does.
 */
#include "fb.h"
#include "nop.h"

#include <clbridge/depthai.h>

#include <string.h>

#define SECOND INT64_C(1000000000)
#define OBJECT_TYPE 2 /* ImgFrame, in every release of v3 */

static const uint8_t end_mark[16] = {0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89,
                                     0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0};

/* What does not fit is counted and not written. */
struct out {
    uint8_t *data;
    size_t cap, size;
};

static void put(struct out *o, const void *data, size_t size)
{
    if (o->size <= o->cap && size <= o->cap - o->size && size > 0)
        memcpy(o->data + o->size, data, size);
    o->size += size;
}

static void put_byte(struct out *o, uint8_t byte)
{
    put(o, &byte, 1);
}

static void put_le(struct out *o, uint64_t value, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        put_byte(o, (uint8_t)(value >> (8 * i) & 0xFF));
}

static void put_unsigned(struct out *o, uint64_t value)
{
    const uint8_t wide = value <= UINT8_MAX    ? 0
                         : value <= UINT16_MAX ? 1
                         : value <= UINT32_MAX ? 2
                                               : 3;

    if (value > 0x7F)
        put_byte(o, (uint8_t)(0x80 + wide));
    put_le(o, value, 1u << wide);
}

static void put_signed(struct out *o, int64_t value)
{
    uint8_t wide = 3;

    if (value >= -64 && value <= 0x7F) {
        put_le(o, (uint64_t)value, 1);
        return;
    }
    if (value >= INT8_MIN && value <= INT8_MAX)
        wide = 0;
    else if (value >= INT16_MIN && value <= INT16_MAX)
        wide = 1;
    else if (value >= INT32_MIN && value <= INT32_MAX)
        wide = 2;
    put_byte(o, (uint8_t)(0x84 + wide));
    put_le(o, (uint64_t)value, 1u << wide);
}

static void put_float(struct out *o, float value)
{
    uint32_t raw;

    memcpy(&raw, &value, sizeof raw);
    put_byte(o, 0x88);
    put_le(o, raw, 4);
}

static void put_nil(struct out *o)
{
    put_byte(o, 0xBE);
}

static void put_struct(struct out *o, uint8_t members)
{
    put_byte(o, 0xB9);
    put_byte(o, members);
}

static void put_array(struct out *o, uint8_t elements)
{
    put_byte(o, 0xBA);
    put_byte(o, elements);
}

static void put_time(struct out *o, int64_t ns)
{
    put_struct(o, 2);
    put_signed(o, ns / SECOND);
    put_signed(o, ns % SECOND);
}

static void put_fb(struct out *o, const struct clbi_fb *fb)
{
    put_struct(o, CLBI_FB_NUMBERS);
    put_signed(o, fb->type);
    put_unsigned(o, fb->width);
    put_unsigned(o, fb->height);
    put_unsigned(o, fb->stride);
    put_unsigned(o, fb->bytes_pp);
    for (int i = 0; i < 3; i++)
        put_unsigned(o, fb->offset[i]);
}

static void put_cam(struct out *o, const clb_depthai_write_params *p, bool v3_10)
{
    put_struct(o, v3_10 ? 9 : 5);
    put_signed(o, p->exposure_us);
    put_signed(o, p->iso);
    put_signed(o, p->lens_position);
    put_signed(o, p->wb_color_temp);
    put_float(o, p->lens_position_raw);
    if (!v3_10)
        return;
    /* As depthai leaves them when nobody set them: frame sync, sensor mode, frames per second,
     * temperature of the sensor. */
    put_signed(o, 0);
    put_signed(o, -1);
    put_float(o, -1.0f);
    put_nil(o);
}

static void put_vector(struct out *o)
{
    put_struct(o, 3);
    for (int i = 0; i < 3; i++)
        put_float(o, 0.0f);
}

/* The pixels are those of the sensor: nothing was scaled, cut out or turned. */
static void put_identity(struct out *o, const struct clb_image *img, bool v3_10)
{
    put_struct(o, v3_10 ? 12 : 11);
    if (v3_10) { /* extrinsics to no other camera */
        put_struct(o, 6);
        put_array(o, 0);
        put_vector(o);
        put_vector(o);
        put_signed(o, -1);
        put_signed(o, 1);
        put_byte(o, 0xBD);
        put_unsigned(o, 0);
    }
    for (int matrix = 0; matrix < 4; matrix++) {
        put_array(o, 3);
        for (int row = 0; row < 3; row++) {
            put_array(o, 3);
            for (int column = 0; column < 3; column++)
                put_float(o, row == column ? 1.0f : 0.0f);
        }
    }
    put_signed(o, 0); /* distortion: model, coefficients */
    put_array(o, 0);
    for (int i = 0; i < 2; i++) { /* of the source, of the image */
        put_unsigned(o, img->width);
        put_unsigned(o, img->height);
    }
    put_array(o, 0); /* crops of the source */
}

/* A trailer with a member of another form would be refused by its reader, or misread. */
static bool transformation_fits(const clb_depthai_write_params *p, bool v3_10)
{
    struct clbi_nop_members all;

    if (!p->transformation)
        return p->transformation_size == 0;
    return p->transformation_size <= CLBI_METADATA_MAX &&
           clbi_nop_members(&all, p->transformation, p->transformation_size) &&
           all.total == (v3_10 ? 12 : 11);
}

static int check(struct clbi_fb *fb, struct clbi_fb *source, const clb_depthai_write_params *p,
                 bool v3_10)
{
    const bool always = p->plane_offsets != 0;

    if (p->ts_ns < 0 || p->ts_device_ns < 0 || p->ts_system_ns < 0 ||
        (p->plane_offsets != 0 && p->plane_offsets != 1) || !transformation_fits(p, v3_10))
        return CLB_ERR_INVAL;
    if (clb_image_check(&p->image, SIZE_MAX) == CLB_OK && clbi_fb_type(p->image.fmt) < 0)
        return CLB_ERR_NOSYS;
    if (!clbi_fb_describe(fb, &p->image, always))
        return CLB_ERR_INVAL;
    if (p->bytes_pp != 0)
        fb->bytes_pp = p->bytes_pp;
    if (p->source.fmt == CLB_PIXFMT_UNKNOWN) {
        memset(source, 0, sizeof *source);
        source->type = CLBI_FB_NONE;
        return CLB_OK;
    }
    if (clb_image_check(&p->source, SIZE_MAX) == CLB_OK && clbi_fb_type(p->source.fmt) < 0)
        return CLB_ERR_NOSYS;
    return clbi_fb_describe(source, &p->source, always) ? CLB_OK : CLB_ERR_INVAL;
}

int clb_depthai_write(void *out, size_t cap, size_t *written,
                      const clb_depthai_write_params *params)
{
    clb_depthai_write_params p;
    struct clbi_fb fb, source;
    struct out o = {out, cap, 0};
    size_t metadata;
    bool v3_10;
    int rc;

    if ((!out && cap > 0) || !written || clbi_fb_params(&p, sizeof p, params) != CLB_OK ||
        (unsigned)p.release > CLB_DEPTHAI_V3_10)
        return CLB_ERR_INVAL;
    if (p.release != CLB_DEPTHAI_ANY && p.release != CLB_DEPTHAI_V3_4 &&
        p.release != CLB_DEPTHAI_V3_10)
        return CLB_ERR_NOSYS;
    v3_10 = p.release != CLB_DEPTHAI_V3_4;
    rc = check(&fb, &source, &p, v3_10);
    if (rc != CLB_OK)
        return rc;

    put_struct(&o, v3_10 ? 10 : 9);
    put_time(&o, p.ts_ns);
    put_time(&o, p.ts_device_ns);
    if (v3_10 && p.ts_system_ns != 0)
        put_time(&o, p.ts_system_ns);
    else if (v3_10)
        put_nil(&o);
    put_signed(&o, p.sequence_num);
    put_fb(&o, &fb);
    put_fb(&o, &source);
    put_cam(&o, &p, v3_10);
    put_unsigned(&o, p.category);
    put_unsigned(&o, p.camera_socket);
    if (p.transformation)
        put(&o, p.transformation, p.transformation_size);
    else
        put_identity(&o, &p.image, v3_10);
    metadata = o.size;
    if (metadata > CLBI_METADATA_MAX)
        return CLB_ERR_TOOBIG;
    put_le(&o, OBJECT_TYPE, 4);
    put_le(&o, metadata, 4);
    put(&o, end_mark, sizeof end_mark);
    if (o.size > cap)
        return CLB_ERR_TOOBIG;
    *written = o.size;
    return CLB_OK;
}
