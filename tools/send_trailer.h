/* SPDX-License-Identifier: Apache-2.0 */
/* What `send --trailer depthai` writes behind the pixels. */
#ifndef TOOLS_SEND_TRAILER_H
#define TOOLS_SEND_TRAILER_H

#include <stdint.h>

#include <clbridge/depthai.h>

/* What every frame claims. */
#define SEND_CAMERA_SOCKET 0 /* CAM_A */
#define SEND_EXPOSURE_US 8333
#define SEND_ISO 400

struct send_trailer {
    enum clb_depthai_release release;
    struct clb_image image;
    int64_t born_ns; /* the "device" counts its time from the first frame */
    size_t size;     /* of what stands in bytes */
    unsigned char bytes[CLB_DEPTHAI_TRAILER_MAX];
};

/* Writes metadata, type, size and end mark of frame n. CLB_OK; NOSYS, INVAL: depthai cannot say this
 * layout. */
int send_trailer_write(struct send_trailer *t, uint64_t n);

#endif
