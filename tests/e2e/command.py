# SPDX-License-Identifier: Apache-2.0
"""The `clbridge` command from outside: events, keys, exit statuses, files.

usage: command.py host | device [CASE...]

`host` needs no OpenCL; `device` runs on the one runtime that the test sees.
"""

import ast
import errno
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True  # the folder of the sources stays as it is
from command_lib import (COMMAND, DEVICES, ERROR, LIMIT, NARROW, RECV, SEND, SMALL, SMALL_BYTES, Run,
                         all_of, check, code_of, counter, equal, last, pair, read_png, run_cases, sender)


# ---- both ----------------------------------------------------------------------------------------

def check_counts(send, recv, frames, size):
    equal(last(send, "summary")["frames"], frames, "frames sent")
    equal(last(send, "summary")["acked_frames"], frames, "acked_frames")
    equal(last(send, "summary")["released_frames"], frames, "released_frames")
    equal(last(send, "summary")["bytes"], frames * size, "bytes sent")
    equal(last(send, "summary")["ended_by"], "count", "send ended_by")
    s = last(recv, "summary")
    equal(s["frames"], frames, "frames received")
    equal(s["bytes"], frames * size, "bytes received")
    equal(s["ended_by"], "peer", "recv ended_by")
    for key in ("dropped_oldest dropped_newest alloc_failed bad_metadata spilled_frames spill_bytes "
                "moved_bytes readback_bytes cpu_copied_bytes cl_copied_bytes verify_errors "
                "metadata_bytes poisoned").split():
        equal(s[key], 0, key)
    equal(s["pool_hits"], frames, "pool_hits")


def test_counter_and_crc(memory):
    size, frames = SMALL_BYTES, 120
    send, recv = pair(("--pattern", "counter", "--count", str(frames), "--fps", "0", "--frames", *SMALL),
                      ("--memory", memory, "--trailer", "none", "--frames", "--crc"))
    check_counts(send, recv, frames, size)
    equal([e["event"] for e in send[:3]], ["listening", "connected", "stream"], "first events of send")
    equal([e["event"] for e in recv[:3]], ["connected", "stream", "memory"], "first events of recv")
    equal(last(send, "connected")["role"], "device", "role of send")
    equal(last(recv, "connected")["role"], "host", "role of recv")
    equal(last(recv, "stream")["stream"], "video", "stream")
    equal(last(recv, "stream")["window_bytes"], last(send, "stream")["window_bytes"], "window_bytes")
    equal(last(recv, "summary")["verified_frames"], frames, "verified_frames")
    check(last(recv, "summary")["heap_allocs_steady"] is not None, "heap_allocs_steady is unknown")
    check(last(recv, "summary")["minor_faults_io_steady"] is not None, "faults are unknown")
    for n, (s, r) in enumerate(zip(all_of(send, "frame"), all_of(recv, "frame"))):
        equal(s["seq"], n, "seq sent")
        equal(r["seq"], n, "seq received")
        equal(r["bytes"], size, "bytes of a frame")
        equal(r["verified"], True, "verified")
        want = zlib.crc32(counter(size, n)) if n < 3 else s["crc32"]
        equal(s["crc32"], want, "crc32 sent of frame %d" % n)
        equal(r["crc32"], want, "crc32 received of frame %d" % n)


def test_noise_and_bars_of_every_format(memory):
    for fmt, row in (("nv12", 1), ("rgb24", 3), ("bgr24", 3), ("gray8", 1)):
        for pattern in ("bars", "noise"):
            layout = ("--format", fmt, "--size", "161x121", "--pitch", "640")
            send, recv = pair(
                ("--pattern", pattern, "--seed", "9", "--count", "5", "--fps", "0", *layout),
                ("--memory", memory, "--verify", pattern, "--seed", "9", "--frames", *layout))
            # Rows that are padded at their ends, and no metadata: not a copy, not a doubt.
            equal(last(recv, "summary")["bad_metadata"], 0, "bad_metadata")
            equal(last(recv, "summary")["verified_frames"], 5, "verified_frames of " + fmt)
            frame = last(recv, "frame")
            equal((frame["format"], frame["width"], frame["height"]), (fmt, 161, 121), "layout")
            rows = 121 + (61 if fmt == "nv12" else 0)
            equal(frame["pitches"], [640] * (2 if fmt == "nv12" else 1), "pitches")
            equal(frame["offsets"], [0, 640 * 121] if fmt == "nv12" else [0], "offsets")
            equal(frame["bytes"], 640 * rows, "bytes")


def test_wrong_pixels_are_an_error(memory):
    send, recv = pair(("--pattern", "noise", "--seed", "1", "--count", "4", "--fps", "0", *NARROW),
                      ("--memory", memory, "--verify", "noise", "--seed", "2", "--frames", "--count",
                       "9"),
                      recv_status=1)
    equal([f["verified"] for f in all_of(recv, "frame")], [False] * 4, "verified")
    equal(last(recv, "summary")["verify_errors"], 4, "verify_errors")
    equal(last(recv, "summary")["verified_frames"], 0, "verified_frames")
    check("byte 0" in last(recv, "error")["message"], "the message does not say where")


def test_verify_auto_gives_up_on_noise(memory):
    send, recv = pair(("--pattern", "noise", "--count", "3", "--fps", "0", *NARROW),
                      ("--memory", memory, "--frames", *SMALL))
    equal([f["verified"] for f in all_of(recv, "frame")], [None] * 3, "verified")
    equal(last(recv, "summary")["verified_frames"], 0, "verified_frames")


def test_files(memory):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "a", "b")
        send, recv = pair(("--pattern", "counter", "--count", "7", "--fps", "0", *SMALL),
                          ("--memory", memory, "--verify", "off", "--save", "raw", "--out", out,
                           "--every", "3"))
        names = ["frame-%06u.raw" % n for n in (0, 3, 6)]
        equal(sorted(os.listdir(out)), names, "files")
        equal([e["file"] for e in all_of(recv, "saved")], [os.path.join(out, n) for n in names], "saved")
        for n, name in zip((0, 3, 6), names):
            with open(os.path.join(out, name), "rb") as file:
                check(file.read() == counter(SMALL_BYTES, n), "content of " + name)
        for fmt in ("nv12", "rgb24", "bgr24", "gray8"):
            out = os.path.join(folder, fmt)
            layout = ("--format", fmt, "--size", "320x200", "--pitch", "1000")
            send, recv = pair(("--count", "5", "--fps", "0", *layout),
                              ("--memory", memory, "--save", "png", "--out", out, "--every", "2", *layout))
            equal(len(all_of(recv, "saved")), 3, "pictures")
            for n in (0, 2, 4):
                width, height, rows = read_png(os.path.join(out, "frame-%06u.png" % n))
                equal((width, height), (320, 200), "size of the picture")
                equal(code_of(rows), n, "number in the picture")
                red, green, blue = rows[100][3 * 220:3 * 220 + 3]
                if fmt == "gray8":
                    check(red == green == blue == 65, "grey of the red bar is %d %d %d" % (red, green, blue))
                else:
                    check(abs(red - 191) < 3 and green < 3 and blue < 3,
                          "%s: the red bar is %d %d %d" % (fmt, red, green, blue))


def misfit(send_args, recv_args, numbers):
    """recv says that the frames are not what it was told, and what is; a summary follows."""
    s = sender("--fps", "200", *send_args)  # endless: not the end of the peer tells
    r = Run("recv", s.uri(), "--json", *recv_args).wait(1)
    s.wait(0)
    recv = r.checked(RECV)
    for what in (*numbers, "--size", "--format", "--pitch"):
        check(str(what) in r.stderr(), "%s is not in %r" % (what, r.stderr()))
    equal([e["event"] for e in recv[-2:]], ["error", "summary"], "last events")
    equal(last(recv, "summary")["ended_by"], "error", "ended_by")
    check("smaller --count" not in r.stderr(), r.stderr())
    return recv


def test_geometry_that_is_not_the_peers(memory):
    big = ("--size", "320x240", "--window", "500000")
    for more in ((), ("--count", "3"), ("--verify", "off"), ("--verify", "bars"), ("--on-full", "drop-oldest")):
        recv = misfit(big, ("--memory", memory, *SMALL, *more), (115200, SMALL_BYTES))
        equal(last(recv, "error")["code"], "TOOBIG", "code")
        check(last(recv, "summary")["alloc_failed"] > 0, "alloc_failed")
        recv = misfit(NARROW, ("--memory", memory, "--size", "320x240", "--format", "nv12", *more),
                      (115200, SMALL_BYTES))
        equal(last(recv, "error")["code"], "INVAL", "code")
    misfit(NARROW, ("--memory", memory, *SMALL, "--pitch", "256"), (SMALL_BYTES, 256 * 180))
    misfit(NARROW, ("--memory", memory, "--size", "160x120", "--format", "rgb24"), (SMALL_BYTES, 57600))
    misfit((*SMALL, "--pitch", "256"), ("--memory", memory, *SMALL), (SMALL_BYTES, 256 * 180))
    with tempfile.TemporaryDirectory() as folder:
        misfit(big, ("--memory", memory, *SMALL, "--save", "png", "--out", folder), (115200, SMALL_BYTES))
        equal(os.listdir(folder), [], "files")
    # The peer is through before anybody looks.
    send, recv = pair(("--count", "2", "--fps", "0", *big), ("--memory", memory, *SMALL), None, 1)
    equal(last(recv, "error")["code"], "TOOBIG", "code")


def test_frames_over_64_mib(memory):
    large = ("--size", "8192x8256", "--format", "gray8")  # 64.5 MiB
    size = 8192 * 8256
    send, recv = pair(("--pattern", "counter", "--count", "2", "--fps", "0", *large),
                      ("--memory", memory, "--slots", "1", "--verify", "counter", *large))
    equal(last(send, "stream")["window_bytes"], size, "window_bytes")
    equal(last(recv, "summary")["verified_frames"], 2, "verified_frames")
    s = sender("--pattern", "counter", "--count", "2", *large)
    r = Run("recv", s.uri(), "--json", "--memory", memory).wait(1)
    s.wait(1)
    for run in (s, r):
        error = last(run.events(), "error")
        if run is r and not all_of(run.events(), "connected"):
            continue  # the sender had gone before recv knew that it was connected
        equal(error["code"], "TOOBIG", "code of " + run.args[0])
        for what in ("67108864", "--size", "--format"):
            check(what in error["message"], "%s is not in %r" % (what, error["message"]))
    check(str(size) in s.stderr(), s.stderr())


def test_count_of_recv(memory):
    s = sender("--fps", "200", *NARROW)
    r = Run("recv", s.uri(), "--json", "--memory", memory, "--count", "5").wait(0)
    s.wait(0)
    equal(last(r.checked(RECV), "summary")["frames"], 5, "frames")
    equal(last(r.events(), "summary")["ended_by"], "count", "recv ended_by")
    equal(last(s.checked(SEND), "summary")["ended_by"], "peer", "send ended_by")
    send, recv = pair(("--count", "1000000", "--fps", "1000", *NARROW),
                      ("--memory", memory, "--count", "3"), send_status=1)
    equal(last(send, "error")["code"], "CLOSED", "code")
    equal(last(send, "summary")["ended_by"], "peer", "send ended_by")
    send, recv = pair(("--count", "3", "--fps", "0", *NARROW),
                      ("--memory", memory, "--count", "5"), recv_status=1)
    equal(last(recv, "error")["code"], "CLOSED", "code")
    equal([e["event"] for e in recv[-2:]], ["error", "summary"], "last events")
    equal(last(recv, "summary")["frames"], 3, "frames")
    equal(last(recv, "summary")["ended_by"], "peer", "recv ended_by")


def test_signals(memory):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for who in "sr":
            s = sender("--fps", "100", *NARROW)
            r = Run("recv", s.uri(), "--json", "--frames", "--memory", memory)
            r.wait_for(r'("event":"frame","seq":5,)')
            (s if who == "s" else r).signal(number)
            s.wait(0)
            r.wait(0)
            equal(last(s.checked(SEND), "summary")["ended_by"], "signal" if who == "s" else "peer", "send")
            equal(last(r.checked(RECV), "summary")["ended_by"], "signal" if who == "r" else "peer", "recv")


def test_lost_peer(memory):
    s = sender("--fps", "100", *NARROW)
    r = Run("recv", s.uri(), "--json", "--frames", "--memory", memory)
    r.wait_for(r'("event":"frame","seq":5,)')
    s.signal(signal.SIGKILL)
    r.wait(1)
    equal(last(r.checked(RECV), "summary")["ended_by"], "error", "recv ended_by")
    equal(last(r.events(), "error")["code"], "LOST", "code")
    s = sender("--fps", "100", *NARROW)
    r = Run("recv", s.uri(), "--json", "--frames", "--memory", memory)
    r.wait_for(r'("event":"frame","seq":5,)')
    r.signal(signal.SIGKILL)
    s.wait(1)
    equal(last(s.checked(SEND), "summary")["ended_by"], "error", "send ended_by")
    equal(last(s.events(), "error")["where"], s.uri(), "where")


def test_policies_and_slots(memory):
    for policy in ("block", "drop-oldest", "drop-newest"):
        send, recv = pair(("--pattern", "counter", "--count", "200", "--fps", "0", *SMALL),
                          ("--memory", memory, "--on-full", policy, "--queue", "2", "--slots", "3",
                           "--frames"))
        s = last(recv, "summary")
        frames = all_of(recv, "frame")
        equal(s["slots"], 3, "slots")
        equal(s["verify_errors"], 0, "verify_errors with " + policy)
        equal(s["frames"] + s["dropped_oldest"] + s["dropped_newest"], 200, "frames and drops, " + policy)
        equal(len(frames), s["frames"], "frame events")
        check(all(a["seq"] < b["seq"] for a, b in zip(frames, frames[1:])), "order")
        for a, b in zip(frames, frames[1:]):
            equal(b["dropped_before"], b["seq"] - a["seq"] - 1, "dropped_before")
        if policy == "block":
            equal(s["frames"], 200, "frames")
            equal(s["spill_bytes"], s["spilled_frames"] * SMALL_BYTES, "spill_bytes")


# ---- host only -----------------------------------------------------------------------------------

def test_roles_changed():
    r = Run("recv", "--listen", "tcp://127.0.0.1:0", "--json", "--memory", "host", "--stream", "eye")
    s = Run("send", "--connect", r.uri(), "--json", "--stream", "eye", "--pattern", "counter", "--count",
            "20", "--fps", "0", *NARROW).wait(0)
    r.wait(0)
    equal(last(s.checked(SEND), "connected")["role"], "host", "role of send")
    equal(last(r.checked(RECV), "connected")["role"], "device", "role of recv")
    equal(last(r.events(), "stream")["stream"], "eye", "stream")
    equal(last(r.events(), "summary")["verified_frames"], 20, "verified_frames")


def test_stream_names_are_bytes():
    name = b"a\"\xff\xc3\xa4"
    s = subprocess.Popen([COMMAND, "send", "--listen", "tcp://127.0.0.1:0", "--json", "--stream", name,
                          "--count", "1", *NARROW], stdout=subprocess.PIPE)
    Run.live.append(type("Live", (), {"process": s}))
    uri = json.loads(s.stdout.readline())["uri"]
    r = Run("recv", uri, "--json", "--memory", "host").wait(0)
    s.communicate(timeout=LIMIT)
    equal(s.returncode, 0, "exit status of send")
    equal(last(r.events(), "stream")["stream"], "a\"\u00ff\u00e4", "stream")


def test_text_for_people():
    s = Run("send", "--listen", "tcp://127.0.0.1:0", "--count", "3", "--fps", "0", *NARROW)
    uri = s.wait_for(r"^(tcp://127\.0\.0\.1:\d+)\n")
    r = Run("recv", uri, "--memory", "host").wait(0)
    s.wait(0)
    equal(s.lines()[0], uri, "first line")
    check(any(re.match(r" +frames +3$", line) for line in r.lines()), "no summary: %r" % r.lines())


COMMANDS = "send recv devices discover bench".split()


def test_usage():
    for args in (
            ("send",), ("send", "--listen", "tcp://127.0.0.1:0", "--connect", "tcp://127.0.0.1:1"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--size", "64"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--size", "64x64"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--fps", "x"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--pitch", "100"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--pattern", "stripes"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--loop"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--format", "i420"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--trailer", "auto"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--trailer-release", "3.4"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--trailer", "depthai", "--trailer-release", "3.5"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--trailer", "depthai", "--pattern", "noise",
             "--format", "uyvy"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--trailer", "depthai", "--window", "28800", *SMALL),
            ("send", "--listen", "tcp://127.0.0.1:0", "--stream", "x" * 52),
            ("send", "--listen", "nonsense"), ("recv", "nonsense", "--memory", "host"),
            ("recv",), ("recv", "tcp://127.0.0.1:1", "more"), ("recv", "--count"),
            ("recv", "tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0"),
            ("recv", "tcp://127.0.0.1:1", "--format", "nv12"),
            ("recv", "tcp://127.0.0.1:1", "--pitch", "64"),
            ("recv", "tcp://127.0.0.1:1", "--trailer", "none", "--verify", "bars"),
            ("recv", "tcp://127.0.0.1:1", "--trailer", "none", "--save", "png", "--out", "x"),
            ("recv", "tcp://127.0.0.1:1", "--trailer", "none", "--preprocess", "64x64"),
            ("recv", "tcp://127.0.0.1:1", "--trailer", "none", "--pitch-align", "64"),
            ("recv", "tcp://127.0.0.1:1", "--trailer", "xlink"),
            ("recv", "tcp://127.0.0.1:1", "--pitch-align", "48"),
            ("recv", "tcp://127.0.0.1:1", "--pitch-align", "0"),
            ("recv", "tcp://127.0.0.1:1", "--pitch-align", "2097152"),
            ("recv", "tcp://127.0.0.1:1", "--format", "i420", "--size", "64x64", "--verify", "bars"),
            ("recv", "tcp://127.0.0.1:1", "--save", "raw"),
            ("recv", "tcp://127.0.0.1:1", "--every", "2"),
            ("recv", "tcp://127.0.0.1:1", "--preprocess", "640"),
            ("recv", "tcp://127.0.0.1:1", "--memory", "host", "--device", "x"),
            ("recv", "tcp://127.0.0.1:1", "--no-such-option"),
            ("send", "--listen", "tcp://127.0.0.1:0", "--window", "28799", *SMALL),
            ("send", "--listen", "tcp://127.0.0.1:0", "--size", "16384x16384", "--pitch", "262144"),
            ("recv", "tcp://127.0.0.1:1", "--size", "16384x16384", "--format", "nv12", "--pitch", "262144"),
            ("devices", "x"), ("bench", "x"), ("nonsense",), ("odd\033[2J\nname",), ()):
        usage = Run(*args).wait(2)
        said = usage.stderr()
        prefix = "clbridge %s: " % args[0] if args and args[0] in COMMANDS else "clbridge: "
        check(said.startswith(prefix), "%r does not begin with %r" % (said, prefix))
        check("\033" not in said, "control characters in %r" % said)
        if said.startswith(prefix + "nonsense"):
            continue  # a URI, which the library looks at
        equal(usage.lines(), [], "standard output of %r" % (args,))
        if args:
            events = Run(args[0], "--json", *args[1:]).wait(2).events()
            equal([e["event"] for e in events], ["error"], "events of %r" % (args,))
            equal((events[0]["code"], [k for k in ERROR if k not in events[0]]), ("INVAL", []), "error")
            check(events[0]["message"] in said, "%r is not in %r" % (events[0]["message"], said))
    for args in (("--help",), ("--version",), ("send", "--help"), ("recv", "--help"),
                 ("devices", "--help"), ("discover", "--help"), ("bench", "--help")):
        check(Run(*args).wait(0).lines(), "no help for %r" % (args,))
    for option in re.findall(r"--[a-z][a-z-]*", "\n".join(Run("recv", "--help").wait(0).lines())):
        check(option != "--input", "recv has an option of send")


def test_help():
    recv, send = ("\n".join(Run(c, "--help").wait(0).lines()) for c in ("recv", "send"))
    for text in (recv, send):
        for what in ("64 MiB", "bars", "counter", "noise", "before `connected`"):
            check(what in text, "%r is not in %s" % (what, text))
        long = [line for line in text.splitlines() if len(line) > 100]
        equal(long, [], "lines that are too long")
    check("100 frames" in recv, "the help does not say when steady state begins")


def test_nohup():
    """A signal that was ignored from the start stays so."""
    p = subprocess.Popen(["/bin/sh", "-c", 'trap "" HUP; exec "$0" send --listen tcp://127.0.0.1:0', COMMAND],
                         stdout=subprocess.PIPE)
    Run.live.append(type("Live", (), {"process": p}))
    check(p.stdout.readline().startswith(b"tcp://"), "no URI")
    p.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    equal(p.poll(), None, "exit status after SIGHUP")
    p.send_signal(signal.SIGTERM)
    equal(p.wait(LIMIT), 0, "exit status after SIGTERM")


def test_terminal():
    """The progress line is gone before anything else is printed where it stood."""
    s = sender("--fps", "100", *NARROW)
    ours, theirs = os.openpty()
    p = subprocess.Popen([COMMAND, "recv", s.uri(), "--memory", "host"], stdin=subprocess.DEVNULL,
                         stdout=theirs, stderr=theirs)
    Run.live.append(type("Live", (), {"process": p}))
    os.close(theirs)
    said, signaled = b"", False
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how the end of a terminal reads
            break
        if not part:
            break
        said += part
        if b" frames/s" in said and not signaled:
            p.send_signal(signal.SIGINT)
            signaled = True
    os.close(ours)
    equal(p.wait(LIMIT), 0, "exit status")
    s.wait(0)
    check(b"clbridge recv: making " in said, "no progress while the pool is made: %r" % said)
    before = said[:said.index(b"summary")]
    check(before.endswith(b"\r\x1b[K"), "before the summary: %r" % before[-60:])
    check(b" frames/s" in before, "no progress line")


def test_not_in_this_version():
    for args in (("send", "--listen", "tcp://127.0.0.1:0", "--input", "x.y4m"),
                 ("recv", "tcp://127.0.0.1:1", "--memory", "staged"),
                 ("recv", "tcp://127.0.0.1:1", "--save", "y4m", "--out", "x", *SMALL),
                 ("recv", "usb://", "--memory", "host"), ("bench",), ("bench", "--quick", "--strict", "--device", "x"),
                 ("discover",)):
        run = Run(*args, "--json").wait(1)
        events = run.events()
        check(run.stderr().startswith("clbridge %s: " % args[0]), run.stderr())
        check("%s: %s:" % (args[0], args[0]) not in run.stderr(), run.stderr())
        error = last(events, "error")
        equal([k for k in ERROR if k not in error], [], "missing keys of error")
        equal(error["code"], "NOSYS", "code of %r" % (args,))


def test_refused_connection():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = "tcp://127.0.0.1:%d" % free.getsockname()[1]
        for args in (("recv", uri, "--memory", "host"), ("send", "--connect", uri)):
            events = Run(*args, "--json").wait(1).checked(RECV)
            equal([e["event"] for e in events], ["error"], "events")
            equal((events[0]["code"], events[0]["domain"], events[0]["native"]), ("IO", "errno", 111),
                  "cause")
            check(uri in events[0]["where"], "where is %r" % events[0]["where"])


def test_timeouts():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = "tcp://127.0.0.1:%d" % silent.getsockname()[1]
        events = Run("recv", uri, "--json", "--memory", "host", "--timeout", "200").wait(1).events()
        equal([e["event"] for e in events], ["error"], "events")
        equal(events[0]["code"], "TIMEOUT", "code")
        silent.accept()[0].close()
        r = Run("recv", uri, "--json", "--memory", "host", "--timeout", "60000")
        peer = silent.accept()[0]  # so it runs, and waits for the PING to be answered
        r.signal(signal.SIGINT)
        equal(r.wait(0).lines(), [], "output of one that never got anywhere")
        peer.close()
    # Two that both wait for the other's stream.
    a = Run("recv", "--listen", "tcp://127.0.0.1:0", "--json", "--memory", "host", "--timeout", "60000")
    b = Run("recv", a.uri(), "--json", "--memory", "host", "--timeout", "200").wait(1)
    equal(last(b.checked(RECV), "error")["code"], "TIMEOUT", "code")
    equal(last(b.events(), "summary")["ended_by"], "error", "ended_by")
    a.wait(0)
    equal(last(a.checked(RECV), "summary")["ended_by"], "peer", "ended_by")
    s = sender("--count", "2", "--stream", "an\033[2Jeye", *NARROW)
    r = Run("recv", s.uri(), "--json", "--memory", "host", "--stream", "other", "--timeout", "200").wait(1)
    error = last(r.checked(RECV), "error")
    equal(error["where"], "other", "where")
    check('"an\\x1b[2Jeye"' in error["message"], "no name of the stream in %r" % error["message"])
    check("200 ms" in error["message"], error["message"])
    s.wait(1)
    check("not read any" in last(s.checked(SEND), "error")["message"], s.stderr())


def test_idle_timeout():
    """A slow peer is alive; one that hangs is lost."""
    s = sender("--fps", "0.4", *NARROW)
    r = Run("recv", s.uri(), "--json", "--frames", "--memory", "host", "--idle-timeout", "1500", "--count",
            "2").wait(0)
    s.wait(0)
    s = sender("--fps", "100", *NARROW)
    r = Run("recv", s.uri(), "--json", "--frames", "--memory", "host", "--idle-timeout", "1500")
    r.wait_for(r'("event":"frame","seq":5,)')
    s.signal(signal.SIGSTOP)
    r.wait(1)
    equal(last(r.checked(RECV), "error")["code"], "LOST", "code")
    s.signal(signal.SIGCONT)
    s.process.wait(LIMIT)


def test_signal_while_listening():
    for args in (("send",), ("recv", "--memory", "host")):
        p = Run(args[0], "--listen", "tcp://127.0.0.1:0", "--json", *args[1:])
        p.uri()
        p.signal(signal.SIGTERM)
        equal([e["event"] for e in p.wait(0).events()], ["listening"], "events")


def test_signal_while_the_peer_hangs():
    """Blocked for credit that never comes; the peer does not answer the RESET either."""
    s = sender("--fps", "0", *NARROW)
    r = Run("recv", s.uri(), "--json", "--frames", "--memory", "host")
    r.wait_for(r'("event":"frame","seq":5,)')
    r.signal(signal.SIGSTOP)
    time.sleep(0.5)  # until the window is used up: nothing tells us
    begin = time.monotonic()
    s.signal(signal.SIGINT)
    s.wait(0)
    # 2 s are allowed; at 10 s the link would end by itself, without a farewell.
    check(time.monotonic() - begin < 8, "the end took %.1f s" % (time.monotonic() - begin))
    r.signal(signal.SIGCONT)
    r.process.wait(LIMIT)
    equal(last(s.checked(SEND), "summary")["ended_by"], "signal", "ended_by")


def test_reader_goes_away():
    for frames in ((), ("--frames",)):
        s = sender("--fps", "100", *NARROW)
        ours, theirs = os.pipe()
        r = Run("recv", s.uri(), "--json", "--memory", "host", *frames, stdout=theirs)
        os.close(theirs)
        got = b""
        while b'"memory"' not in got:
            part = os.read(ours, 4096)
            check(part, "recv ended")
            got += part
        os.close(ours)
        r.wait(0)
        s.wait(0)
        equal(last(s.checked(SEND), "summary")["ended_by"], "peer", "send ended_by")
    # The sender's reader.
    ours, theirs = os.pipe()
    s = Run("send", "--listen", "tcp://127.0.0.1:0", "--json", "--fps", "100", *NARROW, stdout=theirs)
    os.close(theirs)
    uri = json.loads(os.read(ours, 4096).decode().splitlines()[0])["uri"]
    r = Run("recv", uri, "--json", "--frames", "--memory", "host")
    r.wait_for(r'("event":"frame","seq":5,)')
    os.close(ours)
    s.wait(0)
    r.wait(0)
    equal(last(r.checked(RECV), "summary")["ended_by"], "peer", "recv ended_by")
    # Closed from the start: no socket of ours becomes standard output.
    p = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" send --listen tcp://127.0.0.1:0 --json >&-', COMMAND],
                         stderr=subprocess.PIPE)
    said = p.communicate(timeout=LIMIT)[1]
    equal((p.returncode, said), (0, b""), "end with standard output closed")


def errno_is(event, number):
    equal((event["domain"], event["native"]), ("errno", number), "domain and native")


def test_full_disk():
    with open("/dev/full", "wb") as full:
        for args in (("--help",), ("--version",), ("recv", "--help")):
            check("standard output" in Run(*args, stdout=full).wait(1).stderr(), "no message")
        s = Run("send", "--listen", "tcp://127.0.0.1:0", "--json", stdout=full).wait(1)
    check("standard output" in s.stderr(), s.stderr())
    with tempfile.TemporaryDirectory() as folder:
        blocked = os.path.join(folder, "file")
        open(blocked, "w").close()
        os.chmod(blocked, 0o777)  # so that permissions are not what is wrong
        for out in (blocked, os.path.join(blocked, "below")):
            r = Run("recv", "tcp://127.0.0.1:1", "--json", "--memory", "host", "--save", "raw", "--out",
                    out).wait(1)
            error = last(r.events(), "error")
            equal(error["where"], out, "where")
            errno_is(error, errno.ENOTDIR)
        # A folder where the first file is to be.
        os.mkdir(os.path.join(folder, "frame-000000.raw"))
        send, recv = pair(("--pattern", "counter", "--count", "2", "--fps", "0", *NARROW),
                          ("--memory", "host", "--save", "raw", "--out", folder), None, 1)
        error = last(recv, "error")
        errno_is(error, errno.EISDIR)
        equal(error["where"], os.path.join(folder, "frame-000000.raw"), "where")
        check("in the way" in error["message"] and "space" not in error["message"], error["message"])
    with tempfile.TemporaryDirectory() as folder:
        os.symlink("/dev/full", os.path.join(folder, "frame-000000.raw"))
        send, recv = pair(("--pattern", "counter", "--count", "2", "--fps", "0", *NARROW),
                          ("--memory", "host", "--save", "raw", "--out", folder), None, 1)
        errno_is(last(recv, "error"), errno.ENOSPC)


def test_pace():
    send, recv = pair(("--count", "20", "--fps", "100", *NARROW), ("--memory", "host"))
    check(last(send, "summary")["seconds"] >= 0.19, "20 frames at 100 per second took %r s" % (
        last(send, "summary")["seconds"]))


def test_end_between_two_frames():
    """The sender's next frame is far away: it does not wait for that to see the end."""
    s = sender("--fps", "0.001", *NARROW)
    Run("recv", s.uri(), "--json", "--memory", "host", "--count", "1").wait(0)
    s.wait(0)
    equal(last(s.checked(SEND), "summary")["ended_by"], "peer", "ended_by")


def test_no_runtime():
    """The test sees no OpenCL platform."""
    d = Run("devices", "--json").wait(1)
    events = d.checked(DEVICES)
    equal(last(events, "summary")["devices"], 0, "devices")
    if last(events, "error")["code"] == "NOSYS":  # a build without OpenCL
        return
    for hint in ("OCL_ICD_VENDORS", "POCL_CACHE_DIR"):
        check(hint in d.stderr(), "%s is not in %r" % (hint, d.stderr()))
    r = Run("recv", "tcp://127.0.0.1:1", "--json").wait(1)
    equal([e["event"] for e in r.events()], ["error"], "events")
    equal(r.events()[0]["code"], "NODEV", "code")


# ---- device only ---------------------------------------------------------------------------------

def test_devices():
    events = Run("devices", "--json").wait(0).checked(DEVICES)
    devices = all_of(events, "device")
    equal(last(events, "summary")["devices"], len([d for d in devices if d["usable"]]), "devices")
    check(devices and devices[0]["usable"] is True, "no usable device")
    equal(devices[0]["memory_auto"], "alloc-host", "memory_auto")
    r = Run("recv", "tcp://127.0.0.1:1", "--json", "--device", "no such device").wait(1)
    equal(r.events()[0]["code"], "NODEV", "code")


def test_1080p_without_a_copy():
    size, frames = 1920 * 1080 * 3 // 2, 150
    layout = ("--format", "nv12", "--size", "1920x1080")
    send, recv = pair(("--count", str(frames), "--fps", "0", *layout),
                      ("--verify", "bars", "--frames", *layout))
    check_counts(send, recv, frames, size)
    s, memory = last(recv, "summary"), last(recv, "memory")
    equal(s["verified_frames"], frames, "verified_frames")
    equal(s["memory_path"], "alloc-host", "memory_path")
    equal(memory["path"], "alloc-host", "path")
    equal(memory["requested"], "auto", "requested")
    equal(memory["slot_bytes"], size, "slot_bytes")
    equal(s["slots"], last(send, "stream")["window_bytes"] // size + 4, "slots")
    equal(s["cl_buffers_created"], s["slots"], "cl_buffers_created")
    equal(s["result_bytes"], frames * size, "result_bytes")
    equal(s["pool_misses"], 0, "pool_misses")
    check(s["device"] == memory["device"] and s["device"], "device is %r" % s["device"])
    equal(s["heap_allocs_steady"], 0, "heap_allocs_steady")
    check(0 < s["latency_p50_us"] <= s["latency_p99_us"], "latency")
    check(all(f["latency_us"] > 0 for f in all_of(recv, "frame")), "latency of a frame")


def test_recipe():
    layout = ("--format", "nv12", "--size", "320x200")
    for order in ("rgb", "bgr"):
        with tempfile.TemporaryDirectory() as folder:
            pair(("--count", "1", *layout),
                 ("--preprocess", "320x200,u8,nhwc," + order, "--save", "png", "--out", folder, *layout))
            rows = read_png(os.path.join(folder, "frame-000000.png"))[2]
            red, green, blue = rows[100][3 * 220:3 * 220 + 3]
            check(red > 180 and green < 3 and blue < 3, "%s: red is %d %d %d" % (order, red, green, blue))
    r = Run("recv", "tcp://127.0.0.1:1", "--preprocess", "64x64,f32", "--save", "png", "--out", "x", *layout).wait(2)
    check("--save npy" in r.stderr(), r.stderr())


def read_npy(path):
    """Type, shape and bytes of the values, by the format's description."""
    with open(path, "rb") as file:
        data = file.read()
    equal(data[:8], b"\x93NUMPY\x01\x00", "magic and version")
    end = 10 + int.from_bytes(data[8:10], "little")
    equal((end % 64, data[end - 1]), (0, 10), "end of the header")
    header = ast.literal_eval(data[10:end].decode("ascii"))
    equal(sorted(header), ["descr", "fortran_order", "shape"], "keys")
    equal(header["fortran_order"], False, "order")
    return header["descr"], header["shape"], data[end:]


def test_tensors():
    """The bars 320x200 in 64x64: 40 rows of picture, 12 of padding above and below."""
    layout = ("--format", "nv12", "--size", "320x200")
    for words, descr, shape, fmt in (("64x64,letterbox,f32,nchw,rgb", "<f4", (3, 64, 64), "f"),
                                     ("64x64,letterbox,f16,nchw,bgr", "<f2", (3, 64, 64), "e"),
                                     ("64x64,letterbox,u8,nhwc,bgr", "|u1", (64, 64, 3), "B")):
        with tempfile.TemporaryDirectory() as folder:
            send, recv = pair(("--count", "3", *layout),
                              ("--preprocess", words, "--save", "npy", "--out", folder, "--every", "2", *layout))
            equal(sorted(os.listdir(folder)), ["frame-000000.npy", "frame-000002.npy"], "files")
            equal(len(all_of(recv, "saved")), 2, "saved")
            got = read_npy(os.path.join(folder, "frame-000002.npy"))
            equal(got[:2], (descr, shape), "header")
            values = struct.unpack("<%d%s" % (3 * 64 * 64, fmt), got[2])

            def at(x, y):
                index = [(c * 64 + y) * 64 + x if "nchw" in words else (y * 64 + x) * 3 + c for c in range(3)]
                return [values[i] for i in index][::-1 if "bgr" in words else 1]

            for x, y in ((0, 0), (63, 11), (0, 52), (31, 63)):
                equal(at(x, y), [0, 0, 0], "%s: padding at %d, %d" % (words, x, y))
            red, green, blue = at(44, 32)  # 220 / 5, 100 / 5 + 12
            check(abs(red - 191) < 3 and green < 3 and blue < 3, "%s: red is %r %r %r" % (words, red, green, blue))
            for y in (12, 51):
                check(any(sum(at(x, y)) > 0 for x in range(64)), "%s: row %d is no picture" % (words, y))


def test_frames_that_are_no_pictures():
    """The peer sends less than the layout says: errors, no crash, nothing read beyond."""
    send, recv = pair(("--pattern", "counter", "--size", "100x50", "--format", "gray8", "--count", "5",
                       "--fps", "0"),
                      ("--format", "nv12", "--size", "320x200", "--verify", "bars", "--frames"),
                      recv_status=1)
    equal([f["verified"] for f in all_of(recv, "frame")][:1], [False], "verified")
    equal([f["latency_us"] for f in all_of(recv, "frame")][:1], [None], "latency")


BOTH = (test_geometry_that_is_not_the_peers, test_frames_over_64_mib, test_counter_and_crc, test_noise_and_bars_of_every_format, test_wrong_pixels_are_an_error,
        test_verify_auto_gives_up_on_noise, test_files, test_count_of_recv, test_signals, test_lost_peer,
        test_policies_and_slots)
HOST = (test_help, test_nohup, test_terminal, test_roles_changed, test_stream_names_are_bytes, test_text_for_people, test_usage,
        test_not_in_this_version, test_refused_connection, test_timeouts, test_idle_timeout, test_signal_while_listening,
        test_signal_while_the_peer_hangs, test_reader_goes_away, test_full_disk, test_pace,
        test_end_between_two_frames, test_no_runtime)
DEVICE = (test_devices, test_1080p_without_a_copy, test_recipe, test_tensors, test_frames_that_are_no_pictures)


def main():
    kind = sys.argv[1]
    cases = [(t, ("host" if kind == "host" else "auto",)) for t in BOTH]
    cases += [(t, ()) for t in (HOST if kind == "host" else DEVICE)]
    run_cases(cases, sys.argv[2:])


if __name__ == "__main__":
    main()
