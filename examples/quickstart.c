/* SPDX-License-Identifier: Apache-2.0 */
/* Receives NV12 frames into mapped OpenCL memory and turns each into RGB on the device. */
#include <clbridge/clbridge.h>
#include <clbridge/preprocess.h>
#include <stdio.h>
#include <stdlib.h>

static struct clb_status st; /* tells why an opening call failed */

static void need(int err, const char *what)
{
    if (err < 0) {
        fprintf(stderr, "%s: %s\n", what, st.text[0] ? st.text : clb_error_str(err));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    clb_cl_device *dev;
    clb_cl_pool *pool;
    clb_preprocess *pp;
    clb_link *link;
    clb_stream *cam;
    struct clb_image img;
    if (argc != 4) {
        fprintf(stderr, "usage: %s tcp://HOST[:PORT] WIDTH HEIGHT\n", argv[0]);
        return 2;
    }
    unsigned w = (unsigned)atoi(argv[2]), h = (unsigned)atoi(argv[3]), frames = 0;
    need(clb_image_init(&img, CLB_PIXFMT_NV12, w, h, 0, 0), "size");
    size_t size = clb_image_bytes(&img), middle = ((size_t)h / 2 * w + w / 2) * 3;
    need(clb_cl_device_create(&dev, clb_cl_device_params(.status = &st)), "device");
    need(clb_cl_pool_create(&pool, dev, clb_cl_pool_params(.buf_size = size, .status = &st)),
         "pool");
    need(clb_preprocess_create(&pp, dev, clb_preprocess_params(.src = &img)), "kernel");
    need(clb_link_open(&link, clb_link_params(.uri = argv[1], .status = &st)), argv[1]);
    struct clb_allocator memory = clb_cl_pool_allocator(pool); /* frames go there */
    need(clb_stream_open(&cam, link, clb_stream_params(.allocator = memory)), "stream");
    cl_command_queue queue = clb_cl_device_queue(dev);
    cl_mem rgb = clCreateBuffer(clb_cl_device_context(dev), 0, (size_t)w * h * 3, NULL, NULL);
    int err;
    for (clb_packet *packet; (err = clb_stream_read(cam, &packet, -1)) == CLB_OK; frames++) {
        clb_cl_frame *frame;
        need(clb_cl_frame_from_packet(&frame, &packet), "unmap"); /* credit to the camera */
        need(clb_preprocess_run(pp, queue, frame, rgb, 0, NULL), "run");
        clb_cl_frame_unref(&frame); /* mapped again when the kernel is done */
    }
    unsigned char p[3] = {0};
    clEnqueueReadBuffer(queue, rgb, CL_TRUE, middle, 3, p, 0, NULL, NULL);
    printf("%u frames, the middle of the last one is %u %u %u\n", frames, p[0], p[1], p[2]);
    clReleaseMemObject(rgb);
    clb_stream_close(&cam);
    clb_link_close(&link);
    clb_preprocess_destroy(&pp);
    clb_cl_pool_destroy(&pool);
    clb_cl_device_destroy(&dev);
    return err == CLB_ERR_CLOSED && frames > 0 ? 0 : 1; /* an orderly end, or a lost link */
}
