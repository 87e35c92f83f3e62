/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_end.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

/* ---- wrapped system calls -------------------------------------------------------------------- */

unsigned recv_calls, send_calls;
bool interrupt;
size_t recv_limit;

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

unsigned quickacks;

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    quickacks += level == IPPROTO_TCP && name == TCP_QUICKACK;
    return __real_setsockopt(fd, level, name, value, len);
}

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
    CHECK_LE(sum, (4 << 20) + CLBI_RECV_AHEAD_MAX);
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

char several[2][64];

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

void on_open(void *owner, const struct clb_status *failure)
{
    struct end *e = owner;

    CHECK(!e->closed);
    e->opened++;
    e->open_st = failure ? *failure : (struct clb_status){0};
}

void on_recv(void *owner, size_t bytes, const struct clb_status *failure)
{
    struct end *e = owner;

    CHECK(!e->closed);
    e->received++;
    e->recv_bytes = bytes;
    e->recv_st = failure ? *failure : (struct clb_status){0};
}

void on_send(void *owner, size_t bytes, const struct clb_status *failure)
{
    struct end *e = owner;

    CHECK(!e->closed);
    e->sent++;
    e->send_bytes = bytes;
    e->send_st = failure ? *failure : (struct clb_status){0};
}

void on_closed(void *owner)
{
    struct end *e = owner;

    e->closed++;
}

struct clbi_transport_env env_of(struct end *e)
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

/* Lets the loop run dry, and what is on its way arrive. */
void settle(struct mini_loop *loop)
{
    for (int i = 0; i < 3; i++)
        mini_loop_step(loop, 5);
}

void end_close(struct end *e)
{
    TCP->close(e->t);
    CHECK_EQ(e->closed, 0);
    UNTIL(e->loop, e->closed);
    for (int i = 0; i < 3; i++)
        mini_loop_step(e->loop, 0);
    CHECK_EQ(e->closed, 1);
}

/* ---- raw peers ------------------------------------------------------------------------------- */

int listen_at(int family, int backlog, char *address, size_t cap)
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
int make_pair(struct mini_loop *loop, struct end *e, bool local)
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

void reset(int fd)
{
    struct linger hard = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
}

void put(int fd, const void *data, size_t n)
{
    const uint8_t *p = data;

    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        CHECK_GT(k, 0);
        p += k;
        n -= (size_t)k;
    }
}

void fill(uint8_t *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + seed);
}

struct clbi_seg plain(void *p, size_t n)
{
    return (struct clbi_seg){.base = p, .row_bytes = n, .pitch = n, .rows = 1};
}

int start(struct end *e, const struct clbi_seg *segs, size_t n, size_t ahead)
{
    int before = e->received, rc = TCP->recv_start(e->t, segs, n, ahead, &e->recv_st);

    CHECK_EQ(e->received, before); /* never from inside the call */
    return rc;
}

/* Receives all, whether at once or later; the status' code. */
int receive(struct end *e, const struct clbi_seg *segs, size_t n, size_t ahead)
{
    int before = e->received, rc = start(e, segs, n, ahead);

    if (rc != CLBI_PENDING)
        return rc;
    UNTIL(e->loop, e->received > before);
    CHECK_EQ(e->received, before + 1);
    return e->recv_st.err;
}
