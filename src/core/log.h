/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines and status values: every failure is described once, at the place where it is detected.
 * Also the two helpers for structs that carry their size.
 */
#ifndef CLBI_LOG_H
#define CLBI_LOG_H

#include <clbridge/common.h>

#if defined(__GNUC__)
#define CLBI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLBI_PRINTF(fmt, args)
#endif

/* Formats (cut at 512 bytes) and calls the sink when it is set and its level lets this through. */
void clbi_log(const struct clb_log *log, enum clb_log_level level, const char *fmt, ...)
    CLBI_PRINTF(3, 4);

/* Fills *st (may be NULL) and logs one line of the given text at CLB_LOG_WARN (log may be NULL).
 * When native is not 0 the text gets the system's own message appended (strerror, gai_strerror).
 * Returns err. */
int clbi_fail(struct clb_status *st, const struct clb_log *log, enum clb_error err,
              enum clb_domain domain, int native, const char *fmt, ...) CLBI_PRINTF(6, 7);

/* Writes bytes of a name for a message: printable ASCII as it is, the rest as \xNN; cut to fit. */
const char *clbi_escape(char *out, size_t cap, const char *name);

/* Params: copies src (NULL = all defaults) into dst, whose full size is dst_size, zero-filling.
 * src begins with size_t struct_size; 0 means v1_size. Larger than known is accepted when the
 * excess is zero. CLB_OK or CLB_ERR_INVAL. dst's struct_size becomes dst_size. */
int clbi_params_copy(void *dst, size_t dst_size, const void *src, size_t v1_size);

/* Output structs: copies min(size, src_size) bytes, zeroes the rest of *out up to size. */
void clbi_output_copy(void *out, size_t size, const void *src, size_t src_size);

#endif
