/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking for cameras. No transport of this build can.
 */
#include <clbridge/link.h>

int clb_discover(enum clb_transport transport, int64_t timeout_ns, clb_device_info *out,
                 size_t elem_size, size_t cap, size_t *count)
{
    (void)timeout_ns;
    if (!count || elem_size == 0 || (!out && cap > 0))
        return CLB_ERR_INVAL;
    switch (transport) {
    case CLB_TRANSPORT_ANY:
    case CLB_TRANSPORT_TCP:
    case CLB_TRANSPORT_USB:
    case CLB_TRANSPORT_LOCAL: return CLB_ERR_NOSYS;
    }
    return CLB_ERR_INVAL;
}
