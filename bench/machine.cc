#include "machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "build_info.h"
#include "commit.h"

namespace millrace::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string processor() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// Returns the number of free huge pages; null if the kernel has none of 2 MiB.
nlohmann::ordered_json free_huge_pages() {
  const std::string line = first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  return line.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(std::stoull(line));
}

nlohmann::ordered_json caches() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (int i = 0;; ++i) {
    const std::string at = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string size = first_line(at + "size");
    if (size.empty()) return list;
    list.push_back(
        fmt::format("L{} {} {}", first_line(at + "level"), first_line(at + "type"), size));
  }
}

}  // namespace

nlohmann::ordered_json describe_machine() {
  utsname kernel{};
  ::uname(&kernel);
  return {{"processor", processor()},
          {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"caches", caches()},
          {"kernel", kernel.release},
          {"hugepages_free", free_huge_pages()},
          {"transparent_hugepages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
          {"compiler", MILLRACE_COMPILER},
          {"flags", MILLRACE_COMPILER_FLAGS},
          {"commit", MILLRACE_COMMIT}};
}

}  // namespace millrace::bench
