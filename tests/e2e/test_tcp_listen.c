/* SPDX-License-Identifier: Apache-2.0 */
/* The listening half of the TCP transport, on a loop of the test's own. */
#include "check.h"
#include "mini_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP (&clbi_tcp_ops)

struct owner {
    struct clbi_acceptor *a;
    int accepted, fds[64], log_lines;
    char peer[64];
    bool stop_inside, close_inside;
};

static void on_accept(void *priv, int fd, const char *peer)
{
    struct owner *o = priv;

    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_LE(o->accepted, 63);
    o->fds[o->accepted++] = fd;
    snprintf(o->peer, sizeof o->peer, "%s", peer);
    if (o->stop_inside)
        TCP->accept_stop(o->a);
    if (o->close_inside)
        TCP->accept_close(o->a);
}

static void on_log(void *priv, enum clb_log_level level, const char *msg)
{
    struct owner *o = priv;

    (void)level;
    (void)msg;
    o->log_lines++;
}

static int listen_at(struct mini_loop *loop, struct owner *o, const char *address, char *uri,
                     struct clb_status *st)
{
    struct clbi_acceptor_env env = {
        .owner = o,
        .on_accept = on_accept,
        .loop = loop,
        .loop_ops = &mini_loop_ops,
        .log = {.cb = on_log, .priv = o},
    };

    memset(st, 0, sizeof *st);
    return TCP->listen(&o->a, &env, address, INT64_MAX, uri, 128, st);
}

static int dial(int family, unsigned port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)port),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                family == AF_INET ? sizeof v4 : sizeof v6) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static unsigned port_of(const char *uri)
{
    return (unsigned)strtoul(strrchr(uri, ':') + 1, NULL, 10);
}

static void wait_for(struct mini_loop *loop, const int *count, int want)
{
    const int64_t end = check_ms() + 20000;

    while (*count < want) {
        mini_loop_step(loop, 20);
        CHECK_LE(check_ms(), end);
    }
    mini_loop_step(loop, 1);
    CHECK_EQ(*count, want);
}

static void drop_all(struct owner *o)
{
    while (o->accepted > 0)
        close(o->fds[--o->accepted]);
}

static void serve(struct mini_loop *loop, const char *address, const char *prefix, int family)
{
    struct owner o = {0};
    struct clb_status st;
    char uri[128], text[64];
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    int fd, rc = listen_at(loop, &o, address, uri, &st);

    if (rc < 0 && family == AF_INET6) {
        printf("SKIPPED part: %s: %s\n", address, st.text);
        return;
    }
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", address, st.text);
    CHECK_EQ(rc, CLB_OK);
    if (strncmp(uri, prefix, strlen(prefix)) != 0)
        fprintf(stderr, "%s gave %s, expected %s...\n", address, uri, prefix);
    CHECK(strncmp(uri, prefix, strlen(prefix)) == 0);
    CHECK_GT(port_of(uri), 0);
    CHECK_EQ(TCP->accept_start(o.a), CLB_OK);
    fd = dial(family, port_of(uri));
    CHECK_GE(fd, 0);
    wait_for(loop, &o.accepted, 1);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
    if (family == AF_INET)
        snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(((struct sockaddr_in *)&ss)->sin_port));
    else
        snprintf(text, sizeof text, "[::1]:%u", ntohs(((struct sockaddr_in6 *)&ss)->sin6_port));
    if (strcmp(o.peer, text) != 0)
        fprintf(stderr, "peer %s, expected %s\n", o.peer, text);
    CHECK(strcmp(o.peer, text) == 0);
    close(fd);
    drop_all(&o);

    /* Stopped, a connection waits; started again, it comes. */
    TCP->accept_stop(o.a);
    fd = dial(family, port_of(uri));
    CHECK_GE(fd, 0);
    for (int i = 0; i < 3; i++)
        mini_loop_step(loop, 5);
    CHECK_EQ(o.accepted, 0);
    CHECK_EQ(TCP->accept_start(o.a), CLB_OK);
    wait_for(loop, &o.accepted, 1);
    close(fd);
    drop_all(&o);
    TCP->accept_close(o.a);
    CHECK_EQ(dial(family, port_of(uri)), -1);
}

static void refused(struct mini_loop *loop)
{
    struct owner o = {0}, second = {0};
    struct clb_status st;
    char uri[128], other[128];

    CHECK_EQ(listen_at(loop, &o, "127.0.0.1:0", uri, &st), CLB_OK);
    CHECK_EQ(listen_at(loop, &second, uri + 6, other, &st), CLB_ERR_BUSY);
    CHECK(second.a == NULL);
    CHECK_EQ(st.err, CLB_ERR_BUSY);
    CHECK_EQ(st.native, EADDRINUSE);
    CHECK(strstr(st.text, uri + 6) && strstr(st.text, "choose another port"));
    CHECK_EQ(second.log_lines, 1);
    /* At once again, although a connection of the old one was closed by us and lingers. */
    CHECK_EQ(TCP->accept_start(o.a), CLB_OK);
    int fd = dial(AF_INET, port_of(uri));
    CHECK_GE(fd, 0);
    wait_for(loop, &o.accepted, 1);
    drop_all(&o);
    close(fd);
    TCP->accept_close(o.a);
    CHECK_EQ(listen_at(loop, &o, uri + 6, other, &st), CLB_OK);
    CHECK(strcmp(uri, other) == 0);
    TCP->accept_close(o.a);

    CHECK_EQ(listen_at(loop, &o, "192.0.2.1:0", uri, &st), CLB_ERR_NODEV);
    CHECK_EQ(listen_at(loop, &o, "127.0.0.1:65536", uri, &st), CLB_ERR_INVAL);
    CHECK_EQ(listen_at(loop, &o, ":80", uri, &st), CLB_ERR_INVAL);
    CHECK_EQ(listen_at(loop, &o, "[nohost]:80", uri, &st), CLB_ERR_INVAL);

    /* The deadline holds for names: one in the past may not wait at all. */
    struct clbi_acceptor_env env = {.owner = &o, .loop = loop, .loop_ops = &mini_loop_ops};
    int64_t before = check_ms();
    int rc = TCP->listen(&o.a, &env, "nohost.invalid:1", 0, uri, sizeof uri, &st);
    CHECK_LE(check_ms() - before, 4000);
    CHECK(rc == CLB_ERR_TIMEOUT || rc == CLB_ERR_NODEV);
}

/* With no descriptor left the loop must rest, and the connection come later. */
static void descriptors_run_out(struct mini_loop *loop)
{
    struct owner o = {0};
    struct clb_status st;
    struct rlimit old, low;
    char uri[128];
    int fd, taken[64], n = 0;

    CHECK_EQ(listen_at(loop, &o, "127.0.0.1:0", uri, &st), CLB_OK);
    CHECK_EQ(TCP->accept_start(o.a), CLB_OK);
    fd = dial(AF_INET, port_of(uri));
    CHECK_GE(fd, 0);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 48;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (n < 64 && (taken[n] = dup(0)) >= 0)
        n++;
    CHECK_GT(n, 0);
    loop->events = 0;
    for (int64_t end = check_ms() + 350; check_ms() < end;)
        mini_loop_step(loop, 10);
    CHECK_EQ(o.accepted, 0);
    CHECK_LE(loop->events, 12); /* a look every 100 ms, each two events */
    CHECK_EQ(o.log_lines, 1);
    while (n > 0)
        close(taken[--n]);
    setrlimit(RLIMIT_NOFILE, &old);
    wait_for(loop, &o.accepted, 1);
    close(fd);
    drop_all(&o);
    TCP->accept_close(o.a);
}

static void ends_inside(struct mini_loop *loop)
{
    struct owner o = {.stop_inside = true};
    struct clb_status st;
    char uri[128];
    int fd[3];

    CHECK_EQ(listen_at(loop, &o, "127.0.0.1:0", uri, &st), CLB_OK);
    CHECK_EQ(TCP->accept_start(o.a), CLB_OK);
    for (int i = 0; i < 3; i++)
        fd[i] = dial(AF_INET, port_of(uri));
    wait_for(loop, &o.accepted, 1);
    o.stop_inside = false;
    o.close_inside = true;
    CHECK_EQ(TCP->accept_start(o.a), CLB_OK);
    wait_for(loop, &o.accepted, 2);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    drop_all(&o);
}

int main(void)
{
    struct mini_loop loop;
    int fds, threads;

    check_watchdog(120);
    CHECK_EQ(mini_loop_init(&loop), 0);
    fds = check_fds();
    threads = check_threads();
    serve(&loop, "127.0.0.1:0", "tcp://127.0.0.1:", AF_INET);
    serve(&loop, "[::1]:0", "tcp://[::1]:", AF_INET6);
    serve(&loop, "*:0", "tcp://0.0.0.0:", AF_INET);
    serve(&loop, "[::]:0", "tcp://[::]:", AF_INET6);
    serve(&loop, "0.0.0.0:0", "tcp://0.0.0.0:", AF_INET);
    descriptors_run_out(&loop);
    ends_inside(&loop);
    refused(&loop); /* last: its resolver may still hold a descriptor */
    check_back_to(fds, threads);
    mini_loop_fini(&loop);
    return 0;
}
