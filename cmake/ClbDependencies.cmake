# SPDX-License-Identifier: Apache-2.0
# Everything that comes from outside. Found here once, linked where it is used.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)

# OpenCL is the standard ICD loader, never a vendor's library. Khronos ships
# CMake packages with its loader and headers; distributions often have only
# what CMake's own FindOpenCL finds.
if(CLB_WITH_CL)
  find_package(OpenCLHeaders CONFIG QUIET)
  find_package(OpenCLICDLoader CONFIG QUIET)
  if(NOT TARGET OpenCL::OpenCL)
    find_package(OpenCL REQUIRED)
  endif()
  add_library(clb_opencl INTERFACE)
  target_link_libraries(clb_opencl INTERFACE OpenCL::OpenCL)
  if(TARGET OpenCL::Headers)
    target_link_libraries(clb_opencl INTERFACE OpenCL::Headers)
  endif()
endif()

# libusb is needed as soon as a source of the USB transport includes it.
set(CLB_NEEDS_LIBUSB FALSE)
if(CLB_WITH_USB)
  file(GLOB clb_usb_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/transport/usb*.[ch])
  foreach(file IN LISTS clb_usb_sources)
    file(STRINGS ${file} lines REGEX "#[ \t]*include[ \t]*<(libusb-1.0/)?libusb.h>")
    if(lines)
      set(CLB_NEEDS_LIBUSB TRUE)
    endif()
  endforeach()
  if(CLB_NEEDS_LIBUSB)
    if(NOT PKG_CONFIG_FOUND)
      message(FATAL_ERROR "CLB_WITH_USB needs pkg-config to find libusb-1.0")
    endif()
    pkg_check_modules(LIBUSB REQUIRED IMPORTED_TARGET libusb-1.0>=1.0.22)
  endif()
endif()

# Pictures written by the command, nothing in the libraries.
find_package(PNG REQUIRED)
