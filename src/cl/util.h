/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small helpers of the OpenCL part: log lines, status values, structs that carry their size, time.
 * This library sees only the public headers of the core, so it has its own.
 */
#ifndef CLBI_CL_UTIL_H
#define CLBI_CL_UTIL_H

#include <clbridge/common.h>
#include <time.h>

#if defined(__GNUC__)
#define CLBI_CL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLBI_CL_PRINTF(fmt, args)
#endif

#define CLBI_CL_NEVER INT64_MAX
#define CLBI_CL_US INT64_C(1000)
#define CLBI_CL_MS INT64_C(1000000)
#define CLBI_CL_SEC INT64_C(1000000000)

/* Formats (cut at 512 bytes) and calls the sink when it is set and its level lets this through. */
void clbi_cl_log(const struct clb_log *log, enum clb_log_level level, const char *fmt, ...)
    CLBI_CL_PRINTF(3, 4);

/* Fills *st (may be NULL) and logs one line of the same text at CLB_LOG_WARN. code 0 = no native
 * code; else the domain is OpenCL and the code's name is appended. Returns err. */
int clbi_cl_fail(struct clb_status *st, const struct clb_log *log, int err, int code,
                 const char *fmt, ...) CLBI_CL_PRINTF(5, 6);

/* Params: copies src (NULL = all defaults) into dst, whose full size is dst_size, zero-filling.
 * src begins with size_t struct_size; 0 means v1_size. Larger than known is accepted when the
 * excess is zero. CLB_OK or CLB_ERR_INVAL. dst's struct_size becomes dst_size. */
int clbi_cl_params_copy(void *dst, size_t dst_size, const void *src, size_t v1_size);

/* Output structs: copies min(size, src_size) bytes, zeroes the rest of *out up to size. */
void clbi_cl_output_copy(void *out, size_t size, const void *src, size_t src_size);

/* CLOCK_MONOTONIC; and a public timeout as an absolute deadline, saturating (0 = in the past). */
int64_t clbi_cl_now(void);
int64_t clbi_cl_deadline(int64_t timeout_ns);
void clbi_cl_timespec(struct timespec *ts, int64_t ns);

#endif
