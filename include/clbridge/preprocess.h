/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/preprocess.h: from camera bytes to a tensor, in one kernel that reads the frame's
 * buffer.
 *
 * A clb_preprocess is a recipe, compiled once; clb_preprocess_run() applies it to a frame and
 * writes a buffer of the application's. The steps, in this order, fused:
 *
 *   to RGB -> crop -> rotate -> flip -> fit to width x height -> order -> (x * scale - mean) / dev
 *   -> type
 *
 * VALUES. Every pixel of the source becomes R, G, B on the scale 0..255, clamped to it and not
 * rounded, before anything is filtered:
 *
 *   8-bit RGB, GRAY8    as they are; grey has R = G = B; A is ignored
 *   GRAY16              v / 257
 *   RAW8, 10, 12, 16    v * 255 / (2^bits - 1), clamped, then demosaiced (below)
 *   RGBPF32             as they are, on the scale 0..255, and clamped to it as all are (a NaN gives
 *                       a NaN, or 0 in u8)
 *   YUV                 with Y, U, V as stored and Kr, Kg, Kb of the matrix
 *
 *     limited   y = (Y - 16) / 219, u = (U - 128) / 224, v = (V - 128) / 224
 *     full      y = Y / 255,        u = (U - 128) / 255, v = (V - 128) / 255
 *     R = y + 2 (1 - Kr) v
 *     B = y + 2 (1 - Kb) u
 *     G = (y - Kr R - Kb B) / Kg = y - 2 Kb (1 - Kb) / Kg u - 2 Kr (1 - Kr) / Kg v
 *
 *     601: Kr 0.299,  Kb 0.114   the luma coefficients of ITU-R BT.601
 *     709: Kr 0.2126, Kb 0.0722  those of ITU-R BT.709; the ranges of 8-bit samples are those of both
 *
 *   times 255, each clamped to 0..255. A chroma sample serves the pixels of its cell as it is
 *   (replicated, no interpolation; no chroma position is assumed): 2x2 pixels of the 4:2:0 formats,
 *   2x1 of YUYV and UYVY.
 *
 * Order GRAY is luma: of YUV sources y * 255 clamped to 0..255, of grey ones the value itself, else
 * Kr R + Kg G + Kb B.
 *
 * SIZES. Every format may have any size from 1x1 on, odd ones too: the last column and row then have
 * chroma samples of their own. RAW needs 2x2, the cell of its mosaic, and `bayer`.
 *
 * DEMOSAIC is bilinear: at a pixel whose own colour is another one, R and B are the mean of the 2
 * neighbours in the row, of the 2 in the column, or of the 4 diagonal ones, whichever have that
 * colour, G that of the 4 neighbours beside it. Behind a border of the picture its pixels are
 * mirrored at the border pixel's centre (-1 is 1, n is n - 2), which keeps the mosaic. The whole
 * picture is demosaiced, the crop cuts from the result.
 *
 * FILTERS. Output pixel i of the n that the picture fills along one direction is centred at source
 * position s = start + (i + 0.5) * length / n, where start and length are the seen part of the
 * source (`source` of the geometry), pixel k covering k..k + 1; rotation and flips turn the direction.
 *
 *   BILINEAR  weights between the pixels with the centres around s: p = s - 0.5, k = floor(p), pixel
 *             k by 1 - (p - k), k + 1 by p - k
 *   NEAREST   the pixel floor(s); where rounding decides, either of two
 *   AREA      the mean over start + i * length / n .. start + (i + 1) * length / n, pixels that are
 *             covered in part by that part
 *
 * Pixels that are not touched by the seen part of the source are not used: the nearest one that is
 * takes their place. So a crop in whole pixels is the same as a picture of that size. Both directions
 * are independent. Positions and weights are computed in double precision on the host, for every
 * column and row of the output; results do not depend on the runtime.
 *
 * FIT. With w x h the size of the cropped and rotated source:
 *
 *   LETTERBOX gain = min(width / w, height / h); inner_width = round(w * gain), inner_height =
 *             round(h * gain), at least 1; of the gap = width - inner_width on the left
 *             round(gap / 2 - 0.1), on the right the rest; likewise top and bottom. round() is to
 *             nearest, halves away from zero. The whole source fills exactly the inner rectangle, so
 *             that scale_x = inner_width / w, which rounding may make differ from scale_y.
 *   COVER     gain = max(width / w, height / h); a part of width / gain x height / gain in the middle
 *             of the source is seen.
 *
 * DEPTH. With `depth`, a GRAY16 source is a measure and no picture: values as they are (metres with a
 * scale of 0.001 from millimetres), order GRAY, type f16 or f32. Pixels of value `depth_none` have
 * none and take no part in filters: the weights of the others are brought to a sum of 1. Where none
 * is left, or only pixels of weight 0, the output is `depth_invalid`, whatever scale, mean and dev
 * say.
 *
 * ACCURACY. u8 is within 1 of these formulas in double precision, f32 within 1e-4 (on a scale where
 * 255 became 1), f16 as f32 rounded to nearest even.
 */
#ifndef CLBRIDGE_PREPROCESS_H
#define CLBRIDGE_PREPROCESS_H

#include <clbridge/cl.h>
#include <clbridge/common.h>
#include <clbridge/image.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clb_preprocess clb_preprocess;

/** How the (cropped) source comes into width x height. */
enum clb_preprocess_fit {
    CLB_FIT_STRETCH,   /* both directions on their own; the aspect ratio may change */
    CLB_FIT_LETTERBOX, /* all of the source, aspect ratio kept, the rest is `pad` */
    CLB_FIT_COVER,     /* all of the output, aspect ratio kept, the source's margins are cut */
};

enum clb_preprocess_filter {
    CLB_FILTER_BILINEAR, /* pixel centres at half-integers */
    CLB_FILTER_NEAREST,  /* the pixel whose area holds the centre */
    CLB_FILTER_AREA,     /* mean over the source area; for reductions */
};

/** Output channels. A grey source fills all of them with its value. */
enum clb_preprocess_order { CLB_ORDER_RGB, CLB_ORDER_BGR, CLB_ORDER_GRAY };

enum clb_preprocess_layout {
    CLB_LAYOUT_NHWC, /* row by row, the channels of a pixel together */
    CLB_LAYOUT_NCHW, /* channel by channel */
};

enum clb_preprocess_type {
    CLB_TYPE_U8,  /* rounded to nearest, clamped to 0..255 */
    CLB_TYPE_F16, /* IEEE 754 binary16 */
    CLB_TYPE_F32, /* IEEE 754 binary32 */
};

enum clb_preprocess_flip {
    CLB_FLIP_NONE,       /* as it is */
    CLB_FLIP_HORIZONTAL, /* left and right change places */
    CLB_FLIP_VERTICAL,   /* top and bottom change places */
    CLB_FLIP_BOTH,       /* both */
};

/** Clockwise. */
enum clb_preprocess_rotate { CLB_ROTATE_0, CLB_ROTATE_90, CLB_ROTATE_180, CLB_ROTATE_270 };

/** Part of a picture in pixels, fractions allowed: pixel (0, 0) covers 0..1 in both directions. */
struct clb_preprocess_rect {
    double x; /* left edge */
    double y; /* top edge */
    double w; /* width */
    double h; /* height */
};

typedef struct clb_preprocess_params {
    size_t struct_size;              /* sizeof of this struct; 0 = its first version */
    const struct clb_image *src;     /* what the frames look like, copied; NULL = each frame's own
                                    image */
    struct clb_preprocess_rect crop; /* of the source; all 0 = the whole */
    uint32_t width;  /* of the output, pixels; 0 = of the cropped and rotated source, rounded, at
                        least 1 */
    uint32_t height; /* likewise */
    enum clb_preprocess_fit fit;       /* 0 = CLB_FIT_STRETCH */
    enum clb_preprocess_filter filter; /* 0 = CLB_FILTER_BILINEAR */
    enum clb_preprocess_order order;   /* 0 = CLB_ORDER_RGB */
    enum clb_preprocess_layout layout; /* 0 = CLB_LAYOUT_NHWC */
    enum clb_preprocess_type type;     /* 0 = CLB_TYPE_U8 */
    enum clb_matrix matrix;            /* 0 = the image's, whose 0 is 601 */
    enum clb_range range;              /* 0 = the image's, whose 0 is limited */
    float scale[4];                    /* by output channel; 0 = 1 */
    float mean[4];                     /* by output channel, taken off after scale; 0 = nothing */
    float dev[4];                      /* by output channel; 0 = 1 */
    float pad[4]; /* by output channel, before `scale`: 0..255, with `depth` the source's own scale;
                     0 = black */
    enum clb_preprocess_flip flip;     /* after rotation; 0 = none */
    enum clb_preprocess_rotate rotate; /* 0 = none */
    uint32_t batch;                    /* most frames of one clb_preprocess_run_batch(), up to
                       CLB_PREPROCESS_MAX_BATCH; 0 = 1 */
    int depth;                         /* 1 = GRAY16 is a measure, see above; 0 = a picture */
    uint32_t depth_none;               /* the source's value for "nothing measured", 0..65535; 0 */
    float depth_invalid;               /* written where nothing was measured; 0 */
} clb_preprocess_params;

/** Frames of one enqueue. */
#define CLB_PREPROCESS_MAX_BATCH 16
#ifndef __cplusplus
#define clb_preprocess_params(...)                                                                 \
    (&(const clb_preprocess_params){.struct_size = sizeof(clb_preprocess_params), __VA_ARGS__})
#endif

/**
 * What is drawn where. A point (x, y) of the part of the source that is seen, rotated and flipped,
 * lies at (left + x * scale_x, top + y * scale_y) of the output.
 */
typedef struct clb_preprocess_geometry {
    uint32_t width;                    /* of the output, pixels */
    uint32_t height;                   /* likewise */
    uint32_t channels;                 /* of the output */
    size_t bytes;                      /* of the tensor, without byte_offset */
    uint32_t left;                     /* padding, pixels; width = left + inner_width + right */
    uint32_t top;                      /* likewise; height = top + inner_height + bottom */
    uint32_t right;                    /* likewise */
    uint32_t bottom;                   /* likewise */
    uint32_t inner_width;              /* of the picture inside of the padding, pixels */
    uint32_t inner_height;             /* likewise */
    double scale_x;                    /* output pixels per source pixel */
    double scale_y;                    /* likewise */
    struct clb_preprocess_rect source; /* the part of the source that is seen, before rotation */
} clb_preprocess_geometry;

/**
 * Compiles a recipe and warms it up with the work-group size that runs use. With src NULL only what
 * does not depend on the picture is checked here, and compiling waits for the first frame.
 * @owner *out by the caller; it may outlive the device's handle. params NULL = all defaults;
 * copied.
 * @thread any. @blocks while the runtime compiles: up to a second or more when neither it nor the
 *         device's cache_dir has the kernel.
 * @return CLB_OK; INVAL (contradictory layout or parameter), TOOBIG (sizes overflow), NOSYS (a format
 *         of a later version), TIMEOUT (the first run did not end within 30 s), NOMEM, CL.
 */
CLB_API CLB_NODISCARD int clb_preprocess_create(clb_preprocess **out, clb_cl_device *dev,
                                                const clb_preprocess_params *params);

/**
 * Applies the recipe: enqueues one kernel that waits on the frame's `ready`, records it with
 * clb_cl_frame_used(), and flushes the queue, so that the kernel runs and the frame comes home
 * without a further call. The frame may be unreferenced at once. Everything is checked before
 * anything is enqueued: layout against the frame's size, and the bytes written against the size of
 * the tensor (asked from the runtime each time: it keeps that number). byte_offset, of the tensor's
 * first byte, is a multiple of the type's size.
 * @owner *done (NULL = not wanted) is an event of the caller's, for clReleaseEvent(). queue, frame
 *        and tensor are borrowed until it is complete (the runtime keeps queue and tensor itself).
 * @thread any; runs of one recipe take turns while enqueuing. @blocks no; without src, as create, for
 *         a frame of another layout than those before: the last 4 are kept.
 * @return CLB_OK; INVAL (NULL, unknown or contradictory image, tensor is no memory object or the
 *         frame itself, byte_offset misaligned), TOOBIG (image does not fit the frame, result does
 *         not fit the tensor), NOSYS (the frame's format), CL; without src also what create returns.
 *         When the use could not be recorded, the call waits for the kernel (2 s at most) and the
 *         frame's buffer is replaced: it is never written under it.
 */
CLB_API int clb_preprocess_run(clb_preprocess *pp, cl_command_queue queue, clb_cl_frame *frame,
                               cl_mem tensor, size_t byte_offset, cl_event *done);

/**
 * Applies the recipe to n frames of one layout with one kernel: result k starts at byte_offset +
 * k * stride of the tensor. All else is as for clb_preprocess_run(), for every frame.
 * @owner as clb_preprocess_run(); frames is borrowed during the call.
 * @thread any; runs of one recipe take turns while enqueuing. @blocks as clb_preprocess_run().
 * @param n 1..batch of the params.
 * @param stride bytes from one result to the next, a multiple of the type's size and at least `bytes`
 *        of the geometry; 0 = that, so that the results are one NCHW or NHWC tensor of N = n.
 * @return as clb_preprocess_run(); INVAL also for n out of range, the same frame twice, or frames of
 *         different layouts.
 */
CLB_API int clb_preprocess_run_batch(clb_preprocess *pp, cl_command_queue queue,
                                     clb_cl_frame *const *frames, cl_uint n, cl_mem tensor,
                                     size_t byte_offset, size_t stride, cl_event *done);

/**
 * What a run draws for a source of this layout. src NULL = that of the params. At most `size` bytes
 * of *out are filled.
 * @owner out by the caller. @thread any. @blocks no.
 * @return CLB_OK; INVAL (also: src NULL and none in the params), TOOBIG, NOSYS.
 */
CLB_API CLB_NODISCARD int clb_preprocess_get_geometry(const clb_preprocess *pp,
                                                      const struct clb_image *src,
                                                      clb_preprocess_geometry *out, size_t size);

/**
 * Ends a recipe. Kernels that were enqueued run to their end.
 * @owner *pp is consumed. @thread any; the caller guarantees that no run of it is inside.
 * @blocks no.
 */
CLB_API void clb_preprocess_destroy(clb_preprocess **pp);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_PREPROCESS_H */
