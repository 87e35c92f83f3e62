/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives frames over as many links as it takes. A link that broke stays broken: a new one is opened, with
 * a wait that doubles while nobody is there. The device, the pool and the frame that is held stay.
 */
#include <clbridge/cl.h>
#include <clbridge/clbridge.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SEC INT64_C(1000000000)
#define FIRST_WAIT_MS 100
#define MAX_WAIT_MS 5000
#define WORDS(why, err) ((why).text[0] ? (why).text : clb_error_str(err))

struct receiver {
    const char *uri;
    unsigned long wanted, frames, links;
    long wait_ms; /* before the next attempt */
    clb_cl_device *dev;
    clb_cl_pool *pool;
    clb_cl_frame *last;
};

/* Your work with a frame. This one is held until the next has come, also if that takes another link. */
static int take(struct receiver *r, clb_packet **packet)
{
    clb_cl_frame *frame;
    int err = clb_cl_frame_from_packet(&frame, packet); /* credit to the camera */

    if (err < 0)
        return err;
    clb_cl_frame_unref(&r->last);
    r->last = frame;
    r->frames++;
    r->wait_ms = FIRST_WAIT_MS; /* this peer is well: the next loss is a new story */
    return CLB_OK;
}

/* One link, from its opening to its end. Why it ended, CLB_OK when that was our wish. */
static int receive(struct receiver *r, struct clb_status *why)
{
    clb_link *link;
    clb_stream *cam = NULL;
    clb_packet *packet = NULL;
    int err = clb_link_open(&link, clb_link_params(.uri = r->uri, .status = why,
                                                   .connect_timeout_ns = 2 * SEC,
                                                   .idle_timeout_ns = 5 * SEC)); /* cable pulled */
    if (err < 0)
        return err;
    r->links++;
    err =
        clb_stream_open(&cam, link, clb_stream_params(.allocator = clb_cl_pool_allocator(r->pool)));
    /* What has arrived complete is read also after the end; then LOST, or CLOSED in good order. */
    while (err == CLB_OK && r->frames < r->wanted) {
        err = clb_stream_read(cam, &packet, -1);
        if (err == CLB_OK)
            err = take(r, &packet);
    }
    clb_packet_free(&packet); /* NULL unless it could not be taken */
    if (err < 0)
        clb_link_get_state(link, why);
    clb_stream_close(&cam);
    clb_link_close(&link); /* at once when it is lost, else within 2 s */
    return err;
}

/* What another attempt does not mend. */
static int hopeless(int err)
{
    return err == CLB_ERR_INVAL || err == CLB_ERR_NOSYS || err == CLB_ERR_CL ||
           err == CLB_ERR_NOMEM;
}

static void wait_a_while(struct receiver *r)
{
    long ms = r->wait_ms / 2 + rand() % (r->wait_ms / 2); /* not all receivers at once */
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
    r->wait_ms = r->wait_ms * 2 < MAX_WAIT_MS ? r->wait_ms * 2 : MAX_WAIT_MS;
}

int main(int argc, char **argv)
{
    struct receiver r = {.wait_ms = FIRST_WAIT_MS};
    struct clb_status why = {0};
    unsigned char number[8] = {0}; /* what `clbridge send --pattern counter` begins a frame with */
    int err;
    if (argc != 4) {
        fprintf(stderr, "usage: %s tcp://HOST[:PORT] FRAME_BYTES FRAMES\n", argv[0]);
        return 2;
    }
    srand((unsigned)time(NULL));
    r.uri = argv[1];
    r.wanted = strtoul(argv[3], NULL, 10);
    err = clb_cl_device_create(&r.dev, clb_cl_device_params(.status = &why));
    if (err == CLB_OK)
        err = clb_cl_pool_create(&r.pool, r.dev,
                                 clb_cl_pool_params(.buf_size = strtoul(argv[2], NULL, 10),
                                                    .count = 16, .status = &why));
    while (err == CLB_OK && (err = receive(&r, &why)) < 0 && !hopeless(err)) {
        fprintf(stderr, "%s: %s; trying again\n", clb_error_name(err), WORDS(why, err));
        wait_a_while(&r);
        err = CLB_OK;
    }
    if (err < 0)
        fprintf(stderr, "%s: %s\n", clb_error_name(err), WORDS(why, err));
    if (r.last) {
        cl_event ready = clb_cl_frame_ready(r.last);
        clEnqueueReadBuffer(clb_cl_device_queue(r.dev), clb_cl_frame_mem(r.last), CL_TRUE, 0,
                            sizeof number, number, 1, &ready, NULL);
    }
    printf("%lu frames over %lu links, the last one is number %u\n", r.frames, r.links,
           number[0] | (unsigned)number[1] << 8);
    clb_cl_frame_unref(&r.last);
    clb_cl_pool_destroy(&r.pool);
    clb_cl_device_destroy(&r.dev);
    return err < 0;
}
