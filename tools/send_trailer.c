/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of one frame, as a camera of depthai writes them.
 */
#include "send_trailer.h"

#include <time.h>

#define SEC_NS INT64_C(1000000000)

static int64_t clock_ns(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return ts.tv_sec * SEC_NS + ts.tv_nsec;
}

int send_trailer_write(struct send_trailer *t, uint64_t n)
{
    int64_t now = clock_ns(CLOCK_MONOTONIC);

    if (!t->born_ns)
        t->born_ns = now;
    return clb_depthai_write(
        t->bytes, sizeof t->bytes, &t->size,
        clb_depthai_write_params(.release = t->release, .image = t->image,
                                 .sequence_num = (int64_t)(n & INT64_MAX), .ts_ns = now,
                                 .ts_device_ns = now - t->born_ns,
                                 .ts_system_ns = clock_ns(CLOCK_REALTIME),
                                 .camera_socket = SEND_CAMERA_SOCKET,
                                 .exposure_us = SEND_EXPOSURE_US, .iso = SEND_ISO));
}
