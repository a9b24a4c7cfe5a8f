// From a hash to a worker by way of a table, as NICs have one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class Indirection {
 public:
  static constexpr unsigned kLeast = 128;
  static constexpr unsigned kMost = 512;

  /// Entries, a power of two, `kLeast` to `kMost` as NICs have; by turns over `workers`, 1 or more.
  Indirection(unsigned entries, unsigned workers) : worker_of_(entries) {
    for (unsigned entry = 0; entry < entries; ++entry)
      worker_of_[entry] = static_cast<std::uint16_t>(entry % workers);
  }

  unsigned entries() const { return static_cast<unsigned>(worker_of_.size()); }
  unsigned entry_of(std::uint32_t hash) const { return hash & (entries() - 1); }
  unsigned worker_of(unsigned entry) const { return worker_of_[entry]; }
  void give(unsigned entry, unsigned worker) {
    worker_of_[entry] = static_cast<std::uint16_t>(worker);
  }

 private:
  std::vector<std::uint16_t> worker_of_;
};

}  // namespace millrace
