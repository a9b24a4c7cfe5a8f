// Memory for the mappings of blocks: one range of address space, filled from its beginning on, so
// that it lies on few pages, and on huge ones where the system gives them. A table that is given
// back is used again for the next one of its size.
//
// The system gives a page to the thread that first touches it. For a huge page, some 340 tables of
// 512 ports, the thread waits some 200 us until the kernel has cleared it; longer if the kernel has
// to find a huge page first, or a virtual machine's host to give the memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "millrace/types.h"

namespace millrace {

/// Holds a lock that threads take for some 100 ns.
class BriefLock {
 public:
  explicit BriefLock(std::atomic<bool>& is_locked) : is_locked_(is_locked) {
    while (is_locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  ~BriefLock() { is_locked_.store(false, std::memory_order_release); }
  BriefLock(const BriefLock&) = delete;
  BriefLock& operator=(const BriefLock&) = delete;

 private:
  std::atomic<bool>& is_locked_;
};

/// Address space that is 0, and takes memory as it is touched.
class ReservedMemory {
 public:
  ReservedMemory() = default;
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  /// Call it once, first. Error (failed): there is none.
  Result<void> reserve(std::size_t bytes);
  /// Asks for huge pages, where the system gives them.
  void use_huge_pages();
  std::byte* begin() const { return begin_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Any thread may call the functions, except `reserve`.
class TableMemory {
 public:
  /// A place in this memory. 0 is none.
  using Place = std::uint32_t;

  /// Tables of one size.
  struct Size {
    std::size_t bytes = 0;  ///< at least 64
    Place free = 0;         ///< the first table that was given back; under the lock
  };

  /// Reserves address space for `tables` tables of together `bytes` bytes. Call it once, first.
  /// Error (failed): there is none.
  Result<void> reserve(std::size_t bytes, std::size_t tables);

  /// Returns a table of that size, aligned to 64: all 0, or as its previous user has given it back.
  /// There must be no more tables at once than are reserved.
  Place take(Size& size);
  /// Takes back a table of that size, whose first 8 bytes are 0, and the others as the next user
  /// may find them. Other threads may still read the first 8 bytes, as an atomic; they get any
  /// value.
  void give_back(Size& size, Place table);
  std::byte* at(Place table) const { return memory_.begin() + std::size_t{table} * unit_; }

 private:
  ReservedMemory memory_;
  std::size_t unit_ = 64;  // bytes; a power of 2
  Place next_ = 1;         // all behind it was never used; under the lock
  std::atomic<bool> is_locked_ = false;
};

}  // namespace millrace
