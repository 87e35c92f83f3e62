/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that were built in: the only file that names them.
 */
#include "transport.h"

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
