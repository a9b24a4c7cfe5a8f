// Moves shards between the workers of a running dataplane.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <thread>

#include "control/control.h"
#include "shard/indirection.h"

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kMovePatience{5};

Refusal refusal(Refusal::Kind kind, const std::string& why) { return {kind, why}; }

}  // namespace

auto Control::shards() -> Shards {
  const std::lock_guard guard(mutex_);
  const Owners& owners = live_->owners();
  Shards shards{.workers = workers_->count(), .in_use = live_->in_use(), .all = {}};
  if (owners.spread() == nullptr) return shards;
  shards.is_levelled = workers_->count() > 1 && config_.spread.level;
  for (unsigned shard = 0; shard < moves_of_.size(); ++shard) {
    Shard one{.worker = owners.worker_of(shard), .packets = 0, .moves = moves_of_[shard]};
    for (unsigned n = 0; n < workers_->count(); ++n)
      one.packets += live_->port(n).exchange().packets_of(shard);
    shards.all.push_back(one);
  }
  return shards;
}

/// Returns why the shard cannot move to that worker; none if it can. To be called under the lock.
std::optional<Refusal> Control::refusal_to_move(unsigned shard, unsigned to) {
  using Kind = Refusal::Kind;
  if (auto no = refusal_while_handing_over()) return no;
  if (workers_->count() < 2)
    return refusal(Kind::not_now,
                   "there is one worker, and shards move between several: give more workers, and "
                   "restart");
  if (!config_.spread.level)
    return refusal(Kind::not_now,
                   live_->owners().spread() == nullptr && config_.sharing
                       ? "the workers share their tables, so no shard moves: leave sharing out, "
                         "give spread.level = true, and restart"
                       : "no shard moves: give spread.level = true, and restart");
  if (!queues_are_in_place_)
    return refusal(Kind::not_now, "a device's queue is on its way to another worker: ask again");
  if (shard >= moves_of_.size())
    return refusal(Kind::absent,
                   fmt::format("there is no shard {}: give 0 to {}", shard, moves_of_.size() - 1));
  if (to >= workers_->count())
    return refusal(Kind::absent,
                   fmt::format("there is no worker {}: give 0 to {}", to, workers_->count() - 1));
  if (to >= live_->in_use())
    return refusal(
        Kind::not_now,
        fmt::format(
            "{} of {} workers are in use: give worker 0{}", live_->in_use(), workers_->count(),
            live_->in_use() == 1 ? std::string() : fmt::format(" to {}", live_->in_use() - 1)));
  bool has_room = false;
  const bool asked = workers_->ask(to, [&] {
    const auto has = [](const TableReport& table) {
      constexpr std::size_t kFullPercent = 95;
      return table.live * 100 <= table.capacity * kFullPercent;
    };
    const Line& line = workers_->line(to);
    has_room = has(line.report_v4()) && has(line.report_v6());
  });
  if (!asked) return refusal(Kind::not_now, "millrace is ending");
  if (!has_room)
    return refusal(Kind::not_now, "a table of that worker (IPv4 or IPv6) is more than 95 % full");
  return std::nullopt;
}

/// Waits until `is_done()` or the end of the run, but no longer than `most`. Returns `is_done()`.
/// To be called under the lock.
template <class IsDone>
bool Control::wait_for(const IsDone& is_done, std::chrono::milliseconds most) {
  constexpr std::chrono::microseconds kPause{20};
  const auto until = SteadyClock::now() + most;
  while (!is_done() && !live_->is_ending() && SteadyClock::now() < until)
    std::this_thread::sleep_for(kPause);
  return is_done();
}

CommandResult<double> Control::move_shard(unsigned shard, unsigned to) {
  const std::lock_guard guard(mutex_);
  ShardMoves& moves = live_->owners().moves();
  const auto is_done = [&moves] { return !moves.is_under_way(); };
  if (!wait_for(is_done, kMovePatience))
    return std::unexpected(refusal(Refusal::Kind::not_now,
                                   "another shard is on its way to its new worker: ask again"));
  if (auto no = refusal_to_move(shard, to)) return std::unexpected(*no);
  if (moves.worker_of(shard) == to) return 0.0;
  const auto start = SteadyClock::now();
  moves.begin(shard, to);
  ++moves_of_[shard];
  if (!wait_for(is_done, kMovePatience))
    return std::unexpected(
        refusal(Refusal::Kind::not_now,
                "the move is not finished yet: GET /shards shows which worker has the shard"));
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

/// Returns, for each worker, the fraction of the time since the last call in which it had packets,
/// 0 to 1.
std::vector<double> Control::BusyTimes::since() {
  std::vector<double> busy;
  const auto now = SteadyClock::now();
  const auto passed = std::chrono::duration<double, std::nano>(now - at_).count();
  for (unsigned n = 0; n < idle_ns_.size(); ++n) {
    const std::uint64_t idle_ns = live_->idle_ns(n);
    busy.push_back(std::clamp(1 - static_cast<double>(idle_ns - idle_ns_[n]) / passed, 0.0, 1.0));
    idle_ns_[n] = idle_ns;
  }
  at_ = now;
  return busy;
}

/// Lets only the first `workers` workers receive, unless another process takes over or a shard is
/// still moving after `kUsePatience`. Returns how many workers are meant to receive. No shard moves
/// until each device queue has come to its new worker: so a packet that is held for a move arrived
/// after all packets that the queue's former worker received.
unsigned Control::use(unsigned workers) {
  // Short, since other requests wait meanwhile, and the next interval tries again.
  constexpr std::chrono::milliseconds kUsePatience{50};
  const std::lock_guard guard(mutex_);
  // Paused workers pass no queue to another worker.
  if (refusal_while_handing_over()) return live_->in_use();
  const auto is_done = [this] { return !live_->owners().moves().is_under_way(); };
  if (workers != live_->in_use() && wait_for(is_done, kUsePatience)) {
    live_->use(workers);
    queues_are_in_place_ = false;
  }
  if (!queues_are_in_place_ &&
      wait_for([this] { return live_->queues_are_in_place(); }, kUsePatience))
    queues_are_in_place_ = workers_->ask_all([](unsigned) {});
  return live_->in_use();
}

/// Returns the fraction of the capacity, 0 to 1, that live connections use, in the fuller family.
double Control::taken() {
  const std::lock_guard guard(mutex_);
  const auto taken_of = [](const TableReport& table) {
    return table.capacity == 0
               ? 0.0
               : static_cast<double>(table.live) / static_cast<double>(table.capacity);
  };
  return std::min(std::max(taken_of(workers_->report_v4()), taken_of(workers_->report_v6())), 1.0);
}

void Control::level_once(Leveller& leveller, double taken, const std::stop_token& stop) {
  const Shards is = shards();
  Indirection now(static_cast<unsigned>(is.all.size()), workers_->count());
  std::vector<std::uint64_t> packets;
  for (unsigned shard = 0; shard < is.all.size(); ++shard) {
    now.give(shard, is.all[shard].worker);
    packets.push_back(is.all[shard].packets);
  }
  const unsigned most = most_shards(now.shards(), workers_->count(), taken);
  for (const Move& move : leveller.decide(now, packets, most)) {
    if (stop.stop_requested() || !move_shard(move.shard, move.to)) return;
  }
}

/// Waits for `level_interval_ms`; begins anew if a reload changes the interval.
void Control::wait_for_interval(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::uint32_t interval = 0;
  const auto is_another = [&] { return config_.spread.level_interval_ms != interval; };
  do {
    interval = config_.spread.level_interval_ms;
  } while (changed_.wait_for(lock, stop, std::chrono::milliseconds(interval), is_another));
}

void Control::level() {
  const bool uses_few = config_.uses_few_workers;
  levelling_ = std::jthread([this, uses_few](const std::stop_token& stop) {
    Leveller leveller(workers_->count());
    BusyTimes busy(*live_, workers_->count());
    while (!stop.stop_requested()) {
      wait_for_interval(stop);
      const double full = taken();
      if (uses_few) leveller.use(use(workers_needed(busy.since(), leveller.workers(), full)));
      if (!stop.stop_requested()) level_once(leveller, full, stop);
    }
  });
}

}  // namespace millrace
