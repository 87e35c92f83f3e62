/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge bench: the place of the benchmarks.
 */
#include "args.h"
#include "commands.h"

#include <string.h>

int command_bench(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            puts("Usage: clbridge bench\n\nNot in this version.");
            return EXIT_OK;
        }
    return args_usage("bench", stderr, "not in this version");
}
