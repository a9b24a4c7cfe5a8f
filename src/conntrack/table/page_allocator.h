// Memory for the maps of libraries, on the same kinds of pages as the memory of other tables.
//
// A library asks its allocator for arrays, and for nodes one by one. Each array above 1 KiB has a
// mapping of its own; all nodes come from one mapping. Once a table is made, its arena is *sealed*:
// a request for an array above a limit, or for more nodes than the arena was made for, throws
// std::bad_alloc. A map that wants to grow therefore refuses the insertion.
//
// An arena belongs to one table, and the table's thread rule holds for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/memory.h"

namespace millrace {

/// The memory of one map.
class PageArena {
 public:
  static constexpr std::size_t kNodeAlign = 8;

  /// `nodes` is the largest number of nodes at a time. The request for the first node maps the
  /// memory of all nodes of its size. A node of another size counts as an array.
  PageArena(Pages pages, std::size_t nodes) : best_(pages), nodes_left_(nodes) {}
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  struct Array {
    std::byte* data = nullptr;
    std::size_t count = 0;
    std::size_t element_bytes = 0;
  };

  std::byte* array(std::size_t count, std::size_t element_bytes) {
    if (count > limit_ / element_bytes) throw std::bad_alloc();
    latest_ = {
        .data = fresh(count * element_bytes), .count = count, .element_bytes = element_bytes};
    return latest_.data;
  }
  void release_array(const void* at) noexcept {
    std::erase_if(arrays_, [at](const Memory& array) { return array.data() == at; });
  }

  std::byte* node(std::size_t bytes) {
    bytes = (bytes + kNodeAlign - 1) / kNodeAlign * kNodeAlign;
    if (node_bytes_ == 0 && nodes_left_ != 0) {
      nodes_ = map(nodes_left_ * bytes);
      node_bytes_ = bytes;
    }
    if (bytes != node_bytes_) return array(1, bytes);
    if (freed_ != nullptr) return reinterpret_cast<std::byte*>(std::exchange(freed_, freed_->next));
    if (nodes_left_ == 0) throw std::bad_alloc();
    --nodes_left_;
    return nodes_.data() + nodes_taken_++ * node_bytes_;
  }
  void release_node(void* at) noexcept {
    if (at >= nodes_.data() && at < nodes_.data() + nodes_.bytes()) {
      freed_ = ::new (at) Freed{freed_};
    } else {
      release_array(at);
    }
  }

  /// Seals the arena: from now on it allocates only arrays of up to `limit` bytes, and the nodes
  /// that are left.
  void seal(std::size_t limit = 0) { limit_ = limit; }

  /// Returns the array that was allocated last: the only one of most maps.
  const Array& latest() const { return latest_; }
  /// Returns the mapped bytes.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for_each_memory([&](const Memory& memory) { sum += memory.bytes(); });
    return sum;
  }
  /// Returns the worst kind of pages among the mappings.
  Pages pages() const {
    Pages worst = Pages::huge;
    for_each_memory([&](const Memory& memory) { worst = std::max(worst, memory.pages()); });
    return worst;
  }

 private:
  // Small arrays share mappings. Their memory is not reused: a map allocates them when it is made.
  static constexpr std::size_t kSmall = 1024;
  static constexpr std::size_t kSmallAlign = 64;

  struct Freed {
    Freed* next;
  };

  Memory map(std::size_t bytes) const {
    auto memory = Memory::map(bytes, best_);
    if (!memory) throw std::bad_alloc();
    return std::move(*memory);
  }

  std::byte* fresh(std::size_t bytes) {
    if (bytes <= kSmall) return small(bytes);
    arrays_.push_back(map(bytes));
    return arrays_.back().data();
  }

  std::byte* small(std::size_t bytes) {
    bytes = (bytes + kSmallAlign - 1) / kSmallAlign * kSmallAlign;
    if (small_.empty() || small_taken_ + bytes > small_.back().bytes()) {
      small_.push_back(map(kSmall));
      small_taken_ = 0;
    }
    return small_.back().data() + std::exchange(small_taken_, small_taken_ + bytes);
  }

  template <class Each>
  void for_each_memory(Each&& each) const {
    for (const Memory& array : arrays_) each(array);
    for (const Memory& small : small_) each(small);
    if (nodes_.bytes() != 0) each(nodes_);
  }

  Pages best_;
  std::size_t limit_ = SIZE_MAX;
  std::vector<Memory> arrays_;
  Array latest_;
  std::vector<Memory> small_;
  std::size_t small_taken_ = 0;
  Memory nodes_;
  Freed* freed_ = nullptr;
  std::size_t node_bytes_ = 0;
  std::size_t nodes_left_;
  std::size_t nodes_taken_ = 0;
};

/// An allocator (std::allocator_traits) over an arena, which must outlive the allocator and what it
/// allocates.
template <class T>
class PageAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit PageAllocator(PageArena* arena) : arena_(arena) {}
  // Implicit: containers convert an allocator to that of another type (allocator requirements).
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor)
  PageAllocator(const PageAllocator<U>& other) : arena_(other.arena()) {}

  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= 64);
    std::byte* at = kNode && n == 1 ? arena_->node(sizeof(T)) : arena_->array(n, sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  void deallocate(T* at, std::size_t n) noexcept {
    if (kNode && n == 1) {
      arena_->release_node(at);
    } else {
      arena_->release_array(at);
    }
  }

  PageArena* arena() const { return arena_; }
  template <class U>
  friend bool operator==(const PageAllocator& a, const PageAllocator<U>& b) {
    return a.arena() == b.arena();
  }

 private:
  static constexpr bool kNode = alignof(T) <= PageArena::kNodeAlign;

  PageArena* arena_;
};

}  // namespace millrace
