/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/cl.h: OpenCL device, pool, frame (libclbridge-cl).
 *
 * THE LIFE OF A FRAME
 *
 *     clb_cl_pool_create()         buffers are created, mapped and touched once (a pool that learns
 *       |                          its size: by the worker, when the first size was asked for)
 *       |
 *     the pool's allocator         hands a mapped buffer to the transport: no OpenCL call
 *       |
 *     clb_stream_read()            the packet is the application's; the host may look at the bytes
 *       |
 *     clb_cl_frame_from_packet()   unmaps (enqueue and flush, nothing waits); credit to the peer
 *       |
 *     kernels                      wait on clb_cl_frame_ready(), use clb_cl_frame_mem() or
 *       |                          clb_cl_frame_set_arg(), and tell clb_cl_frame_used()
 *       |
 *     clb_cl_frame_unref()         the last one retires the buffer: no OpenCL call here. The worker
 *                                  maps it again when everything that used it has ended
 *
 * ORDER BETWEEN COMMANDS AND BUFFERS
 *
 *  - Every command that reads a frame must wait on its `ready` event (in its wait list, or behind
 *    such a command in an in-order queue). The host pointer is dead from the release on, and the
 *    same buffer may be mapped somewhere else the next time.
 *  - Give the events of all readers to clb_cl_frame_used() before the last unref. It is the only
 *    way that also holds when a command fails: on some runtimes a failed command cuts the order of
 *    its queue, and a marker behind it proves nothing.
 *  - As a second net every registered queue (the device's own queue, an imported one, those of
 *    clb_cl_device_add_queue()) is fenced with a marker at the last unref, unless the pool was made
 *    with CLB_CL_FENCE_EXPLICIT. Register only queues that read frames: a slow registered queue
 *    holds all buffers.
 *  - Commands must have been flushed to the device (clFlush) by the time of the last unref when
 *    their queue is not registered: a command that is never flushed holds its buffer for ever.
 *  - When a command that used a frame failed, its buffer is replaced by a new one (`renewed`).
 *
 * A pool's handles, streams, packets, frames and the device may be destroyed in any order: memory
 * goes with the last reference. Calls of OpenCL are made by the creating calls, by release, by the
 * functions of a frame that say so, and by the device's worker; never by alloc, free or unref.
 */
#ifndef CLBRIDGE_CL_H
#define CLBRIDGE_CL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <clbridge/buffer.h>
#include <clbridge/common.h>
#include <clbridge/image.h>
#include <clbridge/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clb_cl_device clb_cl_device;
typedef struct clb_cl_pool clb_cl_pool;
typedef struct clb_cl_frame clb_cl_frame;

/** Where the frames of a pool lie. This version has ALLOC_HOST; AUTO is ALLOC_HOST. */
enum clb_cl_mem {
    CLB_CL_MEM_AUTO,       /* chosen per device, see clb_cl_device_info.memory_auto */
    CLB_CL_MEM_ALLOC_HOST, /* CL_MEM_ALLOC_HOST_PTR, mapped while the host writes */
    CLB_CL_MEM_USE_HOST,   /* CL_MEM_USE_HOST_PTR over memory of the library */
    CLB_CL_MEM_SVM_FINE,   /* fine-grain shared virtual memory */
    CLB_CL_MEM_USM_HOST,   /* unified shared memory of the host */
    CLB_CL_MEM_STAGED,     /* mapped staging memory and one counted copy to a device buffer */
    CLB_CL_MEM_COUNT       /* not a path: the number of them */
};

/**
 * The name of a memory path.
 * @owner static string. @thread any. @blocks no. @return "auto", "alloc-host", ...; else "unknown".
 */
CLB_API const char *clb_cl_mem_name(enum clb_cl_mem mem);
/**
 * The memory path of a name.
 * @owner name is borrowed during the call. @thread any. @blocks no.
 * @return a value of enum clb_cl_mem, or CLB_ERR_INVAL when there is none of that name.
 */
CLB_API int clb_cl_mem_from_name(const char *name);

/** What the last unref of a frame waits for before its buffer is mapped again. */
enum clb_cl_fence {
    CLB_CL_FENCE_ALL,      /* `ready`, the `used` events and a marker on every registered queue */
    CLB_CL_FENCE_EXPLICIT, /* `ready` and the `used` events only */
};

/* ---- device ---------------------------------------------------------------------------------- */

/** What was measured about one memory path. */
struct clb_cl_probe {
    int ran;         /* 0 = not measured (always, in this version); the rest is 0 then */
    int correct;     /* 1 = a kernel saw what the host wrote, every time */
    int copies;      /* 1 = the cost grows with the size: the driver copies */
    double small_us; /* map, unmap and wait for 64 KiB, microseconds */
    double large_us; /* the same for 16 MiB, microseconds */
};

typedef struct clb_cl_device_info {
    uint32_t index;            /* place in clb_cl_device_list(); UINT32_MAX = imported */
    char platform[128];        /* name of the platform; all texts are NUL-terminated, cut to fit */
    char name[128];            /* of the device */
    char vendor[128];          /* of the device */
    char type[16];             /* "gpu", "accelerator", "cpu", "other" */
    char driver_version[64];   /* as the driver spells it */
    char opencl_version[64];   /* of the device, as the driver spells it */
    int unified_memory;        /* 1 = the device says that it shares memory with the host */
    int svm_coarse;            /* 1 = coarse-grain buffers */
    int svm_fine;              /* 1 = fine-grain buffers */
    int usm_host;              /* 1 = cl_intel_unified_shared_memory */
    int fp16;                  /* 1 = cl_khr_fp16 */
    int usable;                /* 0 = see `error` */
    uint64_t base_align_bytes; /* of memory objects, bytes */
    uint64_t max_alloc_bytes;  /* largest buffer, bytes; may differ from run to run */
    uint64_t global_mem_bytes; /* memory of the device, bytes; may differ from run to run */
    enum clb_cl_mem memory_auto;                 /* what CLB_CL_MEM_AUTO takes on this device */
    char memory_reason[128];                     /* why */
    char error[128];                             /* "" when usable */
    struct clb_cl_probe probe[CLB_CL_MEM_COUNT]; /* by enum clb_cl_mem */
    cl_platform_id platform_id;                  /* borrowed from the runtime; NULL = none */
    cl_device_id device_id;                      /* likewise */
} clb_cl_device_info;

typedef struct clb_cl_device_params {
    size_t struct_size; /* sizeof of this struct; 0 = its first version */
    /* Imported objects, retained: all three or none (NULL). Nothing is ever enqueued on an imported
     * queue but the markers of its fences: it counts as registered. */
    cl_context context;     /* NULL = one of the device's own */
    cl_device_id device;    /* NULL = chosen by `select` */
    cl_command_queue queue; /* NULL = one of the device's own, in order */
    const char *select; /* part of the name of the platform or device, case ignored; NULL or "" =
                               the first GPU, else accelerator, else CPU. Ignored when imported */
    /* A folder for compiled kernels, so that the next process starts faster; NULL = none. It is made
     * (mode 0700) when its last part is missing; it must belong to this user (or to root) and be
     * writable by nobody else, for what is in it will run. At most 256 files of at most 64 MiB,
     * "NAME-HASH.clbin"; those used longest ago go. A damaged file, or one made for another device,
     * driver or version, is noticed, removed and made again. Several processes may share it. Files
     * that cannot be written are logged and do no harm. Copied. */
    const char *cache_dir;
    int caller_driven; /* 0 = own worker thread "clb-cl"; 1 = none, see clb_cl_device_poll() */
    struct clb_status *status; /* filled when the call fails; NULL = not wanted. Borrowed */
    struct clb_log log; /* zero = silent; copied, priv must stay valid until the last pool and frame
                           are gone */
} clb_cl_device_params;
#ifndef __cplusplus
#define clb_cl_device_params(...)                                                                  \
    (&(const clb_cl_device_params){.struct_size = sizeof(clb_cl_device_params), __VA_ARGS__})
#endif

/**
 * Lists the devices of all platforms, in the order of the loader. A platform that fails is one
 * entry with usable 0 and its error. No context is created.
 * @owner out: an array of cap elements of elem_size bytes by the caller; may be NULL when cap is 0.
 * @thread any. @blocks while the runtimes start (up to seconds the first time in a process).
 * @return CLB_OK with *count entries found (at most cap are written); NODEV (*count is 0; status,
 *         which may be NULL, names the folders to look at); INVAL; NOMEM.
 */
CLB_API CLB_NODISCARD int clb_cl_device_list(clb_cl_device_info *out, size_t elem_size, size_t cap,
                                             size_t *count, struct clb_status *status);

/**
 * Opens a device: context, private queues and worker.
 * @owner *out by the caller; imported objects are retained. params NULL = all defaults.
 * @thread any. @blocks while the runtime starts (up to seconds the first time in a process).
 * @return CLB_OK; INVAL (partly imported, queue of another context or device; cache_dir cannot be made
 *         or is not this user's alone), NODEV (none, or none of that name: status tells what there is),
 *         NOMEM, CL.
 */
CLB_API CLB_NODISCARD int clb_cl_device_create(clb_cl_device **out,
                                               const clb_cl_device_params *params);

/**
 * Fills at most `size` bytes of *out. dev NULL: all zero.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_cl_device_get_info(const clb_cl_device *dev, clb_cl_device_info *out, size_t size);

/**
 * The context, imported or the device's own.
 * @owner borrowed while the device lives. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API cl_context clb_cl_device_context(const clb_cl_device *dev);
/**
 * The OpenCL device.
 * @owner borrowed while the device lives. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API cl_device_id clb_cl_device_id(const clb_cl_device *dev);
/**
 * The queue for kernels: the imported one, else an in-order queue of the device's own. Registered.
 * @owner borrowed while the device lives. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API cl_command_queue clb_cl_device_queue(const clb_cl_device *dev);

/**
 * Registers a further queue of the same context whose commands read frames: the last unref of every
 * frame puts a marker there and flushes it.
 * @owner the queue is retained until it is removed or the device ends. @thread any. @blocks no.
 * @return CLB_OK; INVAL (not a queue of this device's context), BUSY (registered already), TOOBIG
 *         (more than 16), CL.
 */
CLB_API CLB_NODISCARD int clb_cl_device_add_queue(clb_cl_device *dev, cl_command_queue queue);

/**
 * Ends that. Frames that are retired later are not fenced by this queue: drain first, or record
 * events. The device's own queue may be removed too.
 * @owner the reference to the queue is dropped. @thread any. @blocks no.
 * @return CLB_OK; INVAL (not registered).
 */
CLB_API int clb_cl_device_remove_queue(clb_cl_device *dev, cl_command_queue queue);

/**
 * Caller-driven devices: does the worker's work, waiting at most timeout_ns for something to do.
 * @owner nothing. @thread any; several at once take turns. @blocks up to timeout_ns.
 * @return CLB_OK (something was done), AGAIN (timeout 0), TIMEOUT, STATE (not caller-driven),
 *         INVAL.
 */
CLB_API int clb_cl_device_poll(clb_cl_device *dev, int64_t timeout_ns);

/**
 * Waits until all retired buffers are mapped again (or gone, when their pool is), and until no
 * buffer is being replaced: pools that learn have the size that was asked for by then, as far as
 * their buffers are at home. A replacement that failed and is tried again later is not waited for,
 * nor are frames that are still referenced. Caller-driven: does the work itself.
 * @owner nothing. @thread any. @blocks up to timeout_ns.
 * @return CLB_OK, AGAIN (timeout 0), TIMEOUT, INVAL.
 */
CLB_API int clb_cl_device_drain(clb_cl_device *dev, int64_t timeout_ns);

/**
 * Ends the device: waits at most 2 s for retired buffers, then leaves them with one log line. Pools
 * and frames that are out stay valid: worker, queues and context end with the last of them, a
 * moment later and on another thread.
 * @owner *dev is consumed. @thread any. @blocks up to about 2 s.
 */
CLB_API void clb_cl_device_destroy(clb_cl_device **dev);

/* ---- pool ------------------------------------------------------------------------------------ */

typedef struct clb_cl_pool_params {
    size_t struct_size;  /* sizeof of this struct; 0 = its first version */
    size_t buf_size;     /* bytes per buffer, rounded up to align; larger requests are refused all
                            the same; 0 = learned: see "pools that learn" below */
    uint32_t count;      /* buffers; 0 = 8. Enough that nothing spills: what fits the window of the
                            streams, and those in frames or waiting to be mapped again */
    size_t max_bytes;    /* of all buffers; 0 = 512 MiB or count * buf_size, the larger. Learned:
                            counted in whole pages, and all that a peer can make the pool take */
    enum clb_cl_mem mem; /* 0 = AUTO */
    size_t align; /* of the mapped memory, bytes, power of two; 0 = 64. Runtimes that align less
                            are refused: Oclgrind needs 16 */
    int host_readable;       /* 0 = mapped for writing alone: what the host reads before it wrote is
                            undefined; 1 = mapped for reading and writing (the driver may copy) */
    enum clb_cl_fence fence; /* 0 = CLB_CL_FENCE_ALL */
    struct clb_status *status; /* filled when the call fails; NULL = not wanted. Borrowed */
} clb_cl_pool_params;
#ifndef __cplusplus
#define clb_cl_pool_params(...)                                                                    \
    (&(const clb_cl_pool_params){.struct_size = sizeof(clb_cl_pool_params), __VA_ARGS__})
#endif

typedef struct clb_cl_pool_stats {
    enum clb_cl_mem mem;   /* the path in use, never AUTO */
    char reason[128];      /* why */
    uint32_t slots;        /* buffers that exist now */
    uint32_t free;         /* of these: mapped and waiting */
    uint32_t filling;      /* out by alloc, not released: being filled, queued, held as a packet */
    uint32_t held;         /* released and neither a frame nor freed yet */
    uint32_t device;       /* held by frames */
    uint32_t retired;      /* waiting for the commands that used them */
    uint32_t remapping;    /* being mapped, also for the first time */
    size_t slot_bytes;     /* size of a buffer: buf_size, rounded up to align; learned: of the
                              largest so far, 0 = none yet */
    uint64_t poisoned;     /* buffers given up because an unmap or a map failed, so far */
    uint64_t renewed;      /* buffers replaced because a command that used them failed, so far */
    uint64_t allocs;       /* requests answered with a buffer */
    uint64_t alloc_misses; /* requests answered NOBUFS, TOOBIG or CLOSED */
    uint64_t cl_copied_bytes;       /* pixels copied by OpenCL commands of ours: STAGED */
    uint64_t driver_copy_suspected; /* 1 = a measurement says so; 0 in this version */
    uint64_t hist[32];              /* time from the last unref until mapped again: entry i counts
                                [2^i, 2^(i+1)) ns, the last one everything longer */
    uint64_t created;               /* buffers created so far */
    uint64_t heap_allocs;           /* heap allocations by the pool since its creation */
    uint64_t request_hist[32];      /* sizes that alloc was asked for (capacity): entry i counts
                                [2^i, 2^(i+1)) bytes, entry 0 also 0, the last one everything
                                longer. All requests: allocs + alloc_misses, the hit rate is
                                allocs / (allocs + alloc_misses) */
    size_t wanted_bytes; /* size that buffers are to have: more than slot_bytes while they grow */
    size_t bytes;        /* of all buffers that exist now, as created: at most max_bytes */
} clb_cl_pool_stats;

/*
 * POOLS THAT LEARN (buf_size 0)
 *
 * Creation makes no buffer and does not wait. alloc notes the largest size it was asked for; the
 * worker (caller-driven: clb_cl_device_poll(), clb_cl_device_drain(), an alloc that may wait)
 * makes buffers of that size, whole pages, as many as fit into max_bytes, at least one and at most
 * `count`. Until there is one the answer is NOBUFS: under CLB_FULL_BLOCK the first packets spill,
 * under a drop policy they are dropped and counted. TOOBIG is what can never be: more than
 * max_bytes, or than the device allows in one buffer; such a request is not remembered.
 *
 * The pool grows and never shrinks. Larger buffers take the place of idle ones, and of others when
 * they come home: a buffer that is filled, held or used by a command is never touched. Meanwhile
 * requests get the buffer used last of those that are large enough. At no time do old and new
 * buffers together exceed max_bytes. A size that is new is tried with one buffer first: when it
 * cannot be had, the smaller ones go on (and sizes between are learned), and it is tried again
 * after 10 ms, then less and less often, at last once a second.
 *
 * A peer that announces a large packet once makes all buffers that large, and fewer when max_bytes
 * has no room for `count` of them: set max_bytes (or the link's max_payload) to count times the
 * largest size that is to be believed. Alignment is not tested at creation: where a runtime aligns
 * less than `align` (one line in the log), requests are answered INVAL.
 */

/**
 * Creates a pool: its buffers are created, mapped and touched before this returns (a pool that
 * learns has none yet).
 * @owner *out by the caller; it may outlive the device's handle. params NULL = all defaults.
 * @thread any. @blocks for the first touch of the memory (milliseconds per MiB), at most some
 * seconds for the runtime; learned: no.
 * @return CLB_OK; INVAL (alignment; less aligned than asked by the runtime), TOOBIG (more than the
 *         device allows in one buffer, or than max_bytes), NOMEM, NOSYS (memory path),
 *         TIMEOUT, CL. params->status tells the cause.
 */
CLB_API CLB_NODISCARD int clb_cl_pool_create(clb_cl_pool **out, clb_cl_device *dev,
                                             const clb_cl_pool_params *params);

/**
 * The allocator of a pool, for links and streams. It holds no reference by itself: valid while the
 * pool lives. Every copy that the library stores takes one. alloc answers NOBUFS when all buffers
 * are out (learned: that are large enough), TOOBIG when the request's capacity exceeds buf_size
 * (learned: what max_bytes and the device allow), CLOSED once the pool is destroyed. On a
 * caller-driven device an alloc that may wait does the worker's work.
 * @owner borrowed: valid while the pool lives. @thread any. @blocks no.
 * @return the allocator, by value; all zero for NULL.
 */
CLB_API struct clb_allocator clb_cl_pool_allocator(clb_cl_pool *pool);

/**
 * Fills at most `size` bytes of *out. pool NULL: all zero.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_cl_pool_get_stats(const clb_cl_pool *pool, clb_cl_pool_stats *out, size_t size);

/**
 * Ends the pool: idle buffers go now, the others when they come home.
 * @owner *pool is consumed. @thread any. @blocks no (caller-driven: does the worker's work once).
 */
CLB_API void clb_cl_pool_destroy(clb_cl_pool **pool);

/* ---- frame ----------------------------------------------------------------------------------- */

/**
 * Releases a packet of a pool and makes a frame of it: the buffer is unmapped (enqueue and flush),
 * credit goes back to the peer. Info, metadata and image come along.
 * @owner *packet is consumed on success (set to NULL), *out (one reference) is the caller's. On
 * failure the packet is unchanged and the caller's.
 * @thread any, one at a time per packet. @blocks no (OpenCL: enqueues and flushes).
 * @return CLB_OK; INVAL (not a packet of an OpenCL pool), STATE (released before), NOMEM, CL.
 */
CLB_API CLB_NODISCARD int clb_cl_frame_from_packet(clb_cl_frame **out, clb_packet **packet);

/**
 * Makes a frame of a buffer that clb_packet_release() handed out.
 * @owner on success the buffer belongs to the frame: no clb_buf_free(). *out is the caller's. On
 * failure the buffer stays the caller's.
 * @thread any. @blocks no, no OpenCL call.
 * @return CLB_OK; INVAL (not a buffer of this pool), STATE (not released, or a frame already),
 *         NOMEM.
 */
CLB_API CLB_NODISCARD int clb_cl_frame_from_buf(clb_cl_frame **out, clb_cl_pool *pool,
                                                const struct clb_buf *buf);

/**
 * One more reference.
 * @owner the reference is the caller's. @thread any. @blocks no. @return frame; NULL for NULL.
 */
CLB_API clb_cl_frame *clb_cl_frame_ref(clb_cl_frame *frame);

/**
 * Drops a reference; the last one retires the buffer and frees metadata and packet. Makes no OpenCL
 * call and may run in anybody's destructor (caller-driven devices that were destroyed before are
 * the one exception: then the memory object is released here).
 * @owner *frame is consumed. @thread any. @blocks no.
 */
CLB_API void clb_cl_frame_unref(clb_cl_frame **frame);

/**
 * The buffer. Later memory paths may have none (SVM, USM): clb_cl_frame_set_arg() serves them all.
 * @owner borrowed while the frame lives. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API cl_mem clb_cl_frame_mem(const clb_cl_frame *frame);
/**
 * The size of the pixels; what lies behind them in the buffer is undefined.
 * @owner nothing. @thread any. @blocks no. @return bytes; 0 for NULL.
 */
CLB_API size_t clb_cl_frame_size(const clb_cl_frame *frame);
/**
 * The event that every reader must wait on; never NULL for a frame.
 * @owner borrowed while the frame lives. @thread any. @blocks no. @return NULL for NULL.
 */
CLB_API cl_event clb_cl_frame_ready(const clb_cl_frame *frame);

/**
 * Makes the frame an argument of a kernel, whatever its memory path (clSetKernelArg and the like).
 * @owner the frame must live until the kernel is enqueued; see clb_cl_frame_used().
 * @thread one at a time per kernel object. @blocks no. @return CLB_OK, INVAL, CL.
 */
CLB_API int clb_cl_frame_set_arg(const clb_cl_frame *frame, cl_kernel kernel, cl_uint index);

/**
 * Layout of the pixels: the packet's, or what clb_cl_frame_set_image() said.
 * @owner borrowed while the frame lives. @thread any. @blocks no. @return NULL = unknown.
 */
CLB_API const struct clb_image *clb_cl_frame_image(const clb_cl_frame *frame);
/**
 * Says how the pixels lie; NULL = unknown.
 * @owner image is copied. @thread one at a time per frame, and not while others look at its image.
 * @blocks no.
 * @return CLB_OK; INVAL, TOOBIG (does not fit the frame), NOSYS (format).
 */
CLB_API CLB_NODISCARD int clb_cl_frame_set_image(clb_cl_frame *frame,
                                                 const struct clb_image *image);

/**
 * As clb_packet_get_info(); a frame made by clb_cl_frame_from_buf() knows its size only.
 * @owner out by the caller. @thread any. @blocks no.
 */
CLB_API void clb_cl_frame_get_info(const clb_cl_frame *frame, clb_packet_info *out, size_t size);
/**
 * As clb_packet_metadata(); a frame made by clb_cl_frame_from_buf() has none.
 * @owner borrowed while the frame lives. @thread any. @blocks no. @return NULL with *size 0 = none.
 */
CLB_API const void *clb_cl_frame_metadata(const clb_cl_frame *frame, size_t *size);

/**
 * Records commands that read the frame: its buffer is not written again before all of them ended.
 * @owner the events are retained. @thread any. @blocks no.
 * @return CLB_OK; INVAL; NOMEM or CL (an event could not be recorded: finish the command before the
 *         frame is unreferenced; its buffer will be replaced).
 */
CLB_API int clb_cl_frame_used(clb_cl_frame *frame, cl_uint n, const cl_event *events);

/**
 * Records everything that was enqueued on the queue so far (puts a marker there and flushes).
 * @owner the queue is borrowed during the call. @thread any. @blocks no.
 * @return CLB_OK; INVAL; NOMEM or CL, as clb_cl_frame_used().
 */
CLB_API int clb_cl_frame_used_on(clb_cl_frame *frame, cl_command_queue queue);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_CL_H */
