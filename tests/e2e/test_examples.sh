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
# The fifth of the eight bars begins in the middle: 75 % magenta, (191, 0, 191).
case "$out" in
"40 frames, the middle of the last one is "*) ;;
*) echo "expected 40 frames"; exit 1 ;;
esac
set -- ${out##* is }
[ "$1" -ge 190 ] && [ "$1" -le 192 ] && [ "$2" -le 1 ] && [ "$3" -ge 190 ] && [ "$3" -le 192 ] ||
    { echo "expected magenta"; exit 1; }

# A picture that is larger than what is sent is an error, not a black one.
sender --size 160x120 --format nv12 --count 5 --fps 0
if "$CLB_BUILD_DIR/examples/quickstart" "$uri" 320 240 2>"$dir/err"; then
    echo "expected a failure"; exit 1
fi
grep -q "^run: " "$dir/err" || { echo "expected the kernel to be refused: $(cat "$dir/err")"; exit 1; }
