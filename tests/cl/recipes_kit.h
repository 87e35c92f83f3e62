/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of recipes on a real runtime: pictures of every format, runs of a recipe between guard
 * bytes, and the comparison with the reference. Every failure ends the program.
 */
#ifndef RECIPES_KIT_H
#define RECIPES_KIT_H

#include "reference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device and a pool whose frames hold the largest picture that the tests use. */
void kit_open(void);
void kit_close(void);
/* An interpreter: keep it small. */
bool kit_small(void);

struct kit_pads {
    size_t pitch[3]; /* added to the bytes of a row */
    size_t gap[3];   /* before each plane */
};

/* A layout with these pads. 16-bit and float samples stay aligned, whatever the pads are. */
void kit_image(struct clb_image *img, enum clb_pixfmt fmt, unsigned w, unsigned h,
               struct kit_pads pads);

/* Noise within what the format's samples may be; everything else has the value `padding`. */
uint8_t *kit_noise(const struct clb_image *img, uint8_t padding, uint32_t seed);
/* The same, with `fn` giving sample `index` of the row: a byte, a u16, a packed 10-bit value or a
 * float, as the format has. */
typedef double kit_sample(const struct clb_image *img, unsigned plane, unsigned index, unsigned y,
                          void *priv);
uint8_t *kit_picture(const struct clb_image *img, uint8_t padding, kit_sample *fn, void *priv);

/* A recipe for the params, `src` and all; fails when there is none. */
clb_preprocess *kit_create(const clb_preprocess_params *p);

/* Runs it: *out (for free()) are the bytes of the tensor at offset. Fails when a byte outside of it
 * was written. */
uint8_t *kit_run(clb_preprocess *pp, const clb_preprocess_params *p, const struct clb_image *img,
                 const uint8_t *px, size_t offset);

/* Creates, runs, and compares: geometry, values, and that no byte of padding shows. `what` is for
 * the message. */
void kit_check(const clb_preprocess_params *p, const struct clb_image *img, size_t offset,
               bool image_by_frame, uint32_t seed, const char *what);

/* Fails unless every element is the reference's within the type's tolerance. */
void kit_compare(const clb_preprocess_params *p, const struct clb_image *img, const uint8_t *px,
                 const uint8_t *out, const char *what);

/* Element i of a result. */
double kit_element(enum clb_preprocess_type type, const uint8_t *out, size_t i);

/* The largest errors so far, by format and type. */
void kit_print_errors(void);

/* All parameters that are not their default, for messages. */
void kit_describe(const clb_preprocess_params *p, const struct clb_image *img, char *text,
                  size_t size);

#ifdef __cplusplus
}
#endif

#endif
