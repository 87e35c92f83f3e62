/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows and planes that are placed while they arrive. Each is compared where it has to lie, and every byte
 * between them, behind them and around the buffer is one that nobody has written.
 */
#include "test_repitch.h"

/* ---- without a trailer ------------------------------------------------------------------------- */

struct job {
    struct clb_image src;
    size_t total; /* bytes of a packet; 0 = what src spans */
    size_t pitch_align, plane_align;
    int packets;
    size_t chunk;
    bool tcp, every_cut;
};

static void plain(const struct job *j)
{
    static struct rig r;
    struct blob whole = {0};
    const size_t total = j->total ? j->total : span(&j->src);
    const struct clb_image dst = placed(&j->src, j->pitch_align, j->plane_align);
    clb_stream_params sp = {
        .image = j->src, .dst_pitch_align = j->pitch_align, .dst_plane_align = j->plane_align};
    r = (struct rig){.tcp = j->tcp};
    mem_init(&r.mem);
    r.mem.stretch = true;
    r.mem.spare = 100;
    rig_open(&r, &sp, WINDOW);
    const int packets = j->every_cut ? (int)(CLBI_WIRE_HEADER + total) : j->packets;
    for (int i = 0; i < packets; i++) {
        whole.n = 0;
        blob_pixels(&whole, (unsigned)i, total);
        if (j->every_cut) {
            rig_send_cut(&r, &whole, (size_t)i);
        } else {
            rig_send(&r, &whole, j->chunk);
        }
        clb_packet *p = rig_read(&r);
        check_rows(p, whole.data, &j->src, &dst);
        CHECK_EQ(info_of(p).moved_bytes + info_of(p).readback_bytes, 0);
        CHECK_EQ(info_of(p).spilled, 0);
        CHECK_EQ(info_of(p).total, total);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_NONE);
        CHECK_EQ(r.mem.last.capacity, span(&dst));
        CHECK_EQ(r.mem.last.payload, total);
        clb_packet_free(&p);
    }
    const clb_stream_stats st = rig_stats(&r);
    CHECK_EQ(st.packets, packets);
    CHECK_EQ(st.moved_bytes + st.readback_bytes + st.spilled + st.spill_bytes, 0);
    CHECK_EQ(st.alloc_failed, 0);
    rig_credited(&r);
    rig_close(&r);
    blob_free(&whole);
}

/* 300x300 BGR: rows of 900 bytes land 960 bytes apart. */
static void bgr300(void)
{
    const struct job j = {
        .src = packed(CLB_PIXFMT_BGR24, 300, 300), .pitch_align = 64, .packets = 12};
    const struct clb_image dst = placed(&j.src, 64, 0);
    CHECK_EQ(j.src.plane[0].pitch, 900);
    CHECK_EQ(dst.plane[0].pitch, 960);
    plain(&j);
}

/* 1620 rows: more than one system call takes. */
static void nv12_1080p(size_t chunk, bool tcp)
{
    const struct job j = {.src = packed(CLB_PIXFMT_NV12, 1920, 1080),
                          .pitch_align = 256,
                          .plane_align = 4096,
                          .packets = 3,
                          .chunk = chunk,
                          .tcp = tcp};
    plain(&j);
}

static void every_format(uint32_t w, uint32_t h)
{
    for (int fmt = 1; fmt < CLB_PIXFMT_COUNT; fmt++) {
        const struct job j = {.src = packed((enum clb_pixfmt)fmt, w, h),
                              .pitch_align = 64,
                              .plane_align = 256,
                              .packets = 3,
                              .chunk = (size_t)fmt % 5};
        plain(&j);
    }
}

/* Rows and planes that the peer pads: what is between them is thrown away, at the end too. */
static void padded_source(void)
{
    struct job j = {.pitch_align = 32, .plane_align = 128, .packets = 5, .chunk = 7};
    j.src = packed(CLB_PIXFMT_NV12, 7, 5); /* rows of 7 and 8 bytes */
    j.src.plane[0].pitch = 13;
    j.src.plane[1].pitch = 11;
    j.src.plane[1].offset = 13 * 5 + 6;
    plain(&j);
    j.total = span(&j.src) + 3; /* the padding of the last row, too */
    plain(&j);
    j.chunk = 0;
    j.every_cut = true;
    plain(&j);
    j = (struct job){.src = packed(CLB_PIXFMT_I420, 5, 3), .pitch_align = 16, .packets = 5};
    j.src.plane[0].offset = 2;
    j.src.plane[0].pitch = 9;
    j.src.plane[1].offset = 40;
    j.src.plane[1].pitch = 4;
    j.src.plane[2].offset = 60;
    j.src.plane[2].pitch = 3;
    j.every_cut = true;
    plain(&j);
}

/* Wider in the peer's packet than where it is to go: rows move closer. */
static void closer(void)
{
    struct job j = {.src = packed(CLB_PIXFMT_BGR24, 20, 6), .plane_align = 1, .packets = 4};
    j.src.plane[0].pitch = 77;
    plain(&j);
    j.every_cut = true;
    plain(&j);
}

/* A packet that is not of that picture: too small for it comes as it is, and the next one as it should. */
static void another_size(void)
{
    static struct rig r;
    struct blob whole = {0};
    struct clb_image src = packed(CLB_PIXFMT_BGR24, 30, 20);
    src.matrix = CLB_MATRIX_709;
    src.range = CLB_RANGE_FULL;
    src.bayer = CLB_BAYER_GBRG;
    const struct clb_image dst = placed(&src, 64, 0);
    clb_stream_params sp = {.image = src, .dst_pitch_align = 64};
    r = (struct rig){0};
    mem_init(&r.mem);
    r.mem.stretch = true;
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 8; i++) {
        whole.n = 0;
        blob_pixels(&whole, i, i % 2 ? 1799 - i * 100 : 1800);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        if (i % 2) {
            CHECK(clb_packet_image(p) == NULL);
            CHECK_EQ(clb_packet_size(p), whole.n);
            CHECK_EQ(info_of(p).spilled, 0);
            check_pixels(clb_packet_data(p), i, whole.n);
        } else {
            CHECK_EQ(clb_packet_image(p)->matrix, src.matrix);
            CHECK_EQ(clb_packet_image(p)->range, src.range);
            CHECK_EQ(clb_packet_image(p)->bayer, src.bayer);
            check_rows(p, whole.data, &src, &dst);
        }
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&whole);
}

int main(void)
{
    check_watchdog(200);
    RUN(bgr300());
    RUN(nv12_1080p(0, false));
    RUN(nv12_1080p(0, true));
    RUN(nv12_1080p(10007, false));
    RUN(every_format(1, 1));
    RUN(every_format(7, 5));
    RUN(padded_source());
    RUN(closer());
    RUN(another_size());
    repitch_camera();
    return 0;
}
