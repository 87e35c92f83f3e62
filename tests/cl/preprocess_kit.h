/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of preprocessing: a device whose kernel calls are watched, noise pictures, frames made
 * of them, and the reference in double precision.
 */
#ifndef PREPROCESS_KIT_H
#define PREPROCESS_KIT_H

#include <clbridge/preprocess.h>

#include <stdatomic.h>
#include <stdbool.h>

#define SEC INT64_C(1000000000)

enum { GUARD = 0xC7, GUARD_BYTES = 256 };

extern bool small_only; /* an interpreter: small pictures, one thread */
extern clb_cl_device *dev;
extern clb_cl_pool *pool;
extern size_t pool_bytes;
extern double worst; /* largest difference from the unrounded reference so far */

extern atomic_int lines; /* log lines so far */
extern char last_line[512];
extern atomic_int launches; /* kernels enqueued so far */
extern atomic_bool dawdle;  /* sleep a little at each kernel argument */

__attribute__((format(printf, 3, 4), noreturn)) void fail_at(const char *file, int line,
                                                             const char *fmt, ...);
#define fail(line, ...) fail_at(__FILE__, line, __VA_ARGS__)

#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        const long long a_ = (long long)(a), b_ = (long long)(b);                                  \
        if (a_ != b_)                                                                              \
            fail(__LINE__, "%s is %lld, %s is %lld", #a, a_, #b, b_);                              \
    } while (0)

/* The runtime by CLB_TEST_RUNTIME; dev and pool. */
void open_device(void);

unsigned row_bytes(const struct clb_image *img, unsigned plane);
unsigned rows(const struct clb_image *img, unsigned plane);

/* Everything `padding`, then noise where pixels are; the same pixels whatever the padding. */
uint8_t *make_pixels(const struct clb_image *img, uint8_t padding);

clb_cl_frame *make_frame(clb_cl_pool *from, const void *px, size_t bytes);
cl_mem make_tensor(size_t bytes);

/* Waits at most 60 s for a success, and releases the event. */
void wait_done(cl_event done);

/* Runs pp over the pixels; out gets the whole tensor, guards included. */
void run_into(clb_preprocess *pp, cl_command_queue queue, const struct clb_image *img,
              const void *px, bool image_by_frame, size_t offset, uint8_t *out, size_t out_bytes);

/* Fails unless out is the reference within 1 at offset, and GUARD everywhere else. */
void compare(const struct clb_image *img, const uint8_t *px, enum clb_preprocess_order order,
             const uint8_t *out, size_t offset, size_t out_bytes);

#endif
