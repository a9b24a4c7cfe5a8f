#include "shard/level.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <ranges>
#include <tuple>
#include <utility>

namespace millrace {
namespace {

/// Returns the shard of `worker` whose load is closest to half of `gap`, among loads above 0 and
/// below `gap`; none if there is no such load.
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

/// Returns how many shards each of the first `workers` has.
std::vector<unsigned> counts_of(const Indirection& indirection, std::size_t workers) {
  std::vector<unsigned> counts(workers);
  for (unsigned shard = 0; shard < indirection.shards(); ++shard) {
    if (const unsigned worker = indirection.worker_of(shard); worker < workers) ++counts[worker];
  }
  return counts;
}

/// Let n be `loads.size()`. Returns moves of all shards of workers n and above and, from each of
/// the first n workers with more than `most` shards, of the lightest ones, until it has `most`. The
/// shards go, heaviest first, each to the least loaded of the first n workers with fewer than
/// `most`. Updates `loads` and `counts`.
std::vector<Move> vacate(const Indirection& indirection, std::span<const double> load_of_shard,
                         unsigned most, std::vector<double>& loads, std::vector<unsigned>& counts) {
  std::vector<unsigned> shards(indirection.shards());
  std::iota(shards.begin(), shards.end(), 0);
  const auto load = [&](unsigned shard) { return load_of_shard[shard]; };
  std::ranges::stable_sort(shards, {}, load);
  std::erase_if(shards, [&](unsigned shard) {
    const unsigned worker = indirection.worker_of(shard);
    if (worker >= loads.size()) return false;
    if (counts[worker] <= most) return true;
    loads[worker] -= load_of_shard[shard];
    --counts[worker];
    return false;
  });
  std::vector<unsigned> workers(loads.size());
  std::iota(workers.begin(), workers.end(), 0);
  std::vector<Move> moves;
  for (const unsigned shard : shards | std::views::reverse) {
    const unsigned to = *std::ranges::min_element(workers, {}, [&](unsigned worker) {
      return std::tuple(counts[worker] >= most, loads[worker], counts[worker]);
    });
    loads[to] += load_of_shard[shard];
    ++counts[to];
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

unsigned most_shards(unsigned shards, unsigned workers, double taken) {
  constexpr double kHeadroom = 0.8;
  const double most = kHeadroom * shards / (workers * std::max(taken, 1e-6));
  return most < shards ? static_cast<unsigned>(most) : shards;
}

unsigned workers_needed(std::span<const double> busy, unsigned in_use, double taken) {
  // Without this slack, a few connections more or less would change the number of workers.
  constexpr double kSlack = 1.25;
  const double all = std::max(static_cast<double>(busy.size()), 1.0);
  const double sum = std::accumulate(busy.begin(), busy.end(), 0.0);
  const bool is_right = sum <= kTooBusy * in_use && sum >= kTooIdle * (in_use - 1);
  const double by_load = is_right ? in_use : std::ceil(sum / kMeantBusy);
  const double for_room =
      std::max(std::ceil(taken * all), std::min<double>(in_use, std::ceil(kSlack * taken * all)));
  return static_cast<unsigned>(std::clamp(std::max(by_load, for_room), 1.0, all));
}

std::vector<Move> level(const Indirection& indirection, std::span<const double> load_of_shard,
                        unsigned workers, unsigned most) {
  most = std::max(most, (indirection.shards() + workers - 1) / workers);
  std::vector<double> loads = loads_of(indirection, load_of_shard, workers);
  std::vector<unsigned> counts = counts_of(indirection, workers);
  std::vector<Move> moves = vacate(indirection, load_of_shard, most, loads, counts);
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
    std::erase_if(takers, [&](unsigned worker) { return counts[worker] >= most; });
    if (takers.empty()) break;
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
    --counts[from];
    ++counts[to];
    moves.push_back({*shard, from, to});
  }
  return moves;
}

std::vector<Move> Leveller::decide(const Indirection& now, std::span<const std::uint64_t> packets,
                                   unsigned most) {
  before_.resize(packets.size());
  std::vector<double> load;
  double sum = 0;
  for (std::size_t shard = 0; shard < packets.size(); ++shard) {
    load.push_back(static_cast<double>(packets[shard] - before_[shard]));
    sum += load.back();
  }
  const auto counts = counts_of(now, workers_);
  const bool is_vacated = std::accumulate(counts.begin(), counts.end(), 0U) == now.shards();
  const bool has_room =
      std::ranges::max(counts) <= std::max(most, (now.shards() + workers_ - 1) / workers_);
  const bool has_few = workers_ < 2 || sum < static_cast<double>(kLeastPackets * workers_);
  if (is_vacated && has_room && has_few) return {};
  before_.assign(packets.begin(), packets.end());
  return level(now, load, workers_, most);
}

}  // namespace millrace
