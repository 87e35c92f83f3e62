/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/depthai.h: what the metadata of a depthai packet says, and a writer of such metadata.
 *
 * A depthai packet is | pixels | metadata | object type | metadata size | end mark |. A stream with
 * clb_stream_params.trailer set takes it apart while receiving: the pixels lie in the allocator's
 * memory, the metadata in host memory (clb_packet_metadata()). These functions read and write the
 * metadata, which is serialised with libnop. They work on plain bytes and know no link.
 *
 * The layouts change between releases of depthai, so reading goes by form, not by member count, and
 * every number is checked against the bytes that are there.
 */
#ifndef CLBRIDGE_DEPTHAI_H
#define CLBRIDGE_DEPTHAI_H

#include <clbridge/common.h>
#include <clbridge/image.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Releases of depthai that differ in the layout or in the numbers of the object types. */
enum clb_depthai_release {
    CLB_DEPTHAI_ANY,   /* reading: frames are recognised by form; writing: CLB_DEPTHAI_V3_10 */
    CLB_DEPTHAI_V2,    /* 2.14 to 2.x; measured with 2.33 */
    CLB_DEPTHAI_V3_0,  /* 3.0 to 3.3 */
    CLB_DEPTHAI_V3_4,  /* 3.4, 3.5 */
    CLB_DEPTHAI_V3_6,  /* 3.6, 3.7 */
    CLB_DEPTHAI_V3_8,  /* 3.8, 3.9 */
    CLB_DEPTHAI_V3_10, /* 3.10 and later */
};

/** What a packet is. */
enum clb_depthai_kind {
    CLB_DEPTHAI_OTHER,   /* not looked into; object_type says what it is */
    CLB_DEPTHAI_FRAME,   /* ImgFrame: image, numbers and times are filled */
    CLB_DEPTHAI_ENCODED, /* EncodedFrame: numbers and times are filled, image.fmt is 0 */
    CLB_DEPTHAI_BUFFER,  /* Buffer: sequence number and times are filled */
    CLB_DEPTHAI_SPLIT,   /* announces a message in split_packets raw packets of split_bytes bytes in
                            all, which follow on the stream */
    CLB_DEPTHAI_GROUP,   /* its members follow on the stream as group_members packets */
};

/** The content of metadata. Members that the kind or the release does not have are 0. */
typedef struct clb_depthai_info {
    int32_t object_type;        /* as the peer numbers it; differs between releases */
    enum clb_depthai_kind kind; /* which of the members below are filled */
    struct clb_image image;     /* layout of the pixels, checked against data_size; fmt 0 = a frame
                                   type without a counterpart here, see frame_type:
                                   only width and height are filled, 0 = not told */
    int32_t frame_type;         /* depthai's own number of the frame type; -1 = no frame */
    int64_t sequence_num;       /* counted by the device */
    int64_t ts_ns;              /* host-synchronised monotonic time of exposure, ns */
    int64_t ts_device_ns;       /* device monotonic time, ns */
    int64_t ts_system_ns;       /* Unix time, ns; 0 = not sent (before 3.8) */
    uint32_t camera_socket;     /* 0 = CAM_A, 1 = CAM_B ... */
    int64_t exposure_us;        /* exposure time, microseconds */
    int32_t iso;                /* sensitivity */
    int32_t lens_position;      /* 0..255, -1 = not set */
    int32_t wb_color_temp;      /* kelvin, 0 = not set */
    float lens_position_raw;    /* 0..1 */
    uint32_t category;          /* as the peer sets it */
    uint32_t split_packets;     /* CLB_DEPTHAI_SPLIT: packets that follow */
    uint32_t split_bytes;       /* CLB_DEPTHAI_SPLIT: bytes in them */
    uint32_t group_members;     /* CLB_DEPTHAI_GROUP: packets that follow */
} clb_depthai_info;

typedef struct clb_depthai_parse_params {
    size_t struct_size;   /* sizeof of this struct; 0 = its first version */
    const void *metadata; /* borrowed during the call; without type, size and end mark */
    size_t metadata_size; /* bytes, at most 51200 */
    size_t data_size;     /* bytes of pixels in front of the metadata */
    int32_t object_type;  /* as it stands behind the metadata */
    enum clb_depthai_release release; /* selects the numbers of the object types; 0 = any */
} clb_depthai_parse_params;
#ifndef __cplusplus
#define clb_depthai_parse_params(...)                                                              \
    (&(const clb_depthai_parse_params){.struct_size = sizeof(clb_depthai_parse_params),            \
                                       __VA_ARGS__})
#endif

/**
 * Reads metadata. Strides and plane offsets that are not set mean that rows and planes are packed.
 * The metadata is one structure and nothing behind it, of at most 4096 values and 8 containers
 * inside each other. At most `size` bytes of *out are filled.
 * @owner out by the caller. @thread any. @blocks no; no memory is allocated.
 * @return CLB_OK (an unknown type too, with kind CLB_DEPTHAI_OTHER); PROTO (malformed, or geometry
 *         that does not fit data_size); INVAL.
 */
CLB_API CLB_NODISCARD int clb_depthai_parse(clb_depthai_info *out, size_t size,
                                            const clb_depthai_parse_params *params);

typedef struct clb_depthai_write_params {
    size_t struct_size;               /* sizeof of this struct; 0 = its first version */
    enum clb_depthai_release release; /* CLB_DEPTHAI_V3_4 or _V3_10; 0 = CLB_DEPTHAI_V3_10 */
    struct clb_image image;           /* what is sent; a format that depthai has */
    uint32_t bytes_pp;       /* as written; 0 = what depthai's setters leave for the format */
    struct clb_image source; /* the sensor frame that the image came from; fmt 0 = not set */
    int plane_offsets;       /* 0 = written only when planes do not follow each other; 1 = always */
    int64_t sequence_num;    /* 0 is a number like others */
    int64_t ts_ns;           /* host-synchronised monotonic time, ns, >= 0 */
    int64_t ts_device_ns;    /* device monotonic time, ns, >= 0 */
    int64_t ts_system_ns;    /* Unix time, ns; 0 = not set; ignored before 3.8 */
    uint32_t camera_socket;  /* 0 = CAM_A, 1 = CAM_B ... */
    uint32_t category;       /* written as it is, like the numbers that follow */
    int32_t exposure_us;     /* exposure time, microseconds */
    int32_t iso;             /* sensitivity */
    int32_t lens_position;   /* 0..255 */
    int32_t wb_color_temp;   /* kelvin */
    float lens_position_raw; /* 0..1 */
    const void *transformation; /* the serialised member as it stands in the metadata of the chosen
                                   release, borrowed during the call; NULL = identity for the image */
    size_t transformation_size; /* bytes */
} clb_depthai_write_params;
#ifndef __cplusplus
#define clb_depthai_write_params(...)                                                              \
    (&(const clb_depthai_write_params){.struct_size = sizeof(clb_depthai_write_params),            \
                                       __VA_ARGS__})
#endif

/** Largest result of clb_depthai_write() without a transformation of the caller's, bytes. */
#define CLB_DEPTHAI_TRAILER_MAX 1024

/**
 * Writes what follows the pixels of an ImgFrame: metadata, object type, size and end mark. Send it
 * as the second piece of a gather write, behind the pixels.
 * @owner out: cap bytes by the caller. @thread any. @blocks no; no memory is allocated.
 * @return CLB_OK with *written bytes; TOOBIG (cap is too small, or more than 51200 bytes of
 *         metadata), INVAL (image or a layout that depthai cannot say, negative time,
 *         transformation of another release), NOSYS (release or format).
 */
CLB_API CLB_NODISCARD int clb_depthai_write(void *out, size_t cap, size_t *written,
                                            const clb_depthai_write_params *params);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_DEPTHAI_H */
