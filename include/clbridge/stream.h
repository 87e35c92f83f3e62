/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/stream.h: streams and packets.
 *
 * A stream is a named channel of packets in one or both directions. One write of the peer is one
 * packet. The writer announces a window (bytes that may be unreleased, at most 64 packets); credit
 * comes back when the reader releases.
 *
 * WHEN THE APPLICATION IS SLOWER THAN THE PEER (`on_full`)
 *
 *  CLB_FULL_BLOCK        Nothing is lost. Credit returns when a packet is released or freed, so
 *                        only this stream's sender slows down. When the allocator has no buffer,
 *                        the payload goes to host memory of the link ("spill") and other streams go
 *                        on; clb_stream_read() then asks the allocator again and copies once
 *                        (spill_bytes), in the order of arrival: while a spilled packet waits,
 *                        later ones of its stream spill too. Into the link's own host pool, which
 *                        serves streams without an allocator, a spill costs no copy. What can spill
 *                        is bounded by the windows that the peers announced
 *                        (clb_link_params.max_link_window).
 *  CLB_FULL_DROP_OLDEST  For live pictures. Credit returns at once; with queue_len packets waiting
 *                        or no buffer the oldest unread packets give way (dropped_oldest, and told
 *                        in dropped_before of the next one); when all buffers are held, the
 *                        incoming packet is dropped (dropped_newest).
 *  CLB_FULL_DROP_NEWEST  Credit returns at once; with queue_len packets waiting or no buffer the
 *                        incoming packet is dropped (dropped_newest).
 *
 * With a drop policy a packet can wait in host memory as well (one that came before the stream was opened,
 * or the first one with metadata). When the packets behind it have all buffers, it gives way itself
 * (DROP_OLDEST), or the newest of them does (DROP_NEWEST).
 *
 * With CLB_FULL_BLOCK nothing spills that arrives after clb_stream_open() was called, when the
 * allocator has a buffer for every packet that fits the window plus those that are kept beyond
 * release (OpenCL: kernels running, waiting to be mapped again).
 *
 * BEFORE THE STREAM IS OPENED a peer may write already. Until the first stream of a link is opened,
 * for first_open_ns of clb_link_params at most, and while the peer owes us no answer but that to a
 * PING, payloads stay in the socket: who opens at once copies nothing. After that, payloads of
 * streams that are not opened spill, until their window is used up. Opening finds all of them, in
 * order; with a drop policy it gives their credit back and keeps the newest queue_len.
 *
 * METADATA BEHIND THE PIXELS (`trailer`)
 *
 *  A depthai camera sends | pixels | metadata | 24 bytes of trailer | as one packet. Where the pixels
 *  end is known only when its last byte is in, so that it is foreseen: from the configured `image`,
 *  or from the packets before. The transport writes the pixels to the allocator's memory and the
 *  rest to host memory (clb_packet_metadata()).
 *   - Pixels of a constant size are foreseen exactly: nothing is moved and nothing read back.
 *   - Pixels of a varying size (encoded pictures) are foreseen too small, and the few bytes that are
 *     missing are written behind them (moved_bytes).
 *   - Pixels that shrink unforeseen have drawn metadata into the allocator's memory, which is read
 *     back (readback_bytes). With `write_only` it is not: the packet comes with its pixels, without
 *     metadata, and CLB_METADATA_BAD.
 *   - The first packet is received in host memory and copied once by clb_stream_read(), as a spilled
 *     one, unless `image` is configured.
 *  A trailer that contradicts itself makes its packet come as it is, raw, with CLB_METADATA_BAD, when
 *  the allocator has room for all of it (alloc_failed otherwise); the link and later packets are not
 *  affected. With `write_only` the last bytes of a raw packet may be missing: what there was no room for
 *  while it was thought to have a trailer (at least 24 bytes).
 *
 * ROW PITCH (`dst_pitch_align`, `dst_plane_align`)
 *
 *  With one of these the rows and planes are placed while they are received, each at its own offset,
 *  in the layout of clb_image_init() for these alignments, and what lies between them is not
 *  written. The layout that the peer sends is `image`, or what the metadata of the packets before
 *  says; while it is not known, and where the transport cannot scatter, packets go through host
 *  memory (spill_bytes). So does a packet whose metadata turn out to say something else, after it was
 *  read back (readback_bytes); with `write_only`, or when it was thought to have padding, which was
 *  thrown away, that one comes with CLB_METADATA_BAD and without an image. A packet that is not
 *  `image`, without metadata to say what it is, comes as it is. A row takes as many bytes as the
 *  alignments say, however narrow the peer says it is: bound what your allocator gives.
 *
 * AFTER clb_stream_close() payloads of that stream are read and dropped, and their credit given
 * back, until it is opened again; one that is arriving at that moment is completed first.
 *
 * Streams that share a pool can starve one another, and one thread that reads them in turn without
 * a deadline can hang: give each its own pool, or buffers for the sum of the windows.
 */
#ifndef CLBRIDGE_STREAM_H
#define CLBRIDGE_STREAM_H

#include <clbridge/buffer.h>
#include <clbridge/common.h>
#include <clbridge/image.h>
#include <clbridge/link.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clb_stream clb_stream;
typedef struct clb_packet clb_packet;

/** What happens when the application is slower than the peer, see above. */
enum clb_full {
    CLB_FULL_BLOCK,       /* nothing is lost, the sender waits */
    CLB_FULL_DROP_OLDEST, /* the newest pictures are kept */
    CLB_FULL_DROP_NEWEST, /* the oldest pictures are kept */
};

/** Where the pixels of a packet end. */
enum clb_trailer {
    CLB_TRAILER_NONE,    /* the whole packet is pixels */
    CLB_TRAILER_DEPTHAI, /* pixels, metadata, trailer */
    CLB_TRAILER_AUTO,    /* decided by the first packet */
};

/** What was found behind the pixels. */
enum clb_metadata_status {
    CLB_METADATA_NONE, /* no trailer; always with CLB_TRAILER_NONE */
    CLB_METADATA_OK,   /* metadata was split from the pixels */
    CLB_METADATA_BAD,  /* what is there contradicts itself or is too large */
};

/** What a packet is in a message of several packets, which are delivered one by one. */
enum clb_part {
    CLB_PART_WHOLE,      /* a message of its own */
    CLB_PART_SPLIT_HEAD, /* no pixels; announces a message that follows in part_count raw packets */
    CLB_PART_SPLIT,      /* one of these, without a trailer of its own */
    CLB_PART_GROUP_HEAD, /* announces part_count messages that belong together */
    CLB_PART_GROUP,      /* one of these */
};

/** One piece of a gather write. */
struct clb_iovec {
    const void *base; /* may be NULL when len is 0 */
    size_t len;       /* bytes */
};

typedef struct clb_stream_params {
    size_t struct_size; /* sizeof of this struct; 0 = its first version */
    const char *name;   /* 1 to 51 bytes, copied; NULL = the first announced stream that is not
                         open */
    struct clb_allocator allocator; /* zero = the link's */
    size_t align;                   /* of packet data, bytes, power of two; 0 = 64 */
    enum clb_full on_full;          /* 0 = CLB_FULL_BLOCK */
    uint32_t queue_len;      /* unread packets kept by the drop policies, at most 64; 0 = 4 */
    size_t write_window;     /* bytes that we want to have unreleased at most, rounded up to 64: the
                            largest packet that can be written; 0 = read only */
    int64_t open_timeout_ns; /* of clb_stream_open(); 0 = 5 s, < 0 = never */
    enum clb_trailer trailer; /* 0 = CLB_TRAILER_NONE; see above */
    size_t max_metadata;      /* bytes accepted behind the pixels, at most 1 MiB; 0 = 51200 */
    struct clb_image image;   /* what the peer sends; fmt 0 = unknown */
    size_t dst_pitch_align;   /* rows are placed at multiples of so many bytes, power of two; 0 = as
                                 they come, or packed when dst_plane_align is set */
    size_t dst_plane_align;   /* planes likewise; 0 = planes follow each other */
    int write_only;  /* 1 = the host must never read the memory, not even to repair a guess about
                        where the pixels end; 0 = it may */
    int write_async; /* 0 = clb_stream_write() returns when the peer has acknowledged; 1 = when the
                        transport has the bytes */
    void (*ready_cb)(void *priv, clb_stream *stream); /* a packet or the end waits; on the loop's
                                thread, no lock held; carries no data; must not block; may call
                                clb_stream_read() with timeout 0; NULL = none */
    void *priv;                                       /* of ready_cb */
} clb_stream_params;
#ifndef __cplusplus
#define clb_stream_params(...)                                                                     \
    (&(const clb_stream_params){.struct_size = sizeof(clb_stream_params), __VA_ARGS__})
#endif

/**
 * Opens a stream. If the peer has announced the name, returns at once (also on a link that has just
 * broken while unread packets wait), else it waits for the answer to its own announcement.
 * name NULL waits for the first announced, unopened stream. Both roles announce what they open: the
 * name counts as opened from the call on, and packets that arrive meanwhile go through the
 * allocator; if the call fails they are dropped.
 * @owner *out by the caller; the handle may outlive the link. The allocator is copied and
 * referenced.
 * @thread any. @blocks up to open_timeout_ns.
 * @return CLB_OK; INVAL, BUSY (already open), TIMEOUT, TOOBIG (refused by the peer: too many
 *         streams or window), IO (refused by the peer without a reason), CLOSED, LOST, NOMEM, STATE.
 */
CLB_API int clb_stream_open(clb_stream **out, clb_link *link, const clb_stream_params *params);

/**
 * Closes the handle. Unread packets are freed and credited; packets that are held stay valid and
 * give their credit when they are released. The caller guarantees that no new call starts; calls
 * inside are woken and waited for.
 * @owner *stream is consumed. @thread any; deferred from library threads. @blocks briefly.
 */
CLB_API void clb_stream_close(clb_stream **stream);

/**
 * The next packet, in the order of arrival. A packet that spilled is moved here: the allocator is
 * asked until the deadline, and the bytes are copied by the caller's thread. When the allocator
 * fails with anything but NOBUFS the packet is dropped (alloc_failed) and the next one is looked
 * at.
 * @owner *out by the caller. @thread any. @blocks up to timeout_ns.
 * @return CLB_OK; AGAIN (timeout 0), TIMEOUT, CANCELED (clb_stream_interrupt()), NOBUFS (a spilled
 *         packet waits and the allocator has no buffer; it stays first), CLOSED after an orderly
 *         end and LOST after a broken link (both only when all complete packets have been read),
 *         STATE (caller-driven loop, other thread), INVAL.
 */
CLB_API CLB_NODISCARD int clb_stream_read(clb_stream *stream, clb_packet **out, int64_t timeout_ns);

/**
 * Writes one packet from n pieces. Returns when the peer acknowledged it; with write_async when the
 * transport has it (a failure shows at the next call). timeout_ns covers the wait for credit and
 * turn; once the first byte is out only progress_timeout_ns counts. A packet that is never
 * acknowledged is a TIMEOUT of this call alone: the link lives on, and the packet's credit stays
 * used.
 * @owner the memory is borrowed until return. @thread any. @blocks up to timeout_ns, see above.
 * @return CLB_OK; TOOBIG (larger than the window, at once), AGAIN, TIMEOUT (nothing was sent; or,
 *         after the last byte, no answer within progress_timeout_ns), IO (the peer refused the
 *         packet), CLOSED, LOST, INVAL, NOMEM, STATE (the stream has no write_window; caller-driven
 *         loop, other thread).
 */
CLB_API CLB_NODISCARD int clb_stream_write(clb_stream *stream, const struct clb_iovec *iov,
                                           size_t n, int64_t timeout_ns);

/** What clb_stream_flush() waits for. */
enum clb_flush {
    CLB_FLUSH_ACKED,    /* the peer has received all packets */
    CLB_FLUSH_RELEASED, /* the peer is done with all packets: the whole window is free */
};

/**
 * Waits until every packet written so far is acknowledged, or released, by the peer. Also tells the
 * failure of an asynchronous write.
 * @owner nothing. @thread any. @blocks up to timeout_ns.
 * @return CLB_OK; AGAIN (timeout 0), TIMEOUT, CLOSED, LOST, STATE (caller-driven loop, other
 *         thread), INVAL.
 */
CLB_API int clb_stream_flush(clb_stream *stream, enum clb_flush what, int64_t timeout_ns);

/**
 * The read in progress, or else the next one, returns CANCELED once.
 * @owner nothing. @thread any. @blocks no.
 */
CLB_API void clb_stream_interrupt(clb_stream *stream);

/**
 * A descriptor for poll() that is readable while a packet or the end of the stream waits. Never
 * read it. After a NOBUFS it stays silent for 2 ms. On a caller-driven loop it follows what is
 * dispatched: poll clb_loop_fd() too.
 * @owner borrowed until the stream is closed. @thread any. @blocks no.
 * @return the descriptor, the same one each time; INVAL, IO (no descriptor is left).
 */
CLB_API int clb_stream_fd(clb_stream *stream);

/**
 * The name of the stream: opaque bytes.
 * @owner borrowed until the stream is closed. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API const char *clb_stream_name(const clb_stream *stream);
/**
 * The number of the stream on the wire.
 * @owner nothing. @thread any. @blocks no. @return 0xDEADDEAD = none yet, also for NULL.
 */
CLB_API uint32_t clb_stream_id(const clb_stream *stream);

typedef struct clb_stream_stats {
    uint64_t packets;        /* complete packets that arrived, dropped ones included */
    uint64_t bytes;          /* of these, pixels and metadata */
    uint64_t metadata_bytes; /* of these, metadata and trailers */
    uint64_t dropped_oldest; /* unread packets that gave way */
    uint64_t dropped_newest; /* incoming packets that found no place */
    uint64_t alloc_failed;   /* packets dropped because the allocator failed */
    uint64_t spilled;        /* packets that went to host memory first */
    uint64_t spill_bytes;    /* bytes copied out of there */
    uint64_t moved_bytes;    /* bytes written twice: read along with a header (small packets, when
                                packets and answers alternate), or to repair a guess */
    uint64_t readback_bytes; /* bytes read from allocator memory to repair a guess */
    uint64_t bad_metadata;   /* packets with an invalid trailer */
    uint64_t queued;         /* unread now */
    uint64_t held;           /* read and neither released nor freed now */
    uint64_t full_events;    /* times the window was used up, the queue full, or no buffer free; the
                                first is logged */
    uint64_t written;        /* packets given to the transport */
    uint64_t written_bytes;  /* of these, payload */
    uint64_t acked;          /* of these, acknowledged */
    uint64_t released;       /* of these, released */
    uint64_t credit_wait_ns; /* time that writes waited for credit, ns */
} clb_stream_stats;

/**
 * Fills at most `size` bytes of *out. stream NULL: all zero.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_stream_get_stats(const clb_stream *stream, clb_stream_stats *out, size_t size);

/* ---- packet ---------------------------------------------------------------------------------- */

typedef struct clb_packet_info {
    uint64_t seq;         /* arrivals on this stream, from 0, dropped ones included */
    size_t size;          /* pixel bytes; with re-pitched rows all that the layout spans */
    size_t metadata_size; /* bytes */
    enum clb_metadata_status metadata_status;
    int64_t peer_ns;         /* send time by the peer's monotonic clock, 0 = unknown */
    int64_t first_byte_ns;   /* header complete, ns of our CLOCK_MONOTONIC */
    int64_t last_byte_ns;    /* payload complete, likewise */
    uint64_t dropped_before; /* packets dropped between the previous delivered one and this */
    size_t moved_bytes;      /* see clb_stream_stats */
    size_t readback_bytes;   /* likewise */
    int spilled;             /* 1 = went through host memory */
    uint32_t stream_id;      /* number on the wire */
    int32_t object_type; /* behind the metadata, as the peer numbers it, see clb_depthai_parse();
                            0 with CLB_METADATA_NONE */
    size_t total;        /* bytes of the packet on the wire: pixels, metadata, trailer */
    size_t claimed_metadata; /* bytes that the trailer claims; nonsense, perhaps, with
                            CLB_METADATA_BAD */
    enum clb_part part;      /* whether this packet is a part of something */
    uint32_t part_index;     /* of SPLIT and GROUP: from 0 */
    uint32_t part_count;     /* of all but WHOLE: the packets that follow, or followed, the head */
} clb_packet_info;

/*
 * A packet is a unique token: packets are released and freed in any order, exactly once, also when
 * stream and link are gone.
 */

/**
 * Where the pixels lie. Memory of an OpenCL pool may lie elsewhere the next time: never keep it.
 * @owner borrowed until release or free. @thread one at a time per packet. @blocks no.
 * @return NULL after clb_packet_release(), and for NULL.
 */
CLB_API void *clb_packet_data(const clb_packet *packet);
/**
 * The size of the pixels, without metadata when a trailer was recognised. Readable until free.
 * @owner nothing. @thread one at a time per packet. @blocks no. @return bytes; 0 for NULL.
 */
CLB_API size_t clb_packet_size(const clb_packet *packet);
/**
 * The metadata, in host memory apart from the pixels; *size (may be NULL) is set in any case.
 * @owner borrowed until free. @thread one at a time per packet. @blocks no.
 * @return its first byte, 64-byte aligned; NULL with *size 0 = none.
 */
CLB_API const void *clb_packet_metadata(const clb_packet *packet, size_t *size);
/**
 * The allocator's token of this buffer (clb_buf.context).
 * @owner as the allocator says; readable until free. @thread one at a time per packet. @blocks no.
 * @return the token, which may be NULL; NULL for NULL.
 */
CLB_API void *clb_packet_context(const clb_packet *packet);
/**
 * Layout of the pixels in the buffer: what the metadata says, or else what the stream was opened
 * with, with the rows where they were placed. It fits the size of the packet.
 * @owner borrowed until free. @thread one at a time per packet. @blocks no. @return NULL = unknown.
 */
CLB_API const struct clb_image *clb_packet_image(const clb_packet *packet);
/**
 * Fills at most `size` bytes of *out. packet NULL: all zero. Readable until free.
 * @owner out by the caller. @thread one at a time per packet. @blocks no.
 */
CLB_API void clb_packet_get_info(const clb_packet *packet, clb_packet_info *out, size_t size);
/**
 * The allocator that the data came from, for clb_buf_free(). It holds no reference by itself, but a
 * buffer handed out by clb_packet_release() does, so it serves that buffer after the packet's end
 * too.
 * @owner borrowed while the packet or its buffer lives. @thread one at a time per packet.
 * @blocks no.
 * @return the allocator, by value; all zero for NULL.
 */
CLB_API struct clb_allocator clb_packet_allocator(const clb_packet *packet);

/**
 * The host is done with the pixels: calls allocator.release(), returns credit to the peer, hands
 * the buffer out in *out (free it with clb_buf_free()). Info, image and metadata stay readable.
 * @owner *out by the caller; the packet stays the caller's. @thread one at a time per packet.
 * @blocks as allocator.release().
 * @return CLB_OK; STATE (second call); INVAL; the error of release(): then the packet is unchanged,
 *         and no credit was given.
 */
CLB_API CLB_NODISCARD int clb_packet_release(clb_packet *packet, struct clb_buf *out);

/**
 * Always the last word: frees the packet, and its buffer unless that was released; returns the
 * credit.
 * @owner *packet is consumed. @thread one at a time per packet, any. @blocks as allocator.free().
 */
CLB_API void clb_packet_free(clb_packet **packet);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_STREAM_H */
