/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events on standard output: one JSON object per line, each line written whole and at once. The
 * same calls make lines for people when `text` is set.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    int fd;      /* where lines go; < 0 = only into buf, for tests */
    bool text;   /* key value lines instead of JSON; unknown values are left out */
    int failed;  /* errno of the first write that failed; nothing is written after it */
    bool closed; /* that was EPIPE or EBADF: nobody listens any more */
    char *buf;   /* the line so far; malloc */
    size_t len, cap;
    bool comma; /* the next member needs one */
    bool lines; /* text: one key per line */
    unsigned depth;
};

void json_init(struct json *j, int fd, bool text);
void json_free(struct json *j);

void json_begin(struct json *j, const char *event);
/* Writes the line. 0, or -1 once writing has failed. */
int json_end(struct json *j);

/* Members of the object that is open; in an array key is NULL. A NULL string is null. */
void json_str(struct json *j, const char *key, const char *value);
void json_bytes(struct json *j, const char *key, const void *value, size_t len);
void json_int(struct json *j, const char *key, int64_t value);
void json_uint(struct json *j, const char *key, uint64_t value);
void json_real(struct json *j, const char *key, double value, int decimals); /* NaN is null */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
void json_open(struct json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);                 /* '}' or ']' */

#endif
