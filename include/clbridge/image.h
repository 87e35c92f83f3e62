/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/image.h: pixel formats and plane layouts, pure data.
 *
 * A clb_image says how pixels lie in a block of bytes; it owns nothing and points nowhere. Every
 * plane has its own offset and pitch, independent of the others: nothing may be derived from the
 * width. Chroma planes of 4:2:0 formats have (w + 1) / 2 by (h + 1) / 2 samples, so an NV12 chroma
 * row has 2 * ((w + 1) / 2) bytes.
 */
#ifndef CLBRIDGE_IMAGE_H
#define CLBRIDGE_IMAGE_H

#include <clbridge/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * name, lower-case name, planes. Shapes, with w and h in pixels:
 *   GRAY8      h rows of w bytes
 *   GRAY16     h rows of w u16, little-endian (depth: millimetres)
 *   NV12       h rows of w bytes Y, then (h+1)/2 rows of (w+1)/2 pairs (U, V)
 *   NV21       as NV12 with pairs (V, U)
 *   I420       Y, then U, then V, each (h+1)/2 rows of (w+1)/2 bytes
 *   YV12       Y, then V, then U
 *   YUYV, UYVY h rows of (w+1)/2 groups of 4 bytes
 *   RGB24, BGR24   h rows of w triples in that byte order
 *   RGBP, BGRP     three planes of h rows of w bytes in that order
 *   RGBA, BGRA     h rows of w quadruples
 *   RAW8           h rows of w bytes, Bayer
 *   RAW10, RAW12, RAW16   h rows of w u16, little-endian, value in the low bits, Bayer
 *   RAW10P         MIPI CSI-2 packed: 4 pixels in 5 bytes, rows of (w+3)/4*5 bytes, Bayer
 *   RGBPF32        three planes of h rows of w float
 * Groups are whole ones: bytes of the last one that belong to no pixel are there, and any value.
 */
#define CLB_PIXFMT_MAP(X)                                                                          \
    X(GRAY8, "gray8", 1)                                                                           \
    X(GRAY16, "gray16", 1)                                                                         \
    X(NV12, "nv12", 2)                                                                             \
    X(NV21, "nv21", 2)                                                                             \
    X(I420, "i420", 3)                                                                             \
    X(YV12, "yv12", 3)                                                                             \
    X(YUYV, "yuyv", 1)                                                                             \
    X(UYVY, "uyvy", 1)                                                                             \
    X(RGB24, "rgb24", 1)                                                                           \
    X(BGR24, "bgr24", 1)                                                                           \
    X(RGBP, "rgbp", 3)                                                                             \
    X(BGRP, "bgrp", 3)                                                                             \
    X(RGBA, "rgba", 1)                                                                             \
    X(BGRA, "bgra", 1)                                                                             \
    X(RAW8, "raw8", 1)                                                                             \
    X(RAW10, "raw10", 1)                                                                           \
    X(RAW12, "raw12", 1)                                                                           \
    X(RAW16, "raw16", 1)                                                                           \
    X(RAW10P, "raw10p", 1)                                                                         \
    X(RGBPF32, "rgbpf32", 3)

enum clb_pixfmt {
    CLB_PIXFMT_UNKNOWN = 0,
#define CLB_PIXFMT_ENUM_(name, text, planes) CLB_PIXFMT_##name,
    CLB_PIXFMT_MAP(CLB_PIXFMT_ENUM_)
#undef CLB_PIXFMT_ENUM_
        CLB_PIXFMT_COUNT
};

/** Order of the 2x2 Bayer cell, named by its first row then its second. 0 = not Bayer. */
enum clb_bayer {
    CLB_BAYER_NONE, /* not Bayer, or not known */
    CLB_BAYER_RGGB, /* R G, then G B */
    CLB_BAYER_BGGR, /* B G, then G R */
    CLB_BAYER_GRBG, /* G R, then B G */
    CLB_BAYER_GBRG, /* G B, then R G */
};

/** Luma coefficients Kr, Kg, Kb. */
enum clb_matrix {
    CLB_MATRIX_DEFAULT, /* CLB_MATRIX_601 */
    CLB_MATRIX_601,     /* ITU-R BT.601: 0.299, 0.587, 0.114 */
    CLB_MATRIX_709,     /* ITU-R BT.709: 0.2126, 0.7152, 0.0722 */
};

/** Sample range of 8 bits. */
enum clb_range {
    CLB_RANGE_DEFAULT, /* CLB_RANGE_LIMITED */
    CLB_RANGE_LIMITED, /* Y 16..235, U and V 16..240 */
    CLB_RANGE_FULL,    /* 0..255 */
};

struct clb_plane {
    size_t offset; /* bytes from the start of the pixels */
    size_t pitch;  /* bytes from one row to the next */
};

/** The layout of one picture. All zero = unknown. */
struct clb_image {
    enum clb_pixfmt fmt;       /* 0 = unknown */
    uint32_t width;            /* pixels */
    uint32_t height;           /* pixels */
    uint32_t num_planes;       /* 1..3, as the format has */
    struct clb_plane plane[3]; /* in the order of the format's description; the rest is 0 */
    enum clb_bayer bayer;      /* of RAW formats; 0 = not Bayer */
    enum clb_matrix matrix;    /* of YUV formats; 0 = 601 */
    enum clb_range range;      /* of YUV formats; 0 = limited */
    uint32_t reserved[5];      /* zero */
};

/**
 * Fills *img for a format and size in pixels. Every pitch is rounded up to pitch_align and every
 * plane offset to plane_align (bytes; 0 = 1 = packed). Each plane has its own pitch: that of I420
 * and YV12 chroma comes from rows of (w + 1) / 2 bytes. A plane starts where the padded rows of the
 * one before it end, or at the next multiple of plane_align: NV12 and NV21 have the chroma plane at
 * pitch * height whenever that is aligned, so that the whole is also one picture of 3/2 height.
 * @owner img by the caller. @thread any. @blocks no.
 * @return CLB_OK; INVAL for an unknown format, a size of 0 or an alignment that is no power of two;
 *         TOOBIG when a size overflows.
 */
CLB_API CLB_NODISCARD int clb_image_init(struct clb_image *img, enum clb_pixfmt fmt, uint32_t width,
                                         uint32_t height, size_t pitch_align, size_t plane_align);

/**
 * Bytes from the start of the pixels to the end of the last used byte: the largest of
 * offset + pitch * (rows - 1) + row bytes over the planes.
 * @owner img is borrowed during the call. @thread any. @blocks no.
 * @return bytes; 0 when img is NULL, unknown, without pixels, or overflows.
 */
CLB_API size_t clb_image_bytes(const struct clb_image *img);

/**
 * Checks a layout from an untrusted source against the bytes that are there: known format, sizes
 * not 0, pitch >= row bytes, every plane inside `available` (bytes), all in 64 bits.
 * @owner img is borrowed during the call. @thread any. @blocks no.
 * @return CLB_OK; INVAL (NULL, contradictory), TOOBIG (does not fit).
 */
CLB_API CLB_NODISCARD int clb_image_check(const struct clb_image *img, size_t available);

/**
 * The name of a format.
 * @owner static string. @thread any. @blocks no. @return in lower case; "unknown" otherwise.
 */
CLB_API const char *clb_pixfmt_name(enum clb_pixfmt fmt);

/**
 * The format of a name, case ignored.
 * @owner name is borrowed during the call. @thread any. @blocks no.
 * @return the format; CLB_PIXFMT_UNKNOWN when there is none of that name, and for NULL.
 */
CLB_API enum clb_pixfmt clb_pixfmt_from_name(const char *name);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_IMAGE_H */
