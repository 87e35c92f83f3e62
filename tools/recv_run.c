/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One link of `recv`: takes packets as long as the device has room for them, else waits for the
 * oldest frame.
 */
#include "recv_run.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "signals.h"

#define MAX_WINDOW_PACKETS 64    /* of a stream on the wire */
#define MORE_SLOTS 4             /* with the device while the window is full */
#define GUESS_BYTES (384u << 20) /* of a pool for frames of unknown size */
#define NOBUFS_WAIT_NS 20000000

/* ---- the stream and its memory --------------------------------------------------------------- */

/* A call before the first frame failed. That the peer has ended is judged with the counts. */
static int fail_call(struct recv_run *r, int rc, const char *what)
{
    r->ended_by = signals_stop() ? "signal" : rc == CLB_ERR_CLOSED ? "peer" : "error";
    if (signals_stop() || rc == CLB_ERR_CLOSED)
        return EXIT_FAILED;
    if (rc == CLB_ERR_LOST || rc == CLB_ERR_PROTO || rc == CLB_ERR_IO)
        return endpoint_fail(&r->endpoint, &r->report, rc);
    if (rc == CLB_ERR_TIMEOUT)
        report_keep_next(&r->report, r->endpoint.lost);
    return report_fail(&r->report, rc, r->opt.stream ? r->opt.stream : "stream", "%s: %s", what,
                       clb_error_str(rc));
}

static void note_other(struct recv_run *r)
{
    size_t len = strlen(r->others);
    char name[4 * sizeof r->announced.name];

    if (len + sizeof name + 8 < sizeof r->others || !len)
        snprintf(r->others + len, sizeof r->others - len, "%s\"%s\"", len ? ", " : "",
                 report_escape(name, sizeof name, r->announced.name));
    else if (strcmp(r->others + len - 3, "..."))
        memcpy(r->others + len, ", ...", sizeof ", ...");
}

/* Nothing was refused before the link's own requests: a refusal is the window of a stream. */
static int fail_refused(struct recv_run *r)
{
    r->ended_by = "error";
    return report_fail(&r->report, CLB_ERR_TOOBIG, r->opt.stream ? r->opt.stream : "stream",
                       "a stream that the peer announced was refused: its window is larger than "
                       "%zu bytes; %s",
                       endpoint_max_window(r->endpoint.frame_bytes),
                       r->setup.has_image
                           ? "give the peer a smaller window, of one frame at least"
                           : "give --format and --size of its frames, if one is that "
                             "large, or give the peer a smaller window");
}

static bool refused_any(struct recv_run *r)
{
    clb_link_stats stats;

    clb_link_get_stats(r->endpoint.link, &stats, sizeof stats);
    return stats.nacks_sent > 0;
}

/* Waits until the peer announces the stream that we want. */
static int find_stream(struct recv_run *r)
{
    int64_t deadline = stats_now_ns() + r->opt.timeout_ns, left;
    int rc;

    for (;;) {
        left = deadline - stats_now_ns();
        rc = clb_link_next_stream(r->endpoint.link, &r->announced, sizeof r->announced,
                                  left > 0 ? left : 0);
        if (rc != CLB_OK)
            break;
        if (!r->opt.stream || !strcmp(r->opt.stream, r->announced.name))
            return 0;
        note_other(r);
    }
    memset(&r->announced, 0, sizeof r->announced);
    if (signals_stop() || (rc != CLB_ERR_TIMEOUT && rc != CLB_ERR_AGAIN && rc != CLB_ERR_CLOSED))
        return fail_call(r, rc, "waiting for the stream");
    if (refused_any(r))
        return fail_refused(r);
    if (rc == CLB_ERR_CLOSED && !r->others[0])
        return fail_call(r, rc, "waiting for the stream");
    r->ended_by = rc == CLB_ERR_CLOSED ? "peer" : "error";
    if (rc != CLB_ERR_CLOSED)
        rc = CLB_ERR_TIMEOUT;
    report_keep_next(&r->report, r->endpoint.lost);
    if (r->others[0])
        return report_fail(
            &r->report, rc, r->opt.stream,
            "the peer did not announce this stream within %lld ms%s, but %s: give one of "
            "these to --stream",
            (long long)(r->opt.timeout_ns / 1000000), rc == CLB_ERR_CLOSED ? " and ended" : "",
            r->others);
    return report_fail(&r->report, rc, r->opt.stream ? r->opt.stream : "stream",
                       "the peer did not announce %s within %lld ms",
                       r->opt.stream ? "this stream, nor another," : "a stream",
                       (long long)(r->opt.timeout_ns / 1000000));
}

/* --slots by default: as many as packets fit the window, at most 64, and 4 more. When the size of a
 * frame is not known, each may be as large as the window, and memory sets a limit too: then small
 * frames may spill when the device is slow. */
static struct recv_plan plan_pool(const struct recv_run *r)
{
    struct recv_plan plan;
    uint64_t window = r->announced.peer_window ? r->announced.peer_window : 64, fit, total;

    if (r->setup.has_image) {
        plan.slot_bytes = r->opt.pitch_align ? clb_image_bytes(&r->setup.here)
                                             : pattern_frame_bytes(&r->setup.here);
        fit = window / pattern_frame_bytes(&r->setup.geometry.image);
    } else {
        /* Rows that are placed grow to twice their size at most, if they have half of --pitch-align. */
        plan.slot_bytes = (size_t)window * (r->opt.pitch_align ? 2 : 1);
        fit = GUESS_BYTES / plan.slot_bytes;
    }
    fit = fit < 1 ? 1 : fit > MAX_WINDOW_PACKETS ? MAX_WINDOW_PACKETS : fit;
    total = r->opt.slots ? r->opt.slots : fit + MORE_SLOTS;
    plan.slots = (uint32_t)total;
    plan.keep = total > fit ? (uint32_t)(total - fit) : 1;
    return plan;
}

/* The pool of the link before serves again when it is as good as a new one would be. */
static int have_pool(struct recv_run *r)
{
    struct recv_plan plan = plan_pool(r);
    int rc;

    if (r->plan.slots >= plan.slots && r->plan.slot_bytes >= plan.slot_bytes &&
        r->plan.keep >= plan.keep)
        return 0;
    report_doing(&r->report, "making %u buffers of %zu bytes ...", plan.slots, plan.slot_bytes);
    rc = r->ops->make_pool(r->backend, plan.slot_bytes, plan.slots, plan.keep, &r->allocator);
    report_clear(&r->report);
    r->plan = plan;
    return rc;
}

static enum clb_trailer trailer(const struct recv_run *r)
{
    static const enum clb_trailer of[] = {CLB_TRAILER_AUTO, CLB_TRAILER_NONE, CLB_TRAILER_DEPTHAI};

    return of[r->opt.trailer];
}

static int open_stream(struct recv_run *r)
{
    int rc;

    if (have_pool(r)) {
        r->ended_by = "error";
        return EXIT_FAILED;
    }
    recv_print_memory(r);
    rc = clb_stream_open(&r->stream, r->endpoint.link,
                         clb_stream_params(.name = r->announced.name, .allocator = r->allocator,
                                           .on_full = (enum clb_full)r->opt.on_full,
                                           .queue_len = (uint32_t)r->opt.queue,
                                           .trailer = trailer(r), .image = r->setup.geometry.image,
                                           .dst_pitch_align = r->setup.geometry.pitch_align,
                                           .write_only = r->ops->write_only,
                                           .open_timeout_ns = r->opt.timeout_ns));
    return rc < 0 ? fail_call(r, rc, "opening the stream") : 0;
}

/* ---- packets that are not what --format and --size say ---------------------------------------- */

static int fail_misfit(struct recv_run *r, int err, uint64_t bytes)
{
    const struct clb_image *image = &r->setup.geometry.image;
    size_t frame = pattern_frame_bytes(image);
    bool metadata = r->opt.trailer == TRAILER_NONE && bytes > frame;
    char got[48] = "", pitch[32] = "";

    if (r->opt.pitch)
        snprintf(pitch, sizeof pitch, " --pitch %llu", (unsigned long long)r->opt.pitch);
    snprintf(got, sizeof got,
             bytes                   ? "%llu bytes"
             : err == CLB_ERR_TOOBIG ? "more"
                                     : "0 bytes",
             (unsigned long long)bytes);
    r->ended_by = "error";
    return report_fail(
        &r->report, err, r->announced.name,
        "the peer sends packets of %s, but a frame of --format %s --size %ux%u%s has "
        "%zu: give the peer's --format, --size and --pitch%s",
        got, clb_pixfmt_name(image->fmt), image->width, image->height, pitch, frame,
        metadata ? ", or --trailer auto when metadata follow the pixels" : "");
}

/* Depth is sent as RAW16, and grey pictures are sometimes told as raw ones: the same bytes. */
static enum clb_pixfmt samples(enum clb_pixfmt fmt)
{
    switch (fmt) {
    case CLB_PIXFMT_RAW8: return CLB_PIXFMT_GRAY8;
    case CLB_PIXFMT_RAW10:
    case CLB_PIXFMT_RAW12:
    case CLB_PIXFMT_RAW16: return CLB_PIXFMT_GRAY16;
    default: return fmt;
    }
}

/* What the camera says about a picture counts; when that is not what we were told, somebody is wrong. */
static int check_told(struct recv_run *r, const struct recv_frame *f)
{
    const struct clb_image *told = &r->setup.geometry.image, *is = &f->about->image;

    if (!f->about->has_image)
        return f->info.size < clb_image_bytes(told) ? fail_misfit(r, CLB_ERR_INVAL, f->info.size)
                                                    : 0;
    if (samples(is->fmt) == samples(told->fmt) && is->width == told->width &&
        is->height == told->height)
        return 0;
    r->ended_by = "error";
    return report_fail(&r->report, CLB_ERR_INVAL, r->announced.name,
                       "the metadata say that the peer sends %s %ux%u, not --format %s --size "
                       "%ux%u: give these, or neither --format nor --size",
                       clb_pixfmt_name(is->fmt), is->width, is->height, clb_pixfmt_name(told->fmt),
                       told->width, told->height);
}

/* A picture was asked for, and a frame has none that no later frame of its kind will have either: bad
 * metadata may be of this one alone. */
static int check_picture(struct recv_run *r, const struct recv_frame *f)
{
    const bool wants = recv_out_wants(&r->out, f->info.seq);
    const bool png = wants && r->out.save == SAVE_PNG && !f->rgb;
    const bool npy = wants && r->out.save == SAVE_NPY && !f->rgb && !f->tensor;
    const char *where = png ? "--save png" : npy ? "--save npy" : "--preprocess";

    if ((!png && !npy && !(r->setup.recipe.given && !f->done_ns)) ||
        f->info.metadata_status == CLB_METADATA_BAD)
        return 0;
    r->ended_by = "error";
    if (f->about->has_image)
        return report_fail(&r->report, CLB_ERR_NOSYS, where,
                           "frame %llu is %s, of which no picture can be made here: in host memory "
                           "of nv12, rgb24, bgr24 and gray8 alone, on a device of all but RAW of "
                           "unknown Bayer order",
                           (unsigned long long)f->info.seq, clb_pixfmt_name(f->about->image.fmt));
    r->report.exit_status = EXIT_USAGE;
    return report_fail(&r->report, CLB_ERR_INVAL, where,
                       "nothing tells how the pixels of frame %llu lie: give --format and --size",
                       (unsigned long long)f->info.seq);
}

/*
 * The pool refuses what is larger than a slot, and such a packet is never seen here: its size is what
 * arrived and was not read. That is exact when nothing else is unread; at_end takes what there is.
 * Memory that could not be had is a failure when no frame at all had any.
 */
static int check_refused(struct recv_run *r, bool at_end)
{
    clb_stream_stats s;
    uint64_t lost;

    clb_stream_get_stats(r->stream, &s, sizeof s);
    lost = s.packets > r->read ? s.packets - r->read : 0;
    if (!s.alloc_failed || (!at_end && (!lost || s.queued)))
        return 0;
    if (r->setup.has_image)
        return fail_misfit(r, CLB_ERR_TOOBIG, lost ? (s.bytes - r->read_bytes) / lost : 0);
    if (!at_end || r->read || r->frames)
        return 0;
    return report_fail(&r->report, CLB_ERR_NOMEM, r->announced.name,
                       "no frame found memory, %llu were lost; see --slots and --memory, or give "
                       "--format and --size",
                       (unsigned long long)s.alloc_failed);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static uint64_t heap_allocs(struct recv_run *r)
{
    struct recv_counters counters;
    clb_link_stats link;

    clb_link_get_stats(r->endpoint.link, &link, sizeof link);
    r->ops->get_counters(r->backend, &counters);
    return link.heap_allocs + counters.heap_allocs;
}

/* Files and `frame` events count the packets of all links; the peer counts those of one. */
static uint64_t number_of(const struct recv_run *r, uint64_t seq)
{
    return r->past.packets + seq;
}

static enum verify_result verify(struct recv_run *r, const struct recv_frame *f)
{
    const struct verify_view view = {.pixels = f->pixels,
                                     .size = f->pixels ? f->info.size : 0,
                                     .image = f->about->has_image ? &f->about->image : NULL,
                                     .sent = f->about->placed ? &f->about->sent : NULL};
    enum verify_result result;

    if (!verify_active(&r->verify))
        return VERIFY_UNKNOWN;
    result = verify_frame(&r->verify, &view, f->info.seq);
    r->verified += result == VERIFY_GOOD;
    if (result == VERIFY_BAD && !r->verify_errors++)
        snprintf(r->first_bad, sizeof r->first_bad, "frame %llu: %s",
                 (unsigned long long)number_of(r, f->info.seq), r->verify.why);
    return result;
}

/* Everything that is done with a frame once the device is through with it. */
static int look_at(struct recv_run *r, struct recv_frame *f)
{
    bool has_crc = r->opt.crc && (f->pixels || !f->info.size);
    enum verify_result verified;
    uint32_t crc = 0;

    r->frames++;
    r->link_frames++;
    r->bytes += recv_pixel_bytes(f->about, &f->info);
    r->metadata_bytes += f->info.metadata_size;
    if (f->done_ns)
        latency_add(&r->latency, f->done_ns - f->info.last_byte_ns);
    if (has_crc)
        crc = f->info.size ? recv_pixel_crc(f->about, &f->info, f->pixels) : 0;
    verified = verify(r, f);
    f->info.seq = number_of(r, f->info.seq);
    r->last_ns = stats_now_ns();
    if (r->opt.frames)
        recv_print_frame(r, f, has_crc ? &crc : NULL, verified);
    if ((r->setup.has_image && check_told(r, f)) || check_picture(r, f))
        return EXIT_FAILED;
    return recv_out_wants(&r->out, f->info.seq) ? recv_out_frame(&r->out, &r->report, f) : 0;
}

static int finish_oldest(struct recv_run *r)
{
    struct recv_frame f;
    int rc;

    if (r->ops->collect(r->backend, &f))
        return EXIT_FAILED;
    rc = look_at(r, &f);
    r->ops->put(r->backend);
    if (r->link_frames == RECV_WARM_UP) {
        r->warm = true;
        r->warm_allocs = heap_allocs(r);
        r->warm_faults = stats_minor_faults(&r->endpoint.io);
    }
    report_progress(&r->report, "%llu frames, %.1f frames/s, %llu verified",
                    (unsigned long long)r->frames,
                    (double)r->frames * 1e9 / (double)(r->last_ns - r->first_ns + 1),
                    (unsigned long long)r->verified);
    return rc;
}

static int submit(struct recv_run *r, clb_packet **packet)
{
    clb_packet_info info;
    bool save;
    int rc;

    clb_packet_get_info(*packet, &info, sizeof info);
    if (!r->first_ns)
        r->first_ns = info.first_byte_ns;
    r->read++;
    r->read_bytes += info.total;
    save = recv_out_wants(&r->out, number_of(r, info.seq));
    rc =
        r->ops->submit(r->backend, packet,
                       r->opt.crc || verify_active(&r->verify) || (save && r->out.save == SAVE_RAW),
                       save && (r->out.save == SAVE_PNG || r->out.save == SAVE_NPY));
    clb_packet_free(packet); /* only when it was not taken over */
    r->taken += rc == 0;
    return rc;
}

/* Sleeps until a packet, the end of the stream or a stop. */
static void wait_for_packet(struct recv_run *r)
{
    struct pollfd fds[2] = {{.fd = clb_stream_fd(r->stream), .events = POLLIN},
                            {.fd = signals_fd(), .events = POLLIN}};

    (void)poll(fds, 2, r->setup.has_image ? RECV_LOOK_MS : -1);
}

/* Nothing can be read now: use the time for the oldest frame, or sleep. */
static int idle(struct recv_run *r)
{
    if (r->ops->pending(r->backend))
        return finish_oldest(r);
    wait_for_packet(r);
    return 0;
}

/* One step: 0 go on, 1 the end (ended_by says why), EXIT_FAILED is 1 too. */
static int step(struct recv_run *r)
{
    clb_packet *packet = NULL;
    bool alone = !r->ops->pending(r->backend);
    int rc;

    if (signals_stop()) {
        r->ended_by = "signal";
        return 1;
    }
    if (r->opt.count && r->taken == r->opt.count) {
        r->ended_by = "count";
        return 1;
    }
    if (r->setup.has_image && check_refused(r, false))
        return 1;
    if (!alone && (!r->ops->has_room(r->backend) || r->ops->oldest_done(r->backend)))
        return finish_oldest(r);
    rc = clb_stream_read(r->stream, &packet, 0);
    if (rc == CLB_ERR_NOBUFS && alone)
        /* Its memory is on the way home; the call waits for it and for nothing else. */
        rc = clb_stream_read(r->stream, &packet, NOBUFS_WAIT_NS);
    switch (rc) {
    case CLB_OK: return submit(r, &packet);
    case CLB_ERR_AGAIN:
    case CLB_ERR_TIMEOUT:
    case CLB_ERR_NOBUFS:
    case CLB_ERR_CANCELED: return idle(r);
    case CLB_ERR_CLOSED: r->ended_by = signals_stop() ? "signal" : "peer"; return 1;
    default:
        r->ended_by = signals_stop() ? "signal" : "error";
        if (!signals_stop())
            endpoint_fail(&r->endpoint, &r->report, rc);
        return 1;
    }
}

static void receive(struct recv_run *r)
{
    while (step(r) == 0)
        ;
    /* What is with the device was received: it counts, whatever the end. */
    while (r->ops->pending(r->backend))
        if (finish_oldest(r))
            break;
    if (!r->ended_by || (r->report.failed && strcmp(r->ended_by, "peer")))
        r->ended_by = "error";
}

/* ---- the end --------------------------------------------------------------------------------- */

static void add_steady(int64_t *sum, int64_t now, int64_t then)
{
    if (now >= 0 && then >= 0)
        *sum = (*sum < 0 ? 0 : *sum) + now - then;
}

/* What the link leaves in the totals. */
static void count_link(struct recv_run *r)
{
    clb_stream_stats s = {0};
    int64_t now = stats_cpu_thread_ns(&r->endpoint.io);

    r->cpu_ns = stats_cpu_process_ns() - r->cpu_start_ns;
    r->cpu_io_ns = r->cpu_io_start_ns < 0 || now < 0 ? -1 : now - r->cpu_io_start_ns;
    if (r->warm) {
        add_steady(&r->allocs_steady, (int64_t)heap_allocs(r), (int64_t)r->warm_allocs);
        add_steady(&r->faults_steady, stats_minor_faults(&r->endpoint.io), r->warm_faults);
    }
    if (r->stream)
        clb_stream_get_stats(r->stream, &s, sizeof s);
    r->past.packets += s.packets;
    r->past.dropped_oldest += s.dropped_oldest;
    r->past.dropped_newest += s.dropped_newest;
    r->past.alloc_failed += s.alloc_failed;
    r->past.bad_metadata += s.bad_metadata;
    r->past.spilled += s.spilled;
    r->past.spill_bytes += s.spill_bytes;
    r->past.moved_bytes += s.moved_bytes;
    r->past.readback_bytes += s.readback_bytes;
}

void recv_one_link(struct recv_run *r)
{
    r->others[0] = '\0';
    r->read = r->read_bytes = r->link_frames = 0;
    r->warm = false;
    r->ended_by = NULL;
    verify_restart(&r->verify);
    if (find_stream(r) == 0) {
        recv_print_stream(r);
        if (open_stream(r) == 0)
            receive(r);
    }
    if (r->stream && strcmp(r->ended_by, "signal") && check_refused(r, true))
        r->ended_by = "error";
    count_link(r);
    clb_stream_close(&r->stream);
}
