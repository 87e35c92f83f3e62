#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the examples against `clbridge send`. CLB_COMMAND and CLB_BUILD_DIR come from the test.
set -u
dir=$(mktemp -d) || exit 1
pid=
cleanup() {
    [ -n "$pid" ] && kill "$pid" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT INT TERM

# sender OPTIONS...: starts one and sets $uri
sender() {
    "$CLB_COMMAND" send --listen tcp://127.0.0.1:0 "$@" >"$dir/send.out" 2>"$dir/send.err" &
    pid=$!
    uri=
    n=0
    while [ -z "$uri" ] && [ $n -lt 100 ]; do
        uri=$(sed -n 1p "$dir/send.out")
        n=$((n + 1))
        [ -n "$uri" ] || sleep 0.1
    done
    [ -n "$uri" ] || { echo "the sender does not start: $(cat "$dir/send.err")"; exit 1; }
}

sender --size 320x240 --format nv12 --count 40 --fps 0 --pattern bars
out=$("$CLB_BUILD_DIR/examples/quickstart" "$uri" 320 240) || exit 1
echo "$out"
wait "$pid" || { echo "the sender failed: $(cat "$dir/send.err")"; exit 1; }
pid=
case "$out" in
"40 frames, last pixel 0: "*) ;;
*) echo "expected 40 frames"; exit 1 ;;
esac
# Bit 31 of the frame number is drawn at (0, 0): 0 is black.
[ "${out##*: }" = "0 0 0" ] || { echo "expected a black first pixel"; exit 1; }
