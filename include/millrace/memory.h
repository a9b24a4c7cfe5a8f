// Large memory for tables and records, on the largest pages that the system gives.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "millrace/types.h"

namespace millrace {

/// Page kinds, best first. A request names the best kind to try; what is obtained may be worse.
enum class Pages : unsigned char {
  huge,         ///< reserved 2 MiB pages (hugetlb)
  transparent,  ///< 2 MiB pages that the kernel assembles on advice
  small,        ///< the system's base pages
};
std::string_view to_string(Pages pages);
/// The kind of that name, or nothing.
std::optional<Pages> pages_named(std::string_view name);

/// Owns one zeroed, prefaulted mapping. The mapping thread touches every page, so the memory lies
/// on that thread's NUMA node. Movable; one owner.
class Memory {
 public:
  Memory() = default;
  /// `bytes` is rounded up to whole pages. An error where the system has not that much memory.
  static Result<Memory> map(std::size_t bytes, Pages best = Pages::huge);

  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        pages_(other.pages_) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~Memory();

  std::byte* data() const { return data_; }
  /// Bytes mapped, whole pages.
  std::size_t bytes() const { return bytes_; }
  /// The kind obtained; `transparent` only where at least nine tenths are such pages. A mapping
  /// smaller than one huge page counts as `huge`: nothing better could be had.
  Pages pages() const { return pages_; }

 private:
  Memory(std::byte* data, std::size_t bytes, Pages pages)
      : data_(data), bytes_(bytes), pages_(pages) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Pages pages_ = Pages::small;
};

}  // namespace millrace
