/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets with trailers, taken apart: real samples of each release and those of an independent encoder
 * in every chunking, the sizes at the limits, lies in the trailer and in the metadata. What is expected is
 * what wire section 9 says, byte by byte.
 */
#include "trailer_kit.h"

#define WINDOW (1u << 20)

/* ---- samples ----------------------------------------------------------------------------------- */

struct sample {
    const char *file;
    size_t pixels; /* before the trailer; with a .packet.bin they are in the file */
    bool whole;    /* the file is a whole packet */
    int32_t type;
    enum clb_pixfmt fmt; /* of the image that comes with it */
    uint32_t width, height;
    size_t pitch;
    enum clb_part part;
};

static const struct sample samples[] = {
    {"encoder/imgframe-v3.trailer.bin", 270000, false, 2, CLB_PIXFMT_BGR24, 300, 300, 900, 0},
    {"encoder/imgframe-v3-min.trailer.bin", 270000, false, 2, CLB_PIXFMT_BGR24, 300, 300, 900, 0},
    {"encoder/buffer-v3.trailer.bin", 100, false, 1, 0, 0, 0, 0, 0},
    {"v3.4/buffer-stamped-data.trailer.bin", 100, false, 1, 0, 0, 0, 0, 0},
    {"v3.4/imgframe-full-bgr888i.trailer.bin", 270000, false, 2, CLB_PIXFMT_BGR24, 300, 300, 900,
     0},
    {"v3.4/imgframe-nv12-64x48-stride80.trailer.bin", 5760, false, 2, CLB_PIXFMT_NV12, 64, 48, 80,
     0},
    {"v3.10/buffer-stamped-data.trailer.bin", 100, false, 1, 0, 0, 0, 0, 0},
    {"v3.10/encodedframe-hevc.trailer.bin", 5000, false, 3, 0, 0, 0, 0, 0},
    {"v3.10/imgframe-bgr888i-300x300.trailer.bin", 270000, false, 2, CLB_PIXFMT_BGR24, 300, 300,
     900, 0},
    {"v3.10/imgframe-full-bgr888i.trailer.bin", 270000, false, 2, CLB_PIXFMT_BGR24, 300, 300, 900,
     0},
    {"v3.10/imgframe-nv12-64x48-stride80.trailer.bin", 5760, false, 2, CLB_PIXFMT_NV12, 64, 48, 80,
     0},
    {"v3.10/imgframe-raw16-60x40-stride128.trailer.bin", 5120, false, 2, CLB_PIXFMT_RAW16, 60, 40,
     128, 0},
    {"v3.10/messagegroup-2.trailer.bin", 0, false, 28, 0, 0, 0, 0, CLB_PART_GROUP_HEAD},
    {"v3.10/nndata-f32.trailer.bin", 48, false, 6, 0, 0, 0, 0, 0},
    {"v2.33/buffer.packet.bin", 8, true, 0, 0, 0, 0, 0, 0},
    /* Its geometry needs more than its 8 bytes of data: seen in not_its_size(). */
};
#define SAMPLES (sizeof samples / sizeof *samples)

/* whole = the packet, meta = the metadata alone */
static void load(const struct sample *s, struct blob *whole, struct blob *meta)
{
    char name[128];
    whole->n = meta->n = 0;
    snprintf(name, sizeof name, "trailers/%s", s->file);
    if (!s->whole) {
        blob_pixels(whole, 0, s->pixels);
    }
    blob_file(whole, name);
    blob_put(meta, whole->data + s->pixels, whole->n - s->pixels - TRAILER);
}

static void check_sample(const clb_packet *p, const struct sample *s, const struct blob *whole,
                         const struct blob *meta)
{
    const clb_packet_info info = info_of(p);
    CHECK_EQ(info.metadata_status, CLB_METADATA_OK);
    CHECK_EQ(clb_packet_size(p), s->pixels);
    CHECK_EQ(info.total, whole->n);
    CHECK_EQ(info.object_type, s->type);
    CHECK_EQ(info.claimed_metadata, meta->n);
    CHECK_EQ(s->pixels ? memcmp(clb_packet_data(p), whole->data, s->pixels) : 0, 0);
    size_t size = 0;
    const void *m = clb_packet_metadata(p, &size);
    CHECK_EQ(size, meta->n);
    CHECK_EQ(info.metadata_size, meta->n);
    CHECK_EQ((uintptr_t)m % 64, 0);
    CHECK_EQ(memcmp(m, meta->data, meta->n), 0);
    CHECK_EQ(info.part, s->part);
    const struct clb_image *img = clb_packet_image(p);
    CHECK_EQ(img != NULL, s->fmt != 0);
    if (img) {
        CHECK_EQ(img->fmt, s->fmt);
        CHECK_EQ(img->width, s->width);
        CHECK_EQ(img->height, s->height);
        CHECK_EQ(img->plane[0].pitch, s->pitch);
        CHECK_EQ(img->plane[1].offset, s->fmt == CLB_PIXFMT_NV12 ? s->pitch * s->height : 0);
    }
}

/* Every sample as the first, second, third and fourth packet of its stream, whole: the host way, a guess
 * that is too low, and twice exact. */
static void samples_in_a_row(enum clb_trailer trailer, bool own_pool)
{
    struct blob whole = {0}, meta = {0};
    for (size_t k = 0; k < SAMPLES; k++) {
        const struct sample *s = &samples[k];
        static struct rig r;
        r = (struct rig){0};
        clb_stream_params sp = {.trailer = trailer};
        load(s, &whole, &meta);
        mem_init(&r.mem);
        if (own_pool) {
            rig_open_own(&r, &sp, WINDOW);
        } else {
            rig_open(&r, &sp, WINDOW);
        }
        for (int i = 0; i < 4; i++) {
            rig_send(&r, &whole, 0);
            clb_packet *p = rig_read(&r);
            const clb_packet_info info = info_of(p);
            check_sample(p, s, &whole, &meta);
            CHECK_EQ(info.spilled, i == 0);
            CHECK_EQ(info.readback_bytes, 0);
            /* The largest trailer before it, and 64 bytes. */
            CHECK_EQ(info.moved_bytes, i == 1 ? (s->pixels < 64 ? s->pixels : 64) : 0);
            clb_packet_free(&p);
        }
        const clb_stream_stats st = rig_stats(&r);
        CHECK_EQ(st.packets, 4);
        CHECK_EQ(st.bytes, 4 * whole.n);
        CHECK_EQ(st.metadata_bytes, 4 * (meta.n + TRAILER));
        CHECK_EQ(st.spilled, 1);
        CHECK_EQ(st.spill_bytes, own_pool ? 0 : s->pixels);
        CHECK_EQ(st.bad_metadata, 0);
        rig_close(&r);
    }
    blob_free(&whole);
    blob_free(&meta);
}

/* One stream for all: what was learned from one packet is wrong for the next, and every byte is right. The
 * first packet is of the same release, as cameras do not change theirs. */
static void samples_mixed(size_t chunk)
{
    static struct rig r;
    struct blob whole = {0}, meta = {0};
    uint32_t rnd = 77;
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (int i = 0; i < 120; i++) {
        const struct sample *s = &samples[pick(&rnd, SAMPLES)];
        if (s->part || (chunk && s->pixels > 6000)) {
            continue;
        }
        load(s, &whole, &meta);
        rig_send(&r, &whole, chunk);
        clb_packet *p = rig_read(&r);
        check_sample(p, s, &whole, &meta);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 0);
    CHECK_EQ(rig_stats(&r).alloc_failed, 0);
    rig_close(&r);
    blob_free(&whole);
    blob_free(&meta);
}

/* The small ones, cut in two at every byte of header and payload, then one byte at a time; as a first
 * packet, as a second and as a third one. */
static void every_chunking(const char *file, bool tcp)
{
    const struct sample *s = NULL;
    struct blob whole = {0}, meta = {0};
    for (size_t k = 0; k < SAMPLES; k++) {
        s = strcmp(samples[k].file, file) == 0 ? &samples[k] : s;
    }
    CHECK(s != NULL);
    load(s, &whole, &meta);
    const size_t n = CLBI_WIRE_HEADER + whole.n;
    for (size_t cut = 0; cut <= n;) {
        static struct rig r;
        r = (struct rig){.tcp = tcp};
        clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO};
        mem_init(&r.mem);
        rig_open(&r, &sp, WINDOW);
        /* A stream of its own for the first cuts, later ones share theirs; 6 packets of one kind. */
        const size_t upto = cut < CLBI_WIRE_HEADER + 16 ? cut + 1 : n + 1;
        for (; cut < upto; cut++) {
            /* Beyond the ends nothing happens: in large packets not every byte of the pixels. */
            if (cut > CLBI_WIRE_HEADER + 200 && cut + meta.n + 200 < n && cut % 61 != 0) {
                continue;
            }
            for (int i = 0; i < 3; i++) {
                rig_send_cut(&r, &whole, cut);
                clb_packet *p = rig_read(&r);
                check_sample(p, s, &whole, &meta);
                clb_packet_free(&p);
            }
        }
        if (cut > n) {
            rig_send(&r, &whole, 1);
            clb_packet *p = rig_read(&r);
            check_sample(p, s, &whole, &meta);
            clb_packet_free(&p);
        }
        rig_close(&r);
    }
    blob_free(&whole);
    blob_free(&meta);
}

/* ---- sizes ------------------------------------------------------------------------------------- */

static void sizes_of_metadata(void)
{
    static const size_t sizes[] = {0, 1, 51200, 0, 2, 51199, 51200, 51200, 1, 1, 0, 0, 51200};
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned pixels = 60000; pixels <= 60001; pixels++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            meta.n = 0;
            meta_any(&meta, sizes[i]);
            CHECK_EQ(meta.n, sizes[i]);
            pack(&whole, i, pixels, &meta, TYPE_UNKNOWN);
            rig_send(&r, &whole, 0);
            clb_packet *p = rig_read(&r);
            check_split(p, i, pixels, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
            CHECK_EQ(info_of(p).total, whole.n);
            clb_packet_free(&p);
        }
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 0);
    /* One more is too much, whatever was learned; the next packet is none the worse. */
    for (unsigned i = 0; i < 4; i++) {
        meta.n = 0;
        meta_any(&meta, i % 2 ? 51200 : 51201);
        pack(&whole, i, 60001, &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        if (i % 2) {
            check_split(p, i, 60001, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        } else {
            check_raw(p, &whole);
            CHECK_EQ(info_of(p).claimed_metadata, 51201);
            CHECK_EQ(info_of(p).object_type, TYPE_UNKNOWN);
        }
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 2);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* max_metadata as the application sets it. */
static void limit_of_metadata(size_t limit)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .max_metadata = limit};
    mem_init(&r.mem);
    rig_open(&r, &sp, 4 * WINDOW);
    for (unsigned i = 0; i < 8; i++) {
        const size_t n = limit - 1 + i % 3;
        meta.n = 0;
        meta_any(&meta, n);
        CHECK_EQ(meta.n, n);
        pack(&whole, i, 5000 + i / 4, &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        if (n <= limit) {
            check_split(p, i, 5000 + i / 4, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        } else {
            check_raw(p, &whole);
        }
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* What cannot be asked for. */
static void parameters(void)
{
    const clb_stream_params bad[] = {
        {.trailer = (enum clb_trailer)3},
        {.trailer = CLB_TRAILER_DEPTHAI, .max_metadata = (1u << 20) + 1},
        {.trailer = CLB_TRAILER_DEPTHAI, .dst_pitch_align = 63},
        {.trailer = CLB_TRAILER_NONE, .dst_plane_align = 3},
        /* rows of 30 bytes, 20 apart */
        {.image = {.fmt = CLB_PIXFMT_BGR24,
                   .width = 10,
                   .height = 10,
                   .num_planes = 1,
                   .plane = {{.pitch = 20}}}},
    };
    static struct rig r;
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_connect(&r, WINDOW);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        clb_stream_params sp = bad[i];
        sp.struct_size = sizeof sp;
        sp.name = "a";
        CHECK_EQ(clb_stream_open(&r.s, r.link, &sp), CLB_ERR_INVAL);
    }
    rig_close(&r);
}

/* No pixels at all, between packets that have some; empty packets. */
static void no_pixels(void)
{
    static const size_t pixels[] = {0, 0, 0, 1000, 0, 1, 0, 1000, 1000, 1000, 0, 63, 64, 65, 0};
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < sizeof pixels / sizeof *pixels; i++) {
        meta.n = 0;
        meta_any(&meta, 40 + i % 3);
        pack(&whole, i, pixels[i], &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        check_split(p, i, pixels[i], &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        clb_packet_free(&p);
        if (i % 4 == 3) { /* nothing at all is no packet of depthai's */
            whole.n = 0;
            rig_send(&r, &whole, 0);
            p = rig_read(&r);
            check_raw(p, &whole);
            clb_packet_free(&p);
        }
    }
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* ---- lies -------------------------------------------------------------------------------------- */

/* Every lie between two good packets: raw bytes, numbers as they were told, nothing else is touched. */
static void lies(bool learned)
{
    static const struct {
        int32_t type;
        uint32_t claimed;
    } lie[] = {
        {2, 0x80000000u},
        {2, 0xFFFFFFFFu},
        {-1, 0xFFFFFFE8u}, /* 24 too many in 32 bits */
        {INT32_MIN, 0x7FFFFFFFu},
        {INT32_MAX, 51201},
        {2, 1001}, /* one more than there is */
        {-7, 0xFFFF0000u},
        {2, 51200},
    };
    static struct rig r;
    struct blob meta = {0}, whole = {0}, good = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    meta_any(&meta, 200);
    for (unsigned i = 0; i < 2 * sizeof lie / sizeof *lie; i++) {
        if (learned || i % 3 == 2) {
            for (unsigned k = 0; k < 3; k++) {
                pack(&good, k, 800, &meta, TYPE_UNKNOWN);
                rig_send(&r, &good, 0);
                clb_packet *p = rig_read(&r);
                check_split(p, k, 800, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
                /* Nothing was learned from the lie before it. */
                CHECK(!learned || i == 0 ||
                      (info_of(p).moved_bytes + info_of(p).readback_bytes == 0 &&
                       !info_of(p).spilled));
                clb_packet_free(&p);
            }
        }
        whole.n = 0;
        blob_pixels(&whole, i, 1000);
        blob_tail(&whole, lie[i / 2].type, lie[i / 2].claimed);
        rig_send(&r, &whole, i % 2);
        clb_packet *p = rig_read(&r);
        check_raw(p, &whole);
        CHECK_EQ(info_of(p).object_type, lie[i / 2].type);
        CHECK_EQ(info_of(p).claimed_metadata, lie[i / 2].claimed);
        clb_packet_free(&p);
        CHECK_EQ(rig_stats(&r).bad_metadata, i + 1);
    }
    CHECK_EQ(rig_stats(&r).alloc_failed, 0);
    CHECK_EQ(clb_link_get_state(r.link, NULL), CLB_LINK_UP);
    rig_credited(&r);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
    blob_free(&good);
}

/* The metadata is nonsense behind a trailer that is valid: split as it says, not believed. */
static void nonsense(void)
{
    static const struct {
        int n;
        uint8_t b[24];
        int32_t type;
    } bad[] = {
        {4, {0xB5, 0x01, 0x00, 0x00}, 2},             /* a table */
        {3, {0xB9, 0x7F, 0x00}, 2},                   /* members that are not there */
        {6, {0xBA, 0x82, 0xFF, 0xFF, 0xFF, 0xFF}, 2}, /* 4 G elements */
        {1, {0x8A}, 2},                               /* reserved */
        {6, {0xB9, 0x01, 0xB9, 0x01, 0xB9, 0x01}, 2}, /* ends in the middle */
    };
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 3 * sizeof bad / sizeof *bad; i++) {
        meta.n = 0;
        blob_put(&meta, bad[i / 3].b, (size_t)bad[i / 3].n);
        pack(&whole, i, 4000, &meta, bad[i / 3].type);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        check_split(p, i, 4000, &meta, bad[i / 3].type, CLB_METADATA_BAD);
        CHECK(clb_packet_image(p) == NULL);
        clb_packet_free(&p);
        CHECK_EQ(rig_stats(&r).bad_metadata, i + 1);
    }
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* A frame whose description needs more than there is. */
static void not_its_size(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 8; i++) {
        const bool good = i % 2;
        meta.n = 0;
        meta_frame(&meta,
                   &(struct meta_frame){
                       .type = FT_BGR888I, .width = 100, .height = 50, .stride = 300, .seq = i});
        pack(&whole, i, good ? 15000 : 14999, &meta, TYPE_FRAME);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        check_split(p, i, good ? 15000 : 14999, &meta, TYPE_FRAME,
                    good ? CLB_METADATA_OK : CLB_METADATA_BAD);
        CHECK_EQ(clb_packet_image(p) != NULL, good);
        clb_packet_free(&p);
    }
    whole.n = meta.n = 0;
    blob_file(&whole, "trailers/v2.33/imgframe.packet.bin");
    blob_put(&meta, whole.data + 8, whole.n - 8 - TRAILER);
    rig_send(&r, &whole, 0);
    clb_packet *p = rig_read(&r);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
    CHECK_EQ(clb_packet_size(p), 8);
    CHECK_EQ(memcmp(clb_packet_data(p), whole.data, 8), 0);
    CHECK(clb_packet_image(p) == NULL);
    clb_packet_free(&p);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

int main(void)
{
    check_watchdog(200);
    RUN(samples_in_a_row(CLB_TRAILER_DEPTHAI, false));
    RUN(samples_in_a_row(CLB_TRAILER_AUTO, false));
    RUN(samples_in_a_row(CLB_TRAILER_AUTO, true));
    RUN(samples_mixed(0));
    RUN(samples_mixed(61));
    RUN(every_chunking("v3.10/buffer-stamped-data.trailer.bin", false));
    RUN(every_chunking("v2.33/buffer.packet.bin", true));
    RUN(every_chunking("v3.4/imgframe-nv12-64x48-stride80.trailer.bin", false));
    RUN(every_chunking("v3.10/encodedframe-hevc.trailer.bin", false));
    RUN(every_chunking("encoder/buffer-v3.trailer.bin", true));
    RUN(sizes_of_metadata());
    RUN(limit_of_metadata(1));
    RUN(limit_of_metadata(300));
    RUN(limit_of_metadata(1u << 20));
    RUN(parameters());
    RUN(no_pixels());
    RUN(lies(false));
    RUN(lies(true));
    RUN(nonsense());
    RUN(not_its_size());
    return 0;
}
