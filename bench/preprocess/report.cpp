// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <opencv2/core.hpp>

#include <clbridge/common.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include <sys/utsname.h>
#include <unistd.h>

void fail(const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    std::vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    throw Failure(text);
}

double now_s()
{
    timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<double>(ts.tv_sec) + static_cast<double>(ts.tv_nsec) / 1e9;
}

double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    const size_t n = v.size();

    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

namespace {

// Names come from drivers and /proc.
std::string quoted(const std::string &text)
{
    std::string out = "\"";

    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += '\\';
        out += static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~' ? '?' : c;
    }
    return out + '"';
}

std::string cpu_name()
{
    std::ifstream in("/proc/cpuinfo");
    std::string line;

    while (std::getline(in, line))
        if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos)
            return line.substr(line.find(": ") + 2);
    return "unknown";
}

} // namespace

void Report::machine(const std::string &device)
{
    utsname name{};
    double load = 0;

    device_ = device;
    if (told)
        return;
    told = true;
    uname(&name);
    if (getloadavg(&load, 1) != 1)
        load = -1;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o.json)
        std::printf("{\"event\":\"machine\",\"cpu\":%s,\"cores\":%ld,\"kernel\":%s,\"version\":%s,"
                    "\"device\":%s,\"opencv\":%s,\"opencv_threads\":%d,\"load\":%.2f}\n",
                    quoted(cpu_name()).c_str(), cores, quoted(name.release).c_str(),
                    quoted(clb_version_str()).c_str(), quoted(device).c_str(),
                    quoted(cv::getVersionString()).c_str(), cv::getNumThreads(), load);
    else
        std::printf("%s, %ld cores, Linux %s, load %.2f; %s; OpenCV %s, %d threads; %d pairs\n\n"
                    "%-16s %-26s %11s %11s   %-32s %s\n",
                    cpu_name().c_str(), cores, name.release, load, device.c_str(),
                    cv::getVersionString().c_str(), cv::getNumThreads(), o.pairs, "case",
                    "baseline", "ours, ms", "it, ms", "median (min to max)", "target");
    std::fflush(stdout);
}

void Report::line(const std::string &name, const std::string &variant,
                  const std::vector<double> &ours, const std::vector<double> &baseline,
                  Target target)
{
    std::vector<double> ratio;

    for (size_t i = 0; i < ours.size(); i++)
        ratio.push_back(ours[i] / baseline[i]);
    const double mid = median(ratio);
    const double low = *std::min_element(ratio.begin(), ratio.end());
    const double high = *std::max_element(ratio.begin(), ratio.end());
    const bool faster = target.kind == Target::FASTER;
    const double most = faster && target.value > 0 ? 1 / target.value : target.value;
    const bool met = target.value <= 0 || (faster ? mid <= most : mid < most);

    lines_++;
    missed_ += !met;
    if (o.json) {
        std::printf("{\"event\":\"result\",\"case\":%s,\"variant\":%s,\"device\":%s,\"metric\":"
                    "\"time\",\"unit\":\"ms\",\"value\":%.6g,\"baseline\":%.6g,\"ratio\":%.4g,"
                    "\"ratio_min\":%.4g,\"ratio_max\":%.4g,\"runs\":%zu,",
                    quoted(name).c_str(), quoted(variant).c_str(), quoted(device_).c_str(),
                    median(ours) * 1e3, median(baseline) * 1e3, mid, low, high, ratio.size());
        if (target.value > 0)
            std::printf("\"target\":%.4g,\"met\":%s}\n", most, met ? "true" : "false");
        else
            std::printf("\"target\":null,\"met\":null}\n");
    } else {
        char spread[64], wanted[32] = "";

        if (faster)
            std::snprintf(spread, sizeof spread, "%.2f x faster (%.2f to %.2f)", 1 / mid, 1 / high,
                          1 / low);
        else
            std::snprintf(spread, sizeof spread, "%.1f %% (%.1f to %.1f)", mid * 100, low * 100,
                          high * 100);
        if (target.value > 0)
            std::snprintf(wanted, sizeof wanted, faster ? ">= %g x %s" : "< %g %% %s",
                          faster ? target.value : target.value * 100, met ? "met" : "MISSED");
        std::printf("%-16s %-26s %11.3f %11.3f   %-32s %s\n", name.c_str(), variant.c_str(),
                    median(ours) * 1e3, median(baseline) * 1e3, spread, wanted);
    }
    std::fflush(stdout);
}

void Report::figure(const std::string &name, const std::string &variant, const std::string &metric,
                    const std::string &unit, double value)
{
    if (o.json)
        std::printf(
            "{\"event\":\"result\",\"case\":%s,\"variant\":%s,\"device\":%s,\"metric\":%s,"
            "\"unit\":%s,\"value\":%.6g,\"baseline\":null,\"ratio\":null,\"ratio_min\":null,"
            "\"ratio_max\":null,\"runs\":%d,\"target\":null,\"met\":null}\n",
            quoted(name).c_str(), quoted(variant).c_str(), quoted(device_).c_str(),
            quoted(metric).c_str(), quoted(unit).c_str(), value, o.pairs);
    else
        std::printf("%-16s %-26s %s %.4g %s\n", name.c_str(), variant.c_str(), metric.c_str(),
                    value, unit.c_str());
    std::fflush(stdout);
}

void Report::summary(double seconds) const
{
    if (o.json)
        std::printf("{\"event\":\"summary\",\"cases\":%d,\"missed\":%d,\"seconds\":%.1f}\n", lines_,
                    missed_, seconds);
    else
        std::printf("\n%d results, %d missed, %.0f s\n", lines_, missed_, seconds);
}
