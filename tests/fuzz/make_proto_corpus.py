#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes corpus/proto out of the captured sessions in tests/data/wire.

Each seed plays one side of a session: the other side's headers as they are
(operation 0 of fuzz_proto.c), the payloads (2), and between them the local
operations that the side of the capture did.
"""
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
WIRE = HERE.parent / "data" / "wire"
OUT = HERE / "corpus" / "proto"

RAW, HEADER, PAYLOAD, PULL, CREATE, CLOSE, DETACH, RELEASE, WRITE, SENT, PING, RESET, TIME, BYTES = range(14)


def headers(path, headers_only):
    data, at = path.read_bytes(), 0
    while at < len(data):
        head = data[at : at + 84]
        kind, size = struct.unpack_from("<I", head, 4)[0], struct.unpack_from("<I", head, 76)[0]
        yield head, kind, size
        at += 84 + (size if kind in (0, 25) and not headers_only else 0)


def seed(session, role, headers_only, mode):
    peer, own = ("d2h", "h2d") if role == 0 else ("h2d", "d2h")
    out = bytearray([mode | role])
    mine = list(headers(WIRE / f"{session}.{own}.bin", headers_only))
    for head, kind, _ in headers(WIRE / f"{session}.{peer}.bin", headers_only):
        while mine:
            _, what, size = mine[0]
            mine.pop(0)
            if what == 3:
                out += bytes([CREATE, mine and 1 or 0, 64, 6])
            elif what == 0:
                out += bytes([WRITE, 0, min(size, 200), 0, SENT, 0])
            elif what in (2, 24):
                out += bytes([RELEASE, 0, 0])
            elif what == 4:
                out += bytes([CLOSE, 0])
            elif what == 6:
                out += bytes([RESET])
            else:
                continue
            break
        out += bytes([PULL, 8, RAW]) + head
        if kind in (0, 25):
            out += bytes([PAYLOAD])
    return bytes(out + bytes([PULL, 8, TIME, 255]))


def chunked(session, role):
    """The same as a stream of bytes, 50 at a time: headers and payloads are cut anywhere."""
    data = (WIRE / f"{session}.{'h2d' if role else 'd2h'}.bin").read_bytes()[:4000]
    out = bytearray([4 | role])
    for at in range(0, len(data), 50):
        part = data[at : at + 50]
        out += bytes([BYTES, len(part)]) + part + bytes([PULL, 2])
        if at % 200 == 100:
            out += bytes([CREATE, at // 200 % 8, 64, 6, RELEASE, at // 400 % 2, 0, WRITE, 0, 20, 0, SENT, 0])
    return bytes(out + bytes([CLOSE, 0, PULL, 8, TIME, 255]))


def made():
    """Headers in the short form: answers to what is pending, by type."""
    out = bytearray([4])
    for name in range(4):
        out += bytes([CREATE, name, 64, 6, PULL, 8, HEADER, 8, 0, name, name + 32, 64, 1])
        out += bytes([WRITE, name, 9, 0, SENT, 0, HEADER, 6, 0, 0, name, 9, 1, HEADER, 1, 99])
        out += bytes([0, 0, 0, 0, 0, name, 9, 1, CLOSE, name, PULL, 8, HEADER, 9, 0, 0, name, 0, 2])
    yield "answers", bytes(out + bytes([RESET, PULL, 8]))
    out = bytearray([7])
    for turn in range(20):
        out += bytes([HEADER, 2, 99, 1, 0, 0, 0, turn, turn + 32, 0x90, 1, PULL, 8])
        out += bytes([HEADER, 0, 99, 1, 0, 0, 0, 0, turn, 9, 1, PAYLOAD, RELEASE, turn, 0, PULL, 8])
    yield "late", bytes(out + bytes([TIME, 200, PULL, 8]) * 3)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for session, short in ("basic", 0), ("credit", 0), ("dialect-a-host", 0), ("frame.headers", 1):
        for role in 0, 1:
            name = f"{session.split('.')[0]}-{('host', 'device')[role]}"
            data = seed(session, role, short, 0)
            (OUT / name).write_bytes(data[:6000])
    for session in "basic", "credit":
        for role in 0, 1:
            name = f"{session}-chunked-{('host', 'device')[role]}"
            (OUT / name).write_bytes(chunked(session, role))
    for name, data in made():
        (OUT / name).write_bytes(data)


main()
