/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of an allocator that cannot be read, as mapped device memory may be: every load from it ends the
 * test. So it is proved that pixels of a steady size, pixels that shrink with `write_only`, encoded frames
 * and re-pitched rows are received without the library ever looking at what it has written.
 *
 * No ordinary mapping can be written and not read: on the machines that we run on PROT_WRITE includes
 * PROT_READ, and the kernel's own writes obey the same tables. Hence two mappings of one file. The library
 * is given the first, which may not be touched at all. Its receives are made into the second by a wrapper
 * of recvmsg(), in the place of a kernel that writes for the device. Whatever else touches the first one
 * is a fault of our own code, and the processor tells whether it is a load or a store: a load is what the
 * test is about, a store (repairing a guess that was too low) is let through, one instruction at a time.
 * That last part needs the processor's word, so that there is no such test on others.
 */
#include "trailer_kit.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)

#include <ucontext.h>

#define WINDOW (8u << 20)
#define SLOT ((size_t)64 << 10)
#define SLOTS 16
#define TRAP_FLAG 0x100
#define FAULT_IS_WRITE 2

static uint8_t *sealed, *open_; /* the two mappings */
static atomic_bool used[SLOTS];
static atomic_long stores, received;
static atomic_bool expecting; /* a load is what the test wants to see */

static bool is_sealed(const void *p)
{
    return (const uint8_t *)p >= sealed && (const uint8_t *)p < sealed + SLOT * SLOTS;
}

static uint8_t *other_side(const void *p)
{
    return open_ + ((const uint8_t *)p - sealed);
}

/* ---- receiving --------------------------------------------------------------------------------- */

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct iovec iov[1024];
    struct msghdr to = *msg;
    CHECK_LE(msg->msg_iovlen, 1024);
    memcpy(iov, msg->msg_iov, msg->msg_iovlen * sizeof *iov);
    for (size_t i = 0; i < msg->msg_iovlen; i++) {
        if (is_sealed(iov[i].iov_base)) {
            iov[i].iov_base = other_side(iov[i].iov_base);
            atomic_fetch_add(&received, 1);
        }
    }
    to.msg_iov = iov;
    const ssize_t n = __real_recvmsg(fd, &to, flags);
    msg->msg_flags = to.msg_flags;
    return n;
}

/* ---- faults ------------------------------------------------------------------------------------ */

static uint8_t *opened_page[4];
static int opened_pages;

static void say(const char *text)
{
    if (write(2, text, strlen(text)) < 0) {
        _exit(4);
    }
}

static void on_fault(int sig, siginfo_t *si, void *context)
{
    ucontext_t *uc = context;
    if (!is_sealed(si->si_addr)) {
        say("a fault elsewhere\n");
        signal(sig, SIG_DFL);
        return;
    }
    if (!(uc->uc_mcontext.gregs[REG_ERR] & FAULT_IS_WRITE)) {
        if (atomic_load(&expecting)) {
            _exit(0);
        }
        say("the library has read the memory of the allocator\n");
        _exit(1);
    }
    uint8_t *page = sealed + ((size_t)((uint8_t *)si->si_addr - sealed) & ~(size_t)4095);
    if (opened_pages == 4 || mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0) {
        say("cannot let a store through\n");
        _exit(1);
    }
    opened_page[opened_pages++] = page;
    atomic_fetch_add(&stores, 1);
    uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG; /* and after this instruction it is closed again */
}

static void on_step(int sig, siginfo_t *si, void *context)
{
    ucontext_t *uc = context;
    (void)sig;
    (void)si;
    while (opened_pages > 0) {
        mprotect(opened_page[--opened_pages], 4096, PROT_NONE);
    }
    uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static void set_up(void)
{
    const int fd = memfd_create("sealed", MFD_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_EQ(ftruncate(fd, (off_t)(SLOT * SLOTS)), 0);
    sealed = mmap(NULL, SLOT * SLOTS, PROT_NONE, MAP_SHARED, fd, 0);
    open_ = mmap(NULL, SLOT * SLOTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(sealed != MAP_FAILED && open_ != MAP_FAILED);
    close(fd);
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    CHECK_EQ(sigaction(SIGSEGV, &fault, NULL), 0);
    CHECK_EQ(sigaction(SIGTRAP, &step, NULL), 0);
}

/* ---- the allocator ----------------------------------------------------------------------------- */

static int do_alloc(void *opaque, const struct clb_alloc_req *req, struct clb_buf *out)
{
    (void)opaque;
    CHECK_LE(req->capacity, SLOT);
    for (size_t i = 0; i < SLOTS; i++) {
        if (!atomic_exchange(&used[i], true)) {
            memset(open_ + i * SLOT, MEM_UNWRITTEN, SLOT);
            *out = (struct clb_buf){.data = sealed + i * SLOT, .size = SLOT, .context = &used[i]};
            return CLB_OK;
        }
    }
    return CLB_ERR_NOBUFS;
}

static void do_free(void *opaque, struct clb_buf *buf)
{
    (void)opaque;
    atomic_store((atomic_bool *)buf->context, false);
}

/* ---- cases ------------------------------------------------------------------------------------- */

static struct rig r;
static struct blob meta, whole;

static void start(clb_stream_params *sp)
{
    sp->allocator.alloc = do_alloc;
    sp->allocator.free = do_free;
    r = (struct rig){0};
    mem_init(&r.mem);
    rig_open(&r, sp, WINDOW);
    atomic_store(&stores, 0);
    atomic_store(&received, 0);
}

static void stop(void)
{
    rig_credited(&r);
    rig_close(&r);
    for (int i = 0; i < SLOTS; i++) {
        CHECK(!atomic_load(&used[i]));
    }
}

static clb_packet *exchange(unsigned seed, size_t pixels)
{
    rig_send(&r, &whole, 0);
    clb_packet *p = rig_read(&r);
    CHECK(is_sealed(clb_packet_data(p)));
    CHECK_EQ(info_of(p).total, whole.n);
    CHECK_EQ(info_of(p).readback_bytes, 0);
    /* Of a packet that is bad there may be less. */
    const size_t size = clb_packet_size(p);
    check_pixels(other_side(clb_packet_data(p)), seed, size < pixels ? size : pixels);
    return p;
}

static void check_metadata(const clb_packet *p)
{
    size_t size = 0;
    const void *m = clb_packet_metadata(p, &size);
    CHECK_EQ(info_of(p).metadata_status, CLB_METADATA_OK);
    CHECK_EQ(size, meta.n);
    CHECK(size == 0 || memcmp(m, meta.data, size) == 0);
}

/* Raw frames with metadata that jitters, held a while, some released. Once the size is known nothing touches
 * the memory at all. */
static void steady(bool write_only)
{
    clb_stream_params sp = {.trailer = CLB_TRAILER_AUTO, .write_only = write_only};
    uint32_t rnd = 3;
    clb_packet *held[4] = {0};
    start(&sp);
    for (unsigned i = 0; i < 300; i++) {
        meta.n = 0;
        meta_any(&meta, i < 2 ? 2000 : pick(&rnd, 2000));
        pack(&whole, i, 20000, &meta, TYPE_UNKNOWN);
        clb_packet *p = exchange(i, 20000);
        CHECK_EQ(clb_packet_size(p), 20000);
        check_metadata(p);
        if (i == 2) {
            atomic_store(&stores, 0); /* those of the first two packets */
        }
        clb_packet_free(&held[i % 4]);
        held[i % 4] = p;
        if (i % 5 == 0) {
            struct clb_buf buf;
            CHECK_EQ(clb_packet_release(p, &buf), CLB_OK);
            do_free(NULL, &buf);
        }
    }
    for (int i = 0; i < 4; i++) {
        clb_packet_free(&held[i]);
    }
    CHECK_EQ(atomic_load(&stores), 0);
    CHECK_GE(atomic_load(&received), 299);
    stop();
}

/* Sizes that never repeat: the missing bytes are written, nothing is read. */
static void encoded(void)
{
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    uint32_t rnd = 5;
    start(&sp);
    for (unsigned i = 0; i < 40; i++) {
        const size_t pixels = 3000 + pick(&rnd, 40000);
        meta.n = 0;
        meta_any(&meta, 300 + pick(&rnd, 64));
        pack(&whole, i, pixels, &meta, TYPE_UNKNOWN);
        clb_packet *p = exchange(i, pixels);
        CHECK_EQ(clb_packet_size(p), pixels);
        check_metadata(p);
        clb_packet_free(&p);
    }
    CHECK_GT(atomic_load(&stores), 0);
    CHECK_GT(rig_stats(&r).moved_bytes, 0);
    stop();
}

/* Pixels that shrink and grow, metadata that is nonsense or too large, with write_only. */
static void shrinking(void)
{
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI, .write_only = 1};
    uint32_t rnd = 5, bad = 0;
    start(&sp);
    for (unsigned i = 0; i < 100; i++) {
        const size_t pixels = i % 4 == 3 ? 9000 + pick(&rnd, 2000) : 10000;
        const bool lie = i % 25 == 24;
        meta.n = 0;
        meta_any(&meta, pick(&rnd, 2000));
        pack(&whole, i, pixels, &meta, TYPE_UNKNOWN);
        if (lie) {
            whole.data[whole.n - 17] ^= 0x40;
        }
        clb_packet *p = exchange(i, pixels);
        if (info_of(p).metadata_status == CLB_METADATA_OK) {
            CHECK(!lie);
            CHECK_EQ(clb_packet_size(p), pixels);
            check_metadata(p);
        } else {
            bad++;
            CHECK(lie || clb_packet_size(p) == pixels);
        }
        clb_packet_free(&p);
    }
    CHECK_GE(bad, 4);
    CHECK_LE(bad, 66);
    CHECK_EQ(rig_stats(&r).readback_bytes, 0);
    stop();
}

/* Rows that are placed, without a trailer, with one, and in between another picture. */
static void rows(bool trailer, bool write_only)
{
    clb_stream_params sp = {.trailer = trailer ? CLB_TRAILER_DEPTHAI : CLB_TRAILER_NONE,
                            .dst_pitch_align = 64,
                            .write_only = write_only};
    uint32_t rnd = 5;
    CHECK_EQ(clb_image_init(&sp.image, CLB_PIXFMT_BGR24, 30, 20, 0, 0), CLB_OK);
    start(&sp);
    for (unsigned i = 0; i < 100; i++) {
        const bool other = trailer && write_only && i % 10 == 9;
        meta.n = 0;
        meta_frame(&meta, &(struct meta_frame){.type = FT_BGR888I,
                                               .width = other ? 20 : 30,
                                               .height = other ? 30 : 20,
                                               .seq = i,
                                               .pad = pick(&rnd, 500)});
        pack(&whole, i, 1800, &meta, TYPE_FRAME);
        whole.n = trailer ? whole.n : 1800;
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        CHECK(is_sealed(clb_packet_data(p)));
        const uint8_t *data = other_side(clb_packet_data(p));
        CHECK_EQ(info_of(p).readback_bytes + info_of(p).moved_bytes, 0);
        if (info_of(p).metadata_status != CLB_METADATA_BAD) {
            for (size_t y = 0; y < 20; y++) {
                CHECK_EQ(memcmp(data + y * 128, whole.data + y * 90, 90), 0);
                for (size_t x = 90; x < 128; x++) {
                    CHECK_EQ(data[y * 128 + x], MEM_UNWRITTEN);
                }
            }
        } else {
            CHECK(i % 10 == 9 || (i > 0 && i % 10 == 0));
        }
        clb_packet_free(&p);
    }
    CHECK_EQ(atomic_load(&stores), 0);
    stop();
}

/* The trap works: where a load is due, as for a guess that was too high, it is noticed. Ends the process. */
static void a_load_is_seen(void)
{
    clb_stream_params sp = {.trailer = CLB_TRAILER_DEPTHAI};
    start(&sp);
    for (unsigned i = 0; i < 5; i++) {
        meta.n = 0;
        meta_any(&meta, 300);
        pack(&whole, i, i < 4 ? 10000 : 9990, &meta, TYPE_UNKNOWN);
        atomic_store(&expecting, i == 4);
        rig_send(&r, &whole, 0);
        clb_packet *p = rig_read(&r);
        clb_packet_free(&p);
    }
    say("memory was read back, and the test has not noticed\n");
    _exit(1);
}

int main(void)
{
    check_watchdog(100);
    set_up();
    RUN(steady(false));
    RUN(steady(true));
    RUN(encoded());
    RUN(shrinking());
    RUN(rows(false, false));
    RUN(rows(true, false));
    RUN(rows(true, true));
    blob_free(&meta);
    blob_free(&whole);
    a_load_is_seen();
}

#else

int main(void)
{
    printf("loads and stores are not told apart on this machine\n");
    return 77;
}

#endif
