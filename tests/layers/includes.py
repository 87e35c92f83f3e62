#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""includes.py ROOT: every #include line of the tree against a table.

The table first tries itself on lines that it must refuse and accept, so that
a slip in it does not pass everything unseen.
"""

import os
import re
import sys

CL_PUBLIC = {"cl.h", "preprocess.h", "opencv.hpp"}

# Folders whose files see public headers and their own folder, nothing else.
APPLICATIONS = ("tools", "bench", "examples")

# Of src/core, what a transport may use: no protocol, no links, no streams.
CORE_HELPERS = {"os.h", "log.h", "uri.h"}

# Sans-I/O code: no sockets, no clock, no memory, no threads.
PURE = re.compile(r"^src/core/(wire|proto|trailer|rows|image)\.[ch]$")
IMPURE_SYSTEM = re.compile(
    r"^(stdlib|time|unistd|fcntl|poll|pthread|threads|malloc|stdio)\.h$|^(sys|netinet|arpa)/")
IMPURE_OWN = {"os.h", "loop.h", "log.h"}

SOCKETS = re.compile(r"^(sys/socket|sys/un|netinet/.+|arpa/.+|netdb)\.h$")


def folder_of(path):
    """The part of the tree that a file belongs to."""
    parts = path.split("/")
    if parts[0] == "src":
        return "src/" + parts[1] if len(parts) > 2 else path
    return parts[0]


def check(path, quoted, name, target):
    """Why `path` may not include `name`, or None.

    target: path in the tree that a quoted name stands for, None if unknown.
    """
    part = folder_of(path)
    base = os.path.basename(path)

    if part == "tests":
        return None
    if ".." in name.split("/"):
        return "relative paths upwards hide what is included"

    # OpenCL itself.
    if re.match(r"(CL|OpenCL)/", name):
        if part in ("src/cl", "tools", "bench", "examples"):
            return None
        if part == "include" and base in CL_PUBLIC:
            return None
        return "OpenCL belongs in src/cl, cl.h and preprocess.h"
    if re.search(r"(^|/)libusb\.h$", name) and not re.match(r"src/transport/usb", path):
        return "libusb belongs in src/transport/usb*"

    # Public headers.
    public = re.match(r"clbridge/(.*)$", name)
    if public:
        header = public.group(1)
        if header not in CL_PUBLIC:
            return None
        if part == "include":
            return None if base in CL_PUBLIC | {"clbridge.hpp"} else "pulls OpenCL into a host-only header"
        if part in ("src/cl",) + APPLICATIONS:
            return None
        return "this part knows no OpenCL"

    if not quoted:
        if PURE.match(path) and IMPURE_SYSTEM.match(name):
            return "protocol code touches no socket, clock, memory or thread"
        if path == "src/core/log.c" and name == "netdb.h":
            return None  # the resolver's error texts
        if part in ("src/core", "src/cl", "src/depthai") and SOCKETS.match(name):
            return "sockets belong in src/transport"
        return None

    # Private headers.
    if part == "include":
        return "installed headers include each other as <clbridge/...>"
    if target is None:
        if part == "src/cl" and name == "clbi_kernels.h":
            return None
        return "no such file in the tree"
    to = folder_of(target)
    to_base = os.path.basename(target)
    if to == "include":
        return "public headers are included as <clbridge/...>"
    if to == part:
        if PURE.match(path) and to_base in IMPURE_OWN:
            return "protocol code touches no socket, clock, memory or thread"
        return None
    if part == "src/registry.c":
        return "the registry knows no OpenCL" if to == "src/cl" else None
    if part == "src/core":
        return None if target == "src/transport/transport.h" else "src/core sees transport.h and its own folder"
    if part == "src/transport":
        if to == "src/core" and to_base in CORE_HELPERS:
            return None
        return "transports know no protocol: of src/core only " + ", ".join(sorted(CORE_HELPERS))
    if part in APPLICATIONS:
        return "applications see the public headers only"
    return part + " sees public headers and its own folder"


SELF_TEST = [
    # path, line, target, allowed
    ("src/core/link.c", '"stream.h"', "src/core/stream.h", True),
    ("src/core/link.c", '"transport.h"', "src/transport/transport.h", True),
    ("src/core/link.c", '"tcp.h"', "src/transport/tcp.h", False),
    ("src/core/link.c", "<CL/cl.h>", None, False),
    ("src/core/link.c", "<clbridge/cl.h>", None, False),
    ("src/core/link.c", "<sys/socket.h>", None, False),
    ("src/core/link.c", "<netinet/tcp.h>", None, False),
    ("src/core/link.c", "<netdb.h>", None, False),
    ("src/core/log.c", "<netdb.h>", None, True),
    ("src/core/link.c", "<time.h>", None, True),
    ("src/core/proto.c", "<time.h>", None, False),
    ("src/core/proto.c", "<stdlib.h>", None, False),
    ("src/core/proto.c", "<string.h>", None, True),
    ("src/core/proto.c", '"os.h"', "src/core/os.h", False),
    ("src/core/queue.c", '"depthai.h"', "src/depthai/depthai.h", False),
    ("src/transport/tcp.c", '"wire.h"', "src/core/wire.h", False),
    ("src/transport/tcp.c", '"proto.h"', "src/core/proto.h", False),
    ("src/transport/tcp.c", '"link.h"', "src/core/link.h", False),
    ("src/transport/tcp.c", '"stream.h"', "src/core/stream.h", False),
    ("src/transport/tcp.c", '"os.h"', "src/core/os.h", True),
    ("src/transport/tcp.c", "<sys/socket.h>", None, True),
    ("src/transport/tcp.c", "<libusb-1.0/libusb.h>", None, False),
    ("src/transport/usb.c", "<libusb-1.0/libusb.h>", None, True),
    ("src/depthai/nop.c", '"os.h"', "src/core/os.h", False),
    ("src/depthai/nop.c", "<clbridge/depthai.h>", None, True),
    ("src/depthai/nop.c", "<clbridge/cl.h>", None, False),
    ("src/cl/pool.c", '"worker.h"', "src/cl/worker.h", True),
    ("src/cl/pool.c", '"os.h"', "src/core/os.h", False),
    ("src/cl/pool.c", '"clbi_kernels.h"', None, True),
    ("src/cl/pool.c", '"../core/os.h"', "src/core/os.h", False),
    ("src/cl/pool.c", "<CL/cl.h>", None, True),
    ("src/cl/pool.c", "<sys/socket.h>", None, False),
    ("src/registry.c", '"depthai.h"', "src/depthai/depthai.h", True),
    ("src/registry.c", '"tcp.h"', "src/transport/tcp.h", True),
    ("src/registry.c", '"pool.h"', "src/cl/pool.h", False),
    ("tools/recv.c", "<clbridge/preprocess.h>", None, True),
    ("tools/recv.c", '"json.h"', "tools/json.h", True),
    ("tools/recv.c", '"wire.h"', "src/core/wire.h", False),
    ("bench/micro/a.c", '"pool.h"', "src/cl/pool.h", False),
    ("examples/a.c", '"os.h"', "src/core/os.h", False),
    ("include/clbridge/link.h", "<clbridge/cl.h>", None, False),
    ("include/clbridge/clbridge.h", "<clbridge/preprocess.h>", None, False),
    ("include/clbridge/link.h", '"common.h"', "include/clbridge/common.h", False),
    ("include/clbridge/link.h", "<CL/cl.h>", None, False),
    ("include/clbridge/preprocess.h", "<clbridge/cl.h>", None, True),
    ("tests/unit/a.c", '"wire.h"', "src/core/wire.h", True),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]')


def main():
    root = sys.argv[1]
    wrong = 0
    for path, line, target, allowed in SELF_TEST:
        reason = check(path, line[0] == '"', line[1:-1], target)
        if (reason is None) != allowed:
            print(f"the table is wrong about {path}: #include {line}: {reason}")
            wrong += 1

    files = []
    for top in ("include", "src", "tools", "bench", "examples", "tests"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if re.search(r"\.(c|h|hpp|cc|cpp|in)$", name):
                    files.append(os.path.relpath(os.path.join(folder, name), root))
    known = {}
    for path in files:
        known.setdefault(os.path.basename(path), []).append(path)

    def resolve(path, name):
        near = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if near in files:
            return near
        if os.path.join("src", name) in files:
            return os.path.join("src", name)
        found = [f for f in known.get(os.path.basename(name), []) if f.endswith("/" + name)]
        # Ambiguous: the one in src is what an include path could reach.
        found.sort(key=lambda f: (not f.startswith("src/"), f))
        return found[0] if found else None

    lines = 0
    for path in sorted(files):
        with open(os.path.join(root, path), encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                lines += 1
                # <core/wire.h> is a private header however it is spelled.
                name = match.group(2)
                private = os.path.join("src", name) in files
                quoted = match.group(1) == '"' or private
                reason = check(path, quoted, name, resolve(path, name) if quoted else None)
                if reason:
                    print(f"{path}:{number}: #include {match.group(1)}{name}: {reason}")
                    wrong += 1
    print(f"{len(files)} files, {lines} includes, {wrong} wrong")
    return 1 if wrong or lines == 0 else 0


sys.exit(main())
