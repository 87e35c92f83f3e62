/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that lie, stop, vanish or flood, one case for each row of section 10 of the wire protocol's
 * description. Some attacks run on a loop that they share with a pair of honest links, which must not
 * notice. The attacked link ends as documented or survives; whatever happens, memory, descriptors,
 * threads and the books of the allocator come out even.
 */
#include "attack_kit.h"
#include "cases.h"
#include "check.h"
#include "death.h"
#include "rows.h"

#define TOGETHER 6

static void beside_honest_links(const void *arg)
{
    void (*const *fn)(void) = arg;
    honest_start();
    const int fds = check_fds(), threads = check_threads();
    (*fn)();
    check_back_to(fds, threads);
    honest_stop();
}

static void noise_of_headers(void)
{
    noise(1500);
}

static void random_moments_shared(void)
{
    random_moments(true, 4, 150);
}

static void random_moments_own(void)
{
    random_moments(false, 4, 150);
}

/* clang-format off */
#define HONEST(fn) {#fn, beside_honest_links, &(void (*const)(void)){fn}}
/* clang-format on */

int main(int argc, char **argv)
{
    const struct test_case cases[] = {
        DEATHS,
        BOTH(header_short),
        BOTH(type_out_of_table),
        BOTH(answer_without_request),
        BOTH(answer_twice),
        BOTH(id_any_value),
        BOTH(name_without_nul),
        BOTH(name_empty),
        BOTH(name_hostile),
        BOTH(time_nonsense),
        HONEST(stream_unknown_on_write),
        BOTH(stream_unknown_on_release),
        BOTH(stream_unknown_on_close),
        BOTH(stream_id_out_of_range),
        BOTH(stream_id_of_another_name),
        HONEST(size_beyond_window),
        HONEST(size_beyond_what_is_left),
        HONEST(size_beyond_maximum),
        HONEST(packets_beyond_64),
        HONEST(empty_packets_beyond_64),
        BOTH(window_of_0),
        BOTH(window_huge),
        BOTH(window_raised_for_ever),
        BOTH(streams_more_than_32),
        HONEST(create_flood),
        HONEST(release_beyond_fill),
        HONEST(release_of_nothing),
        BOTH(flood_is_answered),
        BOTH_LOCAL(flood_is_answered_late),
        HONEST(flood_unread),
        HONEST(peer_never_reads),
        HONEST(idle_is_no_stall),
        HONEST(payload_cut_off),
        BOTH(close_with_unreleased),
        BOTH(reset_at_any_time),
        {"second_client", second_client, ADDR(DEVICE_TCP)},
        BOTH_LOCAL(descriptors_sent_along),
        BOTH(answers_carry_no_old_bytes),
        HONEST(silent_clients),
        HONEST(noise_of_headers),
        HONEST(random_moments_shared),
        HONEST(random_moments_own),
    };
    return cases_run(argc, argv, cases, sizeof cases / sizeof *cases, TOGETHER, 60);
}
