/* SPDX-License-Identifier: Apache-2.0 */
/* What the pool's tests share. */
#include "pool_kit.h"

void kit_log(void *priv, enum clb_log_level level, const char *msg)
{
    (void)level;
    if (priv)
        atomic_fetch_add((atomic_uint *)priv, 1);
    if (getenv("CLB_TEST_VERBOSE"))
        fprintf(stderr, "  log: %s\n", msg);
}

clb_cl_device *kit_device(bool caller_driven)
{
    clb_cl_device *dev = NULL;
    struct clb_status st = {0};
    int err = clbi_cl_device_create_with(
        &dbl_fns, &dev,
        clb_cl_device_params(.caller_driven = caller_driven, .status = &st, .log.cb = kit_log));

    if (err != CLB_OK)
        fprintf(stderr, "device: %s\n", st.text);
    CHECK_EQ(err, CLB_OK);
    return dev;
}

void kit_open(struct kit *k, bool caller_driven, uint32_t count, size_t size,
              enum clb_cl_fence fence)
{
    struct clb_status st = {0};
    int err;

    k->dev = kit_device(caller_driven);
    k->size = size;
    k->align = 64;
    err = clb_cl_pool_create(
        &k->pool, k->dev,
        clb_cl_pool_params(.buf_size = size, .count = count, .fence = fence, .status = &st));
    if (err != CLB_OK)
        fprintf(stderr, "pool: %s\n", st.text);
    CHECK_EQ(err, CLB_OK);
    k->a = clb_cl_pool_allocator(k->pool);
    k->queue = clb_cl_device_queue(k->dev);
}

void kit_close(struct kit *k)
{
    clb_cl_pool_destroy(&k->pool);
    clb_cl_device_destroy(&k->dev);
    CHECK(!k->pool && !k->dev);
}

int kit_alloc(struct kit *k, struct clb_buf *buf, int64_t wait_ns)
{
    struct clb_alloc_req req = {.payload = k->size,
                                .capacity = k->size,
                                .align = k->align,
                                .stream_name = "test",
                                .wait_ns = wait_ns};
    int err = k->a.alloc(k->a.opaque, &req, buf);

    if (err == CLB_OK)
        k->a.ref(k->a.opaque);
    return err;
}

void kit_fill(const struct clb_buf *buf, uint64_t n, size_t size)
{
    unsigned char *p = buf->data;
    size_t i;

    CHECK_GE(buf->size, size);
    for (i = 0; i < size; i++)
        p[i] = kit_byte(n, i);
}

clb_cl_frame *kit_frame(struct kit *k, uint64_t n)
{
    clb_cl_frame *frame = NULL;
    struct clb_buf buf;

    CHECK_EQ(kit_alloc(k, &buf, 5 * SEC), CLB_OK);
    kit_fill(&buf, n, k->size);
    CHECK_EQ(k->a.release(k->a.opaque, &buf, k->size), CLB_OK);
    CHECK(!buf.data);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, k->pool, &buf), CLB_OK);
    CHECK(clb_cl_frame_ready(frame) != NULL);
    return frame;
}

static void look_at(void *priv, const unsigned char *bytes, size_t size)
{
    struct kit_seen *seen = priv;
    size_t i;

    for (i = 0; i < seen->size && i < size; i++) {
        if (bytes[i] != kit_byte(seen->n, i)) {
            if (atomic_fetch_add(&seen->bad, 1) == 0)
                fprintf(stderr, "frame %u: byte %zu is %u, not %u\n", (unsigned)seen->n, i,
                        bytes[i], kit_byte(seen->n, i));
            return;
        }
    }
    atomic_fetch_add(&seen->good, 1);
}

void kit_consume(struct kit *k, cl_command_queue queue, clb_cl_frame *frame, struct kit_seen *seen,
                 struct dbl_gate *gate, cl_event *ev)
{
    cl_event ready = clb_cl_frame_ready(frame);
    struct dbl_kernel kernel = {look_at, seen, clb_cl_frame_mem(frame), gate, 0, 1, &ready};

    if (seen->size == 0)
        seen->size = k->size;
    CHECK_EQ(dbl_enqueue(queue, &kernel, ev), CL_SUCCESS);
    dbl_fns.Flush(queue);
}

void kit_settle(struct kit *k)
{
    do
        dbl_settle();
    while (clb_cl_device_poll(k->dev, 0) == CLB_OK);
}

clb_cl_pool_stats kit_stats(const struct kit *k)
{
    clb_cl_pool_stats s;

    clb_cl_pool_get_stats(k->pool, &s, sizeof(s));
    return s;
}

void kit_wait_gone(unsigned (*what)(void))
{
    int64_t end = check_ms() + 10000;

    while (what() > 0 && check_ms() < end)
        check_sleep_ms(1);
    CHECK_EQ(what(), 0);
}

void kit_run(const struct kit_test *tests, size_t n)
{
    const char *only = getenv("CLB_TEST_ONLY");
    size_t i, ran = 0;

    for (i = 0; i < n; i++) {
        int64_t start = check_ms();

        if (only && !strstr(tests[i].name, only))
            continue;
        printf("%s", tests[i].name);
        fflush(stdout);
        tests[i].fn();
        printf(": %d ms\n", (int)(check_ms() - start));
        ran++;
    }
    CHECK_GT(ran, 0);
}
