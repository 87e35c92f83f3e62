// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_PREPROCESS_CASES_HPP
#define BENCH_PREPROCESS_CASES_HPP

#include <clbridge/preprocess.h>

#include <string>

#include "report.hpp"

struct Case {
    const char *name, *what;
    void (*run)(const Options &, Report &);
};

extern const Case cases[];
extern const size_t num_cases;

void case_cache(const Options &, Report &);
// The process that case_cache measures: from nothing to the first tensor, then one line about it.
int first_frame(const std::string &device, const std::string &cache_dir);

// NV12 1920x1080 to 640x640, letterbox, f32 NCHW, normalised: what a detector wants.
struct Letterbox640 {
    clb_image img;
    clb_preprocess_params recipe; // src points to img: not to be copied
    Letterbox640();
    Letterbox640(const Letterbox640 &) = delete;
    Letterbox640 &operator=(const Letterbox640 &) = delete;
};

#endif
