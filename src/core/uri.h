/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users write to name a peer: "scheme://rest", and the "host:port" that some schemes have
 * behind it. Pure text: nothing is resolved here.
 */
#ifndef CLBI_URI_H
#define CLBI_URI_H

#include "log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLBI_URI_MAX 1024 /* longer ones are refused */

struct clbi_uri {
    const char *scheme; /* into the given string, not terminated */
    size_t scheme_len;
    const char *rest; /* into the given string, to its end; may be "" */
};

/* Splits and checks. CLB_OK, or CLB_ERR_INVAL with *st filled (st and log may be NULL). */
int clbi_uri_parse(struct clbi_uri *out, const char *uri, struct clb_status *st,
                   const struct clb_log *log);

struct clbi_hostport {
    char host[256]; /* without brackets, never empty */
    bool bracketed; /* an IPv6 address was written in brackets */
    bool has_port;  /* the port was written, not defaulted */
    uint16_t port;
};

/* "host", "host:port", "[v6]", "[v6]:port". What `host` may be is for the resolver to say; "*" passes.
 * CLB_OK, or CLB_ERR_INVAL with *st filled. */
int clbi_hostport_parse(struct clbi_hostport *out, const char *address, uint16_t default_port,
                        struct clb_status *st, const struct clb_log *log);

#endif
