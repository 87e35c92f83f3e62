/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/link.h: discovery, loop, link, listener.
 *
 * A link is one connection between two peers. The host role opens it, the device role accepts it
 * through a listener. A link is driven by a loop: by default one of its own with one thread
 * ("clb-io"); links that are given the same clb_loop share its thread; a caller-driven loop has no
 * thread and runs inside clb_loop_dispatch(), or inside any call with a deadline on one of its
 * links (opening, accepting, reading, writing, flushing, shutting down, closing). Only one thread
 * can be inside: another one gets STATE.
 *
 * A broken link is sticky: it never comes back, every call says so, and clb_link_get_state() tells
 * the first cause. Open a new one. Complete packets that had arrived can still be read.
 *
 * At most 16 requests of ours are unanswered at a time. One without an answer for 2 s (a write: for
 * progress_timeout_ns) is counted in `forgotten`, and its late answer is harmless. A peer that does
 * not answer 16 releases in a row is no longer waited for after a release.
 */
#ifndef CLBRIDGE_LINK_H
#define CLBRIDGE_LINK_H

#include <clbridge/buffer.h>
#include <clbridge/common.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clb_loop clb_loop;
typedef struct clb_link clb_link;
typedef struct clb_listener clb_listener;

enum clb_transport {
    CLB_TRANSPORT_ANY,   /* for clb_discover(): all that are built */
    CLB_TRANSPORT_TCP,   /* "tcp://host[:port]" */
    CLB_TRANSPORT_USB,   /* "usb://[serial|bus.port...]"; NOSYS in this version */
    CLB_TRANSPORT_LOCAL, /* "local://path", NOSYS in this version; adopted AF_UNIX sockets */
};

enum clb_role {
    CLB_ROLE_HOST,   /* connects, sends the first PING, numbers the streams */
    CLB_ROLE_DEVICE, /* accepts, waits for the PING */
};

enum clb_link_state {
    CLB_LINK_CONNECTING, /* no PING was answered yet */
    CLB_LINK_UP,         /* streams can be opened */
    CLB_LINK_CLOSING,    /* ending: nothing new starts, complete packets can still be read */
    CLB_LINK_DOWN,       /* for ever */
};

/* ---- loop ------------------------------------------------------------------------------------ */

typedef struct clb_loop_params {
    size_t struct_size;      /* sizeof of this struct; 0 = its first version */
    int caller_driven;       /* 0 = own thread; 1 = no thread, see clb_loop_dispatch() */
    const char *thread_name; /* at most 15 bytes are used; NULL = "clb-io". Copied */
    void (*on_thread_start)(void *priv); /* called once on the loop's thread before anything else;
                                            NULL = none. Not called when caller-driven */
    void *priv;                          /* of on_thread_start */
} clb_loop_params;
#ifndef __cplusplus
#define clb_loop_params(...)                                                                       \
    (&(const clb_loop_params){.struct_size = sizeof(clb_loop_params), __VA_ARGS__})
#endif

/**
 * Creates a loop.
 * @owner *out by the caller. @thread any. @blocks no (starts the thread).
 * @return CLB_OK, INVAL, NOMEM, IO (descriptor or thread limit).
 */
CLB_API CLB_NODISCARD int clb_loop_create(clb_loop **out, const clb_loop_params *params);

/**
 * Caller-driven loops: does what is due, waiting at most timeout_ns for something to do.
 * @owner nothing. @thread one at a time: while one thread is inside, another gets STATE. Not from
 * callbacks.
 * @blocks up to timeout_ns. @return CLB_OK (something was done), TIMEOUT, STATE (not caller-driven,
 * or another thread is inside), INVAL.
 */
CLB_API int clb_loop_dispatch(clb_loop *loop, int64_t timeout_ns);

/**
 * A descriptor that is readable when clb_loop_dispatch(loop, 0) has something to do, timers
 * included. Never read it.
 * @owner borrowed until the loop ends. @thread any. @blocks no.
 * @return the descriptor, or INVAL, or STATE when not caller-driven.
 */
CLB_API int clb_loop_fd(clb_loop *loop);

/**
 * Drops the caller's reference. Links on the loop keep it (and its thread) alive until they end.
 * @owner *loop is consumed. @thread any. @blocks until the thread ended, when nothing uses the loop
 * any more and the caller is not that thread.
 */
CLB_API void clb_loop_destroy(clb_loop **loop);

/* ---- link ------------------------------------------------------------------------------------ */

typedef struct clb_link_params {
    size_t struct_size; /* sizeof of this struct; 0 = its first version */
    const char *uri;    /* "tcp://host[:port]" (port 11490), "usb://[serial|bus.port...]",
                        "local://path". Needed, copied. Ignored by clb_link_adopt() */
    clb_loop *loop;     /* NULL = one of its own. The link takes a reference */
    struct clb_allocator allocator; /* default of the link's streams; zero = a host pool of the
                                       link's own, which lives as long as its last packet */
    int64_t connect_timeout_ns; /* until the link is up: name resolution, connect and first PING; 0
                                   = 5 s */
    int64_t close_timeout_ns;   /* clb_link_close(), 0 = 2 s */
    int64_t first_open_ns; /* until the first stream of the link is opened, payloads that arrive are
                              left in the socket this long after the link came up; then they spill,
                              see stream.h; 0 = 2 s, < 0 = not at all */
    int64_t progress_timeout_ns; /* a header, payload or write that has started must move on, and a
                                    written packet be answered; 0 = 10 s, < 0 = never */
    int64_t keepalive_ns;        /* a silent peer is pinged after this long; 0 = 2 s, < 0 = never */
    int64_t idle_timeout_ns;     /* a peer without any sign of life for this long is lost; 0 = 10 s,
                                    < 0 = never */
    size_t max_payload;          /* largest packet accepted, bytes, a larger one ends the link with
                                    PROTO; 0 = 64 MiB */
    size_t max_stream_window;    /* largest window a peer may announce per stream, bytes, a larger
                                    one is refused; a packet beyond an announced window ends the
                                    link with PROTO; 0 = 64 MiB */
    size_t max_link_window;      /* sum over the streams of a link, bytes, and so of what may lie in
                                    host memory of the link; 0 = 256 MiB */
    int no_reset_on_close;       /* 1 = do not send RESET when closing (a camera reboots on it) */
    void (*state_cb)(void *priv, clb_link *link, enum clb_link_state state); /* UP, CLOSING, DOWN;
                                    on the loop's thread, no lock held; must not block; may call
                                    clb_link_get_state/info/stats and clb_link_shutdown; NULL = none */
    void *priv;                                                              /* of state_cb */
    struct clb_status *status; /* filled when opening fails; NULL = not wanted. Borrowed during the
                                   call */
    struct clb_log log; /* zero = silent; copied, priv must stay valid until the last stream and
                           packet of the link are gone */
} clb_link_params;
#ifndef __cplusplus
#define clb_link_params(...)                                                                       \
    (&(const clb_link_params){.struct_size = sizeof(clb_link_params), __VA_ARGS__})
#endif

/**
 * Connects in the host role and waits until the link is up (first PING answered). A refused
 * connection fails at once.
 * @owner *out by the caller. @thread any. @blocks up to connect_timeout_ns.
 * @return CLB_OK; INVAL (URI), NODEV (unknown host), TIMEOUT, ACCESS, NOSYS (transport not built),
 *         IO (refused, unreachable), PROTO, LOST, NOMEM. params->status tells the cause.
 */
CLB_API CLB_NODISCARD int clb_link_open(clb_link **out, const clb_link_params *params);

/**
 * Makes a link of a connected stream socket (TCP or AF_UNIX) and waits until it is up. In the
 * device role it waits for the peer's PING.
 * @owner fd is transferred on success, stays the caller's on failure. @thread any.
 * @blocks up to connect_timeout_ns. @return as clb_link_open().
 */
CLB_API CLB_NODISCARD int clb_link_adopt(clb_link **out, int fd, enum clb_role role,
                                         const clb_link_params *params);

/**
 * Ends the link while the handle stays valid: sends RESET (unless no_reset_on_close), waits for the
 * answer or the end of the stream until timeout_ns, closes. A link that never came up or was lost
 * is closed without waiting for an answer. Wakes everybody; waiting calls return CLOSED. A second
 * call waits for the first.
 * @owner nothing: the handle stays the caller's. @thread any, also callbacks (then it only starts
 * the end). @blocks up to timeout_ns.
 * @return CLB_OK (down), TIMEOUT (still closing; it ends by itself), STATE (caller-driven, other
 *         thread).
 */
CLB_API int clb_link_shutdown(clb_link *link, int64_t timeout_ns);

/**
 * Shuts down as clb_link_shutdown(), within close_timeout_ns, and drops the handle. Packets that
 * are out stay valid; stream handles stay valid and answer CLOSED. Wakes calls that are inside and
 * waits for them; the caller guarantees that no new ones start. From a library thread it is
 * deferred.
 * @owner *link is consumed. @thread any. @blocks up to close_timeout_ns.
 */
CLB_API void clb_link_close(clb_link **link);

/**
 * State, and the first cause when it is CLOSING or DOWN (*why, may be NULL; err CLB_OK = orderly
 * end by us, CLOSED = orderly end by the peer).
 * @owner why by the caller. @thread any. @blocks no. @return the state; DOWN for NULL.
 */
CLB_API enum clb_link_state clb_link_get_state(const clb_link *link, struct clb_status *why);

typedef struct clb_link_info {
    char peer[128];               /* "127.0.0.1:11490", "[::1]:11490", "unix" */
    enum clb_transport transport; /* LOCAL for adopted AF_UNIX sockets */
    enum clb_role role;           /* ours */
    uint32_t usb_speed;           /* Mbit/s, 0 = not USB */
    char serial[64];              /* USB serial, "" = none */
} clb_link_info;

typedef struct clb_link_stats {
    uint64_t rx_bytes;        /* headers and payloads */
    uint64_t tx_bytes;        /* headers and payloads */
    uint64_t rx_events;       /* headers received */
    uint64_t tx_events;       /* headers sent */
    uint64_t ignored_answers; /* answers that nobody asked for */
    uint64_t nacks_sent;      /* requests of the peer that were refused */
    int64_t rtt_ns;           /* of the last answered PING, 0 = none yet */
    uint64_t forgotten;       /* our requests that the peer never answered */
    uint64_t heap_allocs;     /* heap allocations of the link and its streams so far */
} clb_link_stats;

/**
 * Fills at most `size` bytes of *out. link NULL: all zero.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_link_get_info(const clb_link *link, clb_link_info *out, size_t size);
/**
 * Fills at most `size` bytes of *out. link NULL: all zero.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_link_get_stats(const clb_link *link, clb_link_stats *out, size_t size);

typedef struct clb_stream_info {
    char name[52];        /* NUL-terminated, opaque bytes: escape before showing */
    uint32_t id;          /* number on the wire; 0xDEADDEAD = not assigned yet */
    uint64_t peer_window; /* bytes that the peer may have unreleased; 0 = the peer does not write */
    uint64_t write_window; /* bytes that we may have unreleased; 0 = not opened for writing */
    int opened;            /* 1 = a handle is open on our side */
} clb_stream_info;

/**
 * The next stream that the peer announced and that this call has not told yet, in order. At most
 * `size` bytes of *out are filled.
 * @owner out by the caller. @thread any. @blocks up to timeout_ns.
 * @return CLB_OK, AGAIN (timeout 0), TIMEOUT, CLOSED, LOST, STATE, INVAL.
 */
CLB_API int clb_link_next_stream(clb_link *link, clb_stream_info *out, size_t size,
                                 int64_t timeout_ns);

/* ---- listener -------------------------------------------------------------------------------- */

typedef struct clb_listener_params {
    size_t struct_size; /* sizeof of this struct; 0 = its first version */
    const char *uri;    /* "tcp://address[:port]" (port 11490); port 0 picks a free one. Needed,
                        copied */
    uint32_t max_links; /* alive at the same time; 0 = 1. Further connections are closed at once */
    clb_link_params link; /* for each link (uri is ignored); link.log and link.status serve the
                             listener too */
} clb_listener_params;
#ifndef __cplusplus
#define clb_listener_params(...)                                                                   \
    (&(const clb_listener_params){.struct_size = sizeof(clb_listener_params), __VA_ARGS__})
#endif

/**
 * Starts to listen in the device role.
 * @owner *out by the caller. @thread any. @blocks on name resolution, at most connect_timeout_ns.
 * @return CLB_OK, INVAL (URI), BUSY (address in use), ACCESS, NODEV, NOSYS, IO, NOMEM.
 */
CLB_API CLB_NODISCARD int clb_listener_open(clb_listener **out, const clb_listener_params *params);

/**
 * The next link that is up (its peer has sent the first PING). A connection that does not get that
 * far within connect_timeout_ns is closed and never seen here.
 * @owner *link by the caller. @thread any. @blocks up to timeout_ns.
 * @return CLB_OK, AGAIN (timeout 0), TIMEOUT, CLOSED (listener shut down), STATE, INVAL.
 */
CLB_API CLB_NODISCARD int clb_listener_accept(clb_listener *listener, clb_link **link,
                                              int64_t timeout_ns);

/**
 * The URI that peers can connect to, with the real port.
 * @owner borrowed until the listener is closed. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API const char *clb_listener_uri(const clb_listener *listener);

/**
 * Stops listening. Links that were accepted live on; links that nobody accepted are closed.
 * @owner *listener is consumed. @thread any. @blocks up to close_timeout_ns of the links.
 */
CLB_API void clb_listener_close(clb_listener **listener);

/* ---- discovery ------------------------------------------------------------------------------- */

typedef struct clb_device_info {
    enum clb_transport transport; /* never ANY */
    char uri[128];                /* to be given to clb_link_open() */
    char serial[64];              /* "" = unknown */
    char state[16];               /* "booted", "unbooted", "bootloader", "flash-booted", "gate" */
    char protocol[16];            /* "tcp", "usb", "" = unknown */
    char platform[16];            /* "rvc2", "rvc3", "rvc4", "" = unknown */
    uint32_t usb_speed;           /* Mbit/s, 0 = not USB */
    char address[64];             /* network address or USB port path */
} clb_device_info;

/**
 * Looks for cameras for timeout_ns. NOSYS in this version.
 * @owner out: an array of cap elements of elem_size bytes by the caller. @thread any.
 * @blocks timeout_ns. @return CLB_OK with *count found (at most cap are written), NOSYS (transport
 * without discovery in this build), INVAL, IO.
 */
CLB_API CLB_NODISCARD int clb_discover(enum clb_transport transport, int64_t timeout_ns,
                                       clb_device_info *out, size_t elem_size, size_t cap,
                                       size_t *count);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_LINK_H */
