/* SPDX-License-Identifier: Apache-2.0 */
/* The same work through the library. */
#ifndef BENCH_LINKS_H
#define BENCH_LINKS_H

#include <clbridge/clbridge.h>

#include "feed.h"
#include "measure.h"

/* Ends the benchmark with what the library says. */
void must(int err, const struct clb_status *status, const char *what);

/* One link, packets freed at once. `pool` is NULL (host memory of the link) or a pool of OpenCL
 * buffers: each packet then becomes a frame and is retired at once (unmapped and mapped again). */
struct bench_pool;
struct sample links_receive(struct bench_pool *pool, uint32_t frame, int warm, int frames);
/* The same with the stream opened `as` this says. */
struct sample links_receive_as(struct bench_pool *pool, const clb_stream_params *as,
                               enum feed_kind kind, uint32_t frame, int warm, int frames);
/* n links on one loop and its thread; one application thread reads them all. Per frame. *memory is
 * what n links cost in the process, bytes. */
struct sample links_receive_many(int n, uint32_t frame, int warm, int frames);

/* pool.c; NULL when the library has no OpenCL, or there is no such device. */
struct bench_pool *bench_pool_open(const struct options *o, uint32_t frame);
const char *bench_pool_name(const struct bench_pool *pool);
struct clb_allocator bench_pool_allocator(struct bench_pool *pool);
void bench_pool_consume(struct bench_pool *pool, clb_packet **packet);
void bench_pool_drain(struct bench_pool *pool);
void bench_pool_close(struct bench_pool **pool);

#endif
