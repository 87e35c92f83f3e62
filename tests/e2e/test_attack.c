/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that lie, stop, vanish or flood. Each attack runs on a loop that it shares with a pair of
 * honest links, which must not notice; the attacked link ends as documented or survives; whatever
 * happens, memory, descriptors, threads and the books of the allocator come out even.
 */
#include "attack_kit.h"
#include "check.h"

int main(int argc, char **argv)
{
    check_watchdog(200);
    const int fds0 = check_fds(), threads0 = check_threads();
    honest_start();
    const int fds = check_fds(), threads = check_threads();
#define RUN(f)                                                                                     \
    do {                                                                                           \
        if (argc < 2 || strstr(#f, argv[1])) {                                                     \
            int64_t t0 = check_ms();                                                               \
            f;                                                                                     \
            check_back_to(fds, threads);                                                           \
            fprintf(stderr, "%s: %d ms\n", #f, (int)(check_ms() - t0));                            \
        }                                                                                          \
    } while (0)
    RUN(lies());
    RUN(beyond_the_window());
    RUN(silence());
    RUN(floods());
    RUN(death_at_every_byte(false));
    RUN(death_at_every_byte(true));
    RUN(noise(1500));
    RUN(silent_clients());
    RUN(random_moments(true, 4, 150));
    RUN(random_moments(false, 4, 150));
    honest_stop();
    check_back_to(fds0, threads0);
    return 0;
}
