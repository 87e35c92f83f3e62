/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls per frame, counted exactly by ptrace, all threads of the receiving process together
 * (futex calls, too): a plain recv() loop and a link receive the same bytes from the same sender.
 * Frames arrive in pieces, as networks deliver them.
 *
 * Three processes: the one that counts, the receiver that it traces, and the sender, which waits
 * after each piece until the receiver has taken it, or has let it lie for a while.
 */
#include <arpa/inet.h>
#include <clbridge/clbridge.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "peer.h"

#define FRAME_MAX (2u << 20)
#define WARM 4
#define FRAMES 16
#define LET_LIE_MS 2
#define SEC INT64_C(1000000000)

struct way {
    bool wire; /* a link receives, else a plain loop */
    uint32_t frame, piece;
};

/* ---- marks in the stream of system calls: nobody else makes this one ---------------------------- */

#define MARK SYS_getpriority

static void mark(void)
{
    syscall(MARK, 0, 0);
}

/* ---- receivers ---------------------------------------------------------------------------------- */

static void plain(int fd, const struct way *w)
{
    static uint8_t buf[CLBI_WIRE_HEADER + FRAME_MAX];
    const size_t total = CLBI_WIRE_HEADER + w->frame;
    for (int i = 0; i < WARM + FRAMES; i++) {
        if (i == WARM) {
            mark();
        }
        for (size_t got = 0; got < total;) {
            ssize_t n = recv(fd, buf + got, total - got, 0);
            CHECK_GT(n, 0);
            got += (size_t)n;
        }
    }
    mark();
}

static void ours(int fd, const struct way *w)
{
    clb_link *link = NULL;
    clb_stream *s = NULL;
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    CHECK_EQ(clb_stream_open(&s, link, NULL), CLB_OK);
    for (int i = 0; i < WARM + FRAMES; i++) {
        clb_packet *p = NULL;
        if (i == WARM) {
            mark();
        }
        CHECK_EQ(clb_stream_read(s, &p, 10 * SEC), CLB_OK);
        CHECK_EQ(clb_packet_size(p), w->frame);
        clb_packet_free(&p);
    }
    mark();
    clb_stream_close(&s);
    clb_link_close(&link);
}

/* ---- sender ------------------------------------------------------------------------------------- */

/* A plain loop takes every piece; a link may wait for more. */
static void wait_taken(int theirs, const struct way *w)
{
    for (int64_t until = check_ms() + (w->wire ? LET_LIE_MS : 20000); check_ms() < until;) {
        int unread = 0;
        CHECK_EQ(ioctl(theirs, FIONREAD, &unread), 0);
        if (unread == 0) {
            return;
        }
        usleep(50);
    }
}

static void send_pieces(struct peer *p, int theirs, const uint8_t *data, size_t n,
                        const struct way *w)
{
    for (size_t at = 0; at < n; at += w->piece) {
        CHECK(peer_send_raw(p, data + at, n - at < w->piece ? n - at : w->piece));
        wait_taken(theirs, w);
    }
}

static bool all_released(struct peer *p, void *arg)
{
    (void)arg;
    return p->stream[0].fill_packets == 0;
}

static void sender(int fd, int theirs, const struct way *w)
{
    static uint8_t frame[CLBI_WIRE_HEADER + FRAME_MAX];
    struct peer p = {.fd = fd, .next_id = 11};
    int stream = 0;
    if (w->wire) {
        CHECK(peer_handshake(&p));
        stream = peer_create(&p, "video", 4 * w->frame);
        CHECK_EQ(stream, 0);
    }
    for (int i = 0; i < WARM + FRAMES; i++) {
        const struct clbi_wire_header h = {.id = p.next_id++,
                                           .type = CLBI_WRITE_REQ,
                                           .stream_id = p.stream[0].id,
                                           .size = w->frame,
                                           .flags = CLBI_FLAG_ACK};
        clbi_wire_encode(frame, &h);
        p.stream[0].fill += w->frame;
        p.stream[0].fill_packets++;
        send_pieces(&p, theirs, frame, CLBI_WIRE_HEADER + w->frame, w);
        if (w->wire) {
            CHECK(peer_pump_until(&p, all_released, NULL, 5000));
        }
    }
    if (w->wire) {
        peer_pump_to_end(&p, 5000);
    }
}

/* ---- counting ----------------------------------------------------------------------------------- */

static long call_number(pid_t tid)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY) {
        return -1;
    }
    return (long)info.entry.nr;
}

struct calls {
    double all, futex;
};

/* System calls between the two marks. Returns when both the child and the sender have ended. */
static struct calls trace(pid_t child, pid_t sends)
{
    struct calls calls = {0};
    int marks = 0, ended = 0, status;
    CHECK_EQ(waitpid(child, &status, __WALL), child); /* it has stopped itself */
    CHECK_EQ(ptrace(PTRACE_SETOPTIONS, child, 0,
                    PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL),
             0);
    CHECK_EQ(ptrace(PTRACE_SYSCALL, child, 0, 0), 0);
    while (ended < 2) {
        const pid_t tid = waitpid(-1, &status, __WALL);
        CHECK_GT(tid, 0);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid == child || tid == sends) {
                CHECK(WIFEXITED(status));
                CHECK_EQ(WEXITSTATUS(status), 0);
                ended++;
            }
            continue;
        }
        int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80)) {
            const long nr = call_number(tid);
            marks += nr == MARK;
            calls.all += nr >= 0 && nr != MARK && marks == 1;
            calls.futex += nr == SYS_futex && marks == 1;
        }
        /* Stops of new threads and of events are not signals of the program. */
        if (signal == (SIGTRAP | 0x80) || signal == SIGTRAP || signal == SIGSTOP) {
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, tid, 0, signal);
    }
    CHECK_EQ(marks, 2);
    return calls;
}

static void connected(int *a, int *b)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t len = sizeof sa;
    const int on = 1;
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(bind(door, (struct sockaddr *)&sa, sizeof sa), 0);
    CHECK_EQ(listen(door, 1), 0);
    CHECK_EQ(getsockname(door, (struct sockaddr *)&sa, &len), 0);
    *a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(*a, (struct sockaddr *)&sa, sizeof sa), 0);
    *b = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    CHECK_GE(*b, 0);
    setsockopt(*b, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(door);
}

static struct calls calls_per_frame(const struct way *w)
{
    int here, there;
    connected(&here, &there);
    const pid_t from = fork();
    if (from == 0) {
        sender(there, here, w);
        _exit(0);
    }
    close(there);
    const pid_t to = fork();
    if (to == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) {
            _exit(77);
        }
        raise(SIGSTOP);
        if (w->wire) {
            ours(here, w);
        } else {
            plain(here, w);
        }
        _exit(0);
    }
    close(here);
    struct calls calls = trace(to, from);
    calls.all /= FRAMES;
    calls.futex /= FRAMES;
    return calls;
}

static void compare(uint32_t frame, uint32_t piece, double base_exact, double more, bool threads)
{
    const struct way plain_way = {false, frame, piece}, link_way = {true, frame, piece};
    const struct calls base = calls_per_frame(&plain_way), link = calls_per_frame(&link_way);
    const double counted = link.all - (threads ? 0 : link.futex);
    printf(
        "a frame of %u bytes in pieces of %u: %.2f system calls, %.2f of them to wake and wait for "
        "the other thread; a plain loop makes %.2f\n",
        frame, piece, link.all, link.futex, base.all);
    fflush(stdout); /* what is still there would be printed by the next children as well */
    CHECK_LE(base.all, base_exact); /* the comparison is with what it is said to be */
    CHECK_LE(counted * 100, (base.all + more) * 100);
}

int main(void)
{
    check_watchdog(100);
    /* As a network card hands a large frame over. */
    compare(FRAME_MAX, 64u << 10, 33, 4, true);
    /* All at once, which is as little as a plain loop can do. Without what the two threads, which are
     * stopped at each call, do to one another. */
    compare(100000, 200000, 2, 8, false);
    return 0;
}
