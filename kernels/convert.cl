/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Same size in and out, u8 NHWC with three channels. x runs along dimension 0, so that neighbours
 * read and write neighbours. The bodies stand in the kernels themselves: CPU compilers vectorise no
 * helper function that takes pointers.
 *
 * Offsets and pitches are bytes in 64 bits from the start of the buffer; never sub-buffers, whose
 * origin has to be aligned and which some runtimes get wrong. Colour is 16.16 fixed point, so that
 * every runtime gives the same bytes: the largest sum, 255 * 1.17 + 2 * 128 * 2.2 in 16.16, stays
 * below 2^31.
 */

/* The formulas of preprocess.h with everything times 65536; y, u, v are ints or vectors of them, y
 * with the half for rounding added, u and v without their 128. The results are clamped by the
 * saturating conversion: a plain one of a clamped vector comes out wrong on Oclgrind. */
#define LUMA(value) (((value) - y_black) * ky + 32768)
#define RED(y, u, v) (((y) + (v) * kvr) >> 16)
#define GREEN(y, u, v) (((y) + (u) * kug + (v) * kvg) >> 16)
#define BLUE(y, u, v) (((y) + (u) * kub) >> 16)

/* One work-item is 8 pixels of a row (three-byte pixels are not vectorised by themselves: explicit
 * vectors take a third of the time here), or the 1 to 7 that are left at its end. bgr: 0 = R first. */
__kernel void convert_nv12(__global const uchar *restrict src, __global uchar *restrict dst,
                           const ulong y_offset, const ulong y_pitch, const ulong c_offset,
                           const ulong c_pitch, const ulong dst_offset, const uint width,
                           const uint height, const int bgr, const int y_black, const int ky,
                           const int kvr, const int kug, const int kvg, const int kub)
{
    const ulong x = (ulong)get_global_id(0) * 8;
    const uint row = (uint)get_global_id(1);

    if (x < width && row < height) {
        /* Pixel x is even: its chroma pair stands at byte x of the row. */
        __global const uchar *luma = src + (y_offset + y_pitch * row + x);
        __global const uchar *chroma = src + (c_offset + c_pitch * (row >> 1) + x);
        __global uchar *out = dst + (dst_offset + ((ulong)width * row + x) * 3);

        if (width - x >= 8) {
            const int8 y = LUMA(convert_int8(vload8(0, luma)));
            const int8 c = convert_int8(vload8(0, chroma)) - 128;
            const int8 u = c.s00224466;
            const int8 v = c.s11335577;
            const uchar8 r = convert_uchar8_sat(RED(y, u, v));
            const uchar8 g = convert_uchar8_sat(GREEN(y, u, v));
            const uchar8 b = convert_uchar8_sat(BLUE(y, u, v));
            const uchar8 f = bgr ? b : r;
            const uchar8 l = bgr ? r : b;

            vstore8((uchar8)(f.s0, g.s0, l.s0, f.s1, g.s1, l.s1, f.s2, g.s2), 0, out);
            vstore8((uchar8)(l.s2, f.s3, g.s3, l.s3, f.s4, g.s4, l.s4, f.s5), 1, out);
            vstore8((uchar8)(g.s5, l.s5, f.s6, g.s6, l.s6, f.s7, g.s7, l.s7), 2, out);
        } else {
            const int left = (int)(width - x);

            for (int i = 0; i < left; i++) {
                const int y = LUMA((int)luma[i]);
                const int u = (int)chroma[i & ~1] - 128;
                const int v = (int)chroma[i | 1] - 128;
                const uchar r = convert_uchar_sat(RED(y, u, v));
                const uchar b = convert_uchar_sat(BLUE(y, u, v));

                out[3 * i] = bgr ? b : r;
                out[3 * i + 1] = convert_uchar_sat(GREEN(y, u, v));
                out[3 * i + 2] = bgr ? r : b;
            }
        }
    }
}

/* One work-item is one pixel. Three channels in, three out: first and last change places when swap
 * is 2. */
__kernel void convert_packed(__global const uchar *restrict src, __global uchar *restrict dst,
                             const ulong offset, const ulong pitch, const ulong dst_offset,
                             const uint width, const uint height, const int swap)
{
    const uint x = (uint)get_global_id(0);
    const uint row = (uint)get_global_id(1);

    if (x < width && row < height) {
        const ulong in = offset + pitch * row + (ulong)x * 3;
        const ulong out = dst_offset + ((ulong)width * row + x) * 3;

        dst[out + swap] = src[in];
        dst[out + 1] = src[in + 1];
        dst[out + (2 - swap)] = src[in + 2];
    }
}

/* One work-item is one pixel. One channel in, three equal ones out. */
__kernel void convert_gray(__global const uchar *restrict src, __global uchar *restrict dst,
                           const ulong offset, const ulong pitch, const ulong dst_offset,
                           const uint width, const uint height)
{
    const uint x = (uint)get_global_id(0);
    const uint row = (uint)get_global_id(1);

    if (x < width && row < height) {
        const uchar value = src[offset + pitch * row + x];
        const ulong out = dst_offset + ((ulong)width * row + x) * 3;

        dst[out] = value;
        dst[out + 1] = value;
        dst[out + 2] = value;
    }
}
