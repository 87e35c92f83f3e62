/* SPDX-License-Identifier: Apache-2.0 */
/* See races_kit.h. */
#include "races_kit.h"

#include <pthread.h>

#include "check.h"
#include "link_priv.h"

clb_link *adopt(int fd, const clb_link_params *params)
{
    clb_link *link = NULL;
    struct clb_status st = {0};
    clb_link_params p = params ? *params : (clb_link_params){.struct_size = sizeof p};
    p.status = &st;
    int err = clb_link_adopt(&link, fd, CLB_ROLE_HOST, &p);
    if (err < 0) {
        fprintf(stderr, "%s\n", st.text);
    }
    CHECK_EQ(err, CLB_OK);
    return link;
}

clb_stream *open_stream(clb_link *link, const clb_stream_params *params)
{
    clb_stream *s = NULL;
    CHECK_EQ(clb_stream_open(&s, link, params), CLB_OK);
    return s;
}

clb_stream_stats stats_of(clb_stream *s)
{
    clb_stream_stats st;
    clb_stream_get_stats(s, &st, sizeof st);
    return st;
}

void wait_int(atomic_int *n, int at_least)
{
    for (int i = 0; i < 2000 && atomic_load(n) < at_least; i++) {
        check_sleep_ms(5);
    }
    CHECK_GE(atomic_load(n), at_least);
}

void until_inside(clb_link *link, const uint32_t *callers)
{
    for (bool inside = false; !inside;) {
        pthread_mutex_lock(&link->lock);
        inside = *callers > 0;
        pthread_mutex_unlock(&link->lock);
        check_sleep_ms(1);
    }
}

atomic_int stage;

void await(int n)
{
    for (int i = 0; i < 3000 && atomic_load(&stage) < n; i++) {
        check_sleep_ms(2);
    }
    CHECK_GE(atomic_load(&stage), n);
}

void pump_until(struct peer *p, int n)
{
    for (int i = 0; i < 3000 && atomic_load(&stage) < n; i++) {
        peer_pump(p, 2);
    }
    CHECK_GE(atomic_load(&stage), n);
}

void start(struct peer *p, void (*fn)(struct peer *p, void *arg), void *arg)
{
    atomic_store(&stage, 0);
    peer_start(p, fn, arg);
}

void finish(clb_link **link, struct peer *p)
{
    atomic_store(&stage, 1000);
    clb_link_close(link);
    peer_join(p);
}

void well_behaved(struct peer *p, void *arg)
{
    (void)arg;
    CHECK(peer_handshake(p));
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

void writes_a(struct peer *p, void *arg)
{
    const int n = *(int *)arg;
    CHECK(peer_handshake(p));
    int a = peer_create(p, "a", 4000);
    for (int i = 0; i < n; i++) {
        if (!peer_write_fill(p, a, i, 1000, 30000)) {
            break;
        }
    }
    peer_pump_to_end(p, 60000);
    peer_close(p);
}

void *read_until_closed(void *arg)
{
    clb_packet *pk = NULL;
    int err;
    while ((err = clb_stream_read(arg, &pk, -1)) == CLB_OK) {
        clb_packet_free(&pk);
    }
    CHECK_EQ(err, CLB_ERR_CLOSED);
    return NULL;
}
