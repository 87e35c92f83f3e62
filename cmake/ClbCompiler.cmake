# SPDX-License-Identifier: Apache-2.0
# Warnings, sanitizers and the target `clb_flags` that carries them. Only our
# own targets link it, and only privately: users of the libraries see none.

add_library(clb_flags INTERFACE)

target_compile_options(clb_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> -Wundef -Wformat=2 -Wvla)
if(CLB_WERROR)
  target_compile_options(clb_flags INTERFACE -Werror)
endif()

# POSIX and Linux calls (epoll, accept4, pipe2) without -std=gnu11.
target_compile_definitions(clb_flags INTERFACE _GNU_SOURCE)
if(CLB_DEBUG_ABORT)
  target_compile_definitions(clb_flags INTERFACE CLB_DEBUG_ABORT=1)
endif()

set(CLB_TIMEOUT_FACTOR 1) # tests get this much more time
if(CLB_SANITIZE)
  target_compile_options(clb_flags INTERFACE
    -fsanitize=${CLB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(clb_flags INTERFACE -fsanitize=${CLB_SANITIZE})
  set(CLB_TIMEOUT_FACTOR 4)
endif()

if(CLB_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "CLB_FUZZ needs clang: set CMAKE_C_COMPILER=clang")
  endif()
  target_compile_options(clb_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Not usable with clang's sanitizers, whose runtime is only in the executable.
set(CLB_NO_UNDEFINED -Wl,--no-undefined)
if((CLB_SANITIZE OR CLB_FUZZ) AND CMAKE_C_COMPILER_ID MATCHES "Clang")
  set(CLB_NO_UNDEFINED "")
endif()
