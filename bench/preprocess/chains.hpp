// SPDX-License-Identifier: Apache-2.0
//
// The baselines: the same results by OpenCV, as an application writes them that knows it: all memory
// is there before, pictures go into their place in the result, what need not be touched is not.
#ifndef BENCH_PREPROCESS_CHAINS_HPP
#define BENCH_PREPROCESS_CHAINS_HPP

#include <clbridge/preprocess.h>

#include <cstdint>
#include <memory>
#include <vector>

class Chain {
  public:
    virtual ~Chain() = default;
    // The frame comes in: not measured.
    virtual void receive() = 0;
    virtual void run() = 0;
    // In the layout of the library's tensor.
    virtual std::vector<uint8_t> result() = 0;
};

// By channel, on the scale 0..1: R, G, B.
struct Normalise {
    double mean[3], dev[3];
};

using Pixels = std::vector<uint8_t>;

// NV12 to size x size with borders of `pad`, f32 NCHW: cvtColor, resize, split, convertTo.
std::unique_ptr<Chain> letterbox_cpu(const clb_image &img, const Pixels &px,
                                     const clb_preprocess_geometry &g, const Normalise &n, int pad);
// The same on cv::UMat, on the context's device. Binds the calling thread to the context.
std::unique_ptr<Chain> letterbox_umat(const clb_image &img, const Pixels &px,
                                      const clb_preprocess_geometry &g, const Normalise &n, int pad,
                                      cl_context context);
// Whether this OpenCV can use OpenCL at all.
bool have_umat();

// YUYV to u8 NHWC: cvtColor, resize.
std::unique_ptr<Chain> yuyv_cpu(const clb_image &img, const Pixels &px,
                                const clb_preprocess_geometry &g);

// RAW10P to u8 NHWC: unpack to 16 bits, cvtColor, resize, convertTo; or unpack the upper 8 bits,
// cvtColor, resize, which is faster and loses the other two.
std::unique_ptr<Chain> raw10_cpu(const clb_image &img, const Pixels &px,
                                 const clb_preprocess_geometry &g, bool upper_bits_only);

// BGR24 frames to f32 NCHW, R first: resize, split, convertTo; the frames one after the other with
// all threads for each, or a thread for each frame.
std::unique_ptr<Chain> bgr_cpu(const clb_image &img, const Pixels &px,
                               const clb_preprocess_geometry &g, const Normalise &n,
                               unsigned frames, bool side_by_side);

#endif
