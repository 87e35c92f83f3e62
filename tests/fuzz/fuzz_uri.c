/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a URI: no read beyond it, results within their bounds, refusals have a text. */
#include "uri.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct clbi_hostport hp;
    struct clb_status st;
    struct clbi_uri uri;
    const char *rest = text;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';

    memset(&st, 0, sizeof st);
    if (clbi_uri_parse(&uri, text, &st, NULL) == CLB_OK) {
        check(uri.scheme == text && uri.scheme_len > 0);
        check(uri.rest == text + uri.scheme_len + 3);
        check(strlen(text) <= CLBI_URI_MAX);
        rest = uri.rest;
    } else {
        check(st.err == CLB_ERR_INVAL && st.text[0] != '\0' && strlen(st.text) < sizeof st.text);
    }

    memset(&st, 0, sizeof st);
    if (clbi_hostport_parse(&hp, rest, 11490, &st, NULL) == CLB_OK) {
        check(hp.host[0] != '\0' && strlen(hp.host) < sizeof hp.host);
        check(strncmp(rest + hp.bracketed, hp.host, strlen(hp.host)) == 0);
        check(hp.has_port || hp.port == 11490);
    } else {
        check(st.err == CLB_ERR_INVAL && st.text[0] != '\0' && strlen(st.text) < sizeof st.text);
    }
    free(text);
    return 0;
}
