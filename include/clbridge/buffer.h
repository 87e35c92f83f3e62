/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/buffer.h: the allocator contract.
 *
 * THE LIFE OF A BUFFER
 *
 * The library never decides where a frame lives. When the header of a packet has arrived, the
 * stream's allocator is asked for memory, and the transport writes the payload there: there is no
 * other copy of the bytes on the host. A buffer has exactly one owner at any instant:
 *
 *     alloc()                    the transport owns the buffer and writes [data, data + capacity)
 *       |
 *       +-- the payload is incomplete (lost link), refused or dropped -------> free()
 *       |
 *     packet in the queue        the stream owns it; a drop policy may still drop it -> free()
 *       |
 *     clb_stream_read()          the application owns the packet and may read the bytes
 *       |
 *       +-- clb_packet_free() without release -------------------------------> free()
 *       |
 *     clb_packet_release()       release(): the host is done, the consumer may start (an OpenCL
 *       |                        pool unmaps here); credit goes back to the peer; the buffer is
 *       |                        now the application's, and clb_packet_data() is NULL
 *       |
 *     clb_buf_free()             free(): the buffer comes home
 *
 * Whose allocator: the stream's; if that is not set, the link's; if neither is, a host pool of the
 * link's own, which lives as long as its last packet.
 *
 * "release" is everything except freeing; "free" is the memory. free() is called exactly once for
 * every successful alloc(), whether or not release() was called or succeeded.
 *
 * RULES FOR AN ALLOCATOR
 *
 *  - alloc() is called with what the peer announced, after the size was checked against all
 *    limits. From the I/O thread wait_ns is 0: it must answer at once. From clb_stream_read(), for
 *    a payload that was received elsewhere because no buffer was free, it may wait up to wait_ns,
 *    which is what is left of the read's deadline, in slices of at most 20 ms.
 *  - CLB_ERR_NOBUFS means "none free at the moment": the stream's full-queue policy decides what
 *    happens to the payload. Any other error, NULL, a block smaller than `capacity` or misaligned
 *    means: the payload is read and dropped, counted in alloc_failed, and its credit returned.
 *    A block that was handed out but refused by the library is given back with free().
 *  - CLB_ERR_TOOBIG for a packet with metadata, whose pixels may be fewer than `capacity`, is no
 *    failure yet: alloc() is asked again, for less, or for what it really is when the packet is in.
 *  - The library writes only within [data, data + capacity). Bytes beyond the pixels are
 *    undefined, but between re-pitched rows nothing is written.
 *  - `context` is yours: it travels with the packet and is never looked into.
 *  - The struct is copied by value beside every packet, so a packet can outlive stream, link and
 *    pool. ref() is called once per stored copy and once per buffer out, unref() when that ends.
 *    Both are set or neither; with both NULL, opaque must stay valid until the last free().
 *    alloc and free are needed: one without the other is INVAL.
 *  - The callbacks must not call functions of the library on the same link, stream or packet.
 */
#ifndef CLBRIDGE_BUFFER_H
#define CLBRIDGE_BUFFER_H

#include <clbridge/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A piece of memory on loan from an allocator. */
struct clb_buf {
    void *data;    /* where the host may write; NULL after release */
    size_t size;   /* usable bytes at data, >= the request's capacity */
    void *context; /* the allocator's own token, e.g. a slot of an OpenCL pool */
};

/** What is asked of an allocator. Valid during the call only. */
struct clb_alloc_req {
    size_t payload;          /* bytes announced by the peer, metadata included; may be 0 */
    size_t expect;           /* pixel bytes foreseen, 0 = unknown */
    size_t capacity;         /* bytes that may be written at data: payload; less when what is behind
                                the pixels goes elsewhere; more only when rows are re-pitched */
    size_t align;            /* of data, bytes, a power of two, >= 64 unless the stream asked for
                                less */
    uint32_t stream_id;      /* the number on the wire */
    const char *stream_name; /* NUL-terminated, opaque bytes, never NULL */
    int64_t wait_ns;         /* may block this long at most; 0 = must not block */
};

/**
 * The callbacks of an allocator. Plain data, copied by value; all zero = "not set".
 *
 *  alloc    @thread the I/O thread (wait_ns 0) or the caller of clb_stream_read(); calls for
 *           different links, or for a spilled packet, may overlap.
 *           @return CLB_OK with *out filled, CLB_ERR_NOBUFS, or another error.
 *  release  Optional. The host is done with the bytes [0, written); the consumer may read from
 *           now on. @thread the caller of clb_packet_release(). A failure leaves the packet as it
 *           was. It may change buf->data (an unmapped pointer must not be used again).
 *  free     The buffer comes home, released or not, exactly once. @thread any, also the I/O thread
 *           (drops, lost links); must not block.
 *  ref, unref  Optional lifetime of opaque. @thread any.
 */
struct clb_allocator {
    int (*alloc)(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out);
    int (*release)(void *opaque, struct clb_buf *buf, size_t written);
    void (*free)(void *opaque, struct clb_buf *buf);
    void (*ref)(void *opaque);
    void (*unref)(void *opaque);
    void *opaque; /* the first argument of all of them, never looked into */
};

/**
 * Plain heap memory, aligned to the request (64 bytes at least), not recycled.
 * @owner static, nothing to free. @thread any. @blocks no. @return the allocator, by value.
 */
CLB_API struct clb_allocator clb_host_allocator(void);

/**
 * Gives back a buffer that clb_packet_release() handed out: calls allocator->free(), then drops the
 * reference that was taken for the buffer. Accepts a zeroed buf (nothing happens). *buf is zeroed.
 * @owner buf returns to the allocator. @thread any. @blocks as allocator->free().
 */
CLB_API void clb_buf_free(const struct clb_allocator *allocator, struct clb_buf *buf);

/** Recycled host memory: after warm-up no allocation, no page fault per frame. */
typedef struct clb_host_pool clb_host_pool;

typedef struct clb_host_pool_params {
    size_t struct_size; /* sizeof of this struct; 0 = its first version */
    size_t buf_size;    /* bytes per slot; 0 = learned: grows to the largest request seen */
    uint32_t count;     /* slots; 0 = 8 */
    size_t max_bytes;   /* of all slots together; 0 = 256 MiB */
    size_t align;       /* of every slot, bytes, power of two; 0 = 64 */
} clb_host_pool_params;
#ifndef __cplusplus
#define clb_host_pool_params(...)                                                                  \
    (&(const clb_host_pool_params){.struct_size = sizeof(clb_host_pool_params), __VA_ARGS__})
#endif

typedef struct clb_host_pool_stats {
    uint32_t slots;        /* slots that exist now */
    uint32_t free;         /* of these, waiting for use */
    size_t slot_bytes;     /* size of a slot, bytes */
    uint64_t allocs;       /* requests answered with a buffer */
    uint64_t alloc_misses; /* requests answered NOBUFS or TOOBIG */
    uint64_t heap_allocs;  /* heap allocations by the pool since its creation */
} clb_host_pool_stats;

/**
 * Creates a pool. Slots are allocated when first needed and recycled last-in first-out.
 * alloc answers NOBUFS when all slots are out, TOOBIG when the request exceeds a fixed buf_size or
 * max_bytes.
 * @owner *out by the caller. params are copied. @thread any. @blocks no.
 * @return CLB_OK, INVAL, NOMEM.
 */
CLB_API CLB_NODISCARD int clb_host_pool_create(clb_host_pool **out,
                                               const clb_host_pool_params *params);

/**
 * The allocator of a pool. It holds no reference by itself: valid while the pool lives. Every copy
 * that the library stores takes one, so streams and packets may outlive clb_host_pool_destroy().
 * @owner borrowed: valid while the pool lives. @thread any. @blocks no.
 * @return the allocator, by value; all zero for NULL.
 */
CLB_API struct clb_allocator clb_host_pool_allocator(clb_host_pool *pool);

/**
 * Fills at most `size` bytes of *out. pool NULL: all zero.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_host_pool_get_stats(const clb_host_pool *pool, clb_host_pool_stats *out,
                                     size_t size);

/**
 * Ends the pool: idle slots are freed now, the others when they come home.
 * @owner *pool is consumed. @thread any. @blocks no.
 */
CLB_API void clb_host_pool_destroy(clb_host_pool **pool);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_BUFFER_H */
