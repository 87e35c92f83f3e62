/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small session, in which the peer dies behind byte k of what it says, for every k. It creates,
 * writes, is released, acknowledges and releases a write of ours, closes its half, answers our CLOSE
 * and our RESET.
 */
#ifndef TESTS_DEATH_H
#define TESTS_DEATH_H

#include "scene.h"

enum death_by {
    BY_CLOSE,  /* takes what is said to it, then closes: an orderly FIN */
    BY_RESET,  /* RST */
    BY_HALF,   /* ends its half of the connection, and stays */
    BY_SILENCE /* stays, and says nothing more */
};

struct death {
    enum where where;
    enum death_by by;
};

void death_at_every_byte(const void *arg);

/* clang-format off */
#define DEATH(w, by) death_at_every_byte, &(const struct death){w, by}
#define DEATHS                                                                                     \
    {"death_at_every_byte.silence.host", DEATH(HOST_TCP, BY_SILENCE)},                             \
    {"death_at_every_byte.silence.device", DEATH(DEVICE_TCP, BY_SILENCE)},                         \
    {"death_at_every_byte.close.host", DEATH(HOST_TCP, BY_CLOSE)},                                 \
    {"death_at_every_byte.close.device", DEATH(DEVICE_TCP, BY_CLOSE)},                             \
    {"death_at_every_byte.reset.host", DEATH(HOST_TCP, BY_RESET)},                                 \
    {"death_at_every_byte.reset.device", DEATH(DEVICE_TCP, BY_RESET)},                             \
    {"death_at_every_byte.half.host", DEATH(HOST_TCP, BY_HALF)},                                   \
    {"death_at_every_byte.half.device", DEATH(DEVICE_TCP, BY_HALF)},                               \
    {"death_at_every_byte.close.host.local", DEATH(HOST_UNIX, BY_CLOSE)},                          \
    {"death_at_every_byte.close.device.local", DEATH(DEVICE_UNIX, BY_CLOSE)}
/* clang-format on */

#endif
