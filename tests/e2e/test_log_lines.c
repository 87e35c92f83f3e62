/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every error has one line of the log, at the place where it was detected: not none, not two.
 */
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)

static atomic_int lines, stage;

static void count(void *priv, enum clb_log_level level, const char *msg)
{
    (void)priv;
    fprintf(stderr, "%d: %s\n", (int)level, msg);
    atomic_fetch_add(&lines, 1);
}

static const struct clb_log sink = {.cb = count, .level = CLB_LOG_WARN};

/* Lines since the last question. */
static int told(void)
{
    return atomic_exchange(&lines, 0);
}

/* Never answers a CREATE; resets the connection when the test says so. */
static void resets(struct peer *p, void *arg)
{
    (void)arg;
    p->by_hand = true;
    CHECK(peer_handshake(p));
    peer_create(p, "a", 4000);
    for (int i = 0; i < 5000 && !atomic_load(&stage); i++) {
        check_sleep_ms(2);
    }
    peer_abort(p);
}

static void *write_until_lost(void *arg)
{
    static const uint8_t data[1 << 20];
    struct clb_iovec iov = {data, sizeof data};
    CHECK(clb_stream_write(arg, &iov, 1, 10 * SEC) < 0);
    return NULL;
}

static clb_link *connect_to(struct peer *p, void (*script)(struct peer *p, void *arg))
{
    uint16_t port;
    char uri[64];
    clb_link *link = NULL;
    int l = peer_listen(&port);
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);
    atomic_store(&stage, 0);
    peer_accept_later(p, l, script, NULL);
    CHECK_EQ(clb_link_open(&link, clb_link_params(.uri = uri, .log = sink)), CLB_OK);
    close(l);
    return link;
}

static void until_down(clb_link *link)
{
    for (int i = 0; i < 5000 && clb_link_get_state(link, NULL) != CLB_LINK_DOWN; i++) {
        check_sleep_ms(2);
    }
    CHECK_EQ(clb_link_get_state(link, NULL), CLB_LINK_DOWN);
}

static void streams_refused(void)
{
    struct peer p;
    clb_link *link = connect_to(&p, resets);
    clb_stream *s = NULL;
    CHECK_EQ(told(), 0);
    const struct clb_image odd = {
        .fmt = CLB_PIXFMT_GRAY8, .width = 8, .height = 8, .num_planes = 1};
    struct clb_image huge;
    CHECK_EQ(clb_image_init(&huge, CLB_PIXFMT_GRAY8, UINT32_MAX, UINT32_MAX, 0, 0), CLB_OK);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.align = 3)), CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.trailer = (enum clb_trailer)3)),
             CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.max_metadata = (1 << 20) + 1)),
             CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.dst_pitch_align = 48)), CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.dst_plane_align = 3)), CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.image = odd)), CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link,
                             clb_stream_params(.image = huge, .dst_pitch_align = (size_t)1 << 40)),
             CLB_ERR_TOOBIG);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "b", .open_timeout_ns = 10 * MS)),
             CLB_ERR_TIMEOUT);
    CHECK_EQ(told(), 1);
    atomic_store(&stage, 1);
    until_down(link);
    CHECK_EQ(told(), 1);
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "c")), CLB_ERR_LOST);
    CHECK_EQ(told(), 0);
    clb_link_close(&link);
    peer_join(&p);
    CHECK_EQ(told(), 0);
}

/* Takes nothing of what is written: both directions break at once. */
static void resets_a_writer(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    while (!p->stream[0].created) {
        peer_pump(p, 100);
    }
    for (int i = 0; i < 5000 && !atomic_load(&stage); i++) {
        check_sleep_ms(2);
    }
    peer_abort(p);
}

static void writer_lost(void)
{
    struct peer p;
    clb_link *link = connect_to(&p, resets_a_writer);
    clb_stream *s = NULL;
    pthread_t t;
    CHECK_EQ(clb_stream_open(&s, link, clb_stream_params(.name = "a", .write_window = 8 << 20)),
             CLB_OK);
    CHECK_EQ(pthread_create(&t, NULL, write_until_lost, s), 0);
    check_sleep_ms(50);
    atomic_store(&stage, 1);
    pthread_join(t, NULL);
    until_down(link);
    CHECK_EQ(told(), 1);
    clb_stream_close(&s);
    clb_link_close(&link);
    peer_join(&p);
    CHECK_EQ(told(), 0);
}

static int alloc_nothing(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    (void)opaque;
    (void)req;
    (void)out;
    return CLB_ERR_NOBUFS;
}

static void links_refused(void)
{
    clb_link *link = NULL;
    clb_listener *l = NULL;
    struct clb_status st = {0};
    clb_link_params lp = {.struct_size = sizeof lp, .uri = "tcp://127.0.0.1:1", .status = &st};
    lp.log = sink;
    lp.allocator.alloc = alloc_nothing;
    CHECK_EQ(clb_link_open(&link, &lp), CLB_ERR_INVAL);
    CHECK_EQ(st.err, CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    clb_listener_params np = {.struct_size = sizeof np, .uri = "tcp://127.0.0.1:0", .link = lp};
    CHECK_EQ(clb_listener_open(&l, &np), CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    lp.allocator.alloc = NULL;
    lp.uri = "nothing";
    CHECK_EQ(clb_link_open(&link, &lp), CLB_ERR_INVAL);
    CHECK_EQ(told(), 1);
    lp.uri = "usb://";
    CHECK_EQ(clb_link_open(&link, &lp), CLB_ERR_NOSYS);
    CHECK_EQ(told(), 1);
}

int main(void)
{
    check_watchdog(100);
    const int fds = check_fds(), threads = check_threads();
    streams_refused();
    for (int i = 0; i < 5; i++) {
        writer_lost();
    }
    links_refused();
    check_back_to(fds, threads);
    return 0;
}
