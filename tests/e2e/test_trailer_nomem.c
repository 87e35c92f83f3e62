/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th heap allocation fails, for every n, while packets with trailers are received: the first one in
 * host memory, guesses, some that have to be moved because their buffer is too small, rows that lie
 * wrong, and more packets held than there is memory for metadata. It costs a packet, or its metadata, and is
 * counted; the next one is whole. Allocations of the library alone are asked about: only while it is
 * called does one fail, and those of the buffers never fail.
 */
#include "heap.h"
#include "trailer_kit.h"

#include <errno.h>
#include <sys/socket.h>

#define WINDOW (4u << 20)
#define PACKETS 44
#define HELD 20

/* By the application's word a picture is of 60 rows of 50 bytes. */
static size_t size_of(unsigned k)
{
    return k % 11 == 7 ? 3100 + k : k % 11 == 9 ? 2950 : 3000;
}

static bool is_raw(unsigned k)
{
    return k % 11 == 10;
}

static void make(struct blob *whole, struct blob *meta, unsigned k, bool rows)
{
    meta->n = 0;
    if (rows) {
        const uint32_t long_side = size_of(k) < 3000 ? 59 : 60;
        const bool turned = k % 5 == 4;
        meta_frame(meta, &(struct meta_frame){.type = FT_GRAY8,
                                              .width = turned ? long_side : 50,
                                              .height = turned ? 50 : long_side,
                                              .seq = k,
                                              .pad = k});
    } else {
        meta_any(meta, 300 + k);
    }
    pack(whole, k, size_of(k), meta, rows ? TYPE_FRAME : TYPE_UNKNOWN);
    if (is_raw(k)) {
        whole->data[whole->n - 5] ^= 4;
    }
}

/* Buffers with guards, whatever else fails. */
static struct rig r;

static int alloc_always(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    const bool was = heap_exempt;
    heap_exempt = true;
    const int err = mem_allocator(&r.mem).alloc(opaque, req, out);
    heap_exempt = was;
    return err;
}

/* One packet; the library takes it while its allocations may fail. */
static void send_armed(const struct blob *b)
{
    struct blob all = {0};
    rig_bytes(&r, &all, b);
    heap_exempt = false;
    for (size_t at = 0; at < all.n;) {
        const ssize_t k = send(r.peer.fd, all.data + at, all.n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        CHECK(k > 0 || errno == EAGAIN || errno == EWOULDBLOCK);
        at += k > 0 ? (size_t)k : 0;
        clb_loop_dispatch(r.loop, 0);
    }
    clb_loop_dispatch(r.loop, 0);
    heap_exempt = true;
    blob_free(&all);
}

static void check_any(const clb_packet *p, bool rows)
{
    struct blob whole = {0}, meta = {0};
    const clb_packet_info info = info_of(p);
    const unsigned k = (unsigned)info.seq;
    make(&whole, &meta, k, rows);
    CHECK_EQ(info.total, whole.n);
    if (is_raw(k)) {
        check_raw(p, &whole);
    } else if (!rows && info.metadata_status == CLB_METADATA_OK) {
        check_split(p, k, size_of(k), &meta, TYPE_UNKNOWN, CLB_METADATA_OK);
    } else if (rows && info.metadata_status == CLB_METADATA_OK) {
        const struct clb_image *img = clb_packet_image(p);
        CHECK(img != NULL && img->plane[0].pitch == 64);
        for (size_t y = 0; y < img->height; y++) {
            CHECK_EQ(memcmp((const uint8_t *)clb_packet_data(p) + y * 64,
                            whole.data + y * img->width, img->width),
                     0);
        }
    } else if (!rows) {
        /* There was no memory for its metadata. */
        CHECK(clb_packet_metadata(p, NULL) == NULL);
        check_pixels(clb_packet_data(p), k, size_of(k));
    }
    blob_free(&whole);
    blob_free(&meta);
}

/* Whether the n-th was reached. */
static bool session(int n, bool rows, bool word)
{
    struct blob whole = {0}, meta = {0};
    clb_packet *held[HELD] = {0};
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .struct_size = sizeof sp, .name = "a"};
    unsigned got = 0;
    r = (struct rig){0};
    heap_exempt = true;
    mem_init(&r.mem);
    rig_connect(&r, WINDOW);
    r.mem.stretch = true;
    sp.allocator = mem_allocator(&r.mem);
    sp.allocator.alloc = alloc_always;
    sp.dst_pitch_align = rows ? 64 : 0;
    if (word) {
        CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_GRAY8, 50, 60, 0, 0), CLB_OK);
    }
    heap_fail_nth(n);
    heap_exempt = false;
    int err = clb_stream_open(&r.s, r.link, &sp);
    heap_exempt = true;
    if (err < 0) {
        CHECK_EQ(err, CLB_ERR_NOMEM);
        err = clb_stream_open(&r.s, r.link, &sp);
    }
    CHECK_EQ(err, CLB_OK);
    for (unsigned k = 0; k < PACKETS; k++) {
        clb_packet *p = NULL;
        make(&whole, &meta, k, rows);
        send_armed(&whole);
        heap_exempt = false;
        err = clb_stream_read(r.s, &p, 0);
        heap_exempt = true;
        CHECK(err == CLB_OK || err == CLB_ERR_AGAIN);
        if (p) {
            check_any(p, rows);
            got++;
            clb_packet_free(&held[got % HELD]);
            held[got % HELD] = p;
        }
    }
    const bool reached = heap_fail_end();
    clb_stream_stats st = rig_stats(&r);
    CHECK_EQ(st.packets, PACKETS);
    CHECK_EQ(got + st.alloc_failed, PACKETS);
    CHECK_LE(st.alloc_failed, 1);
    CHECK(reached || st.alloc_failed == 0);
    CHECK_EQ(clb_link_get_state(r.link, NULL), CLB_LINK_UP);
    for (int i = 0; i < HELD; i++) {
        if (held[i]) {
            check_any(held[i], rows);
        }
        clb_packet_free(&held[i]);
    }
    rig_credited(&r);
    rig_close(&r);
    blob_free(&whole);
    blob_free(&meta);
    return reached;
}

static void every_allocation(bool rows, bool word)
{
    int n = 1;
    while (session(n, rows, word)) {
        n++;
        CHECK_LE(n, 1000);
    }
    fprintf(stderr, "%d allocations\n", n - 1);
    CHECK_GE(n, 6);
}

int main(void)
{
    check_watchdog(100);
    RUN(every_allocation(false, false));
    RUN(every_allocation(false, true));
    RUN(every_allocation(true, false));
    RUN(every_allocation(true, true));
    return 0;
}
