/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON (RFC 8259) line writer. A value that is not UTF-8 still gives valid JSON: each offending
 * byte becomes \u00XX.
 */
#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void json_init(struct json *j, int fd, bool text)
{
    memset(j, 0, sizeof *j);
    j->fd = fd;
    j->text = text;
}

void json_free(struct json *j)
{
    free(j->buf);
    j->buf = NULL;
    j->len = j->cap = 0;
}

static void put(struct json *j, const char *bytes, size_t len)
{
    if (j->len + len + 1 > j->cap) {
        size_t cap = (j->len + len + 1) * 2;
        char *grown = realloc(j->buf, cap);

        if (!grown) {
            if (!j->failed)
                j->failed = ENOMEM;
            return;
        }
        j->buf = grown;
        j->cap = cap;
    }
    memcpy(j->buf + j->len, bytes, len);
    j->len += len;
    j->buf[j->len] = '\0';
}

static void puts_(struct json *j, const char *text)
{
    put(j, text, strlen(text));
}

/* Length of the UTF-8 sequence at s (RFC 3629 section 4: no overlong form, no surrogate, at most
 * U+10FFFF), 0 = not UTF-8. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    unsigned char min = 0x80, max = 0xbf;
    size_t len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (len > left)
        return 0;
    if (s[0] == 0xe0)
        min = 0xa0;
    else if (s[0] == 0xed)
        max = 0x9f;
    else if (s[0] == 0xf0)
        min = 0x90;
    else if (s[0] == 0xf4)
        max = 0x8f;
    if (s[1] < min || s[1] > max)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return len;
}

static void put_string(struct json *j, const void *value, size_t len)
{
    const unsigned char *s = value;
    char escape[8];

    puts_(j, "\"");
    while (len) {
        size_t n = utf8_length(s, len);

        if (n == 1 && (*s == '"' || *s == '\\')) {
            snprintf(escape, sizeof escape, "\\%c", *s);
            puts_(j, escape);
        } else if (n == 0 || *s < 0x20 || *s == 0x7f) {
            n = 1;
            snprintf(escape, sizeof escape, "\\u%04x", *s);
            puts_(j, escape);
        } else {
            put(j, (const char *)s, n);
        }
        s += n;
        len -= n;
    }
    puts_(j, "\"");
}

/* Separator and key of a member; false when there is nothing to write in text mode. */
static void member(struct json *j, const char *key)
{
    if (j->text) {
        if (j->depth == 0 && j->lines) {
            char pad[40];

            snprintf(pad, sizeof pad, "\n  %-22s ", key ? key : "");
            puts_(j, pad);
        } else {
            puts_(j, j->comma ? (j->depth ? ", " : " ") : "");
            if (key) {
                puts_(j, key);
                puts_(j, "=");
            }
        }
    } else {
        puts_(j, j->comma ? "," : "");
        if (key) {
            put_string(j, key, strlen(key));
            puts_(j, ":");
        }
    }
    j->comma = true;
}

void json_begin(struct json *j, const char *event)
{
    j->len = 0;
    j->depth = 0;
    j->comma = j->text;
    j->lines = !strcmp(event, "summary") || !strcmp(event, "device") || !strcmp(event, "machine");
    if (j->text) {
        puts_(j, event);
    } else {
        puts_(j, "{");
        json_str(j, "event", event);
    }
}

int json_end(struct json *j)
{
    size_t done = 0;

    puts_(j, j->text ? "\n" : "}\n");
    while (j->fd >= 0 && !j->failed && done < j->len) {
        ssize_t n = write(j->fd, j->buf + done, j->len - done);

        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            j->failed = errno;
            j->closed = errno == EPIPE || errno == EBADF;
        }
    }
    return j->failed ? -1 : 0;
}

void json_bytes(struct json *j, const char *key, const void *value, size_t len)
{
    if (!value) {
        json_null(j, key);
        return;
    }
    member(j, key);
    put_string(j, value, len);
}

void json_str(struct json *j, const char *key, const char *value)
{
    json_bytes(j, key, value, value ? strlen(value) : 0);
}

static void number(struct json *j, const char *key, const char *digits)
{
    member(j, key);
    puts_(j, digits);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%lld", (long long)value);
    number(j, key, digits);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    number(j, key, digits);
}

void json_real(struct json *j, const char *key, double value, int decimals)
{
    char digits[340];

    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    snprintf(digits, sizeof digits, "%.*f", decimals, value);
    number(j, key, digits);
}

void json_bool(struct json *j, const char *key, bool value)
{
    number(j, key, value ? "true" : "false");
}

void json_null(struct json *j, const char *key)
{
    if (!j->text)
        number(j, key, "null");
}

void json_open(struct json *j, const char *key, char bracket)
{
    member(j, key);
    put(j, &bracket, 1);
    j->comma = false;
    j->depth++;
}

void json_close(struct json *j, char bracket)
{
    put(j, &bracket, 1);
    j->comma = true;
    j->depth--;
}
