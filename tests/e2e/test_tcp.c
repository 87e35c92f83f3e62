/* SPDX-License-Identifier: Apache-2.0 */
/* How TCP connections begin: opening, resolving, adopting. */
#include "tcp_end.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

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
    CHECK_EQ(fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0); /* others may have the socket, too */
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

    check_back_to(fds, threads);
    mini_loop_fini(&loop);
    return 0;
}
