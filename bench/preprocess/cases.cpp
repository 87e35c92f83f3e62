// SPDX-License-Identifier: Apache-2.0
#include "cases.hpp"

#include <clbridge/preprocess.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "chains.hpp"
#include "ours.hpp"
#include "pictures.hpp"

namespace {

const Normalise imagenet = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
const int grey = 114; // of borders

void normalise(clb_preprocess_params &p)
{
    for (int k = 0; k < 3; k++) {
        p.scale[k] = 1 / 255.0f;
        p.mean[k] = static_cast<float>(imagenet.mean[k]);
        p.dev[k] = static_cast<float>(imagenet.dev[k]);
    }
}

clb_preprocess_params recipe_for(const clb_image &img, uint32_t width, uint32_t height)
{
    clb_preprocess_params p{};

    p.struct_size = sizeof p;
    p.src = &img;
    p.width = width;
    p.height = height;
    return p;
}

clb_preprocess_geometry geometry_of(Device &device, const clb_preprocess_params &p)
{
    clb_preprocess_geometry g{};
    clb_preprocess *pp = nullptr;

    check(clb_preprocess_create(&pp, device.get(), &p), "compiling the recipe");
    const int rc = clb_preprocess_get_geometry(pp, nullptr, &g, sizeof g);
    clb_preprocess_destroy(&pp);
    check(rc, "asking for the geometry");
    return g;
}

// One value of a tensor on the scale 0..255, as far as differences are concerned.
double value(const clb_preprocess_params &p, const Pixels &tensor, size_t i)
{
    float f;

    if (p.type == CLB_TYPE_U8)
        return tensor[i];
    std::memcpy(&f, tensor.data() + i * sizeof f, sizeof f);
    return static_cast<double>(f) * 255 * imagenet.dev[1];
}

/*
 * Both sides round differently (OpenCV to 8 bits after every step, colour coefficients to 3
 * decimals): half a level each, on average. A shift by half a pixel or a wrong channel shows as several levels
 * in these pictures.
 */
const double most_difference = 1.0;

void compare(const char *name, const char *variant, const clb_preprocess_params &p,
             const Pixels &ours, const Pixels &theirs)
{
    const size_t n = ours.size() / (p.type == CLB_TYPE_U8 ? 1 : sizeof(float));
    double sum = 0;

    if (ours.size() != theirs.size() || n == 0)
        fail("%s, %s: %zu bytes by us, %zu by OpenCV", name, variant, ours.size(), theirs.size());
    for (size_t i = 0; i < n; i++)
        sum += std::fabs(value(p, ours, i) - value(p, theirs, i));
    // Written so that a NaN fails.
    if (!(sum / static_cast<double>(n) <= most_difference))
        fail("%s, %s: the pictures differ by %.3f of 255 on average, at most %.3g is due to "
             "rounding: "
             "the two sides do not do the same job",
             name, variant, sum / static_cast<double>(n), most_difference);
}

// Seconds per run of one side.
template <class Side> double time_of(Side &side, double at_least)
{
    double spent = 0;
    int runs = 0;

    side.receive(); // the caches and threads are the other side's until then
    side.run();
    do {
        side.receive();
        const double start = now_s();
        side.run();
        spent += now_s() - start;
        runs++;
    } while (spent < at_least);
    return spent / runs;
}

struct Baseline {
    std::string name;
    std::unique_ptr<Chain> chain;
    double target; // we are at least so many times as fast; 0 = none
    std::vector<double> times{};
};

// frames: of one run, what times are divided by.
void pairs(const Options &o, Report &report, const char *name, const clb_preprocess_params &p,
           Ours &ours, std::vector<Baseline> baselines, unsigned frames = 1)
{
    std::vector<double> times;

    ours.receive();
    ours.run();
    const Pixels mine = ours.result();
    for (Baseline &b : baselines) {
        b.chain->receive();
        b.chain->run();
        compare(name, b.name.c_str(), p, mine, b.chain->result());
    }
    for (int i = 0; i < o.pairs; i++) {
        // Who is first changes.
        if (i % 2 == 0)
            times.push_back(time_of(ours, o.seconds()) / frames);
        for (Baseline &b : baselines)
            b.times.push_back(time_of(*b.chain, o.seconds()) / frames);
        if (i % 2 == 1)
            times.push_back(time_of(ours, o.seconds()) / frames);
    }
    for (const Baseline &b : baselines)
        report.line(name, b.name, times, b.times, {Target::FASTER, b.target});
}

void case_nv12_letterbox(const Options &o, Report &report)
{
    Letterbox640 job;
    Device device(o.device);
    const Pixels px = picture(job.img);
    const clb_preprocess_geometry g = geometry_of(device, job.recipe);
    Ours ours(device, job.recipe, px);
    std::vector<Baseline> baselines;

    report.machine(device.name());
    baselines.push_back({"OpenCV", letterbox_cpu(job.img, px, g, imagenet, grey), 2});
    if (have_umat())
        baselines.push_back(
            {"OpenCV, cv::UMat",
             letterbox_umat(job.img, px, g, imagenet, grey, clb_cl_device_context(device.get())),
             4});
    pairs(o, report, "nv12_letterbox", job.recipe, ours, std::move(baselines));
}

void case_yuyv(const Options &o, Report &report)
{
    const clb_image img = layout(CLB_PIXFMT_YUYV, 1280, 720);
    const clb_preprocess_params p = recipe_for(img, 640, 640);
    Device device(o.device);
    const Pixels px = picture(img);
    Ours ours(device, p, px);
    std::vector<Baseline> baselines;

    report.machine(device.name());
    baselines.push_back({"OpenCV", yuyv_cpu(img, px, geometry_of(device, p)), 1.5});
    pairs(o, report, "yuyv", p, ours, std::move(baselines));
}

void case_raw10p(const Options &o, Report &report)
{
    const clb_image img = layout(CLB_PIXFMT_RAW10P, 4056, 3040);
    const clb_preprocess_params p = recipe_for(img, 1280, 960);
    Device device(o.device);
    const Pixels px = picture(img);
    const clb_preprocess_geometry g = geometry_of(device, p);
    Ours ours(device, p, px);
    std::vector<Baseline> baselines;

    report.machine(device.name());
    baselines.push_back({"OpenCV, 10 bits", raw10_cpu(img, px, g, false), 1.5});
    baselines.push_back({"OpenCV, upper 8 bits", raw10_cpu(img, px, g, true), 1.5});
    pairs(o, report, "raw10p", p, ours, std::move(baselines));
}

void bgr(const Options &o, Report &report, const char *name, unsigned frames, double target)
{
    const clb_image img = layout(CLB_PIXFMT_BGR24, 1920, 1080);
    clb_preprocess_params p = recipe_for(img, 224, 224);
    Device device(o.device);
    const Pixels px = picture(img);
    std::vector<Baseline> baselines;

    p.layout = CLB_LAYOUT_NCHW;
    p.type = CLB_TYPE_F32;
    p.batch = frames;
    normalise(p);
    const clb_preprocess_geometry g = geometry_of(device, p);
    Ours ours(device, p, px, frames);
    report.machine(device.name());
    baselines.push_back({"OpenCV", bgr_cpu(img, px, g, imagenet, frames, false), target});
    if (frames > 1)
        baselines.push_back(
            {"OpenCV, frames in parallel", bgr_cpu(img, px, g, imagenet, frames, true), 0});
    pairs(o, report, name, p, ours, std::move(baselines), frames);
}

void case_bgr_batch(const Options &o, Report &report)
{
    bgr(o, report, "bgr_batch", 8, 1.5);
}

void case_bgr_single(const Options &o, Report &report)
{
    bgr(o, report, "bgr_single", 1, 0);
}

} // namespace

Letterbox640::Letterbox640()
    : img(layout(CLB_PIXFMT_NV12, 1920, 1080)), recipe(recipe_for(img, 640, 640))
{
    recipe.fit = CLB_FIT_LETTERBOX;
    recipe.layout = CLB_LAYOUT_NCHW;
    recipe.type = CLB_TYPE_F32;
    for (float &pad : recipe.pad)
        pad = grey;
    normalise(recipe);
}

const Case cases[] = {
    {"nv12_letterbox", "NV12 1920x1080 to 640x640, letterbox, f32 NCHW, normalised",
     case_nv12_letterbox},
    {"yuyv", "YUYV 1280x720 to 640x640, u8 NHWC", case_yuyv},
    {"raw10p", "RAW10 packed 4056x3040 to 1280x960, u8 NHWC", case_raw10p},
    {"bgr_batch", "BGR 1920x1080 to 224x224, f32 NCHW, 8 frames at once, per frame",
     case_bgr_batch},
    {"bgr_single", "the same, one frame: the launch costs more than the pixels", case_bgr_single},
    {"cache", "first tensor of a process, with and without kernels on disk", case_cache},
};
const size_t num_cases = sizeof cases / sizeof cases[0];
