/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets with trailers, and everything else that happens to packets: no buffer, policies that drop, a
 * stream that is opened late or closed early, links that end in the middle of a payload, packets that
 * outlive all of it, readers that race. Buffers and host memory come home in every case.
 */
#include "trailer_kit.h"

#include <stdatomic.h>

#define WINDOW (4u << 20)
#define PIXELS 6000u
#define FIRST (CLBI_WIRE_HEADER + PIXELS) /* the first byte behind the pixels */

static size_t metadata_of(unsigned seed)
{
    return 200 + seed * 37 % 300;
}

/* The packet of that number; pixels of the same size, metadata of various ones. */
static void make(struct blob *whole, struct blob *meta, unsigned seed)
{
    meta->n = 0;
    meta_any(meta, metadata_of(seed));
    pack(whole, seed, PIXELS, meta, TYPE_UNKNOWN);
}

static void send_one(struct rig *r, unsigned seed)
{
    struct blob whole = {0}, meta = {0};
    make(&whole, &meta, seed);
    rig_send(r, &whole, 0);
    blob_free(&whole);
    blob_free(&meta);
}

static void check_one(const clb_packet *p, unsigned seed)
{
    struct blob whole = {0}, meta = {0};
    make(&whole, &meta, seed);
    check_split(p, seed, PIXELS, &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
    CHECK_EQ(info_of(p).total, whole.n);
    blob_free(&whole);
    blob_free(&meta);
}

static void begin(struct rig *r, enum clb_full on_full, uint32_t queue_len)
{
    clb_stream_params sp = {
        .trailer = CLB_TRAILER_DEPTHAI, .on_full = on_full, .queue_len = queue_len};
    mem_init(&r->mem);
    rig_open(r, &sp, WINDOW);
}

/* Three packets: the size is known. */
static void warm_up(struct rig *r, int spilled)
{
    for (unsigned i = 0; i < 3; i++) {
        send_one(r, i);
        clb_packet *p = rig_read(r);
        check_one(p, i);
        CHECK_EQ(info_of(p).spilled, i == 0 && spilled);
        clb_packet_free(&p);
    }
}

/* ---- no buffer --------------------------------------------------------------------------------- */

/* While one waits in host memory the later ones go there as well, in order; pixels alone are copied. */
static void block_spills(void)
{
    static struct rig r;
    r = (struct rig){0};
    begin(&r, CLB_FULL_BLOCK, 0);
    warm_up(&r, 1);
    const clb_stream_stats before = rig_stats(&r);
    r.mem.limit = 1;
    send_one(&r, 10);
    clb_packet *held = rig_read(&r), *p = NULL;
    for (unsigned i = 11; i < 15; i++) {
        send_one(&r, i);
    }
    rig_arrived(&r, 8);
    CHECK_EQ(clb_stream_read(r.s, &p, 0), CLB_ERR_NOBUFS);
    CHECK_EQ(clb_stream_read(r.s, &p, 30 * MS), CLB_ERR_NOBUFS);
    check_one(held, 10);
    clb_packet_free(&held);
    r.mem.limit = 2;
    send_one(&r, 15); /* buffers are free, but there is one in front */
    for (unsigned i = 11; i < 16; i++) {
        p = rig_read(&r);
        check_one(p, i);
        CHECK_EQ(info_of(p).spilled, 1);
        CHECK_EQ(info_of(p).moved_bytes + info_of(p).readback_bytes, 0);
        clb_packet_free(&p);
    }
    send_one(&r, 16);
    p = rig_read(&r);
    check_one(p, 16);
    CHECK_EQ(info_of(p).spilled, 0);
    clb_packet_free(&p);
    const clb_stream_stats st = rig_stats(&r);
    CHECK_EQ(st.spilled - before.spilled, 5);
    CHECK_EQ(st.spill_bytes - before.spill_bytes, 5 * PIXELS);
    CHECK_EQ(st.alloc_failed + st.bad_metadata, 0);
    rig_credited(&r);
    rig_close(&r);
}

/* What waits in host memory when the stream is closed. */
static void spilled_and_closed(bool link_first)
{
    static struct rig r;
    r = (struct rig){0};
    begin(&r, CLB_FULL_BLOCK, 0);
    warm_up(&r, 1);
    r.mem.limit = 1;
    send_one(&r, 10);
    clb_packet *held = rig_read(&r), *p = NULL;
    for (unsigned i = 11; i < 15; i++) {
        send_one(&r, i);
    }
    rig_arrived(&r, 8);
    CHECK_EQ(clb_stream_read(r.s, &p, 0), CLB_ERR_NOBUFS);
    if (link_first) {
        clb_link_close(&r.link);
        CHECK_EQ(clb_stream_read(r.s, &p, 0), CLB_ERR_NOBUFS);
    }
    clb_stream_close(&r.s);
    check_one(held, 10);
    clb_packet_free(&held);
    rig_close(&r);
}

/* A packet that has to be moved out of a buffer that is too small for it, and the end before it is read; with
 * a buffer for it and without. */
static void misplaced_and_closed(bool link_first, bool read, int limit)
{
    static struct rig r;
    struct blob whole = {0}, meta = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    clb_packet *held = NULL, *p = NULL;
    r = (struct rig){0};
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 60, 100, 0, 0), CLB_OK);
    mem_init(&r.mem);
    rig_open(&r, &sp, WINDOW);
    warm_up(&r, 0);
    send_one(&r, 8);
    held = rig_read(&r);
    make(&whole, &meta, 9);
    whole.data[whole.n - 1] ^= 1;
    rig_send(&r, &whole, 0);
    send_one(&r, 10);
    rig_arrived(&r, 6);
    r.mem.limit = limit;
    if (link_first) {
        clb_link_close(&r.link);
    }
    if (read) {
        CHECK_EQ(clb_stream_read(r.s, &p, 0), limit ? CLB_ERR_NOBUFS : CLB_OK);
        if (p) {
            check_raw(p, &whole);
            CHECK_EQ(info_of(p).readback_bytes, PIXELS);
            clb_packet_free(&p);
            p = rig_read(&r);
            check_one(p, 10);
            clb_packet_free(&p);
        }
    }
    clb_stream_close(&r.s);
    check_one(held, 8);
    clb_packet_free(&held);
    rig_close(&r);
    blob_free(&whole);
    blob_free(&meta);
}

/* ---- policies ---------------------------------------------------------------------------------- */

static void drop_oldest(void)
{
    static struct rig r;
    r = (struct rig){0};
    begin(&r, CLB_FULL_DROP_OLDEST, 2);
    for (unsigned i = 0; i < 10; i++) { /* the first of all is among those that go */
        send_one(&r, i);
    }
    rig_arrived(&r, 10);
    for (unsigned i = 8; i < 10; i++) {
        clb_packet *p = rig_read(&r);
        check_one(p, i);
        CHECK_EQ(info_of(p).dropped_before, i == 8 ? 8 : 0);
        CHECK_EQ(info_of(p).spilled, 0);
        CHECK_EQ(info_of(p).moved_bytes + info_of(p).readback_bytes, 0);
        clb_packet_free(&p);
    }
    /* No buffer at all, but for those that are unread. */
    r.mem.limit = 2;
    for (unsigned i = 10; i < 20; i++) {
        send_one(&r, i);
    }
    rig_arrived(&r, 20);
    for (unsigned i = 18; i < 20; i++) {
        clb_packet *p = rig_read(&r);
        check_one(p, i);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).dropped_oldest, 16);
    rig_credited(&r);
    rig_close(&r);
}

static void drop_newest(void)
{
    static struct rig r;
    clb_packet *held[2];
    r = (struct rig){0};
    begin(&r, CLB_FULL_DROP_NEWEST, 2);
    for (unsigned i = 0; i < 10; i++) {
        send_one(&r, i);
    }
    for (unsigned i = 0; i < 2; i++) {
        rig_arrived(&r, 10);
        clb_packet *p = rig_read(&r);
        check_one(p, i);
        clb_packet_free(&p);
    }
    warm_up(&r, 0);
    r.mem.limit = 2;
    for (unsigned i = 0; i < 2; i++) {
        send_one(&r, 20 + i);
        held[i] = rig_read(&r);
    }
    for (unsigned i = 0; i < 5; i++) {
        send_one(&r, 30 + i);
    }
    rig_arrived(&r, 20);
    for (unsigned i = 0; i < 2; i++) {
        check_one(held[i], 20 + i);
        clb_packet_free(&held[i]);
    }
    send_one(&r, 40);
    clb_packet *p = rig_read(&r);
    check_one(p, 40);
    CHECK_EQ(info_of(p).dropped_before, 5);
    clb_packet_free(&p);
    CHECK_EQ(rig_stats(&r).dropped_newest, 13);
    rig_credited(&r);
    rig_close(&r);
}

/* ---- late and early ---------------------------------------------------------------------------- */

/* What came before there was a stream, the last of it in part. */
static void opened_late(enum clb_full on_full, bool own_pool)
{
    static struct rig r;
    struct blob whole = {0}, meta = {0};
    r = (struct rig){.eager = true};
    clb_stream_params sp = {
        .trailer = CLB_TRAILER_AUTO, .on_full = on_full, .struct_size = sizeof sp, .name = "a"};
    mem_init(&r.mem);
    rig_connect(&r, WINDOW);
    for (unsigned i = 0; i < 4; i++) {
        send_one(&r, i);
    }
    make(&whole, &meta, 4);
    rig_send_header(&r, whole.n);
    rig_push(&r, whole.data, whole.n / 2, 0);
    for (int i = 0; i < 10; i++) {
        rig_turn(&r);
    }
    sp.allocator = own_pool ? (struct clb_allocator){0} : mem_allocator(&r.mem);
    CHECK_EQ(clb_stream_open(&r.s, r.link, &sp), CLB_OK);
    rig_push(&r, whole.data + whole.n / 2, whole.n - whole.n / 2, 0);
    send_one(&r, 5);
    rig_arrived(&r, 6);
    const unsigned from = on_full == CLB_FULL_BLOCK ? 0 : 2; /* four are kept */
    for (unsigned i = from; i < 6; i++) {
        clb_packet *p = rig_read(&r);
        check_one(p, i);
        CHECK_EQ((uintptr_t)clb_packet_data(p) % 64, 0);
        clb_packet_free(&p);
    }
    CHECK_EQ(rig_stats(&r).bad_metadata, 0);
    CHECK_EQ(rig_stats(&r).metadata_bytes > 0, 1);
    if (own_pool) {
        CHECK_EQ(rig_stats(&r).spill_bytes, 0);
    }
    rig_credited(&r);
    rig_close(&r);
    blob_free(&whole);
    blob_free(&meta);
}

/* Closed and opened again: what was learned belongs to the handle, not to the name. */
static void opened_again(void)
{
    static struct rig r;
    r = (struct rig){0};
    begin(&r, CLB_FULL_BLOCK, 0);
    for (int k = 0; k < 3; k++) {
        warm_up(&r, 1);
        CHECK_EQ(rig_stats(&r).spilled, 1);
        rig_credited(&r);
        clb_stream_close(&r.s);
        clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO,
                                .struct_size = sizeof sp,
                                .name = "a",
                                .allocator = mem_allocator(&r.mem)};
        CHECK_EQ(clb_stream_open(&r.s, r.link, &sp), CLB_OK);
    }
    rig_close(&r);
}

/* ---- the end in the middle of a payload -------------------------------------------------------- */

enum how { STREAM_CLOSED, LINK_CLOSED, PEER_GONE, PEER_ABORTS, SHUTDOWN, HOWS };

static void end_at(enum how how, size_t at, unsigned warm, bool repitch, bool threaded)
{
    static struct rig r;
    struct blob all = {0}, whole = {0}, meta = {0};
    clb_packet *held = NULL, *p = NULL;
    r = (struct rig){.threaded = threaded, .tcp = how == PEER_ABORTS};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    if (repitch) {
        CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 100, 60, 0, 0), CLB_OK);
        sp.dst_pitch_align = 64;
    }
    mem_init(&r.mem);
    r.mem.stretch = true;
    rig_open(&r, &sp, WINDOW);
    for (unsigned i = 0; i < warm; i++) {
        send_one(&r, i);
        clb_packet_free(&held);
        held = rig_read(&r);
    }
    send_one(&r, warm); /* and one unread */
    rig_arrived(&r, warm + 1);
    make(&whole, &meta, 9);
    rig_send_header(&r, whole.n);
    at = at < whole.n ? at : whole.n - 1;
    rig_push(&r, whole.data, at, 0);
    for (int i = 0; i < 3; i++) {
        rig_turn(&r);
    }
    switch (how) {
    case STREAM_CLOSED:
        clb_stream_close(&r.s);
        rig_push(&r, whole.data + at, whole.n - at, 0);
        clb_packet_free(&held);
        rig_credited(&r);
        break;
    case LINK_CLOSED: clb_link_close(&r.link); break;
    case PEER_GONE: peer_close(&r.peer); break;
    case PEER_ABORTS: peer_abort(&r.peer); break;
    default: CHECK(clb_link_shutdown(r.link, 20 * MS) != CLB_ERR_INVAL); break;
    }
    if (r.s) {
        /* What was whole is there; what was not is not. */
        CHECK_EQ(clb_stream_read(r.s, &p, 5 * SEC), CLB_OK);
        CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_OK);
        check_pixels(clb_packet_data(p), warm, repitch ? 100 : PIXELS);
        clb_packet_free(&p);
        const int err = clb_stream_read(r.s, &p, 5 * SEC);
        CHECK(err == CLB_ERR_LOST || err == CLB_ERR_CLOSED);
    }
    clb_packet_free(&held);
    rig_close(&r);
    blob_free(&all);
    blob_free(&whole);
    blob_free(&meta);
}

static void every_end(bool repitch)
{
    const size_t at[] = {0,      1,          3000,         PIXELS - 70, PIXELS - 1,
                         PIXELS, PIXELS + 1, PIXELS + 300, 99999};
    for (int how = 0; how < HOWS; how++) {
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            end_at((enum how)how, at[i], (unsigned)(i + (size_t)how) % 4, repitch, i % 3 == 0);
        }
    }
}

/* ---- packets outlive everything ---------------------------------------------------------------- */

static void many_held(bool release)
{
    enum { N = 64 };
    static struct rig r;
    clb_packet *held[N];
    struct clb_allocator a[N];
    struct clb_buf buf[N];
    r = (struct rig){0};
    begin(&r, CLB_FULL_BLOCK, 0);
    for (unsigned i = 0; i < N; i++) {
        send_one(&r, i);
        held[i] = rig_read(&r);
    }
    for (unsigned i = 0; i < N; i++) { /* no two share their metadata */
        check_one(held[i], i);
    }
    for (unsigned i = 0; release && i < N; i += 2) {
        a[i] = clb_packet_allocator(held[i]);
        CHECK_EQ(clb_packet_release(held[i], &buf[i]), CLB_OK);
        clb_buf_free(&a[i], &buf[i]);
    }
    clb_stream_close(&r.s);
    clb_link_close(&r.link);
    clb_loop_destroy(&r.loop);
    for (unsigned k = 0; k < N; k++) {
        const unsigned i = k * 29 % N; /* in no order */
        struct blob whole = {0}, meta = {0};
        size_t size = 0;
        make(&whole, &meta, i);
        if (!release) {
            check_one(held[i], i);
            a[i] = clb_packet_allocator(held[i]);
            CHECK_EQ(clb_packet_release(held[i], &buf[i]), CLB_OK);
            clb_buf_free(&a[i], &buf[i]);
        } else if (i % 2) {
            check_one(held[i], i);
        }
        const void *m = clb_packet_metadata(held[i], &size);
        CHECK_EQ(size, meta.n);
        CHECK_EQ(memcmp(m, meta.data, size), 0);
        CHECK_EQ(clb_packet_size(held[i]), PIXELS);
        CHECK_EQ(clb_packet_data(held[i]) == NULL, !release || i % 2 == 0);
        clb_packet_free(&held[i]);
        blob_free(&whole);
        blob_free(&meta);
    }
    rig_close(&r);
}

/* ---- readers ----------------------------------------------------------------------------------- */

#define PACKETS 400

struct readers {
    struct rig r;
    atomic_int got[PACKETS];
    atomic_int left;
};

/* Packet k is of this many pixels; some are larger than ever before, some smaller. */
static size_t size_of(unsigned k)
{
    return k % 5 == 3 ? 4100 + k * 7 : k % 5 == 4 ? 3900 - k : 4000;
}

static void check_numbered(struct readers *x, const clb_packet *p)
{
    struct blob whole = {0}, meta = {0};
    const unsigned k = (unsigned)info_of(p).seq;
    CHECK_LE(k, PACKETS - 1);
    meta_any(&meta, metadata_of(k));
    check_split(p, k, size_of(k), &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
    CHECK_EQ(atomic_fetch_add(&x->got[k], 1), 0);
    atomic_fetch_sub(&x->left, 1);
    blob_free(&whole);
    blob_free(&meta);
}

static void *read_all(void *arg)
{
    struct readers *x = arg;
    clb_packet *held[2] = {0};
    for (unsigned i = 0; atomic_load(&x->left) > 0; i++) {
        clb_packet *p = NULL;
        const int err = clb_stream_read(x->r.s, &p, 20 * MS);
        clb_packet_free(&held[i % 2]);
        CHECK(err == CLB_OK || err == CLB_ERR_TIMEOUT || err == CLB_ERR_NOBUFS);
        if (p) {
            check_numbered(x, p);
            held[i % 2] = p;
        }
    }
    clb_packet_free(&held[0]);
    clb_packet_free(&held[1]);
    return NULL;
}

static void send_numbered(struct readers *x)
{
    struct blob whole = {0}, meta = {0};
    for (unsigned k = 0; k < PACKETS; k++) {
        meta.n = 0;
        meta_any(&meta, metadata_of(k));
        pack(&whole, k, size_of(k), &meta, TYPE_UNKNOWN);
        rig_send(&x->r, &whole, 0);
    }
    blob_free(&whole);
    blob_free(&meta);
}

/* Two threads read one stream whose buffers are few, and whose guesses are often wrong. */
static void two_readers(int limit, bool own_pool)
{
    static struct readers x;
    pthread_t thread[2];
    memset(&x, 0, sizeof x);
    atomic_store(&x.left, PACKETS);
    x.r.threaded = true;
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    /* By this word the buffers are of 4000 bytes: what is larger has to be read back. */
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 80, 50, 0, 0), CLB_OK);
    mem_init(&x.r.mem);
    x.r.mem.limit = limit;
    if (own_pool) {
        rig_open_own(&x.r, &sp, 1u << 16);
    } else {
        rig_open(&x.r, &sp, 1u << 16);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&thread[i], NULL, read_all, &x), 0);
    }
    send_numbered(&x);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
    }
    CHECK_EQ(rig_stats(&x.r).packets, PACKETS);
    CHECK_EQ(rig_stats(&x.r).alloc_failed, 0);
    CHECK_EQ(rig_stats(&x.r).spill_bytes > 0, !own_pool);
    CHECK_GT(rig_stats(&x.r).readback_bytes, 0);
    rig_credited(&x.r);
    rig_close(&x.r);
}

static void on_ready(void *priv, clb_stream *s)
{
    struct readers *x = priv;
    clb_packet *p = NULL;
    while (clb_stream_read(s, &p, 0) == CLB_OK) {
        check_numbered(x, p);
        clb_packet_free(&p);
    }
}

/* Read on the loop's own thread, in the callback. */
static void read_in_callback(bool threaded)
{
    static struct readers x;
    memset(&x, 0, sizeof x);
    atomic_store(&x.left, PACKETS);
    x.r.threaded = threaded;
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .ready_cb = on_ready, .priv = &x};
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 80, 50, 0, 0), CLB_OK);
    mem_init(&x.r.mem);
    rig_open(&x.r, &sp, 1u << 16);
    send_numbered(&x);
    rig_arrived(&x.r, PACKETS);
    rig_credited(&x.r);
    CHECK_EQ(atomic_load(&x.left), 0);
    rig_close(&x.r);
}

int main(void)
{
    check_watchdog(200);
    RUN(block_spills());
    RUN(spilled_and_closed(false));
    RUN(spilled_and_closed(true));
    for (int i = 0; i < 8; i++) {
        RUN(misplaced_and_closed(i & 1, i & 2, i & 4 ? 1 : 0));
    }
    RUN(drop_oldest());
    RUN(drop_newest());
    RUN(opened_late(CLB_FULL_BLOCK, false));
    RUN(opened_late(CLB_FULL_BLOCK, true));
    RUN(opened_late(CLB_FULL_DROP_OLDEST, false));
    RUN(opened_again());
    RUN(every_end(false));
    RUN(every_end(true));
    RUN(many_held(false));
    RUN(many_held(true));
    RUN(two_readers(5, false));
    RUN(two_readers(0, false));
    RUN(two_readers(0, true));
    RUN(read_in_callback(false));
    RUN(read_in_callback(true));
    return 0;
}
