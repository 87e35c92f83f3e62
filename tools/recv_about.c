/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout and metadata of one packet.
 */
#include "recv_about.h"

#include <string.h>

#include "crc32.h"
#include "pattern.h"

/* The layout was checked when the packet was read; here the numbers count, and how the pixels lay
 * before their rows were placed. */
static void read_metadata(struct recv_about *a, const clb_packet_info *info, const void *metadata)
{
    clb_depthai_parse_params params = {.struct_size = sizeof params,
                                       .metadata = metadata,
                                       .metadata_size = info->metadata_size,
                                       .data_size = info->total - info->metadata_size,
                                       .object_type = info->object_type};

    a->has_camera = clb_depthai_parse(&a->camera, sizeof a->camera, &params) == CLB_OK;
}

void recv_about(struct recv_about *a, const struct recv_geometry *g, const clb_packet_info *info,
                const struct clb_image *image, const void *metadata)
{
    memset(a, 0, sizeof *a);
    if (metadata && info->metadata_status == CLB_METADATA_OK && info->total >= info->metadata_size)
        read_metadata(a, info, metadata);
    if (!image)
        return;
    a->has_image = true;
    a->image = *image;
    if (!g->pitch_align)
        return;
    a->sent = a->has_camera && a->camera.image.fmt ? a->camera.image : g->image;
    a->placed = a->sent.fmt != CLB_PIXFMT_UNKNOWN;
}

size_t recv_pixel_bytes(const struct recv_about *a, const clb_packet_info *info)
{
    size_t rows, row_bytes, sum = 0;

    if (!a->placed)
        return info->size;
    for (unsigned i = 0; i < a->image.num_planes; i++) {
        pattern_plane_shape(&a->image, i, &rows, &row_bytes);
        sum += rows * row_bytes;
    }
    return sum;
}

uint32_t recv_pixel_crc(const struct recv_about *a, const clb_packet_info *info,
                        const uint8_t *pixels)
{
    size_t rows, row_bytes;
    uint32_t crc = 0;

    if (!a->placed)
        return crc32_of(pixels, info->size);
    for (unsigned i = 0; i < a->image.num_planes; i++) {
        pattern_plane_shape(&a->image, i, &rows, &row_bytes);
        for (size_t y = 0; y < rows; y++)
            crc = crc32_more(crc, pixels + a->image.plane[i].offset + a->image.plane[i].pitch * y,
                             row_bytes);
    }
    return crc;
}
