# SPDX-License-Identifier: Apache-2.0
# How tests are declared.
#
#   clb_criterion_test(NAME n SOURCES files... [LIBS libs...] [ENV VAR=value...]
#                      [LABELS l...] [TIMEOUT seconds] [RUNTIMES r...] [ARGS a...]
#                      [SERIAL])
#   clb_program_test(... the same ...)
#   clb_program32_test(NAME n SOURCES files... [LABELS l...] [TIMEOUT seconds])
#   clb_script_test(NAME n COMMAND words... [ENV ...] [LABELS ...] [TIMEOUT s] [RUNTIMES r...] [SERIAL])
#   clb_cl_env(out runtime)
#   clb_fuzzer(NAME n SOURCES files... [LIBS libs...] [CORPUS dir])
#
# A Criterion test is an executable of Criterion suites. It is not built under
# ThreadSanitizer, where Criterion 2.4 cannot start. A program test has a main:
# exit status 0 is a pass, 77 a skip (say why on standard output), all else a
# failure. Both link clbridge_static, and see src/ (so <core/wire.h>), the
# folders in it (so "wire.h"), tests/support and the public headers;
# tests of the CL part say LIBS clbridge_cl_static.
#
# RUNTIMES (pocl, rusticl, oclgrind): the executable is registered once per
# runtime as NAME.RUNTIME, and each run sees that runtime alone. A runtime that
# is not installed shows as a skipped test. Without RUNTIMES a test sees no
# OpenCL platform at all.
#
# Tests are labelled with the name of their folder (unit, cl, e2e, ...), what
# LABELS adds, and their runtime. SERIAL: no other test runs meanwhile, for tests
# that measure time.
#
# Two labels keep a test out of a plain run of CTest, where everybody waits for
# it. `full` is for what takes many minutes: `ctest -C full -L '^full$'`. `ci`
# is for stages of .ci/run: `ctest -C ci -L '^ci$'`.
#
# Every test has a time limit (60 s unless TIMEOUT says otherwise; more under
# sanitizers). CLB_TEST_SOURCE_DIR (tests/) and CLB_TEST_DATA_DIR (tests/data)
# are string macros for the sources and variables for the scripts.

# --- OpenCL runtimes --------------------------------------------------------

# Compiled kernels, shared by all build folders under build/: a sanitized run
# with a cold cache would report what PoCL's compiler leaves behind.
get_filename_component(clb_build_parent ${PROJECT_BINARY_DIR} DIRECTORY)
if(NOT clb_build_parent STREQUAL ${PROJECT_SOURCE_DIR}/build)
  set(clb_build_parent ${PROJECT_BINARY_DIR})
endif()
set(CLB_POCL_CACHE_DIR ${clb_build_parent}/pocl-cache CACHE PATH "Kernel cache of the tests")
file(MAKE_DIRECTORY ${CLB_POCL_CACHE_DIR})

set(CLB_RUNTIMES_FOUND "")
set(CLB_RUNTIMES_SKIPPED "")
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/icd/none)
foreach(runtime pocl rusticl oclgrind)
  set(dir ${PROJECT_BINARY_DIR}/icd/${runtime})
  file(MAKE_DIRECTORY ${dir})
  set(found FALSE)
  # Written only when it differs: tests of this folder may be running.
  if(runtime STREQUAL "oclgrind")
    # Debian keeps it out of the vendor folder, as it is not for daily use.
    find_file(CLB_OCLGRIND_ICD liboclgrind-rt-icd.so
      PATHS /usr/lib/oclgrind /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/oclgrind /usr/local/lib/oclgrind
      NO_DEFAULT_PATH)
    if(CLB_OCLGRIND_ICD)
      set(found TRUE)
      file(CONFIGURE OUTPUT ${dir}/oclgrind.icd CONTENT "${CLB_OCLGRIND_ICD}\n" @ONLY)
    endif()
  elseif(EXISTS /etc/OpenCL/vendors/${runtime}.icd)
    set(found TRUE)
    file(COPY /etc/OpenCL/vendors/${runtime}.icd DESTINATION ${dir})
  endif()
  if(found)
    list(APPEND CLB_RUNTIMES_FOUND ${runtime})
  else()
    file(REMOVE ${dir}/${runtime}.icd)
  endif()
endforeach()
# ThreadSanitizer takes rusticl's and Oclgrind's own locking, which it does not
# see, for races.
if(CLB_SANITIZE MATCHES "thread")
  set(CLB_RUNTIMES_SKIPPED rusticl oclgrind)
  list(REMOVE_ITEM CLB_RUNTIMES_FOUND ${CLB_RUNTIMES_SKIPPED})
endif()
message(STATUS "OpenCL runtimes for the tests: ${CLB_RUNTIMES_FOUND}")

# Environment in which a process sees one runtime ("none": no runtime).
function(clb_cl_env out runtime)
  set(env
    OCL_ICD_VENDORS=${PROJECT_BINARY_DIR}/icd/${runtime}
    POCL_CACHE_DIR=${CLB_POCL_CACHE_DIR})
  if(runtime STREQUAL "rusticl")
    list(APPEND env RUSTICL_ENABLE=llvmpipe)
  endif()
  set(${out} ${env} PARENT_SCOPE)
endfunction()

# --- Criterion --------------------------------------------------------------

set(CLB_CRITERION TRUE)
if(CLB_SANITIZE MATCHES "thread" OR CLB_FUZZ)
  set(CLB_CRITERION FALSE)
else()
  find_path(CLB_CRITERION_INCLUDE criterion/criterion.h REQUIRED)
  find_library(CLB_CRITERION_LIBRARY criterion REQUIRED)
endif()

# --- shared parts -----------------------------------------------------------

function(clb_skipped_test name reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "SKIP: ${reason}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^SKIP: " LABELS skip)
endfunction()

# Registers one command under one name, with limits and environment.
function(clb_register name)
  cmake_parse_arguments(arg "SERIAL" "RUNTIME;TIMEOUT" "COMMAND;ENV;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${CLB_TIMEOUT_FACTOR}")
  if(NOT arg_RUNTIME)
    set(arg_RUNTIME none)
  endif()
  clb_cl_env(env ${arg_RUNTIME})
  list(APPEND env
    CLB_TEST_SOURCE_DIR=${PROJECT_SOURCE_DIR}/tests
    CLB_TEST_DATA_DIR=${PROJECT_SOURCE_DIR}/tests/data
    CLB_BUILD_DIR=${PROJECT_BINARY_DIR}
    CLB_COMMAND=${PROJECT_BINARY_DIR}/tools/clbridge
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1)
  # What the test asks for replaces the defaults of the same name.
  foreach(pair IN LISTS arg_ENV)
    string(REGEX REPLACE "=.*" "" var "${pair}")
    list(FILTER env EXCLUDE REGEX "^${var}=")
  endforeach()
  list(APPEND env ${arg_ENV})
  set(only "")
  foreach(label full ci)
    if(label IN_LIST arg_LABELS)
      list(APPEND only ${label})
    endif()
  endforeach()
  if(only)
    list(INSERT only 0 CONFIGURATIONS)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    ${only})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${env}"
    RUN_SERIAL ${arg_SERIAL})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(labels ${folder} ${arg_LABELS})
  list(REMOVE_DUPLICATES labels)
  set_tests_properties(${name} PROPERTIES LABELS "${labels}")
endfunction()

# Once without a runtime, or once for each.
function(clb_register_all name)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "COMMAND;ENV;LABELS;RUNTIMES" ${ARGN})
  set(serial "")
  if(arg_SERIAL)
    set(serial SERIAL)
  endif()
  if(NOT arg_RUNTIMES)
    clb_register(${name} COMMAND ${arg_COMMAND} ENV ${arg_ENV} LABELS ${arg_LABELS}
      TIMEOUT ${arg_TIMEOUT} ${serial})
  endif()
  foreach(runtime IN LISTS arg_RUNTIMES)
    # LeakSanitizer takes what the others keep until the end for leaks. PoCL is
    # quiet, so PoCL is where our own are looked for.
    set(env CLB_TEST_RUNTIME=${runtime})
    if(NOT runtime STREQUAL "pocl" AND CLB_SANITIZE MATCHES "address")
      list(APPEND env ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1)
    endif()
    if(NOT CLB_WITH_CL OR runtime IN_LIST CLB_RUNTIMES_SKIPPED)
      continue()
    elseif(runtime IN_LIST CLB_RUNTIMES_FOUND)
      clb_register(${name}.${runtime} COMMAND ${arg_COMMAND}
        ENV ${env} ${arg_ENV}
        LABELS ${arg_LABELS} ${runtime} TIMEOUT ${arg_TIMEOUT} RUNTIME ${runtime} ${serial})
      if(runtime STREQUAL "oclgrind")
        # It reports what a kernel or a call did wrong, and carries on.
        set_tests_properties(${name}.${runtime} PROPERTIES FAIL_REGULAR_EXPRESSION "Invalid")
      endif()
    else()
      clb_skipped_test(${name}.${runtime} "no ${runtime} on this machine")
    endif()
  endforeach()
endfunction()

function(clb_test_executable target)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE
    ${PROJECT_SOURCE_DIR}/tests/support
    ${PROJECT_SOURCE_DIR}/src/core ${PROJECT_SOURCE_DIR}/src/transport
    ${PROJECT_SOURCE_DIR}/src/cl ${PROJECT_SOURCE_DIR}/src/depthai)
  target_compile_definitions(${target} PRIVATE
    CLB_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}/tests"
    CLB_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
  # Assertions are how program tests fail: never compiled out.
  target_compile_options(${target} PRIVATE -UNDEBUG)
  target_link_libraries(${target} PRIVATE ${arg_LIBS} clbridge_static clb_flags m)
endfunction()

# A half-made change to one test must not keep the others from being built; CI
# takes it as the error it is.
macro(clb_need_sources)
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(source ${source} ABSOLUTE)
    if(NOT EXISTS ${source} AND NOT "$ENV{CI}" STREQUAL "true")
      message(WARNING "${arg_NAME}: no ${source}: not built")
      return()
    endif()
  endforeach()
endmacro()

# --- the declarations -------------------------------------------------------

set(clb_one NAME TIMEOUT)
set(clb_many SOURCES LIBS ENV LABELS RUNTIMES ARGS)

function(clb_program_test)
  cmake_parse_arguments(arg "SERIAL" "${clb_one}" "${clb_many}" ${ARGN})
  clb_need_sources()
  clb_test_executable(test_${arg_NAME} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
  set(serial "")
  if(arg_SERIAL)
    set(serial SERIAL)
  endif()
  clb_register_all(${arg_NAME} COMMAND test_${arg_NAME} ${arg_ARGS} ENV ${arg_ENV}
    LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} RUNTIMES ${arg_RUNTIMES} ${serial})
endfunction()

function(clb_criterion_test)
  if(NOT CLB_CRITERION)
    return()
  endif()
  clb_program_test(${ARGN})
  cmake_parse_arguments(arg "SERIAL" "${clb_one}" "${clb_many}" ${ARGN})
  if(TARGET test_${arg_NAME})
    target_include_directories(test_${arg_NAME} SYSTEM PRIVATE ${CLB_CRITERION_INCLUDE})
    target_link_libraries(test_${arg_NAME} PRIVATE ${CLB_CRITERION_LIBRARY})
  endif()
endfunction()

function(clb_script_test)
  cmake_parse_arguments(arg "SERIAL" "NAME;TIMEOUT" "COMMAND;ENV;LABELS;RUNTIMES" ${ARGN})
  set(serial "")
  if(arg_SERIAL)
    set(serial SERIAL)
  endif()
  clb_register_all(${arg_NAME} COMMAND ${arg_COMMAND} ENV ${arg_ENV}
    LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} RUNTIMES ${arg_RUNTIMES} ${serial})
endfunction()

# A program for 32 bit, of these sources alone: no library of ours is built so.
function(clb_program32_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT" "SOURCES;LABELS" ${ARGN})
  clb_need_sources()
  if(CLB_SANITIZE)
    return()
  endif()
  if(NOT DEFINED CLB_M32_WORKS)
    file(WRITE ${CMAKE_BINARY_DIR}/m32.c "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }\n")
    try_compile(works ${CMAKE_BINARY_DIR}/m32 ${CMAKE_BINARY_DIR}/m32.c
      COMPILE_DEFINITIONS -m32 LINK_OPTIONS -m32)
    set(CLB_M32_WORKS ${works} CACHE INTERNAL "${CMAKE_C_COMPILER} -m32 makes programs")
  endif()
  if(NOT CLB_M32_WORKS)
    clb_skipped_test(${arg_NAME} "${CMAKE_C_COMPILER} -m32 does not work here (gcc-multilib)")
    return()
  endif()
  add_executable(test_${arg_NAME} ${arg_SOURCES})
  target_include_directories(test_${arg_NAME} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/core ${PROJECT_SOURCE_DIR}/tests/support)
  target_compile_definitions(test_${arg_NAME} PRIVATE
    CLB_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}/tests"
    CLB_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
  target_compile_options(test_${arg_NAME} PRIVATE -m32 -UNDEBUG)
  target_link_options(test_${arg_NAME} PRIVATE -m32)
  target_link_libraries(test_${arg_NAME} PRIVATE clb_flags)
  clb_register(${arg_NAME} COMMAND test_${arg_NAME} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()

# A file with LLVMFuzzerTestOneInput. With CLB_FUZZ it becomes the libFuzzer
# program <build>/tests/fuzz/fuzz_NAME; in every other build a program that
# feeds it the files of its corpus once, as a test.
function(clb_fuzzer)
  cmake_parse_arguments(arg "" "NAME;CORPUS;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  clb_need_sources()
  if(NOT arg_CORPUS)
    set(arg_CORPUS ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${arg_NAME})
  endif()
  if(CLB_FUZZ)
    clb_test_executable(fuzz_${arg_NAME} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
    target_link_options(fuzz_${arg_NAME} PRIVATE -fsanitize=fuzzer)
  else()
    clb_test_executable(fuzz_${arg_NAME} LIBS ${arg_LIBS}
      SOURCES ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.c)
    clb_register(fuzz_${arg_NAME} COMMAND fuzz_${arg_NAME} ${arg_CORPUS}
      TIMEOUT ${arg_TIMEOUT})
  endif()
endfunction()
