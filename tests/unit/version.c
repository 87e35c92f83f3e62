/* SPDX-License-Identifier: Apache-2.0 */
/* The generated header agrees with itself. */
#include <clbridge/config.h>

#include <criterion/criterion.h>
#include <stdio.h>

Test(version, string_is_made_of_the_numbers)
{
    char buf[64];

    snprintf(buf, sizeof buf, "%d.%d.%d", CLB_VERSION_MAJOR, CLB_VERSION_MINOR, CLB_VERSION_PATCH);
    cr_assert_str_eq(buf, CLB_VERSION_STRING);
}
