/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands. argv[0] is the first word behind the name of the subcommand. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

int command_send(int argc, char **argv);
int command_recv(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_discover(int argc, char **argv);
int command_bench(int argc, char **argv);

#endif
