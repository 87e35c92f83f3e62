/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving side of an episode: one reader per stream. See soak.h. */
#include <string.h>

#include "soak.h"

#define MOST_HELD 3

struct reader {
    struct run *run;
    struct rng r;
    uint64_t expected; /* the number of the next frame, if none is dropped */
    /* Packets that are kept for a while, and looked at again before they go. */
    clb_packet *held[MOST_HELD];
    uint32_t held_frame[MOST_HELD];
    uint32_t held_count;
    uint64_t heap;      /* of the link, at frame 200 */
    uint64_t heap_mark; /* spilled packets then */
};

/* What the frame had been filled for: a packet without metadata was sent without, and where memory must not be
 * read its last bytes may be missing. */
static size_t size_sent(const clb_packet_info *info)
{
    return info->metadata_status != CLB_METADATA_BAD ||
                   info->size + info->claimed_metadata + 24 == info->total
               ? info->size
               : info->total;
}

static uint32_t base_of(const struct run *run, uint32_t frame, size_t size)
{
    return pattern_base(run->ep->lane->index, run->index, run->ep->number, frame, size);
}

static void look_by_host(const struct run *run, const clb_packet *p, uint32_t frame)
{
    size_t n = clb_packet_size(p),
           at = pattern_differs(clb_packet_data(p), n, base_of(run, frame, n));
    EXPECT(run->ep, at == n, "stream %u: frame %u of %zu bytes: byte %zu is not its own",
           run->index, frame, n, at);
    soak_count(&soak.looked_at, 1);
}

/* Metadata that is there is its frame's own. Without, the packet was sent so, and lies there whole; or a
 * guess could not be repaired in memory that must not be read, and has cost the metadata alone. */
static void look_at_metadata(const struct run *run, const clb_packet *p,
                             const clb_packet_info *info, uint32_t frame)
{
    size_t n;
    const void *metadata = clb_packet_metadata(p, &n);
    if (info->metadata_status == CLB_METADATA_OK) {
        EXPECT(run->ep, info->object_type == CAMERA_TYPE, "stream %u: frame %u: type %d",
               run->index, frame, (int)info->object_type);
        EXPECT(run->ep, !camera_differs(metadata, n, base_of(run, frame, info->size)),
               "stream %u: frame %u: %zu bytes of metadata are not its own", run->index, frame, n);
        soak_count(&soak.metadata, 1);
        return;
    }
    EXPECT(run->ep, info->metadata_status == CLB_METADATA_BAD && n == 0,
           "stream %u: frame %u: status %d with %zu bytes", run->index, frame,
           (int)info->metadata_status, n);
    EXPECT(run->ep, info->size == info->total || run->ch->memory == MEMORY_CL,
           "stream %u: frame %u: %zu bytes of %zu", run->index, frame, info->size, info->total);
    soak_count(&soak.bad_metadata, 1);
}

/* Released and freed in two steps: the buffer is ours in between. */
static void release_by_hand(struct run *run, clb_packet **p, uint32_t frame)
{
    struct clb_buf buf;
    struct clb_allocator a = clb_packet_allocator(*p);
    EXPECT(run->ep, clb_packet_release(*p, &buf) == CLB_OK, "stream %u: release", run->index);
    EXPECT(run->ep, clb_packet_data(*p) == NULL, "data after release");
    if (run->ch->memory == MEMORY_CL && frame % 2) {
        clb_cl_frame *f = NULL;
        EXPECT(run->ep, clb_cl_frame_from_buf(&f, run->ch->cl_pool, &buf) == CLB_OK,
               "stream %u: frame of a buffer", run->index);
        clb_packet_free(p);
        clb_cl_frame_unref(&f);
        return;
    }
    clb_packet_free(p);
    clb_buf_free(&a, &buf);
}

/* One that was held goes; any of them. */
static void drop_held(struct reader *rd)
{
    if (rd->held_count == 0) {
        return;
    }
    uint32_t i = rng_below(&rd->r, rd->held_count);
    clb_packet *p = rd->held[i];
    uint32_t frame = rd->held_frame[i];
    rd->held[i] = rd->held[--rd->held_count];
    rd->held_frame[i] = rd->held_frame[rd->held_count];
    /* Memory of an OpenCL pool is not for the host to read. */
    if (rd->run->ch->memory != MEMORY_CL) {
        look_by_host(rd->run, p, frame);
    }
    if (frame % 3 == 0) {
        release_by_hand(rd->run, &p, frame);
    } else {
        clb_packet_free(&p);
    }
}

static void take_packet(struct reader *rd, clb_packet *p)
{
    struct run *run = rd->run;
    clb_packet_info info;
    clb_packet_get_info(p, &info, sizeof info);
    EXPECT(run->ep, info.seq == rd->expected + info.dropped_before,
           "stream %u: frame %llu with %llu dropped before it where %llu was expected", run->index,
           (unsigned long long)info.seq, (unsigned long long)info.dropped_before,
           (unsigned long long)rd->expected);
    const uint32_t frame = (uint32_t)info.seq;
    const size_t size = clb_packet_size(p);
    EXPECT(run->ep, info.size == size, "stream %u: frame %u of %zu bytes, or of %zu", run->index,
           frame, size, info.size);
    if (run->camera) {
        look_at_metadata(run, p, &info, frame);
    }
    rd->expected = info.seq + 1;
    run->dropped_seen += info.dropped_before;
    run->delivered++;
    run->delivered_bytes += size;
    if (rng_below(&rd->r, 100) < 12) {
        if (rd->held_count == MOST_HELD) {
            drop_held(rd);
        }
        rd->held[rd->held_count] = p;
        rd->held_frame[rd->held_count++] = frame;
        return;
    }
    if (run->ch->memory != MEMORY_CL) {
        look_by_host(run, p, frame);
        if (frame % 5 == 0) {
            release_by_hand(run, &p, frame);
        } else {
            clb_packet_free(&p);
        }
        return;
    }
    const uint32_t dice = rng_below(&rd->r, 100);
    if (dice < 5) {
        clb_packet_free(&p); /* never seen by the device */
    } else if (dice < 10) {
        release_by_hand(run, &p, frame);
    } else {
        clb_cl_frame *f = NULL;
        int err = clb_cl_frame_from_packet(&f, &p);
        EXPECT(run->ep, err == CLB_OK && p == NULL, "stream %u: no frame: %s", run->index,
               clb_error_name(err));
        clb_cl_frame *second = dice % 2 ? clb_cl_frame_ref(f) : NULL;
        checker_look(&run->ch->checker, run->ep, &f,
                     dice < 20   ? CHECK_READ
                     : dice < 26 ? CHECK_READ_BLOCKING
                                 : CHECK_KERNEL,
                     base_of(run, frame, size_sent(&info)), frame);
        clb_cl_frame_unref(&second);
    }
}

/* The heap of a link does not grow with its frames: packets come in slabs, of which there is an end,
 * and blocks for spilled payloads. */
static void check_heap(struct reader *rd)
{
    clb_link_stats ls;
    clb_stream_stats st[STREAMS];
    uint64_t spilled = 0;
    clb_link_get_stats(rd->run->ep->host, &ls, sizeof ls);
    for (int i = 0; i < STREAMS; i++) {
        clb_stream_get_stats(rd->run->ep->run[i].rx, &st[i], sizeof st[i]);
        spilled += st[i].spilled;
    }
    if (!rd->heap) {
        rd->heap = ls.heap_allocs;
        rd->heap_mark = spilled;
        return;
    }
    const uint64_t slabs = STREAMS * (MAX_PACKETS + MAX_PACKETS) / 16, pool = 64;
    EXPECT(rd->run->ep, ls.heap_allocs <= rd->heap + spilled - rd->heap_mark + slabs + pool,
           "the link made %llu heap allocations since frame 200, and spilled %llu",
           (unsigned long long)(ls.heap_allocs - rd->heap),
           (unsigned long long)(spilled - rd->heap_mark));
}

static void park(struct reader *rd)
{
    struct run *run = rd->run;
    while (rd->held_count > 0) {
        drop_held(rd);
    }
    atomic_store(&run->probe, PROBE_PARKED);
    while (atomic_load(&run->probe) == PROBE_PARKED &&
           clb_link_get_state(run->ep->host, NULL) == CLB_LINK_UP) {
        check_sleep_ms(1);
    }
}

/* A number for the sender, now and then: the other direction has traffic too. */
static void say_command(struct reader *rd)
{
    struct run *run = rd->run;
    const uint64_t number = run->commands_out;
    const struct clb_iovec iov = {&number, sizeof number};
    int err = clb_stream_write(run->rx, &iov, 1, 0);
    if (err == CLB_OK) {
        run->commands_out++;
        soak_count(&soak.commands, 1);
        return;
    }
    EXPECT(run->ep, err == CLB_ERR_AGAIN || err == CLB_ERR_CLOSED || err == CLB_ERR_LOST,
           "stream %u: command: %s", run->index, clb_error_name(err));
}

void *reader_main(void *arg)
{
    struct run *run = arg;
    struct reader rd = {.run = run};
    static const int64_t patience[4] = {0, MS, 30 * MS, 200 * MS};
    rd.r = rng_seed(soak.seed, run->ep->lane->index, run->ep->number, 200 + run->index);
    for (;;) {
        clb_packet *p = NULL;
        int err = clb_stream_read(run->rx, &p, patience[rng_below(&rd.r, 4)]);
        if (err == CLB_OK) {
            take_packet(&rd, p);
            uint32_t dice = rng_below(&rd.r, 1000);
            if (dice < 5) {
                check_sleep_ms((int)rng_range(&rd.r, 5, 120));
            } else if (dice < 40) {
                say_command(&rd);
            }
            if (run->delivered % 200 == 0) {
                check_heap(&rd);
            }
        } else if (err == CLB_ERR_CLOSED || err == CLB_ERR_LOST) {
            run->read_end = err;
            break;
        } else {
            EXPECT(run->ep,
                   err == CLB_ERR_AGAIN || err == CLB_ERR_TIMEOUT || err == CLB_ERR_NOBUFS ||
                       err == CLB_ERR_CANCELED,
                   "read of stream %u: %s", run->index, clb_error_name(err));
            /* A buffer that is wanted may be one of those we keep. */
            drop_held(&rd);
            checker_finish_one(&run->ch->checker, run->ep);
            if (err == CLB_ERR_AGAIN || err == CLB_ERR_NOBUFS) {
                check_sleep_ms(1);
            }
        }
        if (atomic_load(&run->probe) == PROBE_ASKED) {
            park(&rd);
        }
    }
    if (rd.held_count > 0 && run->ch->memory != MEMORY_CL && rng_percent(&rd.r, 50)) {
        run->left_over = rd.held[--rd.held_count];
    }
    while (rd.held_count > 0) {
        drop_held(&rd);
    }
    if (run->ch->memory == MEMORY_CL) {
        checker_finish(&run->ch->checker, run->ep);
    }
    return NULL;
}
