#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""robustness.py ROOT PROGRAM...: docs/wire-robustness.md names cases that exist, and all of them.

A case is written `program/case`; the programs are test_PROGRAM, and tell their cases with --list.
"""

import os
import re
import subprocess
import sys


def named(text):
    """Cases by program, from the table rows."""
    found = {}
    for program, case in re.findall(r"`([a-z]+)/([A-Za-z0-9_.]+)`", text):
        found.setdefault(program, set()).add(case)
    return found


def compare(program, wanted, there):
    """Lines of what does not agree."""
    lines = ["%s/%s is in the document and not in the program" % (program, c)
             for c in sorted(wanted - there)]
    lines += ["%s/%s is in the program and not in the document" % (program, c)
              for c in sorted(there - wanted)]
    return lines


def rows(text, heading):
    """First cells of the table below a heading."""
    part = text.split("\n## " + heading, 1)[1].split("\n## ", 1)[0]
    return [line.split("|")[1].strip() for line in part.split("\n") if line.startswith("| ")]


def main():
    root, programs = sys.argv[1], sys.argv[2:]
    assert compare("p", {"a", "b"}, {"b", "c"}) == [
        "p/a is in the document and not in the program",
        "p/c is in the program and not in the document"]
    with open(os.path.join(root, "docs", "wire-robustness.md"), encoding="utf-8") as f:
        text = f.read()
    wanted, bad = named(text), []
    for path in programs:
        program = os.path.basename(path)[len("test_"):]
        there = set(subprocess.run([path, "--list"], check=True, text=True,
                                   stdout=subprocess.PIPE).stdout.split())
        bad += compare(program, wanted.pop(program, set()), there)
    bad += ["%s: no such program" % p for p in wanted]
    missing = {"R%d" % k for k in range(1, 35)} - set(rows(text, "Section 12"))
    bad += ["%s has no row" % r for r in sorted(missing)]
    print("\n".join(bad) or "%d programs agree with the document" % len(programs))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
