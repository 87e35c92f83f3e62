/* SPDX-License-Identifier: Apache-2.0 */
#include "npy_out.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Magic, version 1.0, length of the text: what stands before it. The text ends so that the values begin
 * at a multiple of 64 bytes, as the format asks. */
enum { FIXED = 10, HEADER = 128 };

static void make_header(char header[HEADER], const struct npy_shape *shape)
{
    static const char magic[8] = "\x93NUMPY\x01\x00";
    const unsigned length = HEADER - FIXED;
    int n;

    memcpy(header, magic, sizeof magic);
    header[8] = (char)(length & 255);
    header[9] = (char)(length >> 8);
    n = snprintf(header + FIXED, length,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%u, %u, %u), }", shape->type,
                 (unsigned)shape->size[0], (unsigned)shape->size[1], (unsigned)shape->size[2]);
    memset(header + FIXED + n, ' ', length - (unsigned)n);
    header[HEADER - 1] = '\n';
}

int npy_write_file(const char *path, const void *values, size_t bytes,
                   const struct npy_shape *shape)
{
    char header[HEADER];
    FILE *file = fopen(path, "wbe");
    int rc = 0;

    if (!file)
        return errno;
    make_header(header, shape);
    errno = 0;
    if (fwrite(header, 1, sizeof header, file) != sizeof header ||
        fwrite(values, 1, bytes, file) != bytes)
        rc = errno ? errno : EIO;
    if (fclose(file) && !rc)
        rc = errno;
    if (rc)
        unlink(path);
    return rc;
}
