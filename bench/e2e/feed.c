/* SPDX-License-Identifier: Apache-2.0 */
/* See feed.h. */
#include "feed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <clbridge/depthai.h>

#include "measure.h"
#include "round_trip.h"

#define MAX_CONNS 256

extern char **environ;

/* ---- the other process -------------------------------------------------------------------------- */

void feed_start(struct feed *f, enum feed_kind kind, int connections, uint32_t frame,
                uint32_t window)
{
    int pipefd[2];
    char kind_text[16], conns[16], frame_text[16], window_text[16], line[16] = "";
    char self[] = "/proc/self/exe", feed[] = "--feed";
    snprintf(kind_text, sizeof kind_text, "%d", (int)kind);
    snprintf(conns, sizeof conns, "%d", connections);
    snprintf(frame_text, sizeof frame_text, "%u", frame);
    snprintf(window_text, sizeof window_text, "%u", window);
    char *argv[] = {self, feed, kind_text, conns, frame_text, window_text, NULL};
    posix_spawn_file_actions_t actions;
    if (pipe(pipefd) != 0 || posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, pipefd[1], 1) != 0 ||
        posix_spawn_file_actions_addclose(&actions, pipefd[0]) != 0 ||
        posix_spawn(&f->pid, self, &actions, NULL, argv, environ) != 0) {
        die("the sending process cannot be started: %s", strerror(errno));
    }
    posix_spawn_file_actions_destroy(&actions);
    close(pipefd[1]);
    size_t n = 0;
    ssize_t got;
    while (n < sizeof line - 1 && !strchr(line, '\n') &&
           (got = read(pipefd[0], line + n, sizeof line - 1 - n)) > 0) {
        n += (size_t)got;
    }
    close(pipefd[0]);
    f->port = (uint16_t)atoi(line);
    if (f->port == 0) {
        die("the sending process gave no port");
    }
}

void feed_join(struct feed *f)
{
    int status;
    while (waitpid(f->pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        die("the sending process failed");
    }
}

int feed_connect(const struct feed *f)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(f->port)};
    const int on = 1;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0) {
        die("connect: %s", strerror(errno));
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* ---- sending ------------------------------------------------------------------------------------ */

/* Wire section 2. */
enum { T_WRITE = 0, T_RELEASE = 2, T_CREATE = 3, T_CLOSE = 4, T_PING = 5, T_RESET = 6 };

struct conn {
    int fd;
    bool wire, readable, writable, over, reset;
    uint8_t in[16 * WIRE_HEADER];
    size_t in_len;
    uint8_t out[64 * WIRE_HEADER]; /* answers and requests */
    size_t out_len;
    uint8_t sending[64 * WIRE_HEADER + WIRE_HEADER]; /* of the send in progress */
    size_t head_len, sent, total;                    /* total 0 = none */
    uint32_t id;                                     /* of the stream */
    bool open;
    uint64_t fill, packets;
    int32_t next;
};

static uint32_t frame_bytes, window_bytes;
static uint8_t *frame_data;

static void put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static uint32_t get32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void make_header(uint8_t *h, int32_t id, uint32_t type, uint32_t stream, uint32_t size,
                        const char *name)
{
    memset(h, 0, WIRE_HEADER);
    put32(h, (uint32_t)id);
    put32(h + 4, type);
    memcpy(h + 8, name, strlen(name));
    put32(h + 72, stream);
    put32(h + 76, size);
    put32(h + 80, 1);
}

static void say(struct conn *c, int32_t id, uint32_t type, uint32_t stream, uint32_t size)
{
    const bool create = type == T_CREATE || type == T_CREATE + 8;
    if (c->out_len + WIRE_HEADER > sizeof c->out) {
        die("too many answers wait");
    }
    make_header(c->out + c->out_len, id, type, stream, size, create ? "video" : "");
    c->out_len += WIRE_HEADER;
}

static void take(struct conn *c, const uint8_t *h)
{
    const int32_t id = (int32_t)get32(h);
    const uint32_t type = get32(h + 4), stream = get32(h + 72), size = get32(h + 76);
    switch (type) {
    case T_PING:
        say(c, id, T_PING + 8, 0, 0);
        if (c->next == 11) {
            say(c, c->next++, T_CREATE, 0xDEADDEAD, window_bytes);
        }
        break;
    case T_CREATE: say(c, id, T_CREATE + 8, stream, size); break;
    case T_CREATE + 8:
        c->id = stream;
        c->open = true;
        break;
    case T_RELEASE:
        c->fill -= size;
        c->packets--;
        say(c, id, T_RELEASE + 8, stream, size);
        break;
    case T_CLOSE: say(c, id, T_CLOSE + 8, stream, 0); break;
    case T_RESET:
        say(c, id, T_RESET + 8, 0, 0);
        c->reset = true;
        break;
    default: break; /* answers */
    }
}

static void read_events(struct conn *c)
{
    while (!c->over && c->out_len + 16 * WIRE_HEADER <= sizeof c->out) {
        ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - c->in_len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            c->over = true;
        }
        if (n <= 0) {
            c->readable = n < 0 && errno == EINTR;
            return;
        }
        c->in_len += (size_t)n;
        size_t at = 0;
        for (; c->in_len - at >= WIRE_HEADER; at += WIRE_HEADER) {
            take(c, c->in + at);
        }
        memmove(c->in, c->in + at, c->in_len - at);
        c->in_len -= at;
    }
}

/* What goes out next: all that waits, and a frame when the window takes it. */
static void prepare(struct conn *c)
{
    const bool frame =
        !c->reset &&
        (!c->wire || (c->open && c->fill + frame_bytes <= window_bytes && c->packets < 64));
    memcpy(c->sending, c->out, c->out_len);
    c->head_len = c->out_len;
    c->out_len = 0;
    if (frame) {
        make_header(c->sending + c->head_len, c->next++, T_WRITE, c->id, frame_bytes, "");
        c->head_len += WIRE_HEADER;
        c->fill += frame_bytes;
        c->packets++;
    }
    c->total = c->head_len + (frame ? frame_bytes : 0);
    c->sent = 0;
}

/* true: something moved */
static bool write_some(struct conn *c)
{
    if (c->total == 0) {
        prepare(c);
    }
    if (c->total == 0) {
        c->over |= c->reset;
        return false;
    }
    struct iovec iov[2];
    int n = 0;
    if (c->sent < c->head_len) {
        iov[n++] = (struct iovec){c->sending + c->sent, c->head_len - c->sent};
    }
    const size_t off = c->sent > c->head_len ? c->sent - c->head_len : 0;
    if (c->total - c->head_len > off) {
        iov[n++] = (struct iovec){frame_data + off, c->total - c->head_len - off};
    }
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    ssize_t put = sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) {
        c->writable = false;
        c->over |= errno != EAGAIN && errno != EINTR;
        return false;
    }
    c->sent += (size_t)put;
    if (c->sent == c->total) {
        c->total = 0;
    } else {
        c->writable = false;
    }
    return true;
}

static void take_connection(int door, int ep, struct conn *c, bool wire)
{
    const int on = 1;
    *c = (struct conn){.wire = wire, .writable = true, .readable = true, .next = 11};
    c->fd = accept(door, NULL, NULL);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (c->fd < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev) != 0) {
        die("accept: %s", strerror(errno));
    }
}

/* true: it has something to do at once */
static bool serve_one(struct conn *c, int *live)
{
    bool busy = false;
    if (c->readable && !c->over) {
        read_events(c);
    }
    if (c->writable && !c->over) {
        busy = write_some(c);
    }
    if (c->over && c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
        (*live)--;
    }
    return busy || (c->readable && !c->over);
}

static void serve(int door, int count, bool wire)
{
    static struct conn conns[MAX_CONNS];
    int ep = epoll_create1(EPOLL_CLOEXEC), live = count, made = 0;
    struct epoll_event ev[64] = {{.events = EPOLLIN, .data.ptr = NULL}};
    if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, door, &ev[0]) != 0) {
        die("epoll: %s", strerror(errno));
    }
    bool busy = false;
    while (live > 0) {
        int n = epoll_wait(ep, ev, 64, busy ? 0 : 10000);
        if (n == 0 && !busy) {
            die("nothing has moved for 10 s");
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            if (c) {
                c->writable |= (ev[i].events & EPOLLOUT) != 0;
                c->readable |= (ev[i].events & ~(uint32_t)EPOLLOUT) != 0;
            } else if (made < count) {
                take_connection(door, ep, &conns[made++], wire);
            } else {
                die("more connections than asked for");
            }
        }
        busy = false;
        for (int i = 0; i < made; i++) {
            busy |= serve_one(&conns[i], &live);
        }
    }
    close(ep);
}

size_t feed_trailer(uint8_t *out, uint32_t width, uint32_t height)
{
    clb_depthai_write_params p = {.struct_size = sizeof p, .sequence_num = 1234, .ts_ns = 1};
    size_t written = 0;
    if (clb_image_init(&p.image, CLB_PIXFMT_GRAY8, width, height, 0, 0) < 0 ||
        clb_depthai_write(out, FEED_TRAILER_MAX, &written, &p) < 0) {
        die("the metadata cannot be written");
    }
    return written;
}

int feed_main(char **argv)
{
    const enum feed_kind kind = (enum feed_kind)atoi(argv[0]);
    const int count = atoi(argv[1]);
    frame_bytes = (uint32_t)strtoul(argv[2], NULL, 10);
    window_bytes = (uint32_t)strtoul(argv[3], NULL, 10);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives who measures */
    if (kind == FEED_ECHO_OURS || kind == FEED_ECHO_OURS_DRIVEN) {
        return echo_ours(kind == FEED_ECHO_OURS_DRIVEN);
    }
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t len = sizeof sa;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (door < 0 || bind(door, (struct sockaddr *)&sa, sizeof sa) != 0 ||
        listen(door, MAX_CONNS) != 0 || getsockname(door, (struct sockaddr *)&sa, &len) != 0 ||
        count > MAX_CONNS) {
        die("listen: %s", strerror(errno));
    }
    printf("%d\n", ntohs(sa.sin_port));
    fflush(stdout);
    close(1);
    if (kind == FEED_ECHO_PLAIN) {
        echo_plain(door);
    } else {
        frame_data = malloc(frame_bytes);
        if (!frame_data) {
            die("no memory for a frame");
        }
        memset(frame_data, 0x5a, frame_bytes);
        if (kind == FEED_CAMERA) {
            uint8_t trailer[FEED_TRAILER_MAX];
            const size_t n = feed_trailer(trailer, FEED_WIDTH, frame_bytes / FEED_WIDTH);
            memcpy(frame_data + frame_bytes - n, trailer, n);
        }
        serve(door, count, kind != FEED_PLAIN);
        free(frame_data);
    }
    close(door);
    return 0;
}
