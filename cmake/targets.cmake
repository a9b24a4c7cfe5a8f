# One target a folder; what a folder may include is what its target links to.

add_library(millrace_flags INTERFACE)
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC spends a tenth of its time on freeing memory. Where a processor has 2 GB, it waits with that, and takes
  # up to 1.2 GB instead of 0.9.
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR enough "2000 * ${processors}")
  if(memory GREATER enough)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>")
  endif()
  # GCC 12 warns falsely about inlined string and fmt code (GCC bug 105651 and its kin).
  target_compile_options(millrace_flags INTERFACE -Wno-restrict -Wno-stringop-overflow
    -Wno-stringop-overread -Wno-array-bounds)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # libstdc++ 12's stable_sort uses what it has itself deprecated.
  target_compile_options(millrace_flags INTERFACE -Wno-deprecated-declarations)
endif()
# A release has no checks of the rules that callers must keep, although it has `assert`.
target_compile_definitions(millrace_flags INTERFACE $<$<CONFIG:Release>:MILLRACE_CHECKS=0>)
if(MILLRACE_NATIVE)
  target_compile_options(millrace_flags INTERFACE -march=native)
endif()

# millrace_headers(NAME header...)
# The headers of the standard library and those named here, compiled once for all targets that say
# `target_precompile_headers(... REUSE_FROM NAME)` and have the same options: they are a quarter of what
# each source takes.
function(millrace_headers name)
  file(WRITE ${PROJECT_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE millrace_flags)
  target_precompile_headers(${name} PRIVATE <algorithm> <array> <atomic> <bit> <chrono> <cstdint>
    <cstring> <expected> <functional> <map> <memory> <optional> <random> <set> <span> <string>
    <string_view> <thread> <variant> <vector> ${ARGN})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    target_precompile_headers(${name} PRIVATE <immintrin.h>)  # vector instructions
  endif()
endfunction()
millrace_headers(millrace_common_headers)

# For code that is not on the packet path: configuration, command line, tests. It runs briefly, and under a
# sanitizer optimising takes four times as long as compiling.
set(MILLRACE_QUICK $<IF:$<CONFIG:Debug>,-O0,-Og>)
function(millrace_quick_headers name)
  millrace_headers(${name} ${ARGN})
  target_compile_options(${name} PRIVATE ${MILLRACE_QUICK})
endfunction()
# millrace_quick_to_compile(TARGET [HEADERS name])
function(millrace_quick_to_compile target)
  cmake_parse_arguments(ARG "" "HEADERS" "" ${ARGN})
  target_compile_options(${target} PRIVATE ${MILLRACE_QUICK})
  if(ARG_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${ARG_HEADERS})
  endif()
endfunction()
millrace_quick_headers(millrace_quick_headers)
if(MILLRACE_TESTS)
  millrace_quick_headers(millrace_test_headers <gtest/gtest.h>)
  target_link_libraries(millrace_test_headers PRIVATE GTest::gtest)
endif()

# millrace_unity(VARIABLE NAME source...)
# Returns in VARIABLE what to compile: unity sources, which include up to eight sources each, since headers take
# more than half of the time of most. CMake's UNITY_BUILD is not used: it names sources by absolute paths, for
# which ccache has nothing from another clone. Without MILLRACE_UNITY it returns the sources themselves, so that
# a change compiles one of them.
function(millrace_unity variable name)
  if(NOT MILLRACE_UNITY)
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(units)
  while(ARGN)
    list(LENGTH units number)
    file(REAL_PATH ${CMAKE_CURRENT_SOURCE_DIR} from)
    file(REAL_PATH ${CMAKE_CURRENT_BINARY_DIR} to)
    string(APPEND to /unity)
    set(unit ${to}/${name}_${number}.cc)
    list(SUBLIST ARGN 0 8 sources)
    list(REMOVE_ITEM ARGN ${sources})
    set(text)
    foreach(source ${sources})
      file(RELATIVE_PATH path ${to} ${from}/${source})
      string(APPEND text "#include \"${path}\"\n")
    endforeach()
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
    list(APPEND units ${unit})
  endwhile()
  set(${variable} ${units} PARENT_SCOPE)
endfunction()

# millrace_folder(NAME [QUICK] [SOURCES ...] [APART ...] [USES target ...])
# The library `millrace_NAME` of the folder src/NAME; header-only without sources. `USES` names what
# it may include, towards core only. QUICK: it is not on the packet path. APART: sources for which no unity
# source is made.
function(millrace_folder name)
  cmake_parse_arguments(ARG "QUICK" "" "SOURCES;APART;USES" ${ARGN})
  set(target millrace_${name})
  if(ARG_SOURCES)
    millrace_unity(units ${target} ${ARG_SOURCES})
    add_library(${target} STATIC ${units} ${ARG_APART})
    if(ARG_QUICK)
      millrace_quick_to_compile(${target} HEADERS millrace_quick_headers)
    else()
      target_precompile_headers(${target} REUSE_FROM millrace_common_headers)
    endif()
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} ${scope} millrace_flags ${ARG_USES})
endfunction()

# How many lines a list of tables has: each names one, as KIND<...>.
function(millrace_count_tables variable file kind)
  file(STRINGS ${file} lines REGEX "^ +${kind}<")
  list(LENGTH lines count)
  set(${variable} ${count} PARENT_SCOPE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endfunction()
millrace_count_tables(MILLRACE_TABLES ${PROJECT_SOURCE_DIR}/src/conntrack/schemes.h TableScheme)
millrace_count_tables(MILLRACE_VARIANTS ${PROJECT_SOURCE_DIR}/src/conntrack/schemes.h TableVariant)
# The first ones, which meet every sharing scheme.
set(MILLRACE_FEW 3)
target_compile_definitions(millrace_flags INTERFACE MILLRACE_FEW=${MILLRACE_FEW})
if(MILLRACE_FEW_TABLES)
  set(MILLRACE_TABLES ${MILLRACE_FEW})
  target_compile_definitions(millrace_flags INTERFACE MILLRACE_FEW_TABLES)
endif()
if(MILLRACE_COVERING)
  set(MILLRACE_VARIANTS 0)
  target_compile_definitions(millrace_flags INTERFACE MILLRACE_COVERING)
endif()

# millrace_per_table(TARGET SOURCE count...)
# Compiles SOURCE into TARGET, as TARGET's sources are, once for each table of a list, `MILLRACE_TABLE` being its
# place there; the counts of lists that are joined are added up. SOURCE compares the sum, `MILLRACE_COUNTED`, with
# the list. Where few combinations are compiled, only the first few tables are optimised.
function(millrace_per_table target source)
  list(JOIN ARGN "+" sum)
  math(EXPR counted "${sum}")
  math(EXPR last "${sum}-1")
  foreach(i RANGE ${last})
    add_library(${target}_${i} OBJECT ${source})
    target_compile_definitions(${target}_${i} PRIVATE MILLRACE_TABLE=${i} MILLRACE_COUNTED=${counted})
    target_compile_options(${target}_${i} PRIVATE $<TARGET_PROPERTY:${target},COMPILE_OPTIONS>)
    get_target_property(headers ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    if(MILLRACE_COVERING AND i GREATER_EQUAL MILLRACE_FEW AND headers STREQUAL "millrace_common_headers")
      set(headers millrace_quick_headers)
      target_compile_options(${target}_${i} PRIVATE ${MILLRACE_QUICK})
    endif()
    target_precompile_headers(${target}_${i} REUSE_FROM ${headers})
    target_include_directories(${target}_${i} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target}_${i} PRIVATE $<TARGET_PROPERTY:${target},LINK_LIBRARIES>)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${i}>)
  endforeach()
endfunction()

# millrace_test(NAME [SOURCES ...] [APART ...] [PER_TABLE source count...] [USES target ...])
function(millrace_test name)
  if(NOT MILLRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;PER_TABLE;USES" ${ARGN})
  millrace_unity(units ${name} ${ARG_SOURCES})
  add_executable(${name} ${units} ${ARG_APART})
  millrace_quick_to_compile(${name} HEADERS millrace_test_headers)
  target_link_libraries(${name} PRIVATE ${ARG_USES} GTest::gtest GTest::gtest_main)
  if(ARG_PER_TABLE)
    millrace_per_table(${name} ${ARG_PER_TABLE})
  endif()
  add_test(NAME ${name} COMMAND ${name})
endfunction()

# millrace_fuzz(NAME SOURCE USES target ...)
function(millrace_fuzz name source)
  if(NOT MILLRACE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "USES" ${ARGN})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARG_USES})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()

# millrace_dpdk(TARGET library ...)
# Not DPDK's compiler flags: they name a processor of their own.
function(millrace_dpdk target)
  target_include_directories(${target} SYSTEM PRIVATE ${DPDK_INCLUDE_DIRS})
  target_link_directories(${target} PRIVATE ${DPDK_LIBRARY_DIRS})
  target_link_libraries(${target} PRIVATE ${ARGN})
endfunction()
