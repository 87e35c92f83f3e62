// SPDX-License-Identifier: Apache-2.0
//
// The library's side: frames come out of a pool as the transport's do (mapped, filled, released), a
// recipe is applied to them.
#ifndef BENCH_PREPROCESS_OURS_HPP
#define BENCH_PREPROCESS_OURS_HPP

#include <clbridge/preprocess.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Throws a Failure when `code` is an error.
void check(int code, const char *what);
void check_cl(cl_int code, const char *what);

class Device {
  public:
    // cache_dir "" = none.
    explicit Device(const std::string &select, const std::string &cache_dir = "");
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    clb_cl_device *get() const
    {
        return dev;
    }
    std::string name() const;

  private:
    clb_cl_device *dev = nullptr;
};

class Ours {
  public:
    // Applies the recipe to `frames` frames of these pixels at once.
    Ours(Device &device, const clb_preprocess_params &recipe, const std::vector<uint8_t> &pixels,
         unsigned frames = 1);
    ~Ours();
    Ours(const Ours &) = delete;
    Ours &operator=(const Ours &) = delete;

    // Receives frames: what a transport does in between, not measured.
    void receive();
    // From received frames to their tensors.
    void run();
    // The tensor of every frame of the last run, one behind the other.
    std::vector<uint8_t> result() const;
    size_t tensor_bytes() const
    {
        return geometry.bytes;
    }

  private:
    void drop();
    // What is there goes, also when the constructor did not get to its end.
    struct Handles {
        clb_cl_pool *pool = nullptr;
        clb_preprocess *recipe = nullptr;
        cl_mem tensor = nullptr;
        ~Handles();
    };

    cl_command_queue queue;
    const std::vector<uint8_t> &px;
    std::vector<clb_cl_frame *> held;
    clb_preprocess_geometry geometry{};
    Handles h;
};

#endif
