# SPDX-License-Identifier: Apache-2.0
# Set-up shared by the scripts; sourced by bash, not run.
#
#   clb_setup PART...     PART: build demo test ci
#
# Installs the Debian packages of these parts that are missing. Nothing is
# asked from the network when none is. CLB_NO_INSTALL=1: tells what is missing
# and fails.

say()
{
    printf '%s\n' "== $*"
}

die()
{
    printf '%s\n' "${0##*/}: $*" >&2
    exit 1
}

clb_packages()
{
    local codename=$1 part
    shift
    for part in "$@"; do
        case $part in
        build)
            echo gcc libc6-dev cmake ninja-build pkg-config
            echo ocl-icd-opencl-dev opencl-headers libusb-1.0-0-dev libpng-dev
            ;;
        demo)
            echo pocl-opencl-icd
            ;;
        test)
            echo pocl-opencl-icd mesa-opencl-icd
            # Debian 13 has no Oclgrind; its tests show as skipped there.
            [ "$codename" = trixie ] || echo oclgrind
            echo libcriterion-dev g++ gcc-multilib binutils python3
            # What opencv.hpp is tried with, and results are compared with: 30 MB installed.
            echo libopencv-core-dev libopencv-imgproc-dev
            ;;
        ci)
            echo git clang clang-format debootstrap iproute2
            # What holds clang's sanitizer and fuzzer runtimes.
            case $codename in
            bookworm) echo libclang-rt-14-dev ;;
            trixie) echo libclang-rt-19-dev ;;
            *) echo libclang-rt-dev ;;
            esac
            ;;
        esac
    done
}

clb_installed()
{
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | head -c 9)" = installed ]
}

clb_setup()
{
    local id='' codename='' wanted missing=() package run=()

    if [ -r /etc/os-release ]; then
        id=$(. /etc/os-release && echo "${ID:-}")
        codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    fi
    wanted=$(clb_packages "$codename" "$@" | tr ' ' '\n' | sort -u)

    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "set-up: no Debian system (${id:-unknown}); taking these as installed:" $wanted
        return 0
    fi
    case $codename in
    bookworm | trixie) ;;
    *) say "set-up: written for Debian 12 and 13, trying on ${id:-unknown} ${codename:-unknown}" ;;
    esac

    for package in $wanted; do
        clb_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "set-up: all packages are installed"
        return 0
    fi
    if [ "${CLB_NO_INSTALL:-0}" = 1 ]; then
        die "missing packages: ${missing[*]} (run without --no-install, or install them)"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing packages: ${missing[*]} (needs root or sudo)"
        run=(sudo)
    fi
    say "set-up: installing ${missing[*]}"
    local options=(-q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" update </dev/null ||
        die "apt-get update failed"
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" \
        install --no-install-recommends "${missing[@]}" </dev/null ||
        die "apt-get install failed"
}
