#include "shard/level.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace millrace {
namespace {

/// Returns the shard of `worker` with the load closest to half of `gap`, above 0 and below `gap`.
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

/// Moves the shards of workers beyond those in `loads` to these, the heaviest shard first, each to
/// the idlest worker, and adds to `loads`.
std::vector<Move> vacate(const Indirection& indirection, std::span<const double> load_of_shard,
                         std::vector<double>& loads) {
  std::vector<unsigned> shards;
  for (unsigned shard = 0; shard < indirection.shards(); ++shard) {
    if (indirection.worker_of(shard) >= loads.size()) shards.push_back(shard);
  }
  std::ranges::stable_sort(shards, std::greater(),
                           [&](unsigned shard) { return load_of_shard[shard]; });
  std::vector<unsigned> workers(loads.size());
  std::iota(workers.begin(), workers.end(), 0);
  std::vector<unsigned> taken(loads.size());  // number of shards: spreads shards without load, too
  std::vector<Move> moves;
  for (const unsigned shard : shards) {
    const unsigned to = *std::ranges::min_element(
        workers, {}, [&](unsigned worker) { return std::pair(loads[worker], taken[worker]); });
    loads[to] += load_of_shard[shard];
    ++taken[to];
    moves.push_back({shard, indirection.worker_of(shard), to});
  }
  return moves;
}

}  // namespace

std::vector<double> loads_of(const Indirection& indirection, std::span<const double> load_of_shard,
                             unsigned workers) {
  std::vector<double> loads(workers);
  for (unsigned shard = 0; shard < indirection.shards(); ++shard) {
    if (const unsigned worker = indirection.worker_of(shard); worker < workers)
      loads[worker] += load_of_shard[shard];
  }
  return loads;
}

unsigned workers_needed(std::span<const double> busy, unsigned in_use) {
  const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
  const bool is_right = sum <= kTooBusy * in_use && sum >= kTooIdle * (in_use - 1);
  if (is_right) return in_use;
  const double needed = std::ceil(sum / kMeantBusy);
  return static_cast<unsigned>(std::clamp(needed, 1.0, static_cast<double>(busy.size())));
}

std::vector<Move> level(const Indirection& indirection, std::span<const double> load_of_shard,
                        unsigned workers) {
  std::vector<double> loads = loads_of(indirection, load_of_shard, workers);
  std::vector<Move> moves = vacate(indirection, load_of_shard, loads);
  const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / workers;
  if (std::ranges::max(loads) <= kUnlevel * mean) return moves;

  std::vector<unsigned> givers;
  std::vector<unsigned> takers;
  for (unsigned worker = 0; worker < workers; ++worker)
    (loads[worker] > mean ? givers : takers).push_back(worker);
  const auto load = [&loads](unsigned worker) { return loads[worker]; };
  Indirection after = indirection;
  for (const Move& move : moves) after.give(move.shard, move.to);
  while (!givers.empty()) {
    const auto busiest = std::ranges::max_element(givers, {}, load);
    const unsigned to = *std::ranges::min_element(takers, {}, load);
    const unsigned from = *busiest;
    if (loads[from] <= kLevel * mean) break;
    const auto shard = best_shard(after, load_of_shard, from, loads[from] - loads[to]);
    if (!shard) {
      givers.erase(busiest);  // no shard of this worker makes the two loads more equal
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
  bool is_vacated = true;
  for (unsigned shard = 0; shard < now.shards(); ++shard)
    is_vacated = is_vacated && now.worker_of(shard) < workers_;
  const bool has_few = workers_ < 2 || sum < static_cast<double>(kLeastPackets * workers_);
  if (is_vacated && has_few) return {};
  before_.assign(packets.begin(), packets.end());
  return level(now, load, workers_);
}

}  // namespace millrace
