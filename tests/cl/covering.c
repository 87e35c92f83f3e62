/* SPDX-License-Identifier: Apache-2.0 */
/* See covering.h. */
#include "covering.h"

#include <stdint.h>
#include <string.h>

enum { TRIES = 24 };

struct state {
    const unsigned *values;
    unsigned columns;
    uint32_t seed;
    bool seen[COVERING_COLUMNS][COVERING_COLUMNS][COVERING_VALUES][COVERING_VALUES]; /* a < b */
};

static unsigned random_below(struct state *s, unsigned n)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return (s->seed >> 8) % n;
}

static bool seen(const struct state *s, unsigned a, unsigned va, unsigned b, unsigned vb)
{
    return a < b ? s->seen[a][b][va][vb] : s->seen[b][a][vb][va];
}

/* Pairs of this row that no row had. */
static unsigned gain(const struct state *s, const struct covering_row *row)
{
    unsigned n = 0;

    for (unsigned a = 0; a < s->columns; a++)
        for (unsigned b = a + 1; b < s->columns; b++)
            n += !s->seen[a][b][row->v[a]][row->v[b]];
    return n;
}

static void mark(struct state *s, const struct covering_row *row)
{
    for (unsigned a = 0; a < s->columns; a++)
        for (unsigned b = a + 1; b < s->columns; b++)
            s->seen[a][b][row->v[a]][row->v[b]] = true;
}

static bool first_missing(const struct state *s, unsigned *pa, unsigned *pva, unsigned *pb,
                          unsigned *pvb)
{
    for (unsigned a = 0; a < s->columns; a++)
        for (unsigned b = a + 1; b < s->columns; b++)
            for (unsigned va = 0; va < s->values[a]; va++)
                for (unsigned vb = 0; vb < s->values[b]; vb++)
                    if (!s->seen[a][b][va][vb]) {
                        *pa = a, *pva = va, *pb = b, *pvb = vb;
                        return true;
                    }
    return false;
}

/* Gives column c the value that adds most pairs with the columns that have one. */
static void choose(struct state *s, struct covering_row *row, const bool *fixed, unsigned c)
{
    const unsigned from = random_below(s, s->values[c]);
    unsigned best = 0;
    bool any = false;

    for (unsigned k = 0; k < s->values[c]; k++) {
        const unsigned v = (from + k) % s->values[c];
        unsigned n = 0;

        for (unsigned d = 0; d < s->columns; d++)
            n += d != c && fixed[d] && !seen(s, c, v, d, row->v[d]);
        if (!any || n > best) {
            any = true;
            best = n;
            row->v[c] = (unsigned char)v;
        }
    }
}

static bool fits(const struct covering_row *base, unsigned base_columns,
                 const struct covering_row *row, const bool *fixed)
{
    for (unsigned c = 0; c < base_columns; c++)
        if (fixed[c] && base->v[c] != row->v[c])
            return false;
    return true;
}

size_t covering_make(const unsigned *values, unsigned columns, const struct covering_row *base,
                     size_t base_rows, unsigned base_columns, struct covering_row *rows, size_t max)
{
    static struct state s;
    unsigned a, va, b, vb;
    size_t n = 0;

    memset(&s, 0, sizeof s);
    s.values = values;
    s.columns = columns;
    s.seed = 1;
    while (n < max && first_missing(&s, &a, &va, &b, &vb)) {
        unsigned most = 0;

        for (unsigned t = 0; t < TRIES; t++) {
            struct covering_row row = {{0}};
            bool fixed[COVERING_COLUMNS] = {false};

            row.v[a] = (unsigned char)va;
            row.v[b] = (unsigned char)vb;
            fixed[a] = fixed[b] = true;
            if (base_rows) {
                size_t k = random_below(&s, (unsigned)base_rows);

                for (size_t i = 0; i < base_rows; i++, k = (k + 1) % base_rows)
                    if (fits(&base[k], base_columns, &row, fixed))
                        break;
                for (unsigned c = 0; c < base_columns; c++) {
                    row.v[c] = base[k].v[c];
                    fixed[c] = true;
                }
            }
            const unsigned from = random_below(&s, columns);
            for (unsigned i = 0; i < columns; i++) {
                const unsigned c = (from + i) % columns;

                if (!fixed[c]) {
                    choose(&s, &row, fixed, c);
                    fixed[c] = true;
                }
            }
            if (gain(&s, &row) > most) {
                most = gain(&s, &row);
                rows[n] = row;
            }
        }
        if (most == 0)
            break;
        mark(&s, &rows[n++]);
    }
    return n;
}

size_t covering_missing(const unsigned *values, unsigned columns, const struct covering_row *rows,
                        size_t n)
{
    size_t missing = 0;

    for (unsigned a = 0; a < columns; a++)
        for (unsigned b = a + 1; b < columns; b++)
            for (unsigned va = 0; va < values[a]; va++)
                for (unsigned vb = 0; vb < values[b]; vb++) {
                    bool found = false;

                    for (size_t i = 0; i < n && !found; i++)
                        found = rows[i].v[a] == va && rows[i].v[b] == vb;
                    missing += !found;
                }
    return missing;
}
