/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th heap allocation fails, for every n of a session that ends in OpenCL: device, pool, a link
 * whose stream has the pool for its allocator, frames made of packets, their uses, a recipe. One call
 * says NOMEM and leaves a line in the log, or one packet or event is lost and counted; every buffer
 * comes home.
 *
 * Linked with --wrap; the sources of this program and of the double are compiled with other names for
 * calloc and malloc, so that only the library's own calls count.
 */
#include <clbridge/preprocess.h>
#include <unistd.h>

#include "heap.h"
#include "peer.h"
#include "pool_kit.h"
#include "tempdir.h"

#undef malloc
#undef calloc

#define SIZE 3000u /* NV12 of 50 x 40 */
#define SLOTS 3
#define PACKETS 5

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *own_malloc(size_t size);
void *own_calloc(size_t n, size_t size);

static atomic_uint lines;
static char cache[TEMPDIR_PATH];

void *own_malloc(size_t size)
{
    return __real_malloc(size);
}

void *own_calloc(size_t n, size_t size)
{
    return __real_calloc(n, size);
}

/* ---- the peer -------------------------------------------------------------------------------- */

static void run(struct peer *p, void *arg)
{
    (void)arg;
    heap_exempt = true;
    if (peer_handshake(p)) {
        struct peer_stream *s = &p->stream[0];
        *s = (struct peer_stream){
            .used = true, .name = "cam", .id = CLBI_ID_NONE, .window = 2 * SIZE};
        peer_send_header(p, CLBI_CREATE_STREAM_REQ, p->next_id++, s->name, s->id, 2 * SIZE,
                         CLBI_FLAG_ACK);
        while (s->id == CLBI_ID_NONE && !p->eof)
            peer_pump(p, 20);
        for (int i = 0; i < PACKETS && !p->eof; i++)
            peer_write_fill(p, 0, i + 1, SIZE, 20000);
    }
    peer_pump_to_end(p, 20000);
    peer_close(p);
}

/* ---- the session ----------------------------------------------------------------------------- */

struct outcome {
    int device, pool, link, stream, recipe;
    int read, frames, runs, uses; /* that went well */
    int nomem;                    /* calls that said NOMEM */
    unsigned lines_before;        /* in the log, before the call that is noted */
    clb_stream_stats st;
    clb_cl_pool_stats buffers;
};

static int note(struct outcome *o, int err)
{
    CHECK(err == CLB_OK || err == CLB_ERR_NOMEM || err == CLB_ERR_CL || err == CLB_ERR_IO);
    CHECK(err == CLB_OK || atomic_load(&lines) > o->lines_before);
    o->nomem += err < 0;
    return err;
}
#define NOTE(o, call) ((o)->lines_before = atomic_load(&lines), note(o, call))

static void use_frame(struct outcome *o, struct kit *k, clb_cl_frame *frame, clb_preprocess *pp,
                      cl_mem tensor)
{
    cl_event many[24];
    struct clb_image img;

    CHECK_EQ(clb_image_init(&img, CLB_PIXFMT_NV12, 50, 40, 1, 1), CLB_OK);
    CHECK_EQ(clb_cl_frame_set_image(frame, &img), CLB_OK);
    for (unsigned i = 0; i < 24; i++)
        many[i] = clb_cl_frame_ready(frame);
    o->uses += NOTE(o, clb_cl_frame_used(frame, 24, many)) == CLB_OK;
    if (pp)
        o->runs += NOTE(o, clb_preprocess_run(pp, k->queue, frame, tensor, 0, NULL)) == CLB_OK;
}

static void read_all(struct outcome *o, struct kit *k, clb_stream *s, clb_preprocess *pp,
                     cl_mem tensor)
{
    const int64_t until = check_ms() + 10000;
    clb_packet *packet = NULL;
    clb_cl_frame *frame;

    /* The last packet may be the one that is lost: nothing tells a reader then. */
    while (check_ms() < until && (o->st.packets < PACKETS || o->st.queued > 0)) {
        const int err = clb_stream_read(s, &packet, 20 * MS);
        clb_stream_get_stats(s, &o->st, sizeof o->st);
        if (err == CLB_ERR_TIMEOUT || err == CLB_ERR_NOBUFS)
            continue;
        if (err < 0)
            break;
        const unsigned char *d = clb_packet_data(packet);
        CHECK_EQ(clb_packet_size(packet), SIZE);
        CHECK_EQ(d[0], d[SIZE - 1]);
        o->read++;
        if (NOTE(o, clb_cl_frame_from_packet(&frame, &packet)) == CLB_OK) {
            o->frames++;
            use_frame(o, k, frame, pp, tensor);
            clb_cl_frame_unref(&frame);
        } else {
            CHECK(packet != NULL && clb_packet_data(packet) != NULL); /* as it was */
            clb_packet_free(&packet);
        }
    }
    clb_stream_get_stats(s, &o->st, sizeof o->st);
}

static void stream_into(struct outcome *o, struct kit *k, clb_preprocess *pp, cl_mem tensor)
{
    struct clb_status st = {0};
    struct peer peer;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    const int fd = peer_pair(&peer, false);

    peer_start(&peer, run, NULL);
    o->link = NOTE(o, clb_link_adopt(&link, fd, CLB_ROLE_HOST,
                                     clb_link_params(.status = &st, .first_open_ns = -1,
                                                     .close_timeout_ns = 300 * MS,
                                                     .log.cb = kit_log, .log.priv = &lines)));
    if (link) {
        o->stream = clb_stream_open(
            &s, link,
            clb_stream_params(.name = "cam", .allocator = clb_cl_pool_allocator(k->pool)));
        CHECK(o->stream == CLB_OK || o->stream == CLB_ERR_NOMEM);
        if (s)
            read_all(o, k, s, pp, tensor);
        clb_stream_close(&s);
        clb_link_close(&link);
    } else {
        CHECK_EQ(st.err, o->link);
        close(fd);
    }
    peer_join(&peer);
}

static void session(bool driven, struct outcome *o)
{
    struct clb_status st = {0};
    struct kit k = {.size = SIZE, .align = 64};
    clb_preprocess *pp = NULL;
    cl_mem tensor;
    cl_int code;

    dbl_start(!driven);
    o->device =
        NOTE(o, clbi_cl_device_create_with(
                    &dbl_fns, &k.dev,
                    clb_cl_device_params(.caller_driven = driven, .cache_dir = cache, .status = &st,
                                         .log.cb = kit_log, .log.priv = &lines)));
    if (o->device < 0) {
        CHECK_EQ(st.err, o->device);
        CHECK(st.text[0] != '\0');
        return;
    }
    o->pool = NOTE(
        o, clb_cl_pool_create(&k.pool, k.dev,
                              clb_cl_pool_params(.buf_size = SIZE, .count = SLOTS, .status = &st)));
    if (o->pool == CLB_OK) {
        k.queue = clb_cl_device_queue(k.dev);
        tensor = dbl_fns.CreateBuffer(clb_cl_device_context(k.dev), 0, 3 * 50 * 40, NULL, &code);
        o->recipe = NOTE(o, clb_preprocess_create(&pp, k.dev, NULL));
        stream_into(o, &k, pp, tensor);
        CHECK_EQ(clb_cl_device_drain(k.dev, 10 * SEC), CLB_OK);
        o->buffers = kit_stats(&k);
        clb_preprocess_destroy(&pp);
        dbl_fns.ReleaseMemObject(tensor);
    } else {
        CHECK_EQ(st.err, o->pool);
    }
    clb_cl_pool_destroy(&k.pool);
    clb_cl_device_destroy(&k.dev);
}

/* Returns whether an allocation failed. */
static bool step(bool driven, int n)
{
    struct outcome o = {0};

    heap_fail_nth(n);
    session(driven, &o);
    const bool hit = heap_fail_end();
    if (getenv("CLB_TEST_VERBOSE"))
        fprintf(stderr,
                "%s %d: %s; device %d, pool %d, recipe %d, link %d, stream %d; %d read, %d "
                "frames, %d runs, %d uses, %d failed\n",
                driven ? "driven" : "threaded", n, hit ? "hit" : "clean", o.device, o.pool,
                o.recipe, o.link, o.stream, o.read, o.frames, o.runs, o.uses,
                (int)o.st.alloc_failed);
    dbl_settle();
    CHECK_EQ(dbl_violations(), 0);
    CHECK_EQ(dbl_finish(), 0);
    if (!hit) {
        CHECK_EQ(o.nomem, 0);
        CHECK_EQ(o.read, PACKETS);
        CHECK_EQ(o.frames, PACKETS);
        CHECK_EQ(o.runs, PACKETS);
        CHECK_EQ(o.uses, PACKETS);
        return false;
    }
    /* One failure, one effect. */
    CHECK_LE(o.nomem, 1);
    if (o.pool == CLB_OK && o.device == CLB_OK && o.link == CLB_OK && o.stream == CLB_OK) {
        CHECK_EQ(o.read + (int)o.st.alloc_failed, PACKETS);
        CHECK_GE(o.frames, PACKETS - 1);
        CHECK_GE(o.uses, PACKETS - 1);
        CHECK_GE(o.buffers.renewed, o.frames - o.uses); /* not recorded: not trusted */
    }
    return true;
}

int main(void)
{
    check_watchdog(200);
    const int fds = check_fds(), threads = check_threads();
    tempdir_make(cache);
    for (int driven = 1; driven >= 0; driven--) {
        int n = 1;
        while (step(driven != 0, n)) {
            check_back_to(fds, threads);
            n++;
            CHECK_LE(n, 200);
        }
        check_back_to(fds, threads);
        CHECK_GE(n, 12);
    }
    tempdir_remove(cache);
    return 0;
}
