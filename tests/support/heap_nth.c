/* SPDX-License-Identifier: Apache-2.0 */
/* See heap.h. */
#include "heap.h"

#include <stdatomic.h>

_Thread_local bool heap_exempt;

static atomic_int countdown; /* fails when it goes from 1 to 0; <= 0 = never */
static atomic_bool failed;

bool heap_fails(void)
{
    if (heap_exempt || atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1) {
        return false;
    }
    atomic_store(&failed, true);
    return true;
}

void heap_fail_nth(int n)
{
    atomic_store(&failed, false);
    atomic_store(&countdown, n);
}

bool heap_fail_end(void)
{
    atomic_store(&countdown, 0);
    return atomic_load(&failed);
}
