/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames made of packets: two links of this process over a socket pair, a stream whose allocator is a
 * pool on the double. What a frame takes over from its packet, every order of ends, and what a
 * pool that learns does to a stream.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool_kit.h"

#define SIZE 4096

struct side {
    int fd;
    clb_link *link;
};

static void *adopt(void *arg)
{
    struct side *s = arg;

    CHECK_EQ(clb_link_adopt(&s->link, s->fd, CLB_ROLE_DEVICE, clb_link_params(.uri = NULL)),
             CLB_OK);
    return NULL;
}

struct bridge {
    struct kit k;
    clb_link *host, *device;
    clb_stream *rx, *tx;
};

static void open_bridge(struct bridge *b, uint32_t slots, size_t buf_size)
{
    struct side side = {0};
    pthread_t thread;
    struct clb_image img;
    int fd[2];

    dbl_start(true);
    kit_open(&b->k, false, slots, buf_size, CLB_CL_FENCE_ALL);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    side.fd = fd[1];
    CHECK_EQ(pthread_create(&thread, NULL, adopt, &side), 0);
    CHECK_EQ(clb_link_adopt(&b->host, fd[0], CLB_ROLE_HOST, clb_link_params(.uri = NULL)), CLB_OK);
    pthread_join(thread, NULL);
    b->device = side.link;
    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_GRAY8, 64, 64, 1, 1), CLB_OK);
    CHECK_EQ(clb_stream_open(&b->tx, b->device,
                             clb_stream_params(.name = "rgb", .write_window = 16 * SIZE)),
             CLB_OK);
    CHECK_EQ(clb_stream_open(&b->rx, b->host,
                             clb_stream_params(.name = "rgb", .image = img,
                                               .allocator = clb_cl_pool_allocator(b->k.pool))),
             CLB_OK);
}

static void close_bridge(struct bridge *b)
{
    clb_stream_close(&b->rx);
    clb_stream_close(&b->tx);
    clb_link_close(&b->host);
    clb_link_close(&b->device);
}

static void send_bytes(struct bridge *b, uint64_t n, size_t size)
{
    unsigned char bytes[4 * SIZE];
    struct clb_iovec iov = {bytes, size};
    size_t i;

    CHECK_LE(size, sizeof(bytes));
    for (i = 0; i < size; i++)
        bytes[i] = kit_byte(n, i);
    CHECK_EQ(clb_stream_write(b->tx, &iov, 1, 5 * SEC), CLB_OK);
}

static void send_frame(struct bridge *b, uint64_t n)
{
    send_bytes(b, n, SIZE);
}

static int threads; /* before a test begins */

static unsigned mem_live(void)
{
    return dbl_mem_live();
}

static unsigned events_live(void)
{
    return (unsigned)dbl_events_live();
}

static void finish(void)
{
    kit_wait_gone(mem_live);
    kit_wait_gone(events_live);
    CHECK_EQ(dbl_violations(), 0);
    {
        int64_t end = check_ms() + 10000;

        while (check_threads() > threads + 1 && check_ms() < end) /* the double's */
            check_sleep_ms(1);
    }
    CHECK_EQ(dbl_finish(), 0);
}

static void frames_of_packets(void)
{
    const uint64_t frames = 300;
    struct bridge b;
    struct kit_seen seen[3] = {{0}};
    clb_packet *packet = NULL, *host_packet = NULL;
    clb_cl_frame *frame;
    clb_packet_info info;
    struct clb_buf buf;
    uint64_t i;

    open_bridge(&b, 3, SIZE);
    for (i = 0; i < frames; i++) {
        uint64_t unmaps;

        send_frame(&b, i);
        CHECK_EQ(clb_stream_read(b.rx, &packet, 5 * SEC), CLB_OK);
        CHECK_EQ(clb_packet_size(packet), SIZE);
        CHECK(!memcmp(clb_packet_data(packet), &(unsigned char){kit_byte(i, 0)}, 1));
        if (i % 10 == 9) { /* unread by the device: no release, no OpenCL */
            clb_packet_free(&packet);
            continue;
        }
        unmaps = dbl_calls(DBL_EnqueueUnmapMemObject);
        CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_OK);
        CHECK(packet == NULL && frame != NULL);
        CHECK_EQ(dbl_calls(DBL_EnqueueUnmapMemObject) - unmaps, 1);
        clb_cl_frame_get_info(frame, &info, sizeof(info));
        CHECK_EQ(info.seq, i);
        CHECK_EQ(info.size, SIZE);
        CHECK_EQ(clb_cl_frame_size(frame), SIZE);
        CHECK_EQ(clb_cl_frame_image(frame)->fmt, CLB_PIXFMT_GRAY8);
        CHECK_EQ(clb_cl_frame_image(frame)->width, 64);
        seen[i % 3].n = i;
        kit_consume(&b.k, b.k.queue, frame, &seen[i % 3], NULL, NULL);
        clb_cl_frame_unref(&frame);
        CHECK_EQ(clb_cl_device_drain(b.k.dev, 5 * SEC), CLB_OK);
    }
    CHECK_EQ(seen[0].bad + seen[1].bad + seen[2].bad, 0);
    CHECK_EQ(seen[0].good + seen[1].good + seen[2].good, frames - frames / 10);
    /* Failures leave the packet as it was. */
    send_frame(&b, frames);
    CHECK_EQ(clb_stream_read(b.rx, &packet, 5 * SEC), CLB_OK);
    dbl_fail(DBL_EnqueueUnmapMemObject, 1, 1, CL_INVALID_VALUE);
    CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_ERR_CL);
    CHECK(packet != NULL && frame == NULL);
    clb_packet_free(&packet);
    CHECK_EQ(clb_cl_device_drain(b.k.dev, 5 * SEC), CLB_OK);
    CHECK_EQ(kit_stats(&b.k).poisoned, 1);
    CHECK_EQ(kit_stats(&b.k).free, 3);
    send_frame(&b, frames + 1);
    CHECK_EQ(clb_stream_read(b.rx, &packet, 5 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_release(packet, &buf), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_ERR_STATE);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, b.k.pool, &buf), CLB_OK);
    clb_packet_free(&packet);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_ERR_INVAL);
    CHECK_EQ(clb_cl_frame_from_packet(&frame, NULL), CLB_ERR_INVAL);
    /* A packet of host memory is refused. */
    clb_stream_close(&b.rx);
    CHECK_EQ(clb_stream_open(&b.rx, b.host, clb_stream_params(.name = "rgb")), CLB_OK);
    send_frame(&b, frames + 2);
    CHECK_EQ(clb_stream_read(b.rx, &host_packet, 5 * SEC), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_packet(&frame, &host_packet), CLB_ERR_INVAL);
    CHECK(host_packet != NULL);
    clb_packet_free(&host_packet);
    close_bridge(&b);
    kit_close(&b.k);
    finish();
}

/* packet, frame, stream and link, pool, device, one after the other in every order. */
static void a17_every_order(void)
{
    int a, c, d, e, f, i, count = 0;

    for (a = 0; a < 5; a++)
        for (c = 0; c < 5; c++)
            for (d = 0; d < 5; d++)
                for (e = 0; e < 5; e++) {
                    int order[5];
                    struct bridge b;
                    struct kit_seen seen = {0};
                    clb_packet *packet, *other;
                    clb_cl_frame *frame;

                    f = 10 - a - c - d - e;
                    if (a == c || a == d || a == e || c == d || c == e || d == e)
                        continue;
                    order[0] = a, order[1] = c, order[2] = d, order[3] = e, order[4] = f;
                    open_bridge(&b, 4, SIZE);
                    send_frame(&b, 0);
                    send_frame(&b, 1);
                    send_frame(&b, 2); /* never read */
                    CHECK_EQ(clb_stream_read(b.rx, &other, 5 * SEC), CLB_OK);
                    CHECK_EQ(clb_cl_frame_from_packet(&frame, &other), CLB_OK);
                    kit_consume(&b.k, b.k.queue, frame, &seen, NULL, NULL);
                    CHECK_EQ(clb_stream_read(b.rx, &packet, 5 * SEC), CLB_OK);
                    for (i = 0; i < 5; i++) {
                        switch (order[i]) {
                        case 0: clb_packet_free(&packet); break;
                        case 1: clb_cl_frame_unref(&frame); break;
                        case 2: close_bridge(&b); break;
                        case 3: clb_cl_pool_destroy(&b.k.pool); break;
                        default: clb_cl_device_destroy(&b.k.dev); break;
                        }
                    }
                    CHECK_EQ(seen.bad, 0);
                    finish();
                    count++;
                }
    CHECK_EQ(count, 120);
}

/* Reads packet n, makes a frame of it and has a kernel look at it. */
static void consume(struct bridge *b, uint64_t n, size_t size)
{
    struct kit_seen seen = {.n = n, .size = size};
    clb_packet_info info;
    clb_packet *packet;
    clb_cl_frame *frame;

    CHECK_EQ(clb_stream_read(b->rx, &packet, 5 * SEC), CLB_OK);
    CHECK_EQ(clb_packet_size(packet), size);
    CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_OK);
    clb_cl_frame_get_info(frame, &info, sizeof(info));
    CHECK_EQ(info.seq, n);
    CHECK_EQ(clb_cl_frame_size(frame), size);
    kit_consume(&b->k, b->k.queue, frame, &seen, NULL, NULL);
    clb_cl_frame_unref(&frame);
    CHECK_EQ(clb_cl_device_drain(b->k.dev, 5 * SEC), CLB_OK);
    dbl_settle();
    CHECK_EQ(seen.good, 1);
    CHECK_EQ(seen.bad, 0);
}

static clb_stream_stats stats_when(struct bridge *b, uint64_t packets)
{
    int64_t end = check_ms() + 10000;
    clb_stream_stats st;

    for (;;) {
        clb_stream_get_stats(b->rx, &st, sizeof(st));
        if (st.packets >= packets || check_ms() >= end)
            break;
        check_sleep_ms(1);
    }
    CHECK_EQ(st.packets, packets);
    return st;
}

/* A pool that learns: what comes before it has grown spills, in order, and nothing is lost; from then
 * on nothing spills, until packets become larger than any before. */
static void a_pool_that_learns(void)
{
    enum { BURST = 3, STEADY = 60 };
    struct bridge b;
    clb_stream_stats st;
    size_t size = SIZE;
    uint64_t n = 0, spilled = 0, bytes = 0, created = 0;
    int round, i;

    open_bridge(&b, BURST, 0);
    for (round = 0; round < 3; round++) {
        size_t before = kit_stats(&b.k).slot_bytes;

        size = round == 0 ? SIZE : round == 1 ? 3 * SIZE + 1 : 2 * SIZE; /* the last one fits */
        for (i = 0; i < BURST; i++)
            send_bytes(&b, n + (uint64_t)i, size);
        if (round < 2) {
            spilled += BURST; /* the first for want of a buffer, the others behind it */
            bytes += BURST * size;
        }
        st = stats_when(&b, n + BURST);
        CHECK_EQ(st.spilled, spilled);
        for (i = 0; i < BURST; i++, n++)
            consume(&b, n, size);
        CHECK_EQ(kit_stats(&b.k).free, BURST);
        if (round < 2)
            CHECK_GE(kit_stats(&b.k).slot_bytes, before + 1);
        else
            CHECK_EQ(kit_stats(&b.k).created, created);
        created = kit_stats(&b.k).created;
        for (i = 0; i < STEADY; i++, n++) {
            size_t now = i % 4 ? size : 1 + (size_t)i * 50; /* smaller ones in between */

            send_bytes(&b, n, now);
            consume(&b, n, now);
        }
        st = stats_when(&b, n);
        CHECK_EQ(st.spilled, spilled);
        CHECK_EQ(st.spill_bytes, bytes);
        CHECK_EQ(st.alloc_failed + st.dropped_oldest + st.dropped_newest, 0);
        CHECK_EQ(kit_stats(&b.k).created, created);
    }
    CHECK_EQ(kit_stats(&b.k).allocs, n);
    close_bridge(&b);
    kit_close(&b.k);
    finish();
}

int main(void)
{
    check_watchdog(200);
    threads = check_threads();
    frames_of_packets();
    a17_every_order();
    a_pool_that_learns();
    return 0;
}
