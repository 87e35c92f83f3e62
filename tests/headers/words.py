#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""words.py FOLDER: the comment of every public function in FOLDER/*.h carries @owner, @thread,
@blocks and @return (but for void), each with something behind it."""
import glob
import os
import re
import sys

DECLARATION = re.compile(r"^CLB_API\s[^;{]*?;", re.M)
NAME = re.compile(r"(\w+)\s*\(")
VOID = re.compile(r"^CLB_API\s+(?:CLB_NODISCARD\s+)?void\s+\w+\s*\(")
# What a program may rely on about threads is one of these, with conditions behind it.
THREAD = re.compile(r"any\b|one at a time\b|callback\b|not from callbacks\b")


def functions(text):
    """(line, declaration, comment directly before it or None)"""
    for match in DECLARATION.finditer(text):
        before = text[:match.start()].rstrip()
        comment = None
        if before.endswith("*/"):
            comment = before[before.rindex("/*"):]
            comment = comment if comment.startswith("/**") else None
        yield text.count("\n", 0, match.start()) + 1, match.group(), comment


def faults(text):
    for line, declaration, comment in functions(text):
        name = NAME.search(declaration).group(1)
        if comment is None:
            yield line, name, "no /** comment directly before it"
            continue
        words = ["@owner", "@thread", "@blocks"] + ([] if VOID.match(declaration) else ["@return"])
        plain = " ".join(re.sub(r"^\s*\* ?", "", row) for row in comment[3:-2].split("\n"))
        for word in words:
            found = re.search(re.escape(word) + r"\s*([^@]*)", plain)
            if not found:
                yield line, name, f"no {word}"
            elif not re.search(r"\w", found.group(1)):
                yield line, name, f"nothing behind {word}"
            elif word == "@thread" and not THREAD.match(found.group(1)):
                yield line, name, f"@thread {found.group(1).strip()!r}: not one of the fixed words"


def try_itself():
    """What must be refused is refused: a slip above would pass everything unseen."""
    good = "/** X. @owner none. @thread any. @blocks no. @return 0. */\nCLB_API int clb_x(void);\n"
    assert not list(faults(good)), list(faults(good))
    for word in ("@owner", "@thread", "@blocks", "@return"):
        assert [f[2] for f in faults(good.replace(word, ""))], word
    assert [f[2] for f in faults(good.replace("/**", "/*"))] == ["no /** comment directly before it"]
    assert [f[2] for f in faults(good.replace("any", "some"))]
    assert [f[2] for f in faults(good.replace("@return 0. ", "@return "))]
    void = good.replace("@return 0. ", "").replace("int", "void")
    assert not list(faults(void))
    assert list(faults(void.replace("void clb", "void *clb")))


def main():
    try_itself()
    count = 0
    bad = 0
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.h"))):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        # A declaration that the pattern overlooks must not go unchecked.
        marks = len(re.findall(r"^\s*CLB_API\b", text, re.M))
        found = len(list(functions(text)))
        count += found
        if marks != found:
            bad += 1
            print(f"{path}: {marks} CLB_API, {found} of them understood", file=sys.stderr)
        for line, name, what in faults(text):
            bad += 1
            print(f"{path}:{line}: {name}: {what}", file=sys.stderr)
    print(f"{count} functions, {bad} faults")
    return 1 if bad or count == 0 else 0


sys.exit(main())
