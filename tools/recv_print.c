/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of `recv`.
 */
#include <math.h>
#include <string.h>

#include "recv_run.h"

void recv_print_stream(struct recv_run *r)
{
    struct json *j = &r->report.out;

    json_begin(j, "stream");
    json_str(j, "stream", r->announced.name);
    json_uint(j, "stream_id", r->announced.id);
    json_uint(j, "window_bytes", r->announced.peer_window);
    report_event(&r->report);
}

void recv_print_memory(struct recv_run *r)
{
    struct json *j = &r->report.out;
    struct recv_counters counters;

    r->ops->get_counters(r->backend, &counters);
    json_begin(j, "memory");
    json_str(j, "requested", r->setup.requested);
    json_str(j, "path", counters.path);
    r->ops->describe(r->backend, j);
    json_uint(j, "slots", counters.slots);
    json_uint(j, "slot_bytes", counters.slot_bytes);
    report_event(&r->report);
}

static void print_planes(struct json *j, const char *key, const struct clb_image *image, bool pitch)
{
    json_open(j, key, '[');
    for (uint32_t i = 0; i < image->num_planes; i++)
        json_uint(j, NULL, pitch ? image->plane[i].pitch : image->plane[i].offset);
    json_close(j, ']');
}

static void print_nulls(struct json *j, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_null(j, keys[i]);
}

static void print_layout(struct json *j, const struct recv_about *about)
{
    static const char *const keys[] = {"format", "width", "height", "pitches", "offsets"};
    const struct clb_image *image = &about->image;

    if (!about->has_image) {
        print_nulls(j, keys, sizeof keys / sizeof keys[0]);
        return;
    }
    json_str(j, "format", clb_pixfmt_name(image->fmt));
    json_uint(j, "width", image->width);
    json_uint(j, "height", image->height);
    print_planes(j, "pitches", image, true);
    print_planes(j, "offsets", image, false);
}

static const char *metadata_name(enum clb_metadata_status status)
{
    switch (status) {
    case CLB_METADATA_OK: return "ok";
    case CLB_METADATA_BAD: return "bad";
    case CLB_METADATA_NONE: break;
    }
    return "none";
}

/* Only what the kind of the message has is told. */
static void print_camera(struct json *j, const struct recv_about *about)
{
    static const char *const times[] = {"sequence_num", "ts_ns", "ts_device_ns"};
    static const char *const more[] = {"camera_socket", "exposure_us", "iso"};
    const clb_depthai_info *camera = &about->camera;
    bool frame = about->has_camera &&
                 (camera->kind == CLB_DEPTHAI_FRAME || camera->kind == CLB_DEPTHAI_ENCODED);

    if (frame || (about->has_camera && camera->kind == CLB_DEPTHAI_BUFFER)) {
        json_int(j, "sequence_num", camera->sequence_num);
        json_int(j, "ts_ns", camera->ts_ns);
        json_int(j, "ts_device_ns", camera->ts_device_ns);
    } else {
        print_nulls(j, times, sizeof times / sizeof times[0]);
    }
    if (frame) {
        json_uint(j, "camera_socket", camera->camera_socket);
        json_int(j, "exposure_us", camera->exposure_us);
        json_int(j, "iso", camera->iso);
    } else {
        print_nulls(j, more, sizeof more / sizeof more[0]);
    }
}

static const char *part_name(enum clb_part part)
{
    switch (part) {
    case CLB_PART_SPLIT_HEAD: return "split-head";
    case CLB_PART_SPLIT: return "split";
    case CLB_PART_GROUP_HEAD: return "group-head";
    case CLB_PART_GROUP: return "group";
    case CLB_PART_WHOLE: break;
    }
    return "whole";
}

void recv_print_frame(struct recv_run *r, const struct recv_frame *f, const uint32_t *crc,
                      enum verify_result verified)
{
    const clb_packet_info *info = &f->info;
    struct json *j = &r->report.out;

    json_begin(j, "frame");
    json_uint(j, "seq", info->seq);
    json_uint(j, "bytes", recv_pixel_bytes(f->about, info));
    json_uint(j, "total_bytes", info->total);
    json_uint(j, "metadata_bytes", info->metadata_size);
    json_str(j, "metadata_status", metadata_name(info->metadata_status));
    if (info->metadata_status == CLB_METADATA_OK)
        json_int(j, "object_type", info->object_type);
    else
        json_null(j, "object_type");
    json_str(j, "part", part_name(info->part));
    print_layout(j, f->about);
    print_camera(j, f->about);
    json_uint(j, "dropped_before", info->dropped_before);
    json_bool(j, "spilled", info->spilled);
    json_uint(j, "moved_bytes", info->moved_bytes);
    json_uint(j, "readback_bytes", info->readback_bytes);
    if (crc)
        json_uint(j, "crc32", *crc);
    else
        json_null(j, "crc32");
    if (verified == VERIFY_UNKNOWN)
        json_null(j, "verified");
    else
        json_bool(j, "verified", verified == VERIFY_GOOD);
    json_real(j, "latency_us",
              f->done_ns ? (double)(f->done_ns - info->last_byte_ns) / 1e3 : (double)NAN, 1);
    report_event(&r->report);
}

static void print_or_null(struct json *j, const char *key, int64_t value)
{
    if (value < 0)
        json_null(j, key);
    else
        json_int(j, key, value);
}

static void print_speed(struct recv_run *r, struct json *j)
{
    double seconds = r->first_ns ? (double)(r->last_ns - r->first_ns) / 1e9 : 0;
    double cpu = (double)r->cpu_ns / 1e9;

    json_real(j, "seconds", seconds, 6);
    json_real(j, "fps", seconds > 0 ? (double)r->frames / seconds : (double)NAN, 3);
    json_real(j, "latency_p50_us", latency_us(&r->latency, 0.50), 1);
    json_real(j, "latency_p99_us", latency_us(&r->latency, 0.99), 1);
    json_real(j, "cpu_s", cpu, 6);
    json_real(j, "cpu_io_s", r->cpu_io_ns < 0 ? (double)NAN : (double)r->cpu_io_ns / 1e9, 6);
    json_real(j, "cpu_s_per_gb", r->bytes ? cpu / ((double)r->bytes / 1e9) : (double)NAN, 6);
}

void recv_print_reconnect(struct recv_run *r, uint64_t wait_ms)
{
    struct json *j = &r->report.out;

    json_begin(j, "reconnect");
    json_uint(j, "attempt", r->in_vain + 1);
    json_uint(j, "wait_ms", wait_ms);
    json_str(j, "code", clb_error_name(r->lost.err));
    json_str(j, "message", r->lost.message);
    report_event(&r->report);
}

void recv_print_summary(struct recv_run *r)
{
    struct json *j = &r->report.out;
    const clb_stream_stats *st = &r->past;
    struct recv_counters counters, *m = &counters;

    r->ops->get_counters(r->backend, m);
    json_begin(j, "summary");
    json_uint(j, "frames", r->frames);
    json_uint(j, "bytes", r->bytes);
    json_uint(j, "metadata_bytes", r->metadata_bytes);
    json_uint(j, "verified_frames", r->verified);
    json_uint(j, "verify_errors", r->verify_errors);
    json_uint(j, "dropped_oldest", st->dropped_oldest);
    json_uint(j, "dropped_newest", st->dropped_newest);
    json_uint(j, "alloc_failed", st->alloc_failed);
    json_uint(j, "bad_metadata", st->bad_metadata);
    json_uint(j, "spilled_frames", st->spilled);
    json_uint(j, "spill_bytes", st->spill_bytes);
    json_uint(j, "moved_bytes", st->moved_bytes);
    json_uint(j, "readback_bytes", st->readback_bytes);
    json_uint(j, "cpu_copied_bytes", st->spill_bytes + st->moved_bytes + st->readback_bytes);
    json_uint(j, "cl_copied_bytes", m->cl_copied_bytes);
    json_uint(j, "result_bytes", m->result_bytes);
    json_str(j, "memory_path", m->path);
    json_str(j, "device", m->device);
    json_uint(j, "slots", m->slots);
    json_uint(j, "pool_hits", m->hits);
    json_uint(j, "pool_misses", m->misses);
    json_uint(j, "poisoned", m->poisoned);
    json_uint(j, "cl_buffers_created", m->created);
    print_or_null(j, "heap_allocs_steady", r->allocs_steady);
    print_or_null(j, "minor_faults_io_steady", r->faults_steady);
    print_speed(r, j);
    json_uint(j, "reconnects", r->links ? r->links - 1 : 0);
    json_uint(j, "attempts_failed", r->attempts_failed);
    json_str(j, "ended_by", r->ended_by);
    report_event(&r->report);
}
