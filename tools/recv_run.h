/* SPDX-License-Identifier: Apache-2.0 */
/* State of one `recv`: its options, what it receives, what it counted. One link is recv_run.c, one after
 * the other are recv_links.c. */
#ifndef TOOLS_RECV_RUN_H
#define TOOLS_RECV_RUN_H

#include "endpoint.h"
#include "recv.h"
#include "verify.h"

struct recv_options {
    const char *uri, *listen, *stream, *device, *preprocess, *out;
    int format;  /* index into PATTERN_FORMATS, -1 = unknown */
    int trailer; /* index into RECV_TRAILERS */
    int memory, on_full, verify, save, crc, frames, json, verbose, reconnect;
    struct arg_size size; /* width 0 = unknown */
    uint64_t pitch, pitch_align, count, slots, queue, every, seed, reconnect_max;
    int64_t timeout_ns, idle_timeout_ns;
};

#define RECV_TRAILERS "auto|none|depthai"
enum { TRAILER_AUTO, TRAILER_NONE, TRAILER_DEPTHAI };
#define RECV_MEMORIES "auto|host|alloc-host|use-host|svm-fine|usm-host|staged"
enum { MEMORY_AUTO, MEMORY_HOST, MEMORY_ALLOC_HOST };

/* After this many frames counters are taken again: what is counted from then on is steady state. */
#define RECV_WARM_UP 100

struct recv_plan {
    size_t slot_bytes;
    uint32_t slots;
    uint32_t keep; /* with the device at most */
};

struct recv_run {
    struct recv_options opt;
    struct report report;
    struct endpoint endpoint;
    struct recv_setup setup;
    const struct recv_backend_ops *ops;
    struct recv_backend *backend;
    struct recv_out out;
    struct verify verify;

    /* Of the link that is there. */
    clb_stream_info announced;
    char others[256]; /* streams that were announced and not wanted, for a message */
    clb_stream *stream;
    uint64_t read, read_bytes; /* packets, pixels and metadata */
    uint64_t link_frames;      /* of these, done with */
    bool warm;                 /* RECV_WARM_UP frames are done with; then: */
    uint64_t warm_allocs;
    int64_t warm_faults;
    const char *ended_by;       /* NULL = not ended */
    struct report_failure lost; /* with --reconnect: why it ended, or could not be made */

    /* Of all links. */
    uint64_t links, attempts_failed;
    uint64_t in_vain;      /* attempts in a row that brought no frame */
    struct recv_plan plan; /* of the pool that is there; slots 0 = none */
    struct clb_allocator allocator;
    clb_stream_stats past; /* of the streams that have ended, as far as they are told */
    uint64_t taken;        /* packets, submitted */
    uint64_t frames;       /* of these, done with */
    uint64_t bytes, metadata_bytes, verified, verify_errors;
    char first_bad[200];
    struct latency latency;
    int64_t first_ns, last_ns; /* first byte in, last frame done with */
    int64_t cpu_start_ns, cpu_io_start_ns;
    int64_t cpu_ns, cpu_io_ns;            /* from the first link to the last, -1 = unknown */
    int64_t allocs_steady, faults_steady; /* -1 = unknown */
};

/* A misfit is noticed this late at most while no frame arrives. */
#define RECV_LOOK_MS 100

/* From connecting to the summary. Returns the exit status. */
int recv_run(struct recv_run *r);

/* Everything between `connected` and the end of the link; ended_by tells that. The link is still
 * there. */
void recv_one_link(struct recv_run *r);

/* The events (recv_print.c). */
void recv_print_stream(struct recv_run *r);
void recv_print_memory(struct recv_run *r);
void recv_print_frame(struct recv_run *r, const struct recv_frame *f, const uint32_t *crc,
                      enum verify_result verified);

void recv_print_reconnect(struct recv_run *r, uint64_t wait_ms);
void recv_print_summary(struct recv_run *r);

#endif
