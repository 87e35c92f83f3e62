/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clbridge/common.h: error codes, status, log sink, version.
 *
 * Conventions of every header of this library:
 *
 *  - Functions return CLB_OK (0) or a negative `enum clb_error`. Out-parameters are written on
 *    success only; handle out-parameters are set to NULL at entry.
 *  - Times are int64_t nanoseconds on CLOCK_MONOTONIC. As an argument of a call: < 0 waits for
 *    ever, 0 polls. As a field of a params struct: 0 is the documented default, < 0 is never.
 *  - Zero is valid for every field of every params struct and means the documented default; a
 *    pointer of NULL to such a struct means all defaults unless a field is said to be needed.
 *    `struct_size` 0 means the first version of the struct; one larger than the library knows is
 *    accepted when the excess is zero. In C a macro of the struct's name fills it in:
 *    clb_stream_params(.name = "rgb"). In C++: clb_stream_params p{}; p.struct_size = sizeof p;
 *    Output structs are filled up to the size that is given with them.
 *  - Destroying functions take a pointer to the handle, set it to NULL, and accept NULL and a
 *    pointer to NULL. Handles may be destroyed in any order and from any thread.
 *  - Each comment names, in fixed words: @owner who owns what afterwards, @thread from where it
 *    may be called ("any" = from any number of threads at once), @blocks how long it can block,
 *    @return what is returned: short names there (INVAL) stand for CLB_ERR_INVAL and so on.
 *  - "Library threads" are those of loops ("clb-io") and OpenCL devices ("clb-cl"), callbacks
 *    included. They block all signals. A closing or destroying call that would wait is deferred
 *    there: the end comes later, by itself.
 *  - If a call that starts something fails, none of its callbacks will run.
 *  - Misuse (NULL, a wrong state) is an error code, where it can be seen. A library that was built
 *    with CLB_DEBUG_ABORT aborts when a buffer comes home twice.
 *  - The library reads no environment, installs no signal or exit handlers, raises no SIGPIPE, and
 *    its descriptors are close-on-exec. After fork() without exec() the handles are dead in the
 *    child.
 */
#ifndef CLBRIDGE_COMMON_H
#define CLBRIDGE_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include <clbridge/config.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, value, text: the one list from which the enum, the names and the messages are made. */
#define CLB_ERROR_MAP(X)                                                                           \
    X(AGAIN, -1, "nothing to do right now, try again")                                             \
    X(TIMEOUT, -2, "the deadline passed")                                                          \
    X(INVAL, -3, "invalid argument")                                                               \
    X(NOMEM, -4, "out of memory")                                                                  \
    X(NOBUFS, -5, "no buffer is free at the moment")                                               \
    X(NODEV, -6, "no such device")                                                                 \
    X(ACCESS, -7, "permission denied")                                                             \
    X(BUSY, -8, "in use by somebody else")                                                         \
    X(CLOSED, -9, "closed")                                                                        \
    X(PROTO, -10, "the peer broke the protocol")                                                   \
    X(TOOBIG, -11, "larger than the limit")                                                        \
    X(NOSYS, -12, "not supported by this build")                                                   \
    X(CANCELED, -13, "interrupted")                                                                \
    X(STATE, -14, "not allowed in this state")                                                     \
    X(IO, -15, "input/output error")                                                               \
    X(CL, -16, "OpenCL error")                                                                     \
    X(LOST, -17, "the link was lost")

enum clb_error {
    CLB_OK = 0, /* success */
#define CLB_ERROR_ENUM_(name, value, text) CLB_ERR_##name = value,
    CLB_ERROR_MAP(CLB_ERROR_ENUM_)
#undef CLB_ERROR_ENUM_
        CLB_ERROR_MIN_ = -2147483647 /* keeps the enum an int; never returned */
};

/** Where `clb_status.native` comes from. */
enum clb_domain {
    CLB_DOMAIN_NONE,     /* native is 0 */
    CLB_DOMAIN_ERRNO,    /* errno of the C library */
    CLB_DOMAIN_LIBUSB,   /* enum libusb_error */
    CLB_DOMAIN_OPENCL,   /* an OpenCL error code */
    CLB_DOMAIN_RESOLVER, /* an EAI_ code of getaddrinfo() */
};

/** The cause of a failure. Plain data, copied by value. */
struct clb_status {
    enum clb_error err;     /* CLB_OK: no failure */
    enum clb_domain domain; /* which list `native` belongs to */
    int native;             /* the code of the system below, 0 = none */
    char text[236];         /* what failed, where, and what to do; NUL-terminated UTF-8 or ASCII */
};

enum clb_log_level {
    CLB_LOG_DEFAULT = 0, /* as a threshold: CLB_LOG_WARN */
    CLB_LOG_ERROR = 1,   /* something ended: a call, a link, a buffer. One line per error */
    CLB_LOG_WARN = 2,    /* it goes on, but not as it should */
    CLB_LOG_INFO = 3,    /* what is there and what was chosen */
    CLB_LOG_DEBUG = 4,   /* for looking for faults in the library */
};

/**
 * Log sink, passed by value in params structs. cb NULL = silent.
 * The callback gets one line without a newline. @thread: called from any library or caller thread,
 * possibly from several at once; must not call back into the library; must not block for long.
 */
struct clb_log {
    void (*cb)(void *priv, enum clb_log_level level, const char *msg); /* NULL = silent */
    void *priv;               /* of cb, never looked into */
    enum clb_log_level level; /* least important level to report; 0 = WARN */
};

/**
 * A ready-made log callback: writes "clbridge: LEVEL: message" to standard error. `priv` is unused.
 * @owner msg is borrowed during the call. @thread any. @blocks on standard error.
 */
CLB_API void clb_log_stderr(void *priv, enum clb_log_level level, const char *msg);

/**
 * The name of a code without its prefix, e.g. "TIMEOUT"; "OK" for 0, "UNKNOWN" otherwise.
 * @owner static string. @thread any. @blocks no. @return never NULL.
 */
CLB_API const char *clb_error_name(int err);

/**
 * A short English description of a code.
 * @owner static string. @thread any. @blocks no. @return never NULL.
 */
CLB_API const char *clb_error_str(int err);

/**
 * The version of the library at run time.
 * @owner static string. @thread any. @blocks no. @return "MAJOR.MINOR.PATCH", never NULL.
 */
CLB_API const char *clb_version_str(void);

/**
 * The version of the library at run time as a number.
 * @owner nothing. @thread any. @blocks no. @return MAJOR << 16 | MINOR << 8 | PATCH.
 */
CLB_API unsigned clb_version(void);

#ifdef __cplusplus
}
#endif

#endif /* CLBRIDGE_COMMON_H */
