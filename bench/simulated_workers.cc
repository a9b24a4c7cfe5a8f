#include "simulated_workers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace::bench {

double imbalance_percent(std::span<const double> loads) {
  constexpr double kMost = 2000;
  double least = 0;
  double most = 0;
  for (const double load : loads) {
    if (load <= 0) continue;
    least = least == 0 ? load : std::min(least, load);
    most = std::max(most, load);
  }
  return least == 0 ? 0 : std::min(100 * (most - least) / least, kMost);
}

double load_at(double seconds) {
  const double part = std::clamp(std::min(seconds / 15, 1 - (seconds - 30) / 30), 0.0, 1.0);
  return 0.1 + 0.9 * std::sin(part * std::numbers::pi / 2);
}

SimulatedWorkers::SimulatedWorkers(const Plan& plan)
    : plan_(plan),
      now_(plan.shards, plan.workers),
      before_(now_),
      leveller_(plan.workers),
      served_(plan.shards) {}

auto SimulatedWorkers::step(std::span<const double> packets_of_shard) -> Step {
  before_ = now_;
  Step step{.loads = by_worker(packets_of_shard)};
  std::vector<bool> has_shard(plan_.workers);
  for (unsigned shard = 0; shard < plan_.shards; ++shard) {
    const unsigned worker = now_.worker_of(shard);
    has_shard[worker] = true;
    const double load = step.loads[worker];
    served_[shard] += packets_of_shard[shard] * (load > plan_.capacity ? plan_.capacity / load : 1);
  }
  step.in_use = static_cast<unsigned>(std::ranges::count(has_shard, true));
  for (const double load : step.loads) step.lost += std::max(load - plan_.capacity, 0.0);
  if (plan_.levelling != Levelling::none) {
    if (to_come_.empty()) decide(step.loads);
    step.moves = move();
  }
  return step;
}

void SimulatedWorkers::decide(std::span<const double> loads) {
  if (plan_.levelling == Levelling::as_needed) {
    std::vector<double> busy;
    for (const double load : loads) busy.push_back(std::min(load / plan_.capacity, 1.0));
    leveller_.use(workers_needed(busy, leveller_.workers(), 0));
  }
  std::vector<std::uint64_t> packets;
  for (const double served : served_) packets.push_back(static_cast<std::uint64_t>(served));
  const auto moves = leveller_.decide(now_, packets);
  to_come_.assign(moves.begin(), moves.end());
  may_move_ = 0;
}

unsigned SimulatedWorkers::move() {
  may_move_ += plan_.moves_a_step;
  unsigned moves = 0;
  for (; may_move_ >= 1 && !to_come_.empty(); --may_move_, ++moves) {
    now_.give(to_come_.front().shard, to_come_.front().to);
    to_come_.pop_front();
  }
  return moves;
}

}  // namespace millrace::bench
