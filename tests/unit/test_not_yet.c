/* SPDX-License-Identifier: Apache-2.0 */
/* What the API promises for later versions says so: CLB_ERR_NOSYS, not silence and not success. */
#include <clbridge/clbridge.h>
#include <criterion/criterion.h>
#include <string.h>

Test(not_yet, discovery)
{
    clb_device_info found[2];
    size_t count = 5;
    cr_assert_eq(clb_discover(CLB_TRANSPORT_ANY, 0, found, sizeof *found, 2, &count),
                 CLB_ERR_NOSYS);
    cr_assert_eq(clb_discover(CLB_TRANSPORT_ANY, 0, found, sizeof *found, 2, NULL), CLB_ERR_INVAL);
    cr_assert_eq(count, 5);
}

Test(not_yet, transports)
{
    static const char *const uris[] = {"usb://", "usb://1.2", "local:///run/x"};
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        struct clb_status st = {0};
        clb_link *link = NULL;
        cr_assert_eq(clb_link_open(&link, clb_link_params(.uri = uris[i], .status = &st)),
                     CLB_ERR_NOSYS, "%s", uris[i]);
        cr_assert_eq(st.err, CLB_ERR_NOSYS);
        cr_assert(strstr(st.text, "tcp://"), "%s", st.text);
        cr_assert_null(link);
    }
}
