# Compiles through ccache where the system has it and the user has chosen no launcher, so that a clean
# clone finds what another clone has compiled. Its folder and size are ccache's own settings.
find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
if(NOT CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()
# Paths below the clone count relative to it; precompiled headers count by their content. What was included
# is known from the compiler's own list, without another preprocessing. The processor counts by what the
# compiler defines for it: -march=native is another one on another machine.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
  OUTPUT_VARIABLE processor ERROR_QUIET)
string(SHA1 processor "${processor}")
set(CMAKE_CXX_COMPILER_LAUNCHER env
  CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
  CCACHE_NOHASHDIR=1
  CCACHE_DEPEND=1
  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  CCACHE_NAMESPACE=${processor}
  ${CCACHE})
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  # CMake's own options name files where ccache does not look for paths. With these, clang would compile a
  # header that has changed by its old .pch, so that is not its name.
  set(CMAKE_PCH_EXTENSION .precompiled)
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -emit-pch -include <PCH_HEADER> -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
else()
  add_compile_options(-fpch-preprocess)
endif()
