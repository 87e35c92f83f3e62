/* SPDX-License-Identifier: Apache-2.0 */
/* opencv.hpp: shapes, steps and values of the views, and what is refused. */
#include <clbridge/opencv.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            std::fprintf(stderr, "opencv_test.cpp:%d: not so: %s\n", __LINE__, #cond);             \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        const long long a_ = (a), b_ = (b);                                                        \
        if (a_ != b_) {                                                                            \
            std::fprintf(stderr, "opencv_test.cpp:%d: %s is %lld, not %lld\n", __LINE__, #a, a_,   \
                         b_);                                                                      \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

/* A view of a packet that nobody holds does not compile. */
template <class P, class = void> struct accepts : std::false_type {
};
template <class P>
struct accepts<P, std::void_t<decltype(clb::mat(std::declval<P>()))>> : std::true_type {
};
static_assert(accepts<const clb::packet &>::value && !accepts<clb::packet>::value);

template <class F> static int code(F f)
{
    try {
        f();
    } catch (const clb::error &e) {
        CHECK(std::strncmp(e.what(), "clb::", 5) == 0);
        return e.code();
    }
    return CLB_OK;
}

static std::uint8_t value(std::size_t i)
{
    return static_cast<std::uint8_t>(i * 7 + (i >> 8) * 13 + 5);
}

static std::vector<std::uint8_t> filled(std::size_t n)
{
    std::vector<std::uint8_t> v(n);
    for (std::size_t i = 0; i < n; i++)
        v[i] = value(i);
    return v;
}

static clb_image image(clb_pixfmt fmt, unsigned w, unsigned h, size_t pitch, size_t plane)
{
    clb_image img;
    CHECK_EQ(clb_image_init(&img, fmt, w, h, pitch, plane), CLB_OK);
    return img;
}

/* Every byte as OpenCV addresses it and as it copies it, against its place in the layout. */
static void look(const cv::Mat &m, int rows, int cols, int channels, const std::uint8_t *base,
                 const clb_plane &plane)
{
    CHECK_EQ(m.rows, rows);
    CHECK_EQ(m.cols, cols);
    CHECK_EQ(m.type(), CV_MAKETYPE(CV_8U, channels));
    if (rows > 1)
        CHECK_EQ(static_cast<long long>(m.step[0]), static_cast<long long>(plane.pitch));
    CHECK(m.data == base + plane.offset);
    const cv::Mat copy = m.clone();
    CHECK(copy.data != m.data);
    for (int y = 0; y < rows; y++)
        for (int i = 0; i < cols * channels; i++) {
            const std::size_t at =
                plane.offset + static_cast<std::size_t>(y) * plane.pitch + static_cast<unsigned>(i);
            CHECK_EQ(m.ptr(y)[i], value(at));
            CHECK_EQ(copy.ptr(y)[i], value(at));
        }
}

static void layouts()
{
    for (unsigned w : {1U, 2U, 5U, 64U})
        for (unsigned h : {1U, 2U, 7U})
            for (size_t align : {1U, 32U}) {
                const int iw = static_cast<int>(w), ih = static_cast<int>(h);
                for (clb_pixfmt fmt : {CLB_PIXFMT_GRAY8, CLB_PIXFMT_RGB24, CLB_PIXFMT_BGR24}) {
                    const clb_image img = image(fmt, w, h, align, align);
                    auto mem = filled(clb_image_bytes(&img));
                    look(clb::mat(mem.data(), mem.size(), img), ih, iw,
                         fmt == CLB_PIXFMT_GRAY8 ? 1 : 3, mem.data(), img.plane[0]);
                    CHECK_EQ(code([&] { clb::mat(mem.data(), mem.size(), img, 1); }),
                             CLB_ERR_INVAL);
                    CHECK_EQ(code([&] { clb::mat_nv12(mem.data(), mem.size(), img); }),
                             CLB_ERR_INVAL);
                }
                const clb_image img = image(CLB_PIXFMT_NV12, w, h, align, align);
                auto mem = filled(clb_image_bytes(&img));
                look(clb::mat(mem.data(), mem.size(), img, 0), ih, iw, 1, mem.data(), img.plane[0]);
                look(clb::mat(mem.data(), mem.size(), img, 1), (ih + 1) / 2, (iw + 1) / 2, 2,
                     mem.data(), img.plane[1]);
                CHECK_EQ(code([&] { clb::mat(mem.data(), mem.size(), img, 2); }), CLB_ERR_INVAL);
                if (w % 2 == 0 && h % 2 == 0)
                    look(clb::mat_nv12(mem.data(), mem.size(), img), ih * 3 / 2, iw, 1, mem.data(),
                         img.plane[0]);
                else
                    CHECK_EQ(code([&] { clb::mat_nv12(mem.data(), mem.size(), img); }),
                             CLB_ERR_INVAL);
            }
}

static void refused()
{
    clb_image img = image(CLB_PIXFMT_NV12, 16, 8, 0, 0);
    auto mem = filled(4096);

    CHECK_EQ(code([&] { clb::mat(nullptr, 4096, img); }), CLB_ERR_STATE);
    CHECK_EQ(code([&] { clb::mat(mem.data(), clb_image_bytes(&img) - 1, img); }), CLB_ERR_TOOBIG);
    CHECK_EQ(code([&] { clb::mat(mem.data(), mem.size(), clb_image{}); }), CLB_ERR_INVAL);
    clb_image other = img;
    other.plane[1].offset += 2; /* a gap */
    CHECK_EQ(code([&] { clb::mat_nv12(mem.data(), mem.size(), other); }), CLB_ERR_INVAL);
    look(clb::mat(mem.data(), mem.size(), other, 1), 4, 8, 2, mem.data(), other.plane[1]);
    other = img;
    other.plane[1].pitch = 32; /* of its own */
    CHECK_EQ(code([&] { clb::mat_nv12(mem.data(), mem.size(), other); }), CLB_ERR_INVAL);
    look(clb::mat(mem.data(), mem.size(), other, 1), 4, 8, 2, mem.data(), other.plane[1]);
    other = img;
    other.plane[0].pitch = 15;
    CHECK_EQ(code([&] { clb::mat(mem.data(), mem.size(), other); }), CLB_ERR_INVAL);
    other = image(CLB_PIXFMT_I420, 16, 8, 0, 0);
    CHECK_EQ(code([&] { clb::mat(mem.data(), mem.size(), other); }), CLB_ERR_NOSYS);
    CHECK_EQ(code([] { clb::umat(nullptr); }), CLB_ERR_NOSYS);
}

#if CLB_HAVE_TCP
static void packets()
{
    const clb_image img = image(CLB_PIXFMT_NV12, 62, 6, 64, 0);
    const auto sent = filled(clb_image_bytes(&img));
    clb::listener listener("tcp://127.0.0.1:0");
    std::thread sender([&] {
        clb::link link = listener.accept(20s);
        auto p = clb::params<clb_stream_params>();
        p.name = "video";
        p.write_window = 1 << 20;
        clb::stream out = link.open(p);
        out.write(sent.data(), sent.size(), 20s);
        out.write(sent.data(), sent.size() - 1, 20s); /* cut short */
        out.flush(CLB_FLUSH_RELEASED, 20s);
        link.shutdown(20s);
    });
    {
        clb::link link(listener.uri());
        auto p = clb::params<clb_stream_params>();
        p.name = "video";
        p.image = img;
        clb::stream in = link.open(p);

        clb::packet pkt = in.read(20s);
        look(clb::mat(pkt), 6, 62, 1, pkt.data(), img.plane[0]);
        look(clb::mat(pkt, 1), 3, 31, 2, pkt.data(), img.plane[1]);
        look(clb::mat_nv12(pkt), 9, 62, 1, pkt.data(), img.plane[0]);
        const cv::Mat kept = clb::mat(pkt).clone();
        clb::buffer buf = pkt.release();
        CHECK_EQ(code([&] { clb::mat(pkt); }), CLB_ERR_STATE);
        pkt.reset();
        CHECK_EQ(code([&] { clb::mat(pkt); }), CLB_ERR_STATE);
        buf.reset();
        CHECK_EQ(kept.at<std::uint8_t>(5, 61), value(5 * 64 + 61));

        /* A packet that is too short for the picture has no layout. */
        pkt = in.read(20s);
        CHECK(!pkt.image());
        CHECK_EQ(code([&] { clb::mat(pkt); }), CLB_ERR_INVAL);
        CHECK_EQ(code([&] { clb::mat_nv12(pkt); }), CLB_ERR_INVAL);
        pkt.reset();
        sender.join();
    }
}
#endif

int main()
{
    layouts();
    refused();
#if CLB_HAVE_TCP
    packets();
#endif
    std::puts("ok");
    return 0;
}
