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
 *  CLB_FULL_BLOCK        Nothing is lost. Credit returns when a packet is released or freed, so only
 *                        this stream's sender slows down. When the allocator has no buffer, the
 *                        payload goes to host memory of the link ("spill") and other streams go on;
 *                        clb_stream_read() then asks the allocator again and copies once
 *                        (spill_bytes). There is no spill when the allocator has a buffer for every
 *                        packet that fits the window plus those the application keeps beyond release.
 *  CLB_FULL_DROP_OLDEST  For live pictures. Credit returns at once; the oldest unread packet gives
 *                        way (dropped_oldest); when all buffers are held, the incoming one is dropped
 *                        (dropped_newest).
 *  CLB_FULL_DROP_NEWEST  Credit returns at once; with queue_len packets waiting or no buffer the
 *                        incoming packet is dropped (dropped_newest).
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

enum clb_full { CLB_FULL_BLOCK, CLB_FULL_DROP_OLDEST, CLB_FULL_DROP_NEWEST };

/** Where the pixels of a packet end. */
enum clb_trailer {
    CLB_TRAILER_NONE,    /* the whole packet is pixels */
    CLB_TRAILER_DEPTHAI, /* pixels, metadata, trailer */
    CLB_TRAILER_AUTO,    /* decided by the first packet */
};

enum clb_metadata_status { CLB_METADATA_NONE, CLB_METADATA_OK, CLB_METADATA_BAD };

/** One piece of a gather write. */
struct clb_iovec {
    const void *base;
    size_t len;
};

typedef struct clb_stream_params {
    size_t struct_size;
    const char
        *name; /* at most 51 bytes; NULL = the first announced stream that is not open. Copied */
    struct clb_allocator allocator; /* zero = the link's */
    size_t align;                   /* of packet data, bytes, power of two; 0 = 64 */
    enum clb_full on_full;          /* 0 = CLB_FULL_BLOCK */
    uint32_t queue_len; /* unread packets kept by the drop policies, at most 64; 0 = 4 */
    size_t
        write_window; /* bytes that we want to have unreleased at most, rounded up to 64; 0 = read
                            only */
    int64_t open_timeout_ns; /* 0 = 5 s */
    enum clb_trailer trailer;
    size_t max_metadata;    /* bytes; 0 = 51200 */
    struct clb_image image; /* what the peer sends; fmt 0 = unknown */
    size_t dst_pitch_align; /* rows are placed at multiples of this; 0 = rows as they come */
    size_t dst_plane_align; /* planes likewise */
    int write_only;         /* 1 = the memory must never be read by the host */
    int write_async;        /* 1 = clb_stream_write() returns when the transport has the bytes */
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
 * name NULL waits for the first announced, unopened stream.
 * @owner *out by the caller; the handle may outlive the link. The allocator is copied and referenced.
 * @thread any. @blocks up to open_timeout_ns.
 * @return CLB_OK; INVAL, BUSY (already open), TIMEOUT, TOOBIG (refused by the peer: too many streams
 *         or window), NOSYS (trailer and re-pitch in this version), CLOSED, LOST, NOMEM, STATE.
 */
CLB_API int clb_stream_open(clb_stream **out, clb_link *link, const clb_stream_params *params);

/**
 * Closes the handle. Unread packets are freed and credited; packets that are held stay valid. The
 * caller guarantees that no new call starts; calls inside are woken and waited for.
 * @owner *stream is consumed. @thread any; deferred from library threads. @blocks briefly.
 */
CLB_API void clb_stream_close(clb_stream **stream);

/**
 * The next packet, in the order of arrival.
 * @owner *out by the caller. @thread any. @blocks up to timeout_ns.
 * @return CLB_OK; AGAIN (timeout 0), TIMEOUT, CANCELED (clb_stream_interrupt()), NOBUFS (a spilled
 *         packet waits and the allocator has no buffer; it stays first), CLOSED after an orderly end
 *         and LOST after a broken link (both only when all complete packets have been read), STATE.
 */
CLB_API CLB_NODISCARD int clb_stream_read(clb_stream *stream, clb_packet **out, int64_t timeout_ns);

/**
 * Writes one packet from n pieces. Returns when the peer acknowledged it; with write_async when the
 * transport has it (a failure shows at the next call). timeout_ns covers the wait for credit and
 * turn; once the first byte is out only progress_timeout_ns counts.
 * @owner the memory is borrowed until return. @thread any. @blocks up to timeout_ns, see above.
 * @return CLB_OK; TOOBIG (larger than the window, at once), AGAIN, TIMEOUT (nothing was sent; or, after
 *         the last byte, no answer within progress_timeout_ns), CLOSED, LOST, INVAL, STATE.
 */
CLB_API CLB_NODISCARD int clb_stream_write(clb_stream *stream, const struct clb_iovec *iov,
                                           size_t n, int64_t timeout_ns);

enum clb_flush { CLB_FLUSH_ACKED, CLB_FLUSH_RELEASED };

/**
 * Waits until every packet written so far is acknowledged, or released, by the peer.
 * @thread any. @blocks up to timeout_ns. @return CLB_OK, AGAIN, TIMEOUT, CLOSED, LOST, STATE, INVAL.
 */
CLB_API int clb_stream_flush(clb_stream *stream, enum clb_flush what, int64_t timeout_ns);

/** The read in progress, or else the next one, returns CANCELED once. @thread any. @blocks no. */
CLB_API void clb_stream_interrupt(clb_stream *stream);

/**
 * A descriptor that is readable while a packet or the end of the stream waits. Never read it.
 * After a NOBUFS it stays silent for 2 ms.
 * @owner borrowed until the stream is closed. @thread any. @blocks no. @return descriptor or error.
 */
CLB_API int clb_stream_fd(clb_stream *stream);

/** @owner borrowed until the stream is closed. @thread any. @blocks no. NULL for NULL. */
CLB_API const char *clb_stream_name(const clb_stream *stream);
/** The number on the wire, 0xDEADDEAD = none. @thread any. @blocks no. */
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
    uint64_t moved_bytes;    /* bytes written twice to repair a guess */
    uint64_t readback_bytes; /* bytes read from allocator memory to repair a guess */
    uint64_t bad_metadata;   /* packets with an invalid trailer */
    uint64_t queued;         /* unread now */
    uint64_t held;           /* read and neither released nor freed now */
    uint64_t full_events;    /* times the window was used up, the queue full, or no buffer free */
    uint64_t written;        /* packets given to the transport */
    uint64_t written_bytes;
    uint64_t acked;          /* of these, acknowledged */
    uint64_t released;       /* of these, released */
    uint64_t credit_wait_ns; /* time that writes waited for credit */
} clb_stream_stats;

/** Fills at most `size` bytes of *out. @thread any. @blocks no. */
CLB_API void clb_stream_get_stats(const clb_stream *stream, clb_stream_stats *out, size_t size);

/* ---- packet ---------------------------------------------------------------------------------- */

typedef struct clb_packet_info {
    uint64_t seq;         /* arrivals on this stream, from 0, dropped ones included */
    size_t size;          /* pixel bytes */
    size_t metadata_size; /* bytes */
    enum clb_metadata_status metadata_status;
    int64_t peer_ns;         /* send time by the peer's monotonic clock, 0 = unknown */
    int64_t first_byte_ns;   /* header complete, our CLOCK_MONOTONIC */
    int64_t last_byte_ns;    /* payload complete */
    uint64_t dropped_before; /* packets dropped between the previous delivered one and this */
    size_t moved_bytes;      /* see clb_stream_stats */
    size_t readback_bytes;
    int spilled; /* 1 = went through host memory */
    uint32_t stream_id;
    int32_t object_type; /* behind the metadata, as the peer numbers it; meaningful with
                            CLB_METADATA_OK only, see clb_depthai_parse() */
} clb_packet_info;

/**
 * Where the pixels lie; NULL after clb_packet_release().
 * @owner borrowed until release or free. @thread one at a time per packet (all of this section).
 */
CLB_API void *clb_packet_data(const clb_packet *packet);
/** Pixel bytes, without metadata when a trailer was recognised. Valid until free. */
CLB_API size_t clb_packet_size(const clb_packet *packet);
/** Host memory, 64-byte aligned, apart from the pixels; NULL and 0 = none. Valid until free. */
CLB_API const void *clb_packet_metadata(const clb_packet *packet, size_t *size);
/** The allocator's token of this buffer. Valid until free. */
CLB_API void *clb_packet_context(const clb_packet *packet);
/** Layout of the pixels, NULL = unknown. @owner borrowed until free. */
CLB_API const struct clb_image *clb_packet_image(const clb_packet *packet);
/** Fills at most `size` bytes of *out. */
CLB_API void clb_packet_get_info(const clb_packet *packet, clb_packet_info *out, size_t size);
/** The allocator that the data came from; valid while the packet lives. */
CLB_API struct clb_allocator clb_packet_allocator(const clb_packet *packet);

/**
 * The host is done with the pixels: calls allocator.release(), returns credit to the peer, hands the
 * buffer out in *out (free it with clb_buf_free()). Info, image and metadata stay readable.
 * @owner *out by the caller; the packet stays the caller's. @blocks as allocator.release().
 * @return CLB_OK; STATE (second call); the error of release(), then the packet is unchanged.
 */
CLB_API CLB_NODISCARD int clb_packet_release(clb_packet *packet, struct clb_buf *out);

/**
 * Always the last word: frees the packet, and its buffer unless that was released; returns the credit.
 * @owner *packet is consumed. @thread any. @blocks as allocator.free().
 */
CLB_API void clb_packet_free(clb_packet **packet);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_STREAM_H */
