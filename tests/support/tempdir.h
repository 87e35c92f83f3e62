/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test's own. */
#ifndef CLB_TEST_TEMPDIR_H
#define CLB_TEST_TEMPDIR_H

#include <stddef.h>

enum { TEMPDIR_PATH = 256 };

/* New, empty, mode 0700; below $TMPDIR or /tmp. */
void tempdir_make(char path[TEMPDIR_PATH]);

/* Removes it and what is directly in it, empty folders included. */
void tempdir_remove(const char *path);

/* How many entries end with `suffix`; the name of the last one seen in last (may be NULL). */
unsigned tempdir_count(const char *path, const char *suffix, char last[TEMPDIR_PATH]);

#endif
