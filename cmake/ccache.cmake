# Compiles through ccache if the system has it and the user has chosen no launcher, so that a new clone
# reuses what another clone has compiled. ccache's own settings decide its folder and size.
find_program(MILLRACE_CCACHE ccache)
mark_as_advanced(MILLRACE_CCACHE)
if(NOT MILLRACE_CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()
file(WRITE ${PROJECT_BINARY_DIR}/ccache.cc "")
execute_process(COMMAND ${MILLRACE_CCACHE} ${CMAKE_CXX_COMPILER} -c ccache.cc -o ccache.o
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
if(failed)
  message(STATUS "ccache does not work here: compiling without it")
  return()
endif()
# BASEDIR, NOHASHDIR: paths below the clone are compared relative to the clone. DEPEND: the compiler lists the included
# headers, so that no source is preprocessed twice. SLOPPINESS: as ccache's manual requires for precompiled headers (no
# source uses __TIME__); and a result is reused even if its messages are in another language. NAMESPACE: a hash of the
# macros that the compiler defines for -march=native, which differ between machines. PCH_EXTSUM: see below.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
  OUTPUT_VARIABLE processor ERROR_QUIET)
string(SHA1 processor "${processor}")
set(CMAKE_CXX_COMPILER_LAUNCHER env
  CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
  CCACHE_NOHASHDIR=1
  CCACHE_DEPEND=1
  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime,locale
  CCACHE_NAMESPACE=${processor}
  CCACHE_PCH_EXTSUM=1
  ${MILLRACE_CCACHE})
# A precompiled header contains the path of its clone, so each clone compiles its own precompiled headers, without
# ccache. For a source that uses a precompiled header, ccache compares the headers of which the precompiled header was made. In
# place of the bytes of the precompiled header ccache compares the file beside it with the ending .sum, which holds the target's name.
function(millrace_is_of_this_clone headers)
  set_target_properties(${headers} PROPERTIES CXX_COMPILER_LAUNCHER "")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${headers}.dir/cmake_pch.hxx${CMAKE_PCH_EXTENSION}.sum ${headers})
endfunction()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  # CMake's own options name the precompiled header in a way that ccache does not recognise. The extension is not .pch,
  # since for `-include X` clang uses X.pch if that file exists, even if X has changed.
  set(CMAKE_PCH_EXTENSION .clang.pch)
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -include <PCH_HEADER> -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)
endif()
