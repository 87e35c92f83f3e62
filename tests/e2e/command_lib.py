# SPDX-License-Identifier: Apache-2.0
"""What the tests of the `clbridge` command share: processes, the keys of their events, patterns and
pictures computed a second time, from their definition."""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib

COMMAND = os.environ["CLB_COMMAND"]
LIMIT = 100  # seconds: against hanging, nothing is measured with it

ERROR = "event code domain native where message".split()
CONNECTED = "event peer transport role".split()
STREAM = "event stream stream_id window_bytes".split()
SEND = {
    "listening": "event uri port pid".split(),
    "connected": CONNECTED,
    "stream": STREAM,
    "frame": "event seq bytes crc32".split(),
    "summary": ("event frames bytes acked_frames released_frames credit_wait_ms seconds fps cpu_s "
                "ended_by").split(),
    "error": ERROR,
}
RECV = {
    "listening": SEND["listening"],
    "connected": CONNECTED,
    "stream": STREAM,
    "memory": ("event requested path reason platform device driver_version slots "
               "slot_bytes").split(),
    "frame": ("event seq bytes total_bytes metadata_bytes metadata_status object_type part format "
              "width height pitches offsets sequence_num ts_ns ts_device_ns camera_socket exposure_us iso dropped_before "
              "spilled moved_bytes readback_bytes crc32 verified latency_us").split(),
    "saved": "event seq file".split(),
    "summary": ("event frames bytes metadata_bytes verified_frames verify_errors dropped_oldest "
                "dropped_newest alloc_failed bad_metadata spilled_frames spill_bytes moved_bytes "
                "readback_bytes cpu_copied_bytes cl_copied_bytes result_bytes memory_path device slots "
                "pool_hits pool_misses poisoned cl_buffers_created heap_allocs_steady "
                "minor_faults_io_steady seconds fps latency_p50_us latency_p99_us cpu_s cpu_io_s "
                "cpu_s_per_gb reconnects attempts_failed ended_by").split(),
    "reconnect": "event attempt wait_ms code message".split(),
    "error": ERROR,
}
DEVICES = {
    "device": ("event index platform name vendor type driver_version opencl_version unified_memory "
               "base_align_bytes max_alloc_bytes global_mem_bytes svm_coarse svm_fine usm_host fp16 "
               "memory_auto memory_reason probe usable error").split(),
    "summary": "event devices".split(),
    "error": ERROR,
}


def equal(got, want, what):
    if got != want:
        raise AssertionError("%s is %r, not %r" % (what, got, want))


def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Run:
    """One process of the command; its output is read when it has ended."""

    live = []

    def __init__(self, *args, stdout=None, pass_fds=()):
        self.args = args
        self.out = tempfile.TemporaryFile()
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [COMMAND, *args], stdin=subprocess.DEVNULL, stderr=self.err, pass_fds=pass_fds,
            stdout=self.out if stdout is None else stdout)
        Run.live.append(self)

    def text(self, file):
        # pread: the child writes at the offset that the file description shares
        # with us.
        return os.pread(file.fileno(), 1 << 26, 0)

    def lines(self):
        return self.text(self.out).decode("utf-8").splitlines()

    def events(self):
        return [json.loads(line) for line in self.lines()]

    def wait_for(self, pattern):
        """The first match in standard output, while the process runs."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            match = re.search(pattern, self.text(self.out).decode("utf-8", "replace"), re.M)
            if match:
                return match.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError("%s did not print %s: %s" % (self.args[0], pattern, self.stderr()))

    def uri(self):
        return self.wait_for(r'"uri":"(tcp://[^"]*)".*\n')

    def signal(self, number):
        self.process.send_signal(number)

    def stderr(self):
        return self.text(self.err).decode("utf-8", "replace")

    def wait(self, want):
        """Exit status `want`; one line on standard error when it failed, else none."""
        got = self.process.wait(LIMIT)
        said = self.stderr()
        if got != want:
            raise AssertionError("%s: exit status %d, not %d: %s%s" % (
                " ".join(self.args), got, want, said, "\n".join(self.lines()[-3:])))
        lines = said.splitlines()
        equal(len(lines), 0 if want == 0 else 1, "%s: lines on standard error: %r" % (
            " ".join(self.args), said))
        if lines:
            check(lines[0].startswith("clbridge"), lines[0])
        return self

    def checked(self, table):
        """All events, with the keys of the contract, `summary` last once connected."""
        events = self.events()
        names = [e["event"] for e in events]
        for event in events:
            missing = [k for k in table[event["event"]] if k not in event]
            equal(missing, [], "missing keys of %s %s" % (self.args[0], event["event"]))
        if "connected" in names:
            equal(names[-1], "summary", "last event of %s" % self.args[0])
            equal(names.count("summary"), 1, "summaries")
        return events


def last(events, name):
    found = [e for e in events if e["event"] == name]
    check(found, "there is no event %s" % name)
    return found[-1]


def all_of(events, name):
    return [e for e in events if e["event"] == name]


def sender(*args):
    return Run("send", "--listen", "tcp://127.0.0.1:0", "--json", *args)


def pair(send_args, recv_args, send_status=0, recv_status=0):
    """None: this side may end as it will."""
    s = sender(*send_args)
    r = Run("recv", s.uri(), "--json", *recv_args)
    r.wait(recv_status)
    s.process.wait(LIMIT) if send_status is None else s.wait(send_status)
    return s.checked(SEND), r.checked(RECV)


def counter(size, n):
    head = struct.pack("<Q", n)[:size]
    return head + bytes((7 * i + 13 * (i >> 8) + n) & 255 for i in range(len(head), size))


def crc16(data):
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def read_png(path):
    """(width, height, rows of RGB bytes); 8-bit RGB, not interlaced."""
    with open(path, "rb") as file:
        data = file.read()
    equal(data[:8], b"\x89PNG\r\n\x1a\n", "signature of " + path)
    at, pixels, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        equal(struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0],
              zlib.crc32(kind + body), "CRC of a chunk of " + path)
        if kind == b"IHDR":
            size = struct.unpack(">IIBBBBB", body)
            equal(size[2:], (8, 2, 0, 0, 0), "kind of picture")
        elif kind == b"IDAT":
            pixels += body
        at += 12 + length
    raw, (width, height) = zlib.decompress(pixels), size[:2]
    stride, rows, above = width * 3, [], bytes(width * 3)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        check(kind in (0, 1, 2), "PNG filter %d" % kind)
        for x in range(stride):
            if kind == 1 and x >= 3:
                line[x] = (line[x] + line[x - 3]) & 255
            elif kind == 2:
                line[x] = (line[x] + above[x]) & 255
        above = bytes(line)
        rows.append(above)
    return width, height, rows


def code_of(rows):
    """The 48 cells of a bars picture in RGB: number and CRC."""
    code = 0
    for cell in range(48):
        y, x = cell // 16 * 8 + 4, cell % 16 * 8 + 4
        code = code << 1 | (rows[y][3 * x] > 127)
    equal(code & 0xFFFF, crc16(struct.pack(">I", code >> 16)), "CRC of the picture's code")
    return code >> 16


SMALL = ("--size", "160x120", "--format", "nv12")
SMALL_BYTES = 160 * 120 * 3 // 2
# With a small window the receiver's memory for frames of unknown size is small.
NARROW = ("--window", str(4 * SMALL_BYTES), *SMALL)


def run_cases(cases, wanted):
    """Runs [(function, arguments)], those named in wanted or all; ends the process."""
    failed = 0
    for test, args in cases:
        if wanted and test.__name__ not in wanted:
            continue
        begin = time.monotonic()
        try:
            test(*args)
            print("ok      %5.1f s  %s" % (time.monotonic() - begin, test.__name__))
        except Exception as error:  # every case is to be reported
            failed += 1
            line = error.__traceback__
            while line.tb_next and line.tb_next.tb_frame.f_code.co_name.startswith("test_"):
                line = line.tb_next
            print("FAILED  %5.1f s  %s: %s: %s (line %d)" % (
                time.monotonic() - begin, test.__name__, type(error).__name__, error, line.tb_lineno))
        finally:
            for run in Run.live:  # our own children only
                if run.process.poll() is None:
                    run.process.kill()
                    run.process.wait()
            Run.live.clear()
        sys.stdout.flush()
    sys.exit(1 if failed else 0)
