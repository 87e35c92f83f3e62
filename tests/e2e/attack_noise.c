/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that say what is nearly right. */
#include "attack_kit.h"

#include <unistd.h>

#include "check.h"
#include "talloc.h"

/* Headers whose fields are nearly right, with payloads that are sometimes there. */
static void noise_of(struct peer *p, void *arg)
{
    static const uint32_t types[] = {0, 0, 0, 2, 3, 4, 5, 8, 10, 11, 12, 13, 24, 25, 27, 28, 6, 14};
    static const char *const names[] = {"a", "b", "c", ""};
    uint32_t state = *(uint32_t *)arg;
    if (!peer_handshake(p)) {
        peer_close(p);
        return;
    }
    p->by_hand = true;
    for (int i = 0; i < 60 && !p->eof; i++) {
        uint32_t type = types[rnd(&state) % (i < 40 ? 16 : 18)];
        uint32_t size = rnd(&state) % 4 == 0 ? rnd(&state) : rnd(&state) % 3000;
        uint32_t id = rnd(&state) % 8 == 0 ? rnd(&state) : rnd(&state) % 3;
        if (type == CLBI_CREATE_STREAM_REQ) {
            size = rnd(&state) % 4 ? 100000 : size;
        }
        if (!peer_send_header(p, type, (int32_t)(11 + rnd(&state) % 12), names[rnd(&state) % 4], id,
                              size, rnd(&state) & 0x67)) {
            break;
        }
        if ((type == 0 || type == 25) && size < 3000 && rnd(&state) % 16) {
            send_zeros(p, size);
        }
        struct clbi_wire_header h;
        while (rnd(&state) % 3 && peer_recv(p, &h, NULL, 0)) {
        }
    }
    if (rnd(&state) % 2) {
        peer_abort(p);
    }
    peer_close(p);
}

void noise(uint32_t rounds)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        struct peer peer;
        struct talloc t;
        clb_link *link = NULL;
        clb_stream *s[2] = {NULL, NULL};
        uint32_t seed = i * 2654435761u;
        talloc_init(&t, "ooonoeosomon");
        int fd = peer_pair(&peer, i & 1);
        peer_start(&peer, noise_of, &seed);
        clb_link_params lp = {.struct_size = sizeof lp, .loop = honest_loop};
        lp.allocator = talloc_allocator(&t);
        lp.first_open_ns = i & 2 ? -1 : 10 * MS;
        lp.progress_timeout_ns = 300 * MS;
        lp.close_timeout_ns = 50 * MS;
        if (clb_link_adopt(&link, fd, i & 1 ? CLB_ROLE_DEVICE : CLB_ROLE_HOST, &lp) < 0) {
            close(fd);
        } else {
            for (int k = 0; k < 2; k++) {
                clb_stream_params sp = {.struct_size = sizeof sp, .name = k ? "b" : "a"};
                sp.on_full = (enum clb_full)(i % 3);
                sp.open_timeout_ns = 5 * MS;
                sp.write_window = k ? 1000 : 0;
                (void)!clb_stream_open(&s[k], link, &sp);
            }
            struct clb_iovec iov = {&seed, sizeof seed};
            for (int k = 0; k < 12; k++) {
                clb_packet *p = NULL;
                if (s[k & 1] && clb_stream_read(s[k & 1], &p, 2 * MS) == CLB_OK) {
                    clb_packet_free(&p);
                }
                if (s[1]) {
                    (void)!clb_stream_write(s[1], &iov, 1, 0);
                }
                if (k == 6 && i % 5 == 0) {
                    clb_stream_close(&s[0]);
                }
            }
            if (i % 2) {
                clb_link_close(&link);
            }
            clb_stream_close(&s[0]);
            clb_stream_close(&s[1]);
            clb_link_close(&link);
        }
        peer_join(&peer);
        talloc_check(&t);
    }
    honest_check();
}
