/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge recv: options and their checks.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "args.h"
#include "commands.h"
#include "recv_run.h"

#define OPT(field) offsetof(struct recv_options, field)
#define NS_PER_MS 1000000
/* The pool is made between announcement and opening: frames wait in the socket that long rather than
 * be copied, but not until the peer takes its write for stuck (10 s). */
#define FIRST_OPEN_NS (INT64_C(8000) * NS_PER_MS)
/* What may follow the pixels: metadata as the library takes them, type, size and end mark. */
#define MAX_TRAILER ((size_t)51200 + 24)

static const struct arg_opt opts[] = {
    {"listen", ARG_STR, OPT(listen), "URI", "wait for one peer there (device role)", NULL, 0, 0},
    {"stream", ARG_STR, OPT(stream), "NAME", "stream to receive (the first announced)", NULL, 0, 0},
    {"format", ARG_CHOICE, OPT(format), NULL,
     "of the pixels that the peer sends (what its metadata say)", PATTERN_FORMATS, 0, 0},
    {"size", ARG_SIZE, OPT(size), "WxH", "of its pictures (what its metadata say)", NULL, 0, 0},
    {"pitch", ARG_U64, OPT(pitch), "N", "bytes from row to row (packed)", NULL, 1, 1u << 20},
    {"pitch-align", ARG_U64, OPT(pitch_align), "N",
     "place rows at multiples of N, a power of two (rows as they come)", NULL, 1, 1u << 20},
    {"trailer", ARG_CHOICE, OPT(trailer), NULL,
     "metadata behind the pixels (auto: the first frame decides)", RECV_TRAILERS, 0, 0},
    {"count", ARG_U64, OPT(count), "N", "frames to receive (until the peer ends)", NULL, 0, 0},
    {"device", ARG_STR, OPT(device), "SUBSTRING",
     "OpenCL device, by part of its or its platform's name", NULL, 0, 0},
    {"memory", ARG_CHOICE, OPT(memory), NULL, "where frames are put (auto = alloc-host)",
     RECV_MEMORIES, 0, 0},
    {"slots", ARG_U64, OPT(slots), "N", "buffers (as many as fit the window, and 4)", NULL, 1,
     1024},
    {"queue", ARG_U64, OPT(queue), "N", "unread frames kept by the drop policies (4)", NULL, 1, 64},
    {"on-full", ARG_CHOICE, OPT(on_full), NULL, "when frames come too fast (block)",
     "block|drop-oldest|drop-newest", 0, 0},
    {"preprocess", ARG_STR, OPT(preprocess), "WxH[,...]",
     "the kernel's output (RGB u8 of the size of the frames)", NULL, 0, 0},
    {"verify", ARG_CHOICE, OPT(verify), NULL, "compare with the pattern of `send` (auto)",
     "auto|bars|counter|noise|off", 0, 0},
    {"seed", ARG_U64, OPT(seed), "N", "of noise (1)", NULL, 0, 0},
    {"crc", ARG_FLAG, OPT(crc), NULL, "tell the CRC-32 of every frame", NULL, 0, 0},
    {"frames", ARG_FLAG, OPT(frames), NULL, "tell every frame", NULL, 0, 0},
    {"out", ARG_STR, OPT(out), "DIR", "folder for --save; made if missing", NULL, 0, 0},
    {"save", ARG_CHOICE, OPT(save), NULL,
     "write frames as files (y4m and npy: not in this version)", "png|y4m|raw|npy", 0, 0},
    {"every", ARG_U64, OPT(every), "N", "save every Nth frame (1)", NULL, 1, 0},
    {"reconnect", ARG_FLAG, OPT(reconnect), NULL,
     "when the link ends or cannot be made, make a new one", NULL, 0, 0},
    {"reconnect-max", ARG_U64, OPT(reconnect_max), "N",
     "give up after so many attempts in a row without a frame (never)", NULL, 1, 0},
    {"timeout", ARG_MS, OPT(timeout_ns), "MS",
     "until the link is up, and until the stream is announced (5000)", NULL, 1, 86400000},
    {"idle-timeout", ARG_MS, OPT(idle_timeout_ns), "MS",
     "a peer without any sign of life is lost after this (10000)", NULL, 1, 86400000},
    {"json", ARG_FLAG, OPT(json), NULL, "one JSON object per line on standard output", NULL, 0, 0},
    {"verbose", ARG_FLAG, OPT(verbose), NULL, "messages of the library on standard error", NULL, 0,
     0},
};

static const struct arg_spec spec = {
    .command = "recv",
    .synopsis = "recv (URI | --listen URI) [OPTIONS]",
    .about = "Receives frames into mapped OpenCL memory, runs a kernel on each, verifies what the\n"
             "device sees and saves pictures. URI is tcp://host[:port].",
    .opts = opts,
    .num_opts = sizeof opts / sizeof opts[0],
    .positional = "URI",
    .positional_offset = OPT(uri),
    .notes =
        "How the pixels lie is told by --format and --size (and --pitch), or by the metadata that "
        "a\n"
        "depthai camera, and `send --trailer depthai`, write behind them; then it may change from\n"
        "frame to frame. The kernel, --save png and --verify bars need it. Packets that do not "
        "fit\n"
        "--format and --size are an error. With these two nothing is ever copied. Without them "
        "the\n"
        "first frame is, once, and those that arrive before it was read (spilled_frames): nobody\n"
        "knows yet where pixels end.\n"
        "\n"
        "Metadata that contradict themselves end nothing: their frame comes as it is, with\n"
        "metadata_status bad, and counts in bad_metadata. --trailer none takes all for pixels.\n"
        "\n"
        "With --pitch-align rows are placed while they are received, without a copy. Then bytes "
        "and\n"
        "crc32 are those of the rows, one behind the other, and --save raw writes them as they\n"
        "lie, with undefined bytes between them.\n"
        "\n"
        "--verify auto takes the first frame for bars if it shows bars, else for counter; noise\n"
        "has to be asked for:\n"
        "  bars     colour bars with the number of the frame, as digits and as a code\n"
        "  counter  the number of the frame in 8 bytes, then bytes that count up\n"
        "  noise    random bytes made of --seed and the number of the frame\n"
        "\n"
        "A peer may have 64 MiB unreleased per stream, or one frame of --format and --size when "
        "that\n"
        "is larger: frames of more than 64 MiB need both options.\n"
        "\n"
        "With --reconnect the end of a link, lost or orderly, is not the end: a new attempt\n"
        "follows after 0.1 s at most, after one without a frame 0.2 s, and so on up to 5 s, until\n"
        "--count frames came over all links together or a signal comes. Then the status is 0. It\n"
        "is 1 as without --reconnect for what no new link mends (a frame that is not the pattern,\n"
        "a file, the device, the layout), and after --reconnect-max attempts; the last one is\n"
        "then what is told. Frames are numbered on over all links, in events and in the names of\n"
        "files. With --listen the next peer is waited for.\n"
        "\n"
        "In the summary, heap_allocs_steady and minor_faults_io_steady count after 100 frames; "
        "they\n"
        "are null when there were no more, and count per link. A signal before `connected` ends "
        "with\n"
        "status 0 and, unless --reconnect is given, without a summary.\n"
        "\n"
        "--memory: auto, alloc-host and host are in this version. --preprocess takes\n"
        "WxH[,letterbox|stretch|cover][,f32|f16|u8][,nchw|nhwc][,rgb|bgr]: what a kernel makes of\n"
        "every frame, by the rules of clbridge/preprocess.h. --save npy writes that, without\n"
        "--preprocess the picture; --save png shows u8 and nhwc. Not in this version: --save y4m.",
};

/* ---- --preprocess ---------------------------------------------------------------------------- */

/* The numbers are those of the enums of preprocess.h. */
static const struct {
    const char *word;
    size_t offset;
    int value;
} recipe_words[] = {
    {"stretch", offsetof(struct recv_recipe, fit), 0},
    {"letterbox", offsetof(struct recv_recipe, fit), 1},
    {"cover", offsetof(struct recv_recipe, fit), 2},
    {"u8", offsetof(struct recv_recipe, type), 0},
    {"f16", offsetof(struct recv_recipe, type), 1},
    {"f32", offsetof(struct recv_recipe, type), 2},
    {"nhwc", offsetof(struct recv_recipe, layout), 0},
    {"nchw", offsetof(struct recv_recipe, layout), 1},
    {"rgb", offsetof(struct recv_recipe, order), 0},
    {"bgr", offsetof(struct recv_recipe, order), 1},
};

static int recipe_word(const char *word, struct recv_recipe *recipe)
{
    for (size_t i = 0; i < sizeof recipe_words / sizeof recipe_words[0]; i++)
        if (!strcmp(word, recipe_words[i].word)) {
            *(int *)(void *)((char *)recipe + recipe_words[i].offset) = recipe_words[i].value;
            return 0;
        }
    return -1;
}

static int parse_recipe(const char *text, struct recv_recipe *recipe)
{
    char copy[96], *rest = copy, *word;

    if (strlen(text) >= sizeof copy)
        return -1;
    memcpy(copy, text, strlen(text) + 1);
    word = strsep(&rest, ",");
    if (args_parse_size(word, &recipe->size))
        return -1;
    while ((word = strsep(&rest, ",")))
        if (recipe_word(word, recipe))
            return -1;
    recipe->given = true;
    return 0;
}

/* 8 bits of three channels side by side: the first values of both enums. */
static bool recipe_is_picture(const struct recv_recipe *recipe)
{
    return recipe->type == 0 && recipe->layout == 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* A packet that has one frame of so many bytes in it. */
static size_t packet_bytes(const struct recv_run *r, size_t frame)
{
    size_t most = frame + (r->opt.trailer == TRAILER_NONE ? 0 : MAX_TRAILER);

    return most < ENDPOINT_MAX_FRAME ? most : ENDPOINT_MAX_FRAME;
}

/* All of --format and --size, or nothing: then metadata tell the layout. */
static int check_layout(struct recv_run *r)
{
    const struct recv_options *o = &r->opt;
    struct clb_image *image = &r->setup.geometry.image;
    const char *format;
    size_t frame;
    int rc;

    if ((o->format >= 0) != (o->size.width > 0))
        return args_usage("recv", stderr, "--format and --size belong together: %s is missing",
                          o->format >= 0 ? "--size" : "--format");
    if (o->format < 0)
        return o->pitch ? args_usage("recv", stderr, "--pitch needs --format and --size") : 0;
    format = clb_pixfmt_name((enum clb_pixfmt)(o->format + 1));
    rc = pattern_layout(image, (enum clb_pixfmt)(o->format + 1), o->size.width, o->size.height,
                        (size_t)o->pitch);
    if (rc == CLB_ERR_INVAL)
        return args_usage("recv", stderr, "--pitch %llu is less than a row of %s at width %u",
                          (unsigned long long)o->pitch, format, o->size.width);
    if (rc < 0)
        return args_usage("recv", stderr, "--format %s --size %ux%u: %s", format, o->size.width,
                          o->size.height, clb_error_str(rc));
    frame = pattern_frame_bytes(image);
    if (frame > ENDPOINT_MAX_FRAME)
        return args_usage("recv", stderr,
                          "a frame of %zu bytes is more than a packet can have: %zu", frame,
                          ENDPOINT_MAX_FRAME);
    r->endpoint.frame_bytes = packet_bytes(r, frame);
    r->setup.has_image = true;
    return 0;
}

/* Where rows and planes are to lie: as they come, unless --pitch-align is given. */
static int check_placing(struct recv_run *r)
{
    const struct recv_options *o = &r->opt;
    const struct clb_image *image = &r->setup.geometry.image;
    int rc;

    r->setup.here = *image;
    if (!o->pitch_align)
        return 0;
    if (o->pitch_align & (o->pitch_align - 1))
        return args_usage("recv", stderr, "--pitch-align wants a power of two, got %llu",
                          (unsigned long long)o->pitch_align);
    r->setup.geometry.pitch_align = (size_t)o->pitch_align;
    if (!r->setup.has_image)
        return 0;
    rc = clb_image_init(&r->setup.here, image->fmt, image->width, image->height,
                        (size_t)o->pitch_align, 0);
    return rc < 0 ? args_usage("recv", stderr, "--pitch-align %llu: %s",
                               (unsigned long long)o->pitch_align, clb_error_str(rc))
                  : 0;
}

/* Options that are of no use to a frame whose layout nobody tells. */
static int check_layout_is_told(const struct recv_run *r)
{
    const struct recv_options *o = &r->opt;
    const char *what = o->verify == VERIFY_BARS                       ? "--verify bars"
                       : o->preprocess                                ? "--preprocess"
                       : o->pitch_align                               ? "--pitch-align"
                       : o->save >= 0 && o->save + 1 != (int)SAVE_RAW ? "--save of pictures"
                                                                      : NULL;

    if (!what || r->setup.has_image || o->trailer != TRAILER_NONE)
        return 0;
    return args_usage("recv", stderr, "%s needs --format and --size, or metadata that tell them",
                      what);
}

static int check_save(const struct recv_run *r)
{
    const struct recv_options *o = &r->opt;

    if (o->out && o->save < 0)
        return args_usage("recv", stderr, "--out needs --save");
    if (o->every && o->save < 0)
        return args_usage("recv", stderr, "--every needs --save");
    if (o->save < 0)
        return 0;
    if (!o->out)
        return args_usage("recv", stderr, "--save needs --out");
    return 0;
}

static int check_options(struct recv_run *r)
{
    const struct recv_options *o = &r->opt;

    if (!o->uri == !o->listen)
        return args_usage("recv", stderr, "give one of URI and --listen URI");
    if (o->stream && strlen(o->stream) > 51)
        return args_usage("recv", stderr, "--stream wants at most 51 bytes, got %zu",
                          strlen(o->stream));
    if (o->reconnect_max && !o->reconnect)
        return args_usage("recv", stderr, "--reconnect-max needs --reconnect");
    if (check_layout(r) || check_placing(r) || check_save(r) || check_layout_is_told(r))
        return EXIT_USAGE;
    if (o->verify == VERIFY_BARS && r->setup.has_image &&
        !pattern_draws(r->setup.geometry.image.fmt))
        return args_usage("recv", stderr,
                          "bars come as nv12, rgb24, bgr24 or gray8, so --verify bars cannot be "
                          "with --format %s",
                          clb_pixfmt_name(r->setup.geometry.image.fmt));
    if (o->memory == MEMORY_HOST && o->device)
        return args_usage("recv", stderr, "--device makes no sense with --memory host");
    if (!o->preprocess)
        return 0;
    if (parse_recipe(o->preprocess, &r->setup.recipe))
        return args_usage(
            "recv", stderr,
            "--preprocess wants "
            "WxH[,letterbox|stretch|cover][,f32|f16|u8][,nchw|nhwc][,rgb|bgr], got '%.80s'",
            o->preprocess);
    if (o->memory == MEMORY_HOST)
        return args_usage("recv", stderr, "--preprocess makes no sense with --memory host");
    if (o->save + 1 == (int)SAVE_PNG && !recipe_is_picture(&r->setup.recipe))
        return args_usage("recv", stderr,
                          "--save png shows --preprocess of u8 and nhwc alone; use --save npy");
    return 0;
}

/* What the options promise for a later version. */
static int check_version(struct recv_run *r, const char *memory)
{
    const struct recv_options *o = &r->opt;

    if (o->memory > MEMORY_ALLOC_HOST)
        return report_fail(&r->report, CLB_ERR_NOSYS, "--memory",
                           "%s is not supported in this version; use auto, alloc-host or host",
                           memory);
    if (o->save + 1 == SAVE_Y4M)
        return report_fail(&r->report, CLB_ERR_NOSYS, "--save",
                           "y4m is not supported in this version; use png, npy or raw");
    return 0;
}

static void set_up(struct recv_run *r, const char *memory)
{
    const struct recv_options *o = &r->opt;

    r->setup.requested = memory;
    r->setup.select = o->device;
    r->setup.verbose = o->verbose;
    r->setup.report = &r->report;
    r->ops = o->memory == MEMORY_HOST ? &recv_host_ops : &recv_cl_ops;
    r->out.save = (enum recv_save)(o->save + 1);
    r->setup.save_tensor = r->out.save == SAVE_NPY;
    r->out.dir = o->out;
    r->out.every = o->every ? o->every : 1;
    r->endpoint.uri = o->listen ? o->listen : o->uri;
    r->endpoint.listen = o->listen != NULL;
    r->endpoint.timeout_ns = o->timeout_ns;
    r->endpoint.idle_timeout_ns = o->idle_timeout_ns;
    r->endpoint.first_open_ns = FIRST_OPEN_NS;
    r->endpoint.verbose = o->verbose;
    verify_init(&r->verify, (enum verify_mode)o->verify, o->seed);
}

int command_recv(int argc, char **argv)
{
    static struct recv_run r; /* large: the histogram of latencies */
    char memory[16];
    int rc;

    r.opt.format = r.opt.save = -1;
    r.opt.seed = 1;
    r.opt.timeout_ns = INT64_C(5000) * NS_PER_MS;
    switch (args_parse(&spec, argc, argv, &r.opt, stdout, stderr)) {
    case ARG_HELP: return EXIT_OK;
    case ARG_BAD: return EXIT_USAGE;
    case ARG_OK: break;
    }
    if (check_options(&r))
        return EXIT_USAGE;
    report_init(&r.report, "recv", r.opt.json);
    args_choice(RECV_MEMORIES, r.opt.memory, memory, sizeof memory);
    set_up(&r, memory);
    rc = check_version(&r, memory);
    if (!rc)
        rc = recv_run(&r);
    r.ops->close(r.backend);
    verify_free(&r.verify);
    report_end(&r.report);
    return rc;
}
