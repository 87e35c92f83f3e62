/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a subcommand, described by a table: parsing, checks, error messages and --help all
 * come from it.
 */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a subcommand returns to the shell. */
#define EXIT_OK 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2

enum arg_kind {
    ARG_FLAG,   /* int: 1 when given; takes no value */
    ARG_STR,    /* const char *, not empty */
    ARG_U64,    /* uint64_t within min..max */
    ARG_MS,     /* int64_t nanoseconds, written as whole milliseconds within min..max */
    ARG_REAL,   /* double, 0..max */
    ARG_SIZE,   /* struct arg_size, written WxH, each 1..16384 */
    ARG_CHOICE, /* int: index into choices */
};

struct arg_size {
    uint32_t width;
    uint32_t height;
};

struct arg_opt {
    const char *name; /* without the dashes */
    enum arg_kind kind;
    size_t offset;       /* of the value in the options struct */
    const char *value;   /* in --help and messages, e.g. "WxH"; NULL for flags */
    const char *help;    /* one line */
    const char *choices; /* ARG_CHOICE: "bars|counter|noise" */
    uint64_t min, max;   /* max 0 = no upper bound */
};

struct arg_spec {
    const char *command;  /* "recv" */
    const char *synopsis; /* after "clbridge ", in --help */
    const char *about;    /* paragraph of --help */
    const struct arg_opt *opts;
    size_t num_opts;
    const char *positional; /* name of the one positional argument; NULL = none */
    size_t positional_offset;
    const char *notes; /* last paragraph of --help; NULL = none */
};

enum arg_result { ARG_OK, ARG_HELP, ARG_BAD };

/*
 * Parses argv[0..argc) (without the program and the subcommand) into *values, which holds the
 * defaults. "--name value" and "--name=value"; "--" ends the options. On ARG_BAD exactly one line
 * was written to err; on ARG_HELP the help was written to out.
 */
enum arg_result args_parse(const struct arg_spec *spec, int argc, char **argv, void *values,
                           FILE *out, FILE *err);

/*
 * Told once, before anything is parsed: with --json anywhere among the words, a usage message is an
 * `error` event on standard output too. A command line that is wrong is not parsed to its end.
 */
void args_look_for_json(int argc, char **argv);

/* One usage message "clbridge recv: ...", and EXIT_USAGE. */
int args_usage(const char *command, FILE *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Text of choice number `index` of "a|b|c", as a static-lifetime copy in buf. */
const char *args_choice(const char *choices, int index, char *buf, size_t size);

/* "WxH"; 0, or -1 when it is not that. */
int args_parse_size(const char *text, struct arg_size *out);

#endif
