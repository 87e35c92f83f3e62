/* SPDX-License-Identifier: Apache-2.0 */
/* Where the CPU time of the process goes, thread by thread. */
#ifndef BENCH_THREADS_H
#define BENCH_THREADS_H

/* Between the two every thread's time is added up under its name; the main thread is "application",
 * threads of a library that have its name, the process's own, are "others". */
void threads_begin(void);
void threads_end(double frames);
/* Prints what was added up since the last call, per frame. */
void threads_print(const char *what);

#endif
