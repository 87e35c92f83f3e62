/* SPDX-License-Identifier: Apache-2.0 */
/* Cases named after the requirements of section 12 of the wire protocol's description. */
#ifndef TESTS_REQUIREMENTS_H
#define TESTS_REQUIREMENTS_H

#include "rows.h"

/* requirements_ends.c */
void r06_fault_stays_with_its_stream(const void *where);
void r08_end_wakes_everyone(const void *where);
void r09_unanswered_is_no_success(const void *where);
void r19_halves_are_independent(const void *where);
void r24_operations_complete_one_by_one(const void *where);
void r25_links_share_nothing(const void *where);
void r27_no_signal(const void *where);
void r28_failed_connect_is_an_error(const void *where);
void r34_idle_sleeps(const void *where);

/* requirements_data.c */
void r04_no_memory_keeps_step(const void *where);
void r10_timed_out_read_loses_nothing(const void *where);
void r20_one_send(const void *where);
void r21_no_allocation_in_steady_state(const void *where);
void r22_payload_lands_in_the_allocators_memory(const void *where);
void r23_release_when_given_back(const void *where);
void r26_write_with_descriptor(const void *where);

#endif
