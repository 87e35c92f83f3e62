/* SPDX-License-Identifier: Apache-2.0 */
/* The cases: pairs of runs and what is reported of them. */
#ifndef BENCH_RECEIVE_H
#define BENCH_RECEIVE_H

#include "measure.h"

void case_receive_host(const struct options *o);
void case_receive_pool(const struct options *o);
void case_round_trip(const struct options *o);
void case_links(const struct options *o);
/* camera.c */
void case_trailer(const struct options *o);
void case_repitch(const struct options *o);

#endif
