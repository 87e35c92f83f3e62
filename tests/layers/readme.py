#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README against the tree: its quick start is the example that the tests run, in at most 60
lines, and every file that it links to is there."""
import os
import re
import sys


def main():
    root = sys.argv[1]
    with open(os.path.join(root, "README.md"), encoding="utf-8") as f:
        text = f.read()
    with open(os.path.join(root, "examples", "quickstart.c"), encoding="utf-8") as f:
        example = f.read().rstrip("\n")
    blocks = re.findall(r"^```c\n(.*?)\n```$", text, re.M | re.S)
    errors = []
    if example not in blocks:
        errors.append("README.md: the quick start is not examples/quickstart.c")
    if example.count("\n") + 1 > 60:
        errors.append("examples/quickstart.c: more than 60 lines")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        if not os.path.exists(os.path.join(root, target)):
            errors.append(f"README.md: links to {target}, which is not there")
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


sys.exit(main())
