# One target a folder; what a folder may include is what its target links to.

add_library(millrace_flags INTERFACE)
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns falsely about inlined string and fmt code (GCC bug 105651 and its kin).
  target_compile_options(millrace_flags INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # libstdc++ 12's stable_sort uses what it has itself deprecated.
  target_compile_options(millrace_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(MILLRACE_NATIVE)
  target_compile_options(millrace_flags INTERFACE -march=native)
endif()

# millrace_folder(NAME [SOURCES ...] [USES target ...])
# The library `millrace_NAME` of the folder src/NAME; header-only without sources. `USES` names what
# it may include, towards core only.
function(millrace_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  set(target millrace_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} ${scope} millrace_flags ${ARG_USES})
endfunction()

# millrace_test(NAME SOURCES ... [USES target ...])
function(millrace_test name)
  if(NOT MILLRACE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_USES} GTest::gtest GTest::gtest_main)
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
