/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge send: test pictures to one peer, in either role.
 */
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <clbridge/stream.h>

#include "args.h"
#include "commands.h"
#include "crc32.h"
#include "endpoint.h"
#include "pattern.h"
#include "send_trailer.h"
#include "signals.h"

#define SEC_NS INT64_C(1000000000)
#define RELEASE_WAIT_NS (5 * SEC_NS)
#define ACK_WAIT_NS (20 * SEC_NS) /* beyond progress_timeout_ns, which gives up first */
#define MIN_WINDOW 5294080u       /* what a camera announces for its video streams */
#define MAX_DEFAULT_WINDOW ENDPOINT_WINDOW

#define RELEASES "3.4|3.10"

struct options {
    const char *listen, *connect, *stream, *input;
    int pattern, format, trailer;
    int release; /* index into RELEASES, -1 = not given */
    int loop, frames, json, verbose;
    struct arg_size size;
    uint64_t seed, pitch, count, window;
    double fps;
    int64_t timeout_ns;
};

#define OPT(field) offsetof(struct options, field)

static const struct arg_opt opts[] = {
    {"listen", ARG_STR, OPT(listen), "URI", "wait for one peer there (device role)", NULL, 0, 0},
    {"connect", ARG_STR, OPT(connect), "URI", "connect to a peer (host role)", NULL, 0, 0},
    {"stream", ARG_STR, OPT(stream), "NAME", "name of the stream (video)", NULL, 0, 0},
    {"pattern", ARG_CHOICE, OPT(pattern), NULL, "what the pictures show (bars)",
     "bars|counter|noise", 0, 0},
    {"seed", ARG_U64, OPT(seed), "N", "of noise (1)", NULL, 0, 0},
    {"input", ARG_STR, OPT(input), "FILE", "not in this version", NULL, 0, 0},
    {"format", ARG_CHOICE, OPT(format), NULL, "of the pixels (nv12)", PATTERN_FORMATS, 0, 0},
    {"size", ARG_SIZE, OPT(size), "WxH", "of the pictures (1920x1080)", NULL, 0, 0},
    {"pitch", ARG_U64, OPT(pitch), "N", "bytes from row to row (packed)", NULL, 1, 1u << 20},
    {"fps", ARG_REAL, OPT(fps), "F", "frames per second, 0 = as fast as it goes (30)", NULL, 0,
     100000},
    {"count", ARG_U64, OPT(count), "N", "frames to send, 0 = endless (0)", NULL, 0, 0},
    {"loop", ARG_FLAG, OPT(loop), NULL, "begin the input again at its end", NULL, 0, 0},
    {"window", ARG_U64, OPT(window), "BYTES",
     "unreleased bytes (5294080, or 4 frames within 64 MiB, or 1 frame)", NULL, 1, UINT32_MAX},
    {"trailer", ARG_CHOICE, OPT(trailer), NULL, "metadata behind the pixels (none)", "none|depthai",
     0, 0},
    {"trailer-release", ARG_CHOICE, OPT(release), NULL, "as which depthai writes them (3.10)",
     RELEASES, 0, 0},
    {"timeout", ARG_MS, OPT(timeout_ns), "MS",
     "until the link is up, and until the stream is open (5000)", NULL, 1, 86400000},
    {"frames", ARG_FLAG, OPT(frames), NULL, "tell every frame", NULL, 0, 0},
    {"json", ARG_FLAG, OPT(json), NULL, "one JSON object per line on standard output", NULL, 0, 0},
    {"verbose", ARG_FLAG, OPT(verbose), NULL, "messages of the library on standard error", NULL, 0,
     0},
};

static const struct arg_spec spec = {
    .command = "send",
    .synopsis = "send (--listen URI | --connect URI) [OPTIONS]",
    .about = "Sends test pictures to one peer, waits for its releases and ends. URI is\n"
             "tcp://host[:port]; --listen tcp://127.0.0.1:0 picks a free port and tells it.",
    .opts = opts,
    .num_opts = sizeof opts / sizeof opts[0],
    .notes =
        "Patterns:\n"
        "  bars     colour bars with the number of the frame, as digits and as a code\n"
        "  counter  the number of the frame in 8 bytes, then bytes that count up\n"
        "  noise    random bytes made of --seed and the number of the frame\n"
        "\n"
        "`clbridge recv` takes windows of at most 64 MiB, or of one frame of its --format and\n"
        "--size when that is larger: give it both when frames have more than 64 MiB. A signal\n"
        "before `connected` ends with status 0 and without a summary.\n"
        "\n"
        "With --trailer depthai every packet is the frame and behind it what a depthai camera\n"
        "writes: layout, number of the frame, times (host and device monotonic, Unix), and always\n"
        "camera socket 0, exposure 8333 us, ISO 400. The window then has room for that, 1024 "
        "bytes\n"
        "per frame; bytes and crc32 in events are of the pixels alone.\n"
        "\n"
        "--pitch is that of every plane, of I420 and YV12 chroma half of it. bars come as nv12,\n"
        "rgb24, bgr24 and gray8. Not in this version: --input, --loop.",
};

struct sender {
    struct options opt;
    struct report report;
    struct endpoint endpoint;
    struct clb_image image;
    struct pattern pattern;
    size_t packet_bytes; /* the largest packet: a frame and what may follow it */
    struct send_trailer trailer;
    clb_stream *stream;
    uint64_t sent;
    int64_t started_ns, ended_ns, cpu_ns;
    const char *ended_by;
};

static int check_sizes(struct sender *s)
{
    const struct options *o = &s->opt;
    size_t frame = pattern_frame_bytes(&s->image);

    s->packet_bytes = frame + (o->trailer ? CLB_DEPTHAI_TRAILER_MAX : 0);
    if (s->packet_bytes > ENDPOINT_MAX_FRAME)
        return args_usage("send", stderr,
                          "a frame of %zu bytes%s is more than a packet can have: %zu", frame,
                          o->trailer ? " and its metadata" : "", ENDPOINT_MAX_FRAME);
    if (o->window && o->window < s->packet_bytes)
        return args_usage("send", stderr, "--window %llu is less than a frame of %zu bytes%s",
                          (unsigned long long)o->window, s->packet_bytes,
                          o->trailer ? " with its metadata" : "");
    return 0;
}

/* Writes one: whether depthai has words for the layout does not depend on the frame. */
static int check_trailer(struct sender *s)
{
    const struct options *o = &s->opt;
    int rc;

    if (!o->trailer)
        return o->release < 0
                   ? 0
                   : args_usage("send", stderr, "--trailer-release needs --trailer depthai");
    s->trailer.release = o->release == 0 ? CLB_DEPTHAI_V3_4 : CLB_DEPTHAI_V3_10;
    s->trailer.image = s->image;
    rc = send_trailer_write(&s->trailer, 0);
    s->trailer.born_ns = 0;
    if (rc == CLB_ERR_NOSYS)
        return args_usage(
            "send", stderr,
            "depthai has no frames of --format %s: choose another one, or --trailer none",
            clb_pixfmt_name(s->image.fmt));
    if (rc < 0)
        return args_usage(
            "send", stderr,
            "metadata of depthai cannot say --format %s --size %ux%u --pitch %llu: %s",
            clb_pixfmt_name(s->image.fmt), o->size.width, o->size.height,
            (unsigned long long)o->pitch, clb_error_str(rc));
    return 0;
}

/* Every contradiction is found here, before anything is opened. */
static int check_options(struct sender *s)
{
    const struct options *o = &s->opt;
    enum clb_pixfmt fmt = (enum clb_pixfmt)(o->format + 1);
    const char *format = clb_pixfmt_name(fmt);
    int rc;

    if (!o->listen == !o->connect)
        return args_usage("send", stderr, "give one of --listen URI and --connect URI");
    if (o->loop && !o->input)
        return args_usage("send", stderr, "--loop needs --input");
    if (strlen(o->stream) > 51)
        return args_usage("send", stderr, "--stream wants at most 51 bytes, got %zu",
                          strlen(o->stream));
    if (o->pattern == PATTERN_BARS &&
        (o->size.width < PATTERN_MIN_WIDTH || o->size.height < PATTERN_MIN_HEIGHT))
        return args_usage("send", stderr,
                          "--pattern bars wants a --size of at least %dx%d, got %ux%u",
                          PATTERN_MIN_WIDTH, PATTERN_MIN_HEIGHT, o->size.width, o->size.height);
    if (o->pattern == PATTERN_BARS && !pattern_draws(fmt))
        return args_usage("send", stderr,
                          "--pattern bars draws nv12, rgb24, bgr24 and gray8: for --format %s use "
                          "counter or noise",
                          format);
    rc = pattern_layout(&s->image, fmt, o->size.width, o->size.height, (size_t)o->pitch);
    if (rc == CLB_ERR_INVAL)
        return args_usage("send", stderr, "--pitch %llu is less than a row of %s at width %u",
                          (unsigned long long)o->pitch, format, o->size.width);
    if (rc < 0)
        return args_usage("send", stderr, "--format %s --size %ux%u: %s", format, o->size.width,
                          o->size.height, clb_error_str(rc));
    return check_sizes(s) || check_trailer(s) ? EXIT_USAGE : 0;
}

/* What the options promise for a later version. */
static int check_version(struct sender *s)
{
    if (s->opt.input)
        return report_fail(&s->report, CLB_ERR_NOSYS, "--input",
                           "files are not supported in this version; use --pattern");
    return 0;
}

static size_t window_bytes(const struct sender *s)
{
    size_t frame = s->packet_bytes, window = 4 * frame;

    if (s->opt.window)
        return (size_t)s->opt.window;
    if (window > MAX_DEFAULT_WINDOW)
        window = MAX_DEFAULT_WINDOW;
    if (window < MIN_WINDOW)
        window = MIN_WINDOW;
    return window < frame ? frame : window;
}

static int open_stream(struct sender *s)
{
    size_t window = window_bytes(s);
    int rc;

    rc = clb_stream_open(&s->stream, s->endpoint.link,
                         clb_stream_params(.name = s->opt.stream, .write_window = window,
                                           .open_timeout_ns = s->opt.timeout_ns, .write_async = 1));
    if (rc < 0)
        return rc;
    json_begin(&s->report.out, "stream");
    json_str(&s->report.out, "stream", clb_stream_name(s->stream));
    json_uint(&s->report.out, "stream_id", clb_stream_id(s->stream));
    json_uint(&s->report.out, "window_bytes", (window + 63) / 64 * 64);
    report_event(&s->report);
    return CLB_OK;
}

/* Drops what the peer sends on the stream. True at the end of the link. */
static bool link_ended(struct sender *s)
{
    clb_packet *packet = NULL;
    int rc = clb_stream_read(s->stream, &packet, 0);

    clb_packet_free(&packet);
    return rc == CLB_ERR_CLOSED || rc == CLB_ERR_LOST;
}

/* Sleeps until the moment; wakes on a stop and at the end of the link. */
static void sleep_until(struct sender *s, int64_t when_ns)
{
    struct pollfd fds[2] = {{.fd = signals_fd(), .events = POLLIN},
                            {.fd = clb_stream_fd(s->stream), .events = POLLIN}};
    int64_t left;

    while (!signals_stop() && (left = when_ns - stats_now_ns()) > 0) {
        struct timespec ts = {.tv_sec = (time_t)(left / SEC_NS), .tv_nsec = (long)(left % SEC_NS)};

        if (ppoll(fds, 2, &ts, NULL) > 0 && fds[1].revents && link_ended(s))
            return;
    }
}

static void print_frame(struct sender *s)
{
    json_begin(&s->report.out, "frame");
    json_uint(&s->report.out, "seq", s->sent);
    json_uint(&s->report.out, "bytes", s->pattern.size);
    json_uint(&s->report.out, "crc32", crc32_of(s->pattern.data, s->pattern.size));
    report_event(&s->report);
}

/* Writes frames until there is a reason to end. CLB_OK: all frames of --count are out, or a stop. */
static int write_frames(struct sender *s)
{
    struct clb_iovec iov[2] = {{.base = s->pattern.data, .len = s->pattern.size},
                               {.base = s->trailer.bytes}};
    int rc;

    for (; !signals_stop() && (!s->opt.count || s->sent < s->opt.count); s->sent++) {
        if (s->opt.fps > 0)
            sleep_until(s,
                        s->started_ns + (int64_t)((double)s->sent / s->opt.fps * (double)SEC_NS));
        if (signals_stop())
            break;
        pattern_render(&s->pattern, s->sent);
        if (s->opt.trailer) {
            rc = send_trailer_write(&s->trailer, s->sent);
            if (rc < 0)
                return rc;
            iov[1].len = s->trailer.size;
        }
        rc = clb_stream_write(s->stream, iov, s->opt.trailer ? 2 : 1, -1);
        if (rc < 0)
            return rc;
        if (s->opt.frames)
            print_frame(s);
        report_progress(&s->report, "%llu frames, %.1f frames/s", (unsigned long long)s->sent + 1,
                        (double)(s->sent + 1) * 1e9 / (double)(stats_now_ns() - s->started_ns + 1));
    }
    return signals_stop() ? CLB_OK : clb_stream_flush(s->stream, CLB_FLUSH_ACKED, ACK_WAIT_NS);
}

/* The peer did not take the stream as it was announced. */
static void fail_refused(struct sender *s)
{
    size_t window = window_bytes(s), frame = s->packet_bytes;
    char advice[128];

    if (window > ENDPOINT_WINDOW && frame <= ENDPOINT_WINDOW)
        snprintf(advice, sizeof advice, "give --window %zu or less", ENDPOINT_WINDOW);
    else if (window > ENDPOINT_WINDOW)
        snprintf(
            advice, sizeof advice,
            "tell recv the --format, --size and --pitch of the frames, and give no --window here");
    else
        snprintf(advice, sizeof advice, "give a --window of %zu to %zu, or see the peer's limits",
                 frame, window);
    report_fail(&s->report, CLB_ERR_TOOBIG, s->opt.stream,
                "the peer refuses the stream: the window here is %zu bytes, a frame %zu, and a "
                "receiver takes %zu (64 MiB) unless it expects larger frames: %s",
                window, frame, ENDPOINT_WINDOW, advice);
}

/* The peer ended before all frames of --count were there. Nothing released: it took no frame. */
static void fail_short(struct sender *s, int rc, const clb_stream_stats *stats)
{
    if (stats->released)
        report_fail(
            &s->report, rc, s->opt.stream,
            "the peer ended after %llu of %llu frames were acknowledged; it may want fewer or "
            "others, see what it says",
            (unsigned long long)stats->acked, (unsigned long long)s->opt.count);
    else
        report_fail(&s->report, rc, s->opt.stream,
                    "the peer ended and has not read any of the %llu frames; does it want this "
                    "stream and this size? See what it says",
                    (unsigned long long)s->opt.count);
}

/* Sets ended_by and reports a failure, if it was one. */
static void judge(struct sender *s, int rc)
{
    clb_stream_stats stats;
    clb_stream_get_stats(s->stream, &stats, sizeof stats);
    if (s->opt.count && stats.acked >= s->opt.count) {
        s->ended_by = "count";
    } else if (signals_stop()) {
        s->ended_by = "signal";
    } else if (rc == CLB_ERR_CLOSED) {
        s->ended_by = "peer";
        if (s->opt.count)
            fail_short(s, rc, &stats);
    } else if (rc == CLB_ERR_TOOBIG) {
        s->ended_by = "error";
        fail_refused(s);
    } else if (rc == CLB_ERR_TIMEOUT) {
        s->ended_by = "error";
        report_fail(&s->report, rc, s->opt.stream,
                    "the peer stopped acknowledging frames; is it alive?");
    } else {
        s->ended_by = "error";
        endpoint_fail(&s->endpoint, &s->report, rc < 0 ? rc : CLB_ERR_IO);
    }
}

static void print_summary(struct sender *s, const clb_stream_stats *stats)
{
    struct json *j = &s->report.out;
    double seconds = s->started_ns ? (double)(s->ended_ns - s->started_ns) / 1e9 : 0;

    json_begin(j, "summary");
    json_uint(j, "frames", s->sent);
    json_uint(j, "bytes", s->sent * s->pattern.size);
    json_uint(j, "acked_frames", stats->acked);
    json_uint(j, "released_frames", stats->released);
    json_real(j, "credit_wait_ms", (double)stats->credit_wait_ns / 1e6, 3);
    json_real(j, "seconds", seconds, 6);
    json_real(j, "fps", seconds > 0 ? (double)s->sent / seconds : (double)NAN, 3);
    json_real(j, "cpu_s", (double)(stats_cpu_process_ns() - s->cpu_ns) / 1e9, 6);
    json_str(j, "ended_by", s->ended_by);
    report_event(&s->report);
}

static void judge_opening(struct sender *s, int rc)
{
    s->ended_by = signals_stop() ? "signal" : rc == CLB_ERR_CLOSED ? "peer" : "error";
    if (signals_stop())
        return;
    if (rc == CLB_ERR_TIMEOUT)
        report_fail(&s->report, rc, s->opt.stream,
                    "the peer did not answer the announcement of the stream within %lld ms",
                    (long long)(s->opt.timeout_ns / 1000000));
    else if (rc == CLB_ERR_TOOBIG)
        fail_refused(s);
    else if (rc != CLB_ERR_CLOSED)
        endpoint_fail(&s->endpoint, &s->report, rc);
    else if (s->opt.count)
        report_fail(&s->report, rc, s->opt.stream, "the peer ended before the stream was open");
}

/* Everything between `connected` and `summary`. */
static void serve(struct sender *s)
{
    clb_stream_stats stats = {0};
    int rc;

    s->cpu_ns = stats_cpu_process_ns();
    rc = open_stream(s);
    if (rc == CLB_OK) {
        s->started_ns = stats_now_ns();
        rc = write_frames(s);
        s->ended_ns = stats_now_ns();
        judge(s, rc);
        /* How the wait for releases ends changes nothing: every frame has arrived. */
        if (!strcmp(s->ended_by, "count"))
            (void)clb_stream_flush(s->stream, CLB_FLUSH_RELEASED, RELEASE_WAIT_NS);
        clb_stream_get_stats(s->stream, &stats, sizeof stats);
        clb_stream_close(&s->stream);
    } else {
        judge_opening(s, rc);
    }
    endpoint_close(&s->endpoint);
    print_summary(s, &stats);
}

static int run(struct sender *s)
{
    int rc;

    if (check_version(s))
        return EXIT_FAILED;
    rc = pattern_init(&s->pattern, (enum pattern_kind)s->opt.pattern, &s->image,
                      pattern_frame_bytes(&s->image), s->opt.seed);
    if (rc < 0)
        return report_fail(&s->report, rc, "pattern", "%s", clb_error_str(rc));
    s->endpoint.uri = s->opt.listen ? s->opt.listen : s->opt.connect;
    s->endpoint.listen = s->opt.listen != NULL;
    s->endpoint.timeout_ns = s->opt.timeout_ns;
    s->endpoint.verbose = s->opt.verbose;
    if (endpoint_open(&s->endpoint, &s->report) == ENDPOINT_UP)
        serve(s);
    else
        endpoint_close(&s->endpoint);
    return s->report.failed ? s->report.exit_status : EXIT_OK;
}

int command_send(int argc, char **argv)
{
    struct sender s = {.opt = {.stream = "video",
                               .format = CLB_PIXFMT_NV12 - 1,
                               .release = -1,
                               .size = {1920, 1080},
                               .seed = 1,
                               .fps = 30,
                               .timeout_ns = 5 * SEC_NS}};
    int rc;

    switch (args_parse(&spec, argc, argv, &s.opt, stdout, stderr)) {
    case ARG_HELP: return EXIT_OK;
    case ARG_BAD: return EXIT_USAGE;
    case ARG_OK: break;
    }
    if (check_options(&s))
        return EXIT_USAGE;
    report_init(&s.report, "send", s.opt.json);
    rc = run(&s);
    pattern_free(&s.pattern);
    report_end(&s.report);
    return rc;
}
