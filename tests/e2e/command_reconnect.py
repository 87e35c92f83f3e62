# SPDX-License-Identifier: Apache-2.0
"""`clbridge recv --reconnect`: peers that end, die, hang, or are not there yet.

usage: command_reconnect.py host | device [CASE...]
"""

import os
import signal
import socket
import struct
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the folder of the sources stays as it is
from command_lib import (LIMIT, NARROW, RECV, SEND, SMALL, SMALL_BYTES, Run, all_of, check, counter, equal,
                         last, run_cases)

COUNTER = ("--pattern", "counter", *NARROW)


def place():
    """An address of this test alone, with a port where nobody is. Connections that others make come
    from 127.0.0.1: none of them can have the port when a sender wants it back."""
    pid = os.getpid()
    host = "127.%d.%d.%d" % (64 + (pid >> 14 & 63), pid >> 7 & 127, 1 + (pid & 127))
    with socket.socket() as free:
        free.bind((host, 0))
        return "tcp://%s:%d" % free.getsockname()


def sender_at(uri, *args):
    return Run("send", "--listen", uri, "--json", *COUNTER, *args)


def receiver(uri, *args):
    return Run("recv", uri, "--json", "--frames", "--verify", "counter", "--trailer",
               "none", "--reconnect", *args)


def kill(run):
    run.signal(signal.SIGKILL)
    run.process.wait(LIMIT)


def frame_after(run, n):
    """Waits for a frame of this number."""
    run.wait_for(r'("event":"frame","seq":%d,)' % n)


def check_frames(recv, frames):
    """All there, in order, whole; nothing was copied."""
    s = last(recv, "summary")
    equal(s["frames"], frames, "frames")
    equal(s["verified_frames"], frames, "verified_frames")
    check(s["pool_hits"] >= frames, "pool_hits is %d" % s["pool_hits"])  # and those beyond --count
    equal([f["seq"] for f in all_of(recv, "frame")], list(range(frames)), "seq of the frames")
    equal([f["verified"] for f in all_of(recv, "frame")], [True] * frames, "verified")
    for key in "verify_errors dropped_oldest dropped_newest alloc_failed cpu_copied_bytes".split():
        equal(s[key], 0, key)
    return s


def check_order(recv):
    """After each `reconnect` another one, or a link with all of its events, or the end."""
    names = [e["event"] for e in recv if e["event"] not in ("frame", "saved")]
    expect = {"listening": ("connected", "reconnect"), "connected": ("stream", "reconnect"),
              "stream": ("memory",), "memory": ("reconnect", "summary", "error"),
              "reconnect": ("reconnect", "connected", "summary", "error"), "error": ("summary",)}
    for name, following in zip(names, names[1:]):
        check(following in expect[name], "%s is followed by %s" % (name, following))
    equal(names.count("connected"), last(recv, "summary")["reconnects"] + 1, "links")


def test_killed_and_restarted(memory):
    uri = place()
    r = receiver(uri, "--memory", memory, "--count", "180")
    for upto in (30, 90):
        s = sender_at(uri, "--fps", "300")
        frame_after(r, upto)
        kill(s)
    s = sender_at(uri, "--fps", "300")
    r.wait(0)
    s.wait(0)
    recv = r.checked(RECV)
    check_order(recv)
    summary = check_frames(recv, 180)
    check(summary["reconnects"] >= 2, "reconnects is %d" % summary["reconnects"])
    equal(summary["ended_by"], "count", "ended_by")
    equal(len(set(e["slots"] for e in all_of(recv, "memory"))), 1, "numbers of slots")
    if memory != "host":
        equal(summary["cl_buffers_created"], summary["slots"], "cl_buffers_created")
    check("LOST" in [e["code"] for e in all_of(recv, "reconnect")], "no link was lost")
    equal(all_of(s.checked(SEND), "error"), [], "errors of the last sender")


def test_peer_that_hangs(memory):
    uri = place()
    r = receiver(uri, "--memory", memory, "--count", "60", "--idle-timeout", "600")
    s = sender_at(uri, "--fps", "300")
    frame_after(r, 20)
    s.signal(signal.SIGSTOP)
    r.wait_for(r'("event":"reconnect".*"code":"LOST")')
    kill(s)
    s = sender_at(uri, "--fps", "300")
    r.wait(0)
    check_order(r.checked(RECV))
    check_frames(r.checked(RECV), 60)


def test_not_there_at_first(memory):
    uri = place()
    r = receiver(uri, "--memory", memory, "--count", "5")
    r.wait_for(r'("event":"reconnect","attempt":3)')
    s = sender_at(uri, "--fps", "100")
    r.wait(0)
    recv = r.checked(RECV)
    check_order(recv)
    summary = check_frames(recv, 5)
    equal(summary["reconnects"], 0, "reconnects")
    equal(summary["attempts_failed"], len(all_of(recv, "reconnect")), "attempts_failed")
    for n, event in enumerate(all_of(recv, "reconnect")):
        equal((event["attempt"], event["code"]), (n + 2, "IO"), "attempt and code")
        most = min(200 << n, 5000)
        check(most // 2 <= event["wait_ms"] <= most, "wait_ms of attempt %d is %d" % (n, event["wait_ms"]))
    s.wait(0)


def test_orderly_ends(memory):
    """Files and numbers go on, and the pool grows when the next peer has larger frames."""
    uri = place()
    steps = (SMALL, SMALL, ("--size", "320x240"), ("--size", "640x480"))
    bytes_of = (SMALL_BYTES, SMALL_BYTES, 115200, 460800)
    sizes = [size for size in bytes_of for _ in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        r = receiver(uri, "--memory", memory, "--count", "12", "--save", "raw", "--out", folder)
        for step, size in zip(steps, bytes_of):
            Run("send", "--listen", uri, "--json", "--pattern", "counter", "--count", "3", "--fps", "100",
                "--format", "nv12", *step, "--window", str(4 * size)).wait(0)
        r.wait(0)
        for n, size in enumerate(sizes):
            with open(os.path.join(folder, "frame-%06u.raw" % n), "rb") as file:
                check(file.read() == counter(size, n % 3), "content of file %d" % n)
    recv = r.checked(RECV)
    check_order(recv)
    summary = check_frames(recv, 12)
    equal((summary["reconnects"], summary["bytes"]), (3, sum(sizes)), "reconnects and bytes")
    ends = [e for e in all_of(recv, "reconnect") if e["code"] == "CLOSED"]
    equal([e["attempt"] for e in ends], [1, 1, 1], "attempts after an orderly end")
    pools = all_of(recv, "memory")
    equal([p["slot_bytes"] for p in pools], [4 * size for size in bytes_of], "slot_bytes")
    if memory != "host":
        # The second link found a pool that was good enough.
        equal(summary["cl_buffers_created"], sum(p["slots"] for p in (pools[0], *pools[2:])),
              "cl_buffers_created")


class Camera:
    """A peer in the device role that ends without a word after some frames, and goes on counting."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.settimeout(LIMIT)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.uri = "tcp://127.0.0.1:%d" % self.listener.getsockname()[1]

    def header(self, kind, number, size=0, stream=0, name=b""):
        return struct.pack("<iI52sIIIIII", number, kind, name, 0, 0, 0, stream, size, 1)

    def serve(self, numbers):
        link = self.listener.accept()[0]
        link.settimeout(LIMIT)
        stream, created, released = None, False, 0
        while released < len(numbers):
            got = b""
            while len(got) < 84:
                part = link.recv(84 - len(got))
                check(part, "recv closed the connection")
                got += part
            number, kind, name, _, _, _, stream_id, size, _ = struct.unpack("<iI52sIIIIII", got)
            if kind == 5:  # PING
                link.sendall(self.header(13, number))
                if stream is None:
                    link.sendall(self.header(3, 100, SMALL_BYTES, 0xDEADDEAD, b"a"))
                    stream = -1
            elif kind == 11:  # our stream has a number
                stream = stream_id
            elif kind == 3:
                link.sendall(self.header(11, number, size, stream_id, name))
                created = True
            elif kind == 2:
                link.sendall(self.header(10, number, size, stream_id))
                released += 1
            if created and stream is not None and stream >= 0 and kind in (2, 3, 11) and \
                    released < len(numbers):
                link.sendall(self.header(0, 200 + released, SMALL_BYTES, stream) +
                             counter(SMALL_BYTES, numbers[released]))
        link.close()


def test_frames_that_count_on(memory):
    """Frames are numbered by a peer that has its own idea of numbers, and those begin anew on each link."""
    camera = Camera()
    r = receiver(camera.uri, "--memory", memory, "--count", "7")
    camera.serve((0, 1, 2))
    camera.serve((40, 41))
    camera.serve((1000, 1001))
    r.wait(0)
    camera.listener.close()
    recv = r.checked(RECV)
    check_order(recv)
    check_frames(recv, 7)
    equal(last(recv, "summary")["reconnects"], 2, "reconnects")


def test_gives_up(memory):
    uri = place()
    r = receiver(uri, "--memory", memory, "--reconnect-max", "2").wait(1)
    recv = r.checked(RECV)
    equal([e["event"] for e in recv], ["reconnect", "error", "summary"], "events")
    equal((recv[1]["code"], recv[1]["domain"], recv[1]["native"]), ("IO", "errno", 111), "cause")
    equal((recv[2]["attempts_failed"], recv[2]["ended_by"]), (2, "error"), "attempts_failed and ended_by")
    check("gave up after 2 attempts" in r.stderr(), r.stderr())
    # A link with frames starts the count anew; the peer's end was not what it gave up for.
    r = receiver(uri, "--memory", memory, "--count", "9", "--reconnect-max", "4")
    s = sender_at(uri, "--fps", "300", "--count", "3").wait(0)
    recv = r.wait(1).checked(RECV)
    check_order(recv)
    equal(last(recv, "summary")["frames"], 3, "frames")
    equal([e["attempt"] for e in all_of(recv, "reconnect")][-4:], [1, 2, 3, 4], "attempts")
    equal(last(recv, "error")["code"], "IO", "code")
    # Nor is a link without a frame a success.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = "tcp://127.0.0.1:%d" % silent.getsockname()[1]
        r = receiver(uri, "--memory", memory, "--reconnect-max", "2", "--timeout", "150").wait(1)
    equal(last(r.events(), "error")["code"], "TIMEOUT", "code")


def test_what_no_link_mends(memory):
    uri = place()
    s = sender_at(uri, "--fps", "300")
    r = Run("recv", uri, "--json", "--memory", memory, "--reconnect", "--format", "nv12", "--size", "64x64")
    recv = r.wait(1).checked(RECV)
    equal(last(recv, "error")["code"], "TOOBIG", "code")
    equal(last(recv, "summary")["ended_by"], "error", "ended_by")
    s.wait(0)
    s = sender_at(uri, "--fps", "300")
    r = Run("recv", uri, "--json", "--memory", memory, "--reconnect", "--verify", "noise", "--count", "3")
    recv = r.wait(1).checked(RECV)
    equal(last(recv, "summary")["verify_errors"], 3, "verify_errors")
    s.wait(0)
    for bad in ("tcp://", "nonsense", "tcp://127.0.0.1:1:2"):
        Run("recv", bad, "--json", "--memory", memory, "--reconnect").wait(2)
    equal(last(Run("recv", "usb://", "--json", "--memory", memory, "--reconnect").wait(1).events(),
               "error")["code"], "NOSYS", "code")
    Run("recv", uri, "--json", "--reconnect-max", "3").wait(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        r = Run("recv", "--listen", "tcp://127.0.0.1:%d" % taken.getsockname()[1], "--json", "--memory",
                memory, "--reconnect").wait(1)
        equal(last(r.events(), "error")["code"], "BUSY", "code")


def test_listen(memory):
    """The next peer is served: after one that ended, and after one that died."""
    r = Run("recv", "--listen", "tcp://127.0.0.1:0", "--json", "--frames", "--verify", "counter",
            "--trailer", "none", "--memory", memory, "--reconnect", "--count", "30")
    uri = r.uri()

    def send(*args):
        return Run("send", "--connect", uri, "--json", *COUNTER, "--fps", "300", *args)

    send("--count", "10").wait(0)
    r.wait_for(r'("event":"reconnect","attempt":1,"wait_ms":0,"code":"CLOSED")')
    s = send()
    frame_after(r, 15)
    kill(s)
    r.wait_for(r'("event":"reconnect","attempt":1,"wait_ms":0,"code":"LOST")')
    s = send()
    r.wait(0)
    s.wait(0)
    recv = r.checked(RECV)
    check_order(recv)
    check_frames(recv, 30)
    equal(len(all_of(recv, "listening")), 1, "listening")
    # Between two peers a signal ends it.
    r = Run("recv", "--listen", "tcp://127.0.0.1:0", "--json", "--memory", memory, "--reconnect")
    uri = r.uri()
    send("--count", "2").wait(0)
    r.wait_for(r'("event":"reconnect")')
    r.signal(signal.SIGTERM)
    summary = last(r.wait(0).checked(RECV), "summary")
    equal((summary["frames"], summary["ended_by"]), (2, "signal"), "frames and ended_by")


def test_stop_between_links():
    """In the wait, at once; and while a connection is being made, when there is no link to be shut
    down. The summary is the last line."""
    uri = place()
    r = receiver(uri, "--memory", "host")
    r.wait_for(r'("event":"reconnect","attempt":6)')  # 1.6 s at least
    begin = time.monotonic()
    r.signal(signal.SIGINT)
    recv = r.wait(0).checked(RECV)
    check(time.monotonic() - begin < 1.4, "the end took %.1f s" % (time.monotonic() - begin))
    summary = last(recv, "summary")
    equal((summary["attempts_failed"], summary["ended_by"]), (5, "signal"), "attempts_failed and ended_by")
    s = sender_at(uri, "--fps", "300")
    r = receiver(uri, "--memory", "host", "--timeout", "60000")
    frame_after(r, 3)
    kill(s)
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind((uri[6:].split(":")[0], int(uri.split(":")[2])))
        silent.listen()
        silent.settimeout(LIMIT)
        peer = silent.accept()[0]  # the PING is never answered
        r.signal(signal.SIGINT)
        recv = r.wait(0).checked(RECV)
        peer.close()
    check_order(recv)
    equal(last(recv, "summary")["ended_by"], "signal", "ended_by")
    equal(last(recv, "summary")["frames"], len(all_of(recv, "frame")), "frames")


BOTH = (test_killed_and_restarted, test_peer_that_hangs, test_not_there_at_first, test_orderly_ends,
        test_frames_that_count_on, test_gives_up, test_what_no_link_mends, test_listen)
HOST = (test_stop_between_links,)


def main():
    memory = "host" if sys.argv[1] == "host" else "auto"
    cases = [(t, (memory,)) for t in BOTH]
    if memory == "host":
        cases += [(t, ()) for t in HOST]
    run_cases(cases, sys.argv[2:])


if __name__ == "__main__":
    main()
