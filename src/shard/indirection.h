// The indirection table, like that of a NIC: it maps a packet's hash to a worker. An entry of the
// table is called a shard here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class Indirection {
 public:
  static constexpr unsigned kLeast = 128;
  static constexpr unsigned kMost = 512;

  /// Makes a table of `shards`, a power of two from `kLeast` to `kMost`, as NICs have. The shards
  /// are given to `workers`, 1 or more, in turn.
  Indirection(unsigned shards, unsigned workers) : worker_of_(shards) {
    for (unsigned shard = 0; shard < shards; ++shard)
      worker_of_[shard] = static_cast<std::uint16_t>(shard % workers);
  }

  unsigned shards() const { return static_cast<unsigned>(worker_of_.size()); }
  unsigned shard_of(std::uint32_t hash) const { return hash & (shards() - 1); }
  unsigned worker_of(unsigned shard) const { return worker_of_[shard]; }
  void give(unsigned shard, unsigned worker) {
    worker_of_[shard] = static_cast<std::uint16_t>(worker);
  }

 private:
  std::vector<std::uint16_t> worker_of_;
};

}  // namespace millrace
