// SPDX-License-Identifier: Apache-2.0
#include "ours.hpp"

#include <cstring>

#include "report.hpp"

void check(int code, const char *what)
{
    if (code < 0)
        fail("%s: %s (%s)", what, clb_error_str(code), clb_error_name(code));
}

void check_cl(cl_int code, const char *what)
{
    if (code != CL_SUCCESS)
        fail("%s: OpenCL error %d", what, code);
}

Device::Device(const std::string &select, const std::string &cache_dir)
{
    clb_cl_device_params p{};
    clb_status status{};

    p.struct_size = sizeof p;
    p.select = select.c_str();
    p.cache_dir = cache_dir.empty() ? nullptr : cache_dir.c_str();
    p.status = &status;
    p.log.cb = clb_log_stderr;
    if (clb_cl_device_create(&dev, &p) < 0)
        fail("opening the OpenCL device: %s", status.text);
}

Device::~Device()
{
    clb_cl_device_destroy(&dev);
}

std::string Device::name() const
{
    clb_cl_device_info info{};

    clb_cl_device_get_info(dev, &info, sizeof info);
    return std::string(info.platform) + ", " + info.name;
}

Ours::Handles::~Handles()
{
    if (tensor)
        clReleaseMemObject(tensor);
    clb_preprocess_destroy(&recipe);
    clb_cl_pool_destroy(&pool);
}

Ours::Ours(Device &device, const clb_preprocess_params &recipe, const std::vector<uint8_t> &pixels,
           unsigned frames)
    : queue(clb_cl_device_queue(device.get())), px(pixels), held(frames, nullptr)
{
    clb_cl_pool_params p{};
    clb_status status{};
    cl_int code = CL_SUCCESS;

    p.struct_size = sizeof p;
    p.buf_size = px.size();
    p.count = frames + 3; // the ones before may still be on their way home
    p.status = &status;
    if (clb_cl_pool_create(&h.pool, device.get(), &p) < 0)
        fail("making the pool: %s", status.text);
    check(clb_preprocess_create(&h.recipe, device.get(), &recipe), "compiling the recipe");
    check(clb_preprocess_get_geometry(h.recipe, nullptr, &geometry, sizeof geometry),
          "asking for the geometry");
    h.tensor = clCreateBuffer(clb_cl_device_context(device.get()), CL_MEM_READ_WRITE,
                              geometry.bytes * frames, nullptr, &code);
    check_cl(code, "making the tensor");
}

Ours::~Ours()
{
    drop();
}

void Ours::drop()
{
    for (clb_cl_frame *&frame : held)
        clb_cl_frame_unref(&frame);
}

void Ours::receive()
{
    const clb_allocator a = clb_cl_pool_allocator(h.pool);

    drop();
    for (clb_cl_frame *&frame : held) {
        clb_alloc_req req{};
        clb_buf buf{};

        req.payload = req.capacity = px.size();
        req.align = 64;
        req.stream_name = "bench";
        req.wait_ns = INT64_C(10000000000);
        check(a.alloc(a.opaque, &req, &buf), "taking a buffer from the pool");
        a.ref(a.opaque); // the one that the transport takes for a buffer that is out
        std::memcpy(buf.data, px.data(), px.size());
        int rc = a.release(a.opaque, &buf, px.size());
        if (rc == CLB_OK)
            rc = clb_cl_frame_from_buf(&frame, h.pool, &buf);
        if (rc < 0)
            clb_buf_free(&a, &buf);
        check(rc, "making a frame");
    }
}

void Ours::run()
{
    cl_event done = nullptr;

    check(clb_preprocess_run_batch(h.recipe, queue, held.data(), static_cast<cl_uint>(held.size()),
                                   h.tensor, 0, 0, &done),
          "applying the recipe");
    const cl_int code = clWaitForEvents(1, &done);
    clReleaseEvent(done);
    check_cl(code, "waiting for the kernel");
}

std::vector<uint8_t> Ours::result() const
{
    std::vector<uint8_t> out(geometry.bytes * held.size());

    check_cl(clEnqueueReadBuffer(queue, h.tensor, CL_TRUE, 0, out.size(), out.data(), 0, nullptr,
                                 nullptr),
             "reading the tensor");
    return out;
}
