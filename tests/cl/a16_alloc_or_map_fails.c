/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-16: an allocation or a map that fails is an ordinary event. Ten packets filled with
 * their number; the allocator fails at its calls 3 and 7, by an error or by success without memory; the
 * fifth map fails. Two packets are dropped and told, a buffer is replaced, eight packets are whole and
 * in order, and the peer gets its credit ten times.
 */
#include "pool_link.h"

#define SIZE 4096
#define PACKETS 10

struct failing {
    struct clb_allocator inner;
    atomic_int calls, refs;
    bool null; /* success without memory */
};

static int do_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    struct failing *f = opaque;
    int call = atomic_fetch_add(&f->calls, 1) + 1;

    if (call != 3 && call != 7)
        return f->inner.alloc(f->inner.opaque, req, out);
    out->size = req->capacity; /* a promise, with no memory behind it */
    return f->null ? CLB_OK : CLB_ERR_NOMEM;
}

static int do_release(void *opaque, struct clb_buf *buf, size_t written)
{
    struct failing *f = opaque;

    return f->inner.release(f->inner.opaque, buf, written);
}

static void do_free(void *opaque, struct clb_buf *buf)
{
    struct failing *f = opaque;

    f->inner.free(f->inner.opaque, buf);
}

static void do_ref(void *opaque)
{
    struct failing *f = opaque;

    atomic_fetch_add(&f->refs, 1);
    f->inner.ref(f->inner.opaque);
}

static void do_unref(void *opaque)
{
    struct failing *f = opaque;

    atomic_fetch_sub(&f->refs, 1);
    f->inner.unref(f->inner.opaque);
}

struct seen {
    int value;
    atomic_uint good, bad;
};

static void look_at(void *priv, const unsigned char *bytes, size_t size)
{
    struct seen *seen = priv;
    size_t i;

    for (i = 0; i < SIZE && i < size && bytes[i] == seen->value; i++)
        ;
    atomic_fetch_add(i == SIZE ? &seen->good : &seen->bad, 1);
}

/* On the device, which is where the packet is to be whole. */
static void consume(struct kit *k, const struct clb_buf *buf, struct seen *seen)
{
    clb_cl_frame *frame = NULL;
    struct dbl_kernel kernel = {.fn = look_at, .priv = seen, .num_wait = 1};
    cl_event ready, done;

    CHECK_EQ(clb_cl_frame_from_buf(&frame, k->pool, buf), CLB_OK);
    ready = clb_cl_frame_ready(frame);
    kernel.arg = clb_cl_frame_mem(frame);
    kernel.wait = &ready;
    CHECK_EQ(dbl_enqueue(k->queue, &kernel, &done), CL_SUCCESS);
    dbl_fns.Flush(k->queue);
    CHECK_EQ(clb_cl_frame_used(frame, 1, &done), CLB_OK);
    dbl_fns.ReleaseEvent(done);
    clb_cl_frame_unref(&frame);
}

static unsigned mem_live(void)
{
    return dbl_mem_live();
}

static unsigned events_live(void)
{
    return (unsigned)dbl_events_live();
}

static void ten_packets(bool null)
{
    static const int whole[] = {0, 1, 3, 4, 5, 7, 8, 9};
    struct failing f = {.null = null};
    /* One at a time: each packet is one call of the allocator. */
    struct pool_link l = {.size = SIZE, .window = 1, .packets = PACKETS};
    struct seen seen[8] = {{0}};
    clb_stream_stats st;
    clb_cl_pool_stats ps;
    struct kit k;
    int i, fds = check_fds(), threads;

    dbl_start(true);
    threads = check_threads();
    dbl_fail(DBL_EnqueueMapBuffer, 5, 1, CL_MAP_FAILURE);
    kit_open(&k, false, 4, SIZE, CLB_CL_FENCE_ALL);
    f.inner = k.a;
    pool_link_open(&l, (struct clb_allocator){do_alloc, do_release, do_free, do_ref, do_unref, &f},
                   CLB_FULL_BLOCK);
    for (i = 0; i < 8; i++) {
        clb_packet *packet = NULL;
        clb_packet_info info;
        struct clb_buf buf;

        CHECK_EQ(clb_stream_read(l.stream, &packet, 20 * SEC), CLB_OK);
        clb_packet_get_info(packet, &info, sizeof(info));
        CHECK_EQ(info.seq, whole[i]);
        CHECK_EQ(info.dropped_before, whole[i] == 3 || whole[i] == 7);
        CHECK_EQ(clb_packet_size(packet), SIZE);
        CHECK_EQ(clb_packet_release(packet, &buf), CLB_OK);
        clb_packet_free(&packet);
        seen[i].value = whole[i];
        consume(&k, &buf, &seen[i]);
        atomic_fetch_sub(&f.refs, 1); /* the pool's reference went from the buffer to the frame */
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK); /* the maps in their order */
    }
    clb_stream_get_stats(l.stream, &st, sizeof(st));
    CHECK_EQ(st.packets, PACKETS);
    CHECK_EQ(st.alloc_failed, 2);
    CHECK_EQ(st.spilled, 0); /* not a second buffer for a packet that found none */
    CHECK_EQ(f.calls, PACKETS);
    ps = kit_stats(&k);
    CHECK_EQ(ps.poisoned, 1);
    CHECK_EQ(ps.created, 5);
    CHECK_EQ(ps.free, 4);
    pool_link_close(&l);
    CHECK_EQ(l.peer.stream[0].sent, PACKETS);
    CHECK_EQ(l.peer.stream[0].released, PACKETS);
    CHECK_EQ(l.peer.stream[0].released_bytes, PACKETS * SIZE);
    CHECK_EQ(f.refs, 0);
    for (i = 0; i < 8; i++) {
        CHECK_EQ(seen[i].good, 1);
        CHECK_EQ(seen[i].bad, 0);
    }
    kit_close(&k);
    kit_wait_gone(mem_live);
    kit_wait_gone(events_live);
    check_back_to(fds, threads);
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
}

int main(void)
{
    check_watchdog(55);
    ten_packets(false);
    ten_packets(true);
    return 0;
}
