#include "function/nat/table_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <string>

#include "core/relaxed.h"

namespace millrace {
namespace {

/// Returns the table that was given back before this one. Threads that still take this table for a
/// block's read these bytes, too.
Relaxed<std::uint64_t>& next_of(std::byte* table) {
  return *reinterpret_cast<Relaxed<std::uint64_t>*>(table);
}

}  // namespace

Result<void> ReservedMemory::reserve(std::size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return std::unexpected(Error{"no address space is left for the port blocks of the pools (" +
                                 std::to_string(bytes >> 20) + " MiB): give smaller pools"});
  begin_ = static_cast<std::byte*>(at);
  bytes_ = bytes;
  return {};
}

void ReservedMemory::use_huge_pages() {
  static_cast<void>(::madvise(begin_, bytes_, MADV_HUGEPAGE));
}

ReservedMemory::~ReservedMemory() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

Result<void> TableMemory::reserve(std::size_t bytes, std::size_t tables) {
  // Half of all places are for what is lost by rounding up.
  unit_ = std::max(unit_, std::bit_ceil(bytes >> 31));
  auto ok = memory_.reserve(bytes + (tables + 1) * unit_);
  if (ok) memory_.use_huge_pages();
  return ok;
}

auto TableMemory::take(Size& size) -> Place {
  const BriefLock lock(is_locked_);
  if (size.free == 0) {
    const Place table = next_;
    next_ += static_cast<Place>((size.bytes + unit_ - 1) / unit_);
    return table;
  }
  const Place table = size.free;
  size.free = static_cast<Place>(next_of(at(table)));
  next_of(at(table)) = 0;
  return table;
}

void TableMemory::give_back(Size& size, Place table) {
  const BriefLock lock(is_locked_);
  next_of(at(table)) = size.free;
  size.free = table;
}

}  // namespace millrace
