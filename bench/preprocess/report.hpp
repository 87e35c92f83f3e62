// SPDX-License-Identifier: Apache-2.0
//
// Options, pairs of measurements and lines of the report. A pair is one measurement of each side, in
// turn, so that a change of the machine's speed meets all of them; what counts is the median of the
// ratios, minimum and maximum tell how noisy the machine was.
#ifndef BENCH_PREPROCESS_REPORT_HPP
#define BENCH_PREPROCESS_REPORT_HPP

#include <stdexcept>
#include <string>
#include <vector>

struct Options {
    int pairs = 9;
    bool quick = false;
    bool json = false;
    std::string only;   // name of a case, "" = all
    std::string device; // part of an OpenCL device's or platform's name, "" = the library's choice

    // What a measurement of one side lasts at least.
    double seconds() const
    {
        return quick ? 0.002 : 0.05;
    }
};

// What was wrong, where, and what to do about it.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *fmt, ...);

double now_s();
double median(std::vector<double> values);

// How a ratio of times reads in the table, and what its target is. In JSON ratio is always our time
// by the baseline's.
struct Target {
    enum Kind { FASTER, SHARE } kind;
    double value; // at least so many times as fast, or at most this share; 0 = none
};

class Report {
  public:
    explicit Report(const Options &options) : o(options)
    {
    }
    // The machine, once.
    void machine(const std::string &device);
    // Medians of times in seconds, and of the ratios pair by pair.
    void line(const std::string &name, const std::string &variant, const std::vector<double> &ours,
              const std::vector<double> &baseline, Target target);
    // A figure without a baseline.
    void figure(const std::string &name, const std::string &variant, const std::string &metric,
                const std::string &unit, double value);
    void summary(double seconds) const;
    int missed() const
    {
        return missed_;
    }

  private:
    const Options &o;
    std::string device_;
    int lines_ = 0, missed_ = 0;
    bool told = false;
};

#endif
