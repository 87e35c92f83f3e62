/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP transport alone, on a loop of the test's own, against raw sockets. recvmsg and
 * sendmsg are wrapped: calls are counted, interrupted and cut short; getaddrinfo knows names of its own.
 */
#include "check.h"
#include "mini_loop.h"
#include "uri.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- wrapped system calls -------------------------------------------------------------------- */

static unsigned recv_calls, send_calls;
static bool interrupt;    /* every other call fails with EINTR first */
static size_t recv_limit; /* at most this many bytes per call; 0 = no limit */

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

/* What the system allows, and what keeps one link from starving the others. */
static void check_size(const struct msghdr *msg)
{
    size_t sum = 0;

    CHECK_LE(msg->msg_iovlen, 1024);
    for (size_t i = 0; i < msg->msg_iovlen; i++)
        sum += msg->msg_iov[i].iov_len;
    CHECK_LE(sum, (4 << 20) + CLBI_RECV_AHEAD);
}

static bool interrupted(void)
{
    static bool again;

    again = interrupt && !again;
    if (again)
        errno = EINTR;
    return again;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct iovec one;
    struct msghdr cut = {.msg_iov = &one, .msg_iovlen = 1};

    if (interrupted())
        return -1;
    recv_calls++;
    check_size(msg);
    if (!recv_limit)
        return __real_recvmsg(fd, msg, flags);
    one = msg->msg_iov[0];
    if (one.iov_len > recv_limit)
        one.iov_len = recv_limit;
    return __real_recvmsg(fd, &cut, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    if (interrupted())
        return -1;
    send_calls++;
    check_size(msg);
    return __real_sendmsg(fd, msg, flags);
}

/* Names of the test's own: "several" has the two addresses below, "slow" takes its time to fail. */
static char several[2][64];

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, out);
    if (strcmp(host, "slow") == 0) {
        check_sleep_ms(200);
        return EAI_AGAIN;
    }
    if (strcmp(host, "several") != 0)
        return __real_getaddrinfo(host, port, hints, out);
    for (int i = 0; i < 2; i++) {
        char numeric[64];
        snprintf(numeric, sizeof numeric, "%.*s", (int)strcspn(several[i], ":"), several[i]);
        CHECK_EQ(__real_getaddrinfo(numeric, strchr(several[i], ':') + 1, hints, out), 0);
        out = &(*out)->ai_next;
    }
    return 0;
}

/* ---- the owner of a transport ---------------------------------------------------------------- */

struct end {
    struct mini_loop *loop;
    struct clbi_transport *t;
    int opened, received, sent, closed; /* callbacks so far */
    struct clb_status open_st, recv_st, send_st;
    size_t recv_bytes, send_bytes;
};

static void on_open(void *owner, const struct clb_status *failure)
{
    struct end *e = owner;

    CHECK(!e->closed);
    e->opened++;
    e->open_st = failure ? *failure : (struct clb_status){0};
}

static void on_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    struct end *e = owner;

    CHECK(!e->closed);
    e->received++;
    e->recv_bytes = bytes;
    e->recv_st = failure ? *failure : (struct clb_status){0};
}

static void on_send(void *owner, size_t bytes, const struct clb_status *failure)
{
    struct end *e = owner;

    CHECK(!e->closed);
    e->sent++;
    e->send_bytes = bytes;
    e->send_st = failure ? *failure : (struct clb_status){0};
}

static void on_closed(void *owner)
{
    struct end *e = owner;

    e->closed++;
}

static struct clbi_transport_env env_of(struct end *e)
{
    return (struct clbi_transport_env){
        .owner = e,
        .on_open = on_open,
        .on_recv = on_recv,
        .on_send = on_send,
        .on_closed = on_closed,
        .loop = e->loop,
        .loop_ops = &mini_loop_ops,
    };
}

#define TCP (&clbi_tcp_ops)

/* Steps until cond holds, 20 s at most. */
#define UNTIL(loop, cond)                                                                          \
    do {                                                                                           \
        const int64_t until_end = check_ms() + 20000;                                              \
        while (!(cond)) {                                                                          \
            mini_loop_step(loop, 20);                                                              \
            CHECK_LE(check_ms(), until_end);                                                       \
        }                                                                                          \
    } while (0)

/* Lets the loop run dry, and what is on its way arrive. */
static void settle(struct mini_loop *loop)
{
    for (int i = 0; i < 3; i++)
        mini_loop_step(loop, 5);
}

static void end_close(struct end *e)
{
    TCP->close(e->t);
    CHECK_EQ(e->closed, 0);
    UNTIL(e->loop, e->closed);
    for (int i = 0; i < 3; i++)
        mini_loop_step(e->loop, 0);
    CHECK_EQ(e->closed, 1);
}

/* ---- raw peers ------------------------------------------------------------------------------- */

static int listen_at(int family, int backlog, char *address, size_t cap)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    if (fd < 0)
        return -1;
    rc = family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
                           : bind(fd, (struct sockaddr *)&v6, sizeof v6);
    if (rc < 0) {
        close(fd);
        return -1;
    }
    CHECK_EQ(listen(fd, backlog), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
    if (family == AF_INET)
        snprintf(address, cap, "127.0.0.1:%u", ntohs(((struct sockaddr_in *)&ss)->sin_port));
    else
        snprintf(address, cap, "[::1]:%u", ntohs(((struct sockaddr_in6 *)&ss)->sin6_port));
    return fd;
}

/* A transport and a raw socket, connected: over loopback, or by a socketpair. */
static int make_pair(struct mini_loop *loop, struct end *e, bool local)
{
    struct clbi_transport_env env;
    struct clb_status st;
    int peer;

    *e = (struct end){.loop = loop};
    env = env_of(e);
    if (local) {
        int fds[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_EQ(TCP->adopt(&e->t, &env, fds[0], &st), CLB_OK);
        peer = fds[1];
    } else {
        char address[64];
        int l = listen_at(AF_INET, 4, address, sizeof address);
        CHECK_GE(l, 0);
        CHECK_EQ(TCP->open(&e->t, &env, address, &st), CLB_OK);
        CHECK_EQ(e->opened, 0);
        peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        CHECK_GE(peer, 0);
        close(l);
        UNTIL(loop, e->opened);
        CHECK_EQ(e->open_st.err, CLB_OK);
    }
    return peer;
}

static void reset(int fd)
{
    struct linger hard = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
}

static void put(int fd, const void *data, size_t n)
{
    const uint8_t *p = data;

    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        CHECK_GT(k, 0);
        p += k;
        n -= (size_t)k;
    }
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + seed);
}

static struct clbi_seg plain(void *p, size_t n)
{
    return (struct clbi_seg){.base = p, .row_bytes = n, .pitch = n, .rows = 1};
}

static int start(struct end *e, const struct clbi_seg *segs, size_t n, size_t ahead)
{
    int before = e->received, rc = TCP->recv_start(e->t, segs, n, ahead, &e->recv_st);

    CHECK_EQ(e->received, before); /* never from inside the call */
    return rc;
}

/* Receives all, whether at once or later; the status' code. */
static int receive(struct end *e, const struct clbi_seg *segs, size_t n, size_t ahead)
{
    int before = e->received, rc = start(e, segs, n, ahead);

    if (rc != CLBI_PENDING)
        return rc;
    UNTIL(e->loop, e->received > before);
    CHECK_EQ(e->received, before + 1);
    return e->recv_st.err;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void connect_to(struct mini_loop *loop, int family, const char *name)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st;
    clb_link_info info = {0};
    char address[64], target[80];
    int l = listen_at(family, 4, address, sizeof address), peer, flags;

    if (l < 0) {
        printf("SKIPPED part: no loopback address of family %d on this machine\n", family);
        return;
    }
    snprintf(target, sizeof target, "%s", address);
    if (name)
        snprintf(target, sizeof target, "%s%s", name, strrchr(address, ':'));
    CHECK_EQ(TCP->open(&e.t, &env, target, &st), CLB_OK);
    CHECK_EQ(e.opened, 0);
    UNTIL(loop, e.opened);
    if (e.open_st.err)
        fprintf(stderr, "%s\n", e.open_st.text);
    CHECK_EQ(e.open_st.err, CLB_OK);
    peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    CHECK_GE(peer, 0);
    TCP->get_info(e.t, &info);
    if (strcmp(info.peer, address) != 0)
        fprintf(stderr, "peer %s, expected %s\n", info.peer, address);
    CHECK(strcmp(info.peer, address) == 0);
    CHECK_EQ(info.transport, CLB_TRANSPORT_TCP);
    flags = 0;
    end_close(&e);
    CHECK_EQ(recv(peer, &flags, 1, 0), 0);
    CHECK_EQ(e.opened, 1);
    close(peer);
    close(l);
}

static void connect_refused(struct mini_loop *loop)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st = {0};
    char address[64];
    int l = listen_at(AF_INET, 1, address, sizeof address), rc;

    close(l); /* a port that nobody listens to */
    rc = TCP->open(&e.t, &env, address, &st);
    if (rc == CLB_OK) {
        UNTIL(loop, e.opened);
        CHECK_EQ(e.opened, 1);
        st = e.open_st;
        CHECK_EQ(start(&e, NULL, 0, 0), CLB_ERR_STATE);
        end_close(&e);
    }
    CHECK_EQ(st.err, CLB_ERR_IO);
    CHECK_EQ(st.domain, CLB_DOMAIN_ERRNO);
    CHECK_EQ(st.native, ECONNREFUSED);
    CHECK(strstr(st.text, address) && strstr(st.text, "refused; is the camera"));
}

static void bad_addresses(struct mini_loop *loop)
{
    static const char *const bad[] = {
        "",    "127.0.0.1:0", "*",           "*:11490",  "[::1",   "::1",
        "a:b", "a/b",         "[127.0.0.1]", "[nohost]", "cam:1x", "127.0.0.1:65536",
        NULL};
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);

    for (size_t i = 0; bad[i]; i++) {
        struct clb_status st = {0};
        struct clbi_transport *t = (struct clbi_transport *)&st;
        int rc = TCP->open(&t, &env, bad[i], &st);
        if (rc != CLB_ERR_INVAL)
            fprintf(stderr, "\"%s\": %d %s\n", bad[i], rc, st.text);
        CHECK_EQ(rc, CLB_ERR_INVAL);
        CHECK_EQ(st.err, CLB_ERR_INVAL);
        CHECK(t == NULL && st.text[0] != '\0');
    }
    settle(loop);
    CHECK_EQ(e.opened, 0);
}

static void unresolvable(struct mini_loop *loop)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st;
    int64_t before = check_ms();

    CHECK_EQ(TCP->open(&e.t, &env, "nohost.invalid:1", &st), CLB_OK);
    CHECK_LE(check_ms() - before, 5000); /* the resolver does not run in here */
    for (int i = 0; i < 250 && !e.opened; i++)
        mini_loop_step(loop, 20);
    if (e.opened) {
        CHECK_EQ(e.open_st.err, CLB_ERR_NODEV);
        CHECK_EQ(e.open_st.domain, CLB_DOMAIN_RESOLVER);
        CHECK(strstr(e.open_st.text, "nohost.invalid"));
    } else {
        printf("SKIPPED part: the resolver of this machine takes more than 5 s to say no\n");
    }
    end_close(&e);
}

static void close_while_opening(struct mini_loop *loop)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st;
    char address[64];
    int l, filler[4];

    /* During the resolution. */
    CHECK_EQ(TCP->open(&e.t, &env, "localhost:1", &st), CLB_OK);
    end_close(&e);
    CHECK_EQ(e.opened, 0);

    /* The answer comes between the close and its completion: too late. */
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, "localhost:1", &st), CLB_OK);
    TCP->close(e.t);
    check_sleep_ms(50);
    UNTIL(loop, e.closed);
    settle(loop);
    CHECK_EQ(e.closed, 1);
    CHECK_EQ(e.opened, 0);

    /* During the connect: a backlog that is full does not answer. */
    l = listen_at(AF_INET, 0, address, sizeof address);
    for (int i = 0; i < 4; i++) {
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;
        CHECK_EQ(getsockname(l, (struct sockaddr *)&ss, &len), 0);
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(filler[i], (struct sockaddr *)&ss, len);
    }
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, address, &st), CLB_OK);
    settle(loop);
    CHECK_EQ(e.opened, 0);
    end_close(&e);
    CHECK_EQ(e.opened, 0);
    for (int i = 0; i < 4; i++)
        close(filler[i]);
    close(l);

    /* At once, before the loop ran. */
    l = listen_at(AF_INET, 4, address, sizeof address);
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, address, &st), CLB_OK);
    end_close(&e);
    CHECK_EQ(e.opened, 0);
    close(l);
}

/* Addresses are tried in turn: past one that refuses, and past one that is silent. */
static void several_addresses(struct mini_loop *loop)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st;
    clb_link_info info = {0};
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    int dead = listen_at(AF_INET, 1, several[0], sizeof several[0]), good, silent, filler[4], peer;

    good = listen_at(AF_INET, 4, several[1], sizeof several[1]);
    close(dead);
    CHECK_EQ(TCP->open(&e.t, &env, "several", &st), CLB_OK);
    UNTIL(loop, e.opened);
    CHECK_EQ(e.open_st.err, CLB_OK);
    TCP->get_info(e.t, &info);
    CHECK(strcmp(info.peer, several[1]) == 0);
    peer = accept4(good, NULL, NULL, SOCK_CLOEXEC);
    end_close(&e);
    close(peer);

    silent = listen_at(AF_INET, 0, several[0], sizeof several[0]);
    CHECK_EQ(getsockname(silent, (struct sockaddr *)&ss, &len), 0);
    for (int i = 0; i < 4; i++) {
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(filler[i], (struct sockaddr *)&ss, len);
    }
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, "several", &st), CLB_OK);
    for (int i = 0; i < 500 && TCP->next_deadline(e.t) == INT64_MAX; i++)
        mini_loop_step(loop, 10);
    CHECK_GT(INT64_MAX, TCP->next_deadline(e.t));
    TCP->dispatch(e.t, TCP->next_deadline(e.t) - 1);
    settle(loop);
    CHECK_EQ(e.opened, 0);
    TCP->dispatch(e.t, TCP->next_deadline(e.t));
    CHECK_EQ(e.opened, 0);
    CHECK_EQ(TCP->next_deadline(e.t), INT64_MAX);
    UNTIL(loop, e.opened);
    CHECK_EQ(e.open_st.err, CLB_OK);
    peer = accept4(good, NULL, NULL, SOCK_CLOEXEC);
    end_close(&e);
    close(peer);

    /* All fail: the last one is reported, and not from inside the call that finds out. */
    close(good);
    strcpy(several[1], "255.255.255.255:9"); /* fails inside connect() */
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, "several", &st), CLB_OK);
    for (int i = 0; i < 500 && TCP->next_deadline(e.t) == INT64_MAX; i++)
        mini_loop_step(loop, 10);
    TCP->dispatch(e.t, TCP->next_deadline(e.t));
    CHECK_EQ(e.opened, 0);
    UNTIL(loop, e.opened);
    CHECK_EQ(e.open_st.err, CLB_ERR_IO);
    end_close(&e);
    for (int i = 0; i < 4; i++)
        close(filler[i]);
    close(silent);
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, "several", &st), CLB_OK);
    UNTIL(loop, e.opened);
    CHECK_EQ(e.open_st.err, CLB_ERR_IO);
    CHECK(strstr(e.open_st.text, several[1]));
    end_close(&e);
    CHECK_EQ(e.opened, 1);
}

/* The resolver cannot be stopped: nobody waits for it, and what it brings is thrown away. */
static void slow_resolver(struct mini_loop *loop)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st;

    CHECK_EQ(TCP->open(&e.t, &env, "slow", &st), CLB_OK);
    CHECK_EQ(e.opened, 0);
    UNTIL(loop, e.opened);
    CHECK_EQ(e.open_st.err, CLB_ERR_NODEV);
    CHECK_EQ(e.open_st.native, EAI_AGAIN);
    end_close(&e);

    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->open(&e.t, &env, "slow", &st), CLB_OK);
    end_close(&e);
    check_sleep_ms(250);
    settle(loop);
    CHECK_EQ(e.opened, 0);
}

/* ---- receiving ------------------------------------------------------------------------------- */

#define ROWS 1620
#define ROW 97
#define PITCH 128

static void strided_scatter(struct mini_loop *loop, bool local)
{
    const size_t total = ROWS * ROW + 11 + 5;
    static uint8_t wire[ROWS * ROW + 16], mem[ROWS * PITCH + 64], head[11], tail[5];
    struct clbi_seg segs[] = {
        plain(head, 11),
        {.base = NULL, .row_bytes = 10, .pitch = 10, .rows = 0},
        {.base = NULL, .row_bytes = 0, .pitch = 0, .rows = 3},
        {.base = mem + 32, .row_bytes = ROW, .pitch = PITCH, .rows = ROWS},
        plain(tail, 5),
    };
    struct end e;
    int peer = make_pair(loop, &e, local), flags;
    uint64_t rx, tx;

    fill(wire, total, 3);
    memset(mem, 0xee, sizeof mem);
    flags = fcntl(peer, F_GETFL);
    fcntl(peer, F_SETFL, flags | O_NONBLOCK);
    CHECK_EQ(start(&e, segs, 5, 0), CLBI_PENDING);
    /* In pieces of odd sizes, which end inside rows. */
    for (size_t off = 0; off < total;) {
        size_t n = 1 + off % 30011;
        ssize_t k = send(peer, wire + off, n < total - off ? n : total - off, MSG_NOSIGNAL);
        if (k > 0)
            off += (size_t)k;
        mini_loop_step(loop, 0);
    }
    UNTIL(loop, e.received);
    CHECK_EQ(e.received, 1);
    CHECK_EQ(e.recv_st.err, CLB_OK);
    CHECK_EQ(e.recv_bytes, total);
    CHECK(memcmp(head, wire, 11) == 0);
    for (size_t r = 0; r < ROWS; r++) {
        const uint8_t *row = mem + 32 + r * PITCH;
        CHECK(memcmp(row, wire + 11 + r * ROW, ROW) == 0);
        for (size_t i = ROW; i < PITCH; i++)
            CHECK_EQ(row[i], 0xee);
    }
    for (size_t i = 0; i < 32; i++)
        CHECK_EQ(mem[i], 0xee);
    CHECK(memcmp(tail, wire + 11 + ROWS * ROW, 5) == 0);
    TCP->progress(e.t, &rx, &tx);
    CHECK_EQ(rx, total);
    CHECK_EQ(tx, 0);

    /* All there already: as many calls as the batches need, two of 1024 rows. */
    if (!local) {
        memset(mem, 0, sizeof mem);
        put(peer, wire, 80000);
        check_sleep_ms(20);
        recv_calls = 0;
        segs[3].rows = (80000 - 16) / ROW;
        size_t less = 16 + segs[3].rows * ROW;
        CHECK_EQ(receive(&e, segs, 5, 0), CLB_OK);
        CHECK_LE(recv_calls, 2);
        CHECK(memcmp(mem + 32 + PITCH, wire + 11 + ROW, ROW) == 0);
        CHECK_EQ(receive(&e, &(struct clbi_seg){mem, 1, 1, 80000 - less}, 1, 0), CLB_OK);
    }
    end_close(&e);
    close(peer);
}

/* Every cut inside the segments, the bytes beyond included, with interrupted calls. */
static void cuts(struct mini_loop *loop)
{
    uint8_t wire[64], mem[64], next[12];
    struct clbi_seg segs[] = {{.base = mem, .row_bytes = 7, .pitch = 9, .rows = 3},
                              plain(mem + 40, 3)};
    struct end e;
    int peer = make_pair(loop, &e, false);

    interrupt = true;
    for (size_t cut = 0; cut <= 36; cut++)
        for (recv_limit = 0; recv_limit < 4; recv_limit++) {
            struct clbi_seg rest = plain(next, 12);
            int before = e.received;

            fill(wire, 36, (unsigned)cut);
            memset(mem, 0xee, sizeof mem);
            put(peer, wire, cut);
            settle(loop);
            if (start(&e, segs, 2, 12) == CLBI_PENDING) {
                for (int i = 0; i < 40; i++)
                    mini_loop_step(loop, 0);
                CHECK_EQ(e.received, before + (cut >= 24));
                put(peer, wire + cut, 36 - cut);
                UNTIL(loop, e.received > before);
                CHECK_EQ(e.recv_st.err, CLB_OK);
                CHECK_EQ(e.recv_bytes, 24);
            } else {
                put(peer, wire + cut, 36 - cut);
            }
            for (size_t r = 0; r < 3; r++) {
                CHECK(memcmp(mem + r * 9, wire + r * 7, 7) == 0);
                CHECK_EQ(mem[r * 9 + 7], 0xee);
                CHECK_EQ(mem[r * 9 + 8], 0xee);
            }
            CHECK(memcmp(mem + 40, wire + 21, 3) == 0);
            CHECK_EQ(mem[43], 0xee);
            CHECK_EQ(receive(&e, &rest, 1, 0), CLB_OK);
            CHECK(memcmp(next, wire + 24, 12) == 0);
        }
    recv_limit = 0;
    interrupt = false;
    end_close(&e);
    close(peer);
}

static void byte_at_a_time(struct mini_loop *loop, bool local)
{
    uint8_t wire[200], mem[200];
    struct clbi_seg segs[] = {plain(mem, 84),
                              {.base = mem + 84, .row_bytes = 29, .pitch = 29, .rows = 4}};
    struct end e;
    int peer = make_pair(loop, &e, local);

    fill(wire, sizeof wire, 9);
    CHECK_EQ(start(&e, segs, 2, 0), CLBI_PENDING);
    for (size_t i = 0; i < sizeof wire; i++) {
        uint64_t rx, tx;
        CHECK_EQ(e.received, 0);
        put(peer, wire + i, 1);
        do {
            mini_loop_step(loop, 20);
            TCP->progress(e.t, &rx, &tx);
        } while (rx <= i);
    }
    CHECK_EQ(e.received, 1);
    CHECK(memcmp(mem, wire, sizeof wire) == 0);
    end_close(&e);
    close(peer);
}

/* Header and payload as a link asks for them: the header of the next packet comes with the payload
 * of this one, and an empty socket is not asked again. */
static void ahead_saves_calls(struct mini_loop *loop)
{
    enum { FRAMES = 20, SIZE = 3000 };
    uint8_t head[84], frame[84 + SIZE], mem[SIZE];
    struct clbi_seg h = plain(head, 84), p = plain(mem, SIZE);
    struct end e;
    int peer = make_pair(loop, &e, false);

    /* One after the other: nothing is ahead. */
    CHECK_EQ(start(&e, &h, 1, 0), CLBI_PENDING);
    settle(loop);
    recv_calls = loop->rewatches = 0;
    for (unsigned i = 0; i < FRAMES; i++) {
        int before = e.received;
        fill(frame, sizeof frame, i);
        put(peer, frame, sizeof frame);
        UNTIL(loop, e.received > before);
        CHECK(memcmp(head, frame, 84) == 0);
        CHECK_EQ(receive(&e, &p, 1, 84), CLB_OK);
        CHECK(memcmp(mem, frame + 84, SIZE) == 0);
        /* The payload came short of payload and header: drained, so no call here. */
        CHECK_EQ(start(&e, &h, 1, 0), CLBI_PENDING);
    }
    CHECK_EQ(recv_calls, 2 * FRAMES);
    CHECK_EQ(loop->rewatches, 0);

    /* All at once: one call per frame, and the last header's one. */
    for (unsigned i = 0; i < FRAMES; i++) {
        fill(frame, sizeof frame, i);
        put(peer, frame, sizeof frame);
    }
    check_sleep_ms(20);
    recv_calls = 0;
    UNTIL(loop, e.received > FRAMES);
    for (unsigned i = 0; i < FRAMES; i++) {
        fill(frame, sizeof frame, i);
        if (i > 0)
            CHECK_EQ(receive(&e, &h, 1, 0), CLB_OK);
        CHECK(memcmp(head, frame, 84) == 0);
        CHECK_EQ(receive(&e, &p, 1, 84), CLB_OK);
        CHECK(memcmp(mem, frame + 84, SIZE) == 0);
    }
    CHECK_EQ(recv_calls, FRAMES + 1);
    end_close(&e);
    close(peer);
}

static uint8_t chain_mem[16];

static void chain_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    static struct clbi_seg seg;
    struct end *e = owner;

    seg = plain(chain_mem, sizeof chain_mem);
    do
        on_recv(e, bytes, failure);
    while (start(e, &seg, 1, 0) == CLBI_DONE);
}

/* One wake-up may not read for ever, however much is there: others share the loop. */
static void bounded_work(struct mini_loop *loop)
{
    enum { COUNT = 1000, BIG = 24 << 20 };
    struct clbi_seg seg = plain(chain_mem, sizeof chain_mem);
    uint8_t *data = calloc(1, BIG);
    struct clbi_transport_env env;
    struct clb_status st;
    struct end e = {.loop = loop};
    uint64_t rx, before, tx;
    int fds[2];

    env = env_of(&e);
    env.on_recv = chain_recv;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    CHECK_EQ(TCP->adopt(&e.t, &env, fds[0], &st), CLB_OK);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    put(fds[1], data, COUNT * sizeof chain_mem);
    recv_calls = 0;
    for (int i = 0; i < 30 && e.received < COUNT; i++) {
        unsigned calls = recv_calls;
        mini_loop_step(loop, 20);
        CHECK_LE(recv_calls - calls, 64);
    }
    CHECK_EQ(e.received, COUNT);
    end_close(&e);
    close(fds[1]);

    /* Nor move without limit, where the socket holds that much. */
    int peer = make_pair(loop, &e, false);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    seg = plain(data, BIG);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    for (size_t off = 0; !e.received;) {
        ssize_t k = off < BIG ? send(peer, data, BIG - off, MSG_NOSIGNAL) : 0;
        if (k > 0)
            off += (size_t)k;
        TCP->progress(e.t, &before, &tx);
        mini_loop_step(loop, 1);
        TCP->progress(e.t, &rx, &tx);
        CHECK_LE(rx - before, 8 << 20);
    }
    CHECK_EQ(e.recv_bytes, BIG);
    end_close(&e);
    close(peer);
    free(data);
}

/* The stream ends, or is reset, after every number of bytes. */
static void ends_at_every_offset(struct mini_loop *loop, bool hard, bool local)
{
    enum { N = 100 };
    uint8_t wire[N], mem[N];
    struct clbi_seg segs[] = {plain(mem, 84),
                              {.base = mem + 84, .row_bytes = 4, .pitch = 4, .rows = 4}};

    fill(wire, N, 5);
    for (size_t off = 0; off <= N; off++)
        for (int early = 0; early < 2; early++) {
            struct end e;
            int peer = make_pair(loop, &e, local), rc = 1;

            memset(mem, 0, N);
            if (early)
                CHECK_EQ(start(&e, segs, 2, 84), CLBI_PENDING);
            put(peer, wire, off);
            /* A reset may throw away what was not read yet: let it be read. */
            if (early)
                mini_loop_step(loop, 1);
            if (hard)
                reset(peer);
            else
                close(peer);
            if (early)
                UNTIL(loop, e.received);
            else
                rc = receive(&e, segs, 2, 84);
            if (early)
                rc = e.recv_st.err;
            if (off == N) {
                CHECK_EQ(rc, CLB_OK);
                rc = receive(&e, segs, 1, 0);
                CHECK_EQ(e.recv_bytes == 0 || e.recv_bytes == N, 1);
            } else if (early) {
                CHECK_EQ(e.recv_bytes, off);
            }
            CHECK_EQ(rc, hard ? CLB_ERR_LOST : CLB_ERR_CLOSED);
            CHECK_EQ(e.recv_st.domain, hard ? CLB_DOMAIN_ERRNO : CLB_DOMAIN_NONE);
            CHECK_EQ(e.recv_st.native, hard ? ECONNRESET : 0);
            CHECK(strstr(e.recv_st.text, local ? "unix" : "127.0.0.1:"));
            if (!hard || early)
                CHECK(memcmp(mem, wire, off) == 0);
            /* It stays that way. */
            CHECK_EQ(receive(&e, segs, 2, 0), hard ? CLB_ERR_LOST : CLB_ERR_CLOSED);
            end_close(&e);
        }
}

/* While nobody receives, an end must neither spin the loop nor be missed afterwards. */
static void end_while_idle(struct mini_loop *loop, bool hard, bool local)
{
    uint8_t mem[84];
    struct clbi_seg seg = plain(mem, 84);
    struct end e;
    int peer = make_pair(loop, &e, local);

    /* A first receive, so that the socket is watched and known to be empty. */
    CHECK_EQ(start(&e, &seg, 1, 84), CLBI_PENDING);
    put(peer, mem, 84);
    UNTIL(loop, e.received);
    if (hard)
        reset(peer);
    else
        close(peer);
    loop->events = 0;
    for (int i = 0; i < 20; i++)
        mini_loop_step(loop, 2);
    CHECK_LE(loop->events, 3);
    CHECK_EQ(receive(&e, &seg, 1, 84), hard ? CLB_ERR_LOST : CLB_ERR_CLOSED);
    CHECK_LE(e.received, 2);
    end_close(&e);
}

/* Bytes that nobody wants yet must not spin the loop either, and are there later. */
static void bytes_while_idle(struct mini_loop *loop)
{
    uint8_t mem[84], wire[168];
    struct clbi_seg seg = plain(mem, 84);
    struct end e;
    int peer = make_pair(loop, &e, false);

    fill(wire, 168, 8);
    CHECK_EQ(start(&e, &seg, 1, 84), CLBI_PENDING);
    put(peer, wire, 84);
    UNTIL(loop, e.received); /* and drained, as nothing was ahead */
    put(peer, wire + 84, 84);
    loop->events = 0;
    for (int i = 0; i < 20; i++)
        mini_loop_step(loop, 2);
    CHECK_LE(loop->events, 2);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_DONE);
    CHECK(memcmp(mem, wire + 84, 84) == 0);
    end_close(&e);
    close(peer);
}

/* ---- sending --------------------------------------------------------------------------------- */

static int send_all(struct end *e, const struct iovec *iov, size_t n)
{
    int before = e->sent, rc = TCP->send(e->t, iov, n, &e->send_st);

    CHECK_EQ(e->sent, before);
    if (rc != CLBI_PENDING)
        return rc;
    UNTIL(e->loop, e->sent > before);
    return e->send_st.err;
}

/* More pieces than one call takes, to a reader that takes its time; meanwhile a receive goes on. */
static void gather_send(struct mini_loop *loop, bool local)
{
    enum { PIECES = 3000, PIECE = 3001, TOTAL = PIECES * PIECE };
    uint8_t *data = malloc(TOTAL), *got = malloc(TOTAL), small[3] = {0};
    struct iovec *iov = calloc(PIECES + 1, sizeof *iov);
    struct clbi_seg seg = plain(small, 3);
    struct end e;
    int peer = make_pair(loop, &e, local);
    size_t off = 0;
    uint64_t rx, tx;

    fill(data, TOTAL, 4);
    for (size_t i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){.iov_base = data + i * PIECE, .iov_len = PIECE};
    interrupt = true;
    CHECK_EQ(TCP->send(e.t, iov, PIECES + 1, &e.send_st), CLBI_PENDING);
    CHECK_EQ(TCP->send(e.t, iov, 1, NULL), CLB_ERR_STATE);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    loop->events = 0;
    for (int i = 0; i < 5; i++)
        mini_loop_step(loop, 2);
    CHECK_EQ(e.sent, 0);
    CHECK_LE(loop->events, 5);
    put(peer, "abc", 3);
    UNTIL(loop, e.received);
    CHECK(memcmp(small, "abc", 3) == 0);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    while (off < TOTAL) {
        ssize_t k = recv(peer, got + off, 70001, 0);
        if (k > 0)
            off += (size_t)k;
        mini_loop_step(loop, 0);
    }
    UNTIL(loop, e.sent);
    interrupt = false;
    CHECK_EQ(e.sent, 1);
    CHECK_EQ(e.send_st.err, CLB_OK);
    CHECK_EQ(e.send_bytes, TOTAL);
    CHECK(memcmp(got, data, TOTAL) == 0);
    TCP->progress(e.t, &rx, &tx);
    CHECK_EQ(tx, TOTAL);

    /* A small one is one call and done; EPOLLOUT is off again. */
    send_calls = 0;
    CHECK_EQ(TCP->send(e.t, iov, 2, &e.send_st), CLBI_DONE);
    CHECK_EQ(send_calls, 1);
    loop->events = 0;
    settle(loop);
    CHECK_EQ(loop->events, 0);
    CHECK_EQ(TCP->send(e.t, iov, 0, &e.send_st), CLBI_DONE);
    end_close(&e);
    close(peer);
    free(data);
    free(got);
    free(iov);
}

static volatile sig_atomic_t sigpipes;

static void count_sigpipe(int sig)
{
    (void)sig;
    sigpipes++;
}

/* a peer that vanished is an error code, not a signal, and nobody's handler is touched. */
static void a10_vanished_peer(struct mini_loop *loop, bool local)
{
    struct sigaction mine = {.sa_handler = count_sigpipe}, old, now;
    uint8_t data[100] = {0};
    struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
    struct end e;
    int peer = make_pair(loop, &e, local), rc = CLB_OK;

    sigaction(SIGPIPE, &mine, &old);
    sigpipes = 0;
    reset(peer);
    check_sleep_ms(5);
    for (int i = 0; i < 4; i++)
        rc = send_all(&e, &iov, 1);
    CHECK_EQ(rc, CLB_ERR_LOST);
    CHECK_EQ(e.send_st.domain, CLB_DOMAIN_ERRNO);
    CHECK_EQ(e.send_st.native, EPIPE);
    /* The reset was told to the sender; the receiver must not take it for an orderly end. */
    if (!local)
        CHECK_EQ(receive(&e, &(struct clbi_seg){data, 1, 1, 1}, 1, 0), CLB_ERR_LOST);
    end_close(&e);
    CHECK_EQ(sigpipes, 0);
    sigaction(SIGPIPE, &old, &now);
    CHECK(now.sa_handler == count_sigpipe);
}

/* A send that waits for room ends with the peer. */
static void send_to_vanishing_peer(struct mini_loop *loop)
{
    enum { BIG = 16 << 20 };
    uint8_t *data = calloc(1, BIG);
    struct iovec iov = {.iov_base = data, .iov_len = BIG};
    struct end e;
    int peer = make_pair(loop, &e, false);

    CHECK_EQ(TCP->send(e.t, &iov, 1, &e.send_st), CLBI_PENDING);
    settle(loop);
    reset(peer);
    UNTIL(loop, e.sent);
    CHECK_EQ(e.send_st.err, CLB_ERR_LOST);
    CHECK_LE(e.send_bytes, BIG - 1);
    end_close(&e);
    CHECK_EQ(e.sent, 1);
    free(data);
}

/* ---- cancelling and closing ------------------------------------------------------------------ */

static void cancel(struct mini_loop *loop)
{
    uint8_t mem[100];
    struct clbi_seg seg = plain(mem, 100);
    struct end e;
    int peer = make_pair(loop, &e, false);

    TCP->recv_cancel(e.t); /* nothing to cancel */
    settle(loop);
    CHECK_EQ(e.received, 0);
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    put(peer, "0123456789", 10);
    settle(loop);
    TCP->recv_cancel(e.t);
    TCP->recv_cancel(e.t);
    CHECK_EQ(e.received, 0);
    CHECK_EQ(start(&e, &seg, 1, 0), CLB_ERR_STATE);
    put(peer, "abc", 3); /* arrives after the cancel: not touched */
    UNTIL(loop, e.received);
    CHECK_EQ(e.recv_st.err, CLB_ERR_CANCELED);
    CHECK_EQ(e.recv_bytes, 10);
    settle(loop);
    CHECK_EQ(e.received, 1);
    seg.row_bytes = 3;
    CHECK_EQ(receive(&e, &seg, 1, 0), CLB_OK);
    CHECK(memcmp(mem, "abc", 3) == 0);

    /* Cancel and close in one breath: one completion. */
    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    e.received = 0;
    TCP->recv_cancel(e.t);
    end_close(&e);
    CHECK_EQ(e.received, 1);
    CHECK_EQ(e.recv_st.err, CLB_ERR_CANCELED);
    close(peer);
}

static void close_with_operations(struct mini_loop *loop, bool local)
{
    enum { BIG = 16 << 20 };
    uint8_t *data = calloc(1, BIG), mem[8];
    struct iovec iov = {.iov_base = data, .iov_len = BIG};
    struct clbi_seg seg = plain(mem, 8);
    struct end e;
    int peer = make_pair(loop, &e, local);

    CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
    CHECK_EQ(TCP->send(e.t, &iov, 1, &e.send_st), CLBI_PENDING);
    put(peer, "xy", 2);
    settle(loop);
    end_close(&e);
    CHECK_EQ(e.received, 1);
    CHECK_EQ(e.recv_st.err, CLB_ERR_CANCELED);
    CHECK_EQ(e.recv_bytes, 2);
    CHECK_EQ(e.sent, 1);
    CHECK_EQ(e.send_st.err, CLB_ERR_CANCELED);
    CHECK_LE(e.send_bytes, BIG - 1);
    close(peer);
    free(data);
}

/* Closing from inside a callback. */
static void close_in_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    struct end *e = owner;

    on_recv(e, bytes, failure);
    if (e->received == 1)
        TCP->close(e->t);
}

static void close_in_callback(struct mini_loop *loop)
{
    uint8_t mem[8];
    struct clbi_seg seg = plain(mem, 8);
    struct clbi_transport_env env;
    struct clb_status st;
    int fds[2];

    for (int canceled = 0; canceled < 2; canceled++) {
        struct end e = {.loop = loop};
        env = env_of(&e);
        env.on_recv = close_in_recv;
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        CHECK_EQ(TCP->adopt(&e.t, &env, fds[0], &st), CLB_OK);
        CHECK_EQ(start(&e, &seg, 1, 0), CLBI_PENDING);
        if (canceled)
            TCP->recv_cancel(e.t);
        else
            put(fds[1], "01234567", 8);
        UNTIL(loop, e.closed);
        CHECK_EQ(e.received, 1);
        settle(loop);
        CHECK_EQ(e.closed, 1);
        close(fds[1]);
    }
}

/* The last words arrive although the peer's own bytes were never read. */
static void last_words(struct mini_loop *loop, bool local)
{
    static uint8_t junk[100000];
    uint8_t got[8];
    struct iovec iov = {.iov_base = (void *)"goodbye!", .iov_len = 8};
    struct end e;
    int peer = make_pair(loop, &e, local);

    fcntl(peer, F_SETFL, O_NONBLOCK);
    (void)!send(peer, junk, local ? 30000 : sizeof junk, MSG_NOSIGNAL);
    check_sleep_ms(20);
    CHECK_EQ(send_all(&e, &iov, 1), CLB_OK);
    end_close(&e);
    check_sleep_ms(20);
    CHECK_EQ(recv(peer, got, 8, 0), 8);
    CHECK(memcmp(got, "goodbye!", 8) == 0);
    CHECK_EQ(recv(peer, got, 8, 0), 0); /* and an orderly end, no reset */
    close(peer);
}

/* ---- adopting -------------------------------------------------------------------------------- */

static void adopt_checks(struct mini_loop *loop)
{
    struct end e = {.loop = loop};
    struct clbi_transport_env env = env_of(&e);
    struct clb_status st;
    clb_link_info info = {0};
    char address[64];
    int fds[2], bad[5], on = 0;
    socklen_t len = sizeof on;

    bad[0] = -1;
    CHECK_EQ(pipe(fds), 0);
    bad[1] = fds[0];
    bad[2] = socket(AF_INET, SOCK_STREAM, 0); /* not connected */
    bad[3] = socket(AF_INET, SOCK_DGRAM, 0);
    bad[4] = listen_at(AF_INET, 1, address, sizeof address);
    for (int i = 0; i < 5; i++) {
        memset(&st, 0, sizeof st);
        CHECK_EQ(TCP->adopt(&e.t, &env, bad[i], &st), CLB_ERR_INVAL);
        CHECK(e.t == NULL && st.err == CLB_ERR_INVAL && st.text[0]);
        if (i > 0) {
            CHECK_EQ(fcntl(bad[i], F_GETFL) & O_NONBLOCK, 0); /* left as it was */
            close(bad[i]);
        }
    }
    close(fds[1]);

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK(clbi_transport_for_fd(fds[0]) == TCP);
    CHECK(clbi_transport_for_fd(0x7fff0000) == NULL);
    CHECK_EQ(TCP->adopt(&e.t, &env, fds[0], &st), CLB_OK);
    CHECK(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    TCP->get_info(e.t, &info);
    CHECK(strcmp(info.peer, "unix") == 0);
    CHECK_EQ(info.transport, CLB_TRANSPORT_LOCAL);
    end_close(&e);
    CHECK_EQ(e.opened, 0);
    close(fds[1]);

    /* TCP: no delay for small writes. */
    int l = listen_at(AF_INET, 1, address, sizeof address), peer;
    struct sockaddr_storage ss;
    len = sizeof ss;
    CHECK_EQ(getsockname(l, (struct sockaddr *)&ss, &len), 0);
    peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(peer, (struct sockaddr *)&ss, len), 0);
    fds[0] = accept(l, NULL, NULL);
    e = (struct end){.loop = loop};
    CHECK_EQ(TCP->adopt(&e.t, &env, fds[0], &st), CLB_OK);
    len = sizeof on;
    CHECK_EQ(getsockopt(fds[0], IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, &len), 0);
    CHECK_EQ(on != 0, 1);
    end_close(&e);
    close(peer);
    close(l);
}

static void registry(void)
{
    struct clbi_transport_env env = {0};
    struct clbi_transport *t;
    struct clb_status st = {0};

    CHECK(clbi_transport_find("tcp://x", 3) == TCP);
    CHECK(clbi_transport_find("TCP", 3) == TCP);
    CHECK(clbi_transport_find("usb", 3) == &clbi_usb_ops);
    CHECK(clbi_transport_find("local", 5) == &clbi_local_ops);
    CHECK(clbi_transport_find("tc", 2) == NULL);
    CHECK(clbi_transport_find("tcpx", 4) == NULL);
    CHECK(clbi_transport_find("", 0) == NULL);
    CHECK_EQ(clbi_local_ops.open(&t, &env, "/x", &st), CLB_ERR_NOSYS);
    CHECK_EQ(st.err, CLB_ERR_NOSYS);
    CHECK(strstr(st.text, "local://"));
}

int main(void)
{
    struct mini_loop loop;
    int fds, threads;

    check_watchdog(200);
    CHECK_EQ(mini_loop_init(&loop), 0);
    fds = check_fds();
    threads = check_threads();

    registry();
    connect_to(&loop, AF_INET, NULL);
    connect_to(&loop, AF_INET6, NULL);
    connect_to(&loop, AF_INET, "localhost");
    connect_refused(&loop);
    bad_addresses(&loop);
    unresolvable(&loop);
    close_while_opening(&loop);
    several_addresses(&loop);
    slow_resolver(&loop);
    adopt_checks(&loop);
    cuts(&loop);
    ahead_saves_calls(&loop);
    bounded_work(&loop);
    bytes_while_idle(&loop);
    send_to_vanishing_peer(&loop);
    cancel(&loop);
    close_in_callback(&loop);
    for (int local = 0; local < 2; local++) {
        strided_scatter(&loop, local);
        byte_at_a_time(&loop, local);
        gather_send(&loop, local);
        a10_vanished_peer(&loop, local);
        close_with_operations(&loop, local);
        last_words(&loop, local);
        ends_at_every_offset(&loop, false, local);
        end_while_idle(&loop, false, local);
    }
    ends_at_every_offset(&loop, true, false);
    end_while_idle(&loop, true, false);

    check_back_to(fds, threads);
    mini_loop_fini(&loop);
    return 0;
}
