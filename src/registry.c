/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that were built in: the only file that names them.
 */
#include "metadata.h"
#include "transport.h"

#include <clbridge/depthai.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

static const struct clbi_transport_ops *const transports[] = {
    &clbi_tcp_ops,
    &clbi_usb_ops,
    &clbi_local_ops,
};

const struct clbi_transport_ops *clbi_transport_find(const char *scheme, size_t len)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        const char *name = transports[i]->scheme;
        /* Schemes are case-insensitive (RFC 3986, section 3.1). */
        if (strncasecmp(name, scheme, len) == 0 && name[len] == '\0')
            return transports[i];
    }
    return NULL;
}

const struct clbi_transport_ops *clbi_transport_for_fd(int fd)
{
    int domain, type;
    socklen_t len = sizeof domain;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
        return NULL;
    len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
        return NULL;
    /* A connected AF_UNIX stream moves bytes as TCP does, and the same code serves it. */
    if (domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX)
        return &clbi_tcp_ops;
    return NULL;
}

int clbi_metadata_parse(struct clbi_metadata *out, const void *metadata, size_t size,
                        size_t data_size, int32_t object_type)
{
    const clb_depthai_parse_params params = {.struct_size = sizeof params,
                                             .metadata = metadata,
                                             .metadata_size = size,
                                             .data_size = data_size,
                                             .object_type = object_type};
    clb_depthai_info info;
    int err = clb_depthai_parse(&info, sizeof info, &params);

    memset(out, 0, sizeof *out);
    if (err < 0) /* INVAL: more than any depthai sends, by leave of max_metadata */
        return err == CLB_ERR_PROTO ? err : CLB_OK;
    out->image = info.image;
    if (info.kind == CLB_DEPTHAI_SPLIT) {
        out->part = CLB_PART_SPLIT_HEAD;
        out->parts = info.split_packets;
        out->part_bytes = info.split_bytes;
    } else if (info.kind == CLB_DEPTHAI_GROUP) {
        out->part = CLB_PART_GROUP_HEAD;
        out->parts = info.group_members;
    }
    return CLB_OK;
}
