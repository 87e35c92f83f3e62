/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report A-20: a buffer is destroyed only after its unmap has completed. Every command of the double
 * takes 20 ms, and it counts a release of a buffer that is mapped or being unmapped as a violation,
 * whatever references a runtime might keep. Fifty frames, and everything is closed right after the last.
 */
#include <cases.h>

#include "pool_link.h"

#define SIZE 4096
#define FRAMES 50
#define DELAY (20 * MS)

enum last { LAST_UNREF, LAST_HELD, LAST_UNREAD };

/* How the last frame leaves: its unmap has just begun, or it is held beyond all handles, or it is a packet
 * that was never released. */
static void fifty_frames(const void *arg)
{
    const enum last last = *(const enum last *)arg;
    struct pool_link l = {.size = SIZE, .window = 4, .packets = FRAMES};
    clb_cl_frame *held = NULL;
    clb_packet *packet = NULL;
    struct kit k;
    int64_t begin, end;
    int i;

    dbl_start(true);
    dbl_set_delay(DELAY);
    kit_open(&k, false, 12, SIZE, CLB_CL_FENCE_ALL);
    pool_link_open(&l, k.a, CLB_FULL_BLOCK);
    for (i = 0; i < FRAMES; i++) {
        CHECK_EQ(clb_stream_read(l.stream, &packet, 20 * SEC), CLB_OK);
        CHECK_EQ(((unsigned char *)clb_packet_data(packet))[SIZE - 1], i);
        if (i == FRAMES - 1 && last == LAST_UNREAD)
            break;
        CHECK_EQ(clb_cl_frame_from_packet(&held, &packet), CLB_OK);
        if (i < FRAMES - 1 || last == LAST_UNREF)
            clb_cl_frame_unref(&held);
    }
    begin = check_ms();
    clb_stream_close(&l.stream);
    clb_link_close(&l.link);
    kit_close(&k);
    /* The link's limit is 2 s; a pool has none: it goes when the device lets it. */
    CHECK_LE(check_ms() - begin, 2000 + CASES_SLACK_MS + cases_kept_waiting_ms(begin));
    clb_cl_frame_unref(&held);
    clb_packet_free(&packet);
    peer_join(&l.peer);
    end = check_ms() + 10000;
    while (dbl_live() && check_ms() < end) /* a worker that was left alone ends a moment later */
        check_sleep_ms(1);
    /* An unmap that does not end within 2 s keeps its buffer: it is lost rather than released. */
    CHECK(!dbl_live() || cases_kept_waiting_ms(begin) > 1000);
    dbl_set_quiet(dbl_live() > 0);
    CHECK_EQ(dbl_violations(), 0);
    CHECK(dbl_finish() == 0 || cases_kept_waiting_ms(begin) > 1000);
}

int main(int argc, char **argv)
{
    static const enum last lasts[] = {LAST_UNREF, LAST_HELD, LAST_UNREAD};
    static const struct test_case cases[] = {{"unref", fifty_frames, &lasts[0]},
                                             {"held", fifty_frames, &lasts[1]},
                                             {"unread", fifty_frames, &lasts[2]}};

    return cases_run(argc, argv, cases, 3, 3, 55);
}
