#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function outside the library that it calls either fails in test_nosock or test_nomem (it has
a --wrap there), or stands here with the reason why it needs none."""
import argparse
import re
import subprocess
import sys

HARMLESS = {
    "memory and text only": "gai_strerror htons inet_ntop memchr memcmp memcpy memmove memset ntohs "
    "snprintf strchr strcmp strcspn strerror_r strlen strncasecmp strncmp strncpy strnlen strrchr "
    "strtol strtoul strtoull vsnprintf sigfillset",
    "gives back, and has no result": "free freeaddrinfo",
    "cannot fail with these arguments": "clock_gettime pthread_equal pthread_self pthread_sigmask "
    "pthread_detach pthread_join",
    "glibc allocates nothing in them": "pthread_cond_broadcast pthread_cond_destroy pthread_cond_init "
    "pthread_cond_signal pthread_cond_timedwait pthread_cond_wait pthread_condattr_destroy "
    "pthread_condattr_init pthread_condattr_setclock pthread_mutex_destroy pthread_mutex_init "
    "pthread_mutex_lock pthread_mutex_unlock",
    "only a name for people": "pthread_setname_np",
    "advice, whose result is not looked at": "madvise",
}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()

    needed, own = set(), set()
    for line in run(args.nm, args.library).splitlines():
        match = re.match(r"[0-9a-f ]* ([A-Za-z]) (\S+)$", line)
        if match:
            (needed if match.group(1) in "Uw" else own).add(match.group(2).split("@")[0])
    needed = {name for name in needed - own if not name.startswith("_")}
    wrapped = set()
    for program in args.programs:
        wrapped |= set(re.findall(r" [Tt] __wrap_(\S+)$", run(args.nm, program), flags=re.M))
    harmless = set(" ".join(HARMLESS.values()).split())

    bad = [f"{name}: no test makes it fail" for name in sorted(needed - wrapped - harmless)]
    bad += [f"{name}: fails in a test, and the library does not call it"
            for name in sorted(wrapped - needed)]
    bad += [f"{name}: is both" for name in sorted(wrapped & harmless)]
    print("\n".join(bad) or f"{len(needed & wrapped)} calls fail in the tests")
    return 1 if bad or len(needed) < 40 else 0


sys.exit(main())
