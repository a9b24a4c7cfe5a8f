#!/usr/bin/env bash
# Runs clang-tidy in place of a compiler, so that ccache remembers the sources in which clang-tidy found nothing: writes
# "no findings" in place of an object file. With -E runs c++, since ccache compares the preprocessed text.
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
