/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitting of URIs. Bounded, no allocation, nothing is trusted.
 */
#include "uri.h"

#include <string.h>

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int refuse(struct clb_status *st, const struct clb_log *log, const char *what,
                  const char *expected)
{
    char shown[120];

    return clbi_fail(st, log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0, "%s expected, got \"%s\"",
                     expected, clbi_escape(shown, sizeof shown, what));
}

int clbi_uri_parse(struct clbi_uri *out, const char *uri, struct clb_status *st,
                   const struct clb_log *log)
{
    static const char expected[] = "tcp://host[:port]";
    size_t len, n = 0;

    if (!uri || !*uri)
        return refuse(st, log, "", expected);
    len = strnlen(uri, CLBI_URI_MAX + 1);
    if (len > CLBI_URI_MAX)
        return clbi_fail(st, log, CLB_ERR_INVAL, CLB_DOMAIN_NONE, 0,
                         "URI longer than %d bytes, %s expected", CLBI_URI_MAX, expected);
    /* RFC 3986, section 3.1. */
    if (is_alpha(uri[0]))
        while (is_alpha(uri[n]) || is_digit(uri[n]) || uri[n] == '+' || uri[n] == '-' ||
               uri[n] == '.')
            n++;
    if (n == 0 || strncmp(uri + n, "://", 3) != 0)
        return refuse(st, log, uri, expected);
    for (size_t i = n; i < len; i++)
        if ((unsigned char)uri[i] < 0x20 || uri[i] == 0x7f)
            return refuse(st, log, uri, expected);
    out->scheme = uri;
    out->scheme_len = n;
    out->rest = uri + n + 3;
    return CLB_OK;
}

/* Digits alone, no sign, no space, at most 65535. */
static bool parse_port(const char *text, uint16_t *port)
{
    uint32_t value = 0;
    size_t n = 0;

    for (; is_digit(text[n]); n++) {
        if (n == 5)
            return false;
        value = value * 10 + (uint32_t)(text[n] - '0');
    }
    if (n == 0 || text[n] != '\0' || value > UINT16_MAX)
        return false;
    *port = (uint16_t)value;
    return true;
}

/* Bytes that belong to no host name or address but show that something else was meant. */
static bool is_host_byte(char c)
{
    return (unsigned char)c > 0x20 && c != 0x7f && !strchr("/?#@[]\\\"<>", c);
}

int clbi_hostport_parse(struct clbi_hostport *out, const char *address, uint16_t default_port,
                        struct clb_status *st, const struct clb_log *log)
{
    static const char expected[] = "host, host:port or [IPv6 address]:port";
    const char *host = address, *tail;
    size_t len;

    if (!address)
        address = host = "";
    memset(out, 0, sizeof *out);
    out->port = default_port;
    if (*host == '[') {
        host++;
        len = strcspn(host, "]");
        if (host[len] != ']')
            return refuse(st, log, address, expected);
        tail = host + len + 1;
        out->bracketed = true;
    } else {
        len = strcspn(host, ":");
        tail = host + len;
        if (*tail == ':' && strchr(tail + 1, ':'))
            return refuse(st, log, address, "an IPv6 address in brackets, as in [::1]:11490,");
    }
    if (len == 0 || len >= sizeof out->host)
        return refuse(st, log, address, expected);
    for (size_t i = 0; i < len; i++)
        if (!is_host_byte(host[i]))
            return refuse(st, log, address, expected);
    if (*tail) {
        if (*tail != ':')
            return refuse(st, log, address, expected);
        if (!parse_port(tail + 1, &out->port))
            return refuse(st, log, address, "a port from 0 to 65535");
        out->has_port = true;
    }
    memcpy(out->host, host, len);
    return CLB_OK;
}
