#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hpp.sh SOURCE COMPILER LIBRARY SYSTEM-FOLDER|- OTHER-LIBRARY|- INCLUDE-FOLDER...
# Builds a test in C++17 with the shared library and runs it.
set -eu

source=$1
compiler=$2
library=$3
system=$4
other=$5
shift 5

options=
for dir in "$@"; do
    options="$options -I$dir"
done
[ "$system" = - ] || options="$options -isystem $system"
[ "$other" != - ] || other=

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086
"$compiler" -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wold-style-cast -Werror -pthread \
    $options "$source" "$library" $other -Wl,-rpath,"$(dirname "$library")" -o "$work/test"
"$work/test"
