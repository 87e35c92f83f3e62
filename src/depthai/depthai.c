/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of depthai packets. Neither direction is supported yet. */
#include <clbridge/depthai.h>

int clb_depthai_parse(clb_depthai_info *out, size_t size, const clb_depthai_parse_params *params)
{
    if (!out || size == 0 || !params || (!params->metadata && params->metadata_size > 0))
        return CLB_ERR_INVAL;
    return CLB_ERR_NOSYS;
}

int clb_depthai_write(void *out, size_t cap, size_t *written,
                      const clb_depthai_write_params *params)
{
    if ((!out && cap > 0) || !written || !params)
        return CLB_ERR_INVAL;
    return CLB_ERR_NOSYS;
}
