#!/usr/bin/env bash
# Installs a build, and the library built alone, static and shared, each into a folder of its own. Builds and runs
# examples/ against each of these three: with the CMake package, also in a project in C alone, and with pkg-config. Runs README's code.
# Checks that the installed `millrace` finds `millrace-bench` beside it, and that the dataplane can be configured
# without the libraries that only benchmarks need.
#
#   tests/install_test.sh [BUILD]    BUILD: a configured build folder (default: build/release)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath "${1:-$root/build/release}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ran=0
run() { # run PROGRAM WHAT
  echo "== $2"
  "$1"
  ran=$((ran + 1))
}

# Installs BUILD, and moves the installed tree to PREFIX: no file in the tree may need the path at which the tree was installed.
install_to() { # install_to BUILD PREFIX
  cmake --build "$1" >/dev/null
  cmake --install "$1" --prefix "$work/first" >/dev/null
  mv "$work/first" "$2"
}

# Builds the library as README says, without the libraries that the dataplane needs.
build_library() { # build_library FOLDER [OPTION...]
  local package hidden=()
  for package in PkgConfig absl tsl-hopscotch-map tsl-robin-map CLI11 fmt nlohmann_json tomlplusplus; do
    hidden+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON")
  done
  (cd "$root" && cmake --preset library -B "$1" "${hidden[@]}" "${@:2}") >/dev/null 2>&1 ||
    { echo "the preset library cannot be configured with a C++ compiler alone" >&2 && exit 1; }
}

# Configures the dataplane without benchmarks, and without the libraries that only benchmarks need.
configure_dataplane() { # configure_dataplane FOLDER
  local hidden=(-DCMAKE_DISABLE_FIND_PACKAGE_libcuckoo=ON -DCMAKE_DISABLE_FIND_PACKAGE_Zydis=ON)
  (cd "$root" && cmake --preset release -B "$1" -DMILLRACE_BENCH=OFF "${hidden[@]}") >/dev/null ||
    { echo 'the dataplane cannot be configured without libcuckoo and Zydis, which only benchmarks may need' >&2 && exit 1; }
}

# Checks that each public header can be included alone, with nothing but the installed tree.
try_headers() { # try_headers PREFIX
  local header
  while read -r header; do
    printf '#include "%s"\n' "${header#"$1/include/"}" >"$work/one.cc"
    c++ -std=c++23 -Wall -Wextra -Werror -fsyntax-only -I "$1/include" "$work/one.cc" ||
      { echo "$header cannot be included alone" >&2 && exit 1; }
  done < <(find "$1/include" -name '*.h')
}

# Compiles and runs README's code unchanged, in a function that has the parameters which README describes.
try_readme() { # try_readme PREFIX COMPILE_OPTION...
  # shellcheck disable=SC2016
  sed -n '/^```cpp$/,/^```$/p' "$root/README.md" | sed '/^```/d' >"$work/readme.inc"
  [ -s "$work/readme.inc" ] || { echo 'README has no C++ code' >&2 && exit 1; }
  cat >"$work/readme.cc" <<'CODE'
#include <array>
#include <cstdio>
#include <millrace/tracker.h>

static int fail(const std::string& message) {
  std::puts(message.c_str());
  return 1;
}
static int embed(std::span<const millrace::KeyV4> keys, std::span<millrace::ConnId> ids, std::uint64_t now_ms) {
#include "readme.inc"
  return fresh == 3 && tracker->size() == 2 ? 0 : fail("README's code must open two connections, for the first two keys");
}
int main() {
  std::array<millrace::KeyV4, 3> keys{};
  keys[1].source_port = 1;
  std::array<millrace::ConnId, 3> ids;
  return embed(keys, ids, 1'700'000'000'000);
}
CODE
  c++ -std=c++23 -Wall -Wextra -Wno-unused-variable -Werror "$work/readme.cc" -o "$work/readme" "${@:2}"
  run "$work/readme" "README's code"
}

try_cmake() { # try_cmake PREFIX SOURCES HOW
  local example
  cmake -S "$2" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$1" -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build "$work/build" >/dev/null || { cmake --build "$work/build" && exit 1; }
  for example in "$work"/build/embed*; do
    if [ ! -x "$example" ] || [ ! -f "$example" ]; then continue; fi
    run "$example" "$(basename "$example"), $3"
  done
  rm -r "$work/build"
}

try_pkg_config() { # try_pkg_config [--static]
  local source compile flags libraries
  read -r -a flags < <(pkg-config "$@" --cflags millrace)
  read -r -a libraries < <(pkg-config "$@" --libs millrace)
  for source in "$root"/examples/embed*.cc "$root"/examples/embed*.c; do
    compile=(cc -std=c11)
    [[ $source == *.c ]] || compile=(c++ -std=c++23)
    "${compile[@]}" -O2 -Wall -Wextra -Werror "${flags[@]}" "$source" -o "$work/example" "${libraries[@]}"
    run "$work/example" "$(basename "$source"), through pkg-config $*"
  done
}

# A project in C alone.
mkdir "$work/c"
cp "$root"/examples/embed*.c "$work/c"
cat >"$work/c/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(embedding C)
find_package(millrace REQUIRED)
add_executable(embed embed.c)
target_link_libraries(embed PRIVATE millrace::millrace)
get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("CXX" IN_LIST languages)
  message(FATAL_ERROR "find_package(millrace) has enabled C++")
endif()
CMAKE

try_tree() { # try_tree PREFIX WHAT
  echo "==== $2"
  local -x PKG_CONFIG_PATH LD_LIBRARY_PATH=$1/lib
  PKG_CONFIG_PATH=$(dirname "$(find "$1" -name millrace.pc)")
  try_cmake "$1" "$root/examples" 'as a CMake package'
  try_cmake "$1" "$work/c" 'of a project in C'
  try_pkg_config
  try_pkg_config --static
}

install_to "$build" "$work/given"
if [ -x "$work/given/bin/millrace-bench" ]; then
  "$work/given/bin/millrace" bench schemes >/dev/null
fi
configure_dataplane "$work/dataplane"
try_headers "$work/given"
try_tree "$work/given" "$build"
build_library "$work/static"
install_to "$work/static" "$work/alone"
try_tree "$work/alone" 'the library alone'
build_library "$work/shared" -DBUILD_SHARED_LIBS=ON
install_to "$work/shared" "$work/alone_shared"
try_tree "$work/alone_shared" 'the library alone, shared'
try_readme "$work/alone" -I "$work/alone/include" "$work/alone/lib/libmillrace.a"
echo "$ran runs of examples against installed trees"
