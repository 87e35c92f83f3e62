/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-14: a trailer that contradicts itself costs its own packet its meaning, and nothing else.
 * Seven packets: 100 bytes that claim 256 of metadata; 7 bytes; 23 bytes that end with the mark; 24 with
 * the mark and no metadata; 8 without a mark and no metadata; a good one with one byte of the mark
 * changed; a good one. What the trailer says is told with the bad ones. Each buffer ends where its packet
 * ends, with guards behind it and before it.
 */
#include "trailer_kit.h"

#define WINDOW 65536u
/* A valid frame with metadata. */
#define PIXELS 4800u

static struct blob frame, meta;

static void make(struct blob *b, int which)
{
    b->n = 0;
    switch (which) {
    case 0:
        blob_pixels(b, 1, 100 - TRAILER);
        blob_tail(b, 2, 256);
        break;
    case 1: blob_pixels(b, 2, 7); break;
    case 2:
        blob_pixels(b, 3, 7);
        blob_mark(b);
        break;
    case 3: blob_tail(b, 2, 0); break;
    case 4:
        blob_le32(b, 2);
        blob_le32(b, 0);
        break;
    case 5:
    case 6:
        blob_put(b, frame.data, frame.n);
        b->data[b->n - 9] ^= which == 5; /* a byte in the middle of the mark */
        break;
    default: CHECK(0);
    }
}

enum answer { RAW, EMPTY, GOOD };

static void expect(struct rig *r, const struct blob *b, enum answer what)
{
    clb_packet *p = rig_read(r);
    const clb_packet_info info = info_of(p);
    size_t size = 1;
    CHECK_EQ(info.total, b->n);
    if (what == GOOD) {
        check_split(p, 9, PIXELS, &meta, TYPE_FRAME, CLB_METADATA_OK);
        CHECK(clb_packet_image(p) != NULL);
        CHECK_EQ(clb_packet_image(p)->width, 80);
    } else if (what == EMPTY) {
        CHECK_EQ(info.metadata_status, CLB_METADATA_OK);
        CHECK_EQ(info.size, 0);
        CHECK_EQ(info.object_type, 2);
        CHECK(clb_packet_metadata(p, &size) == NULL);
        CHECK_EQ(size, 0);
    } else {
        check_raw(p, b);
    }
    clb_packet_free(&p);
}

/* What is told of the first: type and size as they stand there. */
static void numbers_of_the_first(struct rig *r, const struct blob *b)
{
    clb_packet *p = rig_read(r);
    check_raw(p, b);
    CHECK_EQ(info_of(p).object_type, 2);
    CHECK_EQ(info_of(p).claimed_metadata, 256);
    clb_packet_free(&p);
}

static void open_rig(struct rig *r, bool exact)
{
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r->mem);
    if (exact) {
        CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_BGR24, 80, 20, 0, 0), CLB_OK);
    }
    rig_open(r, &sp, WINDOW);
}

/* In the order of the report. The fourth packet has shown the end mark, so that the fifth, which has none,
 * is nothing that this camera sends. after: so many good packets come first. */
static void in_order(int after, bool exact, size_t chunk, bool threaded)
{
    static struct rig r;
    struct blob b = {0};
    r = (struct rig){.threaded = threaded};
    open_rig(&r, exact);
    for (int i = 0; i < after; i++) {
        rig_send(&r, &frame, chunk);
        expect(&r, &frame, GOOD);
    }
    static const enum answer answers[] = {RAW, RAW, RAW, EMPTY, RAW, RAW, GOOD};
    for (int i = 0; i < 7; i++) {
        make(&b, i);
        rig_send(&r, &b, chunk);
        if (i == 0) {
            numbers_of_the_first(&r, &b);
        } else {
            expect(&r, &b, answers[i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        rig_send(&r, &frame, chunk);
        expect(&r, &frame, GOOD);
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 5);
    CHECK_EQ(rig_stats(&r).packets, 10 + (uint64_t)after);
    CHECK_EQ(rig_stats(&r).alloc_failed, 0);
    CHECK_EQ(clb_link_get_state(r.link, NULL), CLB_LINK_UP);
    rig_credited(&r);
    rig_close(&r);
    blob_free(&b);
}

/* Each alone on a new stream: the old variant is one there. Both before and after it all is well. */
static void each_alone(size_t chunk)
{
    static const enum answer answers[] = {RAW, RAW, RAW, EMPTY, EMPTY, RAW, GOOD};
    for (int i = 0; i < 7; i++) {
        static struct rig r;
        struct blob b = {0};
        r = (struct rig){0};
        open_rig(&r, false);
        make(&b, i);
        for (int k = 0; k < 3; k++) {
            rig_send(&r, &b, chunk);
            expect(&r, &b, answers[i]);
        }
        rig_send(&r, &frame, chunk);
        expect(&r, &frame, GOOD);
        CHECK_EQ(rig_stats(&r).bad_metadata, answers[i] == RAW ? 3 : 0);
        rig_credited(&r);
        rig_close(&r);
        blob_free(&b);
    }
}

int main(void)
{
    check_watchdog(55);
    const int fds = check_fds(), threads = check_threads();
    meta_frame(&meta,
               &(struct meta_frame){
                   .type = FT_BGR888I, .width = 80, .height = 20, .stride = 240, .seq = 1234});
    pack(&frame, 9, PIXELS, &meta, TYPE_FRAME);
    each_alone(0);
    each_alone(1);
    for (int after = 0; after < 4; after++) {
        in_order(after, false, 0, after % 2);
        in_order(after, true, 0, false);
        in_order(after, false, 1, false);
    }
    blob_free(&meta);
    blob_free(&frame);
    check_back_to(fds, threads);
    return 0;
}
