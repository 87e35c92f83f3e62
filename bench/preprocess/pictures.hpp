// SPDX-License-Identifier: Apache-2.0
//
// Pictures with slow changes, edges and some noise, whose colours all exist in RGB: neither side has
// to clip, so that both must come to the same.
#ifndef BENCH_PREPROCESS_PICTURES_HPP
#define BENCH_PREPROCESS_PICTURES_HPP

#include <clbridge/image.h>

#include <cstdint>
#include <vector>

// NV12, YUYV, BGR24 or RAW10P, rows without padding.
clb_image layout(clb_pixfmt fmt, uint32_t width, uint32_t height);
std::vector<uint8_t> picture(const clb_image &img);

#endif
