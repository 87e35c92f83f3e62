/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends and callbacks at awkward moments: handles closed from callbacks and from other threads while
 * calls are inside, streams that are opened and closed around a payload in flight, answers that
 * come early or never, loops that must neither spin nor starve a caller.
 */
#include "check.h"
#include "races_kit.h"

int main(int argc, char **argv)
{
    check_watchdog(100);
    const int fds = check_fds(), threads = check_threads();
#define RUN(f)                                                                                     \
    do {                                                                                           \
        if (argc < 2 || strstr(#f, argv[1])) {                                                     \
            fprintf(stderr, "%s\n", #f);                                                           \
            f;                                                                                     \
            check_back_to(fds, threads);                                                           \
        }                                                                                          \
    } while (0)
    RUN(idle_costs_nothing());
    RUN(close_needs_no_answer());
    RUN(early_answer());
    RUN(refused_while_writing());
    RUN(close_while_unanswered());
    RUN(reopened_writer_waits());
    RUN(polled_write());
    RUN(shutdown_amid_write());
    RUN(open_during_payload());
    RUN(reopen_during_payload());
    RUN(aligned_spill());
    RUN(entry_taken_over());
    RUN(close_in_last_ready(false));
    RUN(close_in_last_ready(true));
    RUN(close_in_state(CLB_LINK_CLOSING));
    RUN(close_in_state(CLB_LINK_DOWN));
    RUN(no_callback_after_close());
    RUN(close_in_ready_of_another());
    RUN(close_link_under_a_call());
    RUN(close_listener_in_callback());
    RUN(ready_tells_all());
    RUN(impatient_allocator());
    RUN(busy_neighbour());
    RUN(close_from_another_thread());
    RUN(close_under_accept(0));
    RUN(close_under_accept(1));
    return 0;
}
