#include "core/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace millrace {
namespace {

constexpr std::uint64_t kUnknown = std::uint64_t{1} << 63;

std::uint64_t system_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  std::string unit;
  for (std::uint64_t kib = 0; meminfo >> name >> kib; std::getline(meminfo, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return kUnknown;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;  // a limit that is not set reads "max"
  return std::nullopt;
}

/// Returns the bytes of anonymous memory in a control group, which the kernel cannot drop as it can
/// page cache.
std::uint64_t anonymous_bytes(const std::string& group) {
  std::ifstream stat(group + "/memory.stat");
  std::string name;
  for (std::uint64_t bytes = 0; stat >> name >> bytes;) {
    if (name == "anon") return bytes;
  }
  return 0;
}

/// Returns how many more bytes all control groups (version 2) of the process allow it to take.
std::uint64_t group_bytes() {
  std::ifstream own("/proc/self/cgroup");
  std::string group;
  while (std::getline(own, group) && !group.starts_with("0::/")) {
  }
  std::uint64_t least = kUnknown;
  for (group.erase(0, 3); !group.empty(); group.erase(group.rfind('/'))) {
    const std::string folder = "/sys/fs/cgroup" + group;
    const auto limit = number_in(folder + "/memory.max");
    if (limit) least = std::min(least, *limit - std::min(*limit, anonymous_bytes(folder)));
  }
  return least;
}

}  // namespace

std::uint64_t available_memory_bytes() { return std::min(system_bytes(), group_bytes()); }

}  // namespace millrace
