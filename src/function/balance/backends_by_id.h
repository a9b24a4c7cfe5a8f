// A worker's backends, by the ids that plans give them. Backends never move in memory, so the
// thread that makes plans may add some (`grow`) while the worker uses those that its plan names.
// Only that thread calls `size`.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace millrace {

template <class Backend>
class BackendsById {
 public:
  explicit BackendsById(std::size_t most) : memory_(allocate(most)) {}

  std::size_t size() const { return size_; }
  Backend& operator[](std::size_t id) { return memory_.get()[id]; }
  const Backend& operator[](std::size_t id) const { return memory_.get()[id]; }

  /// Adds backends until there are `size`, which is at most the constructor's `most`.
  void grow(std::size_t size) {
    for (; size_ < size; ++size_) new (memory_.get() + size_) Backend{};
  }

 private:
  static_assert(std::is_trivially_destructible_v<Backend>);
  struct Free {
    void operator()(Backend* memory) const { std::free(memory); }
  };
  /// Allocates memory for `most` backends. Pages that are never written take no memory.
  static Backend* allocate(std::size_t most) {
    void* const memory = std::aligned_alloc(alignof(Backend), most * sizeof(Backend));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<Backend*>(memory);
  }

  std::unique_ptr<Backend, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace millrace
