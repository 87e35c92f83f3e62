/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/opencv.hpp: OpenCV views of packets and frames, C++17, header-only, OpenCV 4.5 or later.
 *
 * The libraries do not link OpenCV; a program that includes this header links opencv_core itself.
 *
 * HOST VIEWS. clb::mat() makes a cv::Mat over the pixels of a packet where they lie: nothing is
 * copied, and the Mat borrows. It, its copies and its regions of interest are valid as long as the
 * packet is neither released nor freed; touching one later touches memory that the transport or the
 * device is writing. cv::Mat::clone() makes one that stays. What a kernel does to the frame later
 * does not show in the Mat.
 *
 * What the Mat has: CV_8UC1 for GRAY8 and for the luma plane of NV12, CV_8UC2 (U, V) for its chroma
 * plane, CV_8UC3 for BGR24 and RGB24 in the byte order of the format (OpenCV's own is BGR), and the
 * plane's pitch as its step. Formats without layout support in this version are refused.
 *
 * DEVICE VIEWS. clb::umat() is not in this version.
 */
#ifndef CLBRIDGE_OPENCV_HPP
#define CLBRIDGE_OPENCV_HPP

#include <opencv2/core.hpp>

#include <clbridge/cl.h>
#include <clbridge/clbridge.hpp>

#include <climits>
#include <cstddef>
#include <cstdint>

namespace clb {

/**
 * One plane of a picture in memory, as it lies there.
 * Throws clb::error: STATE (data is NULL), INVAL (a layout that is unknown or contradicts itself, no
 * such plane), TOOBIG (it ends behind the `size` bytes, or does not fit an int), NOSYS (format).
 * @owner data is borrowed as long as the Mat or a copy of it is used. @thread any. @blocks no.
 */
inline cv::Mat mat(void *data, std::size_t size, const clb_image &img, unsigned plane = 0)
{
    if (!data)
        throw error(CLB_ERR_STATE, "clb::mat: there are no pixels: released, freed or empty");
    check(clb_image_check(&img, size), "clb::mat");
    if (plane >= img.num_planes)
        throw error(CLB_ERR_INVAL, "clb::mat: the picture has no such plane");
    if (img.width > INT_MAX - 1U || img.height > INT_MAX - 1U)
        throw error(CLB_ERR_TOOBIG, "clb::mat: more rows or columns than a cv::Mat can have");

    const int width = static_cast<int>(img.width), height = static_cast<int>(img.height);
    std::uint8_t *first = static_cast<std::uint8_t *>(data) + img.plane[plane].offset;
    const std::size_t step = img.plane[plane].pitch;
    switch (img.fmt) {
    case CLB_PIXFMT_GRAY8: return cv::Mat(height, width, CV_8UC1, first, step);
    case CLB_PIXFMT_RGB24:
    case CLB_PIXFMT_BGR24: return cv::Mat(height, width, CV_8UC3, first, step);
    case CLB_PIXFMT_NV12:
        if (plane == 0)
            return cv::Mat(height, width, CV_8UC1, first, step);
        return cv::Mat((height + 1) / 2, (width + 1) / 2, CV_8UC2, first, step);
    default: throw error(CLB_ERR_NOSYS, "clb::mat: this format has no cv::Mat type here");
    }
}

/**
 * A whole NV12 picture as one CV_8UC1 picture of 3/2 height, luma above chroma: what cv::cvtColor()
 * takes for COLOR_YUV2BGR_NV12. Throws as mat(), and INVAL unless width and height are even and the
 * chroma plane follows the luma plane directly, with the same pitch (clb_image_init() makes it so).
 * @owner data is borrowed as long as the Mat or a copy of it is used. @thread any. @blocks no.
 */
inline cv::Mat mat_nv12(void *data, std::size_t size, const clb_image &img)
{
    const cv::Mat luma = mat(data, size, img);
    if (img.fmt != CLB_PIXFMT_NV12)
        throw error(CLB_ERR_INVAL, "clb::mat_nv12: the picture is not NV12");
    if (img.width % 2 || img.height % 2)
        throw error(CLB_ERR_INVAL, "clb::mat_nv12: width and height must be even");
    /* Neither product nor sum overflows: the check of the layout has computed more than them. */
    if (img.plane[1].pitch != img.plane[0].pitch ||
        img.plane[1].offset != img.plane[0].offset + img.plane[0].pitch * img.height)
        throw error(CLB_ERR_INVAL, "clb::mat_nv12: the chroma plane does not follow the luma "
                                   "plane with the same pitch: take the planes one by one");
    if (img.height > INT_MAX / 3 * 2)
        throw error(CLB_ERR_TOOBIG, "clb::mat_nv12: more rows than a cv::Mat can have");
    return cv::Mat(luma.rows / 2 * 3, luma.cols, CV_8UC1, luma.data, luma.step);
}

/**
 * One plane of a packet. Throws as mat() above; INVAL when the packet's image is unknown: open the
 * stream with clb_stream_params.image.
 * @owner borrowed until the packet is released or freed. @thread one at a time per packet. @blocks no.
 */
inline cv::Mat mat(const packet &from, unsigned plane = 0)
{
    if (from.data() && !from.image())
        throw error(CLB_ERR_INVAL, "clb::mat: the layout of the packet is unknown");
    const clb_image none{};
    return mat(from.data(), from.size(), from.image() ? *from.image() : none, plane);
}
/** It would be over before the Mat is used. */
cv::Mat mat(packet &&from, unsigned plane = 0) = delete;

/** As above, of a packet. */
inline cv::Mat mat_nv12(const packet &from)
{
    if (from.data() && !from.image())
        throw error(CLB_ERR_INVAL, "clb::mat_nv12: the layout of the packet is unknown");
    const clb_image none{};
    return mat_nv12(from.data(), from.size(), from.image() ? *from.image() : none);
}
cv::Mat mat_nv12(packet &&from) = delete;

/**
 * One plane of a frame as a cv::UMat, without a copy. Not in this version: throws NOSYS.
 * @owner nothing yet. @thread any. @blocks no.
 */
inline cv::UMat umat(const clb_cl_frame *, unsigned /* plane */ = 0)
{
    throw error(CLB_ERR_NOSYS, "clb::umat: not in this version");
}

} // namespace clb

#endif /* CLBRIDGE_OPENCV_HPP */
