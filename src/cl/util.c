/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers of the OpenCL part. */
#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cl_fns.h"

static int lets_through(const struct clb_log *log, enum clb_log_level level)
{
    enum clb_log_level least;

    if (!log || !log->cb)
        return 0;
    least = log->level == CLB_LOG_DEFAULT ? CLB_LOG_WARN : log->level;
    return level <= least;
}

void clbi_cl_log(const struct clb_log *log, enum clb_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    if (!lets_through(log, level))
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    log->cb(log->priv, level, line);
}

int clbi_cl_fail(struct clb_status *st, const struct clb_log *log, int err, int code,
                 const char *fmt, ...)
{
    char text[sizeof(st->text)];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (code != 0 && n >= 0 && (size_t)n < sizeof(text))
        snprintf(text + n, sizeof(text) - (size_t)n, ": %s (%d)", clbi_cl_error_name(code), code);
    if (st) {
        memset(st, 0, sizeof(*st));
        st->err = (enum clb_error)err;
        st->domain = code != 0 ? CLB_DOMAIN_OPENCL : CLB_DOMAIN_NONE;
        st->native = code;
        memcpy(st->text, text, sizeof(text));
    }
    clbi_cl_log(log, CLB_LOG_WARN, "%s", text);
    return err;
}

int clbi_cl_params_copy(void *dst, size_t dst_size, const void *src, size_t v1_size)
{
    const unsigned char *bytes = src;
    size_t size = v1_size, i;

    memset(dst, 0, dst_size);
    if (src) {
        memcpy(&size, src, sizeof(size));
        if (size == 0)
            size = v1_size;
        if (size < sizeof(size))
            return CLB_ERR_INVAL;
        for (i = dst_size; i < size; i++)
            if (bytes[i] != 0)
                return CLB_ERR_INVAL;
        memcpy(dst, src, size < dst_size ? size : dst_size);
    }
    memcpy(dst, &dst_size, sizeof(dst_size));
    return CLB_OK;
}

void clbi_cl_output_copy(void *out, size_t size, const void *src, size_t src_size)
{
    size_t n = size < src_size ? size : src_size;

    if (!out)
        return;
    memcpy(out, src, n);
    if (size > n)
        memset((unsigned char *)out + n, 0, size - n);
}

int64_t clbi_cl_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * CLBI_CL_SEC + ts.tv_nsec;
}

int64_t clbi_cl_deadline(int64_t timeout_ns)
{
    int64_t now;

    if (timeout_ns < 0)
        return CLBI_CL_NEVER;
    if (timeout_ns == 0)
        return 0;
    now = clbi_cl_now();
    return timeout_ns > CLBI_CL_NEVER - now ? CLBI_CL_NEVER : now + timeout_ns;
}

void clbi_cl_timespec(struct timespec *ts, int64_t ns)
{
    ts->tv_sec = (time_t)(ns / CLBI_CL_SEC);
    ts->tv_nsec = (long)(ns % CLBI_CL_SEC);
}
