/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are placed by what a camera's metadata says: learned, changed, wrong. */
#include "test_repitch.h"

/* Bytes that metadata varies by. */
#define META 200u

/* ---- with a trailer ---------------------------------------------------------------------------- */

struct cam {
    struct rig r;
    struct blob meta, whole;
    size_t pitch_align, plane_align;
};

static void cam_open(struct cam *c, clb_stream_params *sp, size_t pitch_align, size_t plane_align)
{
    *c = (struct cam){.pitch_align = pitch_align, .plane_align = plane_align};
    sp->trailer = CLB_TRAILER_DEPTHAI;
    sp->dst_pitch_align = pitch_align;
    sp->dst_plane_align = plane_align;
    mem_init(&c->r.mem);
    c->r.mem.stretch = true;
    rig_open(&c->r, sp, WINDOW);
}

static void cam_close(struct cam *c)
{
    rig_credited(&c->r);
    rig_close(&c->r);
    blob_free(&c->meta);
    blob_free(&c->whole);
}

static int frame_type(enum clb_pixfmt fmt)
{
    return fmt == CLB_PIXFMT_BGR24   ? FT_BGR888I
           : fmt == CLB_PIXFMT_NV12  ? FT_NV12
           : fmt == CLB_PIXFMT_I420  ? FT_YUV420P
           : fmt == CLB_PIXFMT_RGBP  ? FT_RGB888P
           : fmt == CLB_PIXFMT_RAW16 ? FT_RAW16
                                     : FT_GRAY8;
}

/* A frame of src with `extra` bytes behind its last row. Not read yet. */
static void cam_send(struct cam *c, unsigned seed, const struct clb_image *src, size_t extra,
                     size_t pad, size_t chunk)
{
    const uint32_t p1 = (uint32_t)src->plane[1].offset, p2 = (uint32_t)src->plane[2].offset;
    c->meta.n = 0;
    meta_frame(&c->meta, &(struct meta_frame){.type = frame_type(src->fmt),
                                              .width = src->width,
                                              .height = src->height,
                                              .stride = (uint32_t)src->plane[0].pitch,
                                              .p2 = p1,
                                              .p3 = p2,
                                              .seq = seed,
                                              .pad = pad});
    pack(&c->whole, seed, span(src) + extra, &c->meta, TYPE_FRAME);
    rig_send(&c->r, &c->whole, chunk);
}

static clb_packet *cam_read(struct cam *c, const struct clb_image *src)
{
    const struct clb_image dst = placed(src, c->pitch_align, c->plane_align);
    clb_packet *p = rig_read(&c->r);
    size_t size = 0;
    const void *m = clb_packet_metadata(p, &size);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_OK);
    CHECK_EQ(info_of(p).total, c->whole.n);
    CHECK_EQ(size, c->meta.n);
    CHECK_EQ(memcmp(m, c->meta.data, size), 0);
    check_rows(p, c->whole.data, src, &dst);
    return p;
}

/* A camera that says what it sends: the first two packets are copied, from the third on nothing is. */
static void learned(const struct clb_image *src, size_t extra, size_t pitch_align,
                    size_t plane_align, size_t chunk)
{
    static struct cam c;
    uint32_t rnd = 3;
    clb_stream_params sp = {0};
    cam_open(&c, &sp, pitch_align, plane_align);
    for (unsigned i = 0; i < 20; i++) {
        cam_send(&c, i, src, extra, pick(&rnd, META), chunk);
        clb_packet *p = cam_read(&c, src);
        if (i >= 2) {
            CHECK_EQ(info_of(p).spilled, 0);
            CHECK_EQ(info_of(p).moved_bytes + info_of(p).readback_bytes, 0);
            const struct clb_image dst = placed(src, pitch_align, plane_align);
            CHECK_EQ(c.r.mem.last.capacity, span(&dst));
        }
        clb_packet_free(&p);
    }
    const clb_stream_stats st = rig_stats(&c.r);
    CHECK_LE(st.spilled, 2);
    CHECK_LE(st.spill_bytes, 2 * (span(src) + extra));
    CHECK_EQ(st.readback_bytes, 0);
    CHECK_EQ(st.bad_metadata, 0);
    cam_close(&c);
}

static void learned_all(void)
{
    struct clb_image src = packed(CLB_PIXFMT_BGR24, 300, 300);
    learned(&src, 0, 64, 0, 0);
    src = packed(CLB_PIXFMT_GRAY8, 1, 1);
    learned(&src, 0, 64, 0, 1);
    src = packed(CLB_PIXFMT_NV12, 64, 48);
    src.plane[0].pitch = src.plane[1].pitch = 80; /* as a real camera's: stride 80 */
    src.plane[1].offset = 80 * 48;
    learned(&src, 16, 64, 256, 0);
    learned(&src, 0, 64, 0, 500);
    src = packed(CLB_PIXFMT_RAW16, 60, 40);
    src.plane[0].pitch = 128;
    learned(&src, 8, 256, 0, 0);
    src = packed(CLB_PIXFMT_RGBP, 10, 6);
    learned(&src, 0, 16, 64, 3);
}

/* Geometry by the application's word and a camera that agrees: not even the first is copied. A thousand
 * frames with metadata that jitters: nothing is moved, nothing read, nothing allocated. */
static void thousand(bool threaded)
{
    static struct cam c;
    uint32_t rnd = 8;
    uint64_t heap = 0;
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 30, 20);
    clb_stream_params sp = {.image = src};
    c = (struct cam){.pitch_align = 64};
    sp.trailer = CLB_TRAILER_AUTO;
    sp.dst_pitch_align = 64;
    c.r.threaded = threaded;
    mem_init(&c.r.mem);
    c.r.mem.stretch = true;
    rig_open(&c.r, &sp, WINDOW);
    for (unsigned i = 0; i < 1000; i++) {
        cam_send(&c, i, &src, 0, 1 + pick(&rnd, 2000), 0);
        clb_packet *p = cam_read(&c, &src);
        clb_packet_free(&p);
        clb_link_stats ls;
        clb_link_get_stats(c.r.link, &ls, sizeof ls);
        heap = i == 20 ? ls.heap_allocs : heap;
        CHECK(i < 20 || ls.heap_allocs == heap);
    }
    const clb_stream_stats st = rig_stats(&c.r);
    CHECK_EQ(st.packets, 1000);
    CHECK_EQ(st.moved_bytes + st.readback_bytes + st.spilled + st.spill_bytes, 0);
    cam_close(&c);
}

/* The camera changes its picture in the middle of the stream. Each is whole, wherever it was expected; a
 * change costs a copy or two, and is counted. */
static void geometry_changes(void)
{
    static struct cam c;
    struct clb_image src[6];
    clb_stream_params sp = {0};
    src[0] = packed(CLB_PIXFMT_BGR24, 40, 30);
    src[1] = packed(CLB_PIXFMT_BGR24, 30, 40); /* as many bytes, other rows */
    src[2] = packed(CLB_PIXFMT_GRAY8, 60, 60); /* likewise, another format */
    src[3] = packed(CLB_PIXFMT_BGR24, 38, 30);
    src[4] = packed(CLB_PIXFMT_NV12, 60, 40);  /* 3600 again */
    src[5] = packed(CLB_PIXFMT_GRAY8, 61, 60); /* half a row of src[0] more */
    cam_open(&c, &sp, 64, 0);
    uint64_t copied = 0;
    for (unsigned round = 0; round < 60; round++) {
        const struct clb_image *s = &src[(round * 5 + round / 6 * 2) % 6];
        for (unsigned i = 0; i < 1 + round % 5; i++) {
            cam_send(&c, round * 8 + i, s, 0, 40, 0);
            clb_packet *p = cam_read(&c, s);
            const clb_packet_info info = info_of(p);
            if (i >= 2) {
                CHECK_EQ(info.spilled, 0);
                CHECK_EQ(info.moved_bytes + info.readback_bytes, 0);
            }
            copied += info.moved_bytes + (info.spilled ? span(s) : 0);
            clb_packet_free(&p);
        }
    }
    const clb_stream_stats st = rig_stats(&c.r);
    CHECK_EQ(st.bad_metadata, 0);
    CHECK_EQ(st.alloc_failed, 0);
    CHECK_EQ(st.moved_bytes + st.spill_bytes, copied);
    CHECK_GT(copied, 0);
    cam_close(&c);
}

/* Rows that the peer pads: the padding is not kept, so that what was not what it was taken for cannot be put
 * together again. It is bad, has no image, and costs nothing but itself. */
static void thrown_away(void)
{
    static struct cam c;
    struct clb_image a = packed(CLB_PIXFMT_BGR24, 40, 30);
    const struct clb_image b = packed(CLB_PIXFMT_GRAY8, 62, 62);
    clb_stream_params sp = {0};
    a.plane[0].pitch = 128;
    CHECK_EQ(span(&a) + 12, span(&b)); /* 3844 bytes */
    cam_open(&c, &sp, 256, 0);
    for (unsigned round = 0; round < 6; round++) {
        clb_packet *p;
        for (unsigned i = 0; i < 4; i++) {
            cam_send(&c, i, &a, 12, 40, 0);
            p = i == 0 && round % 2 == 1 ? rig_read(&c.r) : cam_read(&c, &a);
            CHECK(i < 2 || info_of(p).spilled == 0);
            clb_packet_free(&p);
        }
        if (round % 2) {
            c.whole.data[c.whole.n - 18] ^= 0x80;
            rig_send(&c.r, &c.whole, 0);
        } else {
            cam_send(&c, 7, &b, 0, 40, 0);
        }
        p = rig_read(&c.r);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
        CHECK(clb_packet_image(p) == NULL);
        CHECK_EQ(info_of(p).total, c.whole.n);
        clb_packet_free(&p);
    }
    cam_close(&c);
}

/* Every buffer of the pool holds an unread picture that is not the expected one: each is moved within what
 * there is. What comes meanwhile does not take its place. */
static void changes_in_a_small_pool(void)
{
    static struct cam c;
    const struct clb_image a = packed(CLB_PIXFMT_BGR24, 40, 30),
                           b = packed(CLB_PIXFMT_BGR24, 30, 40);
    clb_stream_params sp = {0};
    cam_open(&c, &sp, 64, 0);
    c.r.mem.limit = 2;
    for (unsigned round = 0; round < 8; round++) {
        const struct clb_image *old = round % 2 ? &b : &a, *new = round % 2 ? &a : &b;
        for (unsigned i = 0; i < 3; i++) {
            cam_send(&c, i, old, 0, 40, 0);
            clb_packet *p = cam_read(&c, old);
            clb_packet_free(&p);
        }
        cam_send(&c, 9, new, 0, 40, 0);
        cam_send(&c, 9, new, 0, 40, 0);
        rig_arrived(&c.r, round * 6 + 5);
        clb_packet *p = NULL;
        c.r.mem.limit = 1; /* somebody else was faster: it waits, and the one behind it stays */
        CHECK_EQ(clb_stream_read(c.r.s, &p, 0), CLB_ERR_NOBUFS);
        c.r.mem.limit = 2;
        p = cam_read(&c, new);
        cam_send(&c, 9, new, 0, 40, 0);
        rig_arrived(&c.r, round * 6 + 6);
        clb_packet_free(&p);
        for (unsigned i = 0; i < 2; i++) {
            p = cam_read(&c, new);
            clb_packet_free(&p);
        }
    }
    CHECK_EQ(rig_stats(&c.r).alloc_failed, 0);
    CHECK_EQ(rig_stats(&c.r).dropped_newest + rig_stats(&c.r).dropped_oldest, 0);
    cam_close(&c);
}

/* The same where the host must not read: a picture that is not the expected one comes without an image and
 * as bad; one that is, is good again. */
static void changes_write_only(void)
{
    static struct cam c;
    const struct clb_image a = packed(CLB_PIXFMT_BGR24, 40, 30),
                           b = packed(CLB_PIXFMT_BGR24, 30, 40);
    clb_stream_params sp = {.write_only = 1, .image = a};
    cam_open(&c, &sp, 64, 0);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++) {
            cam_send(&c, i, &a, 0, 30, 0);
            if (round > 0 && i == 0) {
                clb_packet *p = rig_read(&c.r); /* b was expected */
                CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
                CHECK(clb_packet_image(p) == NULL);
                clb_packet_free(&p);
                continue;
            }
            clb_packet *p = cam_read(&c, &a);
            CHECK_EQ(info_of(p).spilled, 0);
            clb_packet_free(&p);
        }
        cam_send(&c, 9, &b, 0, 30, 0);
        clb_packet *p = rig_read(&c.r);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
        CHECK(clb_packet_image(p) == NULL);
        CHECK_EQ(info_of(p).total, c.whole.n);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&c.r).readback_bytes, 0);
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 5);
    cam_close(&c);
}

/* Without a word from the application, metadata that tells no picture: as it came. */
static void no_picture(void)
{
    static struct cam c;
    clb_stream_params sp = {0};
    cam_open(&c, &sp, 64, 64);
    for (unsigned i = 0; i < 8; i++) {
        c.meta.n = 0;
        meta_any(&c.meta, 50 + i);
        pack(&c.whole, i, 5000, &c.meta, TYPE_UNKNOWN);
        rig_send(&c.r, &c.whole, 0);
        clb_packet *p = rig_read(&c.r);
        check_split(p, i, 5000, &c.meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        CHECK(clb_packet_image(p) == NULL);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 0);
    cam_close(&c);
}

/* Trailers that lie, in a stream whose rows are placed: every byte of the packet is there, or what could be
 * kept; the next picture is whole. */
static void lies(void)
{
    static struct cam c;
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 40, 30);
    clb_stream_params sp = {0};
    cam_open(&c, &sp, 64, 0);
    for (unsigned i = 0; i < 24; i++) {
        cam_send(&c, i, &src, 0, 40 + i, 0);
        clb_packet *p = cam_read(&c, &src);
        clb_packet_free(&p);
        if (i % 3 == 2) {
            c.whole.data[c.whole.n - 18] ^= 0x80; /* the size */
            rig_send(&c.r, &c.whole, 0);
            p = rig_read(&c.r);
            check_raw(p, &c.whole);
            clb_packet_free(&p);
        }
    }
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 8);
    cam_close(&c);
}

/* The link's own pool: rows are placed there as well, and what spilled is moved to be so. */
static void own_pool(bool word)
{
    static struct cam c;
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 40, 30), dst = placed(&src, 64, 0);
    clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO, .dst_pitch_align = 64};
    c = (struct cam){.pitch_align = 64};
    sp.image = word ? src : sp.image;
    mem_init(&c.r.mem);
    rig_open_own(&c.r, &sp, WINDOW);
    for (unsigned i = 0; i < 12; i++) {
        cam_send(&c, i, &src, 0, 40 + i, 0);
        clb_packet *p = rig_read(&c.r);
        CHECK_EQ(clb_packet_size(p), span(&dst));
        CHECK(clb_packet_image(p) != NULL && same(clb_packet_image(p), &dst));
        for (size_t y = 0; y < 30; y++) {
            CHECK_EQ(
                memcmp((const uint8_t *)clb_packet_data(p) + y * 128, c.whole.data + y * 120, 120),
                0);
        }
        CHECK(i < 2 || info_of(p).spilled == 0);
        CHECK(!word || info_of(p).spilled == 0);
        CHECK_EQ(info_of(p).readback_bytes, 0);
        clb_packet_free(&p);
    }
    cam_close(&c);
}

/* AUTO, and no trailer at all: the size of the first packet tells. */
static void auto_without(void)
{
    static struct rig r;
    struct blob whole = {0};
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 40, 30), dst = placed(&src, 64, 0);
    clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO, .dst_pitch_align = 64, .image = src};
    r = (struct rig){0};
    mem_init(&r.mem);
    r.mem.stretch = true;
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 4; i++) {
        whole.n = 0;
        blob_pixels(&whole, i, 3600);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        check_rows(p, whole.data, &src, &dst);
        CHECK_EQ(info_of(p).spilled, 0);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_NONE);
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&whole);
}

/* A pool of exactly the size of the picture that is wanted. */
static void exact_pool(void)
{
    static struct cam c;
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 40, 30), dst = placed(&src, 64, 0);
    clb_stream_params sp = {0};
    cam_open(&c, &sp, 64, 0);
    c.r.mem.fixed = span(&dst);
    for (unsigned i = 0; i < 24; i++) {
        cam_send(&c, i, &src, 0, 40 + i, 0);
        clb_packet *p = cam_read(&c, &src);
        CHECK_EQ(mem_size(p), span(&dst));
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&c.r).alloc_failed, 0);
    CHECK_LE(rig_stats(&c.r).spilled, 2);
    cam_close(&c);
}

/* Rows that lie right as they come, and then wider ones: those were put together before it was known that they
 * have to be moved. */
static void wider(void)
{
    static struct cam c;
    const struct clb_image a = packed(CLB_PIXFMT_GRAY8, 64, 48),
                           b = packed(CLB_PIXFMT_GRAY8, 65, 48);
    clb_stream_params sp = {0};
    cam_open(&c, &sp, 64, 0);
    for (unsigned i = 0; i < 9; i++) {
        const bool turn = i % 3 == 2;
        cam_send(&c, i, turn ? &b : &a, 0, 40, 0);
        clb_packet *p = cam_read(&c, turn ? &b : &a);
        if (turn && i > 2) {
            CHECK_EQ(info_of(p).spilled, 1);
        }
        clb_packet_free(&p);
    }
    for (unsigned i = 0; i < 4; i++) {
        cam_send(&c, i, i < 3 ? &a : &b, 0, 40, 0);
        clb_packet *p = cam_read(&c, i < 3 ? &a : &b);
        if (i == 3) {
            CHECK_EQ(info_of(p).moved_bytes, 48);
            CHECK_EQ(info_of(p).readback_bytes, span(&b));
        }
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 0);
    cam_close(&c);
}

/* Pictures that are larger by more than metadata can be: nothing is placed by a layout that cannot be it. */
static void leaps(void)
{
    static struct cam c;
    const struct clb_image a = packed(CLB_PIXFMT_BGR24, 40, 30),
                           b = packed(CLB_PIXFMT_GRAY8, 90, 60);
    clb_stream_params sp = {.max_metadata = 1000};
    cam_open(&c, &sp, 64, 0);
    for (unsigned i = 0; i < 16; i++) {
        const struct clb_image *src = i % 4 < 2 ? &a : &b;
        cam_send(&c, i, src, 0, 40, 0);
        clb_packet *p = cam_read(&c, src);
        CHECK_EQ(info_of(p).readback_bytes, 0);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 0);
    cam_close(&c);
}

/* Fewer rows of another width than the ones that were placed: what was taken for pixels is metadata. */
static void shorter(void)
{
    static struct cam c;
    const struct clb_image a = packed(CLB_PIXFMT_BGR24, 40, 30),
                           b = packed(CLB_PIXFMT_BGR24, 5, 30);
    clb_stream_params sp = {0};
    cam_open(&c, &sp, 64, 0);
    for (unsigned i = 0; i < 12; i++) {
        cam_send(&c, i, i % 4 < 3 ? &a : &b, 0, 3500, 0);
        clb_packet *p = cam_read(&c, i % 4 < 3 ? &a : &b);
        CHECK(i % 4 < 3 || info_of(p).readback_bytes == span(&a) + span(&a) - span(&b));
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 0);
    cam_close(&c);
}

/* The metadata began in the padding that was thrown away: it is gone, and none is made up. */
static void thrown_away_metadata(void)
{
    static struct cam c;
    struct clb_image a = packed(CLB_PIXFMT_BGR24, 40, 30);
    clb_stream_params sp = {0};
    a.plane[0].pitch = 128;
    cam_open(&c, &sp, 256, 0);
    for (unsigned i = 0; i < 3; i++) {
        cam_send(&c, i, &a, 12, 40, 0);
        clb_packet *p = cam_read(&c, &a);
        clb_packet_free(&p);
    }
    c.meta.n = 0;
    meta_any(&c.meta, 300);
    pack(&c.whole, 7, span(&a) + 12 - 100, &c.meta, TYPE_UNKNOWN);
    rig_send(&c.r, &c.whole, 0);
    clb_packet *p = rig_read(&c.r);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
    CHECK(clb_packet_metadata(p, NULL) == NULL);
    CHECK(clb_packet_image(p) == NULL);
    clb_packet_free(&p);
    CHECK_EQ(rig_stats(&c.r).bad_metadata, 1);
    cam_close(&c);
}

/* Buffers that have room for the payload, and not for the rows further apart: there is no packet, and nobody
 * writes behind them. */
static void rows_do_not_fit(void)
{
    static struct cam c;
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 40, 30), dst = placed(&src, 64, 0);
    clb_stream_params sp = {0};
    clb_packet *p = NULL;
    cam_open(&c, &sp, 64, 0);
    c.r.mem.fixed = span(&dst) - 1;
    for (unsigned i = 0; i < 6; i++) {
        cam_send(&c, i, &src, 0, 40, 0);
        rig_arrived(&c.r, i + 1);
        CHECK_EQ(clb_stream_read(c.r.s, &p, 0), CLB_ERR_AGAIN);
    }
    CHECK_EQ(rig_stats(&c.r).alloc_failed, 6);
    c.r.mem.fixed = span(&dst);
    cam_send(&c, 7, &src, 0, 40, 0);
    p = cam_read(&c, &src);
    clb_packet_free(&p);
    cam_close(&c);
}

/* More between the rows than is thrown away while it arrives, and less room where they are to go. */
static void wide_gaps(void)
{
    static struct cam c;
    struct clb_image src = packed(CLB_PIXFMT_GRAY8, 10, 3);
    clb_stream_params sp = {0};
    src.plane[0].pitch = 70000;
    cam_open(&c, &sp, 64, 0);
    for (unsigned i = 0; i < 5; i++) {
        cam_send(&c, i, &src, 0, 40, 0);
        clb_packet *p = cam_read(&c, &src);
        CHECK_EQ(info_of(p).spilled, 1);
        CHECK_EQ(info_of(p).readback_bytes, 0);
        clb_packet_free(&p);
    }
    cam_close(&c);
}

/* Bad twice over is one bad packet. */
static void lies_write_only(void)
{
    static struct cam c;
    const struct clb_image src = packed(CLB_PIXFMT_BGR24, 40, 30);
    clb_stream_params sp = {.write_only = 1, .image = src};
    cam_open(&c, &sp, 64, 0);
    for (unsigned i = 0; i < 4; i++) {
        cam_send(&c, i, &src, 0, 40, 0);
        clb_packet *p = cam_read(&c, &src);
        clb_packet_free(&p);
        c.whole.data[c.whole.n - 18] ^= 0x80; /* the size */
        rig_send(&c.r, &c.whole, 0);
        p = rig_read(&c.r);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
        CHECK(clb_packet_image(p) == NULL);
        clb_packet_free(&p);
        CHECK_EQ(rig_stats(&c.r).bad_metadata, i + 1);
    }
    CHECK_EQ(rig_stats(&c.r).readback_bytes, 0);
    cam_close(&c);
}

void repitch_camera(void)
{
    RUN(learned_all());
    RUN(thousand(false));
    RUN(thousand(true));
    RUN(geometry_changes());
    RUN(thrown_away());
    RUN(changes_in_a_small_pool());
    RUN(changes_write_only());
    RUN(no_picture());
    RUN(lies());
    RUN(own_pool(false));
    RUN(own_pool(true));
    RUN(auto_without());
    RUN(exact_pool());
    RUN(wider());
    RUN(leaps());
    RUN(shorter());
    RUN(thrown_away_metadata());
    RUN(rows_do_not_fit());
    RUN(wide_gaps());
    RUN(lies_write_only());
}
