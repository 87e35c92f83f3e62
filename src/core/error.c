/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and texts of the error codes, made from the one list in common.h, and the version.
 */
#include <clbridge/common.h>

const char *clb_error_name(int err)
{
    switch (err) {
    case CLB_OK: return "OK";
#define CASE(name, value, text)                                                                    \
    case value: return #name;
        CLB_ERROR_MAP(CASE)
#undef CASE
    default: return "UNKNOWN";
    }
}

const char *clb_error_str(int err)
{
    switch (err) {
    case CLB_OK: return "no error";
#define CASE(name, value, text)                                                                    \
    case value: return text;
        CLB_ERROR_MAP(CASE)
#undef CASE
    default: return "unknown error";
    }
}

const char *clb_version_str(void)
{
    return CLB_VERSION_STRING;
}

unsigned clb_version(void)
{
    return (unsigned)CLB_VERSION_MAJOR << 16 | (unsigned)CLB_VERSION_MINOR << 8 |
           (unsigned)CLB_VERSION_PATCH;
}
