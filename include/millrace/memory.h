// Large mappings for tables and records, on the largest pages that the system gives.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "millrace/types.h"

namespace millrace {

/// Kinds of pages, best first. A request names the best kind to try; a mapping may get a worse one.
enum class Pages : unsigned char {
  huge,         ///< reserved 2 MiB pages (hugetlb)
  transparent,  ///< transparent huge pages of 2 MiB (MADV_HUGEPAGE)
  small,        ///< the system's base pages
};
std::string_view to_string(Pages pages);
/// Returns the kind with that name, or nothing.
std::optional<Pages> pages_named(std::string_view name);

/// Owns one zeroed, prefaulted mapping. The thread that calls `map` touches every page, so that the
/// memory lies on that thread's NUMA node. Movable, not copyable.
class Memory {
 public:
  Memory() = default;
  /// Maps `bytes`, rounded up to whole pages; tries the kinds from `best` on. Any thread may call
  /// this function. Errors (failed): the system has too little memory.
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
  /// Returns the mapped bytes, whole pages.
  std::size_t bytes() const { return bytes_; }
  /// Returns the kind of the mapping's pages: `transparent` only if at least nine tenths of it are
  /// such pages. A mapping smaller than one huge page lies on small pages, and counts as
  /// `huge`, since no larger page would fit into it.
  Pages pages() const { return pages_; }

 private:
  Memory(std::byte* data, std::size_t bytes, Pages pages)
      : data_(data), bytes_(bytes), pages_(pages) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Pages pages_ = Pages::small;
};

}  // namespace millrace
