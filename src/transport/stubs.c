/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-ins for the transports that are not in this build: they say so.
 */
#include "log.h"
#include "transport.h"

static int absent(const struct clb_log *log, const char *scheme, struct clb_status *st)
{
    return clbi_fail(st, log, CLB_ERR_NOSYS, CLB_DOMAIN_NONE, 0,
                     "%s:// is not in this build of clbridge; use tcp://host[:port]", scheme);
}

#if !CLB_HAVE_TCP
static int tcp_open(struct clbi_transport **out, const struct clbi_transport_env *env,
                    const char *address, struct clb_status *st)
{
    (void)out;
    (void)address;
    return absent(&env->log, "tcp", st);
}

static int tcp_adopt(struct clbi_transport **out, const struct clbi_transport_env *env, int fd,
                     struct clb_status *st)
{
    (void)out;
    (void)fd;
    return absent(&env->log, "tcp", st);
}

static int tcp_listen(struct clbi_acceptor **out, const struct clbi_acceptor_env *env,
                      const char *address, int64_t deadline, char *uri, size_t uri_cap,
                      struct clb_status *st)
{
    (void)out;
    (void)address;
    (void)deadline;
    (void)uri;
    (void)uri_cap;
    return absent(&env->log, "tcp", st);
}

const struct clbi_transport_ops clbi_tcp_ops = {
    .scheme = "tcp",
    .kind = CLB_TRANSPORT_TCP,
    .limits = {.packet_bytes = 1},
    .open = tcp_open,
    .adopt = tcp_adopt,
    .listen = tcp_listen,
};
#endif

#if !CLB_HAVE_USB
static int usb_open(struct clbi_transport **out, const struct clbi_transport_env *env,
                    const char *address, struct clb_status *st)
{
    (void)out;
    (void)address;
    return absent(&env->log, "usb", st);
}

const struct clbi_transport_ops clbi_usb_ops = {
    .scheme = "usb",
    .kind = CLB_TRANSPORT_USB,
    .limits = {.packet_bytes = 1},
    .open = usb_open,
};
#endif

static int local_open(struct clbi_transport **out, const struct clbi_transport_env *env,
                      const char *address, struct clb_status *st)
{
    (void)out;
    (void)address;
    return absent(&env->log, "local", st);
}

const struct clbi_transport_ops clbi_local_ops = {
    .scheme = "local",
    .kind = CLB_TRANSPORT_LOCAL,
    .limits = {.packet_bytes = 1},
    .open = local_open,
};
