/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From camera bytes to a tensor: one work-item is one pixel of the output. The rules are those of
 * clbridge/preprocess.h. Build options choose the variant:
 *
 *   FORMAT      one of the SOURCE_ numbers below
 *   TAPS        source pixels per direction: 1 nearest, 2 bilinear, 0 any number (area)
 *   TURNED      1: the columns of the output run along the source's y
 *   CHANNELS    of the output: 3, or 1 for luma
 *   BGR         1: the output's first channel is B
 *   PLANAR      1: NCHW, 0: NHWC
 *   TYPE        8, 16 or 32 bits
 *   PADDED      1: there is a border of `pad`
 *   RAGGED      1: the output's width is no multiple of the work-group's
 *   FRAMES      sources of one launch; the frame is dimension 2
 *   CHROMA_PAIR 1: chroma pairs lie at even addresses, one load each
 *   VU          1: V before U in a pair
 *   STEP        bytes of a packed pixel
 *   RED_AT      R's byte in it, 0 or 2; B has the other
 *
 * CPU compilers vectorise over x what stands in the kernel's own body, not what stands in functions
 * that take pointers, and no loads under a condition. So all of it is macros, every load is made,
 * also for pixels of the border and behind the last column (the tables have valid entries there),
 * and conditions choose values and guard stores only.
 *
 * Offsets and pitches are bytes in 64 bits from the start of the buffer; never sub-buffers, whose
 * origin has to be aligned and which some runtimes get wrong.
 */
#define SOURCE_GRAY8 1
#define SOURCE_GRAY16 2
#define SOURCE_SEMI 3   /* NV12, NV21 */
#define SOURCE_PLANAR 4 /* I420, YV12 */
#define SOURCE_YUYV 5
#define SOURCE_UYVY 6
#define SOURCE_PACKED 7 /* RGB24, BGR24, RGBA, BGRA */
#define SOURCE_PLANES 8 /* RGBP, BGRP */
#define SOURCE_FLOATS 9 /* RGBPF32 */
#define SOURCE_RAW8 10
#define SOURCE_RAW16 11 /* RAW10, RAW12, RAW16 */
#define SOURCE_RAW10P 12
#define SOURCE_DEPTH 13

#define BAYER (FORMAT == SOURCE_RAW8 || FORMAT == SOURCE_RAW16 || FORMAT == SOURCE_RAW10P)
#define YUV (FORMAT >= SOURCE_SEMI && FORMAT <= SOURCE_UYVY)

typedef __global const uchar *restrict bytes;

/* ---- one source pixel ------------------------------------------------------------------------ */

#define AT(p, x, y) (offset.s##p + pitch.s##p * (ulong)(y) + (ulong)(x))
#define U8(p, x, y) ((float)src[AT(p, x, y)])
#define U16(p, x, y) ((float)*(__global const ushort *)(src + AT(p, (x)*2, y)))

/* A NaN of the source stays one (or becomes 0 in u8): only formats without are told to the compiler
 * as finite. */
#define LIMIT(v) ((v) < 0.0f ? 0.0f : (v) > 255.0f ? 255.0f : (v))

/* PIXEL(x, y, w) adds w times the pixel to the sums r, g, b; with one channel, luma to r. */
#if YUV
#if CHANNELS == 1
#define ADD_YUV(w, luma, u, v) r += (w)*LIMIT((luma)*ky + y_add)
#else
#define ADD_YUV(w, luma, u, v)                                                                     \
    do {                                                                                           \
        const float y_ = (luma)*ky, u_ = (u), v_ = (v);                                            \
        const float r_ = y_ + v_ * kvr + r_add;                                                    \
        const float g_ = y_ + u_ * kug + v_ * kvg + g_add;                                         \
        const float b_ = y_ + u_ * kub + b_add;                                                    \
        r += (w)*LIMIT(r_);                                                                        \
        g += (w)*LIMIT(g_);                                                                        \
        b += (w)*LIMIT(b_);                                                                        \
    } while (0)
#endif
#endif

#if CHANNELS == 1
#define ADD_GRAY(w, v) r += (w) * (v)
#define ADD_RGB(w, vr, vg, vb) r += (w) * ((vr)*luma_r + (vg)*luma_g + (vb)*luma_b)
#else
#define ADD_GRAY(w, v)                                                                             \
    do {                                                                                           \
        const float v_ = (w) * (v);                                                                \
        r += v_;                                                                                   \
        g += v_;                                                                                   \
        b += v_;                                                                                   \
    } while (0)
#define ADD_RGB(w, vr, vg, vb)                                                                     \
    do {                                                                                           \
        r += (w) * (vr);                                                                           \
        g += (w) * (vg);                                                                           \
        b += (w) * (vb);                                                                           \
    } while (0)
#endif

#if FORMAT == SOURCE_GRAY8
#define PIXEL(x, y, w) ADD_GRAY(w, U8(0, x, y))
#elif FORMAT == SOURCE_GRAY16
#define PIXEL(x, y, w) ADD_GRAY(w, U16(0, x, y) * (1.0f / 257.0f))
#elif FORMAT == SOURCE_SEMI && CHROMA_PAIR
#define PIXEL(x, y, w)                                                                             \
    do {                                                                                           \
        const uint c_ = *(__global const ushort *)(src + AT(1, (x) & ~1, (y) >> 1));               \
        ADD_YUV(w, U8(0, x, y), (float)(VU ? c_ >> 8 : c_ & 255),                                  \
                (float)(VU ? c_ & 255 : c_ >> 8));                                                 \
    } while (0)
#elif FORMAT == SOURCE_SEMI
#define PIXEL(x, y, w)                                                                             \
    ADD_YUV(w, U8(0, x, y), U8(1, ((x) & ~1) + VU, (y) >> 1), U8(1, ((x) | 1) - VU, (y) >> 1))
#elif FORMAT == SOURCE_PLANAR
#define PIXEL(x, y, w) ADD_YUV(w, U8(0, x, y), U8(1, (x) >> 1, (y) >> 1), U8(2, (x) >> 1, (y) >> 1))
#elif FORMAT == SOURCE_YUYV
#define PIXEL(x, y, w)                                                                             \
    ADD_YUV(w, U8(0, (x)*2, y), U8(0, ((x) >> 1) * 4 + 1, y), U8(0, ((x) >> 1) * 4 + 3, y))
#elif FORMAT == SOURCE_UYVY
#define PIXEL(x, y, w)                                                                             \
    ADD_YUV(w, U8(0, (x)*2 + 1, y), U8(0, ((x) >> 1) * 4, y), U8(0, ((x) >> 1) * 4 + 2, y))
#elif FORMAT == SOURCE_PACKED
#define PIXEL(x, y, w)                                                                             \
    ADD_RGB(w, U8(0, (x)*STEP + RED_AT, y), U8(0, (x)*STEP + 1, y), U8(0, (x)*STEP + 2 - RED_AT, y))
#elif FORMAT == SOURCE_PLANES
#define PIXEL(x, y, w) ADD_RGB(w, U8(0, x, y), U8(1, x, y), U8(2, x, y))
#elif FORMAT == SOURCE_FLOATS
#define F32(p, x, y) (*(__global const float *)(src + AT(p, (x)*4, y)))
#define PIXEL(x, y, w)                                                                             \
    do {                                                                                           \
        const float r_ = F32(0, x, y), g_ = F32(1, x, y), b_ = F32(2, x, y);                       \
        ADD_RGB(w, LIMIT(r_), LIMIT(g_), LIMIT(b_));                                               \
    } while (0)
#elif FORMAT == SOURCE_DEPTH
/* r: sum of what was measured, g: its weight. */
#define PIXEL(x, y, w)                                                                             \
    do {                                                                                           \
        const float v_ = U16(0, x, y);                                                             \
        const float w_ = v_ == depth_none ? 0.0f : (w);                                            \
        r += w_ * v_;                                                                              \
        g += w_;                                                                                   \
    } while (0)
#endif

/* ---- one position of a mosaic ---------------------------------------------------------------- */

/*
 * Bilinear demosaicing, then bilinear sampling between the pixels k, j and k + 1, j + 1. Linear
 * interpolation has its knots at whole pixels, so R and B come from the 2x2 nearest samples of their
 * own colour directly. G has its samples on the diagonals of a 4x4 window from k - 1, j - 1: two of
 * the four pixels are G, the others the mean of the G beside them; of the eight in the window two
 * have no weight.
 */
#if BAYER
#if FORMAT == SOURCE_RAW8
#define RAW(x, y) U8(0, x, y)
#elif FORMAT == SOURCE_RAW16
#define RAW(x, y) fmin(U16(0, x, y), raw_max)
#else
#define RAW(x, y)                                                                                  \
    ((float)(((uint)src[AT(0, ((x) >> 2) * 5 + ((x)&3), y)] << 2) |                                \
             (((uint)src[AT(0, ((x) >> 2) * 5 + 4, y)] >> (((x)&3) * 2)) & 3)))
#endif

#define MIRROR(k, n) ((k) < 0 ? -(k) : (k) > (n)-1 ? max(2 * (n)-2 - (k), 0) : (k))

#define MOSAIC(k, j, wx, wy, w)                                                                    \
    do {                                                                                           \
        const int x0 = MIRROR((k)-1, src_width), x1 = (k);                                         \
        const int x2 = MIRROR((k) + 1, src_width), x3 = MIRROR((k) + 2, src_width);                \
        const int y0 = MIRROR((j)-1, src_height), y1 = (j);                                        \
        const int y2 = MIRROR((j) + 1, src_height), y3 = MIRROR((j) + 2, src_height);              \
        const bool rx = (((k) ^ red_x) & 1) == 0; /* column k has R */                             \
        const bool ry = (((j) ^ red_y) & 1) == 0; /* row j has R */                                \
        const bool gg = rx != ry;                 /* pixel k, j is G */                            \
        const float xr = rx ? 0.5f * (wx) : 0.5f + 0.5f * (wx);                                    \
        const float yr = ry ? 0.5f * (wy) : 0.5f + 0.5f * (wy);                                    \
        const float xb = rx ? 0.5f + 0.5f * (wx) : 0.5f * (wx);                                    \
        const float yb = ry ? 0.5f + 0.5f * (wy) : 0.5f * (wy);                                    \
        const int rl = rx ? x1 : x0, rh = rx ? x3 : x2;                                            \
        const int bl = rx ? x0 : x1, bh = rx ? x2 : x3;                                            \
        const int rt = ry ? y1 : y0, rd = ry ? y3 : y2;                                            \
        const int bt = ry ? y0 : y1, bd = ry ? y2 : y3;                                            \
        const float r_ = (RAW(rl, rt) * (1.0f - xr) + RAW(rh, rt) * xr) * (1.0f - yr) +            \
                         (RAW(rl, rd) * (1.0f - xr) + RAW(rh, rd) * xr) * yr;                      \
        const float b_ = (RAW(bl, bt) * (1.0f - xb) + RAW(bh, bt) * xb) * (1.0f - yb) +            \
                         (RAW(bl, bd) * (1.0f - xb) + RAW(bh, bd) * xb) * yb;                      \
        const float w00 = (1.0f - (wx)) * (1.0f - (wy)), w10 = (wx) * (1.0f - (wy));               \
        const float w01 = (1.0f - (wx)) * (wy), w11 = (wx) * (wy);                                 \
        /* The two pixels that are not G; what the G in the middle get of both. */                 \
        const float na = gg ? w10 : w00, nb = gg ? w01 : w11;                                      \
        const float both = 0.25f * (na + nb);                                                      \
        const float g_ = RAW(gg ? x2 : x1, y0) * (0.25f * na) +                                    \
                         RAW(gg ? x1 : x0, y1) * (gg ? w00 + both : 0.25f * na) +                  \
                         RAW(gg ? x3 : x2, y1) * (gg ? 0.25f * na : w10 + both) +                  \
                         RAW(gg ? x0 : x1, y2) * (gg ? 0.25f * nb : w01 + both) +                  \
                         RAW(gg ? x2 : x3, y2) * (gg ? w11 + both : 0.25f * nb) +                  \
                         RAW(gg ? x1 : x2, y3) * (0.25f * nb);                                     \
        ADD_RGB((w)*raw_scale, r_, g_, b_);                                                        \
    } while (0)
#endif

/* ---- one output value ------------------------------------------------------------------------ */

#if PLANAR
#define PLACE(channel) ((ulong)(channel)*width * height + (ulong)row * width + x)
#else
#define PLACE(channel) (((ulong)row * width + x) * CHANNELS + (channel))
#endif

#if TYPE == 8
/* Rounded to nearest and clamped, in integers: 1.5 * 2^23 + v has the integer in its low bits, and as
 * bits floats are ordered like integers. CPU compilers pair the conversions and comparisons of floats
 * across the channels of a pixel, and then vectorise nothing across pixels. */
#define ROUND_BASE 0x4b400000 /* the bits of 12582912.0f */
#define STORE(channel, value)                                                                      \
    do {                                                                                           \
        const float v_ = NUMBER(value);                                                            \
        to[PLACE(channel)] =                                                                       \
            (uchar)min(max(as_int(v_ + 12582912.0f), ROUND_BASE) - ROUND_BASE, 255);               \
    } while (0)
#define OUT uchar
#if FORMAT == SOURCE_FLOATS
#define NUMBER(v) fmax(v, 0.0f) /* 0 of a NaN */
#else
#define NUMBER(v) (v)
#endif
#elif TYPE == 16
#define STORE(channel, value) vstore_half_rte(value, PLACE(channel), to)
#define OUT half
#else
#define STORE(channel, value) to[PLACE(channel)] = (value)
#define OUT float
#endif

/* ---- the kernel ------------------------------------------------------------------------------ */

#define MORE_1
#define MORE_2 , bytes src1
#define MORE_4 MORE_2, bytes src2, bytes src3
#define MORE_8 MORE_4, bytes src4, bytes src5, bytes src6, bytes src7
#define MORE_16                                                                                    \
    MORE_8, bytes src8, bytes src9, bytes src10, bytes src11, bytes src12, bytes src13,            \
        bytes src14, bytes src15
#define PASTE(a, b) a##b
#define MORE(n) PASTE(MORE_, n)

/*
 * dst_first, dst_stride: in values, of the first result and from one to the next.
 * index, weight: for every tap of a column `columns` entries, then for every tap of a row `height`
 * ones. columns is the width rounded up to whole work-groups.
 * offset, pitch: of the source's planes. extent: the source's width and height.
 * border: left, top, and the first column and row behind the picture inside.
 * colour: see ADD_YUV, or the luma coefficients of R, G, B; raw: see MOSAIC, or the value of DEPTH
 * that is none and what is written there.
 * scale, add, pad: by output channel, scale and add bring a sum to the output's value.
 */
__kernel void resample(bytes src0, __global OUT *restrict dst, const ulong dst_first,
                       const ulong dst_stride, __global const int *restrict index,
                       __global const float *restrict weight, const uint taps_x, const uint taps_y,
                       const uint columns, const uint width, const uint height, const ulong4 offset,
                       const ulong4 pitch, const int2 extent, const uint4 border,
                       const float8 colour, const float4 raw, const int2 red, const float4 scale,
                       const float4 add, const float4 pad MORE(FRAMES))
{
    const uint x = (uint)get_global_id(0);
    const uint row = (uint)get_global_id(1);
    __global OUT *restrict to = dst + dst_first;
#if FRAMES == 1
    bytes src = src0;
#else
    const uint frame = (uint)get_global_id(2);
    bytes src = src0;
    to += dst_stride * frame;
    src = frame == 1 ? src1 : src;
#if FRAMES > 2
    src = frame == 2 ? src2 : src;
    src = frame == 3 ? src3 : src;
#endif
#if FRAMES > 4
    src = frame == 4 ? src4 : src;
    src = frame == 5 ? src5 : src;
    src = frame == 6 ? src6 : src;
    src = frame == 7 ? src7 : src;
#endif
#if FRAMES > 8
    src = frame == 8 ? src8 : src;
    src = frame == 9 ? src9 : src;
    src = frame == 10 ? src10 : src;
    src = frame == 11 ? src11 : src;
    src = frame == 12 ? src12 : src;
    src = frame == 13 ? src13 : src;
    src = frame == 14 ? src14 : src;
    src = frame == 15 ? src15 : src;
#endif
#endif
#if YUV
    const float ky = colour.s0, kvr = colour.s1, kug = colour.s2, kvg = colour.s3;
    const float kub = colour.s4, r_add = colour.s5, g_add = colour.s6, b_add = colour.s7;
    const float y_add = raw.s0;
#else
    const float luma_r = colour.s0, luma_g = colour.s1, luma_b = colour.s2;
#endif
#if BAYER
    const float raw_max = raw.s0, raw_scale = raw.s1;
    const int red_x = red.s0, red_y = red.s1, src_width = extent.s0, src_height = extent.s1;
#elif FORMAT == SOURCE_DEPTH
    const float depth_none = raw.s0, depth_invalid = raw.s1;
#endif
    __global const int *restrict index_y = index + (ulong)taps_x * columns + row;
    __global const float *restrict weight_y = weight + (ulong)taps_x * columns + row;

#if PADDED
    if (row < border.s1 || row >= border.s3) {
#if RAGGED
        if (x < width)
#endif
        {
#if CHANNELS == 3
            STORE(0, pad.s0);
            STORE(1, pad.s1);
            STORE(2, pad.s2);
#else
            STORE(0, pad.s0);
#endif
        }
    } else
#endif
    {
        float r = 0.0f, g = 0.0f, b = 0.0f;

/* A tap's pixel: columns and rows of the output are those of the source, or turned. */
#if TURNED
#define X_OF(i, j) (j)
#define Y_OF(i, j) (i)
#else
#define X_OF(i, j) (i)
#define Y_OF(i, j) (j)
#endif

#if TAPS == 1
        const int i0 = index[x], j0 = index_y[0];
#if BAYER
        MOSAIC(X_OF(i0, j0), Y_OF(i0, j0), 0.0f, 0.0f, 1.0f);
#else
        PIXEL(X_OF(i0, j0), Y_OF(i0, j0), 1.0f);
#endif
#elif TAPS == 2
        const int i0 = index[x], j0 = index_y[0];
        const float wi = weight[columns + x], wj = weight_y[height];
#if BAYER
        MOSAIC(X_OF(i0, j0), Y_OF(i0, j0), X_OF(wi, wj), Y_OF(wi, wj), 1.0f);
#else
        const int i1 = index[columns + x], j1 = index_y[height];
        PIXEL(X_OF(i0, j0), Y_OF(i0, j0), (1.0f - wi) * (1.0f - wj));
        PIXEL(X_OF(i1, j0), Y_OF(i1, j0), wi * (1.0f - wj));
        PIXEL(X_OF(i0, j1), Y_OF(i0, j1), (1.0f - wi) * wj);
        PIXEL(X_OF(i1, j1), Y_OF(i1, j1), wi * wj);
#endif
#else
        for (uint tj = 0; tj < taps_y; tj++) {
            const int j = index_y[(ulong)tj * height];
            const float wj = weight_y[(ulong)tj * height];

            for (uint ti = 0; ti < taps_x; ti++) {
                const int i = index[(ulong)ti * columns + x];
                const float wi = weight[(ulong)ti * columns + x];
#if BAYER
                MOSAIC(X_OF(i, j), Y_OF(i, j), 0.0f, 0.0f, wi * wj);
#else
                PIXEL(X_OF(i, j), Y_OF(i, j), wi * wj);
#endif
            }
        }
#endif

#if FORMAT == SOURCE_DEPTH
        r = r / g * scale.s0 + add.s0;
        r = g > 0.0f ? r : depth_invalid;
#elif CHANNELS == 3
        const float first = BGR ? b : r, last = BGR ? r : b;
        r = first * scale.s0 + add.s0;
        g = g * scale.s1 + add.s1;
        b = last * scale.s2 + add.s2;
#else
        r = r * scale.s0 + add.s0;
#endif
#if PADDED
        const bool inside = x >= border.s0 && x < border.s2;
        r = inside ? r : pad.s0;
        g = inside ? g : pad.s1;
        b = inside ? b : pad.s2;
#endif
#if RAGGED
        if (x < width)
#endif
        {
            STORE(0, r);
#if CHANNELS == 3
            STORE(1, g);
            STORE(2, b);
#endif
        }
    }
}
