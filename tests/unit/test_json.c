/* SPDX-License-Identifier: Apache-2.0 */
/* The event lines of the command, and the measures that stand in them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "stats.h"

static struct json j;

static void start(void)
{
    json_init(&j, -1, false);
    json_begin(&j, "e");
}

static void finish(void)
{
    json_free(&j);
}

static void expect_line(const char *want)
{
    json_end(&j);
    cr_expect_str_eq(j.buf, want);
}

TestSuite(json, .init = start, .fini = finish);

Test(json, every_kind_of_value)
{
    json_str(&j, "s", "x");
    json_str(&j, "none", NULL);
    json_int(&j, "i", INT64_MIN);
    json_uint(&j, "u", UINT64_MAX);
    json_real(&j, "r", 0.125, 2);
    json_real(&j, "nan", (double)NAN, 2);
    json_real(&j, "inf", (double)INFINITY, 2);
    json_bool(&j, "b", true);
    json_bool(&j, "c", false);
    json_null(&j, "n");
    json_open(&j, "a", '[');
    json_uint(&j, NULL, 1);
    json_uint(&j, NULL, 2);
    json_close(&j, ']');
    json_open(&j, "empty", '{');
    json_close(&j, '}');
    json_open(&j, "o", '{');
    json_bool(&j, "k", true);
    json_close(&j, '}');
    json_uint(&j, "z", 0);
    expect_line(
        "{\"event\":\"e\",\"s\":\"x\",\"none\":null,\"i\":-9223372036854775808,"
        "\"u\":18446744073709551615,\"r\":0.12,\"nan\":null,\"inf\":null,\"b\":true,\"c\":false,"
        "\"n\":null,\"a\":[1,2],\"empty\":{},\"o\":{\"k\":true},\"z\":0}\n");
}

Test(json, one_line_whatever_the_string)
{
    json_bytes(&j, "k", "a\"b\\c\n\r\t\0\x1f\x7f/", 12);
    expect_line(
        "{\"event\":\"e\",\"k\":\"a\\\"b\\\\c\\u000a\\u000d\\u0009\\u0000\\u001f\\u007f/\"}\n");
}

Test(json, utf8_stays_and_other_bytes_are_escaped_one_by_one)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\xc3\xa4", "\xc3\xa4"},                             /* U+00E4 */
        {"\xe2\x82\xac", "\xe2\x82\xac"},                     /* U+20AC */
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},             /* U+1F600 */
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},             /* U+10FFFF */
        {"\xed\x9f\xbf", "\xed\x9f\xbf"},                     /* U+D7FF */
        {"\xff", "\\u00ff"},                                  /* never in UTF-8 */
        {"\x80", "\\u0080"},                                  /* continuation alone */
        {"\xc3", "\\u00c3"},                                  /* cut off */
        {"\xc3(", "\\u00c3("},                                /* no continuation */
        {"\xc0\xaf", "\\u00c0\\u00af"},                       /* overlong */
        {"\xe0\x80\xaf", "\\u00e0\\u0080\\u00af"},            /* overlong */
        {"\xed\xa0\x80", "\\u00ed\\u00a0\\u0080"},            /* surrogate */
        {"\xf0\x8f\xbf\xbf", "\\u00f0\\u008f\\u00bf\\u00bf"}, /* overlong */
        {"\xf4\x90\x80\x80", "\\u00f4\\u0090\\u0080\\u0080"}, /* beyond U+10FFFF */
        {"\xe2\x82", "\\u00e2\\u0082"},                       /* cut off */
        {"\xe2\x82\xc3\xa4", "\\u00e2\\u0082\xc3\xa4"},       /* cut off by the next one */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[128];

        json_begin(&j, "e");
        json_str(&j, "k", cases[i].in);
        snprintf(want, sizeof want, "{\"event\":\"e\",\"k\":\"%s\"}\n", cases[i].out);
        expect_line(want);
    }
}

Test(json, text_leaves_out_what_is_unknown)
{
    j.text = true;
    json_begin(&j, "frame");
    json_uint(&j, "seq", 3);
    json_null(&j, "crc32");
    json_str(&j, "format", "nv12");
    expect_line("frame seq=3 format=\"nv12\"\n");
}

Test(json, whole_lines_and_the_end_of_the_reader)
{
    char got[64] = "";
    int fds[2];

    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe(fds), 0);
    j.fd = fds[1];
    json_begin(&j, "a");
    cr_expect_eq(json_end(&j), 0);
    cr_assert_eq(read(fds[0], got, sizeof got - 1), 14);
    cr_expect_str_eq(got, "{\"event\":\"a\"}\n");
    close(fds[0]);
    json_begin(&j, "b");
    cr_expect_eq(json_end(&j), -1);
    cr_expect(j.closed);
    cr_expect_eq(j.failed, EPIPE);
    close(fds[1]);
}

Test(json, a_full_disk_is_no_closed_reader)
{
    int fd = open("/dev/full", O_WRONLY);

    if (fd < 0)
        cr_skip_test("no /dev/full");
    j.fd = fd;
    cr_expect_eq(json_end(&j), -1);
    cr_expect_not(j.closed);
    cr_expect_eq(j.failed, ENOSPC);
    close(fd);
}

/* ---- measures -------------------------------------------------------------------------------- */

Test(stats, percentiles_are_exact_within_1_percent)
{
    struct latency *l = calloc(1, sizeof *l);

    cr_expect(isnan(latency_us(l, 0.5)));
    for (int i = 1; i <= 1000; i++)
        latency_add(l, (int64_t)i * 100000); /* 100 us to 100 ms */
    cr_expect_float_eq(latency_us(l, 0.50), 50000, 500);
    cr_expect_float_eq(latency_us(l, 0.99), 99000, 990);
    cr_expect_float_eq(latency_us(l, 1.00), 100000, 1000);
    latency_add(l, -5);
    latency_add(l, INT64_MAX);
    cr_expect_eq(l->count, 1002u);
    cr_expect_eq(latency_us(l, 0), 0);
    free(l);
}

Test(stats, a_thread_tells_its_clock_and_its_faults)
{
    struct io_thread io = {0};
    volatile char *page;
    int64_t before;

    cr_expect_eq(stats_cpu_thread_ns(&io), -1);
    cr_expect_eq(stats_minor_faults(&io), -1);
    stats_on_thread_start(&io);
    before = stats_minor_faults(&io);
    cr_assert_geq(before, 0);
    page = aligned_alloc(4096, 64u << 20);
    cr_assert_not_null((const void *)page);
    for (size_t i = 0; i < 64u << 20; i += 4096)
        page[i] = 1;
    cr_expect_gt(stats_minor_faults(&io), before);
    cr_expect_gt(stats_cpu_thread_ns(&io), 0);
    free((void *)page);
}
