#include "shard/level.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace millrace {
namespace {

/// The shard of `worker` that comes closest to half of `gap`, and is smaller than it.
std::optional<unsigned> best_shard(const Indirection& indirection,
                                   std::span<const double> load_of_shard, unsigned worker,
                                   double gap) {
  std::optional<unsigned> best;
  const auto off = [&](unsigned shard) { return std::abs(load_of_shard[shard] - gap / 2); };
  for (unsigned shard = 0; shard < indirection.shards(); ++shard) {
    if (indirection.worker_of(shard) != worker) continue;
    if (load_of_shard[shard] <= 0 || load_of_shard[shard] >= gap) continue;
    if (!best || off(shard) < off(*best)) best = shard;
  }
  return best;
}

}  // namespace

std::vector<double> loads_of(const Indirection& indirection, std::span<const double> load_of_shard,
                             unsigned workers) {
  std::vector<double> loads(workers);
  for (unsigned shard = 0; shard < indirection.shards(); ++shard)
    loads[indirection.worker_of(shard)] += load_of_shard[shard];
  return loads;
}

std::vector<Move> level(const Indirection& indirection, std::span<const double> load_of_shard,
                        unsigned workers) {
  std::vector<Move> moves;
  std::vector<double> loads = loads_of(indirection, load_of_shard, workers);
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / workers;
  if (std::ranges::max(loads) <= kUnlevel * mean) return moves;

  std::vector<unsigned> givers;
  std::vector<unsigned> takers;
  for (unsigned worker = 0; worker < workers; ++worker)
    (loads[worker] > mean ? givers : takers).push_back(worker);
  const auto load = [&loads](unsigned worker) { return loads[worker]; };
  Indirection after = indirection;
  while (!givers.empty()) {
    const auto busiest = std::ranges::max_element(givers, {}, load);
    const unsigned to = *std::ranges::min_element(takers, {}, load);
    const unsigned from = *busiest;
    if (loads[from] <= kLevel * mean) break;
    const auto shard = best_shard(after, load_of_shard, from, loads[from] - loads[to]);
    if (!shard) {
      givers.erase(busiest);  // what it has cannot be divided any further
      continue;
    }
    after.give(*shard, to);
    loads[from] -= load_of_shard[*shard];
    loads[to] += load_of_shard[*shard];
    moves.push_back({*shard, from, to});
  }
  return moves;
}

std::vector<Move> Leveller::decide(const Indirection& now, std::span<const std::uint64_t> packets) {
  before_.resize(packets.size());
  std::vector<double> load;
  double sum = 0;
  for (std::size_t shard = 0; shard < packets.size(); ++shard) {
    load.push_back(static_cast<double>(packets[shard] - before_[shard]));
    sum += load.back();
  }
  if (workers_ < 2 || sum < static_cast<double>(kLeastPackets * workers_)) return {};
  before_.assign(packets.begin(), packets.end());
  return level(now, load, workers_);
}

}  // namespace millrace
