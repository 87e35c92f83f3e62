/* SPDX-License-Identifier: Apache-2.0 */
/* The option parser of the command: values, messages, help. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"

struct values {
    int flag, choice;
    const char *text, *word;
    uint64_t number;
    int64_t ms;
    double real;
    struct arg_size size;
};

#define OPT(field) offsetof(struct values, field)

static const struct arg_opt opts[] = {
    {"flag", ARG_FLAG, OPT(flag), NULL, "a flag", NULL, 0, 0},
    {"choice", ARG_CHOICE, OPT(choice), NULL, "a choice", "one|two|three", 0, 0},
    {"text", ARG_STR, OPT(text), "TEXT", "a text", NULL, 0, 0},
    {"number", ARG_U64, OPT(number), "N", "a number", NULL, 2, 64},
    {"any", ARG_U64, OPT(number), "N", "a number", NULL, 0, 0},
    {"ms", ARG_MS, OPT(ms), "MS", "a time", NULL, 1, 0},
    {"real", ARG_REAL, OPT(real), "F", "a rate", NULL, 0, 1000},
    {"size", ARG_SIZE, OPT(size), "WxH", "a size", NULL, 0, 0},
    {"many", ARG_CHOICE, OPT(choice), NULL, "one of many",
     "choice-number-one|choice-number-two|choice-number-three|choice-number-four|"
     "choice-number-five|choice-number-six|choice-number-seven",
     0, 0},
};

static const struct arg_spec spec = {
    .command = "test",
    .synopsis = "test [WORD] [OPTIONS]",
    .about = "About.",
    .opts = opts,
    .num_opts = sizeof opts / sizeof opts[0],
    .positional = "WORD",
    .positional_offset = OPT(word),
    .notes = "Notes.",
};

static struct values v;
static char *said;

static enum arg_result parse(int argc, char **argv)
{
    size_t size;
    FILE *to = open_memstream(&said, &size);
    enum arg_result result;

    memset(&v, 0, sizeof v);
    result = args_parse(&spec, argc, argv, &v, to, to);
    fclose(to);
    return result;
}

#define PARSE(...)                                                                                 \
    parse((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

Test(args, values_in_both_spellings)
{
    cr_assert_eq(PARSE("--flag", "--choice", "three", "here", "--text=a=b", "--number", "64",
                       "--ms=1500", "--real", "29.97", "--size=1920x1080"),
                 ARG_OK, "%s", said);
    cr_expect_eq(v.flag, 1);
    cr_expect_eq(v.choice, 2);
    cr_expect_str_eq(v.word, "here");
    cr_expect_str_eq(v.text, "a=b");
    cr_expect_eq(v.number, 64u);
    cr_expect_eq(v.ms, 1500000000);
    cr_expect_float_eq(v.real, 29.97, 1e-9);
    cr_expect(v.size.width == 1920 && v.size.height == 1080);
    cr_expect_str_eq(said, "");
    cr_assert_eq(PARSE("--", "--flag"), ARG_OK);
    cr_expect_str_eq(v.word, "--flag");
    cr_assert_eq(PARSE("--any", "18446744073709551615"), ARG_OK);
    cr_expect_eq(v.number, UINT64_MAX);
}

static void expect_bad(char *name, char *value, const char *message)
{
    char want[400];

    cr_expect_eq(value ? PARSE(name, value) : PARSE(name), ARG_BAD, "%s %s", name, value);
    snprintf(want, sizeof want, "clbridge test: %s (try 'clbridge test --help')\n", message);
    cr_expect_str_eq(said, want);
}

Test(args, bad_values_are_told_in_one_line)
{
    expect_bad("--size", "1920", "--size wants WxH with sides from 1 to 16384, got '1920'");
    expect_bad("--size", "0x5", "--size wants WxH with sides from 1 to 16384, got '0x5'");
    expect_bad("--size", "5x", "--size wants WxH with sides from 1 to 16384, got '5x'");
    expect_bad("--size", "5x6x7", "--size wants WxH with sides from 1 to 16384, got '5x6x7'");
    expect_bad("--size", "-5x6", "--size wants WxH with sides from 1 to 16384, got '-5x6'");
    expect_bad("--size", "99999x1", "--size wants WxH with sides from 1 to 16384, got '99999x1'");
    expect_bad("--number", "1", "--number wants a whole number from 2 to 64, got '1'");
    expect_bad("--number", "65", "--number wants a whole number from 2 to 64, got '65'");
    expect_bad("--number", "0x10", "--number wants a whole number from 2 to 64, got '0x10'");
    expect_bad("--number", " 5", "--number wants a whole number from 2 to 64, got ' 5'");
    expect_bad("--number", "", "--number wants a whole number from 2 to 64, got ''");
    expect_bad("--any", "18446744073709551616",
               "--any wants a whole number of at least 0, got '18446744073709551616'");
    expect_bad("--any", "-1", "--any wants a whole number of at least 0, got '-1'");
    expect_bad("--ms", "0", "--ms wants a whole number of milliseconds of at least 1, got '0'");
    expect_bad("--ms", "9999999999999999",
               "--ms wants a whole number of milliseconds of at least 1, got '9999999999999999'");
    expect_bad("--real", "1001", "--real wants a number from 0 to 1000, got '1001'");
    expect_bad("--real", "-1", "--real wants a number from 0 to 1000, got '-1'");
    expect_bad("--real", "nan", "--real wants a number from 0 to 1000, got 'nan'");
    expect_bad("--real", "1e", "--real wants a number from 0 to 1000, got '1e'");
    expect_bad("--choice", "two|three", "--choice wants one of one|two|three, got 'two|three'");
    expect_bad("--choice", "thre", "--choice wants one of one|two|three, got 'thre'");
    expect_bad("--text", "", "--text wants TEXT, got ''");
    expect_bad("--text", NULL, "--text wants TEXT");
    expect_bad("--flag=1", NULL, "--flag takes no value");
    expect_bad("--flagged", NULL, "there is no option --flagged");
    expect_bad("-x", NULL, "there is no option -x");
    expect_bad("a", "b", "unexpected argument 'b'");
}

Test(args, nothing_of_a_value_reaches_the_terminal_raw)
{
    expect_bad("--size", "a\nb\x1b[2J",
               "--size wants WxH with sides from 1 to 16384, got 'a?b?[2J'");
}

Test(args, help_names_every_option)
{
    cr_assert_eq(PARSE("--number", "5", "-h"), ARG_HELP);
    for (size_t i = 0; i < spec.num_opts; i++) {
        char word[32];

        snprintf(word, sizeof word, "--%s", opts[i].name);
        cr_expect(strstr(said, word), "%s", word);
    }
    cr_expect(strstr(said, "Usage: clbridge test [WORD] [OPTIONS]\n"));
    cr_expect(strstr(said, "Notes.\n"));
    cr_expect(strstr(said, "\n  --flag                  a flag\n"), "%s", said);
}

Test(args, a_long_list_of_choices_is_told_whole)
{
    char one[32];

    cr_assert_eq(PARSE("--help"), ARG_HELP);
    for (const char *line = said, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cr_expect_leq(end - line, 90, "%.*s", (int)(end - line), line);
    }
    for (int i = 0; i < 7; i++) {
        args_choice(opts[8].choices, i, one, sizeof one);
        cr_expect(strstr(said, one), "%s", one);
        cr_assert_eq(PARSE("--many", one), ARG_OK);
        cr_expect_eq(v.choice, i);
        cr_assert_eq(PARSE("--help"), ARG_HELP);
    }
    expect_bad("--many", "choice-number-eight",
               "--many wants one of choice-number-one|choice-number-two|choice-number-three|"
               "choice-number-four|choice-number-five|choice-number-six|choice-number-seven, got "
               "'choice-number-eight'");
}

Test(args, choices_by_number)
{
    char buf[16], tiny[3];

    cr_expect_str_eq(args_choice("one|two|three", 0, buf, sizeof buf), "one");
    cr_expect_str_eq(args_choice("one|two|three", 2, buf, sizeof buf), "three");
    cr_expect_str_eq(args_choice("one|two|three", 3, buf, sizeof buf), "?");
    cr_expect_str_eq(args_choice("one|two|three", 2, tiny, sizeof tiny), "th");
}
