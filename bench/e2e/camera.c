/* SPDX-License-Identifier: Apache-2.0 */
/* What taking packets apart costs: against the same packets received as they come. */
#include <stddef.h>
#include <stdio.h>

#include "links.h"
#include "receive.h"

#define WARM 100
#define MAX_PAIRS 64
#define FIELD(f) offsetof(struct sample, f)

/* Pairs of streams opened in two ways, for the same packets. */
static void compare(const struct options *o, const char *name, const char *variant,
                    const clb_stream_params *as, const clb_stream_params *plain,
                    enum feed_kind kind, uint32_t frame, double target)
{
    struct sample ours[MAX_PAIRS], base[MAX_PAIRS];
    const int frames = (int)((o->quick ? 0.6e9 : 2.5e9) / frame);
    for (int i = 0; i < o->pairs; i++) {
        if (i % 2) {
            base[i] = links_receive_as(NULL, plain, kind, frame, WARM, frames);
        }
        ours[i] = links_receive_as(NULL, as, kind, frame, WARM, frames);
        if (i % 2 == 0) {
            base[i] = links_receive_as(NULL, plain, kind, frame, WARM, frames);
        }
    }
    struct result r = {.name = name, .variant = variant, .unit = "s/GB"};
    r.metric = "cpu_io";
    r.target = target;
    report_pairs(o, r, ours, base, (size_t)o->pairs, FIELD(thread_cpu));
    r.metric = "cpu_process";
    report_pairs(o, r, ours, base, (size_t)o->pairs, FIELD(process_cpu));
    r.metric = "copied";
    r.unit = "bytes";
    r.target = 0;
    report_pairs(o, r, ours, NULL, (size_t)o->pairs, FIELD(copied));
}

void case_trailer(const struct options *o)
{
    uint8_t trailer[FEED_TRAILER_MAX];
    const uint32_t height = 1024, pixels = FEED_WIDTH * height;
    const uint32_t frame = pixels + (uint32_t)feed_trailer(trailer, FEED_WIDTH, height);
    clb_stream_params plain = {.struct_size = sizeof plain};
    clb_stream_params as = {.struct_size = sizeof as, .trailer = CLB_TRAILER_DEPTHAI};
    compare(o, "trailer", "2 MiB and metadata", &as, &plain, FEED_CAMERA, frame, 1.10);
}

void case_repitch(const struct options *o)
{
    clb_stream_params plain = {.struct_size = sizeof plain};
    clb_stream_params as = {.struct_size = sizeof as, .dst_pitch_align = 256};
    must(clb_image_init(&as.image, CLB_PIXFMT_BGR24, 1920, 1080, 0, 0), NULL, "image");
    compare(o, "repitch", "1080p BGR, 5760 to 5888", &as, &plain, FEED_WIRE, 1920 * 1080 * 3, 1.3);
}
