# SPDX-License-Identifier: Apache-2.0
"""`send --trailer depthai` to `recv`: what the metadata say, where the pixels go, and what it costs.

usage: command_camera.py host | device [CASE...]
"""

import os
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True  # the folder of the sources stays as it is
from command_lib import (RECV, SEND, Run, all_of, check, code_of, counter, equal, last, pair, read_png, run_cases,
                         sender)

COUNTS = ("dropped_oldest dropped_newest alloc_failed bad_metadata spilled_frames spill_bytes moved_bytes "
          "readback_bytes cpu_copied_bytes cl_copied_bytes verify_errors poisoned").split()
CAMERA = "sequence_num ts_ns ts_device_ns camera_socket exposure_us iso".split()
TRAILER = 24  # type, size and end mark


def trailer_pair(layout, memory, send=(), recv=(), count=20, **status):
    return pair(("--trailer", "depthai", "--pattern", "counter", "--count", str(count), "--fps", "0", "--frames",
                 *layout, *send), ("--memory", memory, "--frames", "--crc", *recv), **status)


def check_nothing_copied(recv, **but):
    summary = last(recv, "summary")
    for key in COUNTS:
        equal(summary[key], but.get(key, 0), key)


def check_learned(recv, size):
    """The first frame spills; the second is foreseen too small, as one packet says nothing about the next: a
    few bytes are written after all; then nothing."""
    frames = all_of(recv, "frame")
    moved = frames[1]["moved_bytes"]
    check(0 < moved <= 128, "moved_bytes of the second frame is %d" % moved)
    check_nothing_copied(recv, spilled_frames=1, spill_bytes=size, moved_bytes=moved, cpu_copied_bytes=size + moved)
    equal([f["spilled"] for f in frames], [True] + [False] * 19, "spilled")
    equal([f["moved_bytes"] for f in frames], [0, moved] + [0] * 18, "moved_bytes")


def check_camera(frames):
    """What `send` documents of every frame, and times that go on."""
    for n, f in enumerate(frames):
        equal(f["metadata_status"], "ok", "metadata_status")
        equal(f["object_type"], 2, "object_type")
        equal(f["part"], "whole", "part")
        equal(f["sequence_num"], n, "sequence_num")
        equal((f["camera_socket"], f["exposure_us"], f["iso"]), (0, 8333, 400), "camera")
    equal(frames[0]["ts_device_ns"], 0, "first ts_device_ns")
    for a, b in zip(frames, frames[1:]):
        check(a["ts_ns"] <= b["ts_ns"], "ts_ns goes back")
        equal(b["ts_ns"] - a["ts_ns"], b["ts_device_ns"] - a["ts_device_ns"], "time between two frames")


def check_layout(frame, fmt, size, pitches, offsets):
    equal((frame["format"], frame["width"], frame["height"]), (fmt, *size), "layout")
    equal(frame["pitches"], pitches, "pitches")
    equal(frame["offsets"], offsets, "offsets")


def test_every_value(memory):
    """Both releases, geometry given: not one byte is written twice."""
    layout, size = ("--format", "bgr24", "--size", "300x300"), 270000
    for release, metadata in (("3.4", (270, 300)), ("3.10", (340, 370))):
        send, recv = trailer_pair(layout, memory, ("--trailer-release", release), layout)
        check_nothing_copied(recv)
        frames = all_of(recv, "frame")
        check_camera(frames)
        summary = last(recv, "summary")
        equal(summary["metadata_bytes"], sum(f["metadata_bytes"] for f in frames), "metadata_bytes")
        equal((summary["frames"], summary["bytes"]), (20, 20 * size), "frames and bytes")
        equal(last(send, "summary")["bytes"], 20 * size, "bytes sent")
        equal(summary["verified_frames"], 20, "verified_frames")
        for n, (s, f) in enumerate(zip(all_of(send, "frame"), frames)):
            check_layout(f, "bgr24", (300, 300), [900], [0])
            check(metadata[0] < f["metadata_bytes"] < metadata[1], "metadata_bytes is %d" % f["metadata_bytes"])
            equal(f["total_bytes"], size + f["metadata_bytes"] + TRAILER, "total_bytes")
            equal((s["bytes"], f["bytes"]), (size, size), "bytes")
            equal(s["crc32"], f["crc32"], "crc32 of frame %d" % n)
            equal((f["spilled"], f["moved_bytes"], f["readback_bytes"]), (False, 0, 0), "copies")
        equal(frames[3]["crc32"], zlib.crc32(counter(size, 3)), "crc32 of the pixels")


def test_layout_from_the_metadata(memory):
    """Nothing is told. The sender has credit for one frame."""
    size = 300 * 300 * 3
    send, recv = trailer_pair(("--format", "bgr24", "--size", "300x300"), memory,
                              ("--window", str(size + 1024)))
    check_learned(recv, size)
    frames = all_of(recv, "frame")
    check_camera(frames)
    for f in frames:
        check_layout(f, "bgr24", (300, 300), [900], [0])
    equal(last(recv, "summary")["verified_frames"], 20, "verified_frames")
    equal([f["crc32"] for f in frames], [s["crc32"] for s in all_of(send, "frame")], "crc32")


def test_formats(memory):
    """Every format that depthai has, with and without padded rows; on a device those of each number of planes."""
    for fmt, planes in (("gray8", 1), ("nv12", 2), ("nv21", 2), ("i420", 3), ("yuyv", 1), ("rgb24", 1),
                        ("bgr24", 1), ("rgbp", 3), ("bgrp", 3), ("rgba", 1), ("raw8", 1), ("raw10", 1), ("raw12", 1),
                        ("raw16", 1), ("raw10p", 1), ("gray16", 1)):
        if memory != "host" and fmt not in ("gray8", "nv21", "rgbp", "raw10p"):
            continue
        for pitch in ((), ("--pitch", "256")):
            send, recv = trailer_pair(("--format", fmt, "--size", "48x22", *pitch), memory,
                                      ("--window", "32768"), count=3)
            f = last(recv, "frame")
            equal((f["width"], f["height"], len(f["pitches"])), (48, 22, planes), "layout of " + fmt)
            if pitch:
                equal(f["pitches"][0], 256, "pitch of " + fmt)
            # Depth is sent as RAW16, and has no number of its own.
            equal(f["format"], "raw16" if fmt == "gray16" else fmt, "format")
            equal(last(recv, "summary")["verified_frames"], 3, "verified_frames of " + fmt)
            equal(f["crc32"], last(send, "frame")["crc32"], "crc32 of " + fmt)
            equal(last(recv, "summary")["readback_bytes"], 0, "readback_bytes")


def test_rows_placed(memory):
    """The 900-byte rows of 300x300 BGR at 960 bytes, and NV12 of odd size: by the socket, not by the CPU."""
    for fmt, w, h, pitch, pitches, offsets, size in (
            ("bgr24", 300, 300, (), [960], [0], 270000),
            ("nv12", 161, 121, (), [192, 192], [0, 192 * 121], 161 * 121 + 162 * 61),
            ("nv12", 161, 121, ("--pitch", "200"), [192, 192], [0, 192 * 121], 161 * 121 + 162 * 61)):
        layout = ("--format", fmt, "--size", "%dx%d" % (w, h), *pitch)
        for trailer in ("depthai", "none"):
            send, recv = trailer_pair(layout, memory, ("--trailer", trailer),
                                      ("--pitch-align", "64", *layout))
            check_nothing_copied(recv)
            equal(last(recv, "summary")["verified_frames"], 20, "verified_frames")
            equal(last(recv, "summary")["bytes"], 20 * size, "bytes")
            whole = 960 * 299 + 900 if fmt == "bgr24" else offsets[1] + 192 * 60 + 162
            equal(last(recv, "memory")["slot_bytes"], (whole + 63) // 64 * 64, "slot_bytes")
            for s, f in zip(all_of(send, "frame"), all_of(recv, "frame")):
                check_layout(f, fmt, (w, h), pitches, offsets)
                equal(f["bytes"], size, "bytes of a frame")
                if not pitch:
                    equal(f["crc32"], s["crc32"], "crc32")
                equal(f["metadata_status"], "ok" if trailer == "depthai" else "none", "metadata_status")


def test_rows_placed_by_the_metadata(memory):
    layout, size = ("--format", "bgr24", "--size", "300x300"), 270000
    send, recv = trailer_pair(layout, memory, ("--window", str(size + 1024)), ("--pitch-align", "64"))
    frames, spilled = all_of(recv, "frame"), last(recv, "summary")["spill_bytes"]
    check_nothing_copied(recv, spilled_frames=2, spill_bytes=spilled, cpu_copied_bytes=spilled)
    equal([f["spilled"] for f in frames], [True, True] + [False] * 18, "spilled")  # no guess where rows end
    for s, f in zip(all_of(send, "frame"), all_of(recv, "frame")):
        check_layout(f, "bgr24", (300, 300), [960], [0])
        equal((f["bytes"], f["crc32"]), (size, s["crc32"]), "pixels")
    equal(last(recv, "summary")["verified_frames"], 20, "verified_frames")


def test_all_taken_for_pixels(memory):
    """--trailer none delivers the metadata as pixels."""
    with tempfile.TemporaryDirectory() as folder:
        send, recv = trailer_pair(("--format", "gray8", "--size", "200x10"), memory, (),
                                  ("--trailer", "none", "--verify", "off", "--save", "raw", "--out", folder), count=3)
        for n, f in enumerate(all_of(recv, "frame")):
            equal((f["metadata_status"], f["metadata_bytes"], f["object_type"]), ("none", 0, None), "metadata")
            equal([f[k] for k in CAMERA + ["format", "pitches"]], [None] * 8, "what metadata tell")
            equal(f["bytes"], f["total_bytes"], "bytes")
            with open(os.path.join(folder, "frame-%06u.raw" % n), "rb") as file:
                data = file.read()
            equal(data[:2000], counter(2000, n), "pixels")
            equal(data[-16:].hex(), "abcdef0123456789123456789abcdef0", "end mark")
            equal((len(data), zlib.crc32(data)), (f["bytes"], f["crc32"]), "raw file")
    check_nothing_copied(recv)


def test_no_metadata_at_all(memory):
    """--trailer depthai and a peer without: raw frames, marked bad, and no failure; auto: none, and no doubt."""
    layout = ("--format", "gray8", "--size", "200x10")
    send, recv = trailer_pair(layout, memory, ("--trailer", "none", "--window", "2048"), ("--trailer", "depthai"))
    equal(last(recv, "summary")["bad_metadata"], 20, "bad_metadata")
    equal(last(recv, "summary")["metadata_bytes"], 0, "metadata_bytes")
    for s, f in zip(all_of(send, "frame"), all_of(recv, "frame")):
        equal((f["metadata_status"], f["bytes"], f["crc32"]), ("bad", 2000, s["crc32"]), "frame")
        equal([f[k] for k in CAMERA + ["format", "object_type"]], [None] * 8, "what metadata tell")
    send, recv = trailer_pair(layout, memory, ("--trailer", "none"), layout)
    check_nothing_copied(recv)
    equal([f["metadata_status"] for f in all_of(recv, "frame")], ["none"] * 20, "metadata_status")


def test_pictures_by_the_metadata(memory):
    with tempfile.TemporaryDirectory() as folder:
        s = sender("--trailer", "depthai", "--count", "4", "--size", "320x200", "--format", "rgb24", "--pitch", "1024")
        Run("recv", s.uri(), "--json", "--memory", memory, "--verify", "bars", "--save", "png", "--out", folder,
            "--every", "3").wait(0)
        s.wait(0)
        for n in (0, 3):
            width, height, rows = read_png(os.path.join(folder, "frame-%06u.png" % n))
            equal((width, height, code_of(rows)), (320, 200, n), "picture")
    with tempfile.TemporaryDirectory() as folder:  # nobody tells the layout
        s = sender("--size", "320x200", "--fps", "200")
        r = Run("recv", s.uri(), "--json", "--memory", memory, "--save", "png", "--out", folder).wait(2)
        s.wait(0)
        check("--format and --size" in last(r.checked(RECV), "error")["message"], r.stderr())
        equal(os.listdir(folder), [], "files")
    with tempfile.TemporaryDirectory() as folder:
        # In host memory no picture of I420, on a device none of a mosaic whose order nobody tells.
        s = sender("--trailer", "depthai", "--pattern", "counter", "--size", "320x200", "--format",
                   "i420" if memory == "host" else "raw8", "--fps", "200")
        r = Run("recv", s.uri(), "--json", "--memory", memory, "--save", "png", "--out", folder).wait(1)
        s.wait(0)
        equal(last(r.checked(RECV), "error")["code"], "NOSYS", "code")
        equal(os.listdir(folder), [], "files")


def test_layout_changes(memory):
    """Each frame has its own layout: pictures of three sizes and formats, over three links."""
    kinds = (("rgb24", 320, 200), ("nv12", 160, 120), ("gray8", 400, 240))
    with tempfile.TemporaryDirectory() as folder:
        r = Run("recv", "--listen", "tcp://127.0.0.1:0", "--json", "--frames", "--memory", memory, "--reconnect",
                "--verify", "bars", "--count", "6", "--save", "png", "--out", folder)
        for fmt, w, h in kinds:
            Run("send", "--connect", r.uri(), "--json", "--trailer", "depthai", "--count", "2", "--fps", "0",
                "--window", "500000", "--format", fmt, "--size", "%dx%d" % (w, h)).wait(0)
        recv = r.wait(0).checked(RECV)
        equal(last(recv, "summary")["verified_frames"], 6, "verified_frames")
        for n, f in enumerate(all_of(recv, "frame")):
            fmt, w, h = kinds[n // 2]
            equal((f["format"], f["width"], f["height"]), (fmt, w, h), "layout of frame %d" % n)
            width, height, rows = read_png(os.path.join(folder, "frame-%06u.png" % n))
            equal((width, height, code_of(rows)), (w, h, n % 2), "picture %d" % n)


def test_metadata_contradict_the_command_line(memory):
    s = sender("--trailer", "depthai", "--size", "320x200", "--format", "rgb24", "--fps", "200")
    r = Run("recv", s.uri(), "--json", "--memory", memory, "--format", "bgr24", "--size", "320x200").wait(1)
    s.wait(0)
    error = last(r.checked(RECV), "error")
    equal(error["code"], "INVAL", "code")
    for what in ("rgb24 320x200", "bgr24", "neither"):
        check(what in error["message"], "%s is not in %r" % (what, error["message"]))
    # Depth is told as raw16: no contradiction.
    layout = ("--format", "gray16", "--size", "64x64")
    send, recv = trailer_pair(layout, memory, (), layout, count=2)
    equal(last(recv, "frame")["format"], "raw16", "format")
    check_nothing_copied(recv)
    # All for pixels: a packet is more than a frame, and the message tells why that may be.
    s = sender("--trailer", "depthai", "--size", "320x200", "--format", "rgb24", "--fps", "200")
    r = Run("recv", s.uri(), "--json", "--memory", memory, "--format", "rgb24", "--size", "320x200", "--trailer",
            "none").wait(1)
    s.wait(0)
    equal(last(r.checked(RECV), "error")["code"], "TOOBIG", "code")
    check("--trailer auto" in r.stderr(), r.stderr())


def test_window_of_the_sender():
    """By default there is room for four frames and what follows them."""
    s = sender("--trailer", "depthai", "--count", "2", "--size", "1920x1080", "--fps", "0")
    r = Run("recv", s.uri(), "--json", "--memory", "host", "--verify", "off").wait(0)
    s.wait(0)
    equal(last(s.checked(SEND), "stream")["window_bytes"], 4 * (1920 * 1080 * 3 // 2 + 1024), "window_bytes")
    equal(last(r.checked(RECV), "summary")["frames"], 2, "frames")


BOTH = (test_every_value, test_layout_from_the_metadata, test_formats, test_rows_placed,
        test_rows_placed_by_the_metadata, test_all_taken_for_pixels, test_no_metadata_at_all,
        test_pictures_by_the_metadata, test_layout_changes, test_metadata_contradict_the_command_line)
HOST = (test_window_of_the_sender,)


def main():
    kind = sys.argv[1]
    cases = [(t, ("host" if kind == "host" else "auto",)) for t in BOTH]
    cases += [(t, ()) for t in HOST if kind == "host"]
    run_cases(cases, sys.argv[2:])


if __name__ == "__main__":
    main()
