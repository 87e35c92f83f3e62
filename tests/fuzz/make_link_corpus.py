#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes corpus/link, corpus/link_nomem and corpus/listener: the captured sessions in tests/data/wire
as a peer says them, in pieces, and short sessions that were thought out. The encodings are those of
fuzz_link.c and fuzz_listener.c.
"""
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
WIRE = HERE.parent / "data" / "wire"

(RAW, HEADER, PAYLOAD, WRITE, ANSWER, CREATE, RELEASE, CHUNK, TAKE, SHUT, CLOSE, TIME, PING, RESET,
 CLOSE_STREAM, PACKET) = range(16)
(OPEN, END, READ, READ_ALL, LET_GO, FREE, BUF, SEND, FLUSH, NEXT, SHUTDOWN, DISPATCH, LOOK, INTERRUPT,
 FD, LINK_CLOSE, CAMERA) = (0x80 + k for k in range(17))
DEVICE, GREETS, ANSWERS, DEAF, AT_ONCE, LINK_ALLOCATOR, NO_RESET, NARROW = (1 << k for k in range(8))
BLOCK, OLDEST, NEWEST, ASYNC, OWN = 0, 1, 2, 4, 16
T0, T3MS, T50MS, T700MS, T5S = 0, 2, 3, 4, 5
NO_NAME = 0xC0


def head(role, times=0, plan=()):
    return bytes([times, role, len(plan), *plan])


def captured(session, role, headers_only):
    """The peer's bytes as they were, 200 at a time and cut where that happens to be."""
    path = WIRE / f"{session}.{'d2h' if role == 0 else 'h2d'}.bin"
    data, out, at = path.read_bytes(), bytearray(head(role | GREETS)), 0
    if headers_only:
        data = b"".join(with_payload(data))
    data = data[84:]  # the hand-shake
    turn = 0
    while at < len(data) and len(out) < 3500:
        part = data[at : at + (200 if turn % 3 else 37)]
        out += bytes([RAW, len(part)]) + part
        at += len(part)
        turn += 1
        if turn % 4 == 1:
            out += bytes([OPEN, turn // 4 % 4, NO_NAME, OWN if turn % 8 == 1 else BLOCK, 64, T3MS])
        out += bytes([READ, turn % 4, T3MS, LET_GO, turn % 16])
    return bytes(out + bytes([LOOK, 0, FLUSH, 0, 1 | T3MS, SHUTDOWN, T50MS]))


def with_payload(data):
    for at in range(0, len(data), 84):
        head = bytearray(data[at : at + 84])
        if head[4] == 0:
            struct.pack_into("<I", head, 76, 60)
            yield bytes(head) + bytes(60)
        else:
            yield bytes(head)


def made():
    both = GREETS | ANSWERS
    for name, policy in ("block", BLOCK), ("oldest", OLDEST), ("newest", NEWEST):
        for role in 0, DEVICE:
            out = head(role | both | LINK_ALLOCATOR, 0, [0, 5, 0, 6, 7, 8, 0])
            out += bytes([CREATE, 0, 64, 6, CHUNK, 50, OPEN, 0, 0, policy | OWN, 32, T50MS])
            out += bytes([WRITE, 1, 100, 0, WRITE, 1, 200, 2, WRITE, 1, 0, 0, DISPATCH, T3MS] * 3)
            out += bytes([READ, 0, T3MS] * 6 + [LET_GO, 0, BUF, 0, FREE, 1, LET_GO, 2, LOOK, 0])
            out += bytes([SEND, 0, 60, 0, T50MS, SEND, 0, 60, 8, T50MS, RELEASE, FLUSH, 0, T50MS])
            out += bytes([END, 0, RESET, DISPATCH, T50MS])
            yield f"{name}-{'device' if role else 'host'}", out
    yield from cameras(both)
    for role in 0, DEVICE:
        side = "device" if role else "host"
        out = head(role | GREETS | NARROW)
        out += bytes([OPEN, 0, 3, ASYNC, 255, T3MS, ANSWER, 1, OPEN, 0, 3, ASYNC, 255, T700MS])
        out += bytes([ANSWER, 1] + [SEND, 0, 255, 3, T3MS] * 6 + [TAKE, ANSWER, 2, LOOK, 0, TIME, 255])
        yield f"no-answers-{side}", out + bytes([DISPATCH, T5S, LINK_CLOSE])
        out = head(role | both | DEAF | NARROW)
        out += bytes([CREATE, 2, 255, 4, OPEN, 0, 2, BLOCK, 128, T3MS] + [WRITE, 3, 9, 0] * 70)
        yield f"deaf-{side}", out + bytes([READ, 0, T700MS, READ_ALL, 0, TAKE, DISPATCH, T5S])
        out = head(role | both | AT_ONCE)
        out += bytes([CREATE, 1, 64, 6, WRITE, 2, 64, 1, WRITE, 2, 64, 2, NEXT, T3MS, DISPATCH, T5S])
        out += bytes([OPEN, 1, NO_NAME, NEWEST | 3 << 5, 0, T3MS, WRITE, 2, 8, 0, READ, 1, T3MS])
        out += bytes([CLOSE_STREAM, 2, READ, 1, T3MS, CREATE, 1, 64, 6, WRITE, 2, 9, 1, WRITE, 2, 255])
        yield f"late-{side}", out + bytes([0, SHUT, READ, 1, T5S, LOOK, 1])
        out = head(role)
        yield f"nothing-{side}", out
        yield f"closes-{side}", out + bytes([CHUNK, 7, PING, CLOSE])


def cameras(manners):
    """A camera's packets: frames, encoded ones, lies, split messages; with and without geometry and pitch."""
    none, depthai, auto, write_only = 0, 1, 2, 4
    gray8, nv12, bgr24 = 1, 3, 10  # order of CLB_PIXFMT_MAP

    def frame(w, h, filler, kind, wrong=0):
        return bytes([PACKET, 1, w * h, 0, 1 | (4 if filler else 0) | wrong << 3, kind, w, h, 0, 1, 0, 0,
                      0] + ([filler] if filler else []))

    for trailer in none, depthai, auto:
        for flags, fmt, w, h, pitch in (0, 0, 0, 0, 0), (0, gray8, 12, 10, 0), (0, gray8, 12, 10, 8 | 4), (
                write_only, gray8, 12, 10, 8 | 4), (write_only, 0, 0, 0, 0), (0, nv12, 6, 4, 8 | 3), (
                0, bgr24, 3, 5, 8 | 2):
            out = head(manners, 0, [0])
            out += bytes([CAMERA, trailer | flags, 200, fmt, w, h, pitch])
            out += bytes([CREATE, 0, 64, 7, OPEN, 0, 0, BLOCK | OWN, 0, T50MS])
            for k in range(6):
                out += frame(12, 10, 7 * k % 40, 30) + bytes([READ, 0, T3MS, LET_GO, k])
            out += frame(10, 12, 0, 30) + frame(12, 9, 50, 30) + bytes([READ, 0, T3MS] * 2)
            for wrong in range(1, 6):
                out += frame(12, 10, 3, 30, wrong) + bytes([9] * 4) + bytes([READ, 0, T3MS, FREE, wrong])
            for k in range(5):
                out += bytes([PACKET, 1, 50 * k % 251, k, 0, READ, 0, T3MS])
            out += bytes([PACKET, 1, 0, 0, 2, 3, 90] + [WRITE, 1, 30, 0] * 3 + [READ, 0, T3MS] * 4)
            yield f"camera-{trailer}-{flags}-{fmt}-{pitch}", out + bytes([READ_ALL, 0, LOOK, 0])


def listeners():
    """Client c does op: bytes 32 * c, op. Calls as in enum call of fuzz_listener.c."""
    take, turn, end, stop, announced, read, look, close, fails = (0x80 + k for k in range(9))
    greet = bytes([0, PING])
    yield "one", bytes([1 | 2 << 3, 0, 0]) + greet + bytes([take, T50MS, announced, 0, T3MS, look, 0])
    out = bytes([3 | 2 << 3, 0, 1])
    for client in 0, 32, 64, 96:
        out += bytes([client, CHUNK, 10 + client, client, PING])
    out += bytes([take, T50MS, take, T50MS, take, T3MS, take, T0, 0, CREATE, 1, 64, 6, 0, TAKE])
    yield "four", out + bytes([0, WRITE, 1, 40, 1, read, 0, T50MS, end, 1, close, look, 2, stop, 2, T3MS])
    capture = (WIRE / "basic.h2d.bin").read_bytes()
    out = bytes([2 | 2 << 3, 1, 0])
    for at in range(0, 600, 60):
        out += bytes([0, RAW, 60]) + capture[at : at + 60]
        out += bytes([take, T3MS] if at == 120 else [turn, T3MS])
    yield "captured", out + bytes([read, 0, T50MS, 0, CLOSE, turn, T50MS, look, 0])
    yield "noise", bytes([4, 0, 0, 0, RAW, 100]) + b"GET / HTTP/1.0\r\n" * 6 + bytes([take, T50MS])
    yield "silent", bytes([0x42, 0, 0, 0, TAKE, 32, SHUT, turn, T5S, 64, CLOSE, turn, T5S, take, T0])
    out = bytes([1, 0, 0, fails, 0, 3, 0, PING, take, 4, fails, 1, 3, 32, PING, take, T50MS])
    yield "no-accept", out + bytes([0, RESET, 0, CLOSE, turn, T50MS, 32, PING, take, 5])
    yield "closed", bytes([1, 0, 0]) + greet + bytes([turn, T3MS, close, 32, PING, take, T0, 0, RESET])


def no_faults():
    return bytes(6)


def main():
    seeds = []
    for session, short in ("basic", 0), ("credit", 0), ("dialect-a-host", 0), ("frame.headers", 1):
        for role in 0, DEVICE:
            name = f"{session.split('.')[0]}-{'device' if role else 'host'}"
            seeds.append((name, captured(session, role, short)))
    seeds += made()
    for folder in "link", "link_nomem", "listener":
        (HERE / "corpus" / folder).mkdir(parents=True, exist_ok=True)
    for name, data in seeds:
        (HERE / "corpus" / "link" / name).write_bytes(data)
        (HERE / "corpus" / "link_nomem" / name).write_bytes(no_faults() + data)
    for name, data in listeners():
        (HERE / "corpus" / "listener" / name).write_bytes(data)
    busy = dict(seeds)["block-host"]
    camera = dict(seeds)["camera-1-0-1-12"]
    script = bytes([0xC0, 0xC1, 0x60, 0, 0x61, 0xC4, 0, 0xC5, 0x90, 0xC3])
    for n in range(1, 17):
        plan = bytes([n, 5 * n % 32, n % 10, n // 2, n % 8, min(n // 4, len(script))])
        data = plan + script[: n // 4] + busy
        (HERE / "corpus" / "link_nomem" / f"fails-{n}").write_bytes(data)
        data = plan + script[: n // 4] + camera
        (HERE / "corpus" / "link_nomem" / f"fails-camera-{n}").write_bytes(data)
    for n in range(len(script)):
        data = bytes([0, 0, 0, 0, 0, 12]) + bytes(11 - n) + script[: n + 1] + busy
        (HERE / "corpus" / "link_nomem" / f"script-{n}").write_bytes(data)


main()
