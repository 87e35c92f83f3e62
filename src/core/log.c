/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines, status values, and the two copies for structs that carry their size.
 */
#include "log.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_CAP 512
/* No struct of the API comes near this; more is a params struct that was never initialised. */
#define STRUCT_SIZE_MAX 65536

static const char *level_name(enum clb_log_level level)
{
    switch (level) {
    case CLB_LOG_ERROR: return "error";
    case CLB_LOG_WARN: return "warning";
    case CLB_LOG_INFO: return "info";
    case CLB_LOG_DEBUG: return "debug";
    default: return "note";
    }
}

void clb_log_stderr(void *priv, enum clb_log_level level, const char *msg)
{
    char line[LINE_CAP + 64];
    size_t done = 0, len;
    int n;

    (void)priv;
    n = snprintf(line, sizeof line, "clbridge: %s: %s\n", level_name(level), msg ? msg : "");
    if (n < 0)
        return;
    len = (size_t)n;
    if (len >= sizeof line) {
        len = sizeof line - 1;
        line[len - 1] = '\n';
    }
    /* One write per line: lines of several threads do not mix. */
    while (done < len) {
        ssize_t put = write(STDERR_FILENO, line + done, len - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return;
        done += (size_t)put;
    }
}

static bool wanted(const struct clb_log *log, enum clb_log_level level)
{
    if (!log || !log->cb)
        return false;
    return level <= (log->level == CLB_LOG_DEFAULT ? CLB_LOG_WARN : log->level);
}

/* A sink is promised one line. */
static void flatten(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

/* Cutting must not leave half a UTF-8 character behind. */
static void trim_utf8(char *text, size_t cap)
{
    size_t len = strlen(text), i = len;

    if (len + 1 < cap)
        return;
    while (i > 0 && len - i < 3 && ((unsigned char)text[i - 1] & 0xc0) == 0x80)
        i--;
    if (i > 0 && (unsigned char)text[i - 1] >= 0xc0) {
        unsigned char lead = (unsigned char)text[i - 1];
        size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        if (len - (i - 1) < need)
            text[i - 1] = '\0';
    }
}

void clbi_log(const struct clb_log *log, enum clb_log_level level, const char *fmt, ...)
{
    char line[LINE_CAP];
    va_list ap;
    int saved = errno;

    if (!wanted(log, level))
        return;
    va_start(ap, fmt);
    if (vsnprintf(line, sizeof line, fmt, ap) < 0)
        line[0] = '\0';
    va_end(ap);
    trim_utf8(line, sizeof line);
    flatten(line);
    log->cb(log->priv, level, line);
    errno = saved;
}

static void append(char *text, size_t cap, const char *more)
{
    size_t len = strlen(text), n = strlen(more);

    if (n > cap - 1 - len)
        n = cap - 1 - len;
    memcpy(text + len, more, n);
    text[len + n] = '\0';
}

static void append_native(char *text, size_t cap, enum clb_domain domain, int native)
{
    char buf[128];

    append(text, cap, ": ");
    switch (domain) {
    case CLB_DOMAIN_ERRNO:
        /* The GNU one: its result, not buf, is the text. */
        append(text, cap, strerror_r(native, buf, sizeof buf));
        return;
    case CLB_DOMAIN_RESOLVER: append(text, cap, gai_strerror(native)); return;
    case CLB_DOMAIN_LIBUSB: snprintf(buf, sizeof buf, "libusb error %d", native); break;
    case CLB_DOMAIN_OPENCL: snprintf(buf, sizeof buf, "OpenCL error %d", native); break;
    default: snprintf(buf, sizeof buf, "code %d", native); break;
    }
    append(text, cap, buf);
}

int clbi_fail(struct clb_status *st, const struct clb_log *log, enum clb_error err,
              enum clb_domain domain, int native, const char *fmt, ...)
{
    struct clb_status local;
    va_list ap;
    int saved = errno;

    if (!st)
        st = &local;
    memset(st, 0, sizeof *st);
    st->err = err;
    st->domain = native ? domain : CLB_DOMAIN_NONE;
    st->native = native;
    va_start(ap, fmt);
    if (vsnprintf(st->text, sizeof st->text, fmt, ap) < 0)
        st->text[0] = '\0';
    va_end(ap);
    if (native)
        append_native(st->text, sizeof st->text, domain, native);
    trim_utf8(st->text, sizeof st->text);
    flatten(st->text);
    if (wanted(log, CLB_LOG_WARN))
        log->cb(log->priv, CLB_LOG_WARN, st->text);
    errno = saved;
    return err;
}

const char *clbi_escape(char *out, size_t cap, const char *name)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = 0;

    if (cap == 0)
        return "";
    for (; name && *name; name++) {
        unsigned char c = (unsigned char)*name;
        size_t need = c >= 0x20 && c < 0x7f ? 1 : 4;

        if (cap - 1 - len < need)
            break;
        if (need == 1) {
            out[len++] = (char)c;
        } else {
            out[len++] = '\\';
            out[len++] = 'x';
            out[len++] = hex[c >> 4];
            out[len++] = hex[c & 15];
        }
    }
    out[len] = '\0';
    return out;
}

int clbi_params_copy(void *dst, size_t dst_size, const void *src, size_t v1_size)
{
    size_t size = v1_size, take;

    memset(dst, 0, dst_size);
    if (src) {
        memcpy(&size, src, sizeof size);
        if (size == 0)
            size = v1_size;
        if (size < v1_size || size > STRUCT_SIZE_MAX)
            return CLB_ERR_INVAL;
        for (size_t i = dst_size; i < size; i++)
            if (((const unsigned char *)src)[i] != 0)
                return CLB_ERR_INVAL;
        take = size < dst_size ? size : dst_size;
        memcpy(dst, src, take);
    }
    memcpy(dst, &dst_size, sizeof dst_size);
    return CLB_OK;
}

void clbi_output_copy(void *out, size_t size, const void *src, size_t src_size)
{
    size_t take = size < src_size ? size : src_size;

    if (!out)
        return;
    memcpy(out, src, take);
    if (size > take)
        memset((unsigned char *)out + take, 0, size - take);
}
