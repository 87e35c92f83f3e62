/* SPDX-License-Identifier: Apache-2.0 */
/* What a received packet says about itself: how its pixels lie, and what the camera wrote. */
#ifndef TOOLS_RECV_ABOUT_H
#define TOOLS_RECV_ABOUT_H

#include <stdbool.h>

#include <clbridge/depthai.h>
#include <clbridge/stream.h>

struct recv_about {
    bool has_image;
    struct clb_image image; /* how the pixels lie */
    bool placed;            /* their rows were placed on arrival; then: */
    struct clb_image sent;  /* how they lay on the way here */
    bool has_camera;
    clb_depthai_info camera;
};

/* How the pixels that a peer sends are to lie; all zero = unknown, and as they come. */
struct recv_geometry {
    struct clb_image image; /* as the command line says; fmt 0 = it does not */
    size_t pitch_align;     /* 0 = rows as they come */
};

/* image NULL and metadata NULL: unknown, and none. */
void recv_about(struct recv_about *a, const struct recv_geometry *g, const clb_packet_info *info,
                const struct clb_image *image, const void *metadata);

/*
 * Number and CRC-32 of the bytes that are pixels: all that came in front of the metadata, or of rows
 * that were placed their own bytes, plane by plane, without what lies between them.
 */
size_t recv_pixel_bytes(const struct recv_about *a, const clb_packet_info *info);
uint32_t recv_pixel_crc(const struct recv_about *a, const clb_packet_info *info,
                        const uint8_t *pixels);

#endif
