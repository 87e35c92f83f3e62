/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where `recv` puts frames and how it looks at them: host memory or an OpenCL device. Frames are
 * submitted in the order of arrival and collected in the same order.
 */
#ifndef TOOLS_RECV_H
#define TOOLS_RECV_H

#include <stdbool.h>

#include <clbridge/stream.h>

#include "args.h"
#include "npy_out.h"
#include "recv_about.h"
#include "report.h"

/* What --preprocess says; values of the library's enums, kept as numbers because this header knows no
 * OpenCL. */
struct recv_recipe {
    bool given;
    struct arg_size size;
    int fit, type, layout, order;
};

struct recv_setup {
    const char *requested; /* --memory */
    const char *select;    /* --device; NULL = any */
    bool verbose;
    bool has_image;
    struct recv_geometry geometry; /* of what the peer sends, when has_image */
    struct clb_image here;         /* how that is to lie in our memory */
    struct recv_recipe recipe;
    bool save_tensor;      /* results are wanted as they are, not as pictures */
    struct report *report; /* failures are reported there */
};

/* A frame that everything has been done with. The memory is valid until `put`. */
struct recv_frame {
    clb_packet_info info;
    const struct recv_about *about;
    const uint8_t *pixels; /* as the device sees them; NULL = not asked for */
    const uint8_t *rgb; /* the picture, 3 bytes per pixel, packed; NULL = not asked for, or none */
    struct arg_size rgb_size;
    const void *tensor; /* with save_tensor, in the place of rgb; NULL = none */
    size_t tensor_bytes;
    struct npy_shape shape;
    int64_t done_ns; /* when its kernel ended, 0 = no kernel */
};

struct recv_counters {
    uint64_t cl_copied_bytes, result_bytes;
    uint64_t hits, misses, poisoned, created, heap_allocs;
    uint32_t slots;
    size_t slot_bytes;
    const char *path;   /* "alloc-host", "host" */
    const char *device; /* NULL = none */
};

struct recv_backend;

struct recv_backend_ops {
    /* Before the link is there. */
    int (*open)(struct recv_backend **out, const struct recv_setup *setup);
    /* Memory for `slots` frames, of which `keep` are with the device at most. A pool that was made
     * before goes, and stays in the counters; nothing may be pending. */
    int (*make_pool)(struct recv_backend *b, size_t slot_bytes, uint32_t slots, uint32_t keep,
                     struct clb_allocator *out);
    /* Members reason, platform, device, driver_version of the event `memory`. */
    void (*describe)(struct recv_backend *b, struct json *j);
    /* Takes the packet over when it succeeds. There must be room. */
    int (*submit)(struct recv_backend *b, clb_packet **packet, bool want_pixels, bool want_result);
    bool (*has_room)(struct recv_backend *b);
    uint32_t (*pending)(struct recv_backend *b);
    bool (*oldest_done)(struct recv_backend *b); /* collect would not wait */
    int (*collect)(struct recv_backend *b, struct recv_frame *out);
    void (*put)(struct recv_backend *b); /* nobody looks at the collected frame any more */
    void (*get_counters)(struct recv_backend *b, struct recv_counters *out);
    void (*close)(struct recv_backend *b); /* b may be half open */
    bool write_only;                       /* the host must not read its memory */
};
/* int: 0, or EXIT_FAILED after the failure was reported. */

extern const struct recv_backend_ops recv_host_ops;
extern const struct recv_backend_ops recv_cl_ops; /* open answers NOSYS in a build without OpenCL */

/* ---- saving (recv_out.c) --------------------------------------------------------------------- */

enum recv_save { SAVE_NOTHING, SAVE_PNG, SAVE_Y4M, SAVE_RAW, SAVE_NPY };

struct recv_out {
    enum recv_save save;
    const char *dir;
    uint64_t every;
};

/* Makes the folder. */
int recv_out_open(struct recv_out *o, struct report *r);
/* Whether the frame of this sequence number is to be saved. */
bool recv_out_wants(const struct recv_out *o, uint64_t seq);
/* Writes the file and prints `saved`. */
int recv_out_frame(struct recv_out *o, struct report *r, const struct recv_frame *f);

#endif
