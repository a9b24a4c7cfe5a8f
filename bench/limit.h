// What this machine can do at best: random fetches by one core, from memory of given sizes.
//
// The cost of an operation on a table has a floor: the lines that it cannot avoid, one of the index
// and one of the records. The floor is measured as the fastest loop over such lines that we know:
// addresses computed without any memory, prefetched a fixed distance ahead, the best of several
// distances and of all kinds of prefetch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

enum class Access : std::uint8_t { none, read, update };

/// Memory of these sizes, and what is done with a random line of each.
struct Fetches {
  std::size_t index_bytes = 0;
  Access index = Access::none;
  std::size_t record_bytes = 0;
  Access records = Access::none;

  friend auto operator<=>(const Fetches&, const Fetches&) = default;
};

/// The pages under memory whose largest piece has so many bytes, and which says of itself that it
/// lies on `obtained`: pieces smaller than a huge page lie on small ones, and call them the best.
Pages pages_under(std::size_t largest_bytes, Pages obtained);

class Limit {
 public:
  /// Memory for fetches up to these sizes. Error: there is not so much.
  static Result<Limit> create(std::size_t index_bytes, std::size_t record_bytes, Pages pages);

  /// Nanoseconds for one of each, the fetches of many operations in flight together.
  double independent_ns(const Fetches& fetches) const;
  /// Nanoseconds for one line of the records when its address is known only from the line before.
  double dependent_ns(std::size_t record_bytes) const;
  /// What it lies on; the worse of two.
  Pages pages() const;

 private:
  Limit(Memory index, Memory records) : index_(std::move(index)), records_(std::move(records)) {}

  Memory index_;
  Memory records_;
};

}  // namespace millrace::bench
