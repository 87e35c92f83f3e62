#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# alone.sh COMPILER STANDARD yes|no INCLUDE-FOLDER...
# Compiles every header found in the folders' clbridge/, alone and twice in a
# row, as STANDARD, pedantic. The third argument says whether OpenCL is there.
set -eu

compiler=$1
standard=$2
with_cl=$3
shift 3

case $standard in
c++*) language=c++ ;;
*) language=c ;;
esac

options=
for dir in "$@"; do
    options="$options -I$dir"
done

count=0
bad=0
for header in $(cd "$1" && echo clbridge/*.h clbridge/*.hpp) clbridge/config.h; do
    case $header in
    *\**) continue ;;
    *.hpp) [ $language = c++ ] || continue ;;
    esac
    case $header in
    */cl.h | */preprocess.h) [ "$with_cl" = yes ] || continue ;;
    */opencv.hpp)
        [ "$with_cl" = yes ] || continue
        # Not one of our dependencies: checked where somebody has it.
        echo '#include <opencv2/core.hpp>' |
            "$compiler" -std="$standard" -x $language -fsyntax-only -I/usr/include/opencv4 - 2>/dev/null || {
            echo "$header: no OpenCV here, not checked"
            continue
        }
        options="$options -isystem /usr/include/opencv4"
        ;;
    esac
    count=$((count + 1))
    # shellcheck disable=SC2086
    printf '#include <%s>\n#include <%s>\nint clb_header_test;\n' "$header" "$header" |
        "$compiler" -std="$standard" -x $language -fsyntax-only -Wall -Wextra -Wpedantic -Wundef -Werror \
            $options - || {
        echo "$header: does not compile alone as $standard with $compiler"
        bad=$((bad + 1))
    }
done
echo "$count headers, $bad bad"
[ "$count" -gt 0 ] && [ "$bad" -eq 0 ]
