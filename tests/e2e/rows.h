/* SPDX-License-Identifier: Apache-2.0 */
/* Cases named after the rows of section 10 of the wire protocol's description, and their pieces. */
#ifndef TESTS_ROWS_H
#define TESTS_ROWS_H

#include "scene.h"

/* Answers what comes until the answer of this type and id is there. */
const struct clbi_wire_header *answer(struct peer *p, uint32_t type, int32_t id);
/* Sends a request and waits for its answer. */
const struct clbi_wire_header *ask(struct peer *p, uint32_t type, const char *name,
                                   uint32_t stream_id, uint32_t size);

#define NO_WRITES 0xFFFFFFFFu
/* The victim opens "a" with this window (0 = it does not; NO_WRITES = to read alone), and reads. err
 * CLB_OK: the script ends with passed() and the link is up then; else the link ends with it. */
void row(const void *where, script fn, int arg, uint32_t window, int err);
void row_scene(struct scene *sc, uint32_t window, int err);
/* The last thing that a script does when all is well. */
void passed(struct peer *p, struct scene *sc);

/* attack_rows.c */
void header_short(const void *where);
void type_out_of_table(const void *where);
void id_any_value(const void *where);
void time_nonsense(const void *where);
void answer_without_request(const void *where);
void answer_twice(const void *where);
void name_without_nul(const void *where);
void name_empty(const void *where);
void name_hostile(const void *where);
void stream_unknown_on_release(const void *where);
void stream_unknown_on_close(const void *where);
void stream_id_out_of_range(const void *where);
void stream_id_of_another_name(const void *where);
void window_of_0(const void *where);
void window_huge(const void *where);
void window_raised_for_ever(const void *where);
void streams_more_than_32(const void *where);

/* attack_rows_flow.c */
void answers_carry_no_old_bytes(const void *where);
void close_with_unreleased(const void *where);
void descriptors_sent_along(const void *where);
void flood_is_answered(const void *where);
void flood_is_answered_late(const void *where);
void reset_at_any_time(const void *where);
void second_client(const void *where);

#endif
