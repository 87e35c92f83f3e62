// SPDX-License-Identifier: Apache-2.0
//
// The reference and the library's results against OpenCV. Where the rules differ, the limit of a
// comparison says by how much, on the scale 0..255:
//
//   YUV         OpenCV has matrix 601, limited range; its coefficients are rounded to 3 decimals (at
//               most 0.2), and it rounds to 8 bits (0.5). It takes Y below 16 for 16. Chroma is
//               replicated in both. Even sizes only.
//   8 bits      OpenCV rounds after every step (0.5 each); its bilinear weights have 11 bits (0.25)
//   GRAY        the same coefficients; rounded (0.5)
//   bilinear    the same positions, in f32 (0.02 with f32 pixels)
//   nearest     INTER_NEAREST_EXACT has our positions, in 16.16 fixed point: where one lies between two
//               pixels either may be taken (no size here has any). INTER_NEAREST takes floor(i *
//               length / n)
//   area        the same for reductions; OpenCV enlarges by another rule, we by this one
//   crop        a cv::Mat of a region ends at its border, as ours; getRectSubPix() for fractions
//   demosaic    the same means, rounded (0.5 of the samples' scale); OpenCV repeats the first row and
//               column inside, we mirror: compared without the border
//   f16         not in OpenCV's chain
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "recipes_kit.h"

namespace {

struct Case {
    const char *name;
    clb_preprocess_params p{};
    clb_image img{};
    uint8_t *px = nullptr;

    Case(const char *text, clb_pixfmt fmt, unsigned w, unsigned h) : name(text)
    {
        const kit_pads pads = {{32, 64, 16}, {64, 16, 16}};

        kit_image(&img, fmt, w, h, pads);
        p.struct_size = sizeof p;
        p.src = &img;
        px = kit_noise(&img, 0xAA, 7);
    }
    ~Case()
    {
        std::free(px);
    }
    Case(const Case &) = delete;
    Case &operator=(const Case &) = delete;

    // A plane without its padding.
    cv::Mat plane(unsigned i, int type) const
    {
        const int w = static_cast<int>(ref_row_bytes(&img, i) / CV_ELEM_SIZE(type));

        return cv::Mat(static_cast<int>(ref_rows(&img, i)), w, type, px + img.plane[i].offset,
                       img.plane[i].pitch)
            .clone();
    }
};

// `want` are the elements before the type, H x W x C, in f32. Without `border` pixels at each side.
void compare(const Case &c, const cv::Mat &want, double limit, int border = 0)
{
    clb_preprocess_params p = c.p;
    ref_result ref;
    double by_ref = 0, by_us = 0;

    p.layout = CLB_LAYOUT_NHWC;
    if (!ref_run(&p, &c.img, c.px, 0, 0, &ref))
        std::abort();
    if (want.rows != static_cast<int>(ref.g.height) || want.cols != static_cast<int>(ref.g.width) ||
        want.channels() != static_cast<int>(ref.g.channels) || want.depth() != CV_32F) {
        std::fprintf(stderr, "%s: OpenCV's result has another shape\n", c.name);
        std::exit(1);
    }
    p = c.p;
    clb_preprocess *pp = kit_create(&p);
    uint8_t *out = kit_run(pp, &p, &c.img, c.px, 64);
    kit_compare(&p, &c.img, c.px, out, c.name);
    for (int y = border; y < want.rows - border; y++)
        for (int x = border; x < want.cols - border; x++)
            for (int k = 0; k < want.channels(); k++) {
                const size_t w = ref.g.width, h = ref.g.height, n = ref.g.channels;
                const size_t nhwc = (static_cast<size_t>(y) * w + static_cast<size_t>(x)) * n +
                                    static_cast<size_t>(k);
                const size_t nchw = (static_cast<size_t>(k) * h + static_cast<size_t>(y)) * w +
                                    static_cast<size_t>(x);
                const double theirs = static_cast<double>(want.ptr<float>(y, x)[k]);
                const double ours =
                    kit_element(p.type, out, p.layout == CLB_LAYOUT_NCHW ? nchw : nhwc);

                by_ref = std::fmax(by_ref, std::fabs(theirs - ref.value[nhwc]));
                by_us = std::fmax(by_us, std::fabs(theirs - ours));
                if (std::fabs(theirs - ref.value[nhwc]) > limit) {
                    std::fprintf(stderr, "%s: (%d,%d) channel %d: OpenCV %g, reference %g\n",
                                 c.name, x, y, k, theirs, ref.value[nhwc]);
                    std::exit(1);
                }
                // u8 of ours is rounded too.
                if (std::fabs(theirs - ours) > limit + (p.type == CLB_TYPE_U8 ? 0.51 : 1e-4)) {
                    std::fprintf(stderr, "%s: (%d,%d) channel %d: OpenCV %g, we %g\n", c.name, x, y,
                                 k, theirs, ours);
                    std::exit(1);
                }
            }
    std::printf("%-28s OpenCV - formulas %.4f (limit %.4g), OpenCV - result %.4f\n", c.name, by_ref,
                limit, by_us);
    std::free(out);
    clb_preprocess_destroy(&pp);
    ref_free(&ref);
}

cv::Mat real(const cv::Mat &m)
{
    cv::Mat f;

    m.convertTo(f, CV_32F);
    return f;
}

cv::Mat coloured(const cv::Mat &m, int code)
{
    cv::Mat out;

    cv::cvtColor(m, out, code);
    return out;
}

cv::Mat resized(const cv::Mat &m, int w, int h, int how)
{
    cv::Mat out;

    cv::resize(m, out, cv::Size(w, h), 0, 0, how);
    return out;
}

// The rows of all planes as OpenCV wants them: one picture of 3/2 height.
cv::Mat yuv420(const Case &c)
{
    cv::Mat all(static_cast<int>(c.img.height * 3 / 2), static_cast<int>(c.img.width), CV_8UC1);
    uint8_t *to = all.data;

    for (unsigned i = 0; i < c.img.num_planes; i++) {
        const cv::Mat m = c.plane(i, CV_8UC1);

        std::memcpy(to, m.data, m.total());
        to += m.total();
    }
    return all;
}

// Noise without Y below 16.
double yuv_noise(const clb_image *img, unsigned plane, unsigned i, unsigned, void *priv)
{
    auto *state = static_cast<uint32_t *>(priv);
    const bool luma = img->fmt == CLB_PIXFMT_YUYV   ? i % 2 == 0
                      : img->fmt == CLB_PIXFMT_UYVY ? i % 2 == 1
                                                    : plane == 0;

    *state = *state * 1664525u + 1013904223u;
    return luma ? 16 + (*state >> 8) % 240 : *state >> 24;
}

void yuv()
{
    const struct {
        clb_pixfmt fmt;
        int rgb, packed;
    } of[] = {
        {CLB_PIXFMT_NV12, cv::COLOR_YUV2RGB_NV12, 0}, {CLB_PIXFMT_NV21, cv::COLOR_YUV2RGB_NV21, 0},
        {CLB_PIXFMT_I420, cv::COLOR_YUV2RGB_IYUV, 0}, {CLB_PIXFMT_YV12, cv::COLOR_YUV2RGB_YV12, 0},
        {CLB_PIXFMT_YUYV, cv::COLOR_YUV2RGB_YUY2, 1}, {CLB_PIXFMT_UYVY, cv::COLOR_YUV2RGB_UYVY, 1},
    };

    for (const auto &f : of) {
        Case c(clb_pixfmt_name(f.fmt), f.fmt, 64, 48);
        uint32_t state = 1;

        std::free(c.px);
        c.px = kit_picture(&c.img, 0xAA, yuv_noise, &state);
        const cv::Mat in = f.packed ? c.plane(0, CV_8UC2) : yuv420(c);

        compare(c, real(coloured(in, f.rgb)), 0.75);
        c.p.type = CLB_TYPE_F32;
        c.p.layout = CLB_LAYOUT_NCHW;
        compare(c, real(coloured(in, f.rgb)), 0.75);
    }
}

void packed()
{
    const int bgr = CLB_ORDER_BGR, rgb = CLB_ORDER_RGB, grey = CLB_ORDER_GRAY;
    const struct {
        clb_pixfmt fmt;
        int type, order, code;
    } of[] = {
        {CLB_PIXFMT_BGR24, CV_8UC3, bgr, -1},
        {CLB_PIXFMT_BGR24, CV_8UC3, rgb, cv::COLOR_BGR2RGB},
        {CLB_PIXFMT_BGR24, CV_8UC3, grey, cv::COLOR_BGR2GRAY},
        {CLB_PIXFMT_RGB24, CV_8UC3, grey, cv::COLOR_RGB2GRAY},
        {CLB_PIXFMT_RGB24, CV_8UC3, bgr, cv::COLOR_RGB2BGR},
        {CLB_PIXFMT_RGBA, CV_8UC4, bgr, cv::COLOR_RGBA2BGR},
        {CLB_PIXFMT_BGRA, CV_8UC4, bgr, cv::COLOR_BGRA2BGR},
        {CLB_PIXFMT_GRAY8, CV_8UC1, rgb, cv::COLOR_GRAY2RGB},
    };

    for (const auto &f : of) {
        Case c(clb_pixfmt_name(f.fmt), f.fmt, 55, 37);
        const cv::Mat in = c.plane(0, f.type);

        c.p.order = static_cast<clb_preprocess_order>(f.order);
        compare(c, real(f.code < 0 ? in : coloured(in, f.code)), f.order == grey ? 0.55 : 0);
    }
    for (const clb_pixfmt fmt : {CLB_PIXFMT_RGBP, CLB_PIXFMT_BGRP}) {
        Case c(clb_pixfmt_name(fmt), fmt, 55, 37);
        cv::Mat in;

        cv::merge(
            std::vector<cv::Mat>{c.plane(0, CV_8UC1), c.plane(1, CV_8UC1), c.plane(2, CV_8UC1)},
            in);
        c.p.order = fmt == CLB_PIXFMT_RGBP ? CLB_ORDER_RGB : CLB_ORDER_BGR;
        compare(c, real(in), 0);
    }
    {
        Case c("gray16", CLB_PIXFMT_GRAY16, 55, 37);
        cv::Mat in;

        c.plane(0, CV_16UC1).convertTo(in, CV_8U, 1 / 257.0);
        c.p.order = CLB_ORDER_GRAY;
        compare(c, real(in), 0.51);
    }
    {
        Case c("rgbpf32, f32, area", CLB_PIXFMT_RGBPF32, 120, 90);
        cv::Mat in;

        cv::merge(
            std::vector<cv::Mat>{c.plane(0, CV_32FC1), c.plane(1, CV_32FC1), c.plane(2, CV_32FC1)},
            in);
        in = cv::max(cv::min(in, cv::Scalar::all(255)), cv::Scalar::all(0));
        c.p.type = CLB_TYPE_F32;
        c.p.filter = CLB_FILTER_AREA;
        c.p.width = 37;
        c.p.height = 41;
        compare(c, resized(in, 37, 41, cv::INTER_AREA), 0.02);
    }
}

void filters()
{
    const int linear = CLB_FILTER_BILINEAR, nearest = CLB_FILTER_NEAREST, area = CLB_FILTER_AREA;
    const struct {
        int filter, how, w, h;
    } of[] = {
        {linear, cv::INTER_LINEAR, 300, 200},
        {linear, cv::INTER_LINEAR, 97, 41},
        {linear, cv::INTER_LINEAR, 1, 1},
        {linear, cv::INTER_LINEAR, 60, 120},
        {nearest, cv::INTER_NEAREST_EXACT, 96, 48},
        {nearest, cv::INTER_NEAREST_EXACT, 320, 256},
        {area, cv::INTER_AREA, 60, 40},
        {area, cv::INTER_AREA, 37, 41},
        {area, cv::INTER_AREA, 119, 79},
        {area, cv::INTER_AREA, 1, 1},
    };

    for (const auto &f : of) {
        char name[64];
        Case c(name, CLB_PIXFMT_RGB24, 120, 80);
        const cv::Mat in = c.plane(0, CV_8UC3);

        std::snprintf(name, sizeof name, "rgb24, filter %d, %dx%d", f.filter, f.w, f.h);
        c.p.filter = static_cast<clb_preprocess_filter>(f.filter);
        c.p.width = static_cast<uint32_t>(f.w);
        c.p.height = static_cast<uint32_t>(f.h);
        compare(c, real(resized(in, f.w, f.h, f.how)), f.filter == nearest ? 0 : 0.8);
        c.p.type = CLB_TYPE_F32;
        compare(c, resized(real(in), f.w, f.h, f.how), f.filter == nearest ? 0 : 0.02);
    }
}

void geometry()
{
    const int turn[] = {-1, cv::ROTATE_90_CLOCKWISE, cv::ROTATE_180,
                        cv::ROTATE_90_COUNTERCLOCKWISE};
    const int flip[] = {2, 1, 0, -1};

    for (int r = 0; r < 4; r++)
        for (int f = 0; f < 4; f++) {
            Case c("rotated and flipped", CLB_PIXFMT_RGB24, 31, 18);
            cv::Mat m = c.plane(0, CV_8UC3);

            if (r)
                cv::rotate(m, m, turn[r]);
            if (f)
                cv::flip(m, m, flip[f]);
            c.p.rotate = static_cast<clb_preprocess_rotate>(r);
            c.p.flip = static_cast<clb_preprocess_flip>(f);
            compare(c, real(m), 0);
        }
    {
        Case c("crop of whole pixels", CLB_PIXFMT_RGB24, 64, 48);
        const cv::Mat part = c.plane(0, CV_8UC3)(cv::Rect(5, 7, 30, 20)).clone();

        c.p.crop = {5, 7, 30, 20};
        c.p.width = 47;
        c.p.height = 33;
        c.p.type = CLB_TYPE_F32;
        compare(c, resized(real(part), 47, 33, cv::INTER_LINEAR), 0.02);
    }
    {
        Case c("crop of fractions", CLB_PIXFMT_RGB24, 64, 48);
        cv::Mat part;

        c.p.crop = {5.25, 7.625, 30, 20};
        c.p.type = CLB_TYPE_F32;
        cv::getRectSubPix(real(c.plane(0, CV_8UC3)), cv::Size(30, 20),
                          cv::Point2f(5.25f + 14.5f, 7.625f + 9.5f), part);
        compare(c, part, 0.02);
    }
}

void demosaic()
{
    const struct {
        clb_pixfmt fmt;
        clb_bayer bayer;
        int code, type;
    } of[] = {
        {CLB_PIXFMT_RAW8, CLB_BAYER_RGGB, cv::COLOR_BayerBG2RGB, CV_8UC1},
        {CLB_PIXFMT_RAW8, CLB_BAYER_BGGR, cv::COLOR_BayerRG2RGB, CV_8UC1},
        {CLB_PIXFMT_RAW10, CLB_BAYER_GRBG, cv::COLOR_BayerGB2RGB, CV_16UC1},
        {CLB_PIXFMT_RAW12, CLB_BAYER_GBRG, cv::COLOR_BayerGR2RGB, CV_16UC1},
        {CLB_PIXFMT_RAW16, CLB_BAYER_RGGB, cv::COLOR_BayerBG2RGB, CV_16UC1},
    };

    for (const auto &f : of) {
        Case c(clb_pixfmt_name(f.fmt), f.fmt, 40, 30);
        const double most = std::ldexp(1, static_cast<int>(ref_raw_bits(f.fmt))) - 1;
        cv::Mat m;

        c.img.bayer = f.bayer;
        c.p.type = CLB_TYPE_F32;
        coloured(c.plane(0, f.type), f.code).convertTo(m, CV_32F, 255 / most);
        compare(c, m, 0.51 * 255 / most, 1);
    }
}

// The chain of an application, with a picture inside of RGB's gamut.
double soft(const clb_image *, unsigned plane, unsigned i, unsigned y, void *)
{
    if (plane == 0)
        return 100 + 40 * std::sin(i * 0.11) + 30 * std::cos(y * 0.07);
    return 128 + 14 * std::sin(i * 0.05 + y * 0.03);
}

void chain()
{
    Case c("nv12, letterbox, normalised", CLB_PIXFMT_NV12, 384, 216);
    const float mean[3] = {0.485f, 0.456f, 0.406f}, dev[3] = {0.229f, 0.224f, 0.225f};
    cv::Mat m;

    std::free(c.px);
    c.px = kit_picture(&c.img, 0xAA, soft, nullptr);
    c.p.fit = CLB_FIT_LETTERBOX;
    c.p.width = c.p.height = 128;
    c.p.layout = CLB_LAYOUT_NCHW;
    c.p.type = CLB_TYPE_F32;
    for (int k = 0; k < 3; k++) {
        c.p.scale[k] = 1 / 255.0f;
        c.p.mean[k] = mean[k];
        c.p.dev[k] = dev[k];
        c.p.pad[k] = 114;
    }
    m = coloured(yuv420(c), cv::COLOR_YUV2RGB_NV12);
    m = resized(m, 128, 72, cv::INTER_LINEAR);
    cv::copyMakeBorder(m, m, 28, 28, 0, 0, cv::BORDER_CONSTANT, cv::Scalar::all(114));
    m.convertTo(m, CV_32F, 1 / 255.0);
    std::vector<cv::Mat> parts;
    cv::split(m, parts);
    for (size_t k = 0; k < 3; k++)
        parts[k] = (parts[k] - static_cast<double>(mean[k])) / static_cast<double>(dev[k]);
    cv::merge(parts, m);
    compare(c, m, 1.5 / 255 / 0.224);
}

} // namespace

int main()
{
    cv::setNumThreads(1);
    kit_open();
    yuv();
    packed();
    filters();
    geometry();
    demosaic();
    chain();
    kit_close();
    return 0;
}
