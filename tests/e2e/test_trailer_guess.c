/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pixels end is foreseen (wire section 9.5): with metadata whose length jumps, with pixels that
 * vary, with configured geometry, buffers that are exactly large enough, or too small for a guess. Every
 * byte is compared, and every counter with what the rule says, worked out here a second time.
 */
#include "trailer_kit.h"

#define WINDOW (8u << 20)

/* ---- the rule ---------------------------------------------------------------------------------- */

struct oracle {
    size_t max_metadata, configured;
    size_t last, before, seen;
    size_t behind[8]; /* bytes behind the pixels of the last packets */
};

struct foreseen {
    bool host, exact;
    size_t pixels, capacity, expect;
};

static bool possible(const struct oracle *o, size_t total, size_t pixels)
{
    return total >= pixels + TRAILER && total - pixels <= TRAILER + o->max_metadata;
}

static struct foreseen foresee(const struct oracle *o, size_t total)
{
    struct foreseen f = {0};
    size_t most = 0;
    const bool steady = o->seen >= 2 && o->last == o->before;
    if (steady && possible(o, total, o->last)) {
        f.pixels = o->last;
        f.exact = true;
    } else if (o->configured && possible(o, total, o->configured)) {
        f.pixels = o->configured;
        f.exact = true;
    } else if (o->seen == 0) {
        f.host = true;
    } else {
        for (int i = 0; i < 8; i++) {
            most = o->behind[i] > most ? o->behind[i] : most;
        }
        f.pixels = total > most + 64 ? total - most - 64 : 0;
    }
    /* Room for as many pixels as there may be; by the application's word that many are enough. */
    f.capacity = f.exact && o->configured && f.pixels == o->configured ? f.pixels : total - TRAILER;
    f.expect = f.exact ? f.pixels : 0;
    return f;
}

static void learn(struct oracle *o, size_t pixels, size_t total)
{
    o->before = o->last;
    o->last = pixels;
    o->behind[o->seen++ % 8] = total - pixels;
}

/* ---- one packet -------------------------------------------------------------------------------- */

struct line {
    struct rig r;
    struct oracle o;
    struct blob meta, whole;
    uint32_t rnd;
    size_t moved, readback, spilled, spill_bytes; /* expected */
};

static void line_open(struct line *l, clb_stream_params *sp)
{
    sp->trailer = CLB_TRAILER_DEPTHAI;
    l->o.max_metadata = sp->max_metadata ? sp->max_metadata : META_MAX;
    l->rnd = 12345;
    mem_init(&l->r.mem);
    rig_open(&l->r, sp, WINDOW);
}

static void line_close(struct line *l)
{
    const clb_stream_stats st = rig_stats(&l->r);
    CHECK_EQ(st.moved_bytes, l->moved);
    CHECK_EQ(st.readback_bytes, l->readback);
    CHECK_EQ(st.spilled, l->spilled);
    CHECK_EQ(st.spill_bytes, l->spill_bytes);
    CHECK_EQ(st.bad_metadata, 0);
    CHECK_EQ(st.alloc_failed, 0);
    CHECK_EQ(st.dropped_oldest + st.dropped_newest, 0);
    rig_credited(&l->r);
    rig_close(&l->r);
    blob_free(&l->meta);
    blob_free(&l->whole);
}

/* Sends l->whole, of so many pixels, reads it and checks all that can be known. */
static void exchange(struct line *l, unsigned seed, size_t pixels, int32_t type)
{
    const struct foreseen f = foresee(&l->o, l->whole.n);
    size_t moved = 0, readback = 0, spilled = f.host;
    rig_send(&l->r, &l->whole, 0);
    clb_packet *p = rig_read(&l->r);
    const clb_packet_info info = info_of(p);
    check_split(p, seed, pixels, &l->meta, type, CLB_METADATA_OK);
    CHECK_EQ(info.total, l->whole.n);
    if (!f.host && pixels > f.pixels) {
        const bool room = f.capacity >= pixels; /* whatever the buffer could hold */
        moved = room ? pixels - f.pixels : 0;
        readback = room ? 0 : f.pixels;
        spilled = !room;
    } else if (!f.host) {
        readback = f.pixels - pixels;
    }
    CHECK_EQ(info.moved_bytes, moved);
    CHECK_EQ(info.readback_bytes, readback);
    CHECK_EQ(info.spilled, spilled);
    if (!spilled) {
        CHECK_EQ(l->r.mem.last.payload, l->whole.n);
        CHECK_EQ(l->r.mem.last.capacity, f.capacity);
        CHECK_EQ(l->r.mem.last.expect, f.expect);
    } else {
        CHECK_EQ(l->r.mem.last.capacity, pixels);
    }
    /* What is beyond the guess and the pixels was never written. */
    mem_unwritten(p, spilled || pixels > f.pixels ? pixels : f.pixels, SIZE_MAX);
    clb_packet_free(&p);
    learn(&l->o, pixels, l->whole.n);
    l->moved += moved;
    l->readback += readback;
    l->spilled += spilled;
    l->spill_bytes += spilled ? pixels : 0;
}

static void any_packet(struct line *l, unsigned seed, size_t pixels, size_t metadata)
{
    l->meta.n = 0;
    meta_any(&l->meta, metadata);
    pack(&l->whole, seed, pixels, &l->meta, TYPE_UNKNOWN);
    exchange(l, seed, pixels, TYPE_UNKNOWN);
}

/* ---- cases ------------------------------------------------------------------------------------- */

/* Raw frames of one size, metadata that grows and shrinks by 1 to 2000 bytes: two packets until it is
 * known, then nothing is ever moved or read. */
static void metadata_jumps(size_t pixels)
{
    static struct line l;
    clb_stream_params sp = {0};
    l = (struct line){0};
    line_open(&l, &sp);
    size_t metadata = 3000;
    for (unsigned i = 0; i < 200; i++) {
        const size_t step = 1 + pick(&l.rnd, 2000);
        const bool up = metadata < step || (metadata + step < 6000 && pick(&l.rnd, 2));
        metadata = up ? metadata + step : metadata - step;
        any_packet(&l, i, pixels, metadata);
        if (i == 1) {
            CHECK_LE(l.moved, 2000 + 64);
        }
        CHECK(i < 2 || (l.moved == rig_stats(&l.r).moved_bytes && l.spilled <= 2));
    }
    line_close(&l);
}

/* Packets without pixels between some that have them: none is no size that was configured. */
static void none_and_some(void)
{
    static const size_t pixels[] = {0, 0, 5000, 0, 0, 40000, 40000, 0, 0, 0, 1, 0, 0, 51000, 51100};
    static struct line l;
    clb_stream_params sp = {0};
    l = (struct line){0};
    line_open(&l, &sp);
    for (unsigned i = 0; i < sizeof pixels / sizeof *pixels; i++) {
        any_packet(&l, i, pixels[i], 40 + i % 3);
    }
    CHECK_EQ(l.spilled, 1);
    line_close(&l);
}

/* Encoded frames: sizes that never repeat. The guess stays low; what is moved is at most 64 bytes and
 * what the trailers differ by; nothing is read. */
static void encoded(void)
{
    static struct line l;
    struct blob sample = {0};
    clb_stream_params sp = {0};
    l = (struct line){0};
    blob_file(&sample, "trailers/v3.10/encodedframe-hevc.trailer.bin");
    line_open(&l, &sp);
    for (unsigned i = 0; i < 150; i++) {
        const size_t pixels = 2000 + pick(&l.rnd, 60000);
        l.meta.n = 0;
        blob_put(&l.meta, sample.data, sample.n - TRAILER);
        pack(&l.whole, i, pixels, &l.meta, 3);
        exchange(&l, i, pixels, 3);
        CHECK_EQ(rig_stats(&l.r).readback_bytes, 0);
        CHECK_LE(rig_stats(&l.r).moved_bytes, 64 * i);
    }
    line_close(&l);
    blob_free(&sample);
}

/* Everything varies, and sometimes it does not; with and without room in the buffers. */
static void anything(size_t spare, uint32_t rnd)
{
    static struct line l;
    clb_stream_params sp = {0};
    l = (struct line){0};
    l.r.mem.spare = 0;
    line_open(&l, &sp);
    l.r.mem.spare = spare;
    l.rnd = rnd;
    size_t pixels = 5000;
    for (unsigned i = 0; i < 400; i++) {
        switch (pick(&l.rnd, 6)) {
        case 0: pixels = pick(&l.rnd, 12000); break;
        case 1: pixels = pixels > 50 ? pixels - pick(&l.rnd, 50) : 3; break;
        case 2: pixels += pick(&l.rnd, 50); break;
        default: break; /* as before */
        }
        any_packet(&l, i, pixels, pick(&l.rnd, pick(&l.rnd, 5) ? 400 : 5000));
    }
    CHECK_GT(l.readback, 0);
    CHECK_GT(l.moved, 0);
    line_close(&l);
}

/* Small frames of one size, held, and then one that is larger by more than any metadata is: what was certain
 * is not, and what is held stays as it is. */
static void leaps(void)
{
    static struct line l;
    struct blob meta = {0};
    clb_packet *held[3];
    clb_stream_params sp = {0};
    l = (struct line){0};
    line_open(&l, &sp);
    meta_any(&meta, 700);
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 3; i++) {
            pack(&l.whole, i, 5000, &meta, TYPE_UNKNOWN);
            rig_send(&l.r, &l.whole, 0);
            held[i] = rig_read(&l.r);
            l.moved += info_of(held[i]).moved_bytes;
            l.readback += info_of(held[i]).readback_bytes;
            l.spilled += info_of(held[i]).spilled != 0;
            l.spill_bytes += info_of(held[i]).spilled ? 5000 : 0;
            learn(&l.o, 5000, l.whole.n);
        }
        any_packet(&l, round, round % 2 ? 1500000 : 5000 + META_MAX, 700);
        any_packet(&l, round, 1500000, 700);
        for (unsigned i = 0; i < 3; i++) {
            check_split(held[i], i, 5000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
            clb_packet_free(&held[i]);
        }
    }
    line_close(&l);
    blob_free(&meta);
}

/* Geometry by the application's word: not even the first packet is copied, and buffers of exactly the
 * frame's size serve. */
static void configured(void)
{
    static struct line l;
    clb_stream_params sp = {0};
    l = (struct line){0};
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_BGR24, 120, 80, 0, 0), CLB_OK);
    l.o.configured = clb_image_bytes(&sp.image);
    line_open(&l, &sp);
    l.r.mem.fixed = l.o.configured;
    for (unsigned i = 0; i < 50; i++) {
        l.meta.n = 0;
        meta_frame(&l.meta, &(struct meta_frame){.type = FT_BGR888I,
                                                 .width = 120,
                                                 .height = 80,
                                                 .stride = 360,
                                                 .seq = i,
                                                 .pad = pick(&l.rnd, 2000)});
        pack(&l.whole, i, l.o.configured, &l.meta, TYPE_FRAME);
        exchange(&l, i, l.o.configured, TYPE_FRAME);
    }
    CHECK_EQ(l.spilled + l.moved + l.readback, 0);
    CHECK_EQ(l.r.mem.toobig, 0);
    line_close(&l);
}

/* A fixed pool of exactly the frame's size, and no geometry: the guess for the second packet is too big
 * for it, so that it goes the host way; from the third on the size is known, and what is asked when room to
 * spare cannot be had. Nothing failed. */
static void exact_pool(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    r.mem.fixed = 30000;
    for (unsigned i = 0; i < 30; i++) {
        meta.n = 0;
        meta_any(&meta, 300 + i % 7);
        pack(&whole, i, 30000, &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        check_split(p, i, 30000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        CHECK_EQ(info_of(p).spilled, i < 2);
        CHECK_EQ(info_of(p).moved_bytes + info_of(p).readback_bytes, 0);
        CHECK_EQ(r.mem.last.capacity, 30000);
        clb_packet_free(&p);
    }
    const clb_stream_stats st = rig_stats(&r);
    CHECK_GE(r.mem.toobig, 1);
    CHECK_EQ(st.alloc_failed, 0);
    CHECK_EQ(st.spilled, 2);
    CHECK_EQ(st.spill_bytes, 60000);
    CHECK_EQ(st.packets, 30);
    /* One that is really too big is dropped, as ever; the next ones come. */
    pack(&whole, 1, 30001, &meta, TYPE_UNKNOWN);
    rig_send(&r, &whole, 0);
    pack(&whole, 2, 30000, &meta, TYPE_UNKNOWN);
    rig_send(&r, &whole, 0);
    clb_packet *p = rig_read(&r);
    check_split(p, 2, 30000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
    CHECK_EQ(info_of(p).dropped_before, 1);
    clb_packet_free(&p);
    CHECK_EQ(rig_stats(&r).alloc_failed, 1);
    rig_credited(&r);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* By the application's word 8000 bytes are certain, and the buffers have no more. Pixels that grow beyond,
 * and trailers that lie, do not fit: the whole packet is there all the same, read back from where it lay. With
 * write_only there is what the buffer has. */
static void larger_than_certain(bool write_only)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .write_only = write_only};
    r = (struct rig){0};
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 80, 100, 0, 0), CLB_OK);
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    meta_any(&meta, 500);
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 4; i++) {
            pack(&whole, i, 8000, &meta, TYPE_UNKNOWN);
            rig_send(&r, &whole, 0);
            clb_packet *p = rig_read(&r);
            /* The one behind those that grew: more was expected of it. */
            if (write_only && i == 0 && info_of(p).metadata_status == CLB_METADATA_BAD) {
                CHECK(round == 1 || round == 3);
                CHECK_EQ(clb_packet_size(p), 8000);
                check_pixels(clb_packet_data(p), i, 8000);
            } else {
                check_split(p, i, 8000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
            }
            clb_packet_free(&p);
        }
        const clb_stream_stats before = rig_stats(&r);
        const bool raw = round % 2;
        pack(&whole, 9, 8100, &meta, TYPE_UNKNOWN);
        whole.data[whole.n - 3] ^= raw;
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        const clb_packet_info info = info_of(p);
        const clb_stream_stats after = rig_stats(&r);
        if (write_only) {
            CHECK_EQ(info.metadata_status, CLB_METADATA_BAD);
            CHECK_EQ(clb_packet_size(p), 8000);
            check_pixels(clb_packet_data(p), 9, 8000);
            CHECK_EQ(info.readback_bytes, 0);
            CHECK_EQ(info.spilled, 0);
        } else {
            if (raw) {
                check_raw(p, &whole);
            } else {
                check_split(p, 9, 8100, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
            }
            CHECK_EQ(info.readback_bytes, 8000);
            CHECK_EQ(info.spilled, 1);
            CHECK_EQ(after.readback_bytes - before.readback_bytes, 8000);
            CHECK_EQ(after.spilled - before.spilled, 1);
            CHECK_EQ(after.spill_bytes - before.spill_bytes, raw ? whole.n : 8100);
        }
        CHECK_EQ(info.moved_bytes, 0);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).alloc_failed, 0);
    rig_credited(&r);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* With write_only a guess that was too high costs the metadata; nothing is read, and the pixels are whole. */
static void write_only_shrinks(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .write_only = 1};
    uint32_t rnd = 4;
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 60; i++) {
        const bool shrinks = i % 4 == 3;
        const size_t d = shrinks ? 7999 - pick(&rnd, 200) : 8000;
        meta.n = 0;
        meta_any(&meta, 300 + pick(&rnd, 64));
        pack(&whole, i, d, &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        if (shrinks) {
            size_t size = 1;
            CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
            CHECK_EQ(clb_packet_size(p), d);
            CHECK(clb_packet_metadata(p, &size) == NULL);
            CHECK_EQ(size, 0);
            CHECK_EQ(info_of(p).claimed_metadata, meta.n);
            CHECK_EQ(info_of(p).total, whole.n);
            check_pixels(clb_packet_data(p), i, d);
        } else {
            check_split(p, i, d, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        }
        CHECK_EQ(info_of(p).readback_bytes, 0);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).readback_bytes, 0);
    CHECK_EQ(rig_stats(&r).bad_metadata, 15);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* A thousand frames: no pixel is moved, none is read back, one spills at most, and there is no heap
 * allocation after the first ones. */
static void steady(bool geometry, bool threaded)
{
    static struct rig r;
    static struct blob whole[16], meta[16];
    clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO};
    const size_t d = 64 * 48 * 3 / 2;
    uint64_t heap = 0, moved = 0;
    r = (struct rig){.threaded = threaded};
    if (geometry) {
        CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_NV12, 64, 48, 0, 0), CLB_OK);
    }
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 16; i++) {
        whole[i].n = meta[i].n = 0;
        meta_frame(
            &meta[i],
            &(struct meta_frame){
                .type = FT_NV12, .width = 64, .height = 48, .seq = i * 1000, .pad = i * i * 7});
        pack(&whole[i], i, d, &meta[i], TYPE_FRAME);
    }
    clb_packet *held[4] = {0};
    for (unsigned i = 0; i < 1000; i++) {
        const unsigned k = (15 + i * 7) % 16; /* the longest metadata first */
        rig_send(&r, &whole[k], 0);
        clb_packet *p = rig_read(&r);
        check_split(p, k, d, &meta[k], TYPE_FRAME, CLB_METADATA_OK);
        clb_packet_free(&held[i % 4]);
        held[i % 4] = p;
        clb_link_stats ls;
        clb_link_get_stats(r.link, &ls, sizeof ls);
        if (i == 20) {
            heap = ls.heap_allocs;
        }
        if (i == 1) {
            moved = rig_stats(&r).moved_bytes; /* the second packet's guess */
        }
        CHECK(i < 20 || ls.heap_allocs == heap);
    }
    for (int i = 0; i < 4; i++) {
        clb_packet_free(&held[i]);
    }
    const clb_stream_stats st = rig_stats(&r);
    CHECK_EQ(st.packets, 1000);
    CHECK_EQ(st.moved_bytes, moved);
    CHECK_EQ(moved == 0, geometry);
    CHECK_EQ(st.readback_bytes, 0);
    CHECK_EQ(st.spilled, geometry ? 0 : 1);
    CHECK_EQ(st.spill_bytes, geometry ? 0 : d);
    CHECK_EQ(st.bad_metadata, 0);
    rig_close(&r);
    for (int i = 0; i < 16; i++) {
        blob_free(&whole[i]);
        blob_free(&meta[i]);
    }
}

int main(void)
{
    check_watchdog(200);
    RUN(metadata_jumps(20000));
    RUN(metadata_jumps(50));
    RUN(none_and_some());
    RUN(encoded());
    RUN(anything(0, 99));
    RUN(anything(300, 98));
    RUN(anything(100000, 97));
    RUN(leaps());
    RUN(configured());
    RUN(exact_pool());
    RUN(larger_than_certain(false));
    RUN(larger_than_certain(true));
    RUN(write_only_shrinks());
    RUN(steady(false, false));
    RUN(steady(true, false));
    RUN(steady(false, true));
    return 0;
}
