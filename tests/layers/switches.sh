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
    cat >"$folder/user.c" <<'EOF'
#include <clbridge/clbridge.h>
#include <clbridge/cl.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    clb_cl_device *none = NULL;

    clb_cl_device_destroy(&none);
    puts(clb_version_str());
    return strncmp(clb_version_str(), CLB_VERSION_STRING, strlen(CLB_VERSION_STRING));
}
EOF
    "$compiler" -std=c11 -Wall -Werror -I"$folder/prefix/include" "$folder/user.c" -o "$folder/user" \
        -L"$folder/prefix/lib" -lclbridge-cl -lclbridge -Wl,-rpath,"$folder/prefix/lib"
    "$folder/user" || fail "the installed library does not run"
    LD_LIBRARY_PATH=$folder/prefix/lib "$folder/prefix/bin/clbridge" --help >/dev/null || fail "the installed command does not run"
fi
echo "$what: ok"
