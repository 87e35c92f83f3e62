/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole link over a socket pair, in either role, on a loop that the target drives: the input says
 * what the peer says, in what pieces, and what the application calls in between. The allocator checks
 * the contract and refuses by plan; every call is back within its limit on the clock of world.h, and
 * gives one of its documented results. In the end all buffers, descriptors and blocks are home.
 *
 * Built a second time with FUZZ_FAULTS: heap and socket calls fail by plan, too.
 *
 * The input: faults (see faults.c), three bytes of set-up, the allocator's plan, then operations. One
 * below 0x80 is the peer's (actor.h); it comes to pass while the library waits, or between two calls.
 */
#include <clbridge/clbridge.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actor.h"
#include "faults.h"
#include "talloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAMS 4
#define PACKETS 16
#define BUFS 8

enum call {
    CALL_OPEN,      /* slot, name, policy and allocator, queue_len, window, time-out */
    CALL_CLOSE,     /* slot */
    CALL_READ,      /* slot, time-out */
    CALL_READ_ALL,  /* slot */
    CALL_RELEASE,   /* packet */
    CALL_FREE,      /* packet */
    CALL_BUF,       /* buffer */
    CALL_WRITE,     /* slot, size, shift, time-out */
    CALL_FLUSH,     /* slot, what and time-out */
    CALL_NEXT,      /* time-out */
    CALL_SHUTDOWN,  /* time-out */
    CALL_DISPATCH,  /* time-out */
    CALL_LOOK,      /* slot */
    CALL_INTERRUPT, /* slot */
    CALL_FD,        /* slot */
    CALL_LINK_CLOSE,
    CALL_CAMERA, /* trailer and flags, max_metadata, format, width, height, pitch: of later opens */
    CALL_COUNT
};

static struct run {
    struct input in;
    struct actor actor;
    struct talloc talloc;
    struct clb_allocator inner;
    char plan[9];
    uint8_t mode;
    clb_loop *loop;
    clb_link *link;
    clb_link_params lp;
    clb_stream *stream[STREAMS];
    clb_packet *packet[PACKETS];
    struct clb_buf buf[BUFS];
    struct clb_allocator buf_allocator[BUFS];
    unsigned packets;
    clb_stream_params camera;
} run;

#define DEVICE 1u
#define GREETS 2u
#define ANSWERS 4u
#define DEAF 8u
#define READS_AT_ONCE 16u /* in ready_cb */
#define LINK_ALLOCATOR 32u
#define NO_RESET 64u
#define NARROW 128u

static bool one_of(int err, const int *allowed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (allowed[i] == err)
            return true;
    return false;
}

#define RESULT(call, err, ...)                                                                     \
    do {                                                                                           \
        const int result_[] = {CLB_OK, __VA_ARGS__};                                               \
        if (!one_of(err, result_, sizeof result_ / sizeof result_[0])) {                           \
            fprintf(stderr, "%s gave %s\n", call, clb_error_name(err));                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#define OUT_OF_LUCK (FAULTS ? CLB_ERR_NOMEM : CLB_OK)

/* ---- the allocator: its own heap calls do not fail ------------------------------------------- */

static int shim_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    int err;

    CHECK_LE(req->wait_ns, 20 * MS);
    faults_pause();
    err = run.inner.alloc(opaque, req, out);
    faults_resume();
    return err;
}

static int shim_release(void *opaque, struct clb_buf *buf, size_t written)
{
    return run.inner.release(opaque, buf, written);
}

static void shim_free(void *opaque, struct clb_buf *buf)
{
    run.inner.free(opaque, buf);
}

static void make_allocator(struct input *in, struct clb_allocator *out)
{
    static const char what[] = "ooooennsm0";
    uint8_t n = take8(in);

    for (int i = 0; i < n % 8; i++)
        run.plan[i] = what[take8(in) % (sizeof what - 1)];
    talloc_init(&run.talloc, run.plan);
    run.talloc.limit = n / 8 % 8;
    run.talloc.fail_release = n / 64;
    run.inner = talloc_allocator(&run.talloc);
    *out = run.inner;
    out->alloc = shim_alloc;
    out->release = shim_release;
    out->free = shim_free;
}

/* ---- what the application does --------------------------------------------------------------- */

static int64_t timeout(struct input *in)
{
    static const int64_t table[] = {0, 1, 3 * MS, 50 * MS, 700 * MS, 5 * SEC, 0, 0};

    return table[take8(in) % 8];
}

static void look_inside(const clb_packet *p, const clb_packet_info *info)
{
    const struct clb_image *img = clb_packet_image(p);
    size_t size = 1;
    const uint8_t *meta = clb_packet_metadata(p, &size);

    CHECK_LE(info->total, run.lp.max_payload);
    CHECK_EQ(size, info->metadata_size);
    CHECK_EQ(meta != NULL, size > 0);
    CHECK(size == 0 || ((uintptr_t)meta & 63) == 0);
    for (size_t k = 0; k < size; k++)
        ((volatile uint8_t *)(uintptr_t)meta)[k] ^= 0xff;
    if (img)
        CHECK_EQ(clb_image_check(img, info->size), CLB_OK);
    else
        CHECK_LE(info->size, run.lp.max_payload);
    CHECK(info->metadata_status != CLB_METADATA_BAD || !img);
    CHECK(info->metadata_status == CLB_METADATA_OK || size == 0 || !img);
}

static void keep(clb_packet *p)
{
    const uint8_t *d = clb_packet_data(p);
    clb_packet_info info;
    unsigned i = run.packets++ % PACKETS;

    clb_packet_get_info(p, &info, sizeof info);
    CHECK_EQ(info.size, clb_packet_size(p));
    CHECK(d != NULL);
    look_inside(p, &info);
    for (size_t k = 0; k < info.size; k++)
        ((volatile uint8_t *)d)[k] ^= 0xff; /* it is ours */
    clb_packet_free(&run.packet[i]);
    run.packet[i] = p;
}

static void read_result(int err, int64_t t)
{
    RESULT("read", err, t == 0 ? CLB_ERR_AGAIN : CLB_ERR_TIMEOUT, CLB_ERR_CANCELED, CLB_ERR_NOBUFS,
           CLB_ERR_CLOSED, CLB_ERR_LOST);
}

static void ready(void *priv, clb_stream *s)
{
    clb_packet *p = NULL;

    (void)priv;
    if (!(run.mode & READS_AT_ONCE))
        return;
    int err = clb_stream_read(s, &p, 0);
    read_result(err, 0);
    if (p)
        keep(p);
}

static void open_stream(struct input *in, clb_stream **s)
{
    char name[CLBI_WIRE_NAME];
    clb_stream_params sp = run.camera;
    uint8_t k;
    int64_t limit;
    int err;

    sp.struct_size = sizeof sp;
    sp.ready_cb = ready;
    actor_name(in, name);
    name[CLBI_WIRE_NAME - 1] = '\0';
    sp.name = name[0] ? name : NULL;
    k = take8(in);
    sp.on_full = (enum clb_full)(k % 3);
    sp.write_async = k & 4;
    sp.align = k & 8 ? 0 : 256;
    if (k & 16)
        sp.allocator = (struct clb_allocator){shim_alloc,    shim_release,    shim_free,
                                              run.inner.ref, run.inner.unref, run.inner.opaque};
    sp.queue_len = k >> 5;
    k = take8(in);
    sp.write_window = (size_t)k << (k & 7);
    sp.open_timeout_ns = timeout(in);
    limit = world_limit(sp.open_timeout_ns ? sp.open_timeout_ns : 5 * SEC);
    if (*s) {
        clb_stream *second = NULL;

        err = clb_stream_open(&second, run.link, &sp);
        CHECK(err == CLB_OK || second == NULL);
        clb_stream_close(&second);
        return;
    }
    err = clb_stream_open(s, run.link, &sp);
    CHECK_EQ(err == CLB_OK, *s != NULL);
    RESULT("open", err, CLB_ERR_IO, CLB_ERR_INVAL, CLB_ERR_BUSY, CLB_ERR_TIMEOUT, CLB_ERR_TOOBIG,
           CLB_ERR_CLOSED, CLB_ERR_LOST, OUT_OF_LUCK);
    world_check_limit(limit, "clb_stream_open");
}

static void set_camera(struct input *in)
{
    clb_stream_params *sp = &run.camera;
    uint8_t k = take8(in);

    *sp = (clb_stream_params){.trailer = (enum clb_trailer)(k % 3)};
    sp->write_only = k & 4;
    sp->max_metadata = take8(in);
    k = take8(in);
    sp->image.width = take8(in);
    sp->image.height = take8(in) % 64;
    if (k == 0 || clb_image_init(&sp->image, (enum clb_pixfmt)(k % CLB_PIXFMT_COUNT),
                                 sp->image.width, sp->image.height, (size_t)1 << (k >> 6), 0) < 0)
        sp->image.fmt = CLB_PIXFMT_UNKNOWN;
    k = take8(in);
    sp->dst_pitch_align = k & 8 ? (size_t)1 << (k & 7) : 0;
    sp->dst_plane_align = k & 0x80 ? (size_t)1 << (k >> 4 & 7) : 0;
}

static void read_one(clb_stream *s, int64_t t)
{
    clb_packet *p = NULL;
    int64_t limit = world_limit(t);
    int err = clb_stream_read(s, &p, t);

    if (!s)
        return;
    read_result(err, t);
    CHECK_EQ(err == CLB_OK, p != NULL);
    world_check_limit(limit, "clb_stream_read");
    if (p)
        keep(p);
}

static void read_all(clb_stream *s)
{
    clb_packet *p = NULL;

    while (s && clb_stream_read(s, &p, 0) == CLB_OK)
        clb_packet_free(&p);
}

static void write_one(struct input *in, clb_stream *s)
{
    static const uint8_t bytes[8192];
    size_t n = take8(in);
    uint8_t shift = take8(in);
    int64_t t = timeout(in);
    int err;

    n <<= shift % 6;
    struct clb_iovec iov[3] = {{bytes, n / 3}, {NULL, 0}, {bytes + 3, n - n / 3}};
    err = clb_stream_write(s, iov, shift & 8 ? 0 : 3, t);
    if (s)
        RESULT("write", err, CLB_ERR_TOOBIG, CLB_ERR_AGAIN, CLB_ERR_TIMEOUT, CLB_ERR_CLOSED,
               CLB_ERR_LOST, CLB_ERR_STATE, CLB_ERR_IO, OUT_OF_LUCK);
}

static void release_one(unsigned i)
{
    clb_packet *p = run.packet[i];
    struct clb_buf buf = {0};
    unsigned b = i % BUFS;
    int err;

    if (!p)
        return;
    clb_buf_free(&run.buf_allocator[b], &run.buf[b]);
    run.buf_allocator[b] = clb_packet_allocator(p);
    err = clb_packet_release(p, &buf);
    RESULT("release", err, CLB_ERR_STATE, CLB_ERR_CL);
    if (err == CLB_OK) {
        run.buf[b] = buf;
        CHECK(clb_packet_data(p) == NULL);
    }
}

static void look(clb_stream *s)
{
    clb_stream_stats st;
    clb_link_stats ls;
    clb_link_info info;
    struct clb_status why;

    clb_stream_get_stats(s, &st, sizeof st);
    clb_link_get_stats(run.link, &ls, sizeof ls);
    clb_link_get_info(run.link, &info, sizeof info);
    enum clb_link_state state = clb_link_get_state(run.link, &why);
    CHECK(memchr(why.text, 0, sizeof why.text) != NULL);
    if (run.link && state == CLB_LINK_DOWN && why.err != CLB_OK)
        CHECK(why.text[0] != '\0'); /* it says why */
    CHECK_LE(st.queued, 64 + 1);
    CHECK_LE(st.held, PACKETS);
}

static void call(struct input *in)
{
    enum call what = (enum call)((take8(in) & 0x7f) % CALL_COUNT);
    struct clb_stream_info info;
    clb_stream **s = NULL;
    int64_t t, limit;
    int err;

    if (what == CALL_OPEN || what == CALL_CLOSE || what == CALL_READ || what == CALL_READ_ALL ||
        what == CALL_WRITE || what == CALL_FLUSH || what == CALL_LOOK || what == CALL_INTERRUPT ||
        what == CALL_FD)
        s = &run.stream[take8(in) % STREAMS];
    switch (what) {
    case CALL_OPEN:
        if (run.link)
            open_stream(in, s);
        break;
    case CALL_CLOSE: clb_stream_close(s); break;
    case CALL_READ: read_one(*s, timeout(in)); break;
    case CALL_READ_ALL: read_all(*s); break;
    case CALL_RELEASE: release_one(take8(in) % PACKETS); break;
    case CALL_FREE: clb_packet_free(&run.packet[take8(in) % PACKETS]); break;
    case CALL_BUF:
        err = take8(in) % BUFS;
        clb_buf_free(&run.buf_allocator[err], &run.buf[err]);
        break;
    case CALL_WRITE: write_one(in, *s); break;
    case CALL_FLUSH:
        err = take8(in) & 1;
        t = timeout(in);
        limit = world_limit(t);
        err = clb_stream_flush(*s, (enum clb_flush)err, t);
        world_check_limit(limit, "clb_stream_flush");
        break;
    case CALL_NEXT:
        t = timeout(in);
        limit = world_limit(t);
        err = clb_link_next_stream(run.link, &info, sizeof info, t);
        if (run.link)
            RESULT("next_stream", err, t == 0 ? CLB_ERR_AGAIN : CLB_ERR_TIMEOUT, CLB_ERR_CLOSED,
                   CLB_ERR_LOST);
        world_check_limit(limit, "clb_link_next_stream");
        break;
    case CALL_SHUTDOWN:
        t = timeout(in);
        limit = world_limit(t);
        err = clb_link_shutdown(run.link, t);
        if (run.link)
            RESULT("shutdown", err, CLB_ERR_TIMEOUT);
        world_check_limit(limit, "clb_link_shutdown");
        break;
    case CALL_DISPATCH:
        t = timeout(in);
        limit = world_limit(t);
        err = clb_loop_dispatch(run.loop, t);
        RESULT("dispatch", err, CLB_ERR_TIMEOUT);
        world_check_limit(limit, "clb_loop_dispatch");
        break;
    case CALL_LOOK: look(*s); break;
    case CALL_INTERRUPT: clb_stream_interrupt(*s); break;
    case CALL_FD: (void)clb_stream_fd(*s); break;
    case CALL_LINK_CLOSE:
        limit = world_limit(run.lp.close_timeout_ns);
        clb_link_close(&run.link);
        world_check_limit(limit, "clb_link_close");
        break;
    case CALL_CAMERA: set_camera(in); break;
    case CALL_COUNT: break;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static bool idle(int64_t ns)
{
    bool did = true;

    faults_pause();
    if (!actor_move(&run.actor)) {
        did = run.in.left > 0 && *run.in.at < 0x80;
        if (did)
            actor_act(&run.actor, &run.in, ns);
    }
    faults_resume();
    return did;
}

static void set_up(struct input *in)
{
    static const int64_t first[] = {-1, 20 * MS, 0, 300 * MS};
    static const int64_t progress[] = {200 * MS, 0, 20 * SEC, SEC}; /* never: as the peer likes */
    static const int64_t alive[] = {50 * MS, 0, -1, 40 * MS};
    static const int64_t quiet[] = {400 * MS, 0, -1, 60 * MS};
    uint8_t k = take8(in), role = take8(in);

    run.mode = role;
    run.lp = (clb_link_params){.struct_size = sizeof run.lp};
    run.lp.connect_timeout_ns = SEC;
    run.lp.close_timeout_ns = 300 * MS;
    run.lp.first_open_ns = first[k & 3];
    run.lp.progress_timeout_ns = progress[k >> 2 & 3];
    run.lp.keepalive_ns = alive[k >> 4 & 3];
    run.lp.idle_timeout_ns = quiet[k >> 6];
    run.lp.max_payload = 4096;
    run.lp.max_stream_window = 16384;
    run.lp.max_link_window = 32768;
    run.lp.no_reset_on_close = (role & NO_RESET) != 0;
    make_allocator(in, &run.lp.allocator);
    if (!(role & LINK_ALLOCATOR))
        run.lp.allocator = (struct clb_allocator){0};
}

static int open_link(struct input *in)
{
    struct clb_status st = {0};
    int sv[2], small = 1, err;
    int64_t limit;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    if (run.mode & NARROW)
        setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    actor_init(&run.actor, sv[0], run.mode & DEVICE,
               (run.mode & GREETS ? ACTOR_GREETS : 0) | (run.mode & ANSWERS ? ACTOR_ANSWERS : 0) |
                   (run.mode & DEAF ? ACTOR_DEAF : 0));
    if (run.mode & DEVICE && run.mode & GREETS)
        actor_act(&run.actor, &(struct input){(const uint8_t[]){ACT_PING}, 1}, 0);
    run.lp.status = &st;
    run.lp.loop = run.loop;
    limit = world_limit(run.lp.connect_timeout_ns);
    faults_resume();
    err = clb_link_adopt(&run.link, sv[1], run.mode & DEVICE ? CLB_ROLE_DEVICE : CLB_ROLE_HOST,
                         &run.lp);
    faults_pause();
    world_check_limit(limit, "clb_link_adopt");
    CHECK_EQ(err == CLB_OK, run.link != NULL);
    RESULT("adopt", err, CLB_ERR_TIMEOUT, CLB_ERR_LOST, CLB_ERR_PROTO, CLB_ERR_CLOSED, OUT_OF_LUCK,
           FAULTS ? CLB_ERR_IO : CLB_OK, FAULTS ? CLB_ERR_INVAL : CLB_OK);
    if (err < 0) {
        CHECK_EQ(st.err, err);
        CHECK(st.text[0] != '\0');
        close(sv[1]);
    }
    (void)in;
    return err;
}

static void close_all(void)
{
    int64_t limit = world_limit(run.lp.close_timeout_ns);

    if (run.mode & NO_RESET)
        clb_link_close(&run.link);
    for (int i = 0; i < PACKETS; i++)
        clb_packet_free(&run.packet[i]);
    for (int i = 0; i < BUFS; i++)
        clb_buf_free(&run.buf_allocator[i], &run.buf[i]);
    for (int i = 0; i < STREAMS; i++)
        clb_stream_close(&run.stream[i]);
    clb_link_close(&run.link);
    world_check_limit(limit, "the end");
    clb_loop_destroy(&run.loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const clb_loop_params loop = {.struct_size = sizeof loop, .caller_driven = 1};
    int err;

    memset(&run, 0, sizeof run);
    run.in = (struct input){data, size};
    run.actor.fd = -1;
    world_begin(idle);
    faults_begin(&run.in);
    set_up(&run.in);
    faults_resume();
    err = clb_loop_create(&run.loop, &loop);
    faults_pause();
    RESULT("loop", err, OUT_OF_LUCK, FAULTS ? CLB_ERR_IO : CLB_OK);
    if (run.loop && open_link(&run.in) == CLB_OK) {
        while (run.in.left > 0 && !world_late()) {
            if (*run.in.at < 0x80) {
                actor_act(&run.actor, &run.in, SEC);
                continue;
            }
            faults_resume();
            call(&run.in);
            faults_pause();
        }
    }
    faults_resume();
    close_all();
    faults_pause();
    actor_close(&run.actor);
    talloc_check(&run.talloc);
    world_end();
    return 0;
}
