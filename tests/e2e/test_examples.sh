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

# An address of this run alone: a port that a sender had is still free when the next one wants it.
address=tcp://127.$(($$ / 65536 % 64 + 128)).$(($$ / 256 % 256)).$(($$ % 254 + 1)):0

# sender OPTIONS...: starts one at $address and sets $uri
sender() {
    : >"$dir/send.out" # nothing of the one before is read
    "$CLB_COMMAND" send --listen "$address" "$@" >"$dir/send.out" 2>"$dir/send.err" &
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

# A peer that dies, comes back, dies again, and then ends as often as it must; a whole frame is held over
# each end. A sender has 40 frames (of 28800 bytes): whatever the machine does, it takes three for 100.
many() {
    sender --size 160x120 --format nv12 --fps 200 --pattern counter --frames --count 40
}
many
address=$uri
(
    timeout 100 "$CLB_BUILD_DIR/examples/reconnect" "$uri" 28800 100 >"$dir/again.out" 2>"$dir/again.err"
    echo $? >"$dir/again.rc"
) &
round=1
while :; do
    until [ -s "$dir/again.rc" ] || grep -q "^summary" "$dir/send.out"; do
        [ $round -le 2 ] && grep -q "seq=20 " "$dir/send.out" && break
        sleep 0.05
    done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    pid=
    [ -s "$dir/again.rc" ] && break
    round=$((round + 1))
    many
done
cat "$dir/again.out" "$dir/again.err"
[ "$(cat "$dir/again.rc")" = 0 ] || { echo "reconnect failed"; exit 1; }
grep -Eq "^100 frames over ([3-9]|[1-9][0-9]+) links, the last one is number [0-9]+$" "$dir/again.out" ||
    { echo "expected 100 frames over three links or more"; exit 1; }
grep -Eq "^(LOST|CLOSED): .*; trying again$" "$dir/again.err" || { echo "expected a link's end"; exit 1; }

# What another attempt does not mend.
if "$CLB_BUILD_DIR/examples/reconnect" "nonsense" 28800 1 >/dev/null 2>"$dir/err"; then
    echo "expected a failure"; exit 1
fi
grep -q "^INVAL: " "$dir/err" || { echo "expected INVAL: $(cat "$dir/err")"; exit 1; }
