/* SPDX-License-Identifier: Apache-2.0 */
/* clbridge.hpp used for what it is: two peers over loopback, errors as exceptions, moves. */
#include <clbridge/clbridge.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

using namespace std::chrono_literals;

static_assert(sizeof(clb::link) == sizeof(clb_link *), "a handle is a pointer");
static_assert(!std::is_copy_constructible_v<clb::packet> &&
              !std::is_copy_assignable_v<clb::stream>);
static_assert(!std::is_copy_constructible_v<clb::buffer>);
static_assert(std::is_nothrow_move_constructible_v<clb::link>);
static_assert(std::is_nothrow_move_assignable_v<clb::buffer>);
static_assert(std::is_nothrow_destructible_v<clb::listener>);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            std::fprintf(stderr, "hpp_test.cpp:%d: not so: %s\n", __LINE__, #cond);                \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static int code_of_bad_uri()
{
    try {
        clb::link l("nonsense");
    } catch (const clb::error &e) {
        CHECK(std::strstr(e.what(), "clb_link_open: ") != nullptr);
        CHECK(std::strlen(e.what()) > std::strlen("clb_link_open: "));
        return e.code();
    }
    return CLB_OK;
}

static int freed;
static clb_allocator heap = {[](void *, const clb_alloc_req *req, clb_buf *out) noexcept -> int {
                                 out->data = std::aligned_alloc(
                                     req->align, (req->capacity / req->align + 1) * req->align);
                                 out->size = req->capacity;
                                 return out->data ? CLB_OK : CLB_ERR_NOMEM;
                             },
                             nullptr,
                             [](void *, clb_buf *buf) noexcept {
                                 std::free(buf->data);
                                 freed++;
                             },
                             nullptr,
                             nullptr,
                             nullptr};

static void buffers()
{
    const clb_alloc_req req = {64, 0, 64, 64, 0, "", 0};
    clb_buf raw{};

    CHECK(heap.alloc(nullptr, &req, &raw) == CLB_OK);
    {
        clb::buffer a(heap, raw), b;
        b = std::move(a);
        CHECK(a.get().data == nullptr);
        CHECK(b.get().data == raw.data);
        clb::buffer c(std::move(b));
        CHECK(freed == 0);
    }
    CHECK(freed == 1);
    CHECK(heap.alloc(nullptr, &req, &raw) == CLB_OK);
    {
        clb::buffer a(heap, raw);
        raw = a.detach();
    }
    CHECK(freed == 1);
    std::free(raw.data);
}

static void send(clb::listener &from)
{
    clb::link link = from.accept(20s);
    auto p = clb::params<clb_stream_params>();
    p.name = "data";
    p.write_window = 1 << 20;
    clb::stream out = link.open(p);
    out.write("hello", 5, 20s);
    out.write("again", 5, 20s);
    out.flush(CLB_FLUSH_RELEASED, 20s);
    CHECK(out.stats().released == 2);
    CHECK(link.shutdown(20s));
}

static void two_peers()
{
    clb::listener listener("tcp://127.0.0.1:0");
    CHECK(listener.uri().find("tcp://127.0.0.1:") == 0);
    std::thread sender([&] { send(listener); });

    auto pp = clb::params<clb_host_pool_params>();
    pp.count = 4;
    clb::host_pool pool(pp);
    clb::link link(listener.uri());
    CHECK(link.state() == CLB_LINK_UP);
    CHECK(link.info().role == CLB_ROLE_HOST);

    auto p = clb::params<clb_stream_params>();
    p.name = "data";
    p.allocator = pool.allocator();
    clb::stream in = link.open(p);
    CHECK(in.name() == "data");
    clb::packet first = in.read(20s);
    CHECK(first.size() == 5 && std::memcmp(first.data(), "hello", 5) == 0);
    CHECK(first.info().seq == 0 && first.metadata().second == 0 && !first.image());
    clb::packet moved = std::move(first);
    CHECK(!first && moved);
    clb::buffer buf = moved.release();
    CHECK(moved.data() == nullptr);
    CHECK(std::memcmp(buf.get().data, "hello", 5) == 0);
    moved.reset();

    clb::packet second;
    CHECK(in.try_read(second, 20s) == CLB_OK);
    CHECK(std::memcmp(second.data(), "again", 5) == 0);
    second.reset();
    CHECK(pool.stats().allocs == 2);

    int code = CLB_OK;
    try {
        in.read(20s);
    } catch (const clb::error &e) {
        code = e.code();
    }
    CHECK(code == CLB_ERR_CLOSED);
    sender.join();
    /* In an order that C++ would not choose: the buffer outlives all. */
    pool.reset();
    link.reset();
    in.reset();
}

int main()
{
    CHECK(code_of_bad_uri() == CLB_ERR_INVAL);
    buffers();
#if CLB_HAVE_TCP
    two_peers();
#endif
    auto lp = clb::params<clb_loop_params>();
    lp.caller_driven = 1;
    clb::loop loop(lp);
    CHECK(!loop.dispatch(0ns));
    std::puts("ok");
    return 0;
}
