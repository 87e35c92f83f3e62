/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-04: payloads are written into memory of the user's allocators: two links, two streams
 * each, an allocator per stream, six sizes. Each is asked with its own tag and the exact size, gets
 * its own token back, nothing outside the block is written and nothing is copied.
 */
#include <clbridge/clbridge.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"
#include "talloc.h"

#define SEC INT64_C(1000000000)

static const uint32_t sizes[] = {1, 63, 64, 65, 4096, 12441600};
#define SIZES (sizeof sizes / sizeof *sizes)
#define WINDOW (12441600u + 4096u + 65u + 64u + 63u + 1u)

static uint8_t byte_at(int link, int stream, size_t size, size_t i)
{
    return (uint8_t)(link * 97 + stream * 31 + (int)(size % 251) + (int)(i % 253) + (int)(i >> 12));
}

static void run(struct peer *p, void *arg)
{
    const int link = *(int *)arg;
    CHECK(peer_handshake(p));
    int index[2] = {peer_create(p, "left", WINDOW), peer_create(p, "right", WINDOW)};
    /* What comes for a stream that is not open yet, behind the first that is, goes to host memory. */
    while (!p->stream[index[0]].created || !p->stream[index[1]].created) {
        CHECK(!p->eof);
        peer_pump(p, 20);
    }
    uint8_t *data = malloc(12441600);
    CHECK(data != NULL);
    for (size_t k = 0; k < SIZES; k++) {
        for (int s = 0; s < 2; s++) {
            for (size_t i = 0; i < sizes[k]; i++) {
                data[i] = byte_at(link, s, sizes[k], i);
            }
            CHECK(peer_write(p, index[s], data, sizes[k], 30000));
        }
    }
    free(data);
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

int main(void)
{
    check_watchdog(60);
    const int fds = check_fds(), threads = check_threads();
    static const char *const names[] = {"left", "right"};
    struct peer peer[2];
    int number[2] = {0, 1};
    struct talloc t[4];
    clb_link *link[2];
    clb_stream *stream[4];
    uint16_t port;
    int listen_fd = peer_listen(&port);
    char uri[64];
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", port);

    /* One link over TCP, one over a local socket. */
    int fd = peer_pair(&peer[1], false);
    peer_start(&peer[1], run, &number[1]);
    CHECK_EQ(clb_link_adopt(&link[1], fd, CLB_ROLE_HOST, NULL), CLB_OK);
    peer_accept_later(&peer[0], listen_fd, run, &number[0]);
    CHECK_EQ(clb_link_open(&link[0], clb_link_params(.uri = uri)), CLB_OK);
    for (int i = 0; i < 4; i++) {
        talloc_init(&t[i], NULL);
        clb_stream_params sp = {.struct_size = sizeof sp, .name = names[i % 2]};
        sp.allocator = talloc_allocator(&t[i]);
        CHECK_EQ(clb_stream_open(&stream[i], link[i / 2], &sp), CLB_OK);
    }
    for (size_t k = 0; k < SIZES; k++) {
        for (int i = 0; i < 4; i++) {
            clb_packet *p = NULL;
            CHECK_EQ(clb_stream_read(stream[i], &p, 30 * SEC), CLB_OK);
            const uint8_t *d = clb_packet_data(p);
            CHECK_EQ(clb_packet_size(p), sizes[k]);
            CHECK_EQ((uintptr_t)d % 64, 0);
            CHECK(talloc_owns(&t[i], clb_packet_context(p), d));
            CHECK(clb_packet_allocator(p).opaque == &t[i]);
            for (size_t n = 0; n < sizes[k]; n++) {
                if (d[n] != byte_at(i / 2, i % 2, sizes[k], n)) {
                    CHECK_EQ(d[n], byte_at(i / 2, i % 2, sizes[k], n));
                }
            }
            clb_packet_free(&p); /* the guards are looked at there */
        }
    }
    for (int i = 0; i < 4; i++) {
        clb_stream_stats st;
        clb_stream_get_stats(stream[i], &st, sizeof st);
        CHECK_EQ(st.packets, SIZES);
        CHECK_EQ(st.bytes, WINDOW);
        CHECK_EQ(st.spilled + st.spill_bytes + st.moved_bytes + st.readback_bytes, 0);
        clb_stream_close(&stream[i]);
    }
    for (int i = 0; i < 2; i++) {
        clb_link_close(&link[i]);
        peer_join(&peer[i]);
    }
    int calls = 0, freed = 0;
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < SIZES; k++) {
            CHECK_EQ(t[i].sizes[k], sizes[k]);
        }
        calls += t[i].calls;
        freed += t[i].freed;
        talloc_check(&t[i]);
    }
    CHECK_EQ(calls, 24);
    CHECK_EQ(freed, 24);
    close(listen_fd);
    check_back_to(fds, threads);
    return 0;
}
