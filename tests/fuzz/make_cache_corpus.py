#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes corpus/cache: files of the kernel cache, whole and not. The encoding is that of fuzz_cache.c."""
import pathlib
import struct

REPAIR, MAKE = 1, 2
KEY = b"clbridge 0\nplatform P\noptions -DX\nsource\nkernel"
BINARY = bytes(range(40))


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def cache_file(key=KEY, binary=BINARY, key_size=None, binary_size=None):
    head = b"CLBPROG1" + struct.pack("<QQ", len(key) if key_size is None else key_size,
                                     len(binary) if binary_size is None else binary_size)
    data = head + key + binary
    return data + struct.pack("<Q", fnv1a(data))


def main():
    out = pathlib.Path(__file__).resolve().parent / "corpus" / "cache"
    out.mkdir(parents=True, exist_ok=True)
    whole = cache_file()
    inputs = {
        "whole": (0, KEY, whole),
        "whole-repaired": (REPAIR, KEY, whole[:-8] + bytes(8)),
        "made": (MAKE, KEY, BINARY),
        "made-without-key": (MAKE, b"", BINARY),
        "made-of-nothing": (MAKE, KEY, b""),
        "key-of-another": (REPAIR, KEY[:-1] + b"L", whole),
        "key-longer": (REPAIR, KEY + b"s", whole),
        "key-empty": (REPAIR, b"", cache_file(b"")),
        "cut-in-sum": (0, KEY, whole[:-3]),
        "cut-in-binary": (REPAIR, KEY, whole[:-20]),
        "cut-in-key": (REPAIR, KEY, whole[:40]),
        "cut-in-head": (REPAIR, KEY, whole[:20]),
        "head-alone": (REPAIR, KEY, whole[:32]),
        "without-binary": (REPAIR, KEY, cache_file(binary=b"")),
        "too-long": (REPAIR, KEY, whole + b"x"),
        "sum-wrong": (0, KEY, whole[:-1] + bytes([whole[-1] ^ 1])),
        "magic-wrong": (REPAIR, KEY, b"CLBPROG2" + whole[8:]),
        "key-size-huge": (REPAIR, KEY, cache_file(key_size=(1 << 64) - 1)),
        "binary-size-huge": (REPAIR, KEY, cache_file(binary_size=(1 << 64) - 1)),
        "sizes-wrap": (REPAIR, KEY, cache_file(key_size=(1 << 63) + len(KEY),
                                               binary_size=(1 << 63) + len(BINARY))),
        # Sizes that fit when what is left for the binary is counted without regard to its sign.
        "key-beyond-end": (REPAIR, KEY, b"CLBPROG1" + struct.pack(
            "<QQ", len(KEY), (1 << 64) - len(KEY)) + bytes(8)),
    }
    for name, (flags, key, data) in inputs.items():
        (out / name).write_bytes(bytes([flags, len(key)]) + key + data)


main()
