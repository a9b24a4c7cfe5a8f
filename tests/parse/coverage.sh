#!/bin/bash
# Fuzzes the parser for a bounded number of runs, from the corpus of make_corpus.py, and fails if fewer than
# 95 % of the branches of src/parse were covered.
#
#   tests/parse/coverage.sh [BUILD]    BUILD: a folder configured with the preset `fuzz` (default:
#                                      build/fuzz, which is configured if necessary)
# The environment may set RUNS (default 1000000) and SEED (default 1).
set -euo pipefail

wanted=95
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/fuzz}
cd "$root"

[[ -f $build/build.ninja ]] || cmake --preset fuzz >/dev/null
cmake --build "$build" --target parse_fuzz -j"$(nproc)"
fuzzer=$(find "$build" -name parse_fuzz -type f -perm -u+x | head -n 1)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
/usr/bin/python3 tests/parse/make_corpus.py "$work/seeds"
mkdir "$work/found"
if ! LLVM_PROFILE_FILE=$work/profile "$fuzzer" -runs="${RUNS:-1000000}" -seed="${SEED:-1}" \
    -max_len=2048 -artifact_prefix="$work/" "$work/found" "$work/seeds" >"$work/log" 2>&1; then
  tail -n 60 "$work/log"
  for crash in "$work"/crash-* "$work"/timeout-* "$work"/oom-*; do
    [[ -f $crash ]] && { echo "the input, in base64:"; base64 "$crash"; }
  done
  exit 1
fi
grep -E 'Done|INITED' "$work/log"

mapfile -t sources < <(find src/parse -name '*.h' -o -name '*.cc' | grep -vE 'test|fuzz')
llvm-profdata-19 merge -sparse "$work/profile" -o "$work/merged"
llvm-cov-19 report "$fuzzer" -instr-profile="$work/merged" --show-branch-summary \
  --show-region-summary=false "${sources[@]}"
llvm-cov-19 export "$fuzzer" -instr-profile="$work/merged" -summary-only "${sources[@]}" |
  /usr/bin/python3 -c '
import json, sys
branches = json.load(sys.stdin)["data"][0]["totals"]["branches"]
wanted = float(sys.argv[1])
print("branches of src/parse covered: {covered} of {count}, {percent:.2f} % (wanted: at least {wanted:.0f} %)".format(wanted=wanted, **branches))
sys.exit(branches["percent"] < wanted or branches["count"] == 0)
' "$wanted"
