/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soak: lanes that run one episode after the other, for minutes. An episode is one connection:
 * a sender (the library's device role, behind a listener), a cable (a relay that knows where packets
 * begin, and can die at any byte), a receiver (the host role), two streams. It ends orderly or with
 * the cable; afterwards the books of both sides are compared. All randomness comes from one seed.
 */
#ifndef TESTS_SOAK_H
#define TESTS_SOAK_H

#include <clbridge/cl.h>
#include <clbridge/clbridge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

#define LANES 4
#define STREAMS 2
#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define MAX_PACKETS 64u  /* unreleased packets of a stream (wire section 6.2) */
#define MAX_REQUESTS 16u /* unanswered requests of a link (wire section 4.2) */

/* Prints what was going on and ends the process with status 1. */
struct episode;
void soak_fail(const struct episode *ep, const char *file, int line, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 4, 5)));
#define FAIL(ep, ...) soak_fail((ep), __FILE__, __LINE__, __VA_ARGS__)
#define EXPECT(ep, cond, ...)                                                                      \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            FAIL((ep), __VA_ARGS__);                                                               \
        }                                                                                          \
    } while (0)

/* ---- pattern.c: what frames contain ------------------------------------------------------------ */

struct rng {
    uint64_t s;
};
struct rng rng_seed(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
uint64_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);
/* lo to hi, both included */
uint32_t rng_range(struct rng *r, uint32_t lo, uint32_t hi);
bool rng_percent(struct rng *r, uint32_t percent);

/* A frame is the little-endian words base + i * PATTERN_STEP, and its base comes from all that names
 * it and from its size: bytes of another frame, or too many or few of its own, show. */
#define PATTERN_STEP UINT32_C(0x9E3779B1)
uint32_t pattern_base(uint32_t lane, uint32_t stream, uint32_t epoch, uint32_t frame, size_t size);
void pattern_fill(void *data, size_t n, uint32_t base);
/* The first byte that differs; n = none does. */
size_t pattern_differs(const void *data, size_t n, uint32_t base);

/* Behind the pixels of a camera: metadata that come from the base of the frame, and a trailer (wire section
 * 9.1). Its size; at most CAMERA_MORE. */
#define CAMERA_MORE 512u
#define CAMERA_TYPE 4711
size_t camera_fill(void *out, uint32_t base);
bool camera_differs(const void *metadata, size_t n, uint32_t base);

/* ---- cable.c: the connection between the two --------------------------------------------------- */

enum cut_how { CUT_NONE, CUT_CLOSE, CUT_RESET, CUT_SILENT, CUT_HALF };
enum cut_where { CUT_ANYWHERE, CUT_BETWEEN, CUT_IN_HEADER, CUT_IN_PAYLOAD };

struct cut {
    enum cut_how how;
    enum cut_where where; /* in the direction to the receiver, unless `back` */
    bool back;            /* in the direction to the sender: no payloads to speak of there */
    uint32_t after_ms;    /* the first place of that kind after so long */
    uint32_t offset;      /* header: bytes that still pass. Payload: per mille of it */
};

struct cable {
    struct cut cut;
    uint64_t seed;
    uint16_t port;        /* where the receiver connects to */
    uint16_t device_port; /* the sender's listener */
    atomic_bool counting; /* after_ms has begun: the streams are open */
    atomic_bool enough;   /* the episode is over: what still stands may be closed */
    pthread_t thread;
    int listen_fd;
    /* After cable_join. */
    uint64_t writes_through; /* WRITEs whose last byte was given to the receiver's socket */
    bool was_cut;            /* the cut took place */
    uint64_t stalls;
};
void cable_start(struct cable *c);
void cable_join(struct cable *c);

/* ---- device_check.c: what the OpenCL device sees ----------------------------------------------- */

#define CHECK_SLOTS 4

struct device_rig {
    clb_cl_device *dev;
    cl_program program;
};
void device_rig_start(struct device_rig *rig);
void device_rig_end(struct device_rig *rig);

/* One per stream: kernels are enqueued here, looked at later. */
struct checker {
    clb_cl_device *dev;
    cl_command_queue queue;
    bool own_queue; /* not registered: only `used` events hold the buffers */
    cl_kernel kernel;
    struct {
        cl_mem mem;
        cl_event done; /* NULL = not in use */
        bool read_back;
        size_t size;
        uint32_t base, frame;
        uint32_t result[64 * 2];
        uint8_t *bytes;
    } slot[CHECK_SLOTS];
    uint32_t first, used;
};
void checker_start(struct checker *c, const struct device_rig *rig, size_t max_frame,
                   bool own_queue);
void checker_end(struct checker *c);
enum check_way { CHECK_KERNEL, CHECK_READ, CHECK_READ_BLOCKING };
/* Enqueues a look at the whole frame behind its `ready`, records it as a use, and drops the frame
 * before the look has taken place. Looks that are CHECK_SLOTS behind are finished first. */
void checker_look(struct checker *c, const struct episode *ep, clb_cl_frame **frame,
                  enum check_way way, uint32_t base, uint32_t number);
/* The oldest look, if there is one. */
void checker_finish_one(struct checker *c, const struct episode *ep);
void checker_finish(struct checker *c, const struct episode *ep);

/* ---- episodes ---------------------------------------------------------------------------------- */

enum memory { MEMORY_CL, MEMORY_HOST_POOL, MEMORY_LINK };

/* A stream of a lane, for the whole run: its memory, and how it looks at frames. */
struct channel {
    char name[16];
    enum memory memory;
    size_t max_frame; /* bytes; a buffer of its pool has CAMERA_MORE more */
    size_t window;
    clb_cl_pool *cl_pool;
    clb_host_pool *host_pool;
    struct checker checker;
    uint64_t pool_heap; /* of its pool at the first rest */
    uint32_t slots;
};

/* One stream during one episode. */
struct run {
    struct episode *ep;
    struct channel *ch;
    uint32_t index;
    enum clb_full on_full;
    uint32_t queue_len;
    bool write_async;
    bool camera; /* its packets have metadata, but for those that try out the window */
    pthread_t writer, reader;
    clb_stream *tx, *rx;
    /* The window is tried out while nobody reads: asked by the writer, parked by the reader. */
    atomic_int probe;
    /* writer */
    uint64_t write_ok, write_bytes, commands_in;
    int write_end; /* why it stopped: CLB_OK = asked to, and everything was released */
    clb_stream_stats tx_stats;
    /* reader */
    uint64_t delivered, delivered_bytes, dropped_seen, commands_out;
    int read_end;
    clb_packet *left_over; /* outlives stream and link */
    clb_stream_stats rx_stats;
};
enum { PROBE_NONE, PROBE_ASKED, PROBE_PARKED };

enum ending { END_BY_DEVICE, END_BY_HOST, END_BY_CUT };

struct episode {
    struct lane *lane;
    uint32_t number; /* the epoch of its frames */
    enum ending ending;
    uint32_t duration_ms;
    bool hasty; /* links with a short idle limit: the cable will fall silent */
    struct cable cable;
    atomic_bool stop_writing; /* orderly: finish, have everything released */
    clb_link *host, *device;
    atomic_int host_downs;
    struct run run[STREAMS];
    pthread_t device_thread;
    int64_t began_ms;
};

struct lane {
    uint32_t index;
    struct channel channel[STREAMS];
    clb_listener *listener[2];         /* [1]: of links with a short idle limit */
    clb_loop *host_loop, *device_loop; /* NULL = each link its own */
    pthread_t thread;
    struct rng rng;
    uint32_t episodes;
};

/* sender.c */
void *sender_main(void *episode); /* accepts the link, runs the writers, closes */
/* receiver.c */
void *reader_main(void *run);
/* episode.c */
void lane_start(struct lane *lane, uint32_t index);
void lane_end(struct lane *lane);
void episode_run(struct lane *lane);
/* All buffers of the lane's pools are home; within 10 s. */
void lane_check_pools(struct lane *lane, bool first);
const char *ending_name(const struct episode *ep);

/* ---- test_soak.c ------------------------------------------------------------------------------- */

struct soak {
    uint64_t seed;
    int slack; /* limits are multiplied with this: sanitizers are slow */
    struct device_rig rig;
    clb_loop *shared_loop;
    atomic_bool stop, rest; /* the end; a pause of all lanes between episodes */
    atomic_uint_fast64_t sent, delivered, dropped, spilled, bytes, looked_at, device_looks, probes,
        metadata, bad_metadata, interrupts, stalls, alloc_failed, commands, slowest_open,
        longest_pause; /* ms */
    atomic_uint_fast64_t ended[3], cut[5];
};
extern struct soak soak;
/* Between two of its steps a lane asks whether it should hurry to its end. */
static inline bool soak_hurry(void)
{
    return atomic_load(&soak.stop) || atomic_load(&soak.rest);
}
static inline void soak_count(atomic_uint_fast64_t *n, uint64_t by)
{
    atomic_fetch_add_explicit(n, by, memory_order_relaxed);
}

#endif
