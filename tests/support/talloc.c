/* SPDX-License-Identifier: Apache-2.0 */
/* The booking allocator. See talloc.h. */
#include "talloc.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define ALIVE 0x600dc0deu
#define DEAD 0xdeadc0deu

struct block {
    uint32_t state;
    bool released;
    struct talloc *owner;
    uint8_t *memory; /* guard, data, guard */
    uint8_t *data;
    size_t size;
};

void talloc_init(struct talloc *t, const char *plan)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->plan = plan;
}

static enum talloc_do plan_of(const struct talloc *t, int call)
{
    size_t n = t->plan ? strlen(t->plan) : 0;
    if (n == 0) {
        return TALLOC_OK;
    }
    return (enum talloc_do)t->plan[(size_t)call < n ? (size_t)call : n - 1];
}

static struct block *make_block(struct talloc *t, size_t capacity, size_t align, bool crooked)
{
    struct block *b = calloc(1, sizeof *b);
    CHECK(b != NULL);
    size_t lead = align > TALLOC_GUARD ? align : TALLOC_GUARD;
    void *memory = NULL;
    CHECK_EQ(posix_memalign(&memory, lead, lead + capacity + align + TALLOC_GUARD), 0);
    b->state = ALIVE;
    b->owner = t;
    b->memory = memory;
    b->data = b->memory + lead + (crooked ? align / 2 : 0);
    b->size = capacity;
    memset(b->data - TALLOC_GUARD, 0xA5, TALLOC_GUARD);
    memset(b->data, 0xCC, capacity);
    memset(b->data + capacity, 0x5A, TALLOC_GUARD);
    return b;
}

static void check_guards(const struct block *b)
{
    for (size_t i = 0; i < TALLOC_GUARD; i++) {
        CHECK_EQ(b->data[-1 - (ptrdiff_t)i], 0xA5);
        CHECK_EQ(b->data[b->size + i], 0x5A);
    }
}

static int do_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    struct talloc *t = opaque;
    CHECK(req->stream_name != NULL && req->stream_name[0] != '\0');
    CHECK(req->align != 0 && (req->align & (req->align - 1)) == 0);
    CHECK_GE(req->wait_ns, 0);
    CHECK(out->data == NULL && out->size == 0 && out->context == NULL);
    pthread_mutex_lock(&t->lock);
    enum talloc_do what = plan_of(t, t->calls);
    if (t->calls < 64) {
        t->sizes[t->calls] = req->payload;
    }
    t->calls++;
    t->align_seen |= (uint32_t)req->align;
    t->max_wait = req->wait_ns > t->max_wait ? req->wait_ns : t->max_wait;
    if (what == TALLOC_OK && t->limit && t->given - t->freed >= t->limit) {
        what = TALLOC_NOBUFS;
    }
    bool gives = what == TALLOC_OK || what == TALLOC_SHORT || what == TALLOC_CROOKED;
    t->given += gives;
    pthread_mutex_unlock(&t->lock);
    switch (what) {
    case TALLOC_ERROR: return CLB_ERR_NOMEM;
    case TALLOC_NOBUFS: return CLB_ERR_NOBUFS;
    case TALLOC_NULL: out->size = req->capacity; return CLB_OK;
    case TALLOC_SLOW:
        if (req->wait_ns > 0) {
            check_sleep_ms((int)(req->wait_ns / 1000000));
        }
        return CLB_ERR_NOBUFS;
    default: break;
    }
    size_t bytes = req->capacity - (what == TALLOC_SHORT && req->capacity > 0);
    struct block *b = make_block(t, bytes, req->align, what == TALLOC_CROOKED);
    *out = (struct clb_buf){.data = b->data, .size = b->size, .context = b};
    return CLB_OK;
}

static int do_release(void *opaque, struct clb_buf *buf, size_t written)
{
    struct talloc *t = opaque;
    struct block *b = buf->context;
    CHECK_EQ(b->state, ALIVE);
    CHECK(b->owner == t);
    CHECK(!b->released);
    CHECK_LE(written, b->size);
    check_guards(b);
    pthread_mutex_lock(&t->lock);
    t->release_calls++;
    bool fails = t->fail_release > 0;
    t->fail_release -= fails;
    t->released += !fails;
    pthread_mutex_unlock(&t->lock);
    if (fails) {
        return CLB_ERR_CL;
    }
    b->released = true;
    buf->data = NULL; /* as an unmap would */
    return CLB_OK;
}

static void do_free(void *opaque, struct clb_buf *buf)
{
    struct talloc *t = opaque;
    struct block *b = buf->context;
    CHECK(b != NULL);
    CHECK_EQ(b->state, ALIVE);
    CHECK(b->owner == t);
    check_guards(b);
    memset(b->data, 0xDD, b->size);
    b->state = DEAD;
    pthread_mutex_lock(&t->lock);
    t->freed++;
    t->free_of_released += b->released;
    pthread_mutex_unlock(&t->lock);
    free(b->memory);
    free(b);
}

static void do_ref(void *opaque)
{
    struct talloc *t = opaque;
    pthread_mutex_lock(&t->lock);
    t->refs++;
    pthread_mutex_unlock(&t->lock);
}

static void do_unref(void *opaque)
{
    struct talloc *t = opaque;
    pthread_mutex_lock(&t->lock);
    t->unrefs++;
    CHECK_LE(t->unrefs, t->refs);
    pthread_mutex_unlock(&t->lock);
}

struct clb_allocator talloc_allocator(struct talloc *t)
{
    return (struct clb_allocator){.alloc = do_alloc,
                                  .release = do_release,
                                  .free = do_free,
                                  .ref = do_ref,
                                  .unref = do_unref,
                                  .opaque = t};
}

void talloc_check(struct talloc *t)
{
    for (int i = 0; i < 400; i++) {
        pthread_mutex_lock(&t->lock);
        bool home = t->given == t->freed && t->refs == t->unrefs;
        pthread_mutex_unlock(&t->lock);
        if (home) {
            break;
        }
        check_sleep_ms(5);
    }
    pthread_mutex_lock(&t->lock);
    CHECK_EQ(t->freed, t->given);
    CHECK_EQ(t->unrefs, t->refs);
    CHECK_EQ(t->free_of_released, t->released);
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_destroy(&t->lock);
}

bool talloc_owns(struct talloc *t, const void *context, const void *data)
{
    const struct block *b = context;
    return b && b->state == ALIVE && b->owner == t && b->data == data;
}
