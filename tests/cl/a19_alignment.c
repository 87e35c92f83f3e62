/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-19: alignment and size are promised and kept. Six sizes with each built-in allocator, by
 * hand and through a link; then the UV plane of a 642x482 NV12 frame, as a sub-buffer when the layout has
 * the alignment of the device, and by an offset when it has not. On a runtime; buffers over memory of the
 * host (page-aligned pointers) are not in this version.
 */
#include <clbridge/clbridge.h>
#include <clbridge/preprocess.h>

#include <check.h>
#include <peer.h>

#define SEC INT64_C(1000000000)
#define PAGE 4096
#define BASE_ALIGN 128
#define WIDTH 642
#define HEIGHT 482

static const uint32_t sizes[] = {1, 63, 65, 4095, 4097, 460801};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static clb_cl_device *dev;

/* ---- the allocators, by hand ------------------------------------------------------------------- */

static struct clb_buf take(const struct clb_allocator *a, size_t size, size_t align)
{
    struct clb_alloc_req req = {.payload = size,
                                .capacity = size,
                                .align = align,
                                .stream_name = "a19",
                                .wait_ns = 5 * SEC};
    struct clb_buf buf = {0};

    CHECK_EQ(a->alloc(a->opaque, &req, &buf), CLB_OK);
    CHECK_EQ((uintptr_t)buf.data % align, 0);
    CHECK_GE(buf.size, size);
    CHECK_EQ(buf.size % align, 0);
    memset(buf.data, 0x5a, buf.size); /* all of it may be written */
    return buf;
}

static void by_hand(const struct clb_allocator *a, size_t size, size_t align)
{
    struct clb_buf one = take(a, size, align), two = take(a, size, align);

    CHECK(one.data != two.data);
    a->free(a->opaque, &one);
    a->free(a->opaque, &two);
}

static clb_cl_pool *cl_pool(size_t size, size_t align)
{
    struct clb_status st = {0};
    clb_cl_pool *pool = NULL;
    int err = clb_cl_pool_create(
        &pool, dev,
        clb_cl_pool_params(.buf_size = size, .count = 8, .align = align, .status = &st));

    if (err != CLB_OK)
        fprintf(stderr, "%s\n", st.text);
    CHECK_EQ(err, CLB_OK);
    return pool;
}

static clb_host_pool *host_pool(size_t size, size_t align)
{
    clb_host_pool *pool = NULL;

    CHECK_EQ(clb_host_pool_create(&pool, clb_host_pool_params(.buf_size = size, .align = align)),
             CLB_OK);
    return pool;
}

static void allocators(void)
{
    static const size_t aligns[] = {64, BASE_ALIGN, PAGE};
    const struct clb_allocator plain = clb_host_allocator();
    size_t i, k;

    for (i = 0; i < SIZES; i++)
        for (k = 0; k < 3; k++) {
            clb_host_pool *host = host_pool(sizes[i], aligns[k]);
            struct clb_allocator pooled = clb_host_pool_allocator(host);

            by_hand(&plain, sizes[i], aligns[k]);
            by_hand(&pooled, sizes[i], aligns[k]);
            clb_host_pool_destroy(&host);
            if (aligns[k] <= BASE_ALIGN) { /* where a map lies is up to the runtime */
                clb_cl_pool *pool = cl_pool(sizes[i], aligns[k]);
                struct clb_allocator mapped = clb_cl_pool_allocator(pool);

                by_hand(&mapped, sizes[i], aligns[k]);
                clb_cl_pool_destroy(&pool);
            }
        }
}

/* ---- through a link ---------------------------------------------------------------------------- */

static void run(struct peer *p, void *arg)
{
    int a;
    size_t i;

    (void)arg;
    CHECK(peer_handshake(p));
    a = peer_create(p, "a", 1 << 20);
    for (i = 0; i < SIZES; i++)
        CHECK(peer_write_fill(p, a, (int)i + 1, sizes[i], 20000));
    peer_pump_to_end(p, 30000);
    peer_close(p);
}

/* a NULL: the link's own. */
static void through_a_link(const struct clb_allocator *a, bool device)
{
    clb_stream_params params = {.struct_size = sizeof(params), .name = "a"};
    struct peer peer;
    clb_link *link = NULL;
    clb_stream *s = NULL;
    size_t i;
    int fd = peer_pair(&peer, false);

    peer_start(&peer, run, NULL);
    CHECK_EQ(clb_link_adopt(&link, fd, CLB_ROLE_HOST, NULL), CLB_OK);
    if (a)
        params.allocator = *a;
    CHECK_EQ(clb_stream_open(&s, link, &params), CLB_OK);
    for (i = 0; i < SIZES; i++) {
        clb_packet *packet = NULL;
        clb_cl_frame *frame = NULL;
        const unsigned char *d;

        CHECK_EQ(clb_stream_read(s, &packet, 20 * SEC), CLB_OK);
        d = clb_packet_data(packet);
        CHECK_EQ((uintptr_t)d % 64, 0);
        CHECK_EQ(clb_packet_size(packet), sizes[i]); /* rounded up is the capacity, not this */
        CHECK_EQ(d[0], i + 1);
        CHECK_EQ(d[sizes[i] - 1], i + 1);
        if (device) {
            CHECK_EQ(clb_cl_frame_from_packet(&frame, &packet), CLB_OK);
            CHECK_EQ(clb_cl_frame_size(frame), sizes[i]);
            clb_cl_frame_unref(&frame);
        }
        clb_packet_free(&packet);
    }
    clb_stream_close(&s);
    clb_link_close(&link);
    peer_join(&peer);
}

static void links(void)
{
    const size_t largest = sizes[SIZES - 1];
    const struct clb_allocator plain = clb_host_allocator();
    clb_host_pool *host = host_pool(largest, 0);
    clb_cl_pool *pool = cl_pool(largest, 0);
    const struct clb_allocator pooled = clb_host_pool_allocator(host),
                               mapped = clb_cl_pool_allocator(pool);

    through_a_link(NULL, false);
    through_a_link(&plain, false);
    through_a_link(&pooled, false);
    through_a_link(&mapped, true);
    clb_host_pool_destroy(&host);
    clb_cl_pool_destroy(&pool);
}

/* ---- a view of the chroma plane ---------------------------------------------------------------- */

/* Red in BT.601, limited range; whatever is no pixel is 0xAA. */
static clb_cl_frame *red_frame(clb_cl_pool *pool, const struct clb_image *img)
{
    const struct clb_allocator a = clb_cl_pool_allocator(pool);
    struct clb_buf buf = take(&a, clb_image_bytes(img), 64);
    unsigned char *d = buf.data;
    clb_cl_frame *frame = NULL;
    size_t x, y;

    a.ref(a.opaque); /* the buffer's */
    memset(d, 0xaa, buf.size);
    for (y = 0; y < HEIGHT; y++)
        memset(d + img->plane[0].offset + y * img->plane[0].pitch, 81, WIDTH);
    for (y = 0; y < HEIGHT / 2; y++)
        for (x = 0; x < WIDTH; x++)
            d[img->plane[1].offset + y * img->plane[1].pitch + x] = x % 2 ? 240 : 90;
    CHECK_EQ(a.release(a.opaque, &buf, clb_image_bytes(img)), CLB_OK);
    CHECK_EQ(clb_cl_frame_from_buf(&frame, pool, &buf), CLB_OK);
    CHECK_EQ(clb_cl_frame_set_image(frame, img), CLB_OK);
    return frame;
}

/* Our kernels take the plane by its offset: it may lie anywhere. */
static void check_picture(clb_cl_frame *frame)
{
    static unsigned char rgb[WIDTH * HEIGHT * 3];
    clb_preprocess *pp = NULL;
    cl_command_queue queue = clb_cl_device_queue(dev);
    cl_event done;
    cl_int code;
    cl_mem out =
        clCreateBuffer(clb_cl_device_context(dev), CL_MEM_READ_WRITE, sizeof(rgb), NULL, &code);
    size_t i;

    CHECK_EQ(code, CL_SUCCESS);
    CHECK_EQ(clb_preprocess_create(&pp, dev, clb_preprocess_params(.src = NULL)), CLB_OK);
    CHECK_EQ(clb_preprocess_run(pp, queue, frame, out, 0, &done), CLB_OK);
    CHECK_EQ(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof(rgb), rgb, 1, &done, NULL),
             CL_SUCCESS);
    for (i = 0; i < sizeof(rgb); i++) {
        const int want = i % 3 == 0 ? 254 : 0;

        CHECK_GE(rgb[i], want - 2);
        CHECK_LE(rgb[i], want + 2);
    }
    clReleaseEvent(done);
    clReleaseMemObject(out);
    clb_preprocess_destroy(&pp);
}

/* The consumer's own way: a sub-buffer, which is refused unless its origin has the alignment. */
static void check_view(clb_cl_frame *frame, const struct clb_image *img, size_t align)
{
    const size_t bytes = (HEIGHT / 2 - 1) * img->plane[1].pitch + WIDTH;
    cl_buffer_region region = {.origin = img->plane[1].offset, .size = bytes};
    cl_command_queue queue = clb_cl_device_queue(dev);
    cl_event ready = clb_cl_frame_ready(frame);
    unsigned char *uv = malloc(bytes);
    cl_int code;
    cl_mem view;
    size_t x, y;

    CHECK_EQ(img->plane[1].offset % align, 0);
    view =
        clCreateSubBuffer(clb_cl_frame_mem(frame), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    CHECK_EQ(code, CL_SUCCESS);
    CHECK(uv != NULL);
    CHECK_EQ(clEnqueueReadBuffer(queue, view, CL_TRUE, 0, bytes, uv, 1, &ready, NULL), CL_SUCCESS);
    for (y = 0; y < HEIGHT / 2; y++)
        for (x = 0; x < WIDTH; x++)
            CHECK_EQ(uv[y * img->plane[1].pitch + x], x % 2 ? 240 : 90);
    clReleaseMemObject(view);
    free(uv);
}

static void views(void)
{
    clb_cl_device_info info;
    struct clb_image packed, aligned;
    size_t align;

    clb_cl_device_get_info(dev, &info, sizeof(info));
    align = info.base_align_bytes > BASE_ALIGN ? info.base_align_bytes : BASE_ALIGN;
    CHECK_EQ(clb_image_init(&packed, CLB_PIXFMT_NV12, WIDTH, HEIGHT, 1, 1), CLB_OK);
    CHECK_EQ(clb_image_init(&aligned, CLB_PIXFMT_NV12, WIDTH, HEIGHT, 1, align), CLB_OK);
    CHECK(packed.plane[1].offset % BASE_ALIGN != 0);
    CHECK_EQ(aligned.plane[1].pitch, WIDTH);
    {
        clb_cl_pool *pool = cl_pool(clb_image_bytes(&aligned), 0);
        clb_cl_frame *frame = red_frame(pool, &packed);

        check_picture(frame);
        clb_cl_frame_unref(&frame);
        frame = red_frame(pool, &aligned);
        check_picture(frame);
        check_view(frame, &aligned, align);
        clb_cl_frame_unref(&frame);
        clb_cl_pool_destroy(&pool);
    }
}

int main(void)
{
    struct clb_status st = {0};
    int err;

    check_watchdog(100);
    err = clb_cl_device_create(&dev, clb_cl_device_params(.status = &st));
    if (err != CLB_OK)
        fprintf(stderr, "%s\n", st.text);
    CHECK_EQ(err, CLB_OK);
    allocators();
    links();
    views();
    clb_cl_device_destroy(&dev);
    return 0;
}
