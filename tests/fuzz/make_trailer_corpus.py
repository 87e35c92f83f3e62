#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes corpus/trailer of the samples in tests/data/trailers. The encoding is that of fuzz_trailer.c."""
import pathlib
import re
import struct

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = HERE.parent / "data" / "trailers"
RELEASES = {"v2.33": 1, "encoder": 3, "v3.4": 3, "v3.10": 6}
ANY, PLAIN, ALONE = 0, 8, 16


def pixels_of(path):
    """As the text beside the sample says."""
    text = path.with_name(path.name.split(".")[0] + ".txt")
    found = re.search(r"data (\d+),", text.read_text()) if text.exists() else None
    return int(found.group(1)) if found else 270000


def main():
    out = HERE / "corpus" / "trailer"
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(SAMPLES.glob("*/*.bin")):
        name = f"{path.parent.name}-{path.name.split('.')[0]}"
        release, data = RELEASES[path.parent.name], path.read_bytes()
        size, = struct.unpack_from("<I", data, len(data) - 20)
        kind, = struct.unpack_from("<I", data, len(data) - 24)
        trailer = data[-(size + 24):]
        pixels = pixels_of(path)
        (out / name).write_bytes(bytes([release]) + struct.pack("<I", pixels) + trailer)
        (out / f"{name}-any").write_bytes(bytes([ANY]) + struct.pack("<I", pixels) + trailer)
        (out / f"{name}-old").write_bytes(bytes([ANY | PLAIN]) + struct.pack("<I", pixels) + trailer[:-16])
        (out / f"{name}-alone").write_bytes(
            bytes([ANY | ALONE, kind, pixels >> 8 & 255, pixels >> 16, 0]) + trailer[:-24])


main()
