# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=x.cl -DNAME=x -DOUTPUT=x.c -P embed_kernel.cmake
#
# Writes a kernel source as a byte array: compilers need not accept string
# literals of more than 4095 characters. The array ends in a NUL, which its
# length does not count.

file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR len "${digits} / 2")
# Plain ASCII keeps the initializers valid where char is signed, and some
# OpenCL compilers reject anything else.
string(REGEX REPLACE "(..)" "\\1;" bytes "${hex}")
foreach(byte IN LISTS bytes)
  if(byte MATCHES "^[89a-f]")
    message(FATAL_ERROR "${INPUT}: not plain ASCII")
  endif()
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," body "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n    "
  body "${body}")
file(WRITE ${OUTPUT}.tmp
"/* Generated from ${NAME}.cl by the build. */
#include \"clbi_kernels.h\"

const size_t clbi_kernel_${NAME}_len = ${len};
const char clbi_kernel_${NAME}[] = {
    ${body}0x00};
")
file(RENAME ${OUTPUT}.tmp ${OUTPUT})
