// Levelling: which shards should move so that all workers have the same load, after RSS++
// (Barbette, Katsikas, Maguire, Kostic, CoNEXT 2019).
//
// The paper moves as few shards as it can from cores above the mean to cores below it, by a greedy
// search that it repeats with different tolerances. Here each move goes from the busiest worker to
// the idlest, with the shard that brings their loads closest together: one heavy shard rather than
// many light ones.
//
// Any thread may call the plain functions.
#pragma once

#include <climits>
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

/// Shards move for balance only if a worker's load is above `kUnlevel` times the mean.
inline constexpr double kUnlevel = 1.05;
/// Shards then move as long as a worker with a load above `kLevel` times the mean can give a shard,
/// and another worker may take that shard.
inline constexpr double kLevel = 1.01;

/// Returns the loads of the first `workers`, given the load of each shard.
std::vector<double> loads_of(const Indirection& indirection, std::span<const double> load_of_shard,
                             unsigned workers);

/// Returns the moves that level the load. After the first of these moves, the first `workers`
/// workers, 1 or more, have all shards, and none of them has more than `most` (or than an even
/// share, where that is more). The other moves make loads more equal: each goes from the busiest
/// worker that can give a shard to the idlest that may take one. Among the other moves, a worker
/// that gives shards takes none. Loads are in any unit.
std::vector<Move> level(const Indirection& indirection, std::span<const double> load_of_shard,
                        unsigned workers, unsigned most = UINT_MAX);

/// Returns how many shards a worker may have. A worker's tables have room for a limited multiple of
/// an even share of the capacity (`Workers::kMostShares`), and must not run full before those of
/// other workers. `taken`: the fraction of the capacity, 0 to 1, that live connections use; `taken`
/// may double until the next decision.
unsigned most_shards(unsigned shards, unsigned workers, double taken);

/// Fraction of time in which the workers with shards should be busy, if as few workers as possible
/// have shards.
inline constexpr double kMeantBusy = 0.7;
/// More workers get shards if those with shards are busy for more than this fraction of time, on
/// average.
inline constexpr double kTooBusy = 0.8;
/// Fewer workers get shards if one worker less would still be busy for less than this fraction of
/// time, on average.
inline constexpr double kTooIdle = 0.5;

/// Returns how many workers should have shards, 1 to `busy.size()`. `busy`: for each worker, the
/// fraction of time, 0 to 1, in which it has had packets, while the first `in_use` workers had all
/// shards. `taken`: the fraction of the capacity that live connections use; whatever the load, at
/// least this fraction of the workers has shards.
unsigned workers_needed(std::span<const double> busy, unsigned in_use, double taken);

/// Decides from time to time which shards move, by their packets since the last decision. Used by
/// one thread.
class Leveller {
 public:
  /// Packets since the last decision, on average over the workers with shards, below which
  /// differences of load are chance.
  static constexpr std::uint64_t kLeastPackets = 4096;

  explicit Leveller(unsigned workers) : workers_(workers) {}

  /// Sets how many workers, from the first on, should have shards.
  void use(unsigned workers) { workers_ = workers; }
  unsigned workers() const { return workers_; }
  /// Returns the moves. `packets` counts each shard's packets so far; `most`: as in `level`. If too
  /// few packets have come since the last decision, and the first `workers()` have all shards and
  /// none of them too many, returns none, and these packets count for the next decision.
  std::vector<Move> decide(const Indirection& now, std::span<const std::uint64_t> packets,
                           unsigned most = UINT_MAX);

 private:
  unsigned workers_;
  std::vector<std::uint64_t> before_;  // packets of each shard at the last decision
};

}  // namespace millrace
