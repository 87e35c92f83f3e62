/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of several packets, some of which get lost; and how much of a buffer is told to be written. */
#include "trailer_kit.h"

#define WINDOW (1u << 20)
#define PART 2000u

/* Head of a split message. */
static void split_head(struct blob *whole, uint32_t parts, uint32_t bytes, size_t pixels)
{
    struct blob meta = {0};
    blob_put(&meta, "\xB9\x02\x82", 3);
    blob_le32(&meta, parts);
    blob_byte(&meta, 0x82);
    blob_le32(&meta, bytes);
    pack(whole, 3, pixels, &meta, 48);
    blob_free(&meta);
}

static void send_part(struct rig *r, unsigned i)
{
    struct blob part = {0};
    blob_pixels(&part, i, PART);
    rig_send(r, &part, 0);
    blob_free(&part);
}

static void expect_part(struct rig *r, unsigned i, unsigned count)
{
    clb_packet *p = rig_read(r);
    CHECK_EQ(info_of(p).part, CLB_PART_SPLIT);
    CHECK_EQ(info_of(p).part_index, i);
    CHECK_EQ(info_of(p).part_count, count);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_NONE);
    CHECK_EQ(clb_packet_size(p), PART);
    check_pixels(clb_packet_data(p), i, PART);
    clb_packet_free(&p);
}

static void expect_head(struct rig *r, enum clb_part part)
{
    clb_packet *p = rig_read(r);
    CHECK_EQ(info_of(p).part, part);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_OK);
    clb_packet_free(&p);
}

/* An ordinary packet. */
static void whole_one(struct rig *r, unsigned seed)
{
    struct blob meta = {0}, whole = {0};
    meta_any(&meta, 60);
    pack(&whole, seed, 1000, &meta, TYPE_UNKNOWN);
    rig_send(r, &whole, 0);
    clb_packet *p = rig_read(r);
    check_split(p, seed, 1000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
    CHECK_EQ(info_of(p).part, CLB_PART_WHOLE);
    clb_packet_free(&p);
    blob_free(&meta);
    blob_free(&whole);
}

/* A part that is not taken is one of them all the same: the others keep their numbers, and behind the last
 * one trailers count again. `full`: the queue is full, or else the allocator has nothing so large. */
static void lost_parts(bool full)
{
    static struct rig r;
    struct blob head = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .queue_len = 1};
    sp.on_full = full ? CLB_FULL_DROP_NEWEST : CLB_FULL_BLOCK;
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    split_head(&head, 4, 4 * PART, 0);
    whole_one(&r, 1);
    for (unsigned round = 0; round < 3; round++) {
        rig_send(&r, &head, 0);
        expect_head(&r, CLB_PART_SPLIT_HEAD);
        send_part(&r, 0);
        rig_arrived(&r, 6 * round + 3);
        if (!full) {
            expect_part(&r, 0, 4);
            r.mem.fixed = PART - 1;
        }
        send_part(&r, 1);
        rig_arrived(&r, 6 * round + 4);
        r.mem.fixed = 0;
        if (full) {
            expect_part(&r, 0, 4);
        }
        send_part(&r, 2);
        expect_part(&r, 2, 4);
        send_part(&r, 3);
        expect_part(&r, 3, 4);
        whole_one(&r, 2 + round);
    }
    CHECK_EQ(rig_stats(&r).dropped_newest, full ? 3 : 0);
    CHECK_EQ(rig_stats(&r).alloc_failed, full ? 0 : 3);
    CHECK_EQ(rig_stats(&r).bad_metadata, 0);
    rig_close(&r);
    blob_free(&head);
}

/* What announces a split message has no pixels, and not more parts than there can be. */
static void no_heads(void)
{
    static struct rig r;
    struct blob head = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    whole_one(&r, 1);
    for (unsigned i = 0; i < 2; i++) {
        split_head(&head, i == 0 ? 3 : 65537, 3 * 65537, i == 0 ? 100 : 0);
        rig_send(&r, &head, 0);
        clb_packet *p = rig_read(&r);
        CHECK_EQ(info_of(p).part, CLB_PART_WHOLE);
        CHECK(i == 0 || info_of(p).metadata_status == CLB_METADATA_BAD);
        clb_packet_free(&p);
        whole_one(&r, 2);
        whole_one(&r, 3);
    }
    rig_close(&r);
    blob_free(&head);
}

/* The parts of a message are no members of the group that it comes in. */
static void parts_in_a_group(void)
{
    static struct rig r;
    struct blob group = {0}, head = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    blob_file(&group, "trailers/v3.10/messagegroup-2.trailer.bin");
    split_head(&head, 2, 2 * PART, 0);
    for (unsigned round = 0; round < 2; round++) {
        rig_send(&r, &group, 0);
        expect_head(&r, CLB_PART_GROUP_HEAD);
        rig_send(&r, &head, 0);
        expect_head(&r, CLB_PART_SPLIT_HEAD);
        send_part(&r, 0);
        expect_part(&r, 0, 2);
        send_part(&r, 1);
        expect_part(&r, 1, 2);
    }
    rig_close(&r);
    blob_free(&group);
    blob_free(&head);
}

/* The consumer gets every byte that was written, and no other is promised to be there. */
static void written_bytes(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < 12; i++) {
        const size_t pixels =
            3000 + i / 3 * 16; /* copied, guessed, known; then longer by a little */
        meta.n = 0;
        meta_any(&meta, 100);
        pack(&whole, i, pixels, &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        struct clb_buf buf;
        struct clb_allocator a = clb_packet_allocator(p);
        check_split(p, i, pixels, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        CHECK_EQ(clb_packet_release(p, &buf), CLB_OK);
        CHECK_EQ(r.mem.last_written, pixels);
        clb_buf_free(&a, &buf);
        clb_packet_free(&p);
    }
    CHECK_GT(rig_stats(&r).moved_bytes, 0);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* A raw packet in memory that is not read: as much of it as there was room for. */
static void raw_write_only(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .write_only = 1};
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    meta_any(&meta, 100);
    for (unsigned i = 0; i < 9; i++) {
        const bool lie = i % 3 == 2;
        pack(&whole, i, 3000, &meta, TYPE_UNKNOWN);
        if (lie) {
            whole.data[whole.n - 18] ^= 0x80; /* the size */
        }
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        if (lie) {
            CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_BAD);
            CHECK_EQ(clb_packet_size(p), whole.n - TRAILER);
            CHECK_EQ(memcmp(clb_packet_data(p), whole.data, whole.n - TRAILER), 0);
        } else {
            check_split(p, i, 3000, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
        }
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).readback_bytes, 0);
    CHECK_EQ(rig_stats(&r).bad_metadata, 3);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

/* The link's own pool: what came to host memory is delivered where it lies. */
static void in_place(void)
{
    static struct rig r;
    struct blob meta = {0}, whole = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open_own(&r, &sp, WINDOW);
    meta_any(&meta, 100);
    for (unsigned i = 0; i < 4; i++) {
        pack(&whole, i, 3000, &meta, TYPE_UNKNOWN);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        CHECK_EQ(info_of(p).spilled, i == 0);
        CHECK_EQ(clb_packet_size(p), 3000);
        CHECK_EQ(memcmp(clb_packet_data(p), whole.data, 3000), 0);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).spill_bytes, 0);
    rig_close(&r);
    blob_free(&meta);
    blob_free(&whole);
}

int main(void)
{
    check_watchdog(100);
    RUN(lost_parts(true));
    RUN(lost_parts(false));
    RUN(no_heads());
    RUN(parts_in_a_group());
    RUN(written_bytes());
    RUN(raw_write_only());
    RUN(in_place());
    return 0;
}
