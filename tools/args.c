/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table-driven option parser.
 */
#include "args.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <clbridge/common.h>

#include "json.h"

#define NS_PER_MS 1000000
#define MAX_SIDE 16384

/* A value of the user in a message: bounded, and no control character reaches the terminal. */
static const char *shown(const char *text, char *buf, size_t size)
{
    size_t n = 0;

    for (; *text && n + 4 < size; text++)
        buf[n++] = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    if (*text) {
        memcpy(buf + n, "...", 3);
        n += 3;
    }
    buf[n] = '\0';
    return buf;
}

static bool usage_events;

void args_look_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        usage_events |= !strcmp(argv[i], "--json");
}

static void print_event(const char *message)
{
    struct json j;

    json_init(&j, STDOUT_FILENO, false);
    json_begin(&j, "error");
    json_str(&j, "code", clb_error_name(CLB_ERR_INVAL));
    json_null(&j, "domain");
    json_null(&j, "native");
    json_str(&j, "where", "command line");
    json_str(&j, "message", message);
    json_end(&j);
    json_free(&j);
}

int args_usage(const char *command, FILE *err, const char *fmt, ...)
{
    const char *space = *command ? " " : "";
    char message[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (usage_events)
        print_event(message);
    fprintf(err, "clbridge%s%s: %s (try 'clbridge%s%s --help')\n", space, command, message, space,
            command);
    return EXIT_USAGE;
}

/* Digits only: strtoull would take " -1", "+1" and "0x1". */
static int parse_u64(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    if (!*text)
        return -1;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');

        if (digit > 9 || value > (UINT64_MAX - digit) / 10)
            return -1;
        value = value * 10 + digit;
    }
    *out = value;
    return 0;
}

static int parse_real(const char *text, double *out)
{
    char *end;

    if (!strchr("0123456789.", *text) || !*text || strpbrk(text, "xXnN"))
        return -1;
    errno = 0;
    *out = strtod(text, &end);
    return *end || errno || !isfinite(*out) ? -1 : 0;
}

int args_parse_size(const char *text, struct arg_size *out)
{
    const char *x = strchr(text, 'x');
    char width[8];
    uint64_t w, h;

    if (!x || (size_t)(x - text) >= sizeof width)
        return -1;
    memcpy(width, text, (size_t)(x - text));
    width[x - text] = '\0';
    if (parse_u64(width, &w) || parse_u64(x + 1, &h) || w < 1 || h < 1 || w > MAX_SIDE ||
        h > MAX_SIDE)
        return -1;
    out->width = (uint32_t)w;
    out->height = (uint32_t)h;
    return 0;
}

const char *args_choice(const char *choices, int index, char *buf, size_t size)
{
    size_t len;

    while (index-- > 0 && (choices = strchr(choices, '|')))
        choices++;
    if (!choices)
        choices = "?";
    len = strcspn(choices, "|");
    if (len >= size)
        len = size - 1;
    memcpy(buf, choices, len);
    buf[len] = '\0';
    return buf;
}

static int parse_choice(const char *choices, const char *text, int *out)
{
    size_t len = strlen(text);

    for (int i = 0; choices; i++) {
        size_t n = strcspn(choices, "|");

        if (n == len && !memcmp(choices, text, len)) {
            *out = i;
            return 0;
        }
        choices = choices[n] ? choices + n + 1 : NULL;
    }
    return -1;
}

static int parse_number(const struct arg_opt *opt, const char *text, uint64_t *out)
{
    if (parse_u64(text, out) || *out < opt->min || (opt->max && *out > opt->max))
        return -1;
    return 0;
}

/* "wants a number from 1 to 64": what a refused value should have been. */
static void wanted(const struct arg_opt *opt, char *buf, size_t size)
{
    const char *unit = opt->kind == ARG_MS ? " of milliseconds" : "";

    switch (opt->kind) {
    case ARG_U64:
    case ARG_MS:
        if (opt->max)
            snprintf(buf, size, "a whole number%s from %llu to %llu", unit,
                     (unsigned long long)opt->min, (unsigned long long)opt->max);
        else
            snprintf(buf, size, "a whole number%s of at least %llu", unit,
                     (unsigned long long)opt->min);
        break;
    case ARG_REAL:
        snprintf(buf, size, "a number from 0 to %llu", (unsigned long long)opt->max);
        break;
    case ARG_SIZE: snprintf(buf, size, "WxH with sides from 1 to %d", MAX_SIDE); break;
    case ARG_CHOICE: snprintf(buf, size, "one of %s", opt->choices); break;
    case ARG_FLAG:
    case ARG_STR: snprintf(buf, size, "%s", opt->value ? opt->value : "a value"); break;
    }
}

static int store(const struct arg_opt *opt, const char *text, void *values)
{
    void *at = (char *)values + opt->offset;
    uint64_t number;

    switch (opt->kind) {
    case ARG_FLAG: *(int *)at = 1; return 0;
    case ARG_STR: *(const char **)at = text; return *text ? 0 : -1;
    case ARG_U64: return parse_number(opt, text, at);
    case ARG_MS:
        if (parse_number(opt, text, &number) || number > INT64_MAX / NS_PER_MS)
            return -1;
        *(int64_t *)at = (int64_t)number * NS_PER_MS;
        return 0;
    case ARG_REAL:
        return parse_real(text, at) || (opt->max && *(double *)at > (double)opt->max) ? -1 : 0;
    case ARG_SIZE: return args_parse_size(text, at);
    case ARG_CHOICE: return parse_choice(opt->choices, text, at);
    }
    return -1;
}

static const struct arg_opt *find(const struct arg_spec *spec, const char *name, size_t len)
{
    for (size_t i = 0; i < spec->num_opts; i++)
        if (strlen(spec->opts[i].name) == len && !memcmp(spec->opts[i].name, name, len))
            return &spec->opts[i];
    return NULL;
}

/* Column of the help texts, and where a long list of choices is broken. */
#define HELP_LEFT 26
#define HELP_RIGHT 90

/* "--format a|b|c", over as many lines as it takes. Returns the columns of the last one. */
static size_t print_choices(const struct arg_opt *opt, FILE *out)
{
    size_t at = (size_t)fprintf(out, "  --%s ", opt->name);

    for (const char *c = opt->choices; *c;) {
        size_t len = strcspn(c, "|") + (c[strcspn(c, "|")] == '|');

        if (at + len > HELP_RIGHT)
            at = (size_t)fprintf(out, "\n%*s", HELP_LEFT, "") - 1;
        at += (size_t)fprintf(out, "%.*s", (int)len, c);
        c += len;
    }
    return at;
}

static void print_help(const struct arg_spec *spec, FILE *out)
{
    fprintf(out, "Usage: clbridge %s\n\n%s\n\n", spec->synopsis, spec->about);
    for (size_t i = 0; i < spec->num_opts; i++) {
        const struct arg_opt *opt = &spec->opts[i];
        size_t at;

        if (opt->kind == ARG_CHOICE)
            at = print_choices(opt, out);
        else
            at = (size_t)fprintf(out, "  --%s%s%s", opt->name, opt->value ? " " : "",
                                 opt->value ? opt->value : "");
        if (at <= HELP_LEFT - 2)
            fprintf(out, "%*s%s\n", (int)(HELP_LEFT - at), "", opt->help);
        else
            fprintf(out, "\n%*s%s\n", HELP_LEFT, "", opt->help);
    }
    fprintf(out, "  %-*s%s\n", HELP_LEFT - 2, "--help", "this text");
    if (spec->notes)
        fprintf(out, "\n%s\n", spec->notes);
}

/* One option at argv[*at]; *at is left on its last word. */
static int parse_option(const struct arg_spec *spec, int argc, char **argv, int *at, void *values,
                        FILE *err)
{
    const char *name = argv[*at] + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] ? name + len + 1 : NULL;
    const struct arg_opt *opt = find(spec, name, len);
    char got[80], want[256];

    if (!opt)
        return args_usage(spec->command, err, "there is no option %s",
                          shown(argv[*at], got, sizeof got));
    if (opt->kind == ARG_FLAG) {
        if (value)
            return args_usage(spec->command, err, "--%s takes no value", opt->name);
    } else if (!value) {
        wanted(opt, want, sizeof want);
        if (*at + 1 >= argc)
            return args_usage(spec->command, err, "--%s wants %s", opt->name, want);
        value = argv[++*at];
    }
    if (store(opt, value, values)) {
        wanted(opt, want, sizeof want);
        return args_usage(spec->command, err, "--%s wants %s, got '%s'", opt->name, want,
                          shown(value, got, sizeof got));
    }
    return 0;
}

enum arg_result args_parse(const struct arg_spec *spec, int argc, char **argv, void *values,
                           FILE *out, FILE *err)
{
    const char **positional = (const char **)(void *)((char *)values + spec->positional_offset);
    int only_words = 0, have = 0;
    char got[80];

    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];

        if (!only_words && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            print_help(spec, out);
            return ARG_HELP;
        }
        if (!only_words && !strcmp(word, "--")) {
            only_words = 1;
        } else if (!only_words && word[0] == '-' && word[1]) {
            if (word[1] != '-') {
                args_usage(spec->command, err, "there is no option %s",
                           shown(word, got, sizeof got));
                return ARG_BAD;
            }
            if (parse_option(spec, argc, argv, &i, values, err))
                return ARG_BAD;
        } else if (!spec->positional || have) {
            args_usage(spec->command, err, "unexpected argument '%s'",
                       shown(word, got, sizeof got));
            return ARG_BAD;
        } else {
            *positional = word;
            have = 1;
        }
    }
    return ARG_OK;
}
