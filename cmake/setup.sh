# Set-up for `demo`, `check` and `study/run`, which source this file: lists the Debian packages that they need, and
# installs the missing ones. Written for Debian 12 and 13; needs nothing but bash and apt.
# shellcheck shell=bash disable=SC2034

# Needed to build and run the dataplane.
readonly PACKAGES_DATAPLANE=(
  g++ cmake ninja-build python3 pkg-config
  libpcap-dev libmnl-dev libcli11-dev libfmt-dev libtomlplusplus-dev nlohmann-json3-dev
  libabsl-dev libtsl-hopscotch-map-dev robin-map-dev
  libdpdk-dev libcpp-httplib-dev libssl-dev
)
# Needed in addition to build the benchmarks. Without these packages configure with -DMILLRACE_BENCH=OFF.
readonly PACKAGES_BENCH=(libcuckoo-dev libzydis-dev)
readonly PACKAGES_DEMO=("${PACKAGES_DATAPLANE[@]}" "${PACKAGES_BENCH[@]}")
# Needed in addition by a cluster's agents, and by network namespaces.
readonly PACKAGES_CLUSTER=(golang-go ca-certificates iproute2)
# Needed in addition by the tests.
readonly PACKAGES_CHECK=(
  libgtest-dev python3-jsonschema python3-venv shellcheck
)
# Used by the tests if the system has them: a step whose package is missing is skipped, and says so.
readonly PACKAGES_CHECK_OPTIONAL=(
  ccache clang-19 lld-19 clang-format-19 libclang-rt-19-dev llvm-19 tshark g++-aarch64-linux-gnu
  nftables conntrack iproute2 ethtool curl golang-go ca-certificates chromium
  traceroute iputils-ping python3-pyftpdlib zookeeper keepalived
)
# The package and version at PyPI. This version checks only the project's own code, not its libraries' headers, and takes a
# third of the time that Debian's version takes.
readonly CLANG_TIDY=clang-tidy==23.1.4

export LC_ALL=C.UTF-8
# The interpreter that has the system's packages, even if another interpreter comes first in PATH.
PYTHON=/usr/bin/python3

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Succeeds on a system like Debian or Ubuntu that has apt; prints a note on untested systems.
debian_like() {
  local ID='' ID_LIKE='' VERSION_ID='' PRETTY_NAME=''
  # shellcheck source=/dev/null
  if [ -r /etc/os-release ]; then . /etc/os-release; fi
  case $ID-$VERSION_ID in
    debian-12 | debian-13) ;;
    *) say "${PRETTY_NAME:-This system} is untested: millrace is developed on Debian 12 and 13." ;;
  esac
  case " $ID $ID_LIKE " in
    *' debian '* | *' ubuntu '*) command -v apt-get >/dev/null ;;
    *) return 1 ;;
  esac
}

installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

available() {
  local policy
  policy=$(apt-cache policy "$1" 2>/dev/null)
  [[ $policy =~ Candidate:\ [^\(] ]]
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --quiet --no-install-recommends "$@"
}

# set_up REQUIRED... [-- OPTIONAL...]: installs the packages that are missing. An optional package that the system does not
# have is no error, and is only reported.
set_up() {
  local required=() optional=() missing=() package
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    required+=("$1")
    shift
  done
  if [ $# -gt 0 ]; then shift; fi
  optional=("$@")

  if ! debian_like; then
    say 'Packages cannot be installed here without apt. These are needed, by their names in Debian:'
    say "  ${required[*]}"
    if [ ${#optional[@]} -gt 0 ]; then say "  and these are used if they are installed: ${optional[*]}"; fi
    say 'Going on without installing anything.'
    return 0
  fi
  for package in "${required[@]}" "${optional[@]}"; do
    installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  say "Packages that are needed and missing: ${missing[*]}"
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    die "not root, and there is no sudo. As root, run: apt-get update; apt-get install ${missing[*]}"
  fi
  local updated=no
  for package in "${missing[@]}"; do
    if [ "$updated" = no ] && ! available "$package"; then
      as_root apt-get update --quiet
      updated=yes
    fi
  done
  local wanted=() refused=()
  for package in "${missing[@]}"; do
    if available "$package"; then
      wanted+=("$package")
    elif [[ " ${required[*]} " == *" $package "* ]]; then
      refused+=("$package")
    else
      say "This system has no package $package: the steps that need it will be skipped."
    fi
  done
  [ ${#refused[@]} -eq 0 ] || die "this system has no package ${refused[*]}: install what it contains, then use --no-install"
  [ ${#wanted[@]} -gt 0 ] || return 0
  say "Installing: ${wanted[*]}"
  if ! apt_install "${wanted[@]}"; then
    # The usual reason: the local lists of packages are older than the archive.
    [ "$updated" = no ] || die 'apt-get could not install the packages: see its messages above'
    as_root apt-get update --quiet
    apt_install "${wanted[@]}"
  fi
}

# Prints the Go that a module needs.
go_wanted() { sed -n 's/^go //p' "$1/go.mod"; }
# Prints the path of a Go that is new enough for a module: the machine's own one, or a toolchain that this one downloads, as a module.
new_go() { # new_go FOLDER
  local wanted go root
  wanted=$(go_wanted "$1") && go=$(command -v go) || return
  printf 'go%s\n%s\n' "$wanted" "$("$go" env GOVERSION)" | sort --check=quiet --version-sort || {
    root=$(mkdir -p build && cd build && "$go" mod download -json "golang.org/toolchain@v0.0.1-go$wanted.$("$go" env GOOS)-$("$go" env GOARCH)" |
      sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && [ -n "$root" ] || return
    go=$root/bin/go
    # Go 1.19 does not know that these files are programs.
    chmod a+x "$root"/bin/* "$root"/pkg/tool/*/* || return
  }
  say "$go"
}
