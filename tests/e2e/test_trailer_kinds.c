/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which packets have a trailer, and of which variant: AUTO, which decides once, NONE, cameras of before
 * there was an end mark; messages of several packets, of which only the first has one, or all.
 */
#include "trailer_kit.h"

#define WINDOW (1u << 20)

/* ---- AUTO, NONE, the old variant --------------------------------------------------------------- */

static void plain_tail(struct blob *b, int32_t type, uint32_t claimed)
{
    blob_le32(b, (uint32_t)type);
    blob_le32(b, claimed);
}

/* AUTO decides once: after a first packet without the mark every packet is its bytes. */
static void auto_decides(void)
{
    struct blob meta = {0}, marked = {0}, bare = {0};
    meta_any(&meta, 100);
    pack(&marked, 3, 5000, &meta, TYPE_UNKNOWN);
    blob_pixels(&bare, 3, 5000);
    blob_put(&bare, meta.data, meta.n);
    plain_tail(&bare, TYPE_UNKNOWN, 100); /* the old variant is not seen by AUTO */
    for (int first = 0; first < 2; first++) {
        static struct rig r;
        r = (struct rig){0};
        clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO};
        mem_init(&r.mem);
        rig_open(&r, &sp, WINDOW);
        for (int i = 0; i < 6; i++) {
            const struct blob *b = (i + first) % 2 ? &bare : &marked;
            rig_send(&r, b, 0);
            clb_packet *p = rig_read(&r);
            const clb_packet_info info = info_of(p);
            if (first) {
                CHECK_EQ(info.metadata_status, CLB_METADATA_NONE);
                CHECK_EQ(info.object_type, 0);
                CHECK_EQ(info.metadata_size, 0);
                CHECK_EQ(info.claimed_metadata, 0);
                CHECK_EQ(clb_packet_size(p), b->n);
                CHECK_EQ(info.total, b->n);
                CHECK_EQ(memcmp(clb_packet_data(p), b->data, b->n), 0);
                CHECK_EQ(info.spilled, i == 0);
            } else if (i % 2) {
                check_raw(p, b);
            } else {
                check_split(p, 3, 5000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
            }
            clb_packet_free(&p);
        }
        CHECK_EQ(rig_stats(&r).bad_metadata, first ? 0 : 3);
        rig_close(&r);
    }
    blob_free(&meta);
    blob_free(&marked);
    blob_free(&bare);
}

/* AUTO with the size of the picture known: a first packet of exactly that size is one without a trailer,
 * and goes straight to its place; a larger one is looked at. */
static void auto_with_geometry(bool marked)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO};
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_NV12, 64, 48, 0, 0), CLB_OK);
    const size_t d = clb_image_bytes(&sp.image);
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 4; i++) {
        meta.n = 0;
        meta_frame(&meta, &(struct meta_frame){
                              .type = FT_NV12, .width = 64, .height = 48, .seq = i, .pad = i * 9});
        pack(&whole, i, d, &meta, TYPE_FRAME);
        whole.n = marked ? whole.n : d;
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        const clb_packet_info info = info_of(p);
        if (marked) {
            check_split(p, i, d, &meta, TYPE_FRAME, CLB_METADATA_OK);
        } else {
            CHECK_EQ(info.metadata_status, CLB_METADATA_NONE);
            CHECK_EQ(clb_packet_size(p), d);
            check_pixels(clb_packet_data(p), i, d);
        }
        CHECK(clb_packet_image(p) != NULL);
        CHECK_EQ(clb_packet_image(p)->fmt, CLB_PIXFMT_NV12);
        CHECK_EQ(info.spilled, 0);
        CHECK_EQ(info.moved_bytes + info.readback_bytes, 0);
        CHECK_EQ(r.mem.last.capacity, d);
        CHECK_EQ(r.mem.last.expect, d);
        CHECK_EQ(r.mem.last.payload, whole.n);
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* The same with packets that are larger than the picture, by padding or by much more, and have no trailer:
 * AUTO makes no difference to their bytes. What it took for the padding of the last row, when it had to
 * decide, may be missing. */
static void auto_without(size_t total, enum clb_trailer trailer)
{
    static struct rig r;
    struct blob whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = trailer};
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 80, 100, 0, 0), CLB_OK);
    mem_init(&r.mem);
    r.mem.stretch = true; /* less comes than the picture needs */
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 3; i++) {
        whole.n = 0;
        blob_pixels(&whole, i, total);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_NONE);
        CHECK_EQ(info_of(p).total, total);
        const bool padding = i == 0 && trailer == CLB_TRAILER_AUTO && total > 8000 && total < 8080;
        CHECK(clb_packet_size(p) == total || (padding && clb_packet_size(p) == 8000));
        if (padding && total >= 8024) { /* it is not worth a copy */
            CHECK_EQ(info_of(p).spilled, 0);
            CHECK_EQ(info_of(p).readback_bytes, 0);
        }
        check_pixels(clb_packet_data(p), i, clb_packet_size(p));
        CHECK_EQ(clb_packet_image(p) != NULL, total >= 8000);
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&whole);
}

/* A packet without a trailer, with NONE, is what it was before there were trailers. */
static void none(bool larger)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_NONE};
    if (larger) { /* the picture that was foreseen is none of these */
        CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 100, 100, 0, 0), CLB_OK);
    }
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    meta_any(&meta, 30);
    pack(&whole, 1, 1000, &meta, TYPE_UNKNOWN);
    for (int i = 0; i < 3; i++) {
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        const clb_packet_info info = info_of(p);
        CHECK_EQ(info.metadata_status, CLB_METADATA_NONE);
        CHECK_EQ(info.size, whole.n);
        CHECK_EQ(info.total, whole.n);
        CHECK_EQ(info.spilled, 0);
        CHECK_EQ(memcmp(clb_packet_data(p), whole.data, whole.n), 0);
        CHECK(clb_packet_image(p) == NULL);
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* Releases before 2.26: no end mark. Frames of steady size with metadata that varies; then a mark. */
static void old_variant(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    uint32_t rnd = 5;
    size_t behind = 0;
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 40; i++) {
        const size_t d = i < 20 ? 7500 : 7400 + pick(&rnd, 200);
        meta.n = whole.n = 0;
        meta_any(&meta, i % 10 == 0 ? 0 : pick(&rnd, 300));
        blob_pixels(&whole, i, d);
        blob_put(&whole, meta.data, meta.n);
        plain_tail(&whole, TYPE_UNKNOWN, (uint32_t)meta.n);
        behind += meta.n + 8;
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        check_split(p, i, d, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 0);
    CHECK_EQ(rig_stats(&r).metadata_bytes, behind);
    /* Metadata that is none: two integers at the end of pixels look like a trailer. */
    whole.n = 0;
    blob_pixels(&whole, 9, 7000);
    plain_tail(&whole, 2, 500);
    rig_send(&r, &whole, 0);
    clb_packet *p = rig_read(&r);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
    CHECK(clb_packet_image(p) == NULL);
    check_pixels(clb_packet_data(p), 9, clb_packet_size(p));
    clb_packet_free(&p);
    /* From the first mark on there has to be one. */
    for (int i = 0; i < 4; i++) {
        meta.n = whole.n = 0;
        meta_any(&meta, 77);
        pack(&whole, 1, 7500, &meta, TYPE_UNKNOWN);
        if (i % 2) {
            whole.n -= 16;
        }
        rig_send(&r, &whole, 0);
        p = rig_read(&r);
        if (i % 2) {
            check_raw(p, &whole);
        } else {
            check_split(p, 1, 7500, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        }
        clb_packet_free(&p);
    }
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* ---- messages of several packets --------------------------------------------------------------- */

static void split_head(struct blob *whole, unsigned parts, uint32_t bytes)
{
    struct blob meta = {0};
    blob_put(&meta, "\xB9\x02", 2);
    blob_byte(&meta, (int)parts);
    blob_byte(&meta, 0x82);
    blob_le32(&meta, bytes);
    pack(whole, 0, 0, &meta, 48);
    blob_free(&meta);
}

/* An ordinary packet. */
static void send_whole(struct rig *r, unsigned seed)
{
    struct blob meta = {0}, whole = {0};
    meta_any(&meta, 60);
    pack(&whole, seed, 3000, &meta, TYPE_UNKNOWN);
    rig_send(r, &whole, 0);
    clb_packet *p = rig_read(r);
    check_split(p, seed, 3000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
    CHECK_EQ(info_of(p).part, CLB_PART_WHOLE);
    clb_packet_free(&p);
    blob_free(&meta);
    blob_free(&whole);
}

static void split_message(bool queued, bool word)
{
    enum { PARTS = 3, PART = 2000 };
    static struct rig r;
    struct blob head = {0}, part = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    split_head(&head, PARTS, PARTS * PART);
    if (word) { /* no part is a picture of its own */
        clb_stream_close(&r.s);
        CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 40, 40, 0, 0), CLB_OK);
        CHECK_EQ(clb_stream_open(&r.s, r.link, &sp), CLB_OK);
    }
    send_whole(&r, 1);
    for (int round = 0; round < 2; round++) {
        clb_packet *p = NULL;
        rig_send(&r, &head, 0);
        for (unsigned i = 0; queued && i < PARTS; i++) {
            part.n = 0;
            blob_pixels(&part, i, PART);
            rig_send(&r, &part, 0);
        }
        p = rig_read(&r);
        CHECK_EQ(info_of(p).part, CLB_PART_SPLIT_HEAD);
        CHECK_EQ(info_of(p).part_count, PARTS);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_OK);
        CHECK_EQ(info_of(p).size, 0);
        clb_packet_free(&p);
        for (unsigned i = 0; i < PARTS; i++) {
            if (!queued) {
                part.n = 0;
                blob_pixels(&part, i, PART);
                rig_send(&r, &part, 0);
            }
            p = rig_read(&r);
            const clb_packet_info info = info_of(p);
            CHECK_EQ(info.part, CLB_PART_SPLIT);
            CHECK_EQ(info.part_index, i);
            CHECK_EQ(info.part_count, PARTS);
            CHECK_EQ(info.metadata_status, CLB_METADATA_NONE);
            CHECK_EQ(info.size, PART);
            CHECK(clb_packet_image(p) == NULL);
            check_pixels(clb_packet_data(p), i, PART);
            clb_packet_free(&p);
        }
        send_whole(&r, 2);
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 0);
    rig_close(&r);
    blob_free(&head);
    blob_free(&part);
}

/* Numbers that cannot be (wire section 10): the head is bad, and what follows is looked at again. */
static void split_message_lies(void)
{
    static const struct {
        uint8_t parts[5];
        int n;
        uint32_t bytes;
    } lie[] = {
        {{0}, 1, 1000},
        {{0x82, 0xFF, 0xFF, 0xFF, 0xFF}, 5, 1000},
        {{3}, 1, 0xFFFFFFFFu},
        {{0x82, 0xFF, 0xFF, 0xFF, 0xFF}, 5, 0xFFFFFFFFu},
    };
    static struct rig r;
    struct blob meta = {0}, head = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    send_whole(&r, 1);
    for (unsigned i = 0; i < sizeof lie / sizeof *lie; i++) {
        meta.n = 0;
        blob_put(&meta, "\xB9\x02", 2);
        blob_put(&meta, lie[i].parts, (size_t)lie[i].n);
        blob_byte(&meta, 0x82);
        blob_le32(&meta, lie[i].bytes);
        pack(&head, 0, 0, &meta, 48);
        rig_send(&r, &head, 0);
        clb_packet *p = rig_read(&r);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
        CHECK_EQ(clb_packet_size(p), 0);
        clb_packet_free(&p);
        send_whole(&r, 2 + i);
        send_whole(&r, 3 + i);
    }
    /* Parts that exceed what was announced: the message is over, trailers count again. */
    split_head(&head, 3, 2000);
    rig_send(&r, &head, 0);
    clb_packet *p = rig_read(&r);
    CHECK_EQ(info_of(p).part, CLB_PART_SPLIT_HEAD);
    clb_packet_free(&p);
    send_whole(&r, 9); /* 3000 bytes of pixels alone */
    send_whole(&r, 10);
    /* All of the parts, and bytes are missing: the last one is bad. */
    rig_send(&r, &head, 0);
    p = rig_read(&r);
    clb_packet_free(&p);
    for (unsigned i = 0; i < 3; i++) {
        head.n = 0;
        blob_pixels(&head, i, 600);
        rig_send(&r, &head, 0);
        p = rig_read(&r);
        CHECK_EQ(info_of(p).part, CLB_PART_SPLIT);
        CHECK_EQ(info_of(p).metadata_status, i == 2 ? CLB_METADATA_BAD : CLB_METADATA_NONE);
        check_pixels(clb_packet_data(p), i, 600);
        clb_packet_free(&p);
    }
    send_whole(&r, 11);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&head);
}

static void message_group(void)
{
    static struct rig r;
    struct blob head = {0}, meta = {0}, whole = {0};
    r = (struct rig){0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    blob_file(&head, "trailers/v3.10/messagegroup-2.trailer.bin");
    meta_frame(&meta, &(struct meta_frame){.type = FT_GRAY8, .width = 50, .height = 40});
    pack(&whole, 4, 2000, &meta, TYPE_FRAME);
    send_whole(&r, 1);
    for (int round = 0; round < 2; round++) {
        rig_send(&r, &head, 0);
        rig_send(&r, &whole, 0);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        CHECK_EQ(info_of(p).part, CLB_PART_GROUP_HEAD);
        CHECK_EQ(info_of(p).part_count, 2);
        clb_packet_free(&p);
        for (unsigned i = 0; i < 2; i++) {
            p = rig_read(&r);
            CHECK_EQ(info_of(p).part, CLB_PART_GROUP);
            CHECK_EQ(info_of(p).part_index, i);
            CHECK_EQ(info_of(p).part_count, 2);
            check_split(p, 4, 2000, &meta, TYPE_FRAME, CLB_METADATA_OK);
            CHECK(clb_packet_image(p) != NULL);
            clb_packet_free(&p);
        }
        send_whole(&r, 2);
    }
    rig_close(&r);
    blob_free(&head);
    blob_free(&meta);
    blob_free(&whole);
}

/* A member that is lost keeps its number, whether it gave way unread or found no buffer when it was read. */
static void group_with_losses(bool unread)
{
    static struct rig r;
    struct blob head = {0}, meta = {0}, first = {0}, second = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    sp.on_full = unread ? CLB_FULL_DROP_OLDEST : CLB_FULL_BLOCK;
    sp.queue_len = 1;
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    r.mem.fixed = unread ? 0 : 1000;
    blob_file(&head, "trailers/v3.10/messagegroup-2.trailer.bin");
    meta_any(&meta, 50);
    pack(&first, 4, 2000, &meta, TYPE_UNKNOWN);
    pack(&second, 5, 600, &meta, TYPE_UNKNOWN);
    for (unsigned round = 0; round < 3; round++) {
        rig_send(&r, &head, 0);
        clb_packet *p = rig_read(&r);
        CHECK_EQ(info_of(p).part, CLB_PART_GROUP_HEAD);
        clb_packet_free(&p);
        rig_send(&r, &first, 0);
        rig_send(&r, &second, 0);
        rig_arrived(&r, 3 * round + 3);
        p = rig_read(&r);
        CHECK_EQ(info_of(p).dropped_before, 1);
        CHECK_EQ(info_of(p).part, CLB_PART_GROUP);
        CHECK_EQ(info_of(p).part_index, 1);
        check_split(p, 5, 600, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).dropped_oldest, unread ? 3 : 0);
    CHECK_EQ(rig_stats(&r).alloc_failed, unread ? 0 : 3);
    rig_close(&r);
    blob_free(&head);
    blob_free(&meta);
    blob_free(&first);
    blob_free(&second);
}

int main(void)
{
    check_watchdog(100);
    RUN(auto_decides());
    RUN(auto_with_geometry(false));
    RUN(auto_with_geometry(true));
    static const size_t totals[] = {7000, 7999, 8000, 8001, 8023, 8024,
                                    8050, 8079, 8080, 8500, 70000};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        RUN(auto_without(totals[i], CLB_TRAILER_NONE));
        RUN(auto_without(totals[i], CLB_TRAILER_AUTO));
    }
    RUN(none(false));
    RUN(none(true));
    RUN(old_variant());
    RUN(split_message(false, false));
    RUN(split_message(true, false));
    RUN(split_message(true, true));
    RUN(split_message_lies());
    RUN(message_group());
    RUN(group_with_losses(true));
    RUN(group_with_losses(false));
    return 0;
}
