// Which shards should move so that all workers have as much to do: after
// RSS++ (Barbette, Katsikas, Maguire, Kostic, CoNEXT 2019).
//
// The paper moves shards from cores above the mean to cores below it, as few as it can, by a
// greedy search that it repeats with different tolerances. Here each move takes the shard from the
// busiest to the idlest that brings these two closest together, so that one heavy shard moves
// rather than many light ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shard/indirection.h"

namespace millrace {

struct Move {
  unsigned shard;
  unsigned from;
  unsigned to;
};

/// How far above the mean a worker's load may be before anything moves.
inline constexpr double kUnlevel = 1.05;
/// And how far when no more moves.
inline constexpr double kLevel = 1.01;

/// The loads of `workers`, given that of each shard.
std::vector<double> loads_of(const Indirection& indirection, std::span<const double> load_of_shard,
                             unsigned workers);

/// Moves after which the first `workers` have all shards, and then those that lower the highest
/// load, best first; none where all are level. Of the first `workers` one gives or takes, never
/// both.
std::vector<Move> level(const Indirection& indirection, std::span<const double> load_of_shard,
                        unsigned workers);

/// How busy workers are meant to be, of 1, where as few as can do it have shards.
inline constexpr double kMeantBusy = 0.7;
/// More of them get shards where they are busier than that,
inline constexpr double kTooBusy = 0.8;
/// and fewer where one less would be less busy than that.
inline constexpr double kTooIdle = 0.5;

/// Returns how many workers should have shards, 1 to `busy.size()`, given for each how much of the
/// time it has had packets, 0 to 1, while the first `in_use` had all shards.
unsigned workers_needed(std::span<const double> busy, unsigned in_use);

/// Decides now and again, by what each shard has had since it decided last. Used by one thread.
class Leveller {
 public:
  /// Packets for each worker, below which loads differ by chance: then it waits for more.
  static constexpr std::uint64_t kLeastPackets = 4096;

  explicit Leveller(unsigned workers) : workers_(workers) {}

  /// From now on the first so many workers have shards.
  void use(unsigned workers) { workers_ = workers; }
  unsigned workers() const { return workers_; }
  /// `packets`: of each shard, so far.
  std::vector<Move> decide(const Indirection& now, std::span<const std::uint64_t> packets);

 private:
  unsigned workers_;
  std::vector<std::uint64_t> before_;  // of each shard, when it decided last
};

}  // namespace millrace
