#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the libraries export is what the headers declare, no more and no less.

Also: nothing of libclbridge needs OpenCL, the SONAME is right, and symbols
that are visible inside the libraries carry their prefix.
"""

import argparse
import os
import re
import subprocess
import sys

CL_HEADERS = {"cl.h", "preprocess.h"}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def declared(headers, want_cl):
    names = set()
    for name in sorted(os.listdir(headers)):
        if not name.endswith(".h") or (name in CL_HEADERS) != want_cl:
            continue
        with open(os.path.join(headers, name), encoding="utf-8") as source:
            text = source.read()
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//[^\n]*", " ", text)
        text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", " ", text, flags=re.M)
        # CL_API_CALL and attributes stand before the name, arguments behind.
        for declaration in re.findall(r"\bCLB_API\b([^;{]*)", text):
            match = re.search(r"\b(clb_\w+)\s*\(", declaration)
            if not match:
                print(f"{name}: cannot read: CLB_API{declaration}")
                sys.exit(1)
            names.add(match.group(1))
        # A function that somebody forgot to mark would only be missed by users.
        for match in re.finditer(r"(?:^|[;{}])\s*((?:const |unsigned |struct |enum )*\w+\s*\**\s*)"
                                 r"\b(clb_\w+)\s*\([^;{}]*\)\s*;", text):
            if not re.match(r"\s*(typedef|static|return)\b", match.group(1)):
                print(f"{name}: {match.group(2)} is declared without CLB_API")
                names.add("unmarked:" + match.group(2))
    return names


def exported(nm, lib):
    names = set()
    for line in run(nm, "-D", "--defined-only", lib).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the version's own name
            names.add(name.split("@")[0])
    return names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", required=True)
    parser.add_argument("--readelf", required=True)
    parser.add_argument("--soversion", required=True)
    parser.add_argument("--headers", required=True)
    parser.add_argument("--libs", nargs="+", required=True)
    parser.add_argument("--archives", nargs="+", required=True)
    args = parser.parse_args()
    wrong = 0
    count = 0

    for lib in args.libs:
        is_cl = "clbridge-cl" in os.path.basename(lib)
        want = declared(args.headers, is_cl)
        have = exported(args.nm, lib)
        count += len(have)
        short = os.path.basename(lib)
        for name in sorted(want - have):
            print(f"{short}: {name} is declared but not exported")
            wrong += 1
        for name in sorted(have - want):
            print(f"{short}: {name} is exported but not declared")
            wrong += 1

        dynamic = run(args.readelf, "-d", lib)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
        stem = "libclbridge-cl" if is_cl else "libclbridge"
        if soname != [f"{stem}.so.{args.soversion}"]:
            print(f"{short}: SONAME is {soname}")
            wrong += 1
        for other in needed:
            if re.match(r"lib(pocl|Rusticl|MesaOpenCL|oclgrind|amdocl|nvidia-opencl|igdrcl)", other):
                print(f"{short}: links a vendor library: {other}")
                wrong += 1
            if not is_cl and other.startswith("libOpenCL"):
                print(f"{short}: needs {other}")
                wrong += 1

    for archive in args.archives:
        for line in run(args.nm, "-g", "--defined-only", archive).splitlines():
            fields = line.split()
            if len(fields) != 3:
                continue
            if not re.match(r"clbi?_", fields[2]) and not fields[2].startswith("__"):
                print(f"{os.path.basename(archive)}: {fields[2]} has no prefix")
                wrong += 1

    print(f"{count} exported functions, {wrong} wrong")
    return 1 if wrong or count == 0 else 0


sys.exit(main())
