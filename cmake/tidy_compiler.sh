#!/usr/bin/env bash
# Stands for a compiler, so that ccache remembers in which sources clang-tidy found nothing: what it writes
# in place of an object says so. With -E it preprocesses by c++, whose text ccache compares.
set -euo pipefail
[[ " $* " != *' -E '* ]] || exec c++ "$@"
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    -o) object=$2 && shift ;;
    *) arguments+=("$1") && source=$1 ;;
  esac
  shift
done
"$CLANG_TIDY" --quiet "$source" -- "${arguments[@]}"
printf 'no findings\n' >"$object"
