// SPDX-License-Identifier: Apache-2.0
//
// What preprocessing costs beside OpenCV, and what kernels on disk save.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "cases.hpp"

namespace {

void usage(std::FILE *to)
{
    std::fprintf(
        to, "Usage: bench_preprocess [--case NAME] [--pairs N] [--quick] [--device SUBSTRING]\n"
            "                        [--json] [--strict]\n"
            "       bench_preprocess --list | --help\n"
            "\n"
            "Runs each case N times (9) in turn with its baselines and prints the medians and the\n"
            "median of the ratios. Before that, both sides must come to the same picture.\n"
            "\n"
            "  --case NAME         one of --list\n"
            "  --pairs N           1 to 64\n"
            "  --quick             shorter measurements\n"
            "  --device SUBSTRING  OpenCL device by a part of its name\n"
            "  --json              one JSON object per line\n"
            "  --strict            exit status 1 when a target is missed\n"
            "  --list              names and contents of the cases\n");
}

int list()
{
    for (size_t i = 0; i < num_cases; i++)
        std::printf("%-16s %s\n", cases[i].name, cases[i].what);
    return 0;
}

int run(const Options &o, bool strict)
{
    const double start = now_s();
    Report report(o);
    bool known = false;

    for (size_t i = 0; i < num_cases; i++)
        if (o.only.empty() || o.only == cases[i].name) {
            known = true;
            cases[i].run(o, report);
        }
    if (!known) {
        std::fprintf(stderr, "bench_preprocess: there is no case \"%s\": see --list\n",
                     o.only.c_str());
        return 2;
    }
    report.summary(now_s() - start);
    return strict && report.missed() ? 1 : 0;
}

} // namespace

int main(int argc, char **argv)
try {
    Options o;
    bool strict = false;

    // OpenCV keeps compiled kernels in the user's home; a benchmark leaves nothing there.
    setenv("OPENCV_OPENCL_CACHE_ENABLE", "false", 0);
    if (argc == 4 && std::strcmp(argv[1], "--first-frame") == 0)
        return first_frame(argv[3], argv[2]);
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        const char *next = i + 1 < argc ? argv[i + 1] : nullptr;

        if (word == "--case" && next) {
            o.only = argv[++i];
        } else if (word == "--pairs" && next) {
            o.pairs = std::atoi(argv[++i]);
        } else if (word == "--device" && next) {
            o.device = argv[++i];
        } else if (word == "--quick") {
            o.quick = true;
        } else if (word == "--json") {
            o.json = true;
        } else if (word == "--strict") {
            strict = true;
        } else if (word == "--list") {
            return list();
        } else if (word == "--help") {
            usage(stdout);
            return 0;
        } else {
            usage(stderr);
            return 2;
        }
    }
    if (o.pairs < 1 || o.pairs > 64) {
        usage(stderr);
        return 2;
    }
    return run(o, strict);
} catch (const std::exception &e) {
    std::fprintf(stderr, "bench_preprocess: %s\n", e.what());
    return 1;
}
