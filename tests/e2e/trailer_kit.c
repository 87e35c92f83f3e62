/* SPDX-License-Identifier: Apache-2.0 */
/* Allocator and link of the tests of trailers. See trailer_kit.h. */
#include "trailer_kit.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the allocator ----------------------------------------------------------------------------- */

struct block {
    struct mem *owner;
    uint8_t *memory, *data;
    size_t size;
    bool released;
};

void mem_init(struct mem *m)
{
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
}

static int do_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    struct mem *m = opaque;
    CHECK(m->stretch || req->capacity <= req->payload);
    CHECK(m->stretch || req->expect <= req->capacity);
    CHECK(req->align >= 64 && (req->align & (req->align - 1)) == 0);
    pthread_mutex_lock(&m->lock);
    m->calls++;
    m->last = *req;
    const bool full = m->limit && m->given - m->freed >= m->limit;
    const bool toobig = m->fixed && req->capacity > m->fixed;
    m->toobig += toobig;
    m->nobufs += full && !toobig;
    m->given += !full && !toobig;
    pthread_mutex_unlock(&m->lock);
    if (full || toobig) {
        return toobig ? CLB_ERR_TOOBIG : CLB_ERR_NOBUFS;
    }
    struct block *b = calloc(1, sizeof *b);
    CHECK(b != NULL);
    const size_t lead = req->align > MEM_GUARD ? req->align : MEM_GUARD;
    void *memory = NULL;
    b->owner = m;
    b->size = (m->fixed ? m->fixed : req->capacity) + m->spare;
    CHECK_EQ(posix_memalign(&memory, lead, lead + b->size + MEM_GUARD), 0);
    b->memory = memory;
    b->data = b->memory + lead;
    memset(b->memory, MEM_UNWRITTEN, lead + b->size + MEM_GUARD);
    *out = (struct clb_buf){.data = b->data, .size = b->size, .context = b};
    return CLB_OK;
}

static void check_guards(const struct block *b)
{
    for (size_t i = 0; i < MEM_GUARD; i++) {
        CHECK_EQ(b->data[-1 - (ptrdiff_t)i], MEM_UNWRITTEN);
        CHECK_EQ(b->data[b->size + i], MEM_UNWRITTEN);
    }
}

static int do_release(void *opaque, struct clb_buf *buf, size_t written)
{
    struct mem *m = opaque;
    struct block *b = buf->context;
    CHECK(b->owner == m && !b->released);
    CHECK_LE(written, b->size);
    check_guards(b);
    pthread_mutex_lock(&m->lock);
    m->released++;
    m->last_written = written;
    pthread_mutex_unlock(&m->lock);
    b->released = true;
    buf->data = NULL;
    return CLB_OK;
}

static void do_free(void *opaque, struct clb_buf *buf)
{
    struct mem *m = opaque;
    struct block *b = buf->context;
    CHECK(b != NULL && b->owner == m);
    check_guards(b);
    b->owner = NULL;
    pthread_mutex_lock(&m->lock);
    m->freed++;
    pthread_mutex_unlock(&m->lock);
    free(b->memory);
    free(b);
}

static void do_ref(void *opaque)
{
    struct mem *m = opaque;
    pthread_mutex_lock(&m->lock);
    m->refs++;
    pthread_mutex_unlock(&m->lock);
}

static void do_unref(void *opaque)
{
    struct mem *m = opaque;
    pthread_mutex_lock(&m->lock);
    m->unrefs++;
    CHECK_LE(m->unrefs, m->refs);
    pthread_mutex_unlock(&m->lock);
}

struct clb_allocator mem_allocator(struct mem *m)
{
    return (struct clb_allocator){.alloc = do_alloc,
                                  .release = do_release,
                                  .free = do_free,
                                  .ref = do_ref,
                                  .unref = do_unref,
                                  .opaque = m};
}

void mem_check(struct mem *m)
{
    for (int i = 0; i < 400; i++) {
        pthread_mutex_lock(&m->lock);
        const bool home = m->given == m->freed && m->refs == m->unrefs;
        pthread_mutex_unlock(&m->lock);
        if (home) {
            break;
        }
        check_sleep_ms(5);
    }
    pthread_mutex_lock(&m->lock);
    CHECK_EQ(m->freed, m->given);
    CHECK_EQ(m->unrefs, m->refs);
    pthread_mutex_unlock(&m->lock);
    pthread_mutex_destroy(&m->lock);
}

void mem_unwritten(const clb_packet *p, size_t from, size_t to)
{
    const struct block *b = clb_packet_context(p);
    CHECK(b != NULL && b->owner != NULL);
    for (size_t i = from; i < (to == SIZE_MAX ? b->size : to); i++) {
        CHECK_EQ(b->data[i], MEM_UNWRITTEN);
    }
}

size_t mem_size(const clb_packet *p)
{
    const struct block *b = clb_packet_context(p);
    return b->size;
}

/* ---- link and peer ----------------------------------------------------------------------------- */

struct coming_up {
    uint32_t window;
    atomic_int done;
};

static void come_up(struct peer *p, void *arg)
{
    struct coming_up *c = arg;
    CHECK(peer_handshake(p));
    CHECK_EQ(peer_create(p, "a", c->window), 0);
    atomic_store(&c->done, 1);
}

static int connect_pair(struct rig *r)
{
    if (!r->tcp) {
        return peer_pair(&r->peer, false);
    }
    uint16_t port;
    struct peer other;
    const int listen_fd = peer_listen(&port);
    peer_connect(&other, port);
    peer_accept(&r->peer, listen_fd);
    close(listen_fd);
    return other.fd;
}

void rig_connect(struct rig *r, uint32_t window)
{
    struct coming_up c = {.window = window};
    clb_loop_params lp = {.struct_size = sizeof lp, .caller_driven = !r->threaded};
    clb_link_params kp = {.struct_size = sizeof kp};
    CHECK_EQ(clb_loop_create(&r->loop, &lp), CLB_OK);
    const int fd = connect_pair(r);
    peer_start(&r->peer, come_up, &c);
    kp.loop = r->loop;
    kp.keepalive_ns = kp.idle_timeout_ns = -1;
    kp.first_open_ns = r->eager ? -1 : 0;
    kp.close_timeout_ns = 50 * MS; /* the peer answers no RESET */
    CHECK_EQ(clb_link_adopt(&r->link, fd, CLB_ROLE_HOST, &kp), CLB_OK);
    while (!atomic_load(&c.done)) {
        if (r->threaded) {
            check_sleep_ms(1);
        } else {
            clb_loop_dispatch(r->loop, MS);
        }
    }
    peer_join(&r->peer);
}

void rig_open_own(struct rig *r, clb_stream_params *sp, uint32_t window)
{
    rig_connect(r, window);
    sp->struct_size = sizeof *sp;
    sp->name = "a";
    CHECK_EQ(clb_stream_open(&r->s, r->link, sp), CLB_OK);
}

void rig_open(struct rig *r, clb_stream_params *sp, uint32_t window)
{
    if (!sp->allocator.alloc) {
        sp->allocator = mem_allocator(&r->mem);
    }
    rig_open_own(r, sp, window);
}

void rig_close(struct rig *r)
{
    clb_stream_close(&r->s);
    peer_close(&r->peer);
    clb_link_close(&r->link);
    clb_loop_destroy(&r->loop);
    mem_check(&r->mem);
}

void rig_turn(struct rig *r)
{
    if (r->threaded) {
        struct pollfd pfd = {.fd = r->peer.fd, .events = POLLOUT};
        poll(&pfd, 1, 1);
    } else {
        clb_loop_dispatch(r->loop, 0);
    }
}

void rig_push(struct rig *r, const void *data, size_t n, size_t chunk)
{
    const uint8_t *d = data;
    const int64_t until = check_ms() + 30000;
    while (n > 0) {
        const size_t want = chunk && chunk < n ? chunk : n;
        const ssize_t k = send(r->peer.fd, d, want, MSG_DONTWAIT | MSG_NOSIGNAL);
        CHECK(k > 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        CHECK(check_ms() < until);
        if (k > 0) {
            d += k;
            n -= (size_t)k;
        }
        rig_turn(r);
    }
}

static void take_answers(struct rig *r)
{
    rig_turn(r);
    while (peer_pump(&r->peer, 0)) {
    }
}

static void book(struct rig *r, size_t n)
{
    struct peer_stream *s = &r->peer.stream[0];
    const int64_t until = check_ms() + 20000;
    take_answers(r);
    while (s->fill + n > s->window || s->fill_packets >= 64) {
        CHECK(check_ms() < until);
        take_answers(r);
    }
    s->fill += n;
    s->fill_packets++;
    s->sent++;
}

static void put_header(struct rig *r, uint8_t *out, size_t n)
{
    const struct clbi_wire_header h = {.id = r->peer.next_id++,
                                       .type = CLBI_WRITE_REQ,
                                       .stream_id = r->peer.stream[0].id,
                                       .size = (uint32_t)n,
                                       .flags = CLBI_FLAG_ACK};
    book(r, n);
    clbi_wire_encode(out, &h);
}

void rig_send_header(struct rig *r, size_t n)
{
    uint8_t header[CLBI_WIRE_HEADER];
    put_header(r, header, n);
    rig_push(r, header, sizeof header, 0);
}

void rig_bytes(struct rig *r, struct blob *all, const struct blob *b)
{
    all->n = 0;
    put_header(r, blob_more(all, CLBI_WIRE_HEADER), b->n);
    blob_put(all, b->data, b->n);
}

void rig_send_cut(struct rig *r, const struct blob *b, size_t cut)
{
    struct blob all = {0};
    rig_bytes(r, &all, b);
    cut = cut < all.n ? cut : all.n;
    rig_push(r, all.data, cut, 0);
    rig_turn(r);
    rig_push(r, all.data + cut, all.n - cut, 0);
    blob_free(&all);
}

void rig_send(struct rig *r, const struct blob *b, size_t chunk)
{
    struct blob all = {0};
    rig_bytes(r, &all, b);
    rig_push(r, all.data, all.n, chunk);
    blob_free(&all);
}

clb_packet *rig_read(struct rig *r)
{
    clb_packet *p = NULL;
    CHECK_EQ(clb_stream_read(r->s, &p, 10 * SEC), CLB_OK);
    CHECK(p != NULL);
    return p;
}

void rig_arrived(struct rig *r, uint64_t packets)
{
    for (int64_t until = check_ms() + 10000; rig_stats(r).packets < packets;) {
        CHECK(check_ms() < until);
        rig_turn(r);
    }
    CHECK_EQ(rig_stats(r).packets, packets);
}

void rig_credited(struct rig *r)
{
    for (int64_t until = check_ms() + 10000; r->peer.stream[0].fill_packets > 0;) {
        CHECK(check_ms() < until);
        take_answers(r);
    }
    CHECK_EQ(r->peer.stream[0].fill, 0);
}

clb_stream_stats rig_stats(const struct rig *r)
{
    clb_stream_stats st;
    clb_stream_get_stats(r->s, &st, sizeof st);
    return st;
}

clb_packet_info info_of(const clb_packet *p)
{
    clb_packet_info info;
    clb_packet_get_info(p, &info, sizeof info);
    return info;
}

void check_pixels(const void *data, unsigned seed, size_t n)
{
    const uint8_t *d = data;
    CHECK(d != NULL || n == 0);
    for (size_t i = 0; i < n; i++) {
        CHECK_EQ(d[i], pixel_at(seed, i));
    }
}

void check_split(const clb_packet *p, unsigned seed, size_t pixels, const struct blob *meta,
                 int32_t type, enum clb_metadata_status status)
{
    size_t size = 77;
    const void *m = clb_packet_metadata(p, &size);
    const clb_packet_info info = info_of(p);
    CHECK_EQ(info.metadata_status, status);
    CHECK_EQ(clb_packet_size(p), pixels);
    CHECK_EQ(info.size, pixels);
    CHECK_EQ(size, meta->n);
    CHECK_EQ(info.metadata_size, meta->n);
    CHECK_EQ(info.claimed_metadata, meta->n);
    CHECK_EQ(info.object_type, type);
    CHECK_GE(info.total, pixels + meta->n + 8);
    check_pixels(clb_packet_data(p), seed, pixels);
    if (meta->n > 0) {
        CHECK(m != NULL);
        CHECK_EQ((uintptr_t)m % 64, 0);
        CHECK_EQ(memcmp(m, meta->data, meta->n), 0);
    } else {
        CHECK(m == NULL);
    }
}

void check_raw(const clb_packet *p, const struct blob *whole)
{
    size_t size = 77;
    const clb_packet_info info = info_of(p);
    CHECK_EQ(info.metadata_status, CLB_METADATA_BAD);
    CHECK(clb_packet_metadata(p, &size) == NULL);
    CHECK_EQ(size, 0);
    CHECK_EQ(info.metadata_size, 0);
    CHECK_EQ(info.total, whole->n);
    CHECK_EQ(clb_packet_size(p), whole->n);
    CHECK(clb_packet_image(p) == NULL);
    CHECK_EQ(whole->n ? memcmp(clb_packet_data(p), whole->data, whole->n) : 0, 0);
}
