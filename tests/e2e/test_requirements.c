/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requirements of section 12 of the wire protocol's description that no row of its section 10 covers,
 * one case for each, on real links in both roles. docs/wire-robustness.md tells where the others are.
 */
#include "requirements.h"

int main(int argc, char **argv)
{
    const struct test_case cases[] = {
        BOTH(r04_no_memory_keeps_step),
        BOTH(r06_fault_stays_with_its_stream),
        BOTH(r08_end_wakes_everyone),
        {"r08_end_wakes_everyone.local", r08_end_wakes_everyone, ADDR(HOST_UNIX)},
        BOTH(r09_unanswered_is_no_success),
        BOTH(r10_timed_out_read_loses_nothing),
        BOTH(r19_halves_are_independent),
        BOTH(r20_one_send),
        BOTH(r21_no_allocation_in_steady_state),
        BOTH(r22_payload_lands_in_the_allocators_memory),
        BOTH(r23_release_when_given_back),
        BOTH(r24_operations_complete_one_by_one),
        ALONE(r25_links_share_nothing),
        BOTH(r26_write_with_descriptor),
        {"r26_write_with_descriptor.local", r26_write_with_descriptor, ADDR(HOST_UNIX)},
        BOTH(r27_no_signal),
        {"r27_no_signal.local.host", r27_no_signal, ADDR(HOST_UNIX)},
        {"r27_no_signal.local.device", r27_no_signal, ADDR(DEVICE_UNIX)},
        ALONE(r28_failed_connect_is_an_error),
        BOTH(r34_idle_sleeps),
    };
    return cases_run(argc, argv, cases, sizeof cases / sizeof *cases, 8, 30);
}
