/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects behind link, stream and packet handles, shared by the files of the core that implement
 * them.
 *
 * Locking: link->lock guards the protocol machine, the slots, streams, queues, write operations and
 * the statistics. Members marked [io] belong to the thread that dispatches the loop. User callbacks
 * (allocator, state_cb, ready_cb, log) are called without the lock, but for the ref of an allocator
 * that a new stream stores. The locks of the loop and of the host pool may be taken inside
 * link->lock, never the other way round.
 *
 * References: a link is held by its handle, its streams, its loop membership and its spill blocks; a
 * stream by its handle and its packets. Memory goes with the last one.
 */
#ifndef CLBI_LINK_PRIV_H
#define CLBI_LINK_PRIV_H

#include <clbridge/link.h>
#include <clbridge/stream.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "log.h"
#include "loop.h"
#include "os.h"
#include "proto.h"
#include "queue.h"
#include "rows.h"
#include "trailer.h"
#include "transport.h"

#define CLBI_SPILL_CACHE 4
#define CLBI_SPILL_ALIGN 64u

/* Why a call must stop waiting. */
enum clbi_end { CLBI_END_NONE, CLBI_END_CLOSED, CLBI_END_LOST };

struct clb_packet {
    clb_packet *next;
    clb_stream *stream;             /* referenced; NULL while its stream is not open */
    clb_link *link;                 /* valid through stream, or through the slot's queue */
    struct clb_allocator allocator; /* referenced twice: this copy, and the buffer out */
    struct clb_buf buf;
    int index;          /* of the protocol machine's stream */
    uint32_t wire_size; /* what a release must name */
    bool credit_due;    /* the peer has not got its credit yet */
    bool released;
    bool spill_pending; /* the payload lies in a spill block, or has to go there (`misplaced`), and
                           then to the allocator's memory */

    /* Where its parts lie; see link_split.c. */
    size_t front;           /* bytes of the payload that the allocator's memory got */
    size_t pixels;          /* bytes that are pixels, in the layout of the peer */
    size_t room;            /* bytes that may be written there */
    size_t written;         /* end of what was written there */
    struct clbi_tail *tail; /* what came behind `front`; NULL = nothing */
    struct clbi_tail *meta; /* the metadata; may be `tail` */
    bool misplaced;         /* the allocator's memory cannot hold it as it must be delivered */
    bool cut;               /* it got fewer than there are: the rest begins the tail */
    bool rows;              /* placed row by row: from the layout `src` to that of `placed` */
    struct clb_image src, placed;
    bool resolved;         /* `from` and `image` are known: the reader has had it */
    struct clb_image from; /* layout of the payload; fmt 0 = unknown */

    clb_packet_info info;
    struct clb_image image; /* of the pixels as they are delivered; fmt 0 = unknown */
};

/* Host memory for what lies behind the pixels; `data` is aligned, and of one size for a stream. */
struct clbi_tail {
    struct clbi_tail *next;
    uint8_t *data;
};

/* Where an incoming payload is to go. */
struct clbi_plan {
    bool host;       /* to host memory first, whatever buffers there are */
    bool split;      /* what follows `front` goes to a tail */
    bool guess;      /* `front` is not certain */
    size_t front;    /* bytes for the allocator's memory */
    size_t capacity; /* what the allocator is asked for, expect likewise */
    size_t expect;
    size_t least; /* when that is too much: asked for next; 0 = nothing else will do */
    bool rows;    /* the rows of src are placed as dst has them */
    struct clb_image src, dst;
};

/* Packets are made 16 at a time: how many are out at once varies with the weather, and steady state
 * must not allocate. */
#define CLBI_SLAB_PACKETS 16
struct clbi_packet_slab {
    struct clbi_packet_slab *next;
    clb_packet packet[CLBI_SLAB_PACKETS];
};

/* A write on its way. Lives on the stack of the writer until `state` is DONE. */
enum clbi_write_state { CLBI_WRITE_QUEUED, CLBI_WRITE_SENDING, CLBI_WRITE_SENT, CLBI_WRITE_DONE };
struct clbi_write {
    struct clbi_write *next;
    clb_stream *stream;
    struct iovec *iov; /* iov[0] is left for headers */
    size_t iov_len;    /* iov[0] included */
    size_t bytes;
    uint64_t token;
    enum clbi_write_state state;
    int result;
    bool answered; /* with `result`, before the last byte was out */
    int64_t queued_ns;
    bool waited_credit;
};

/* What the link knows of one entry of the protocol machine. */
struct clbi_slot {
    clb_stream *stream;         /* the open handle, NULL = none */
    struct clbi_queue unopened; /* spilled packets that wait for one */
    bool closed_once;           /* a handle was closed: later payloads are drained */
    bool announced, told;       /* by the peer; clb_link_next_stream has told it */
    uint64_t announce_order;
    uint64_t seq; /* of the next packet */
    uint64_t lost,
        lost_bytes; /* packets for which there was no memory before a handle was opened */
};

struct clb_stream {
    atomic_uint refs;
    clb_link *link; /* referenced */
    int index;      /* of the protocol machine's entry; -1 once closed */
    char name[CLBI_WIRE_NAME];
    uint32_t id;
    struct clb_allocator allocator; /* referenced copy; alloc NULL = the link's own pool */
    bool own_pool;                  /* spilled packets are delivered where they lie */
    size_t align;
    enum clb_full on_full;
    uint32_t queue_len;
    bool write_async;
    bool wants_write;
    struct clb_image image;   /* of the payload, as configured */
    enum clb_trailer trailer; /* AUTO until the first packet has decided */
    bool write_only, repitch;
    size_t dst_pitch_align, dst_plane_align;
    void (*ready_cb)(void *priv, clb_stream *stream);
    void *priv;

    pthread_cond_t cond; /* packets, ends, credit */
    struct clbi_queue queue;
    bool closing; /* clb_stream_close has begun */
    bool interrupted;
    bool ready_due;   /* ready_cb is to be called from the loop */
    bool moving;      /* a reader moves a spilled packet; others wait */
    bool starved;     /* and has found no buffer for it yet */
    bool peer_closed; /* the peer ended its half after having opened it */
    bool refused;     /* our CREATE was refused */
    int refuse_err;
    uint32_t callers; /* calls that are inside; each holds a reference */
    int fd;           /* -1 until clb_stream_fd() */
    bool fd_set;
    int64_t quiet_until; /* fd stays silent, 0 = not */

    struct clbi_write *writes, **writes_tail; /* not DONE yet, in order */
    int async_err;
    uint64_t unacked;    /* sent and not acknowledged */
    uint64_t expect_seq; /* of the next packet to be read, if nothing is dropped */
    struct clbi_split split;
    struct clb_image learned; /* layout of the last payload by its metadata; fmt 0 = none */
    struct {
        uint32_t count, left;
        uint64_t bytes; /* in those that are left */
    } parts;            /* of the split message that comes in */
    struct {
        uint32_t count, left;
        uint64_t next_seq;   /* of the next packet that is looked at, if nothing is dropped */
    } group;                 /* of the message group that is being read */
    struct clbi_tail *tails; /* free ones */
    struct clbi_tail_slab *tail_slabs;
    bool bad_told; /* the first bad metadata was logged */
    clb_stream_stats stats;
    bool full_due; /* the first full event is still to be logged */
};

/* lock held. Logged once per stream, by the loop when it holds no lock. */
static inline void clbi_stream_full(clb_stream *s)
{
    s->full_due |= s->stats.full_events++ == 0;
}

enum clbi_rx {
    CLBI_RX_NEXT,    /* a header is to be asked for */
    CLBI_RX_HEADER,  /* the transport fills rx.header */
    CLBI_RX_DECIDE,  /* a WRITE header is in; where its payload goes is open */
    CLBI_RX_PAYLOAD, /* the transport fills the packet's buffer */
    CLBI_RX_DRAIN,   /* the payload goes to the drain block */
    CLBI_RX_STOPPED, /* nothing is received any more */
};

struct clbi_listener_hook {
    void (*up)(void *priv, clb_link *link);
    void (*leaving)(void *priv);              /* before the connection is closed; exactly once */
    void (*down)(void *priv, clb_link *link); /* last, from the loop; exactly once */
    void *priv;
};

struct clb_link {
    atomic_uint refs;
    clb_link_params cfg; /* defaults filled in; CLBI_NEVER for never */
    enum clb_role role;
    const struct clbi_transport_ops *ops;
    char *address; /* behind "scheme://", NULL when adopted */
    int adopt_fd;  /* until the transport has it, -1 */
    struct clbi_listener_hook hook;

    pthread_mutex_t lock;
    pthread_cond_t cond; /* state, announcements, callers */
    clb_loop *loop;      /* referenced until close; NULL afterwards */
    struct clbi_member member;
    enum clb_link_state state;
    struct clb_status why;
    bool shutdown_wanted; /* by clb_link_shutdown */
    bool caller_has_fd;   /* adopted, and not up: the connection is still the caller's */
    int64_t shutdown_deadline;
    bool handle_closed; /* the handle's reference goes at DOWN (deferred close) */
    bool finished;      /* DOWN, and the last callback has returned */
    uint32_t callers;   /* calls that are inside; each holds a reference */
    struct clbi_proto proto;
    struct clbi_slot slot[CLBI_MAX_STREAMS];
    uint64_t announce_count;
    bool any_opened;
    clb_packet *packet_cache;
    struct clbi_packet_slab *packet_slabs;
    struct {
        void *data;
        size_t size;
    } spill[CLBI_SPILL_CACHE];
    clb_host_pool *pool;            /* the default allocator, made at first need */
    struct clb_allocator allocator; /* of cfg, referenced when set */
    clb_link_info info;
    uint64_t next_token;
    uint64_t rx_bytes, tx_bytes;
    atomic_uint_fast64_t heap_allocs;

    /* [io] */
    struct clbi_transport *tr;
    bool connected; /* the transport can move bytes */
    bool tr_closing;
    bool close_waits;       /* for a direct send to end */
    bool close_after_flush; /* the peer's RESET was taken: close when the answer is out */
    bool cut;               /* lost: the peer takes nothing, or says nothing */
    int64_t connect_deadline, first_open_until;
    int64_t close_deadline;
    int64_t last_rx_ns;
    int64_t listening_ns;      /* not before this does the peer's silence count: we did not read */
    int64_t look_at;           /* when progress is looked at next, 0 = nothing moves */
    uint64_t seen_rx, seen_tx; /* transport's progress at the last look */
    struct {
        enum clbi_rx state;
        uint8_t header[CLBI_WIRE_HEADER];
        struct clbi_seg seg[CLBI_ROWS_SEGS + 1];
        struct clbi_proto_event ev;
        struct clbi_plan plan;
        clb_packet *packet; /* PAYLOAD: where it goes */
        size_t drain_left;
        bool drain_credit; /* a drained payload whose credit goes back */
        bool drain_lost;   /* it is counted in its slot's `lost` already */
        int64_t first_byte_ns, progress_ns;
        uint64_t started_at; /* transport's rx count when this header was asked for */
    } rx;
    /* One send at a time, by the loop (`busy`, [io], changed under the lock) or by a thread of the
     * application (`direct`, under the lock); whoever it is owns `headers` meanwhile. */
    struct {
        bool busy;
        bool direct;
        bool turned_away; /* lock: the loop wanted to send, or to close, meanwhile */
        bool broken;      /* lock: sending has failed, `failure` tells how */
        uint8_t headers[(CLBI_MAX_ANSWERS + 1) * CLBI_WIRE_HEADER];
        struct iovec iov;      /* headers alone */
        struct clbi_write *op; /* whose payload is being sent */
        size_t bytes;
        int64_t progress_ns;
        uint32_t next_stream; /* round robin of writers */
        int64_t dead_until;   /* sending has failed; 0 = it has not. See clbi_tx_run */
        struct clb_status failure;
        /* lock: what a direct send leaves for the loop */
        struct {
            struct clbi_write *op; /* whose rest is to be sent; NULL = headers, or nothing */
            struct iovec *iov;
            size_t iov_len, bytes;
            struct iovec headers;
        } rest;
    } tx;
    /* lock: what is said at once, or waits a little for company. See link_hold.c */
    struct {
        int64_t until; /* something waits until then, 0 = nothing */
        unsigned
            score;    /* how many small packets in a row the application has answered by a write */
        bool expects; /* the last packet that came in is a small one, and not answered yet */
    } hold;
    int64_t armed;             /* lock: the loop looks at the link then at the latest */
    uint8_t *drain;            /* 64 KiB, made at first need */
    uint8_t drain_small[1024]; /* when there is no memory for that */
};

#define CLBI_DRAIN_BLOCK 65536u

/* ---- link.c */
clb_link *clbi_link_new(const clb_link_params *cfg, enum clb_role role,
                        const struct clbi_transport_ops *ops, const char *address, int fd,
                        clb_loop *loop, struct clb_status *st);
void clbi_link_ref(clb_link *link);
void clbi_link_unref(clb_link *link);
int clbi_link_config(clb_link_params *cfg, const clb_link_params *params);
/* Joins the loop: from here on the link lives by itself. */
void clbi_link_start(clb_link *link);
/* Around what a public call does: takes a reference and the lock, and counts as inside until it
 * leaves, so that clb_link_close() waits for it. */
void clbi_link_enter(clb_link *link);
void clbi_link_leave(clb_link *link);
/* lock held: may the caller go on waiting? Waits until something may have changed. CLB_OK, TIMEOUT
 * (deadline), STATE (caller-driven by another thread, or called from the loop's own thread). */
int clbi_link_wait(clb_link *link, pthread_cond_t *cond, int64_t deadline);
/* lock held */
enum clbi_end clbi_link_end(const clb_link *link);
int clbi_end_error(enum clbi_end end);
/* lock held; the calling thread runs the link's callbacks: it must not wait for their end */
bool clbi_link_on_loop(clb_link *link);
void clbi_link_kick(clb_link *link);
void clbi_link_wake_all(clb_link *link);
/* lock held; forgets what belonged to an entry that the protocol machine has given up: before the
 * machine may give it to another name, all of them */
void clbi_slot_collect(clb_link *link, int index);
void clbi_slots_collect(clb_link *link);
/* lock held; what waits for streams that will never be opened now goes to the end of *list */
void clbi_link_take_unopened(clb_link *link, struct clbi_queue *list);
/* Callbacks that belong together are all there, or none of them is. */
bool clbi_allocator_valid(const struct clb_allocator *allocator);
int clbi_link_default_allocator(clb_link *link, struct clb_allocator *out, bool *own_pool);
void *clbi_link_calloc(clb_link *link, size_t size);

/* ---- link_io.c: [io] life of the connection */
void clbi_link_service(void *priv, int64_t now);
/* Ends the link with a cause; the first one stays. */
void clbi_link_begin_close(clb_link *link);
void clbi_link_drop(clb_link *link, enum clb_error err, enum clb_domain domain, int native,
                    const char *fmt, ...) CLBI_PRINTF(5, 6);
void clbi_link_set_state(clb_link *link, enum clb_link_state state);
/* Calls ready_cb of the streams that have ready_due set. */
void clbi_link_tell_ready(clb_link *link);

/* ---- link_rx.c: [io] receiving */
/* clbi_tx_run follows: answers may be left to it. */
void clbi_rx_run(clb_link *link);
void clbi_rx_done(clb_link *link, const struct clb_status *failure);
/* true: done within the call */
bool clbi_rx_start_payload(clb_link *link);
bool clbi_rx_start_drain(clb_link *link, bool credit);
/* Memory that takes what nobody wants. */
void *clbi_rx_sink(clb_link *link, size_t *size);

/* ---- link_place.c: where a payload goes */
/* [io] Decides for the WRITE whose header is in, and starts to receive. true: it is in already. */
bool clbi_rx_place(clb_link *link);
/* lock NOT held. Asks the stream's allocator for plan->capacity bytes and checks what it gives. On
 * CLB_OK the allocator is referenced twice: for the packet's copy and for the buffer. CLB_OK, NOBUFS, or
 * another error. */
int clbi_stream_ask(clb_stream *s, size_t payload, const struct clbi_plan *plan, uint32_t id,
                    int64_t wait_ns, struct clb_buf *buf);

/* ---- link_split.c: pixels and what lies behind them. lock held in all of them */
/* A stream's memory for tails. */
void clbi_tails_free(clb_stream *s);
void clbi_packet_drop_tails(clb_packet *p);
/* [io] For the payload whose header is in. */
void clbi_split_plan(clb_stream *s, size_t total, struct clbi_plan *plan);
/* [io] Takes over what was planned; false = out of memory. */
bool clbi_split_begin(clb_packet *p, const struct clbi_plan *plan);
/* [io] The segments that receive the payload; their number. */
size_t clbi_split_segs(clb_packet *p, struct clbi_seg *segs, void *sink, size_t sink_size);
/* The payload is in, and p->stream known: finds the end of the pixels, and repairs what was guessed
 * wrong. Counts the arrival. */
void clbi_split_finish(clb_packet *p);
/* [io] A payload of this stream is drained. */
void clbi_split_lost(clb_stream *s, size_t total);
/* Once for the reader: reads the metadata. The packet may have to be moved afterwards. */
void clbi_split_resolve(clb_packet *p);
/* Dropped in between: a misplaced packet goes to host memory of the link. CLB_OK or NOMEM. */
int clbi_split_gather(clb_packet *p);
/* For the allocator that gets a packet out of there: what to ask for, and (lock NOT held) the copy. */
void clbi_split_replan(const clb_packet *p, struct clbi_plan *plan);
void clbi_split_copy(clb_packet *p, const struct clbi_plan *plan, void *to);

/* ---- link_hold.c: what may wait for company. lock held in all of them */
/* A payload has come in; a write begins. */
void clbi_hold_heard(clb_link *link, size_t bytes);
void clbi_hold_said(clb_link *link);
/* How many bytes beyond a header, or a payload, may be read with it. */
size_t clbi_hold_ahead(const clb_link *link, size_t payload);
/* [io] Shall what waits to be sent go on waiting? */
bool clbi_hold(clb_link *link, int64_t now);
/* A release by the application: the loop takes care of it soon enough. */
bool clbi_hold_release(const clb_link *link, int64_t now);

/* ---- link_tx.c: [io] sending */
void clbi_tx_run(clb_link *link);
/* lock held, dropped meanwhile: something is to be sent. The calling thread sends it itself when it
 * would have to wake the loop for it; payloads only with `writes`, by who has one: nobody else is to
 * pay for it. */
void clbi_tx_now(clb_link *link, bool writes);
void clbi_tx_done(clb_link *link, size_t bytes, const struct clb_status *failure);
/* lock held; takes a write off its stream's list */
void clbi_write_unlink(struct clbi_write *op);
/* lock held: the write of this token got its answer, or fails. */
void clbi_write_answered(clb_link *link, int index, uint64_t token, int result);
void clbi_write_fail_all(clb_link *link, int result);
/* lock held, when the transport has gone: of the write that was to be sent in part still. */
void clbi_write_fail_rest(clb_link *link, int result);

/* ---- stream.c */
void clbi_stream_ref(clb_stream *stream);
void clbi_stream_unref(clb_stream *stream);
/* Like clbi_link_enter and clbi_link_leave, for clb_stream_close(). */
void clbi_stream_enter(clb_stream *stream);
void clbi_stream_leave(clb_stream *stream);
/* The two halves of a call of ready_cb, for which the lock is dropped. begin: lock held; a call of
 * the stream is inside from here on. end: lock NOT held. */
void clbi_stream_begin_ready(clb_stream *stream);
void clbi_stream_end_ready(clb_stream *stream);
/* lock held: the descriptor follows the queue. */
void clbi_stream_update_fd(clb_stream *stream);

/* ---- packet.c */
/* lock held; from the cache, or the heap: NULL = out of memory */
clb_packet *clbi_packet_new(clb_link *link);
/* lock held: back to the cache */
void clbi_packet_recycle(clb_link *link, clb_packet *packet);
/* lock NOT held: frees the buffer when it was not released, and the allocator references. */
void clbi_packet_drop_buffer(clb_packet *packet);
/* lock held: the peer gets its credit, once. true = there is something to be sent for it. */
bool clbi_packet_credit(clb_packet *packet);
/* lock NOT held: buffer, credit and packet of a whole list. */
void clbi_packets_drop(clb_link *link, struct clbi_queue *list);

/* ---- spill.c: host memory of the link for payloads that find no buffer */
int clbi_spill_alloc(clb_link *link, size_t size, struct clb_buf *out);
struct clb_allocator clbi_spill_allocator(clb_link *link);
void clbi_spill_clear(clb_link *link);

#endif
