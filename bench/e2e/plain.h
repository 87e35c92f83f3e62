/* SPDX-License-Identifier: Apache-2.0 */
/* The baselines: what a program without any library does. */
#ifndef BENCH_PLAIN_H
#define BENCH_PLAIN_H

#include <stdint.h>

#include "measure.h"

/* One connection, recv() into one fixed buffer until a frame is in, `frames` times. Per GB. */
struct sample plain_receive(uint32_t frame, int warm, int frames);
/* An epoll loop over n connections with a buffer each, one recv() for each event. Per frame. */
struct sample plain_receive_many(int n, uint32_t frame, int warm, int frames);

#endif
