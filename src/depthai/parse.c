/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What metadata says (wire section 9.3). The layouts grew inside one major release, so they are read
 * by form: which kinds of values follow each other in the outermost structure.
 *
 * What a message is comes from its number, but the numbers moved between releases. With a release
 * that is known, the number decides, and a message that has not the form of its number is malformed.
 * Without one (CLB_DEPTHAI_ANY) number and form decide together: a number that means something in some
 * release is taken for it only when the message also begins in that form, so that a v2 frame, whose
 * number 1 is v3's Buffer, is told from one by its first member. Many messages begin alike (sequence
 * number and times), so that the beginning alone never decides: a number that is in no table stands
 * for a frame only when all the ten forms of an ImgFrame follow each other, which no other message
 * has. All else is CLB_DEPTHAI_OTHER.
 */
#include "fb.h"
#include "nop.h"

#include <clbridge/depthai.h>

#include <string.h>

#define SECOND INT64_C(1000000000)

/* How the outermost structure of a message begins. */
enum form {
    FORM_FRAME_V3, /* a time */
    FORM_FRAME_V2, /* fb */
    FORM_ENCODED,  /* cam */
    FORM_BUFFER,   /* sequence number */
    FORM_SPLIT,    /* two numbers and nothing else, and no pixels */
    FORM_GROUP,    /* a map */
};

#define RELEASE(name) (1u << CLB_DEPTHAI_##name)
#define V2 RELEASE(V2)
#define V3_0 RELEASE(V3_0)
#define V3_4 RELEASE(V3_4)
#define V3_MIDDLE (RELEASE(V3_6) | RELEASE(V3_8))
#define V3_10 RELEASE(V3_10)
#define V3 (V3_0 | V3_4 | V3_MIDDLE | V3_10)

/* Sure: in these releases the number is this and nothing else, so that another form is an error. */
static const struct {
    int32_t number;
    enum form form;
    unsigned releases;
    unsigned sure;
} numbers[] = {
    {0, FORM_BUFFER, V2, V2},
    {1, FORM_FRAME_V2, V2, V2},
    {1, FORM_BUFFER, V3, V3},
    {2, FORM_FRAME_V3, V3, V3},
    {2, FORM_ENCODED, V2, 0}, /* early releases of v2 have NNData here */
    {3, FORM_ENCODED, V3, V3},
    {24, FORM_GROUP, V3_0, V3_0},
    {27, FORM_GROUP, V3_4 | V3_MIDDLE, V3_4},
    {28, FORM_GROUP, V3_MIDDLE | V3_10, V3_10},
    {48, FORM_SPLIT, V3_4 | V3_MIDDLE, V3_4},
    {51, FORM_SPLIT, V3_MIDDLE | V3_10, V3_10},
};

#define NUMBERS (sizeof numbers / sizeof *numbers)

struct message {
    struct clbi_nop_members all;
    size_t data_size;
    clb_depthai_info *info;
};

/* The member of that index; nil when there is none. */
static const struct clbi_nop_item *at(const struct message *m, uint32_t index)
{
    static const struct clbi_nop_item none = {.kind = CLBI_NOP_NIL};

    return index < m->all.count ? &m->all.member[index] : &none;
}

static bool is_int(const struct message *m, uint32_t index)
{
    return at(m, index)->kind == CLBI_NOP_INT;
}

/* A structure of at least so many members. */
static bool is_struct(const struct message *m, uint32_t index, uint32_t members)
{
    return at(m, index)->kind == CLBI_NOP_STRUCT && at(m, index)->count >= members;
}

static bool is_fb(const struct message *m, uint32_t index)
{
    return is_struct(m, index, CLBI_FB_NUMBERS) && at(m, index)->count == CLBI_FB_NUMBERS;
}

static bool is_time(const struct message *m, uint32_t index)
{
    return is_struct(m, index, 2) && at(m, index)->count == 2;
}

/* A time, or an optional one that is not set. */
static bool is_stamp(const struct message *m, uint32_t index)
{
    return is_time(m, index) || (index < m->all.count && at(m, index)->kind == CLBI_NOP_NIL);
}

static bool to_u32(uint32_t *out, int64_t value)
{
    *out = (uint32_t)value;
    return value >= 0 && value <= UINT32_MAX;
}

static bool to_i32(int32_t *out, int64_t value)
{
    if (value < INT32_MIN || value > INT32_MAX)
        return false;
    *out = (int32_t)value;
    return true;
}

static bool get_u32(const struct message *m, uint32_t index, uint32_t *out)
{
    return is_int(m, index) && !at(m, index)->beyond && to_u32(out, at(m, index)->i);
}

static bool get_i64(const struct message *m, uint32_t index, int64_t *out)
{
    *out = at(m, index)->i;
    return is_int(m, index) && !at(m, index)->beyond;
}

static bool get_time(const struct message *m, uint32_t index, int64_t *out)
{
    int64_t part[2];

    if (!clbi_nop_ints(part, 2, at(m, index), m->all.end) || part[1] < 0 || part[1] >= SECOND ||
        part[0] > (INT64_MAX - part[1]) / SECOND || part[0] < INT64_MIN / SECOND)
        return false;
    *out = part[0] * SECOND + part[1];
    return true;
}

/* The run of times that begins at *index: host, device, system. Moves *index behind it. */
static bool get_times(const struct message *m, uint32_t *index)
{
    int64_t *const place[] = {&m->info->ts_ns, &m->info->ts_device_ns, &m->info->ts_system_ns};

    for (uint32_t i = 0; is_stamp(m, *index); i++, ++*index)
        if (i < sizeof place / sizeof *place && is_time(m, *index) &&
            !get_time(m, *index, place[i]))
            return false;
    return true;
}

/* Camera settings: four integers, and a float from some release of v2 on. */
static bool get_cam(const struct message *m, uint32_t index)
{
    struct clbi_nop c;
    struct clbi_nop_item item;
    int64_t number[4];

    if (!is_struct(m, index, 4) || !clbi_nop_ints(number, 4, at(m, index), m->all.end) ||
        !to_i32(&m->info->iso, number[1]) || !to_i32(&m->info->lens_position, number[2]) ||
        !to_i32(&m->info->wb_color_temp, number[3]))
        return false;
    m->info->exposure_us = number[0];
    if (at(m, index)->count == 4)
        return true;
    clbi_nop_init(&c, at(m, index)->at, (size_t)(m->all.end - at(m, index)->at));
    for (int i = 0; i < 6; i++)
        if (!clbi_nop_next(&c, &item))
            return false;
    m->info->lens_position_raw = (float)item.f;
    return item.kind == CLBI_NOP_FLOAT;
}

static bool get_fb(const struct message *m, uint32_t index)
{
    int64_t number[CLBI_FB_NUMBERS];
    struct clbi_fb fb;

    if (!is_fb(m, index) || !clbi_nop_ints(number, CLBI_FB_NUMBERS, at(m, index), m->all.end) ||
        !to_i32(&fb.type, number[0]) || fb.type < 0 || !to_u32(&fb.width, number[1]) ||
        !to_u32(&fb.height, number[2]) || !to_u32(&fb.stride, number[3]) ||
        !to_u32(&fb.bytes_pp, number[4]))
        return false;
    for (uint32_t i = 0; i < 3; i++)
        if (!to_u32(&fb.offset[i], number[5 + i]))
            return false;
    m->info->frame_type = fb.type;
    return clbi_fb_image(&m->info->image, &fb, m->data_size);
}

/* The next structure at or behind index; the number of members when there is none. */
static uint32_t next_struct(const struct message *m, uint32_t index)
{
    while (index < m->all.count && !is_struct(m, index, 0))
        index++;
    return index;
}

/* Times, sequence number, fb, sourceFb, cam, category, instance. In one release cam is a structure of
 * 8 as well: the first one is fb. */
static bool read_frame_v3(const struct message *m)
{
    uint32_t i = 0;

    if (!is_stamp(m, 0) || !get_times(m, &i) || !get_i64(m, i, &m->info->sequence_num))
        return false;
    while (i < m->all.count && !is_fb(m, i))
        i++;
    if (!get_fb(m, i))
        return false;
    i = next_struct(m, i + 1);
    if (!is_fb(m, i))
        return false;
    i = next_struct(m, i + 1);
    return get_cam(m, i) && get_u32(m, i + 1, &m->info->category) &&
           get_u32(m, i + 2, &m->info->camera_socket);
}

/* fb, perhaps sourceFb, perhaps cam, perhaps the angle of view, category, instance, ..., sequence
 * number, time, perhaps the device's time. */
static bool read_frame_v2(const struct message *m)
{
    uint32_t i = 1, seq;

    if (!get_fb(m, 0))
        return false;
    if (is_fb(m, i))
        i++;
    if (is_struct(m, i, 4) && !get_cam(m, i++))
        return false;
    if (at(m, i)->kind == CLBI_NOP_FLOAT)
        i++;
    for (seq = i; !(is_int(m, seq) && is_time(m, seq + 1)); seq++)
        if (seq >= m->all.count)
            return false;
    if (!get_i64(m, seq, &m->info->sequence_num) ||
        (i < seq && !get_u32(m, i, &m->info->category)) ||
        (i + 1 < seq && !get_u32(m, i + 1, &m->info->camera_socket)))
        return false;
    seq++;
    return get_times(m, &seq);
}

/* cam, instance, numbers of the encoder, ..., sequence number, times. */
static bool read_encoded(const struct message *m)
{
    uint32_t i, seq;

    if (!get_cam(m, 0) || !get_u32(m, 1, &m->info->camera_socket))
        return false;
    /* The size is there only in v3, where ten numbers stand before the transformation. */
    i = next_struct(m, 1);
    if (i == 11 && !is_time(m, i) &&
        (!get_u32(m, 2, &m->info->image.width) || !get_u32(m, 3, &m->info->image.height)))
        return false;
    for (seq = 2; !(is_int(m, seq) && is_time(m, seq + 1)); seq++)
        if (seq >= m->all.count)
            return false;
    if (!get_i64(m, seq++, &m->info->sequence_num))
        return false;
    return get_times(m, &seq);
}

static bool read_buffer(const struct message *m)
{
    uint32_t i = 1;

    return get_i64(m, 0, &m->info->sequence_num) && is_stamp(m, 1) && get_times(m, &i);
}

static bool read_split(const struct message *m)
{
    /* What is split is a whole message, so that no part can be empty. */
    return m->data_size == 0 && get_u32(m, 0, &m->info->split_packets) &&
           get_u32(m, 1, &m->info->split_bytes) && m->info->split_packets > 0 &&
           m->info->split_packets <= m->info->split_bytes;
}

/* A map with one entry per member, times, sequence number. */
static bool read_group(const struct message *m)
{
    uint32_t i = 1;

    if (at(m, 0)->kind != CLBI_NOP_MAP)
        return false;
    m->info->group_members = at(m, 0)->count;
    return get_times(m, &i) && (!is_int(m, i) || get_i64(m, i, &m->info->sequence_num));
}

static bool begins(const struct message *m, enum form form)
{
    switch (form) {
    case FORM_FRAME_V3: return is_stamp(m, 0);
    case FORM_FRAME_V2: return is_fb(m, 0);
    case FORM_ENCODED: return is_struct(m, 0, 4);
    case FORM_BUFFER: return is_int(m, 0);
    case FORM_SPLIT: return m->all.total == 2 && is_int(m, 0) && is_int(m, 1) && m->data_size == 0;
    case FORM_GROUP:
    default: return at(m, 0)->kind == CLBI_NOP_MAP;
    }
}

static int read(const struct message *m, enum form form)
{
    static const struct {
        enum clb_depthai_kind kind;
        bool (*read)(const struct message *m);
    } reader[] = {
        [FORM_FRAME_V3] = {CLB_DEPTHAI_FRAME, read_frame_v3},
        [FORM_FRAME_V2] = {CLB_DEPTHAI_FRAME, read_frame_v2},
        [FORM_ENCODED] = {CLB_DEPTHAI_ENCODED, read_encoded},
        [FORM_BUFFER] = {CLB_DEPTHAI_BUFFER, read_buffer},
        [FORM_SPLIT] = {CLB_DEPTHAI_SPLIT, read_split},
        [FORM_GROUP] = {CLB_DEPTHAI_GROUP, read_group},
    };

    m->info->kind = reader[form].kind;
    return reader[form].read(m) ? CLB_OK : CLB_ERR_PROTO;
}

/* All the forms of a v3 ImgFrame, one behind the other. */
static bool is_whole_frame(const struct message *m)
{
    uint32_t i = 0;

    if (!is_time(m, 0))
        return false;
    while (is_stamp(m, i))
        i++;
    return i >= 2 && i <= 3 && is_int(m, i) && is_fb(m, i + 1) && is_fb(m, i + 2) &&
           is_struct(m, i + 3, 5) && is_int(m, i + 4) && is_int(m, i + 5) &&
           is_struct(m, i + 6, 11);
}

/* Whether the number of this message has a meaning in one of these releases. */
static bool has_number(int32_t number, unsigned releases)
{
    for (size_t i = 0; i < NUMBERS; i++)
        if (numbers[i].number == number && (numbers[i].releases & releases))
            return true;
    return false;
}

static int recognise(struct message *m, const clb_depthai_parse_params *p)
{
    const bool any = p->release == CLB_DEPTHAI_ANY;
    const unsigned releases = any ? ~0u : 1u << p->release;
    const bool numbered = has_number(p->object_type, releases);
    struct clbi_nop_item first;

    /* What cannot be a frame is not looked into: it is none of our business whether it is well
     * formed. */
    if (!numbered && (!any || !clbi_nop_first(&first, p->metadata, p->metadata_size) ||
                      first.kind != CLBI_NOP_STRUCT || first.count != 2))
        return CLB_OK;
    if (!clbi_nop_members(&m->all, p->metadata, p->metadata_size))
        return numbered ? CLB_ERR_PROTO : CLB_OK;
    for (size_t i = 0; i < NUMBERS; i++) {
        if (numbers[i].number != p->object_type || !(numbers[i].releases & releases))
            continue;
        if (begins(m, numbers[i].form))
            return read(m, numbers[i].form);
        if (!any && (numbers[i].sure & releases))
            return CLB_ERR_PROTO;
    }
    return any && is_whole_frame(m) ? read(m, FORM_FRAME_V3) : CLB_OK;
}

int clb_depthai_parse(clb_depthai_info *out, size_t size, const clb_depthai_parse_params *params)
{
    clb_depthai_parse_params p;
    clb_depthai_info info;
    struct message m;
    int rc;

    if (!out || size == 0 || !params || clbi_fb_params(&p, sizeof p, params) != CLB_OK ||
        (!p.metadata && p.metadata_size > 0) || p.metadata_size > CLBI_METADATA_MAX ||
        (unsigned)p.release > CLB_DEPTHAI_V3_10)
        return CLB_ERR_INVAL;
    memset(&info, 0, sizeof info);
    info.object_type = p.object_type;
    info.frame_type = -1;
    if (p.metadata_size > 0) {
        m.data_size = p.data_size;
        m.info = &info;
        rc = recognise(&m, &p);
        if (rc != CLB_OK)
            return rc;
    }
    if (size > sizeof info) {
        memset((unsigned char *)out + sizeof info, 0, size - sizeof info);
        size = sizeof info;
    }
    memcpy(out, &info, size);
    return CLB_OK;
}
