#include "huge_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace millrace::cli {
namespace {

/// Returns the value of `name` in `/proc/meminfo`; 0 if that name is missing.
std::size_t meminfo(std::string_view name) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::size_t value = 0;
  while (file >> word) {
    if (word.starts_with(name) && word.ends_with(':')) file >> value;
  }
  return value;
}

/// Returns the value of vm.nr_hugepages that adds room for `bytes` bytes, in 8 mappings at most;
/// never less than the present value.
std::size_t huge_pages_for(std::size_t bytes) {
  constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
  constexpr std::size_t kMappings = 8;  // each mapping is rounded up to whole huge pages
  const std::size_t total = meminfo("HugePages_Total");
  const std::size_t taken = total - meminfo("HugePages_Free") + meminfo("HugePages_Rsvd");
  return std::max(total, taken + bytes / kHugeBytes + kMappings);
}

}  // namespace

std::string huge_pages_hint(std::size_t bytes, Pages asked) {
  return fmt::format("reserve huge pages{}: sysctl vm.nr_hugepages={}",
                     asked == Pages::huge ? "" : " and ask for --pages huge",
                     huge_pages_for(bytes));
}

}  // namespace millrace::cli
