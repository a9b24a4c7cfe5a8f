#!/usr/bin/env bash
# Builds the programs in Go: build/control/millctl and, beside it, build/control/millctl-cluster, which needs a newer Go than Debian 12
# has: there Debian's Go downloads one, as a module. `cmake --build build/release --target millctl` runs this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=cmake/setup.sh
. cmake/setup.sh

command -v go >/dev/null || die 'there is no Go here: apt-get install golang-go ca-certificates'
export GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
build() { # build FOLDER PROGRAM
  local go
  go=$(new_go "$1") || die "$2 needs Go $(go_wanted "$1"), and $(go env GOVERSION), which is here, cannot download it"
  (cd "$1" && "$go" build -o "../build/control/$2" "./cmd/$2")
}
build control millctl
build cluster millctl-cluster
