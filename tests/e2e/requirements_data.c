/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements of section 12 of the wire protocol's description: what happens to data. */
#include "requirements.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static void open_all(struct scene *sc, uint32_t write_window)
{
    CHECK_EQ(scene_open(sc), CLB_OK);
    CHECK_EQ(scene_stream(sc, write_window, 0), CLB_OK);
}

static void writes_numbered(struct peer *p, struct scene *sc)
{
    int i = announced(p, 1 << 16);
    step(sc);
    for (int k = 0; k < sc->arg; k++) {
        CHECK(peer_write_fill(p, i, k & 0xff, 1000, 10000));
    }
    while (p->stream[i].released < (uint64_t)sc->arg) {
        CHECK(peer_pump(p, 10000));
    }
    CHECK_EQ(p->stream[i].acked, sc->arg);
    atomic_store(&sc->made, 100);
    stay_polite(p, sc);
}

/* An allocator that fails in every way costs the packets for which it did, and nothing else. */
void r04_no_memory_keeps_step(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = writes_numbered, .arg = 12};
    clb_packet *p = NULL;
    clb_stream_stats st;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    sc.mem.plan = "e0smeoe0smeo"; /* error, NULL, too small, crooked, error, good */
    CHECK_EQ(scene_stream(&sc, 0, 0), CLB_OK);
    for (int k = 0; k < 2; k++) {
        CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_OK);
        CHECK_EQ(clb_packet_size(p), 1000);
        CHECK_EQ(((const uint8_t *)clb_packet_data(p))[999], k ? 11 : 5);
        clb_packet_free(&p);
    }
    scene_await(&sc, 100); /* the credit of all has gone back */
    clb_stream_get_stats(sc.s, &st, sizeof st);
    CHECK_EQ(st.alloc_failed, 10);
    scene_end(&sc);
}

void r10_timed_out_read_loses_nothing(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = writes_numbered, .arg = 400};
    open_all(&sc, 0);
    for (int k = 0, late = 0; k < 400;) {
        clb_packet *p = NULL;
        int err = clb_stream_read(sc.s, &p, late++ % 3 * 20000); /* 0, 20 and 40 us */
        if (late % 7 == 0) {
            clb_stream_interrupt(sc.s);
        }
        CHECK(err == CLB_OK || err == CLB_ERR_TIMEOUT || err == CLB_ERR_AGAIN ||
              err == CLB_ERR_CANCELED);
        CHECK_EQ(err == CLB_OK, p != NULL);
        if (p) {
            clb_packet_info info;
            clb_packet_get_info(p, &info, sizeof info);
            CHECK_EQ(*(const uint8_t *)clb_packet_data(p), k & 0xff);
            CHECK_EQ(info.seq, k);
            CHECK_EQ(info.dropped_before, 0);
            clb_packet_free(&p);
            k++;
        }
    }
    scene_await(&sc, 100);
    scene_end(&sc);
}

/* ---- R20 --------------------------------------------------------------------------------------- */

static atomic_int our_fd = -1, whole_sends, other_sends;

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    size_t n = 0;
    for (size_t i = 0; i < msg->msg_iovlen; i++) {
        n += msg->msg_iov[i].iov_len;
    }
    if (fd == atomic_load(&our_fd)) {
        atomic_fetch_add(n == CLBI_WIRE_HEADER + 900 ? &whole_sends : &other_sends, 1);
    }
    return __real_sendmsg(fd, msg, flags);
}

/* The descriptor of our end: its own address is the peer's of fd. */
static int other_end(int fd)
{
    struct sockaddr_in a = {0}, b = {0};
    socklen_t an = sizeof a, bn;
    DIR *d = opendir("/proc/self/fd");
    int found = -1;
    CHECK(d != NULL);
    CHECK_EQ(getpeername(fd, (struct sockaddr *)&a, &an), 0);
    for (const struct dirent *e; (e = readdir(d));) {
        int k = atoi(e->d_name);
        bn = sizeof b;
        if (k != fd && getsockname(k, (struct sockaddr *)&b, &bn) == 0 && b.sin_family == AF_INET &&
            b.sin_port == a.sin_port) {
            bn = sizeof b;
            found = getpeername(k, (struct sockaddr *)&b, &bn) == 0 ? k : found;
        }
    }
    closedir(d);
    return found;
}

static void takes_three(struct peer *p, struct scene *sc)
{
    announced(p, 4096);
    while (peer_pump(p, 20)) {
    }
    atomic_store(&our_fd, other_end(p->fd));
    step(sc);
    stay_polite(p, sc);
}

/* Header and pieces of a packet leave in one call, on a connection without delay. */
void r20_one_send(const void *where)
{
    static const uint8_t data[900];
    struct scene sc = {.where = *(const int *)where, .fn = takes_three};
    struct clb_iovec iov[3] = {{data, 100}, {data, 0}, {data, 800}};
    int on = 0;
    socklen_t len = sizeof on;
    sc.params.keepalive_ns = -1;
    open_all(&sc, 4096);
    scene_await(&sc, 1);
    CHECK_GE(atomic_load(&our_fd), 0);
    CHECK_EQ(getsockopt(atomic_load(&our_fd), IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    CHECK(on != 0);
    for (int k = 1; k <= 3; k++) {
        CHECK_EQ(clb_stream_write(sc.s, iov, 3, 5 * SEC), CLB_OK);
        CHECK_EQ(clb_stream_flush(sc.s, CLB_FLUSH_RELEASED, 5 * SEC), CLB_OK);
        check_sleep_ms(20);
        CHECK_EQ(atomic_load(&whole_sends), k);
        CHECK_EQ(atomic_load(&other_sends), k); /* the answer to the release */
    }
    scene_end(&sc);
}

/* ---- R21 to R23 -------------------------------------------------------------------------------- */

void r21_no_allocation_in_steady_state(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = writes_numbered, .arg = 300};
    clb_link_stats st;
    uint64_t before = 0;
    CHECK_EQ(scene_open(&sc), CLB_OK);
    CHECK_EQ(clb_stream_open(&sc.s, sc.link, clb_stream_params(.name = "a")), CLB_OK);
    for (int k = 0; k < 300; k++) {
        clb_packet *p = NULL;
        CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_OK);
        clb_packet_free(&p);
        if (k == 100) {
            clb_link_get_stats(sc.link, &st, sizeof st);
            before = st.heap_allocs;
        }
    }
    clb_link_get_stats(sc.link, &st, sizeof st);
    CHECK_LE(st.heap_allocs - before, 64); /* the pool grows to the peer's lead at most */
    CHECK_GT(before, 0);
    const uint64_t after = st.heap_allocs;
    scene_await(&sc, 100);
    clb_link_get_stats(sc.link, &st, sizeof st);
    CHECK_EQ(st.heap_allocs, after);
    scene_end(&sc);
}

void r22_payload_lands_in_the_allocators_memory(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = writes_numbered, .arg = 50};
    clb_stream_stats st;
    open_all(&sc, 0);
    for (int k = 0; k < 50; k++) {
        clb_packet *p = NULL;
        CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_OK);
        CHECK(talloc_owns(&sc.mem, clb_packet_context(p), clb_packet_data(p)));
        CHECK_EQ(((const uint8_t *)clb_packet_data(p))[500], k);
        clb_packet_free(&p);
    }
    scene_await(&sc, 100);
    clb_stream_get_stats(sc.s, &st, sizeof st);
    CHECK_EQ(st.spilled, 0);
    CHECK_EQ(st.spill_bytes, 0);
    scene_end(&sc);
}

static void watches_its_credit(struct peer *p, struct scene *sc)
{
    int i = announced(p, 4096);
    CHECK(peer_write_fill(p, i, 1, 100, 5000));
    CHECK(peer_write_fill(p, i, 2, 200, 5000));
    CHECK(peer_wait_acked(p, 10000));
    step(sc); /* read, and held */
    const int64_t until = check_ms() + 100;
    while (check_ms() < until) {
        peer_pump(p, 5);
        CHECK_EQ(p->rel_count, 0);
    }
    CHECK_EQ(p->stream[i].acked, 2);
    step(sc);
    while (p->rel_count < 1) {
        CHECK(peer_pump(p, 10000));
    }
    CHECK_EQ(p->rel_log[0], 200); /* the one that was given back, not the oldest */
    step(sc);
    while (p->rel_count < 2) {
        CHECK(peer_pump(p, 10000));
    }
    stay_polite(p, sc);
}

void r23_release_when_given_back(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = watches_its_credit};
    clb_packet *p[2] = {NULL, NULL};
    open_all(&sc, 0);
    for (int k = 0; k < 2; k++) {
        CHECK_EQ(clb_stream_read(sc.s, &p[k], 10 * SEC), CLB_OK);
    }
    scene_await(&sc, 2);
    clb_packet_free(&p[1]);
    scene_await(&sc, 3);
    clb_packet_free(&p[0]);
    scene_end(&sc);
}

/* ---- R26 --------------------------------------------------------------------------------------- */

static void write_fd(struct peer *p, struct scene *sc)
{
    uint8_t bytes[CLBI_WIRE_HEADER + 10] = {0};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } u;
    int i = announced(p, 4096);
    const int fds = check_fds();
    struct clbi_wire_header h = {
        .type = CLBI_WRITE_FD_REQ, .stream_id = p->stream[i].id, .size = 10};
    memset(bytes + CLBI_WIRE_HEADER, 'f', 10);
    p->by_hand = true;
    for (h.id = 600; h.id < 610; h.id++) {
        struct iovec iov = {bytes, sizeof bytes};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        clbi_wire_encode(bytes, &h);
        if (sc->where == HOST_UNIX || sc->where == DEVICE_UNIX) {
            memset(&u, 0, sizeof u);
            msg.msg_control = u.room;
            msg.msg_controllen = sizeof u.room;
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(c), &p->fd, sizeof(int));
        }
        CHECK_EQ(sendmsg(p->fd, &msg, MSG_NOSIGNAL), sizeof bytes);
        CHECK_EQ(answer(p, CLBI_WRITE_FD_RESP, h.id)->flags, CLBI_FLAG_ACK);
        CHECK_EQ(p->last.size, 10);
    }
    CHECK_LE(check_fds(), fds);
    passed(p, sc);
}

/* Exactly its bytes, an answer of its own kind, and no descriptor of ours for the one sent along. */
void r26_write_with_descriptor(const void *where)
{
    struct scene sc = {.where = *(const int *)where, .fn = write_fd};
    open_all(&sc, 0);
    for (int k = 0; k < 10; k++) {
        clb_packet *p = NULL;
        CHECK_EQ(clb_stream_read(sc.s, &p, 10 * SEC), CLB_OK);
        CHECK_EQ(clb_packet_size(p), 10);
        CHECK(memcmp(clb_packet_data(p), "ffffffffff", 10) == 0);
        clb_packet_free(&p);
    }
    scene_await(&sc, 100);
    scene_end(&sc);
}
