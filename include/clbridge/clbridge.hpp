/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/clbridge.hpp: C++17 over clbridge.h, header-only and thin.
 *
 * Each handle is a move-only class of the size of a pointer, whose destructor ends it; get() gives the
 * C handle for everything that is not wrapped. Failures are thrown as clb::error, except by the try_
 * functions, which return the code. Times are std::chrono::nanoseconds; clb::forever waits for ever.
 *
 * The library calls back through plain C function pointers (allocator, ready_cb, state_cb, log): an
 * exception must not leave them. Declare them noexcept.
 */
#ifndef CLBRIDGE_CLBRIDGE_HPP
#define CLBRIDGE_CLBRIDGE_HPP

#include <clbridge/clbridge.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace clb {

using std::chrono::nanoseconds;

/** As a timeout: no deadline. */
inline constexpr nanoseconds forever{-1};

/** A failure of a call. code() is one of enum clb_error. */
class error : public std::runtime_error {
  public:
    error(int code, const std::string &text) : std::runtime_error(text), code_(code)
    {
    }
    int code() const noexcept
    {
        return code_;
    }

  private:
    int code_;
};

/** Throws when rc is an error. status (may be NULL) tells more than the code when it was filled. */
inline void check(int rc, const char *what, const clb_status *status = nullptr)
{
    if (rc >= 0)
        return;
    std::string text = std::string(what) + ": ";
    text += status && status->text[0] ? status->text : clb_error_str(rc);
    throw error(rc, text);
}

/** All defaults, with struct_size set: auto p = clb::params<clb_stream_params>(); */
template <class P> P params() noexcept
{
    P p{};
    p.struct_size = sizeof p;
    return p;
}

/** What the handles have in common: unique ownership of a T that End consumes. */
template <class T, void (*End)(T **)> class handle {
  public:
    handle() noexcept = default;
    /** Takes over a C handle. */
    explicit handle(T *raw) noexcept : raw_(raw)
    {
    }
    T *get() const noexcept
    {
        return raw_.get();
    }
    /** Gives the C handle away. */
    T *detach() noexcept
    {
        return raw_.release();
    }
    /** Ends it now. */
    void reset(T *raw = nullptr) noexcept
    {
        raw_.reset(raw);
    }
    explicit operator bool() const noexcept
    {
        return raw_ != nullptr;
    }

  private:
    struct end {
        void operator()(T *raw) const noexcept
        {
            End(&raw);
        }
    };
    std::unique_ptr<T, end> raw_;
};

/** See clb_loop_create(). */
class loop : public handle<clb_loop, clb_loop_destroy> {
  public:
    using handle::handle;
    explicit loop(const clb_loop_params &p)
    {
        clb_loop *raw = nullptr;
        check(clb_loop_create(&raw, &p), "clb_loop_create");
        reset(raw);
    }
    /** False when there was nothing to do until the timeout. */
    bool dispatch(nanoseconds timeout)
    {
        const int rc = clb_loop_dispatch(get(), timeout.count());
        if (rc == CLB_ERR_TIMEOUT || rc == CLB_ERR_AGAIN)
            return false;
        check(rc, "clb_loop_dispatch");
        return true;
    }
};

/** See clb_host_pool_create(). */
class host_pool : public handle<clb_host_pool, clb_host_pool_destroy> {
  public:
    using handle::handle;
    explicit host_pool(const clb_host_pool_params &p)
    {
        clb_host_pool *raw = nullptr;
        check(clb_host_pool_create(&raw, &p), "clb_host_pool_create");
        reset(raw);
    }
    clb_allocator allocator() const noexcept
    {
        return clb_host_pool_allocator(get());
    }
    clb_host_pool_stats stats() const noexcept
    {
        clb_host_pool_stats s{};
        clb_host_pool_get_stats(get(), &s, sizeof s);
        return s;
    }
};

/** A buffer that packet::release() handed out; goes home with clb_buf_free(). Move-only. */
class buffer {
  public:
    buffer() noexcept = default;
    buffer(const clb_allocator &allocator, const clb_buf &buf) noexcept
        : allocator_(allocator), buf_(buf)
    {
    }
    buffer(buffer &&other) noexcept
        : allocator_(std::exchange(other.allocator_, clb_allocator{})),
          buf_(std::exchange(other.buf_, clb_buf{}))
    {
    }
    buffer &operator=(buffer &&other) noexcept
    {
        if (this != &other) {
            reset();
            allocator_ = std::exchange(other.allocator_, clb_allocator{});
            buf_ = std::exchange(other.buf_, clb_buf{});
        }
        return *this;
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        reset();
    }
    const clb_buf &get() const noexcept
    {
        return buf_;
    }
    /** Gives the buffer away, for example to clb_cl_frame_from_buf(). */
    clb_buf detach() noexcept
    {
        allocator_ = clb_allocator{};
        return std::exchange(buf_, clb_buf{});
    }
    void reset() noexcept
    {
        if (allocator_.free)
            clb_buf_free(&allocator_, &buf_);
        allocator_ = clb_allocator{};
    }

  private:
    clb_allocator allocator_{};
    clb_buf buf_{};
};

/** See stream.h, section "packet". */
class packet : public handle<clb_packet, clb_packet_free> {
  public:
    using handle::handle;
    /** NULL after release(). */
    std::uint8_t *data() const noexcept
    {
        return static_cast<std::uint8_t *>(clb_packet_data(get()));
    }
    std::size_t size() const noexcept
    {
        return clb_packet_size(get());
    }
    /** First byte and number of bytes. */
    std::pair<const std::uint8_t *, std::size_t> metadata() const noexcept
    {
        std::size_t size = 0;
        const void *p = clb_packet_metadata(get(), &size);
        return {static_cast<const std::uint8_t *>(p), size};
    }
    void *context() const noexcept
    {
        return clb_packet_context(get());
    }
    /** NULL = unknown. */
    const clb_image *image() const noexcept
    {
        return clb_packet_image(get());
    }
    clb_packet_info info() const noexcept
    {
        clb_packet_info i{};
        clb_packet_get_info(get(), &i, sizeof i);
        return i;
    }
    /** The host is done with the pixels; credit goes back to the peer. */
    buffer release()
    {
        const clb_allocator allocator = clb_packet_allocator(get());
        clb_buf buf{};
        check(clb_packet_release(get(), &buf), "clb_packet_release");
        return buffer(allocator, buf);
    }
};

class link;

/** See clb_stream_open(). */
class stream : public handle<clb_stream, clb_stream_close> {
  public:
    using handle::handle;
    stream(const link &on, const clb_stream_params &p);

    /** The next packet; throws when there is none, also for TIMEOUT, AGAIN and the end. */
    packet read(nanoseconds timeout = forever)
    {
        packet p;
        check(try_read(p, timeout), "clb_stream_read");
        return p;
    }
    /** As clb_stream_read(). The packet that `out` held before is freed first. */
    int try_read(packet &out, nanoseconds timeout) noexcept
    {
        clb_packet *raw = nullptr;
        out.reset();
        const int rc = clb_stream_read(get(), &raw, timeout.count());
        out.reset(raw);
        return rc;
    }
    void write(const void *data, std::size_t size, nanoseconds timeout = forever)
    {
        const clb_iovec piece = {data, size};
        write(&piece, 1, timeout);
    }
    void write(const clb_iovec *pieces, std::size_t n, nanoseconds timeout = forever)
    {
        check(clb_stream_write(get(), pieces, n, timeout.count()), "clb_stream_write");
    }
    void flush(clb_flush what, nanoseconds timeout = forever)
    {
        check(clb_stream_flush(get(), what, timeout.count()), "clb_stream_flush");
    }
    void interrupt() noexcept
    {
        clb_stream_interrupt(get());
    }
    std::string name() const
    {
        const char *n = clb_stream_name(get());
        return n ? n : "";
    }
    clb_stream_stats stats() const noexcept
    {
        clb_stream_stats s{};
        clb_stream_get_stats(get(), &s, sizeof s);
        return s;
    }
};

/** See clb_link_open(). */
class link : public handle<clb_link, clb_link_close> {
  public:
    using handle::handle;
    /** Connects in the host role. p.status may be NULL: the cause is in the exception. */
    explicit link(clb_link_params p)
    {
        clb_status status{};
        clb_link *raw = nullptr;
        if (!p.status)
            p.status = &status;
        check(clb_link_open(&raw, &p), "clb_link_open", p.status);
        reset(raw);
    }
    /** With defaults. */
    explicit link(const std::string &uri) : link(with_uri(uri.c_str()))
    {
    }
    /** Of a connected socket, which is the link's when no exception is thrown. */
    static link adopt(int fd, clb_role role, clb_link_params p = params<clb_link_params>())
    {
        clb_status status{};
        clb_link *raw = nullptr;
        if (!p.status)
            p.status = &status;
        check(clb_link_adopt(&raw, fd, role, &p), "clb_link_adopt", p.status);
        return link(raw);
    }
    stream open(const clb_stream_params &p) const
    {
        return stream(*this, p);
    }
    /** With defaults, for reading. */
    stream open(const std::string &name) const
    {
        auto p = params<clb_stream_params>();
        p.name = name.c_str();
        return stream(*this, p);
    }
    clb_link_state state(clb_status *why = nullptr) const noexcept
    {
        return clb_link_get_state(get(), why);
    }
    /** False when it is still closing at the timeout. */
    bool shutdown(nanoseconds timeout)
    {
        const int rc = clb_link_shutdown(get(), timeout.count());
        if (rc == CLB_ERR_TIMEOUT || rc == CLB_ERR_AGAIN)
            return false;
        check(rc, "clb_link_shutdown");
        return true;
    }
    clb_link_info info() const noexcept
    {
        clb_link_info i{};
        clb_link_get_info(get(), &i, sizeof i);
        return i;
    }
    clb_link_stats stats() const noexcept
    {
        clb_link_stats s{};
        clb_link_get_stats(get(), &s, sizeof s);
        return s;
    }

  private:
    static clb_link_params with_uri(const char *uri) noexcept
    {
        auto p = params<clb_link_params>();
        p.uri = uri;
        return p;
    }
};

inline stream::stream(const link &on, const clb_stream_params &p)
{
    clb_stream *raw = nullptr;
    check(clb_stream_open(&raw, on.get(), &p), "clb_stream_open");
    reset(raw);
}

/** See clb_listener_open(). */
class listener : public handle<clb_listener, clb_listener_close> {
  public:
    using handle::handle;
    explicit listener(clb_listener_params p)
    {
        clb_status status{};
        clb_listener *raw = nullptr;
        if (!p.link.status)
            p.link.status = &status;
        check(clb_listener_open(&raw, &p), "clb_listener_open", p.link.status);
        reset(raw);
    }
    /** With defaults. */
    explicit listener(const std::string &uri) : listener(with_uri(uri.c_str()))
    {
    }
    link accept(nanoseconds timeout = forever)
    {
        clb_link *raw = nullptr;
        check(clb_listener_accept(get(), &raw, timeout.count()), "clb_listener_accept");
        return link(raw);
    }
    /** With the real port. */
    std::string uri() const
    {
        const char *u = clb_listener_uri(get());
        return u ? u : "";
    }

  private:
    static clb_listener_params with_uri(const char *uri) noexcept
    {
        auto p = params<clb_listener_params>();
        p.uri = uri;
        return p;
    }
};

} // namespace clb

#endif /* CLBRIDGE_CLBRIDGE_HPP */
