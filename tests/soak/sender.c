/* SPDX-License-Identifier: Apache-2.0 */
/* The sending side of an episode: the device role, one writer per stream. See soak.h. */
#include <stdlib.h>
#include <string.h>

#include "soak.h"

/* Frames of all kinds: empty, tiny, middling, as large as a buffer, and sometimes larger than any; but not of
 * cameras, for where they are taken for as large as the last one their end is cut off. */
static uint32_t choose_size(struct rng *r, const struct run *run)
{
    const struct channel *ch = run->ch;
    uint32_t max = (uint32_t)ch->max_frame, dice = rng_below(r, 1000);
    if (dice < 15) {
        return 0;
    }
    if (dice < 30 && ch->memory != MEMORY_LINK && !run->camera) {
        return max + CAMERA_MORE + rng_range(r, 1, 64); /* no buffer is that large: alloc_failed */
    }
    if (dice < 60) {
        return max;
    }
    if (dice < 400) {
        return rng_range(r, 1, 4096);
    }
    return dice < 900 ? rng_range(r, 1, max / 4) : rng_range(r, 1, max);
}

static uint64_t written(clb_stream *s)
{
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    return st.written;
}

/* One frame, in one to four pieces. CLB_OK, AGAIN (nothing was sent), or the end. */
static int write_frame(struct run *run, uint8_t *data, uint32_t size, bool metadata,
                       int64_t timeout_ns, struct rng *r)
{
    const struct episode *ep = run->ep;
    const uint32_t number = (uint32_t)run->write_ok;
    struct clb_iovec iov[4];
    uint8_t more[CAMERA_MORE];
    uint32_t a = rng_range(r, 0, size), b = rng_range(r, a, size);
    const uint32_t base = pattern_base(ep->lane->index, run->index, ep->number, number, size);
    pattern_fill(data, size, base);
    iov[0] = (struct clb_iovec){data, a};
    iov[1] = (struct clb_iovec){data + a, b - a};
    iov[2] = (struct clb_iovec){data + b, size - b};
    iov[3] = (struct clb_iovec){more, metadata ? camera_fill(more, base) : 0};
    const uint64_t before = written(run->tx);
    int err = clb_stream_write(run->tx, iov, 4, timeout_ns);
    if (err == CLB_ERR_AGAIN || err == CLB_ERR_TIMEOUT) {
        EXPECT(ep, written(run->tx) == before, "a write of stream %u timed out after it was sent",
               run->index);
        return CLB_ERR_AGAIN;
    }
    if (err == CLB_OK) {
        /* What was borrowed is ours again: nobody may look at it any more. */
        memset(data, 0xA5, size);
        run->write_ok++;
        run->write_bytes += size + iov[3].len;
        return CLB_OK;
    }
    EXPECT(ep, err == CLB_ERR_CLOSED || err == CLB_ERR_LOST, "write of stream %u: %s", run->index,
           clb_error_name(err));
    return err;
}

static bool over(int err)
{
    return err == CLB_ERR_CLOSED || err == CLB_ERR_LOST;
}

/* The window is worth what was announced, to the byte or to the packet: with everything released
 * and nobody reading, exactly so much goes out and not a byte more. */
static int try_window(struct run *run, uint8_t *data, struct rng *r)
{
    const struct episode *ep = run->ep;
    int err = clb_stream_flush(run->tx, CLB_FLUSH_RELEASED, 20 * soak.slack * SEC);
    EXPECT(ep, err == CLB_OK || over(err), "stream %u: credit does not come back: %s", run->index,
           clb_error_name(err));
    if (err < 0) {
        return err;
    }
    atomic_store(&run->probe, PROBE_ASKED);
    const int64_t limit = check_ms() + 20000 * soak.slack;
    while (atomic_load(&run->probe) != PROBE_PARKED) {
        if (clb_link_get_state(ep->device, NULL) != CLB_LINK_UP) {
            return CLB_ERR_CLOSED;
        }
        EXPECT(ep, check_ms() < limit, "stream %u: the reader does not park", run->index);
        check_sleep_ms(1);
    }
    const bool by_packets = rng_percent(r, 40);
    size_t left = by_packets ? MAX_PACKETS : run->ch->window;
    while (err == CLB_OK && left > 0) {
        size_t size = by_packets ? 1 : left < run->ch->max_frame ? left : run->ch->max_frame;
        err = write_frame(run, data, (uint32_t)size, false, 20 * soak.slack * SEC, r);
        EXPECT(ep, err != CLB_ERR_AGAIN, "stream %u: %zu of the window (%s) are missing",
               run->index, left, by_packets ? "packets" : "bytes");
        left -= size;
    }
    if (err == CLB_OK) {
        err = clb_stream_flush(run->tx, CLB_FLUSH_ACKED, 20 * soak.slack * SEC);
        EXPECT(ep, err == CLB_OK || over(err), "stream %u: not acknowledged: %s", run->index,
               clb_error_name(err));
    }
    if (err == CLB_OK) {
        err = write_frame(run, data, 1, false, 0, r);
        EXPECT(ep, err != CLB_OK, "stream %u: more than its window (%s) went out", run->index,
               by_packets ? "packets" : "bytes");
        err = err == CLB_ERR_AGAIN ? CLB_OK : err;
        soak_count(&soak.probes, 1);
    }
    return err;
}

/* What the receiver says meanwhile: numbers, in order. */
static void take_commands(struct run *run)
{
    clb_packet *p = NULL;
    while (clb_stream_read(run->tx, &p, 0) == CLB_OK) {
        uint64_t number = UINT64_MAX;
        EXPECT(run->ep, clb_packet_size(p) == sizeof number, "a command of %zu bytes",
               clb_packet_size(p));
        memcpy(&number, clb_packet_data(p), sizeof number);
        EXPECT(run->ep, number == run->commands_in, "command %llu instead of %llu",
               (unsigned long long)number, (unsigned long long)run->commands_in);
        run->commands_in++;
        clb_packet_free(&p);
    }
}

static void *writer_main(void *arg)
{
    struct run *run = arg;
    struct episode *ep = run->ep;
    const int64_t for_ever = 30 * soak.slack * SEC;
    const int64_t patience[4] = {0, 2 * MS, 50 * MS, for_ever};
    struct rng r = rng_seed(soak.seed, ep->lane->index, ep->number, 100 + run->index);
    uint8_t *data = malloc(run->ch->max_frame + CAMERA_MORE + 64);
    CHECK(data != NULL);
    int err = CLB_OK;
    while (!over(err) && !atomic_load(&ep->stop_writing)) {
        if (rng_below(&r, 100) == 0) {
            check_sleep_ms((int)rng_range(&r, 1, 80));
        }
        if (run->on_full == CLB_FULL_BLOCK && rng_below(&r, 250) == 0) {
            err = try_window(run, data, &r);
            atomic_store(&run->probe, PROBE_NONE);
            continue;
        }
        take_commands(run);
        const uint32_t size = choose_size(&r, run);
        do {
            const int64_t timeout = patience[rng_below(&r, 4)];
            err = write_frame(run, data, size, run->camera, timeout, &r);
            EXPECT(ep, err != CLB_ERR_AGAIN || timeout != for_ever,
                   "stream %u: no credit for a frame of %u bytes", run->index, size);
            if (err == CLB_ERR_AGAIN) {
                check_sleep_ms(1);
            }
        } while (err == CLB_ERR_AGAIN && !atomic_load(&ep->stop_writing));
    }
    if (!over(err)) {
        err = clb_stream_flush(run->tx, CLB_FLUSH_RELEASED, 30 * soak.slack * SEC);
        EXPECT(ep, err == CLB_OK || over(err), "stream %u: not all is released: %s", run->index,
               clb_error_name(err));
    }
    run->write_end = err;
    free(data);
    return NULL;
}

void *sender_main(void *arg)
{
    struct episode *ep = arg;
    int err =
        clb_listener_accept(ep->lane->listener[ep->hasty], &ep->device, 20 * soak.slack * SEC);
    EXPECT(ep, err == CLB_OK, "nobody connects: %s", clb_error_name(err));
    bool opened = true;
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct run *run = &ep->run[i];
        err = clb_stream_open(&run->tx, ep->device,
                              clb_stream_params(.name = run->ch->name,
                                                .write_window = run->ch->window,
                                                .write_async = run->write_async,
                                                .open_timeout_ns = 20 * soak.slack * SEC));
        /* The cable may have died already, or the host may have ended. */
        EXPECT(ep, err == CLB_OK || (over(err) && ep->ending != END_BY_DEVICE), "stream %u: %s", i,
               clb_error_name(err));
        run->write_end = err;
        opened = opened && err == CLB_OK;
    }
    for (uint32_t i = 0; i < STREAMS && opened; i++) {
        CHECK_EQ(pthread_create(&ep->run[i].writer, NULL, writer_main, &ep->run[i]), 0);
    }
    for (uint32_t i = 0; i < STREAMS && opened; i++) {
        CHECK_EQ(pthread_join(ep->run[i].writer, NULL), 0);
    }
    /* By the device, or whatever is left of it: nothing more is to be expected. */
    clb_link_shutdown(ep->device, 5 * soak.slack * SEC);
    return NULL;
}
