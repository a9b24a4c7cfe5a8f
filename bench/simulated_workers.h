// Workers that are computed, not run: they have shards and a capacity. The code that also levels
// running workers decides which shard moves where and how many workers are needed (shard/level.h).
// There are neither threads nor a clock; one thread uses each object.
//
// Time advances in steps, of one interval of levelling each. A worker serves up to its capacity in
// a step and loses the rest: it has no queue. Shards move one after another, `Plan::moves_a_step`
// in a step. The next decision waits until the last shard has moved, as in `Control::level`.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include "shard/indirection.h"
#include "shard/level.h"

namespace millrace::bench {

/// Returns by how much the busiest worker's load exceeds the idlest worker's, in percent of the
/// idlest worker's load: MIN-MAX-LOAD-PKTS-RATIO in dpdk.testie of RSS++'s experiments. As in that
/// file, workers without a load do not count, and the result is at most 2000. 0 if fewer than two
/// workers count.
double imbalance_percent(std::span<const double> loads);

/// Returns the load `seconds` after the beginning, as a share of the peak load, 0.1 to 1: the load
/// rises for 15 s, stays at the peak until 30 s, and falls until 60 s; it rises and falls along a
/// quarter of a sine. This is the curve of RSS++'s experiment in scaling (`sfnt` in common.testie).
double load_at(double seconds);

/// How shards move.
enum class Levelling : std::uint8_t {
  none,      ///< each shard stays with its worker
  all,       ///< shards move between all workers
  as_needed  ///< shards move to as few workers as the load needs, as with `workers = "auto"`
};

class SimulatedWorkers {
 public:
  struct Plan {
    unsigned workers = 1;
    unsigned shards = 512;
    Levelling levelling = Levelling::none;
    /// Packets that a worker can serve in a step.
    double capacity = std::numeric_limits<double>::infinity();
    double moves_a_step = 1;
  };
  struct Step {
    std::vector<double> loads;  ///< packets that arrived for each worker
    double lost = 0;            ///< packets beyond the capacities of their workers
    unsigned in_use = 0;        ///< workers that had a shard
    unsigned moves = 0;         ///< moves at the end of the step
  };

  explicit SimulatedWorkers(const Plan& plan);

  /// Runs the next step, in which each shard gets `packets_of_shard` packets.
  Step step(std::span<const double> packets_of_shard);
  /// Sums up `of_shard` by worker, with each shard at the worker that had it in the last step.
  std::vector<double> by_worker(std::span<const double> of_shard) const {
    return loads_of(before_, of_shard, plan_.workers);
  }

 private:
  void decide(std::span<const double> loads);
  unsigned move();

  Plan plan_;
  Indirection now_;
  Indirection before_;  // the indirection in the last step
  Leveller leveller_;
  std::vector<double> served_;  // packets served so far, by shard
  std::deque<Move> to_come_;
  double may_move_ = 0;  // moves that are due by now; a fraction waits for the next step
};

}  // namespace millrace::bench
