/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Covering arrays: rows of parameter values in which every pair of values of two parameters occurs
 * at least once. Greedy, and the same every time.
 */
#ifndef COVERING_H
#define COVERING_H

#include <stdbool.h>
#include <stddef.h>

enum { COVERING_COLUMNS = 24, COVERING_VALUES = 32 };

struct covering_row {
    unsigned char v[COVERING_COLUMNS];
};

/* values[c] < COVERING_VALUES is how many column c has. The first base_columns of a row are always
 * those of a row of `base`, which must cover their pairs (0: free). Returns how many rows there are,
 * of at most max. */
size_t covering_make(const unsigned *values, unsigned columns, const struct covering_row *base,
                     size_t base_rows, unsigned base_columns, struct covering_row *rows,
                     size_t max);

/* Pairs that do not occur. */
size_t covering_missing(const unsigned *values, unsigned columns, const struct covering_row *rows,
                        size_t n);

#endif
