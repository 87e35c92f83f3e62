#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hpp.sh COMPILER LIBRARY INCLUDE-FOLDER...
# Builds hpp_test.cpp with the shared library and runs it.
set -eu

compiler=$1
library=$2
shift 2

options=
for dir in "$@"; do
    options="$options -I$dir"
done

here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086
"$compiler" -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wold-style-cast -Werror -pthread \
    $options "$here/hpp_test.cpp" "$library" -Wl,-rpath,"$(dirname "$library")" -o "$work/hpp_test"
"$work/hpp_test"
