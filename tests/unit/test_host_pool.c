/* SPDX-License-Identifier: Apache-2.0 */
/* The plain allocator and the recycling host pool. A program: it has threads. */
#include <clbridge/buffer.h>

#include "os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failures;

#define EQ(got, want)                                                                              \
    do {                                                                                           \
        int64_t got_ = (int64_t)(got), want_ = (int64_t)(want);                                    \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", want %s = %" PRId64 "\n", __FILE__,         \
                    __LINE__, #got, got_, #want, want_);                                           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static int get(struct clb_allocator a, size_t bytes, size_t align, int64_t wait, struct clb_buf *b)
{
    struct clb_alloc_req req = {
        .payload = bytes, .capacity = bytes, .align = align, .stream_name = "", .wait_ns = wait};

    memset(b, 0, sizeof *b);
    return a.alloc(a.opaque, &req, b);
}

static void put(struct clb_allocator a, struct clb_buf *b)
{
    a.free(a.opaque, b);
}

static clb_host_pool_stats stats(const clb_host_pool *pool)
{
    clb_host_pool_stats st;

    clb_host_pool_get_stats(pool, &st, sizeof st);
    return st;
}

static clb_host_pool *make(size_t buf_size, uint32_t count, size_t max_bytes, size_t align)
{
    clb_host_pool *pool = NULL;

    EQ(clb_host_pool_create(&pool, clb_host_pool_params(.buf_size = buf_size, .count = count,
                                                        .max_bytes = max_bytes, .align = align)),
       CLB_OK);
    if (!pool)
        exit(1);
    return pool;
}

/* aligned, and the capacity a multiple of the alignment, whatever the size. */
static void a19_sizes_and_alignment(void)
{
    static const size_t sizes[] = {0, 1, 63, 65, 4095, 4097, 460801};
    static const size_t aligns[] = {0, 16, 64, 128, 4096};
    clb_host_pool *pool = make(0, 2, 0, 0), *fixed = make(460801, 2, 0, 4096);
    struct clb_allocator all[] = {clb_host_allocator(), clb_host_pool_allocator(pool),
                                  clb_host_pool_allocator(fixed)};

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t j = 0; j < sizeof aligns / sizeof *aligns; j++) {
                size_t align = aligns[j] < 64 ? 64 : aligns[j];
                struct clb_buf b;

                EQ(get(all[k], sizes[i], aligns[j], 0, &b), CLB_OK);
                if (!b.data)
                    continue;
                EQ((uintptr_t)b.data % align, 0);
                EQ(b.size % align, 0);
                EQ(b.size >= sizes[i], 1);
                memset(b.data, 0xa5, b.size);
                put(all[k], &b);
            }
    clb_host_pool_destroy(&pool);
    clb_host_pool_destroy(&fixed);

    struct clb_buf b;
    EQ(get(clb_host_allocator(), 10, 96, 0, &b), CLB_ERR_INVAL);
    EQ(get(clb_host_allocator(), SIZE_MAX, 64, 0, &b), CLB_ERR_TOOBIG);
}

static void params(void)
{
    clb_host_pool *pool = (clb_host_pool *)&failures;

    EQ(clb_host_pool_create(NULL, NULL), CLB_ERR_INVAL);
    EQ(clb_host_pool_create(&pool, clb_host_pool_params(.align = 96)), CLB_ERR_INVAL);
    EQ(pool == NULL, 1);
    EQ(clb_host_pool_create(&pool, clb_host_pool_params(.count = UINT32_MAX)), CLB_ERR_INVAL);
    EQ(clb_host_pool_create(&pool, clb_host_pool_params(.buf_size = 2000, .max_bytes = 1000)),
       CLB_ERR_INVAL);
    EQ(clb_host_pool_create(&pool, clb_host_pool_params(.buf_size = SIZE_MAX)), CLB_ERR_INVAL);
    EQ(clb_host_pool_create(&pool, NULL), CLB_OK);
    EQ(stats(pool).slots, 0);
    EQ(stats(pool).heap_allocs, 0);
    clb_host_pool_destroy(&pool);
    EQ(pool == NULL, 1);
    clb_host_pool_destroy(&pool);
    clb_host_pool_destroy(NULL);
    EQ(stats(NULL).slots, 0);
    EQ(clb_host_pool_allocator(NULL).alloc == NULL, 1);
}

static void fixed_size(void)
{
    clb_host_pool *pool = make(1000, 2, 0, 0);
    struct clb_allocator a = clb_host_pool_allocator(pool);
    struct clb_buf b[3];

    EQ(get(a, 1001, 64, 0, &b[0]), CLB_ERR_TOOBIG);
    EQ(get(a, 1000, 64, 0, &b[0]), CLB_OK);
    EQ(b[0].size, 1024);
    EQ(get(a, 1, 64, 0, &b[1]), CLB_OK);
    EQ(b[1].size, 1024);
    EQ(get(a, 1, 64, 0, &b[2]), CLB_ERR_NOBUFS);
    EQ(b[2].data == NULL, 1);
    EQ(stats(pool).slots, 2);
    EQ(stats(pool).free, 0);
    EQ(stats(pool).allocs, 2);
    EQ(stats(pool).alloc_misses, 2);
    EQ(stats(pool).heap_allocs, 2);

    /* Last in, first out. */
    void *first = b[0].data, *second = b[1].data;
    put(a, &b[1]);
    put(a, &b[0]);
    EQ(stats(pool).free, 2);
    EQ(get(a, 5, 64, 0, &b[0]), CLB_OK);
    EQ(b[0].data == first, 1);
    EQ(get(a, 5, 64, 0, &b[1]), CLB_OK);
    EQ(b[1].data == second, 1);
    put(a, &b[0]);
    put(a, &b[1]);
    for (int i = 0; i < 100; i++) {
        EQ(get(a, 900, 64, 0, &b[0]), CLB_OK);
        put(a, &b[0]);
    }
    EQ(stats(pool).heap_allocs, 2);
    clb_host_pool_destroy(&pool);

    /* max_bytes below count * buf_size: fewer slots. */
    pool = make(1000, 8, 2100, 0);
    a = clb_host_pool_allocator(pool);
    EQ(get(a, 1, 64, 0, &b[0]), CLB_OK);
    EQ(get(a, 1, 64, 0, &b[1]), CLB_OK);
    EQ(get(a, 1, 64, 0, &b[2]), CLB_ERR_NOBUFS);
    put(a, &b[0]);
    put(a, &b[1]);
    clb_host_pool_destroy(&pool);
}

static void learned_size(void)
{
    clb_host_pool *pool = make(0, 2, 10240, 0);
    struct clb_allocator a = clb_host_pool_allocator(pool);
    struct clb_buf small, big, more;

    EQ(get(a, 100, 64, 0, &small), CLB_OK);
    EQ(small.size, 128);
    memset(small.data, 1, small.size);
    /* The small one is in use and stays as it is. */
    EQ(get(a, 5000, 64, 0, &big), CLB_OK);
    EQ(big.size, 5056);
    EQ(stats(pool).slot_bytes, 5056);
    EQ(((unsigned char *)small.data)[127], 1);
    put(a, &big);
    put(a, &small);
    /* The one that fits is taken, not the one used last. */
    EQ(get(a, 5000, 64, 0, &big), CLB_OK);
    EQ(stats(pool).heap_allocs, 2);
    /* Now the idle small one is too small and gets replaced. */
    EQ(get(a, 300, 64, 0, &more), CLB_OK);
    EQ(more.size, 5056);
    EQ(stats(pool).slots, 2);
    EQ(stats(pool).heap_allocs, 3);
    put(a, &more);
    put(a, &big);
    for (int i = 0; i < 50; i++) {
        EQ(get(a, 5000, 64, 0, &big), CLB_OK);
        EQ(get(a, 10, 64, 0, &small), CLB_OK);
        put(a, &big);
        put(a, &small);
    }
    EQ(stats(pool).heap_allocs, 3);

    /* Room is made of idle slots, and only of those. */
    EQ(get(a, 10240, 64, 0, &big), CLB_OK);
    EQ(stats(pool).slots, 1);
    EQ(get(a, 64, 64, 0, &small), CLB_ERR_NOBUFS);
    put(a, &big);
    EQ(get(a, 10241, 64, 0, &big), CLB_ERR_TOOBIG);
    EQ(stats(pool).alloc_misses, 2);
    clb_host_pool_destroy(&pool);

    /* The learned size does not fit any more, the request does. */
    pool = make(0, 4, 1024, 0);
    a = clb_host_pool_allocator(pool);
    EQ(get(a, 640, 64, 0, &big), CLB_OK);
    EQ(get(a, 64, 64, 0, &small), CLB_OK);
    EQ(small.size, 64);
    put(a, &big);
    put(a, &small);
    clb_host_pool_destroy(&pool);
}

static void capacity_counts(void)
{
    clb_host_pool *pool = make(0, 1, 0, 0);
    struct clb_allocator a = clb_host_pool_allocator(pool);
    struct clb_alloc_req req = {.payload = 100, .capacity = 1000, .align = 256, .stream_name = ""};
    struct clb_buf b = {0};

    EQ(a.alloc(a.opaque, &req, &b), CLB_OK);
    EQ(b.size, 1024);
    EQ((uintptr_t)b.data % 256, 0);
    put(a, &b);
    req.align = 48;
    EQ(a.alloc(a.opaque, &req, &b), CLB_ERR_INVAL);
    clb_host_pool_destroy(&pool);

    /* Of the payload, metadata goes elsewhere. */
    pool = make(1000, 1, 0, 0);
    a = clb_host_pool_allocator(pool);
    req = (struct clb_alloc_req){.payload = 5000, .capacity = 1000, .align = 64, .stream_name = ""};
    EQ(a.alloc(a.opaque, &req, &b), CLB_OK);
    EQ(b.size, 1024);
    put(a, &b);
    clb_host_pool_destroy(&pool);
}

static void outlives_destroy(void)
{
    clb_host_pool *pool = make(4096, 3, 0, 0);
    struct clb_allocator a = clb_host_pool_allocator(pool);
    struct clb_buf b[3], zero = {0};

    a.ref(a.opaque);
    for (int i = 0; i < 3; i++)
        EQ(get(a, 4096, 64, 0, &b[i]), CLB_OK);
    put(a, &b[0]);
    clb_host_pool_destroy(&pool);
    EQ(get(a, 4096, 64, 0, &b[0]), CLB_ERR_CLOSED);
    memset(b[1].data, 0x11, 4096);
    put(a, &b[1]);
    a.unref(a.opaque);
    /* No reference but that of the buffer itself. */
    memset(b[2].data, 0x22, 4096);
    put(a, &b[2]);

    /* clb_buf_free gives back the buffer and the reference that was taken for it. */
    pool = make(0, 1, 0, 0);
    a = clb_host_pool_allocator(pool);
    EQ(get(a, 77, 64, 0, &b[0]), CLB_OK);
    a.ref(a.opaque);
    clb_host_pool_destroy(&pool);
    b[0].data = NULL; /* as after a release that took it away */
    clb_buf_free(&a, &b[0]);
    EQ(b[0].context == NULL && b[0].size == 0, 1);
    clb_buf_free(&a, &zero);
    clb_buf_free(NULL, &zero);
    clb_buf_free(&a, NULL);

    a = clb_host_allocator();
    EQ(get(a, 77, 64, 0, &b[0]), CLB_OK);
    clb_buf_free(&a, &b[0]);
    EQ(b[0].data == NULL, 1);
}

#ifndef CLB_DEBUG_ABORT
static void foreign_buffers_are_ignored(void)
{
    clb_host_pool *pool = make(0, 2, 0, 0);
    struct clb_allocator a = clb_host_pool_allocator(pool);
    struct clb_buf b, wild = {.data = &b, .size = 1, .context = &b};

    EQ(get(a, 64, 64, 0, &b), CLB_OK);
    put(a, &wild);
    put(a, &b);
    put(a, &b); /* twice */
    EQ(stats(pool).free, 1);
    clb_host_pool_destroy(&pool);
}
#endif

struct later {
    struct clb_allocator a;
    struct clb_buf buf;
    clb_host_pool *pool; /* destroy this instead of freeing buf */
};

static void *later_fn(void *arg)
{
    struct later *l = arg;
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};

    nanosleep(&pause, NULL);
    if (l->pool)
        clb_host_pool_destroy(&l->pool);
    else
        put(l->a, &l->buf);
    return NULL;
}

static void waiting(void)
{
    clb_host_pool *pool = make(0, 1, 0, 0);
    struct later l = {.a = clb_host_pool_allocator(pool)};
    struct clb_buf b;
    pthread_t thread;
    int64_t start;

    l.a.ref(l.a.opaque);
    EQ(get(l.a, 1000, 64, 0, &l.buf), CLB_OK);
    start = clbi_now_ns();
    EQ(get(l.a, 1000, 64, 5 * CLBI_MS, &b), CLB_ERR_NOBUFS);
    EQ(clbi_now_ns() - start >= 5 * CLBI_MS, 1);
    EQ(stats(pool).alloc_misses, 1);

    EQ(clbi_thread_create(&thread, "later", later_fn, &l), 0);
    EQ(get(l.a, 2000, 64, 20 * CLBI_SEC, &b), CLB_OK);
    EQ(clbi_now_ns() - start < 15 * CLBI_SEC, 1);
    pthread_join(thread, NULL);

    /* The end of the pool wakes who waits. */
    l.pool = pool;
    EQ(clbi_thread_create(&thread, "later", later_fn, &l), 0);
    EQ(get(l.a, 2000, 64, 20 * CLBI_SEC, &l.buf), CLB_ERR_CLOSED);
    EQ(clbi_now_ns() - start < 30 * CLBI_SEC, 1);
    pthread_join(thread, NULL);
    put(l.a, &b);
    l.a.unref(l.a.opaque);
}

#define THREADS 4
#define ROUNDS 3000

struct worker {
    struct clb_allocator a;
    unsigned seed;
    uint64_t got;
    int bad;
};

static void *worker_fn(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes = 1 + (size_t)rand_r(&w->seed) % 3000;
        struct clb_buf b;
        int rc = get(w->a, bytes, 64, i % 2 ? 10 * CLBI_SEC : 0, &b);

        if (rc == CLB_ERR_NOBUFS && i % 2 == 0)
            continue;
        if (rc != CLB_OK) {
            w->bad = rc;
            return NULL;
        }
        /* Exclusive: nobody else writes here. */
        memset(b.data, (int)w->seed & 255, bytes);
        if (((unsigned char *)b.data)[bytes - 1] != (w->seed & 255))
            w->bad = 1;
        w->got++;
        put(w->a, &b);
    }
    return NULL;
}

static void many_threads(void)
{
    clb_host_pool *pool = make(0, 3, 0, 0);
    struct worker w[THREADS];
    pthread_t thread[THREADS];
    uint64_t got = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.a = clb_host_pool_allocator(pool), .seed = i + 1};
        EQ(clbi_thread_create(&thread[i], "worker", worker_fn, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        EQ(w[i].bad, 0);
        got += w[i].got;
    }
    EQ(stats(pool).allocs, got);
    EQ(stats(pool).slots <= 3, 1);
    EQ(stats(pool).free, stats(pool).slots);
    clb_host_pool_destroy(&pool);
}

int main(void)
{
    a19_sizes_and_alignment();
    params();
    fixed_size();
    learned_size();
    capacity_counts();
    outlives_destroy();
#ifndef CLB_DEBUG_ABORT
    foreign_buffers_are_ignored();
#endif
    waiting();
    many_threads();
    return failures ? 1 : 0;
}
