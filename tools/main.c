/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge: camera frames over XLink straight into mapped OpenCL memory, from the command line.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <clbridge/common.h>

#include "args.h"
#include "commands.h"
#include "signals.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"send", command_send, "send test pictures to one peer"},
    {"recv", command_recv, "receive frames, process, verify and save them"},
    {"devices", command_devices, "list OpenCL devices"},
    {"discover", command_discover, "look for cameras"},
    {"bench", command_bench, "measure (not in this version)"},
};

#define NUM_COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *out)
{
    fputs("Usage: clbridge COMMAND [OPTIONS]\n\n"
          "Camera frames over XLink straight into mapped OpenCL memory.\n\n",
          out);
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n  --help     this text; 'clbridge COMMAND --help' tells the options\n"
          "  --version  version of the library\n"
          "\n"
          "Exit status: 0 success, 1 failure, 2 wrong usage. SIGINT, SIGTERM and SIGHUP end send "
          "and\n"
          "recv cleanly with 0: the peer is told and the summary printed, unless nobody was "
          "connected\n"
          "yet. With --json every failure, wrong usage too, is also an `error` event.\n",
          out);
}

/* A descriptor 0 to 2 that is closed would be given to the next socket, which then received our
 * output. An occupied but unwritable one fails as a closed one does. */
static void occupy_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Help is written by stdio and may not have been written at all. That nobody listens is no failure. */
static int close_output(int rc)
{
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE && errno != EBADF) {
        fprintf(stderr, "clbridge: standard output: %s\n", errno ? strerror(errno) : "write error");
        return rc ? rc : EXIT_FAILED;
    }
    return rc;
}

int main(int argc, char **argv)
{
    int rc;

    occupy_standard_descriptors();
    args_look_for_json(argc, argv);
    if (argc < 2)
        return args_usage("", stderr, "a command is missing");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return close_output(EXIT_OK);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("clbridge %s\n", clb_version_str());
        return close_output(EXIT_OK);
    }
    rc = signals_start();
    if (rc) {
        fprintf(stderr, "clbridge: signals: %s\n", strerror(rc));
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            rc = commands[i].run(argc - 2, argv + 2);
            signals_end();
            return close_output(rc);
        }
    return args_usage("", stderr, "there is no command '%.40s'", argv[1]);
}
