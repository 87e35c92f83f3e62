/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of the TCP transport: names to addresses, addresses to text, failures to text.
 *
 * A resolution is a job with two owners, the thread that waits inside the system's resolver and the
 * one that asked. Whoever leaves last frees it, so that abandoning one never waits.
 */
#include "log.h"
#include "os.h"
#include "tcp_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int clbi_tcp_fail(struct clb_status *st, const struct clb_log *log, enum clb_error err, int native,
                  const char *hint, const char *fmt, ...)
{
    struct clb_status local;
    char what[160], msg[80];
    va_list ap;

    if (!st)
        st = &local;
    va_start(ap, fmt);
    if (vsnprintf(what, sizeof what, fmt, ap) < 0)
        what[0] = '\0';
    va_end(ap);
    clbi_fail(st, log, err, CLB_DOMAIN_NONE, 0, "%s: %s%s%s", what,
              strerror_r(native, msg, sizeof msg), hint ? "; " : "", hint ? hint : "");
    st->domain = CLB_DOMAIN_ERRNO;
    st->native = native;
    return err;
}

static void plain_text(const struct sockaddr *addr, char *host, size_t host_cap, char *port,
                       size_t port_cap)
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;

    if (addr->sa_family == AF_INET6)
        memcpy(&v6, addr, sizeof v6);
    else
        memcpy(&v4, addr, sizeof v4);
    if (!(addr->sa_family == AF_INET6
              ? inet_ntop(AF_INET6, &v6.sin6_addr, host, (socklen_t)host_cap)
              : inet_ntop(AF_INET, &v4.sin_addr, host, (socklen_t)host_cap)))
        snprintf(host, host_cap, "?");
    snprintf(port, port_cap, "%u", ntohs(addr->sa_family == AF_INET6 ? v6.sin6_port : v4.sin_port));
}

void clbi_tcp_addr_text(char *out, size_t cap, const struct sockaddr *addr, socklen_t len)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    char host[80], port[8];

    if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6) {
        snprintf(out, cap, "%s", addr->sa_family == AF_UNIX ? "unix" : "?");
        return;
    }
    if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, addr, sizeof v6);
        /* An IPv4 peer of a socket that serves both. */
        if (memcmp(&v6.sin6_addr, mapped, sizeof mapped) == 0) {
            memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
            v4.sin_port = v6.sin6_port;
            addr = (const struct sockaddr *)&v4;
            len = sizeof v4;
        }
    }
    /* It needs memory, unlike inet_ntop(), but knows the names of scopes. */
    if (getnameinfo(addr, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        plain_text(addr, host, sizeof host, port, sizeof port);
    snprintf(out, cap, addr->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static struct addrinfo make_hints(const struct clbi_hostport *hp, int flags)
{
    return (struct addrinfo){
        .ai_family = hp->bracketed ? AF_INET6 : AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP,
        .ai_flags = flags | AI_NUMERICSERV,
    };
}

int clbi_tcp_numeric(const struct clbi_hostport *hp, int flags, struct addrinfo **out)
{
    struct addrinfo hints = make_hints(hp, flags | AI_NUMERICHOST);
    char port[8];

    snprintf(port, sizeof port, "%u", hp->port);
    return getaddrinfo(hp->host, port, &hints, out);
}

struct clbi_tcp_resolve {
    pthread_mutex_t mutex; /* guards refs, done and the result */
    unsigned refs;
    bool done;
    int gai, sys;
    struct addrinfo *result;
    int wakefd;
    int flags;
    struct clbi_hostport target;
};

void clbi_tcp_resolve_drop(struct clbi_tcp_resolve *job)
{
    bool last;

    if (!job)
        return;
    pthread_mutex_lock(&job->mutex);
    last = --job->refs == 0;
    pthread_mutex_unlock(&job->mutex);
    if (!last)
        return;
    if (job->result)
        freeaddrinfo(job->result);
    close(job->wakefd);
    pthread_mutex_destroy(&job->mutex);
    free(job);
}

static void *resolve_main(void *arg)
{
    struct clbi_tcp_resolve *job = arg;
    struct addrinfo hints = make_hints(&job->target, job->flags), *result = NULL;
    char port[8];
    int gai, sys;

    snprintf(port, sizeof port, "%u", job->target.port);
    gai = getaddrinfo(job->target.host, port, &hints, &result);
    sys = errno;

    pthread_mutex_lock(&job->mutex);
    job->gai = gai;
    job->sys = sys;
    job->result = gai ? NULL : result;
    job->done = true;
    pthread_mutex_unlock(&job->mutex);
    clbi_wakefd_set(job->wakefd);
    clbi_tcp_resolve_drop(job);
    return NULL;
}

struct clbi_tcp_resolve *clbi_tcp_resolve_start(const struct clbi_hostport *hp, int flags)
{
    struct clbi_tcp_resolve *job = calloc(1, sizeof *job);
    pthread_t thread;
    int err;

    if (!job)
        return NULL;
    job->target = *hp;
    job->flags = flags;
    job->refs = 1;
    job->wakefd = clbi_wakefd_open();
    if (job->wakefd < 0) {
        err = errno;
        free(job);
        errno = err;
        return NULL;
    }
    err = pthread_mutex_init(&job->mutex, NULL);
    if (err) {
        close(job->wakefd);
        free(job);
        errno = err;
        return NULL;
    }
    job->refs = 2;
    err = clbi_thread_create(&thread, "clb-resolve", resolve_main, job);
    if (err) {
        job->refs = 1;
        clbi_tcp_resolve_drop(job);
        errno = err;
        return NULL;
    }
    pthread_detach(thread);
    return job;
}

int clbi_tcp_resolve_fd(const struct clbi_tcp_resolve *job)
{
    return job->wakefd;
}

int clbi_tcp_resolve_fail(struct clb_status *st, const struct clb_log *log, const char *host,
                          int gai, int sys)
{
    char shown[100];
    enum clb_error err = CLB_ERR_NODEV;

    clbi_escape(shown, sizeof shown, host);
    if (gai == EAI_SYSTEM)
        return clbi_tcp_fail(st, log, CLB_ERR_IO, sys, NULL, "look up host \"%s\"", shown);
    if (gai == EAI_MEMORY)
        err = CLB_ERR_NOMEM;
    return clbi_fail(st, log, err, CLB_DOMAIN_RESOLVER, gai,
                     "unknown host \"%s\", check the spelling or give the address", shown);
}

int clbi_tcp_resolve_result(struct clbi_tcp_resolve *job, struct addrinfo **out,
                            struct clb_status *st, const struct clb_log *log)
{
    struct addrinfo *result;
    int gai, sys;
    bool done;

    pthread_mutex_lock(&job->mutex);
    done = job->done;
    gai = job->gai;
    sys = job->sys;
    result = job->result;
    job->result = NULL;
    pthread_mutex_unlock(&job->mutex);
    if (!done)
        return CLB_ERR_AGAIN;
    if (gai)
        return clbi_tcp_resolve_fail(st, log, job->target.host, gai, sys);
    *out = result;
    return CLB_OK;
}
