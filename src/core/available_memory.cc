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
  if (file >> number) return number;  // "max" is no number
  return std::nullopt;
}

/// The least limit of its control groups (version 2). What they use already is left out: most of it
/// tends to be page cache, which gives way.
std::uint64_t group_bytes() {
  std::ifstream own("/proc/self/cgroup");
  std::string group;
  while (std::getline(own, group) && !group.starts_with("0::/")) {
  }
  std::uint64_t least = kUnknown;
  for (group.erase(0, 3); !group.empty(); group.erase(group.rfind('/'))) {
    const auto limit = number_in("/sys/fs/cgroup" + group + "/memory.max");
    least = std::min(least, limit.value_or(kUnknown));
  }
  return least;
}

}  // namespace

std::uint64_t available_memory_bytes() { return std::min(system_bytes(), group_bytes()); }

}  // namespace millrace
