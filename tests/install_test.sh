#!/usr/bin/env bash
# Installs a build into a folder of its own, and builds and runs examples/ against what lies there,
# once as a CMake package and once through pkg-config.
#
#   tests/install_test.sh [BUILD]    BUILD: a configured build folder (default: build/release)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(realpath "${1:-$root/build/release}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --build "$build" >/dev/null
cmake --install "$build" --prefix "$work/first" >/dev/null
# Moved after the installation: nothing in it may name the place it was put first.
mv "$work/first" "$work/prefix"
prefix=$work/prefix

# Each public header can be included alone, and first, with nothing but the installed tree.
while read -r header; do
  printf '#include "%s"\n' "${header#"$prefix/include/"}" >"$work/one.cc"
  c++ -std=c++23 -Wall -Wextra -Werror -fsyntax-only -I "$prefix/include" "$work/one.cc" ||
    { echo "$header does not stand alone" >&2 && exit 1; }
done < <(find "$prefix/include" -name '*.h')

cmake -S "$root/examples" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build"
ran=0
for example in "$work"/build/embed*; do
  if [ ! -x "$example" ] || [ ! -f "$example" ]; then continue; fi
  echo "== $(basename "$example"), as a CMake package"
  "$example"
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || { echo 'no example was built' >&2 && exit 1; }

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name millrace.pc)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH=$prefix/lib
read -r -a flags < <(pkg-config --cflags millrace)
read -r -a libraries < <(pkg-config --libs millrace)
for source in "$root"/examples/embed*.cc "$root"/examples/embed*.c; do
  [ -f "$source" ] || continue
  compile=(cc -std=c11)
  [[ $source == *.c ]] || compile=(c++ -std=c++23)
  echo "== $(basename "$source"), through pkg-config"
  "${compile[@]}" -O2 -Wall -Wextra -Werror "${flags[@]}" "$source" -o "$work/example" "${libraries[@]}"
  "$work/example"
  ran=$((ran + 1))
done
echo "$ran runs of examples against the installed tree"
