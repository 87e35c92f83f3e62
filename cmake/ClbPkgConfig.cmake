# SPDX-License-Identifier: Apache-2.0
# clbridge.pc and clbridge-cl.pc. Paths are relative to the files, so that they
# hold for `cmake --install --prefix` too.

set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
# An absolute second part replaces the first.
cmake_path(APPEND pc_libdir "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
cmake_path(APPEND pc_includedir "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")

# clb_pc(NAME n DESCRIPTION text [REQUIRES names] [LIBS more])
function(clb_pc)
  cmake_parse_arguments(arg "" "NAME;DESCRIPTION;REQUIRES;LIBS" "" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${arg_NAME}.pc @ONLY CONTENT
"prefix=\${pcfiledir}/@pc_to_prefix@
libdir=@pc_libdir@
includedir=@pc_includedir@

Name: @arg_NAME@
Description: @arg_DESCRIPTION@
Version: @PROJECT_VERSION@
Requires: @arg_REQUIRES@
Libs: -L\${libdir} -l@arg_NAME@@arg_LIBS@
Cflags: -I\${includedir}
")
  install(FILES ${PROJECT_BINARY_DIR}/${arg_NAME}.pc DESTINATION ${pc_dir})
endfunction()

clb_pc(NAME clbridge DESCRIPTION "${PROJECT_DESCRIPTION}")
if(CLB_WITH_CL)
  # Programs make OpenCL calls of their own. Not every loader comes with a .pc.
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(CLB_OPENCL_PC QUIET OpenCL)
  endif()
  if(CLB_OPENCL_PC_FOUND)
    clb_pc(NAME clbridge-cl DESCRIPTION "OpenCL part of clbridge" REQUIRES "clbridge, OpenCL")
  else()
    clb_pc(NAME clbridge-cl DESCRIPTION "OpenCL part of clbridge" REQUIRES clbridge LIBS " -lOpenCL")
  endif()
endif()
