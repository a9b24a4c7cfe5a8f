# Each folder of sources is a target. Its files may include those of the folders that its target links to.

add_library(millrace_flags INTERFACE)
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC spends a tenth of its time on freeing memory. With more than 2 GB for each processor, GCC frees later: it
  # then takes up to 1.2 GB instead of 0.9 GB.
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR enough "2000 * ${processors}")
  if(memory GREATER enough)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>")
  endif()
  # GCC 12 warns falsely about inlined string and fmt code (GCC bug 105651 and similar ones).
  target_compile_options(millrace_flags INTERFACE -Wno-restrict -Wno-stringop-overflow
    -Wno-stringop-overread -Wno-array-bounds)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # stable_sort of libstdc++ 12 uses functions that libstdc++ itself has deprecated.
  target_compile_options(millrace_flags INTERFACE -Wno-deprecated-declarations)
endif()
# A release does not check the rules that callers must keep, although it has `assert`.
target_compile_definitions(millrace_flags INTERFACE $<$<CONFIG:Release>:MILLRACE_CHECKS=0>)
if(MILLRACE_NATIVE)
  target_compile_options(millrace_flags INTERFACE -march=native)
endif()

# millrace_headers(NAME header...)
# Precompiles headers of the standard library and the named headers, for all targets with
# `target_precompile_headers(... REUSE_FROM NAME)` and the same options. Without that, these headers would take a
# quarter of the time of compiling a source.
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
  if(COMMAND millrace_is_of_this_clone)
    millrace_is_of_this_clone(${name})
  endif()
endfunction()
millrace_headers(millrace_common_headers)

# Options for code that is not on the packet path: configuration, command line, tests. Such code runs briefly.
# Under a sanitizer, compiling it with optimisation would take four times as long.
set(MILLRACE_QUICK $<IF:$<CONFIG:Debug>,-O0,-Og>)
function(millrace_quick_headers name)
  millrace_headers(${name} ${ARGN})
  target_compile_options(${name} PRIVATE ${MILLRACE_QUICK})
endfunction()
# millrace_quick_to_compile(TARGET [HEADERS name])
# Compiles TARGET with these options and, if given, the precompiled headers of that name.
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
# Sets VARIABLE to the sources to compile: unity sources, each of which includes up to eight of the given sources,
# since headers take more than half of the time to compile most sources. CMake's UNITY_BUILD is not used: it names sources by
# absolute paths, so that ccache finds nothing that another clone has compiled. Without MILLRACE_UNITY sets VARIABLE to
# the given sources, so that after a change only the changed source is compiled.
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
# Adds the library `millrace_NAME` of the folder src/NAME; without SOURCES it is header-only. USES: the targets of the
# folders that it may include. QUICK: the folder is not on the packet path. APART: sources that are compiled by
# themselves, outside unity sources.
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

# Sets VARIABLE to the number of tables of a list in FILE, which has a line that begins with KIND<...> for each table.
function(millrace_count_tables variable file kind)
  file(STRINGS ${file} lines REGEX "^ +${kind}<")
  list(LENGTH lines count)
  set(${variable} ${count} PARENT_SCOPE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endfunction()
millrace_count_tables(MILLRACE_TABLES ${PROJECT_SOURCE_DIR}/src/conntrack/schemes.h TableScheme)
millrace_count_tables(MILLRACE_VARIANTS ${PROJECT_SOURCE_DIR}/src/conntrack/schemes.h TableVariant)
# The number of tables, from the first on, that are compiled with every sharing scheme.
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
# Compiles SOURCE into TARGET once for each table of a list, with the options of TARGET's sources and
# `MILLRACE_TABLE`, the table's place in the list. COUNT is the number of tables; several counts are added up. SOURCE
# compares the sum, `MILLRACE_COUNTED`, with its list. With MILLRACE_COVERING only the packet path of the first
# MILLRACE_FEW tables is optimised.
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
# Adds the test NAME. APART: as for millrace_folder; PER_TABLE: as for millrace_per_table.
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
# Adds the fuzz target NAME.
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
# Links TARGET to libraries of DPDK. DPDK's compiler flags are left out, since they choose a processor.
function(millrace_dpdk target)
  target_include_directories(${target} SYSTEM PRIVATE ${DPDK_INCLUDE_DIRS})
  target_link_directories(${target} PRIVATE ${DPDK_LIBRARY_DIRS})
  target_link_libraries(${target} PRIVATE ${ARGN})
endfunction()

# millrace_needs_none_of(TARGET word...)
# Stops with an error if TARGET links, directly or through other targets, to a name that contains one of the words.
function(millrace_needs_none_of target)
  list(JOIN ARGN "|" words)
  set(seen)
  set(open ${target})
  while(open)
    list(POP_FRONT open name)
    if(name IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${name})
    if(name MATCHES "${words}")
      message(FATAL_ERROR "${target} links to ${name}, itself or through others, and must not")
    endif()
    if(TARGET ${name})
      foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
        get_target_property(names ${name} ${property})
        if(names)
          list(APPEND open ${names})
        endif()
      endforeach()
    endif()
  endwhile()
endfunction()
