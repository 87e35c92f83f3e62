/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting of URIs and of host and port. */
#include "uri.h"

#include <criterion/criterion.h>
#include <string.h>

Test(uri, split)
{
    struct clbi_uri u;

    cr_assert_eq(clbi_uri_parse(&u, "tcp://127.0.0.1:11490", NULL, NULL), CLB_OK);
    cr_assert_eq(u.scheme_len, 3);
    cr_assert_eq(strncmp(u.scheme, "tcp", 3), 0);
    cr_assert_str_eq(u.rest, "127.0.0.1:11490");
    cr_assert_eq(clbi_uri_parse(&u, "usb://", NULL, NULL), CLB_OK);
    cr_assert_str_eq(u.rest, "");
    cr_assert_eq(clbi_uri_parse(&u, "local:///run/x y", NULL, NULL), CLB_OK);
    cr_assert_str_eq(u.rest, "/run/x y");
}

Test(uri, refused_with_text)
{
    static const char *const bad[] = {"",       "host",       "://x",     "tcp:/x",   "tcp:x",
                                      "1a://x", "tcp://a\nb", " tcp://x", "t cp://x", NULL};
    struct clbi_uri u;
    struct clb_status st;
    char longer[CLBI_URI_MAX + 32] = "tcp://";

    for (size_t i = 0; bad[i]; i++) {
        memset(&st, 0, sizeof st);
        cr_assert_eq(clbi_uri_parse(&u, bad[i], &st, NULL), CLB_ERR_INVAL, "\"%s\"", bad[i]);
        cr_assert_eq(st.err, CLB_ERR_INVAL);
        cr_assert(strstr(st.text, "tcp://host[:port]"), "%s", st.text);
    }
    cr_assert_eq(clbi_uri_parse(&u, NULL, &st, NULL), CLB_ERR_INVAL);
    clbi_uri_parse(&u, "tcp//x", &st, NULL);
    cr_assert(strstr(st.text, "got \"tcp//x\""), "%s", st.text);

    memset(longer + 6, 'a', CLBI_URI_MAX - 6);
    cr_assert_eq(clbi_uri_parse(&u, longer, NULL, NULL), CLB_OK);
    longer[CLBI_URI_MAX] = 'a';
    cr_assert_eq(clbi_uri_parse(&u, longer, NULL, NULL), CLB_ERR_INVAL);
}

static void good(const char *address, const char *host, unsigned port, bool has, bool brackets)
{
    struct clbi_hostport hp;

    cr_assert_eq(clbi_hostport_parse(&hp, address, 11490, NULL, NULL), CLB_OK, "%s", address);
    cr_assert_str_eq(hp.host, host);
    cr_assert_eq(hp.port, port, "%s: %u", address, hp.port);
    cr_assert_eq(hp.has_port, has, "%s", address);
    cr_assert_eq(hp.bracketed, brackets, "%s", address);
}

Test(hostport, good)
{
    good("10.0.0.1", "10.0.0.1", 11490, false, false);
    good("cam.local:1", "cam.local", 1, true, false);
    good("cam:0", "cam", 0, true, false);
    good("cam:65535", "cam", 65535, true, false);
    good("cam:00080", "cam", 80, true, false);
    good("[::1]", "::1", 11490, false, true);
    good("[fe80::1%eth0]:99", "fe80::1%eth0", 99, true, true);
    good("*:5", "*", 5, true, false);
}

Test(hostport, bad)
{
    static const char *const bad[] = {
        "",       ":80",      "cam:",      "cam:65536",  "cam:-1",  "cam:+1",   "cam: 1",
        "cam:1 ", "cam:1x",   "cam:0x10",  "cam:1:2",    "::1",     "::1:80",   "[::1",
        "[]",     "[]:80",    "[::1]80",   "[::1]:",     "[[::1]]", "cam/path", "cam:80/path",
        "a b",    "user@cam", "cam:99999", "cam:000080", "ca\tm",   NULL,
    };
    struct clbi_hostport hp;
    struct clb_status st;
    char name[300];

    for (size_t i = 0; bad[i]; i++) {
        memset(&st, 0, sizeof st);
        cr_assert_eq(clbi_hostport_parse(&hp, bad[i], 11490, &st, NULL), CLB_ERR_INVAL, "\"%s\"",
                     bad[i]);
        cr_assert(strstr(st.text, "expected"), "%s", st.text);
    }
    cr_assert_eq(clbi_hostport_parse(&hp, NULL, 1, NULL, NULL), CLB_ERR_INVAL);
    memset(name, 'a', sizeof name);
    name[255] = '\0';
    cr_assert_eq(clbi_hostport_parse(&hp, name, 1, NULL, NULL), CLB_OK);
    name[255] = 'a';
    name[256] = '\0';
    cr_assert_eq(clbi_hostport_parse(&hp, name, 1, NULL, NULL), CLB_ERR_INVAL);
}
