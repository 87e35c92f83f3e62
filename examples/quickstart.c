/* SPDX-License-Identifier: Apache-2.0 */
/* Receives NV12 frames into mapped OpenCL memory and turns each into RGB on the device. */
#include <clbridge/clbridge.h>
#include <clbridge/preprocess.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, const struct clb_status *st)
{
    return fprintf(stderr, "%s: %s\n", what, st->text[0] ? st->text : clb_error_str(st->err)), 1;
}

int main(int argc, char **argv)
{
    struct clb_status st = {0};
    struct clb_image img;
    if (argc != 4 || clb_image_init(&img, CLB_PIXFMT_NV12, (uint32_t)atoi(argv[2]),
                                    (uint32_t)atoi(argv[3]), 0, 0) < 0) {
        fprintf(stderr, "usage: %s tcp://HOST[:PORT] WIDTH HEIGHT\n", argv[0]);
        return 2;
    }
    clb_cl_device *dev;
    clb_cl_pool *pool;
    clb_preprocess *pp;
    clb_link *link;
    clb_stream *cam;
    if (clb_cl_device_create(&dev, clb_cl_device_params(.status = &st)) < 0 ||
        clb_cl_pool_create(
            &pool, dev, clb_cl_pool_params(.buf_size = clb_image_bytes(&img), .status = &st)) < 0) {
        return fail("OpenCL", &st);
    }
    if (clb_link_open(&link, clb_link_params(.uri = argv[1], .status = &st)) < 0) {
        return fail(argv[1], &st);
    }
    if ((st.err = clb_preprocess_create(&pp, dev, clb_preprocess_params(.src = &img))) < 0 ||
        (st.err = clb_stream_open(
             &cam, link,
             clb_stream_params(.image = img, .allocator = clb_cl_pool_allocator(pool)))) < 0) {
        return fail("stream", &st);
    }
    size_t n = (size_t)img.width * img.height * 3;
    cl_mem rgb = clCreateBuffer(clb_cl_device_context(dev), CL_MEM_READ_WRITE, n, NULL, NULL);
    unsigned char pixel[3] = {0};
    unsigned frames = 0;
    for (clb_packet *pkt; clb_stream_read(cam, &pkt, -1) == CLB_OK; frames++) {
        clb_cl_frame *frame;
        if (clb_cl_frame_from_packet(&frame, &pkt) < 0) { /* unmaps; credit to the camera */
            clb_packet_free(&pkt);
            continue;
        }
        clb_preprocess_run(pp, clb_cl_device_queue(dev), frame, rgb, 0, NULL);
        clb_cl_frame_unref(&frame); /* mapped again when the kernel is done */
    }
    clEnqueueReadBuffer(clb_cl_device_queue(dev), rgb, CL_TRUE, 0, 3, pixel, 0, NULL, NULL);
    printf("%u frames, last pixel 0: %u %u %u\n", frames, pixel[0], pixel[1], pixel[2]);
    clReleaseMemObject(rgb);
    clb_stream_close(&cam), clb_link_close(&link), clb_preprocess_destroy(&pp);
    clb_cl_pool_destroy(&pool), clb_cl_device_destroy(&dev);
    return 0;
}
