// SPDX-License-Identifier: Apache-2.0
#include "chains.hpp"

#include <opencv2/core.hpp>
#include <opencv2/core/ocl.hpp>
#include <opencv2/imgproc.hpp>

#include <cstring>
#include <type_traits>

#include "raw10.h"
#include "report.hpp"

namespace {

cv::Size size_of(const clb_image &img)
{
    return {static_cast<int>(img.width), static_cast<int>(img.height)};
}

cv::Size size_of(const clb_preprocess_geometry &g)
{
    return {static_cast<int>(g.width), static_cast<int>(g.height)};
}

// The chains above all read the frame's bytes as one picture without padding.
cv::Mat as_mat(const Pixels &px, cv::Size size, int type)
{
    if (px.size() != static_cast<size_t>(size.area()) * CV_ELEM_SIZE(type))
        fail("a frame of %zu bytes is no picture of %dx%d without padding", px.size(), size.width,
             size.height);
    return {size, type, const_cast<uint8_t *>(px.data())};
}

// (x / 255 - mean) / dev as OpenCV's alpha and beta.
struct Linear {
    double alpha[3], beta[3];

    explicit Linear(const Normalise &n)
    {
        for (int k = 0; k < 3; k++) {
            alpha[k] = 1 / (255 * n.dev[k]);
            beta[k] = -n.mean[k] / n.dev[k];
        }
    }
};

template <class M> class Letterbox : public Chain {
  public:
    Letterbox(const clb_image &img, const Pixels &px, const clb_preprocess_geometry &g,
              const Normalise &n, int pad)
        : from(as_mat(px, {size_of(img).width, size_of(img).height * 3 / 2}, CV_8UC1)), linear(n)
    {
        const cv::Rect inside(static_cast<int>(g.left), static_cast<int>(g.top),
                              static_cast<int>(g.inner_width), static_cast<int>(g.inner_height));

        in.create(from.size(), from.type());
        rgb.create(size_of(img), CV_8UC3);
        small.create(inside.size(), CV_8UC3);
        // The borders never change: drawn once, and only the inside of each plane is written.
        for (int k = 0; k < 3; k++) {
            const double border = pad * linear.alpha[k] + linear.beta[k];

            plane[k] = M(size_of(g), CV_32FC1, cv::Scalar::all(border));
            out[k] = plane[k](inside);
        }
        parts.resize(3);
        for (M &part : parts)
            part.create(inside.size(), CV_8UC1);
    }

    void receive() override
    {
        from.copyTo(in);
        finish();
    }

    void run() override
    {
        cv::cvtColor(in, rgb, cv::COLOR_YUV2RGB_NV12);
        cv::resize(rgb, small, small.size(), 0, 0, cv::INTER_LINEAR);
        cv::split(small, parts);
        for (size_t k = 0; k < 3; k++)
            parts[k].convertTo(out[k], CV_32F, linear.alpha[k], linear.beta[k]);
        finish();
    }

    Pixels result() override
    {
        Pixels all;

        for (const M &m : plane) {
            cv::Mat host;

            m.copyTo(host);
            all.insert(all.end(), host.data, host.data + host.total() * host.elemSize());
        }
        return all;
    }

  private:
    static void finish()
    {
        if (std::is_same<M, cv::UMat>::value)
            cv::ocl::finish();
    }

    const cv::Mat from;
    const Linear linear;
    M in, rgb, small, plane[3], out[3];
    std::vector<M> parts;
};

class Yuyv : public Chain {
  public:
    Yuyv(const clb_image &img, const Pixels &px, const clb_preprocess_geometry &g)
        : from(as_mat(px, size_of(img), CV_8UC2)), in(from.clone()), rgb(from.size(), CV_8UC3),
          out(size_of(g), CV_8UC3)
    {
    }

    void receive() override
    {
        from.copyTo(in);
    }

    void run() override
    {
        cv::cvtColor(in, rgb, cv::COLOR_YUV2RGB_YUY2);
        cv::resize(rgb, out, out.size(), 0, 0, cv::INTER_LINEAR);
    }

    Pixels result() override
    {
        return {out.data, out.data + out.total() * out.elemSize()};
    }

  private:
    const cv::Mat from;
    cv::Mat in, rgb, out;
};

class Raw10 : public Chain {
  public:
    Raw10(const clb_image &img, const Pixels &px, const clb_preprocess_geometry &g, bool upper)
        : from(px), in(px), pitch(img.plane[0].pitch), upper_only(upper),
          mosaic(size_of(img), upper ? CV_8UC1 : CV_16UC1),
          rgb(size_of(img), upper ? CV_8UC3 : CV_16UC3),
          small(size_of(g), upper ? CV_8UC3 : CV_16UC3), out(size_of(g), CV_8UC3)
    {
        if (img.width % 4)
            fail("a width of %u: whole groups of 4 pixels only", img.width);
    }

    void receive() override
    {
        std::memcpy(in.data(), from.data(), from.size());
    }

    void run() override
    {
        cv::parallel_for_(cv::Range(0, mosaic.rows), [this](const cv::Range &rows) {
            const auto first = static_cast<size_t>(rows.start),
                       last = static_cast<size_t>(rows.end);
            const auto width = static_cast<size_t>(mosaic.cols);

            if (upper_only)
                raw10_unpack8(mosaic.ptr<uint8_t>(), in.data(), pitch, width, first, last);
            else
                raw10_unpack16(mosaic.ptr<uint16_t>(), in.data(), pitch, width, first, last);
        });
        // OpenCV names a mosaic by its second row and column: this is R G, then G B.
        cv::cvtColor(mosaic, rgb, cv::COLOR_BayerBG2RGB);
        if (upper_only) {
            cv::resize(rgb, out, out.size(), 0, 0, cv::INTER_LINEAR);
        } else {
            cv::resize(rgb, small, small.size(), 0, 0, cv::INTER_LINEAR);
            small.convertTo(out, CV_8U, 255 / 1023.0);
        }
    }

    Pixels result() override
    {
        return {out.data, out.data + out.total() * out.elemSize()};
    }

  private:
    const Pixels &from;
    Pixels in;
    const size_t pitch;
    const bool upper_only;
    cv::Mat mosaic, rgb, small, out;
};

class Bgr : public Chain {
  public:
    Bgr(const clb_image &img, const Pixels &px, const clb_preprocess_geometry &g,
        const Normalise &n, unsigned frames, bool side_by_side)
        : from(as_mat(px, size_of(img), CV_8UC3)), linear(n), parallel(side_by_side),
          tensor(g.bytes * frames, 0), lane(frames)
    {
        for (unsigned i = 0; i < frames; i++) {
            Lane &l = lane[i];

            l.in = from.clone();
            l.small.create(size_of(g), CV_8UC3);
            l.parts.resize(3);
            for (size_t k = 0; k < 3; k++) {
                l.parts[k].create(size_of(g), CV_8UC1);
                l.out[k] =
                    cv::Mat(size_of(g), CV_32FC1, tensor.data() + g.bytes * i + g.bytes / 3 * k);
            }
        }
    }

    void receive() override
    {
        for (Lane &l : lane)
            from.copyTo(l.in);
    }

    void run() override
    {
        if (!parallel) {
            for (Lane &l : lane)
                one(l);
            return;
        }
        cv::parallel_for_(cv::Range(0, static_cast<int>(lane.size())), [this](const cv::Range &r) {
            for (int i = r.start; i < r.end; i++)
                one(lane[static_cast<size_t>(i)]);
        });
    }

    Pixels result() override
    {
        return tensor;
    }

  private:
    struct Lane {
        cv::Mat in, small, out[3]; // R, G, B
        std::vector<cv::Mat> parts;
    };

    void one(Lane &l) const
    {
        cv::resize(l.in, l.small, l.small.size(), 0, 0, cv::INTER_LINEAR);
        cv::split(l.small, l.parts);
        for (size_t k = 0; k < 3; k++)
            l.parts[2 - k].convertTo(l.out[k], CV_32F, linear.alpha[k], linear.beta[k]);
    }

    const cv::Mat from;
    const Linear linear;
    const bool parallel;
    Pixels tensor;
    std::vector<Lane> lane;
};

} // namespace

std::unique_ptr<Chain> letterbox_cpu(const clb_image &img, const Pixels &px,
                                     const clb_preprocess_geometry &g, const Normalise &n, int pad)
{
    return std::make_unique<Letterbox<cv::Mat>>(img, px, g, n, pad);
}

bool have_umat()
{
    return cv::ocl::haveOpenCL();
}

std::unique_ptr<Chain> letterbox_umat(const clb_image &img, const Pixels &px,
                                      const clb_preprocess_geometry &g, const Normalise &n, int pad,
                                      cl_context context)
{
    cv::ocl::Context theirs = cv::ocl::Context::fromHandle(context);

    cv::ocl::OpenCLExecutionContext::create(theirs, theirs.device(0)).bind();
    cv::ocl::setUseOpenCL(true);
    if (!cv::ocl::useOpenCL() || cv::ocl::Context::getDefault().ptr() != context)
        fail("OpenCV does not use the device of the library for cv::UMat");
    return std::make_unique<Letterbox<cv::UMat>>(img, px, g, n, pad);
}

std::unique_ptr<Chain> yuyv_cpu(const clb_image &img, const Pixels &px,
                                const clb_preprocess_geometry &g)
{
    return std::make_unique<Yuyv>(img, px, g);
}

std::unique_ptr<Chain> raw10_cpu(const clb_image &img, const Pixels &px,
                                 const clb_preprocess_geometry &g, bool upper_bits_only)
{
    return std::make_unique<Raw10>(img, px, g, upper_bits_only);
}

std::unique_ptr<Chain> bgr_cpu(const clb_image &img, const Pixels &px,
                               const clb_preprocess_geometry &g, const Normalise &n,
                               unsigned frames, bool side_by_side)
{
    return std::make_unique<Bgr>(img, px, g, n, frames, side_by_side);
}
