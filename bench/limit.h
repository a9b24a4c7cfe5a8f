// The machine's limit: random fetches by one core, from memory of given sizes.
//
// The cost of an operation on a table has a lower bound: the operation must fetch at least one line
// of the index and one of the records. The bound is measured by the fastest loop over such lines
// that we know: the addresses are computed without memory accesses and prefetched a fixed distance
// ahead. The result is the least time of several distances and all kinds of prefetch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

enum class Access : std::uint8_t { none, read, update };

/// Sizes of the two memories, and the access to a random line of each.
struct Fetches {
  std::size_t index_bytes = 0;
  Access index = Access::none;
  std::size_t record_bytes = 0;
  Access records = Access::none;

  friend auto operator<=>(const Fetches&, const Fetches&) = default;
};

/// Returns the kind of pages that memory really lies on. `obtained`: the kind that it reports;
/// `largest_bytes`: size of its largest piece. A piece smaller than a huge page may report huge
/// pages, but lies on small ones.
Pages pages_under(std::size_t largest_bytes, Pages obtained);

class Limit {
 public:
  /// Maps an index and records of these sizes; later calls fetch from a part of each. Errors
  /// (failed): not enough memory.
  static Result<Limit> create(std::size_t index_bytes, std::size_t record_bytes, Pages pages);

  /// Returns nanoseconds for one access to each memory, with many accesses in flight.
  double independent_ns(const Fetches& fetches) const;
  /// Returns nanoseconds for one line of the records if its address depends on the content of the
  /// previous line.
  double dependent_ns(std::size_t record_bytes) const;
  /// Returns the kind of pages on which the two memories lie; the worse kind if they differ.
  Pages pages() const;

 private:
  Limit(Memory index, Memory records) : index_(std::move(index)), records_(std::move(records)) {}

  Memory index_;
  Memory records_;
};

}  // namespace millrace::bench
