// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"

#include <cmath>

#include "ours.hpp"
#include "report.hpp"

clb_image layout(clb_pixfmt fmt, uint32_t width, uint32_t height)
{
    clb_image img{};

    check(clb_image_init(&img, fmt, width, height, 1, 1), "laying out a picture");
    if (fmt == CLB_PIXFMT_RAW10P)
        img.bayer = CLB_BAYER_RGGB;
    return img;
}

namespace {

class Scene {
  public:
    // 50 to 200.
    double luma(uint32_t x, uint32_t y)
    {
        state = state * 1664525u + 1013904223u;
        return 125 + 35 * std::sin(x * 0.031 + y * 0.017) + 20 * std::cos(y * 0.053) +
               ((x / 16 + y / 16) % 2 ? 12 : 0) + (state >> 24) / 255.0 * 12 - 12;
    }
    // -20 to 20.
    static double u(uint32_t x, uint32_t y)
    {
        return 20 * std::sin(x * 0.011 - y * 0.003);
    }
    static double v(uint32_t x, uint32_t y)
    {
        return 20 * std::cos(y * 0.013 + x * 0.005);
    }

  private:
    uint32_t state = 1;
};

uint8_t byte_of(double v)
{
    return static_cast<uint8_t>(std::lround(v));
}

void nv12(const clb_image &img, uint8_t *px, Scene &scene)
{
    for (uint32_t y = 0; y < img.height; y++)
        for (uint32_t x = 0; x < img.width; x++)
            px[img.plane[0].offset + img.plane[0].pitch * y + x] = byte_of(scene.luma(x, y));
    for (uint32_t y = 0; y < img.height; y += 2)
        for (uint32_t x = 0; x < img.width; x += 2) {
            uint8_t *pair = px + img.plane[1].offset + img.plane[1].pitch * (y / 2) + x;

            pair[0] = byte_of(128 + Scene::u(x, y));
            pair[1] = byte_of(128 + Scene::v(x, y));
        }
}

void yuyv(const clb_image &img, uint8_t *px, Scene &scene)
{
    for (uint32_t y = 0; y < img.height; y++)
        for (uint32_t x = 0; x < img.width; x++) {
            uint8_t *pair = px + img.plane[0].offset + img.plane[0].pitch * y + x * 2;

            pair[0] = byte_of(scene.luma(x, y));
            pair[1] = byte_of(128 + (x % 2 ? Scene::v(x, y) : Scene::u(x, y)));
        }
}

void bgr(const clb_image &img, uint8_t *px, Scene &scene)
{
    for (uint32_t y = 0; y < img.height; y++)
        for (uint32_t x = 0; x < img.width; x++) {
            uint8_t *at = px + img.plane[0].offset + img.plane[0].pitch * y + x * 3;
            const double g = scene.luma(x, y);

            at[0] = byte_of(g + Scene::u(x, y));
            at[1] = byte_of(g);
            at[2] = byte_of(g + Scene::v(x, y));
        }
}

// R G, then G B.
void raw10p(const clb_image &img, uint8_t *px, Scene &scene)
{
    for (uint32_t y = 0; y < img.height; y++)
        for (uint32_t x = 0; x < img.width; x++) {
            uint8_t *group = px + img.plane[0].offset + img.plane[0].pitch * y + x / 4 * 5;
            const double g = scene.luma(x, y);
            const double red = g + Scene::v(x, y), blue = g + Scene::u(x, y);
            const double value = x % 2 == y % 2 ? (x % 2 ? blue : red) : g;
            const auto ten = static_cast<unsigned>(std::lround(value / 255 * 1023));

            group[x % 4] = static_cast<uint8_t>(ten >> 2);
            group[4] = static_cast<uint8_t>(group[4] | (ten & 3) << (x % 4 * 2));
        }
}

} // namespace

std::vector<uint8_t> picture(const clb_image &img)
{
    std::vector<uint8_t> px(clb_image_bytes(&img), 0);
    Scene scene;

    switch (img.fmt) {
    case CLB_PIXFMT_NV12: nv12(img, px.data(), scene); break;
    case CLB_PIXFMT_YUYV: yuyv(img, px.data(), scene); break;
    case CLB_PIXFMT_BGR24: bgr(img, px.data(), scene); break;
    case CLB_PIXFMT_RAW10P: raw10p(img, px.data(), scene); break;
    default: fail("no picture in the format %s", clb_pixfmt_name(img.fmt));
    }
    return px;
}
