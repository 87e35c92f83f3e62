/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of tests/data/trailers with what their .txt says, and memory that ends at a wall. */
#ifndef TESTS_DEPTHAI_KIT_H
#define TESTS_DEPTHAI_KIT_H

#include <clbridge/depthai.h>

#include <stdint.h>

#define SAMPLE_MAX 512u  /* bytes of the largest one */
#define TRAILER_TAIL 24u /* object type, metadata size, end mark */
#define V2_STRIDE 9u     /* where the stride stands in the frame of v2.33 */

struct sample {
    const char *file;                 /* below tests/data/trailers */
    enum clb_depthai_release release; /* that wrote it */
    size_t data_size;                 /* of the pixels, which a .packet.bin has in front */
    clb_depthai_info expect;          /* image: format and size only */
    size_t pitch[3], offset[3];       /* of the planes */
};

extern const struct sample samples[];
extern const size_t sample_count;

struct trailer {
    uint8_t bytes[SAMPLE_MAX]; /* metadata and tail */
    size_t size;               /* of these */
    size_t metadata;           /* bytes of metadata */
    int32_t object_type;
};

void sample_load(struct trailer *t, const struct sample *s);
const struct sample *sample_named(const char *file);

/* Puts bytes where the next one cannot be touched, and reads metadata there. The result of the call;
 * a read outside of the bytes ends the process. */
int parse_at_wall(clb_depthai_info *info, const void *metadata, size_t size, size_t data_size,
                  int32_t object_type, enum clb_depthai_release release);

/* Everything but the image's planes; names the member that differs. NULL = equal. */
const char *info_differs(const clb_depthai_info *a, const clb_depthai_info *b);

#endif
