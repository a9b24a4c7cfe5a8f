#include "millrace/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>

#include "core/available_memory.h"

namespace millrace {
namespace {

constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
constexpr std::array<std::string_view, 3> kPagesNames{"huge", "transparent", "small"};

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::byte* map_anonymous(std::size_t bytes, int flags) {
  void* at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

/// Maps memory as `map_anonymous` does, at a multiple of the huge page size, so that the kernel can
/// use huge pages from the first byte on.
std::byte* map_aligned(std::size_t bytes) {
  std::byte* at = map_anonymous(bytes + kHugeBytes, 0);
  if (at == nullptr) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(at);
  const std::size_t before = rounded(start, kHugeBytes) - start;
  if (before != 0) ::munmap(at, before);
  ::munmap(at + before + bytes, kHugeBytes - before);
  return at + before;
}

bool prefault(std::byte* at, std::size_t bytes) {
  if (::madvise(at, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // EINVAL: a kernel before 5.14
  for (std::size_t i = 0; i < bytes; i += 4096) *reinterpret_cast<volatile std::byte*>(at + i) = {};
  return true;
}

/// Returns how many bytes of the mapping at `at` lie on transparent huge pages.
std::size_t transparent_bytes(const std::byte* at) {
  std::ifstream smaps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(at);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    const char* end = line.data() + line.size();
    const auto a = std::from_chars(line.data(), end, first, 16);
    if (a.ec == std::errc{} && a.ptr != end && *a.ptr == '-' &&
        std::from_chars(a.ptr + 1, end, last, 16).ec == std::errc{}) {
      inside = first <= wanted && wanted < last;
    } else if (inside && line.starts_with("AnonHugePages:")) {
      return std::stoull(line.substr(line.find_first_of("0123456789"))) * 1024;
    }
  }
  return 0;
}

}  // namespace

std::string_view to_string(Pages pages) { return kPagesNames[static_cast<std::size_t>(pages)]; }

std::optional<Pages> pages_named(std::string_view name) {
  for (std::size_t i = 0; i < kPagesNames.size(); ++i) {
    if (kPagesNames[i] == name) return static_cast<Pages>(i);
  }
  return std::nullopt;
}

Result<Memory> Memory::map(std::size_t bytes, Pages best) {
  const auto none = [bytes] {
    return std::unexpected(Error{"no memory for " +
                                 std::to_string((bytes + (std::size_t{1} << 20) - 1) >> 20) +
                                 " MiB: lower the capacity or free memory"});
  };
  if (bytes > SIZE_MAX / 2) return none();
  // A block smaller than one huge page would waste a reserved page and gain nothing.
  if (bytes < kHugeBytes) best = Pages::small;
  if (best == Pages::huge) {
    const std::size_t size = rounded(bytes, kHugeBytes);
    if (std::byte* at = map_anonymous(size, MAP_HUGETLB)) {
      if (prefault(at, size)) return Memory(at, size, Pages::huge);
      ::munmap(at, size);
    }
  }
  const std::size_t unit =
      best == Pages::small ? static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : kHugeBytes;
  const std::size_t size = rounded(bytes == 0 ? 1 : bytes, unit);
  // Prefaulting more memory than there is would not fail: the kernel would kill some process. One
  // thread maps at a time, so that memory which one thread takes is no longer available to the
  // next.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  if (size > available_memory_bytes()) return none();
  std::byte* at = map_aligned(size);
  if (at == nullptr) return none();
  Memory memory(at, size, bytes < kHugeBytes ? Pages::huge : Pages::small);
  ::madvise(at, size, best == Pages::small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (!prefault(at, size)) return none();
  if (best != Pages::small && transparent_bytes(at) >= size / 10 * 9)
    memory.pages_ = Pages::transparent;
  return memory;
}

Memory::~Memory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace millrace
