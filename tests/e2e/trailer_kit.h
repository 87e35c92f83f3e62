/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of trailers and re-pitched rows share: packets as depthai sends them (wire section
 * 9.1), built byte by byte and without the library's writer; an allocator that books what it is
 * asked and sees every byte that was not to be written; a link and its peer, both driven by the test's
 * thread, so that it decides which bytes arrive together.
 */
#ifndef TESTS_TRAILER_KIT_H
#define TESTS_TRAILER_KIT_H

#include <clbridge/clbridge.h>
#include <pthread.h>

#include "check.h"
#include "peer.h"

#define SEC INT64_C(1000000000)
#define MS INT64_C(1000000)
#define TRAILER 24u /* type, size, end mark */
#define META_MAX 51200u

/* ---- bytes ------------------------------------------------------------------------------------- */

struct blob {
    uint8_t *data;
    size_t n, cap;
};

uint8_t *blob_more(struct blob *b, size_t n); /* n bytes more, to be filled */
void blob_put(struct blob *b, const void *data, size_t n);
void blob_byte(struct blob *b, int value);
void blob_le32(struct blob *b, uint32_t value);
/* Byte i is pixel_at(seed, i): with seed 0 the data of the real samples. */
void blob_pixels(struct blob *b, unsigned seed, size_t n);
void blob_mark(struct blob *b);
/* type, size, end mark */
void blob_tail(struct blob *b, int32_t type, uint32_t claimed);
/* The content of a file below tests/data. */
void blob_file(struct blob *b, const char *name);
void blob_free(struct blob *b);
uint8_t pixel_at(unsigned seed, size_t i);

/* Numbers that differ from run to run of the test in nothing but `state`. */
uint32_t pick(uint32_t *state, uint32_t below);

/* ---- metadata (wire section 9.2), n bytes of it in one well-formed value ------------------------- */

#define TYPE_UNKNOWN 4711
void meta_any(struct blob *b, size_t n);

/* An ImgFrame (wire section 9.3) by form; member numbers of frame_type as in that section. */
enum {
    FT_YUV420P = 2,
    FT_RGB888P = 7,
    FT_BGR888I = 10,
    FT_RAW16 = 14,
    FT_NV12 = 22,
    FT_GRAY8 = 30
};
struct meta_frame {
    int type;
    uint32_t width, height, stride, p1, p2, p3; /* offsets and stride: 0 = not set */
    int64_t seq;
    size_t pad; /* a string of so many bytes as a further member; 0 = none */
};
void meta_frame(struct blob *b, const struct meta_frame *f);
#define TYPE_FRAME 2

/* Whole packets: pixels, metadata, trailer. */
void pack(struct blob *b, unsigned seed, size_t pixels, const struct blob *meta, int32_t type);

/* ---- the allocator ----------------------------------------------------------------------------- */

#define MEM_UNWRITTEN 0xCC
#define MEM_GUARD 64u

struct mem {
    pthread_mutex_t lock;
    size_t fixed; /* every block has so many bytes, TOOBIG above; 0 = what is asked */
    size_t spare; /* and so many more */
    int limit;    /* NOBUFS while so many are out; 0 = no limit */
    bool stretch; /* a capacity above the payload is right */
    int calls, given, freed, released, refs, unrefs, toobig, nobufs;
    size_t last_written;       /* by the last release */
    struct clb_alloc_req last; /* of the last call */
};

void mem_init(struct mem *m);
struct clb_allocator mem_allocator(struct mem *m);
/* Everything came home. */
void mem_check(struct mem *m);
/* Nobody wrote to [from, to) of the block of this packet; to may be SIZE_MAX = its end. */
void mem_unwritten(const clb_packet *p, size_t from, size_t to);
size_t mem_size(const clb_packet *p);

/* ---- link and peer ----------------------------------------------------------------------------- */

struct rig {
    bool threaded; /* before rig_open(): the loop has a thread of its own */
    bool tcp;      /* likewise: over loopback */
    bool eager;    /* likewise: what comes before a stream is open does not stay in the socket */
    struct peer peer;
    clb_loop *loop;
    clb_link *link;
    clb_stream *s;
    struct mem mem;
};

/* The peer is there and has announced "a"; nothing is open. */
void rig_connect(struct rig *r, uint32_t window);
/* Opens stream "a"; sp->allocator is that of r->mem when it is not set. */
void rig_open(struct rig *r, clb_stream_params *sp, uint32_t window);
/* The same with the link's own pool. */
void rig_open_own(struct rig *r, clb_stream_params *sp, uint32_t window);
void rig_close(struct rig *r);
/* The link does what there is to do. */
void rig_turn(struct rig *r);
/* Bytes of the peer, at most `chunk` at once (0 = as many as go). */
void rig_push(struct rig *r, const void *data, size_t n, size_t chunk);
/* The bytes of one packet, header and payload. Waits for credit. */
void rig_bytes(struct rig *r, struct blob *all, const struct blob *b);
/* Sends them. */
void rig_send(struct rig *r, const struct blob *b, size_t chunk);
/* The first `cut` bytes of header and payload, a turn of the link, then the others. */
void rig_send_cut(struct rig *r, const struct blob *b, size_t cut);
/* The header of a packet of n bytes; the payload is the caller's business. */
void rig_send_header(struct rig *r, size_t n);
clb_packet *rig_read(struct rig *r);
/* Until everything that was sent has been taken by the link. */
void rig_arrived(struct rig *r, uint64_t packets);
/* Until the peer has all of its credit back. */
void rig_credited(struct rig *r);
clb_stream_stats rig_stats(const struct rig *r);
clb_packet_info info_of(const clb_packet *p);

void check_pixels(const void *data, unsigned seed, size_t n);
/* The packet has these pixels and this metadata, apart from each other. */
void check_split(const clb_packet *p, unsigned seed, size_t pixels, const struct blob *meta,
                 int32_t type, enum clb_metadata_status status);
/* The packet is these bytes, and nothing is believed of its trailer. */
void check_raw(const clb_packet *p, const struct blob *whole);

/* Runs a case and sees that it leaves no thread and no descriptor. */
#define RUN(f)                                                                                     \
    do {                                                                                           \
        const int fds = check_fds(), threads = check_threads();                                    \
        fprintf(stderr, "%s\n", #f);                                                               \
        f;                                                                                         \
        check_back_to(fds, threads);                                                               \
    } while (0)

#endif
