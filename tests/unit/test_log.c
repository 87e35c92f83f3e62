/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts, log lines, status values, escaped names, structs that carry their size. */
#include "log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct sink {
    unsigned lines;
    enum clb_log_level level;
    char text[1024];
};

static void sink_cb(void *priv, enum clb_log_level level, const char *msg)
{
    struct sink *sink = priv;

    sink->lines++;
    sink->level = level;
    snprintf(sink->text, sizeof sink->text, "%s", msg);
}

Test(error, names_and_texts)
{
    cr_assert_str_eq(clb_error_name(CLB_OK), "OK");
    cr_assert_str_eq(clb_error_name(CLB_ERR_AGAIN), "AGAIN");
    cr_assert_str_eq(clb_error_name(CLB_ERR_LOST), "LOST");
    cr_assert_str_eq(clb_error_name(1), "UNKNOWN");
    cr_assert_str_eq(clb_error_name(-1000), "UNKNOWN");
    cr_assert_str_eq(clb_error_str(CLB_ERR_TIMEOUT), "the deadline passed");
    cr_assert_str_eq(clb_error_str(77), "unknown error");
    cr_assert_str_eq(clb_version_str(), CLB_VERSION_STRING);
    cr_assert_eq(clb_version() >> 16, (unsigned)CLB_VERSION_MAJOR);
    cr_assert_eq(clb_version() >> 8 & 255, (unsigned)CLB_VERSION_MINOR);
}

Test(log, levels)
{
    struct sink sink = {0};
    struct clb_log log = {.cb = sink_cb, .priv = &sink};

    clbi_log(NULL, CLB_LOG_ERROR, "nobody");
    clbi_log(&(struct clb_log){0}, CLB_LOG_ERROR, "nobody");
    clbi_log(&log, CLB_LOG_INFO, "too much");
    cr_assert_eq(sink.lines, 0);
    clbi_log(&log, CLB_LOG_WARN, "value %d", 7);
    cr_assert_eq(sink.lines, 1);
    cr_assert_eq(sink.level, CLB_LOG_WARN);
    cr_assert_str_eq(sink.text, "value 7");
    log.level = CLB_LOG_ERROR;
    clbi_log(&log, CLB_LOG_WARN, "too much");
    cr_assert_eq(sink.lines, 1);
    log.level = CLB_LOG_DEBUG;
    clbi_log(&log, CLB_LOG_DEBUG, "two\nlines");
    cr_assert_str_eq(sink.text, "two lines");
}

Test(log, long_lines_are_cut_between_characters)
{
    struct sink sink = {0};
    struct clb_log log = {.cb = sink_cb, .priv = &sink};
    char text[700];

    memset(text, 'a', 510);
    strcpy(text + 510, "\xc3\xa9tail"); /* the cut at 511 bytes falls into the e acute */
    clbi_log(&log, CLB_LOG_ERROR, "%s", text);
    cr_assert_eq(strlen(sink.text), 510);
    cr_assert_eq(sink.text[509], 'a');
}

Test(log, fail_fills_status_and_logs_once)
{
    struct sink sink = {0};
    struct clb_log log = {.cb = sink_cb, .priv = &sink};
    struct clb_status st;

    memset(&st, 0x55, sizeof st);
    errno = EBADF;
    cr_assert_eq(clbi_fail(&st, &log, CLB_ERR_IO, CLB_DOMAIN_ERRNO, ENOSPC, "open %s", "x"),
                 CLB_ERR_IO);
    cr_assert_eq(errno, EBADF);
    cr_assert_eq(sink.lines, 1);
    cr_assert_eq(st.err, CLB_ERR_IO);
    cr_assert_eq(st.domain, CLB_DOMAIN_ERRNO);
    cr_assert_eq(st.native, ENOSPC);
    cr_assert_str_eq(st.text, "open x: No space left on device");
    cr_assert_str_eq(sink.text, st.text);

    clbi_fail(&st, NULL, CLB_ERR_NODEV, CLB_DOMAIN_RESOLVER, EAI_NONAME, "host");
    cr_assert_eq(st.domain, CLB_DOMAIN_RESOLVER);
    cr_assert(strstr(st.text, gai_strerror(EAI_NONAME)), "%s", st.text);
    clbi_fail(&st, NULL, CLB_ERR_INVAL, CLB_DOMAIN_ERRNO, 0, "plain");
    cr_assert_str_eq(st.text, "plain");
    cr_assert_eq(st.domain, CLB_DOMAIN_NONE);
    cr_assert_eq(clbi_fail(NULL, NULL, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0, "x"), CLB_ERR_INVAL);
}

Test(log, fail_stays_in_the_status)
{
    struct clb_status st;
    char text[600];

    memset(text, 'b', sizeof text);
    text[sizeof text - 1] = '\0';
    clbi_fail(&st, NULL, CLB_ERR_IO, CLB_DOMAIN_ERRNO, EIO, "%s", text);
    cr_assert_eq(strlen(st.text), sizeof st.text - 1);
}

Test(log, escape)
{
    char out[12];

    cr_assert_str_eq(clbi_escape(out, sizeof out, "rgb"), "rgb");
    cr_assert_str_eq(clbi_escape(out, sizeof out, "a\n\xff"), "a\\x0a\\xff");
    /* Cut at a whole escape. */
    cr_assert_str_eq(clbi_escape(out, sizeof out, "abcdefghi\x01"), "abcdefghi");
    cr_assert_str_eq(clbi_escape(out, sizeof out, "0123456789abcdef"), "0123456789a");
    cr_assert_str_eq(clbi_escape(out, sizeof out, NULL), "");
    cr_assert_str_eq(clbi_escape(NULL, 0, "x"), "");
}

struct params {
    size_t struct_size;
    int a, b;
    long later[2];
};
#define V1 offsetof(struct params, later)

Test(params, sizes)
{
    struct params p, in = {.a = 1, .b = 2, .later = {3, 4}};
    struct {
        struct params p;
        char tail[8];
    } big = {.p = {.struct_size = sizeof big, .a = 5}};

    cr_assert_eq(clbi_params_copy(&p, sizeof p, NULL, V1), CLB_OK);
    cr_assert_eq(p.struct_size, sizeof p);
    cr_assert_eq(p.a, 0);

    cr_assert_eq(clbi_params_copy(&p, sizeof p, &in, V1), CLB_OK);
    cr_assert_eq(p.b, 2);
    cr_assert_eq(p.later[0], 0, "size 0 means the first version");
    cr_assert_eq(p.struct_size, sizeof p);

    in.struct_size = sizeof in;
    cr_assert_eq(clbi_params_copy(&p, sizeof p, &in, V1), CLB_OK);
    cr_assert_eq(p.later[1], 4);

    cr_assert_eq(clbi_params_copy(&p, sizeof p, &big, V1), CLB_OK);
    cr_assert_eq(p.a, 5);
    big.tail[7] = 1;
    cr_assert_eq(clbi_params_copy(&p, sizeof p, &big, V1), CLB_ERR_INVAL);
    in.struct_size = V1 - 1;
    cr_assert_eq(clbi_params_copy(&p, sizeof p, &in, V1), CLB_ERR_INVAL);
    in.struct_size = SIZE_MAX;
    cr_assert_eq(clbi_params_copy(&p, sizeof p, &in, V1), CLB_ERR_INVAL);
}

Test(params, output)
{
    uint32_t src[2] = {1, 2}, out[4];

    memset(out, 0xff, sizeof out);
    clbi_output_copy(out, sizeof out[0], src, sizeof src);
    cr_assert_eq(out[0], 1u);
    cr_assert_eq(out[1], 0xffffffffu);
    clbi_output_copy(out, sizeof out[0] * 3, src, sizeof src);
    cr_assert_eq(out[1], 2u);
    cr_assert_eq(out[2], 0u);
    cr_assert_eq(out[3], 0xffffffffu);
    clbi_output_copy(NULL, 8, src, sizeof src);
}
