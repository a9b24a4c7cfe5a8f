#include "worker/rebalance.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <utility>

#include "millrace/detail/waiting.h"
#include "shard/split.h"

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::uint64_t ns_since(SteadyClock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(SteadyClock::now() - start).count());
}

/// Where intervals end that have enough packets. Time that goes back begins another interval.
std::vector<std::size_t> ends_of_rounds(const Capture& capture, std::uint64_t interval_ns,
                                        std::size_t least) {
  std::vector<std::size_t> ends;
  std::size_t begin = 0;
  std::uint64_t since = 0;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const std::uint64_t at = capture.packet(i).timestamp_ns;
    if (i == 0) since = at;
    if ((at > since ? at - since : since - at) < interval_ns) continue;
    since = at;
    if (i - begin < least) continue;
    ends.push_back(i);
    begin = i;
  }
  if (!ends.empty() && capture.size() - begin < least) ends.pop_back();
  ends.push_back(capture.size());
  return ends;
}

/// How many loops of so many packets a round takes.
std::uint32_t loops_at_once(std::size_t packets, std::size_t least) {
  const std::size_t whole = std::max<std::size_t>(packets, 1);
  return static_cast<std::uint32_t>((least + whole - 1) / whole);
}

}  // namespace

Rebalance::Rebalance(const Capture& capture, std::vector<std::uint16_t> entries,
                     Indirection indirection, unsigned workers, std::uint32_t loops,
                     std::uint32_t interval_ms)
    : ends_(
          ends_of_rounds(capture, std::uint64_t{interval_ms} * 1'000'000, kLeastPackets * workers)),
      entries_(std::move(entries)),
      first_(indirection),
      now_(std::move(indirection)),
      loops_(loops),
      loops_at_once_(loops_at_once(capture.size(), kLeastPackets * workers)),
      own_(workers),
      served_(static_cast<std::ptrdiff_t>(workers), Decide{this}),
      adopted_(static_cast<std::ptrdiff_t>(workers), SettleMoves{this}),
      load_of_entry_(first_.entries()) {
  for (Own& own : own_) own.packets.resize(first_.entries());
}

void Rebalance::begin(Workers& workers, std::vector<ReplayPort>& ports) {
  workers_ = &workers;
  ports_ = &ports;
  for (unsigned worker = 0; worker < own_.size(); ++worker) {
    go_on(worker);
    own_[worker].looked_ns = 0;  // the run has not begun
  }
}

bool Rebalance::next(unsigned worker) {
  const auto meet = [](auto& all) {
    const detail::Waiting waiting;
    all.arrive_and_wait();
  };
  Line& line = workers_->line(worker);
  meet(served_);
  if (ended_) return false;
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    const Move& move = moves_[i];
    if (move.to == worker)
      done_[i] = line.adopt(workers_->line(move.from), move.entry, most_) ? 1 : 0;
  }
  meet(adopted_);
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    if (moves_[i].from == worker && done_[i] != 0) line.release(moves_[i].entry);
  }
  go_on(worker);
  return true;
}

/// Who leaves has met trouble: the others end with their round.
void Rebalance::leave(unsigned worker) noexcept {
  left_ = true;
  (*ports_)[worker].go_on({.loop = loops_ - 1, .end = entries_.size(), .last = true});
  adopted_.arrive_and_drop();
  served_.arrive_and_drop();
}

/// Gives the worker's port its packets of this round, and counts them.
void Rebalance::go_on(unsigned worker) {
  const auto start = SteadyClock::now();
  Own& own = own_[worker];
  const std::size_t begin = round_ == 0 ? 0 : ends_[round_ - 1];
  Round round{loop_, loops_of_round(), ends_[round_], is_last(),
              positions_of(entries_, now_, worker, begin, ends_[round_])};
  std::ranges::fill(own.packets, 0);
  for (const std::uint32_t position : round.positions)
    own.packets[entries_[position]] += round.loops;
  (*ports_)[worker].go_on(std::move(round));
  own.looked_ns += ns_since(start);
}

/// Where no memory is left to decide, nothing moves.
void Rebalance::decide() noexcept {
  ended_ = is_last() || left_ || std::ranges::any_of(*ports_, &ReplayPort::ended_early);
  moves_.clear();
  try {
    count_round();
    if (!ended_) find_moves();
  } catch (const std::bad_alloc&) {
    moves_.clear();
  }
}

void Rebalance::count_round() {
  for (std::size_t entry = 0; entry < load_of_entry_.size(); ++entry) {
    std::uint64_t packets = 0;
    for (const Own& own : own_) packets += own.packets[entry];
    load_of_entry_[entry] = static_cast<double>(packets);
  }
  const auto workers = static_cast<unsigned>(own_.size());
  const double busiest = std::ranges::max(loads_of(now_, load_of_entry_, workers));
  const double unmoved = std::ranges::max(loads_of(first_, load_of_entry_, workers));
  ++rounds_;
  mean_ += std::accumulate(load_of_entry_.begin(), load_of_entry_.end(), 0.0) / workers;
  busiest_ += busiest;
  busiest_unmoved_ += unmoved;
}

void Rebalance::find_moves() {
  const auto workers = static_cast<unsigned>(own_.size());
  if (workers < 2) return;
  const double packets = std::accumulate(load_of_entry_.begin(), load_of_entry_.end(), 0.0);
  if (packets < static_cast<double>(kLeastPackets * workers)) return;
  // Few connections are unevenly spread by chance.
  constexpr std::size_t kAny = 64;
  Line::Live all;
  for (unsigned worker = 0; worker < workers; ++worker) {
    const Line::Live live = workers_->line(worker).live();
    all.v4 += live.v4;
    all.v6 += live.v6;
  }
  most_ = {Workers::kMostShares * all.v4 / workers + kAny,
           Workers::kMostShares * all.v6 / workers + kAny};
  moves_ = level(now_, load_of_entry_, workers);
  done_.assign(moves_.size(), 0);
}

/// What was adopted has a new worker from the next round on.
void Rebalance::settle_moves() noexcept {
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    if (done_[i] != 0) now_.give(moves_[i].entry, moves_[i].to);
    ++(done_[i] != 0 ? moved_ : stayed_);
  }
  if (++round_ < ends_.size()) return;
  round_ = 0;
  loop_ += loops_of_round();
}

Rebalance::Report Rebalance::report() const {
  Report report{.rounds = rounds_, .moved = moved_, .stayed = stayed_};
  if (mean_ == 0) return report;
  report.busiest = busiest_ / mean_;
  report.busiest_unmoved = busiest_unmoved_ / mean_;
  return report;
}

}  // namespace millrace
