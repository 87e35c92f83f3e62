/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener and up to four clients that say what the input tells them to: the hand-shake in pieces,
 * anything else, nothing at all. Links that come up are accepted, used a little, and closed in any
 * order with the listener. Every call is back within its limit; in the end nothing is left.
 *
 * The listening socket is an AF_UNIX one behind the back of the library (--wrap): no port is used up,
 * and nothing happens later than it is told. accept4() fails when the input says so.
 *
 * The input: three bytes of set-up, then operations. Below 0x80 it is a client's: its number, and in
 * the next byte what it does (actor.h); a client that is not connected connects first.
 */
#include <clbridge/clbridge.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "actor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 4
#define LINKS 4

enum call {
    CALL_ACCEPT,   /* time-out */
    CALL_DISPATCH, /* time-out */
    CALL_CLOSE,    /* link */
    CALL_SHUTDOWN, /* link, time-out */
    CALL_NEXT,     /* link, time-out */
    CALL_READ,     /* link, time-out: opens the first stream, reads one packet, closes it */
    CALL_LOOK,     /* link */
    CALL_LISTENER_CLOSE,
    CALL_ACCEPT_FAILS, /* errno, times */
    CALL_COUNT
};

static struct run {
    struct input in;
    struct sockaddr_un address;
    socklen_t address_len;
    struct actor actor[CLIENTS];
    unsigned manners;
    clb_loop *loop;
    clb_listener *listener;
    clb_link *link[LINKS];
    int64_t connect_ns;
    int accept_errno;
    unsigned accept_fails;
} run;

/* ---- the socket that listens ----------------------------------------------------------------- */

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __real_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __real_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);

int __wrap_socket(int domain, int type, int protocol)
{
    (void)domain, (void)protocol;
    return __real_socket(AF_UNIX, type, 0);
}

int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX}; /* the system picks a name */

    (void)addr, (void)len;
    if (__real_bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) < 0)
        return -1;
    run.address_len = sizeof run.address;
    return __real_getsockname(fd, (struct sockaddr *)&run.address, &run.address_len);
}

static void loopback(struct sockaddr *addr, socklen_t *len)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4242)};

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_GE(*len, sizeof in);
    memcpy(addr, &in, sizeof in);
    *len = sizeof in;
}

int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    (void)fd;
    loopback(addr, len);
    return 0;
}

int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    int r;

    if (run.accept_fails > 0) {
        run.accept_fails--;
        errno = run.accept_errno;
        return -1;
    }
    r = __real_accept4(fd, NULL, NULL, flags);
    if (r >= 0)
        loopback(addr, len);
    return r;
}

/* ---- the clients ----------------------------------------------------------------------------- */

static void client(struct input *in, int64_t most_ns)
{
    struct actor *a = &run.actor[take8(in) / 32];
    int fd;

    if (a->fd < 0) {
        fd = __real_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK_GE(fd, 0);
        /* Refused when the listener is closed, not now when the backlog is full. */
        if (connect(fd, (struct sockaddr *)&run.address, run.address_len) < 0) {
            close(fd);
            (void)take8(in);
            return;
        }
        actor_init(a, fd, true, run.manners);
    }
    actor_act(a, in, most_ns);
}

static bool idle(int64_t ns)
{
    bool did = false;

    for (int i = 0; i < CLIENTS; i++)
        did |= actor_move(&run.actor[i]);
    if (!did && run.in.left > 0 && *run.in.at < 0x80) {
        client(&run.in, ns);
        did = true;
    }
    return did;
}

/* ---- the application ------------------------------------------------------------------------- */

static int64_t timeout(struct input *in)
{
    static const int64_t table[] = {0, 1, 3 * MS, 50 * MS, 150 * MS, 2 * SEC, 0, 0};

    return table[take8(in) % 8];
}

static void accept_one(int64_t t)
{
    clb_link *link = NULL;
    int64_t limit = world_limit(t);
    int err = clb_listener_accept(run.listener, &link, t);

    world_check_limit(limit, "clb_listener_accept");
    CHECK_EQ(err == CLB_OK, link != NULL);
    CHECK(err == CLB_OK || (t == 0 ? err == CLB_ERR_AGAIN : err == CLB_ERR_TIMEOUT));
    for (int i = 0; link && i < LINKS; i++) {
        if (!run.link[i]) {
            run.link[i] = link;
            link = NULL;
        }
    }
    clb_link_close(&link);
}

static void read_one(clb_link *link, int64_t t)
{
    clb_stream *s = NULL;
    clb_packet *p = NULL;
    clb_stream_params sp = {.struct_size = sizeof sp};
    int64_t limit = world_limit(2 * (t > 0 ? t : 1));

    sp.open_timeout_ns = t > 0 ? t : 1;
    if (clb_stream_open(&s, link, &sp) == CLB_OK) {
        if (clb_stream_read(s, &p, t) == CLB_OK)
            clb_packet_free(&p);
    }
    clb_stream_close(&s);
    world_check_limit(limit, "open and read");
}

static void look(const clb_link *link)
{
    struct clb_status why;
    clb_link_info info;

    if (clb_link_get_state(link, &why) == CLB_LINK_DOWN && link && why.err != CLB_OK)
        CHECK(why.text[0] != '\0');
    clb_link_get_info(link, &info, sizeof info);
    CHECK(!link || info.role == CLB_ROLE_DEVICE);
}

static void call(struct input *in)
{
    static const int errnos[] = {EMFILE, ECONNABORTED, ENOMEM, EINTR, EAGAIN, EPROTO, ENOBUFS};
    enum call what = (enum call)((take8(in) & 0x7f) % CALL_COUNT);
    clb_link **link = NULL;
    clb_stream_info info;
    int64_t t, limit;

    if (what >= CALL_CLOSE && what <= CALL_LOOK)
        link = &run.link[take8(in) % LINKS];
    switch (what) {
    case CALL_ACCEPT:
        t = timeout(in);
        if (run.listener)
            accept_one(t);
        break;
    case CALL_DISPATCH:
        t = timeout(in);
        limit = world_limit(t);
        clb_loop_dispatch(run.loop, t);
        world_check_limit(limit, "clb_loop_dispatch");
        break;
    case CALL_CLOSE:
        limit = world_limit(200 * MS);
        clb_link_close(link);
        world_check_limit(limit, "clb_link_close");
        break;
    case CALL_SHUTDOWN:
        t = timeout(in);
        limit = world_limit(t);
        clb_link_shutdown(*link, t);
        world_check_limit(limit, "clb_link_shutdown");
        break;
    case CALL_NEXT:
        t = timeout(in);
        limit = world_limit(t);
        clb_link_next_stream(*link, &info, sizeof info, t);
        world_check_limit(limit, "clb_link_next_stream");
        break;
    case CALL_READ:
        t = timeout(in);
        if (*link)
            read_one(*link, t);
        break;
    case CALL_LOOK: look(*link); break;
    case CALL_LISTENER_CLOSE:
        limit = world_limit(0);
        clb_listener_close(&run.listener);
        world_check_limit(limit, "clb_listener_close");
        break;
    case CALL_ACCEPT_FAILS:
        run.accept_errno = errnos[take8(in) % 7];
        run.accept_fails = take8(in) % 4;
        break;
    case CALL_COUNT: break;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void open_listener(struct input *in)
{
    const clb_loop_params loop = {.struct_size = sizeof loop, .caller_driven = 1};
    struct clb_status st = {0};
    clb_listener_params p = {.struct_size = sizeof p, .uri = "tcp://127.0.0.1:0"};
    uint8_t k = take8(in);

    CHECK_EQ(clb_loop_create(&run.loop, &loop), CLB_OK);
    p.max_links = k % 5;
    run.manners = k / 8 % 8;
    run.connect_ns = k & 0x40 ? 100 * MS : 5 * SEC;
    p.link.struct_size = sizeof p.link;
    p.link.loop = run.loop;
    p.link.status = &st;
    p.link.connect_timeout_ns = run.connect_ns;
    p.link.close_timeout_ns = 200 * MS;
    p.link.progress_timeout_ns = k & 0x80 ? 50 * MS : 0;
    p.link.max_payload = 4096;
    p.link.max_link_window = 16384;
    p.link.no_reset_on_close = take8(in) & 1;
    CHECK_EQ(clb_listener_open(&run.listener, &p), CLB_OK);
    CHECK(strcmp(clb_listener_uri(run.listener), "tcp://127.0.0.1:4242") == 0);
    clb_loop_dispatch(run.loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&run, 0, sizeof run);
    run.in = (struct input){data, size};
    for (int i = 0; i < CLIENTS; i++)
        run.actor[i].fd = -1;
    world_begin(idle);
    open_listener(&run.in);
    bool links_first = take8(&run.in) & 1;
    while (run.in.left > 0 && !world_late()) {
        if (*run.in.at < 0x80)
            client(&run.in, SEC);
        else
            call(&run.in);
    }
    for (int i = 0; links_first && i < LINKS; i++)
        clb_link_close(&run.link[i]);
    clb_listener_close(&run.listener);
    for (int i = 0; i < LINKS; i++)
        clb_link_close(&run.link[i]);
    clb_loop_destroy(&run.loop);
    for (int i = 0; i < CLIENTS; i++)
        actor_close(&run.actor[i]);
    world_end();
    return 0;
}
