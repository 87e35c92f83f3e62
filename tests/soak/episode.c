/* SPDX-License-Identifier: Apache-2.0 */
/* Plans an episode, runs it, and compares the books of both sides. See soak.h. */
#include <stdlib.h>
#include <string.h>

#include "soak.h"

/* Large enough that a busy machine is not taken for a dead cable; and for episodes whose cable falls
 * silent, which wait for it. */
#define IDLE_MS 15000
#define IDLE_SHORT_MS 3000

static const char *const how_names[] = {"", "close", "reset", "silence", "half close"};
static const char *const where_names[] = {"anywhere", "between packets", "in a header",
                                          "in a payload"};

const char *ending_name(const struct episode *ep)
{
    static _Thread_local char text[200];
    const struct cut *c = &ep->cable.cut;
    if (ep->ending != END_BY_CUT) {
        return ep->ending == END_BY_DEVICE ? "ends by device" : "ends by host";
    }
    snprintf(text, sizeof text, "cable cut by %s %s (%s, %u) after %u ms", how_names[c->how],
             where_names[c->where], c->back ? "to the sender" : "to the receiver", c->offset,
             c->after_ms);
    return text;
}

/* ---- the plan --------------------------------------------------------------------------------- */

static void plan(struct episode *ep, struct rng *r)
{
    uint32_t dice = rng_below(r, 100);
    ep->duration_ms = rng_range(r, 150, 2500);
    ep->ending = dice < 20 ? END_BY_DEVICE : dice < 35 ? END_BY_HOST : END_BY_CUT;
    if (ep->ending == END_BY_CUT) {
        struct cut *c = &ep->cable.cut;
        dice = rng_below(r, 100);
        c->how = dice < 33 ? CUT_CLOSE : dice < 66 ? CUT_RESET : dice < 90 ? CUT_HALF : CUT_SILENT;
        ep->hasty = c->how == CUT_SILENT;
        c->where = (enum cut_where)rng_below(r, 4);
        c->back = c->where != CUT_IN_PAYLOAD && rng_percent(r, 25);
        c->after_ms = ep->duration_ms;
        c->offset = c->where == CUT_IN_HEADER ? rng_range(r, 1, 83) : rng_range(r, 0, 999);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct run *run = &ep->run[i];
        run->ep = ep;
        run->index = i;
        run->ch = &ep->lane->channel[i];
        run->on_full = (enum clb_full)((ep->number + i + ep->lane->index) % 3);
        run->queue_len = rng_range(r, 1, 6);
        run->write_async = rng_percent(r, 50);
        run->camera = rng_percent(r, 50);
        run->write_end = run->read_end = CLB_ERR_CLOSED;
    }
}

/* ---- running ---------------------------------------------------------------------------------- */

static void count_down(void *priv, clb_link *link, enum clb_link_state state)
{
    (void)link;
    if (state == CLB_LINK_DOWN) {
        atomic_fetch_add((atomic_int *)priv, 1);
    }
}

static clb_link_params link_config(struct clb_status *status, bool hasty)
{
    const int64_t idle = (hasty ? IDLE_SHORT_MS : IDLE_MS) * MS;
    return (clb_link_params){
        .struct_size = sizeof(clb_link_params),
        .connect_timeout_ns = 20 * soak.slack * SEC,
        .keepalive_ns = idle / 5,
        .idle_timeout_ns = idle,
        /* Longer: a silent peer is lost before a write is given up. */
        .progress_timeout_ns = 2 * idle,
        .close_timeout_ns = 5 * soak.slack * SEC,
        .state_cb = count_down,
        .status = status,
    };
}

static struct clb_allocator allocator_of(const struct channel *ch)
{
    return ch->memory == MEMORY_CL          ? clb_cl_pool_allocator(ch->cl_pool)
           : ch->memory == MEMORY_HOST_POOL ? clb_host_pool_allocator(ch->host_pool)
                                            : (struct clb_allocator){0};
}

static void open_host(struct episode *ep)
{
    struct clb_status st = {0};
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", ep->cable.port);
    clb_link_params p = link_config(&st, ep->hasty);
    p.uri = uri;
    p.loop = ep->lane->host_loop;
    p.priv = &ep->host_downs;
    const int64_t begin = check_ms();
    int err = clb_link_open(&ep->host, &p);
    EXPECT(ep, err == CLB_OK, "cannot connect: %s", st.text);
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct run *run = &ep->run[i];
        err = clb_stream_open(
            &run->rx, ep->host,
            clb_stream_params(.name = run->ch->name, .allocator = allocator_of(run->ch),
                              .on_full = run->on_full, .queue_len = run->queue_len,
                              .trailer = run->camera ? CLB_TRAILER_DEPTHAI : CLB_TRAILER_NONE,
                              .write_only = run->ch->memory == MEMORY_CL, .write_window = 1024,
                              .open_timeout_ns = 20 * soak.slack * SEC));
        EXPECT(ep, err == CLB_OK, "stream %u cannot be opened: %s", i, clb_error_name(err));
        CHECK_EQ(pthread_create(&run->reader, NULL, reader_main, run), 0);
    }
    const uint_fast64_t took = (uint_fast64_t)(check_ms() - begin);
    uint_fast64_t slowest = atomic_load(&soak.slowest_open);
    while (took > slowest && !atomic_compare_exchange_weak(&soak.slowest_open, &slowest, took)) {
    }
    atomic_store(&ep->cable.counting, true);
}

/* Until it is time for the end, or the end has come. */
static void let_it_run(struct episode *ep, struct rng *r)
{
    const int64_t end = check_ms() + ep->duration_ms;
    while (clb_link_get_state(ep->host, NULL) == CLB_LINK_UP) {
        if (ep->ending != END_BY_CUT && (check_ms() >= end || soak_hurry())) {
            break;
        }
        check_sleep_ms((int)rng_range(r, 2, 20));
        if (rng_below(r, 40) == 0) {
            clb_stream_interrupt(ep->run[rng_below(r, STREAMS)].rx);
            soak_count(&soak.interrupts, 1);
        }
    }
}

/* ---- the books -------------------------------------------------------------------------------- */

#define LL(x) ((unsigned long long)(x))

static void compare(const struct episode *ep, const struct run *run)
{
    const clb_stream_stats *tx = &run->tx_stats, *rx = &run->rx_stats;
    const uint64_t lost = rx->dropped_oldest + rx->dropped_newest + rx->alloc_failed;
    const uint32_t i = run->index;
    /* A payload that was being thrown away when the end came is counted by its reason already. */
    const uint64_t most = rx->packets + (ep->ending == END_BY_DEVICE ? 0 : 1);
    EXPECT(ep, rx->queued == 0, "stream %u: %llu are queued after the end", i, LL(rx->queued));
    EXPECT(ep, rx->held == (run->left_over ? 1 : 0), "stream %u: %llu are held", i, LL(rx->held));
    EXPECT(ep, run->delivered + lost >= rx->packets && run->delivered + lost <= most,
           "stream %u: %llu packets, but %llu delivered and %llu lost", i, LL(rx->packets),
           LL(run->delivered), LL(lost));
    EXPECT(ep, run->dropped_seen <= lost, "stream %u: %llu seen dropped, %llu lost", i,
           LL(run->dropped_seen), LL(lost));
    EXPECT(ep, run->on_full != CLB_FULL_BLOCK || rx->dropped_oldest + rx->dropped_newest == 0,
           "stream %u: drops under BLOCK", i);
    /* The sender: what it was told was sent, was; what is acknowledged has arrived. */
    EXPECT(ep, tx->written >= run->write_ok && tx->written <= run->write_ok + 1,
           "stream %u: %llu writes succeeded, %llu are counted", i, LL(run->write_ok),
           LL(tx->written));
    EXPECT(ep, tx->acked <= tx->written && tx->released <= tx->written,
           "stream %u: written %llu, acknowledged %llu, released %llu", i, LL(tx->written),
           LL(tx->acked), LL(tx->released));
    EXPECT(ep, run->write_async || tx->acked >= run->write_ok,
           "stream %u: %llu writes were successful, %llu acknowledged", i, LL(run->write_ok),
           LL(tx->acked));
    EXPECT(ep, tx->released <= rx->packets, "stream %u: %llu released of %llu", i, LL(tx->released),
           LL(rx->packets));
    EXPECT(ep, rx->packets <= tx->written, "stream %u: %llu arrived of %llu", i, LL(rx->packets),
           LL(tx->written));
    if (ep->ending == END_BY_CUT) {
        EXPECT(ep, tx->acked <= rx->packets, "stream %u: %llu acknowledged of %llu", i,
               LL(tx->acked), LL(rx->packets));
    }
    if (ep->ending == END_BY_DEVICE) {
        EXPECT(ep, run->write_end == CLB_OK, "stream %u: the sender did not finish: %s", i,
               clb_error_name(run->write_end));
        EXPECT(ep,
               tx->written == run->write_ok && tx->acked == tx->written &&
                   tx->released == tx->written && rx->packets == tx->written,
               "stream %u: written %llu (%llu), acknowledged %llu, released %llu, arrived %llu", i,
               LL(tx->written), LL(run->write_ok), LL(tx->acked), LL(tx->released),
               LL(rx->packets));
        EXPECT(ep, tx->written_bytes == run->write_bytes && rx->bytes == run->write_bytes,
               "stream %u: %llu bytes written, %llu sent, %llu arrived", i, LL(run->write_bytes),
               LL(tx->written_bytes), LL(rx->bytes));
    }
}

static void compare_links(const struct episode *ep)
{
    struct clb_status why[2];
    uint64_t arrived = 0, written = 0, acked = 0;
    clb_link_get_state(ep->host, &why[0]);
    clb_link_get_state(ep->device, &why[1]);
    for (int i = 0; i < 2; i++) {
        bool orderly = why[i].err == CLB_OK || why[i].err == CLB_ERR_CLOSED,
             broken = why[i].err == CLB_ERR_LOST || why[i].err == CLB_ERR_TIMEOUT ||
                      why[i].err == CLB_ERR_IO;
        EXPECT(ep, ep->ending == END_BY_CUT ? broken : orderly, "the %s ended with %s: %s",
               i ? "device" : "host", clb_error_name(why[i].err), why[i].text);
    }
    for (int i = 0; i < STREAMS; i++) {
        arrived += ep->run[i].rx_stats.packets;
        written += ep->run[i].tx_stats.written;
        acked += ep->run[i].tx_stats.acked;
        EXPECT(ep, ep->ending != END_BY_CUT || ep->run[i].read_end == CLB_ERR_LOST,
               "the reader of stream %d ended with %s", i, clb_error_name(ep->run[i].read_end));
        EXPECT(ep, ep->ending == END_BY_CUT || ep->run[i].read_end == CLB_ERR_CLOSED,
               "the reader of stream %d ended with %s", i, clb_error_name(ep->run[i].read_end));
    }
    clb_link_stats st;
    clb_link_get_stats(ep->device, &st, sizeof st);
    EXPECT(ep, written - acked <= MAX_REQUESTS + st.forgotten,
           "%llu written and not acknowledged, %llu forgotten", LL(written - acked),
           LL(st.forgotten));
    EXPECT(ep, st.nacks_sent == 0 && st.ignored_answers == 0, "%llu nacks, %llu ignored answers",
           LL(st.nacks_sent), LL(st.ignored_answers));
    EXPECT(ep, arrived <= ep->cable.writes_through && ep->cable.writes_through <= written,
           "%llu arrived, %llu went through the cable, %llu were written", LL(arrived),
           LL(ep->cable.writes_through), LL(written));
    /* What reached the receiver before the end of the stream or the silence is not lost. */
    if (ep->cable.was_cut && (ep->cable.cut.how == CUT_HALF || ep->cable.cut.how == CUT_SILENT)) {
        EXPECT(ep, arrived == ep->cable.writes_through, "%llu arrived of %llu", LL(arrived),
               LL(ep->cable.writes_through));
    }
}

static void add_up(const struct episode *ep)
{
    for (int i = 0; i < STREAMS; i++) {
        const struct run *run = &ep->run[i];
        soak_count(&soak.sent, run->tx_stats.written);
        soak_count(&soak.delivered, run->delivered);
        soak_count(&soak.bytes, run->delivered_bytes);
        soak_count(&soak.dropped, run->rx_stats.dropped_oldest + run->rx_stats.dropped_newest);
        soak_count(&soak.alloc_failed, run->rx_stats.alloc_failed);
        soak_count(&soak.spilled, run->rx_stats.spilled);
    }
    soak_count(&soak.stalls, ep->cable.stalls);
    soak_count(&soak.ended[ep->ending], 1);
    soak_count(&soak.cut[ep->cable.cut.how], 1);
}

/* ---- one episode ------------------------------------------------------------------------------ */

void episode_run(struct lane *lane)
{
    struct episode *ep = calloc(1, sizeof *ep);
    CHECK(ep != NULL);
    ep->lane = lane;
    ep->number = lane->episodes++;
    ep->began_ms = check_ms();
    plan(ep, &lane->rng);
    ep->cable.seed = rng_next(&lane->rng);
    unsigned port = 0;
    CHECK_EQ(sscanf(clb_listener_uri(lane->listener[ep->hasty]), "tcp://127.0.0.1:%u", &port), 1);
    ep->cable.device_port = (uint16_t)port;
    cable_start(&ep->cable);
    CHECK_EQ(pthread_create(&ep->device_thread, NULL, sender_main, ep), 0);
    open_host(ep);
    let_it_run(ep, &lane->rng);
    if (ep->ending == END_BY_HOST) {
        int err = clb_link_shutdown(ep->host, 10 * soak.slack * SEC);
        EXPECT(ep, err == CLB_OK, "shutdown: %s", clb_error_name(err));
    }
    atomic_store(&ep->stop_writing, true);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_EQ(pthread_join(ep->run[i].reader, NULL), 0);
    }
    CHECK_EQ(pthread_join(ep->device_thread, NULL), 0);
    clb_link_shutdown(ep->host, 5 * soak.slack * SEC);
    atomic_store(&ep->cable.enough, true);
    cable_join(&ep->cable);
    for (int i = 0; i < STREAMS; i++) {
        struct run *run = &ep->run[i];
        clb_stream_get_stats(run->rx, &run->rx_stats, sizeof run->rx_stats);
        clb_stream_get_stats(run->tx, &run->tx_stats, sizeof run->tx_stats);
        compare(ep, run);
    }
    compare_links(ep);
    add_up(ep);
    for (int i = 0; i < STREAMS; i++) {
        clb_stream_close(&ep->run[i].tx);
        if (i % 2) {
            clb_stream_close(&ep->run[i].rx);
        }
    }
    clb_link_close(&ep->device);
    clb_link_close(&ep->host);
    EXPECT(ep, atomic_load(&ep->host_downs) == 1, "the host's link went down %d times",
           atomic_load(&ep->host_downs));
    for (int i = 0; i < STREAMS; i++) {
        struct run *run = &ep->run[i];
        clb_stream_close(&run->rx);
        clb_packet *p = run->left_over;
        if (p) {
            clb_packet_info info;
            clb_packet_get_info(p, &info, sizeof info);
            size_t n = clb_packet_size(p);
            EXPECT(ep,
                   pattern_differs(clb_packet_data(p), n,
                                   pattern_base(lane->index, run->index, ep->number,
                                                (uint32_t)info.seq, n)) == n,
                   "a packet that outlived its link has changed");
            clb_packet_free(&p);
        }
    }
    lane_check_pools(lane, false);
    free(ep);
}

/* ---- lanes ------------------------------------------------------------------------------------ */

void lane_check_pools(struct lane *lane, bool first)
{
    for (int i = 0; i < STREAMS; i++) {
        struct channel *ch = &lane->channel[i];
        uint32_t free_slots = 0, slots = 0;
        uint64_t heap = 0, spoilt = 0;
        for (int k = 0; k < 2000; k++) {
            if (ch->memory == MEMORY_CL) {
                clb_cl_pool_stats st;
                clb_cl_pool_get_stats(ch->cl_pool, &st, sizeof st);
                free_slots = st.free;
                slots = ch->slots;
                heap = st.heap_allocs;
                spoilt = st.poisoned + st.renewed;
            } else if (ch->memory == MEMORY_HOST_POOL) {
                clb_host_pool_stats st;
                clb_host_pool_get_stats(ch->host_pool, &st, sizeof st);
                free_slots = st.free;
                slots = st.slots;
                heap = st.heap_allocs;
            }
            if (free_slots == slots) {
                break;
            }
            check_sleep_ms(5);
        }
        if (free_slots != slots || spoilt) {
            fprintf(stderr, "lane %u stream %d: %u of %u buffers are home, %llu spoilt\n",
                    lane->index, i, free_slots, slots, LL(spoilt));
            _Exit(1);
        }
        if (first) {
            ch->pool_heap = heap;
        } else if (ch->pool_heap) {
            /* Slots and what belongs to them exist by then. */
            CHECK_LE(heap, ch->pool_heap + 32);
        }
    }
}

static void channel_start(struct channel *ch, uint32_t lane, uint32_t stream)
{
    static const struct {
        enum memory memory;
        uint32_t kib, slots;
        bool own_queue;
    } plan[LANES][STREAMS] = {
        {{MEMORY_CL, 1024, 6, false}, {MEMORY_CL, 64, 12, true}},
        {{MEMORY_CL, 256, 4, true}, {MEMORY_HOST_POOL, 256, 6, false}},
        {{MEMORY_CL, 512, 8, false}, {MEMORY_LINK, 128, 0, false}},
        {{MEMORY_HOST_POOL, 256, 12, false}, {MEMORY_LINK, 1024, 0, false}},
    };
    struct clb_status st = {0};
    snprintf(ch->name, sizeof ch->name, "lane%u.%u", lane, stream);
    ch->memory = plan[lane][stream].memory;
    ch->max_frame = (size_t)plan[lane][stream].kib * 1024;
    ch->slots = plan[lane][stream].slots;
    ch->window = 3 * (ch->max_frame + CAMERA_MORE) + 64 * 5;
    if (ch->memory == MEMORY_CL) {
        CHECK_EQ(clb_cl_pool_create(&ch->cl_pool, soak.rig.dev,
                                    clb_cl_pool_params(.buf_size = ch->max_frame + CAMERA_MORE,
                                                       .count = ch->slots, .status = &st)),
                 CLB_OK);
        checker_start(&ch->checker, &soak.rig, ch->max_frame, plan[lane][stream].own_queue);
    } else if (ch->memory == MEMORY_HOST_POOL) {
        CHECK_EQ(clb_host_pool_create(&ch->host_pool,
                                      clb_host_pool_params(.buf_size = ch->max_frame + CAMERA_MORE,
                                                           .count = ch->slots)),
                 CLB_OK);
    }
}

static void channel_end(struct channel *ch)
{
    if (ch->memory == MEMORY_CL) {
        clb_cl_pool_destroy(&ch->cl_pool);
        checker_end(&ch->checker);
    }
    clb_host_pool_destroy(&ch->host_pool);
}

void lane_start(struct lane *lane, uint32_t index)
{
    *lane = (struct lane){.index = index, .rng = rng_seed(soak.seed, index, 0, 1)};
    for (uint32_t i = 0; i < STREAMS; i++) {
        channel_start(&lane->channel[i], index, i);
    }
    /* Links with a thread of their own, and links that share one, with the other role too. */
    lane->host_loop = index >= 2 ? soak.shared_loop : NULL;
    lane->device_loop = index == 3 ? soak.shared_loop : NULL;
    for (int hasty = 0; hasty < 2; hasty++) {
        clb_listener_params p = {
            .struct_size = sizeof p, .uri = "tcp://127.0.0.1:0", .max_links = 2};
        p.link = link_config(NULL, hasty);
        p.link.state_cb = NULL;
        p.link.loop = lane->device_loop;
        CHECK_EQ(clb_listener_open(&lane->listener[hasty], &p), CLB_OK);
    }
}

void lane_end(struct lane *lane)
{
    clb_listener_close(&lane->listener[0]);
    clb_listener_close(&lane->listener[1]);
    for (uint32_t i = 0; i < STREAMS; i++) {
        channel_end(&lane->channel[i]);
    }
}
