/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/preprocess.h: from camera bytes to a tensor, in one kernel that reads the frame's
 * buffer.
 *
 * A clb_preprocess is a recipe, compiled once; clb_preprocess_run() applies it to a frame and
 * writes a buffer of the application's. The steps, in this order, fused:
 *
 *   crop -> rotate -> flip -> fit to width x height -> colour -> (x * scale - mean) / dev -> type
 *
 * COLOUR. With Y, U, V as stored and k = Kr, Kg, Kb of the matrix
 *
 *   limited   y = (Y - 16) / 219, u = (U - 128) / 224, v = (V - 128) / 224
 *   full      y = Y / 255,        u = (U - 128) / 255, v = (V - 128) / 255
 *   R = y + 2 (1 - Kr) v
 *   B = y + 2 (1 - Kb) u
 *   G = (y - Kr R - Kb B) / Kg = y - 2 Kb (1 - Kb) / Kg u - 2 Kr (1 - Kr) / Kg v
 *
 *   601: Kr 0.299,  Kb 0.114   the luma coefficients of ITU-R BT.601
 *   709: Kr 0.2126, Kb 0.0722  those of ITU-R BT.709; the ranges of 8-bit samples are those of both
 *
 * times 255, rounded to nearest and clamped to 0..255. A chroma sample serves the 2x2 pixels of its
 * cell as it is (replicated, no interpolation; no chroma position is assumed). Odd sizes are fine:
 * the last column and row have chroma samples of their own. u8 results are within 1 of these
 * formulas in double precision.
 *
 * THIS VERSION has same size in and out, no crop, rotation, flip or normalisation, u8, NHWC, order
 * RGB or BGR, from NV12, RGB24, BGR24 and GRAY8. Everything else answers CLB_ERR_NOSYS.
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
    uint32_t width;              /* of the output, pixels; 0 = of the (cropped, rotated) source */
    uint32_t height;             /* likewise */
    enum clb_preprocess_fit fit; /* 0 = CLB_FIT_STRETCH */
    enum clb_preprocess_filter filter; /* 0 = CLB_FILTER_BILINEAR */
    enum clb_preprocess_order order;   /* 0 = CLB_ORDER_RGB */
    enum clb_preprocess_layout layout; /* 0 = CLB_LAYOUT_NHWC */
    enum clb_preprocess_type type;     /* 0 = CLB_TYPE_U8 */
    enum clb_matrix matrix;            /* 0 = the image's, whose 0 is 601 */
    enum clb_range range;              /* 0 = the image's, whose 0 is limited */
    float scale[4];                    /* by output channel; 0 = 1 */
    float mean[4];                     /* by output channel, taken off after scale; 0 = nothing */
    float dev[4];                      /* by output channel; 0 = 1 */
    float pad[4]; /* by output channel, on the scale 0..255 before `scale`; 0 = black */
    enum clb_preprocess_flip flip;     /* 0 = none */
    enum clb_preprocess_rotate rotate; /* 0 = none */
} clb_preprocess_params;
#ifndef __cplusplus
#define clb_preprocess_params(...)                                                                 \
    (&(const clb_preprocess_params){.struct_size = sizeof(clb_preprocess_params), __VA_ARGS__})
#endif

/**
 * What is drawn where. A point (x, y) of the cropped, rotated and flipped source lies at
 * (left + x * scale_x, top + y * scale_y) of the output.
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
 * does not depend on the picture is checked here.
 * @owner *out by the caller; it may outlive the device's handle. params NULL = all defaults;
 * copied.
 * @thread any. @blocks while the runtime compiles: up to a second or more without its cache.
 * @return CLB_OK; INVAL (contradictory layout or parameter), TOOBIG (sizes overflow), NOSYS (not in
 *         this version), TIMEOUT (the first run did not end within 30 s), NOMEM, CL.
 */
CLB_API CLB_NODISCARD int clb_preprocess_create(clb_preprocess **out, clb_cl_device *dev,
                                                const clb_preprocess_params *params);

/**
 * Applies the recipe: enqueues one kernel that waits on the frame's `ready`, records it with
 * clb_cl_frame_used(), and flushes the queue, so that the kernel runs and the frame comes home
 * without a further call. The frame may be unreferenced at once. Everything is checked before
 * anything is enqueued: layout against the frame's size, and the bytes written against the size of
 * the tensor (asked from the runtime each time: it keeps that number).
 * @owner *done (NULL = not wanted) is an event of the caller's, for clReleaseEvent(). queue, frame
 *        and tensor are borrowed until it is complete (the runtime keeps queue and tensor itself).
 * @thread any; runs of one recipe take turns while enqueuing. @blocks no.
 * @return CLB_OK; INVAL (NULL, unknown or contradictory image, tensor is no memory object or the
 *         frame itself), TOOBIG (image does not fit the frame, result does not fit the tensor),
 *         NOSYS (the frame's format), CL. When the use could not be recorded, the call waits for
 *         the kernel (2 s at most) and the frame's buffer is replaced: it is never written under
 *         it.
 */
CLB_API int clb_preprocess_run(clb_preprocess *pp, cl_command_queue queue, clb_cl_frame *frame,
                               cl_mem tensor, size_t byte_offset, cl_event *done);

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
