# One target a folder; what a folder may include is what its target links to.

add_library(millrace_flags INTERFACE)
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns falsely about inlined string and fmt code (GCC bug 105651 and its kin).
  target_compile_options(millrace_flags INTERFACE -Wno-restrict -Wno-stringop-overflow)
  # At link time, too; there two types of one name are found, which break whatever uses either.
  target_link_options(millrace_flags INTERFACE -Wno-stringop-overflow -Werror=odr)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # libstdc++ 12's stable_sort uses what it has itself deprecated.
  target_compile_options(millrace_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(MILLRACE_NATIVE)
  target_compile_options(millrace_flags INTERFACE -march=native)
endif()

# With link-time optimisation, tests are linked from the same objects without it, which is quick.
function(millrace_links_without_lto target)
  if(CMAKE_INTERPROCEDURAL_OPTIMIZATION AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -ffat-lto-objects)
  endif()
endfunction()

# millrace_folder(NAME [SOURCES ...] [USES target ...])
# The library `millrace_NAME` of the folder src/NAME; header-only without sources. `USES` names what
# it may include, towards core only.
function(millrace_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  set(target millrace_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    millrace_links_without_lto(${target})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} ${scope} millrace_flags ${ARG_USES})
endfunction()

# Tests are compiled often and run briefly.
function(millrace_quick_to_compile target)
  set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
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
if(MILLRACE_FEW_TABLES)
  set(MILLRACE_TABLES 3)
  set(MILLRACE_VARIANTS 0)
  target_compile_definitions(millrace_flags INTERFACE MILLRACE_FEW_TABLES=${MILLRACE_TABLES})
endif()

# millrace_per_table(TARGET SOURCE count...)
# Compiles SOURCE into TARGET once for each table of a list, `MILLRACE_TABLE` being its place there;
# the counts of lists that are joined are added up. SOURCE compares the sum, `MILLRACE_COUNTED`, with
# the list.
function(millrace_per_table target source)
  list(JOIN ARGN "+" sum)
  math(EXPR counted "${sum}")
  math(EXPR last "${sum}-1")
  foreach(i RANGE ${last})
    add_library(${target}_${i} OBJECT ${source})
    target_compile_definitions(${target}_${i} PRIVATE MILLRACE_TABLE=${i} MILLRACE_COUNTED=${counted})
    if(target MATCHES "_test$")
      millrace_quick_to_compile(${target}_${i})
    endif()
    # A table's loop is whole in its source: to optimise it once more at link time gains nothing and
    # takes minutes.
    set_target_properties(${target}_${i} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    target_include_directories(${target}_${i} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target}_${i} PRIVATE $<TARGET_PROPERTY:${target},LINK_LIBRARIES>)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${i}>)
  endforeach()
endfunction()

# millrace_test(NAME [SOURCES ...] [PER_TABLE source count...] [USES target ...])
function(millrace_test name)
  if(NOT MILLRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;PER_TABLE;USES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  millrace_quick_to_compile(${name})
  target_link_options(${name} PRIVATE -fno-lto)
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
