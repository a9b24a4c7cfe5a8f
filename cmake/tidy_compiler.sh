#!/usr/bin/env bash
# clang-tidy as if it were a compiler, for ccache to remember the sources in which it found nothing: what it
# writes stands for the object. CLANG_TIDY names the program; it preprocesses as c++ does.
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
