/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-06: a stream that nobody reads must not stop the others. The peer offers 1000 packets
 * on each of two streams with windows of 8; only one is read. A stream that is full says so once.
 */
#include <stdatomic.h>

#include "flow_kit.h"

#define PACKETS 1000
#define WINDOW 8
#define LIMIT_MS 5000

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLACK 4
#else
#define SLACK 1
#endif

static atomic_uint told[2]; /* lines about "a", about "b" */

static void count_lines(void *priv, enum clb_log_level level, const char *msg)
{
    (void)priv;
    for (int i = 0; i < 2; i++) {
        char name[] = "stream \"a\": packets come faster";
        name[8] = (char)('a' + i);
        if (strstr(msg, name)) {
            atomic_fetch_add(&told[i], 1);
            /* Where nothing gets lost it is no warning. */
            CHECK_EQ(level, strstr(msg, "dropped") ? CLB_LOG_WARN : CLB_LOG_INFO);
        }
    }
}

/* Everything on "b" comes, in order and in time, while "a" is left alone. */
static void only_b(struct peer *p, clb_link **link, clb_stream **a, clb_stream **b,
                   enum clb_full full)
{
    const int fd = peer_pair(p, false);
    static struct script sc = {.streams = 2, .window = WINDOW, .packets = PACKETS};
    atomic_store(&told[0], 0);
    atomic_store(&told[1], 0);
    peer_start(p, run_script, &sc);
    CHECK_EQ(clb_link_adopt(link, fd, CLB_ROLE_HOST,
                            clb_link_params(.log = {.cb = count_lines, .level = CLB_LOG_INFO})),
             CLB_OK);
    *a = open_stream(*link, "a", NULL, full, WINDOW);
    *b = open_stream(*link, "b", NULL, CLB_FULL_BLOCK, 0);
    const int64_t start = check_ms();
    for (int i = 0; i < PACKETS; i++) {
        clb_packet *pk = read_value(*b, i & 255);
        clb_packet_info info;
        clb_packet_get_info(pk, &info, sizeof info);
        CHECK_EQ(info.seq, i);
        CHECK_EQ(info.dropped_before, 0);
        clb_packet_free(&pk);
    }
    CHECK_LE(check_ms() - start, LIMIT_MS * SLACK);
}

static void end(struct peer *p, clb_link **link, clb_stream **a, clb_stream **b)
{
    CHECK_EQ(atomic_load(&told[0]), 1);
    CHECK_LE(atomic_load(&told[1]), 1);
    clb_stream_close(a);
    clb_stream_close(b);
    finish(link, p);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(p->stream[i].sent, PACKETS);
        CHECK_EQ(p->stream[i].acked, PACKETS);
        CHECK_EQ(p->stream[i].released, PACKETS);
        CHECK_EQ(p->stream[i].fill, 0);
    }
}

static void block(void)
{
    struct peer p;
    clb_link *link = NULL;
    clb_stream *a, *b;
    only_b(&p, &link, &a, &b, CLB_FULL_BLOCK);
    wait_packets(a, WINDOW);
    check_sleep_ms(20); /* for what should not come */
    clb_stream_stats st = stats_of(a);
    CHECK_EQ(st.packets, WINDOW);
    CHECK_EQ(st.queued, WINDOW);
    CHECK_GE(st.full_events, 1);
    for (int i = 0; i < PACKETS; i++) {
        clb_packet *pk = read_value(a, i & 255);
        clb_packet_free(&pk);
    }
    st = stats_of(a);
    CHECK_EQ(st.packets, PACKETS);
    CHECK_EQ(st.dropped_oldest + st.dropped_newest + st.alloc_failed, 0);
    end(&p, &link, &a, &b);
}

static void drop(enum clb_full full)
{
    struct peer p;
    clb_link *link = NULL;
    clb_stream *a, *b;
    const bool oldest = full == CLB_FULL_DROP_OLDEST;
    const int first = oldest ? PACKETS - WINDOW : 0;
    only_b(&p, &link, &a, &b, full);
    wait_packets(a, PACKETS);
    clb_stream_stats st = stats_of(a);
    CHECK_EQ(st.dropped_oldest, oldest ? PACKETS - WINDOW : 0);
    CHECK_EQ(st.dropped_newest, oldest ? 0 : PACKETS - WINDOW);
    CHECK_EQ(st.full_events, PACKETS - WINDOW);
    CHECK_EQ(st.queued, WINDOW);
    for (int i = 0; i < WINDOW; i++) {
        clb_packet *pk = read_value(a, (first + i) & 255);
        clb_packet_info info;
        clb_packet_get_info(pk, &info, sizeof info);
        CHECK_EQ(info.seq, first + i);
        CHECK_EQ(info.dropped_before, i == 0 ? first : 0);
        clb_packet_free(&pk);
    }
    end(&p, &link, &a, &b);
}

int main(void)
{
    check_watchdog(110);
    RUN(block());
    RUN(drop(CLB_FULL_DROP_OLDEST));
    RUN(drop(CLB_FULL_DROP_NEWEST));
    return 0;
}
