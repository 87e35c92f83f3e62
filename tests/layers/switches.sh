#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# switches.sh CMAKE SOURCE FOLDER COMPILER no-cl|no-usb|no-tcp|no-all|install
# Builds without that part (no-all: without any), warnings being errors, and looks
# at what came out. "install": the whole, installed and used from there.
set -eu

cmake=$1
source=$2
folder=$3/switch-$5
compiler=$4
what=$5

cl=ON usb=ON tcp=ON
case $what in
no-cl) cl=OFF ;;
no-usb) usb=OFF ;;
no-tcp) tcp=OFF ;;
no-all) cl=OFF usb=OFF tcp=OFF ;;
esac

# A build folder of an earlier run may have been made from another tree.
rm -rf "$folder"
"$cmake" -S "$source" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="$compiler" \
    -DCMAKE_INSTALL_PREFIX="$folder/prefix" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_TESTING=OFF -DCLB_WERROR=ON \
    -DCLB_WITH_CL=$cl -DCLB_WITH_USB=$usb -DCLB_WITH_TCP=$tcp >"$folder.log" 2>&1 || {
    cat "$folder.log"
    exit 1
}
"$cmake" --build "$folder" -j 2 >"$folder.log" 2>&1 || {
    cat "$folder.log"
    exit 1
}
rm -f "$folder.log"

fail()
{
    echo "$*"
    exit 1
}

# The quick start comes as far as it can without a peer: usage, then OpenCL or the link fails.
starts()
{
    rc=0
    "$1" >"$folder/out.txt" 2>&1 || rc=$?
    [ $rc -eq 2 ] && grep -q '^usage: ' "$folder/out.txt" ||
        fail "$1 without arguments: status $rc, not 2: $(cat "$folder/out.txt")"
    rc=0
    timeout 60 "$1" tcp://127.0.0.1:1 64 64 >"$folder/out.txt" 2>&1 || rc=$?
    [ $rc -eq 1 ] || fail "$1 without a peer: status $rc, not 1: $(cat "$folder/out.txt")"
}

command=$folder/tools/clbridge
if [ $cl = OFF ]; then
    [ ! -e "$folder/src/libclbridge-cl.so" ] || fail "libclbridge-cl was built"
    [ ! -e "$command" ] || ! readelf -d "$command" | grep -q libOpenCL || fail "the command needs libOpenCL"
    grep -q 'CLB_HAVE_CL 0' "$folder/include/clbridge/config.h" || fail "config.h: CLB_HAVE_CL"
fi
if [ $usb = OFF ]; then
    ! readelf -d "$folder/src/libclbridge.so" | grep -q libusb || fail "libclbridge needs libusb"
    grep -q 'CLB_HAVE_USB 0' "$folder/include/clbridge/config.h" || fail "config.h: CLB_HAVE_USB"
fi
if [ $tcp = OFF ]; then
    grep -q 'CLB_HAVE_TCP 0' "$folder/include/clbridge/config.h" || fail "config.h: CLB_HAVE_TCP"
    # What is not there says so, at once.
    rc=0
    timeout 20 "$command" recv tcp://127.0.0.1:1 --memory host --json </dev/null >"$folder/out.jsonl" 2>&1 || rc=$?
    [ $rc -eq 1 ] || fail "recv tcp:// without TCP: status $rc, not 1: $(cat "$folder/out.jsonl")"
    grep -q '"code": *"NOSYS"' "$folder/out.jsonl" || fail "recv tcp:// without TCP: $(cat "$folder/out.jsonl")"
fi

if [ "$what" = install ]; then
    "$cmake" --install "$folder" >/dev/null
    prefix=$folder/prefix
    unset LD_LIBRARY_PATH PKG_CONFIG_PATH
    version=$("$prefix/bin/clbridge" --version) || fail "the installed command does not start: $version"
    [ "$version" = "clbridge $(sed -n 's/.*CLB_VERSION_STRING "\(.*\)"/\1/p' "$prefix/include/clbridge/config.h")" ] ||
        fail "the installed command says: $version"

    # What a dlopen() of it needs: its own way to libclbridge.
    ! ldd "$prefix/lib/libclbridge-cl.so" | grep 'not found' || fail "libclbridge-cl does not find libclbridge"

    # The quick start as the README says, with the folders of this prefix.
    line=$(sed -n '/-lclbridge-cl/s/^cc //p' "$source/README.md")
    [ -n "$line" ] || fail "README.md: no line 'cc ... -lclbridge-cl ...'"
    mkdir "$folder/app" && cp "$source/examples/quickstart.c" "$folder/app/"
    # shellcheck disable=SC2086
    (cd "$folder/app" &&
        "$compiler" -I"$prefix/include" -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" $line) || fail "cc $line"
    starts "$folder/app/app"
    # And by what pkg-config says.
    if pkg-config --version >/dev/null 2>&1; then
        export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
        flags=$(pkg-config --cflags --libs clbridge-cl) || fail "clbridge-cl.pc"
        # shellcheck disable=SC2086
        "$compiler" "$source/examples/quickstart.c" $flags -Wl,-rpath,"$prefix/lib" -o "$folder/quickstart-pc"
        starts "$folder/quickstart-pc"
        version=$(pkg-config --modversion clbridge)
        "$prefix/bin/clbridge" --version | grep -qx "clbridge $version" || fail "clbridge.pc: version $version"
    fi
fi
echo "$what: ok"
