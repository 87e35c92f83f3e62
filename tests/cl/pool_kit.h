/* SPDX-License-Identifier: Apache-2.0 */
/* What the pool's tests share: frames with a known content, consumers that check it. */
#ifndef CLB_TEST_POOL_KIT_H
#define CLB_TEST_POOL_KIT_H

#include <check.h>
#include <clbridge/clbridge.h>
#include <stdatomic.h>

#include "double.h"
#include "device.h"

#define MS INT64_C(1000000)
#define SEC INT64_C(1000000000)

/* Byte i of frame n. */
static inline unsigned char kit_byte(uint64_t n, size_t i)
{
    return (unsigned char)(7 * i + 13 * (i >> 8) + 31 * n + 5);
}

struct kit {
    clb_cl_device *dev;
    clb_cl_pool *pool;
    struct clb_allocator a;
    cl_command_queue queue;
    size_t size, align;
};

/* What a kernel saw. */
struct kit_seen {
    uint64_t n;
    size_t size;
    atomic_uint good, bad;
};

void kit_log(void *priv, enum clb_log_level level,
             const char *msg); /* counts lines in *priv (atomic_uint) */

/* The device of the double. */
clb_cl_device *kit_device(bool caller_driven);
void kit_open(struct kit *k, bool caller_driven, uint32_t count, size_t size,
              enum clb_cl_fence fence);
void kit_close(struct kit *k);

int kit_alloc(struct kit *k, struct clb_buf *buf,
              int64_t wait_ns); /* with the buffer's reference */
void kit_fill(const struct clb_buf *buf, uint64_t n, size_t size);
/* alloc (waits up to 5 s), fill, release, frame; fails the test when any of it fails. */
clb_cl_frame *kit_frame(struct kit *k, uint64_t n);
/* On the double: a kernel on queue that waits for the frame and checks its content. *ev is a
 * reference of the caller's, or NULL. Flushed. */
void kit_consume(struct kit *k, cl_command_queue queue, clb_cl_frame *frame, struct kit_seen *seen,
                 struct dbl_gate *gate, cl_event *ev);

/* Runs double and worker (caller-driven) until neither has anything to do. */
void kit_settle(struct kit *k);
clb_cl_pool_stats kit_stats(const struct kit *k);
/* The cases of a program, in order, with their times. CLB_TEST_ONLY runs those whose name contains it;
 * when that is none, the program fails. */
struct kit_test {
    const char *name;
    void (*fn)(void);
};
#define KIT_TEST(fn)                                                                               \
    {                                                                                              \
#fn, fn                                                                                    \
    }
void kit_run(const struct kit_test *tests, size_t n);

/* Until what is there is nothing, at most 10 s. */
void kit_wait_gone(unsigned (*what)(void));

#endif
