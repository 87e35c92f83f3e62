/* SPDX-License-Identifier: Apache-2.0 */
/* See heap.h. */
#include "heap.h"

#include <errno.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
int __real_posix_memalign(void **out, size_t align, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);
char *__wrap_strdup(const char *s);

void *__wrap_malloc(size_t size)
{
    return heap_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return heap_fails() ? NULL : __real_calloc(n, size);
}

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
    return heap_fails() ? ENOMEM : __real_posix_memalign(out, align, size);
}

char *__wrap_strdup(const char *s)
{
    return heap_fails() ? NULL : __real_strdup(s);
}
