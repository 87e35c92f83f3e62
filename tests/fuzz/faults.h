/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the library that fail as the input says: heap allocations by their number, socket calls by
 * a script of one byte each. Linked with --wrap; without FUZZ_FAULTS nothing of it is there.
 */
#ifndef TESTS_FUZZ_FAULTS_H
#define TESTS_FUZZ_FAULTS_H

#include "world.h"

#ifdef FUZZ_FAULTS
/* Takes what is to fail from the input. Nothing does before faults_resume(). */
void faults_begin(struct input *in);
/* Around what is not the library's. They nest. */
void faults_pause(void);
void faults_resume(void);
#define FAULTS true
#else
#define faults_begin(in) ((void)(in))
#define faults_pause() ((void)0)
#define faults_resume() ((void)0)
#define FAULTS false
#endif

#endif
