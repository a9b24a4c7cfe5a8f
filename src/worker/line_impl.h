// The line, written once for every combination of table, sharing and ageing.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "parse/parse.h"
#include "worker/line.h"
#include "worker/probe.h"

namespace millrace {

/// One address family's part of a line.
template <class TrackerType, class K>
class Family {
 public:
  using MakeGuards = std::function<typename TrackerType::Guards()>;

  /// One for each function, over the same tables.
  static Result<std::vector<Family>> create(
      const LineConfig& config, std::size_t capacity, const MakeGuards& guards,
      std::span<Function* const> functions,
      std::span<const std::unique_ptr<WorkerCounters>> counters) {
    const auto count = static_cast<unsigned>(functions.size());
    std::vector<std::optional<TrackerType>> trackers(count);
    if (functions.front()->stateful()) {
      auto made = TrackerType::create(
          tracker_config(config, capacity, functions.front()->family<K>()), guards(), count);
      if (!made) return std::unexpected(made.error());
      std::ranges::move(*made, trackers.begin());
    }
    std::vector<Family> families;
    for (unsigned n = 0; n < count; ++n) {
      families.push_back(
          Family(std::move(trackers[n]), capacity, functions[n]->family<K>(), *counters[n]));
    }
    return families;
  }

  bool tracks() const { return tracker_.has_value(); }
  const TrackerType& tracker() const { return *tracker_; }
  /// Live connections when this worker last changed any; others may have since.
  std::size_t live() const { return live_; }
  TableReport report() const {
    if (!tracker_) return {};
    const auto& table = tracker_->table();
    return {capacity_, table.slots(), table.size(), tracker_->memory_bytes(), tracker_->pages()};
  }

  void begin() {
    if (tracker_) tracker_->begin();
  }
  void end() {
    if (tracker_) tracker_->end();
  }

  void sides(Burst& burst) { function_->sides(burst); }

  void prefetch(Burst& burst) const {
    if (!tracker_) return;
    for_each_side(burst, [this](Side side, Lane<K>& lane) {
      tracker_->hasher()(lane.keys(), std::span(lane.hash));
      tracker_->prefetch(side, lane.hashes());
    });
  }

  void prefetch_records(Burst& burst) const {
    if (!tracker_ || is_empty(burst)) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_side(burst, [this](Side side, Lane<K>& lane) {
      lane.stragglers = tracker_->prefetch_records(side, lane.keys(), lane.hashes());
    });
  }

  void prefetch_stragglers(Burst& burst) const {
    if (!tracker_ || is_empty(burst)) return;
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_side(burst, [this](Side side, Lane<K>& lane) {
      tracker_->prefetch_stragglers(side, lane.keys(), lane.hashes(), lane.stragglers);
    });
  }

  /// True when nothing is left to do at that time.
  bool age(Tick now) {
    if (!tracker_) return true;
    bool done = false;
    {
      [[maybe_unused]] const auto guard = tracker_->writing();
      done = tracker_->sweep(now, kSweepBudget, [this](ConnId id) {
        counters_->timed_out.add(1);
        function_->closed(tracker_->originators().state(id));
      });
      live_ = tracker_->live();
    }
    tracker_->settle();
    return done;
  }

  void find(Burst& burst) {
    if (is_empty(burst)) return;
    if (!tracker_) {
      for_each_side(
          burst, [](Side, Lane<K>& lane) { std::ranges::fill(lane.connections(), ConnId::none); });
      return;
    }
    [[maybe_unused]] const auto guard = tracker_->reading();
    for_each_side(burst, [&](Side side, Lane<K>& lane) {
      tracker_->find(side, lane.keys(), lane.hashes(), burst.now, lane.connections(),
                     lane.stragglers);
    });
  }

  /// Gives entries to the connections that begin in this burst.
  void open(Burst& burst) {
    Lane<K>& lane = burst.lanes<K>().originator;
    if (std::ranges::count(lane.connections(), ConnId::none) == 0) return;
    if (!tracker_) {
      refuse_all(burst, lane);
      return;
    }
    [[maybe_unused]] const auto guard = tracker_->writing();
    unsigned count = 0;
    for (unsigned i = 0; i < lane.size; ++i) {
      if (lane.connection[i] == ConnId::none) count += admit(burst, lane, i, openings_[count]);
    }
    for (auto pending = std::span(openings_).first(count); !pending.empty();) {
      function_->open(burst, pending);
      pending = pending.first(settle(burst, lane, pending));
    }
    if (count > 0) find_early_replies(burst);
    live_ = tracker_->live();
  }

  void process(Burst& burst) {
    function_->process(burst, tracker_ ? tracker_->originators() : nothing_,
                       tracker_ ? tracker_->replies() : nothing_);
    if (tracker_) tracker_->settle();
  }

 private:
  static constexpr unsigned kSweepBudget = 64;

  Family(std::optional<TrackerType> tracker, std::size_t capacity, FunctionFor<K>& function,
         WorkerCounters& counters)
      : tracker_(std::move(tracker)),
        capacity_(capacity),
        function_(&function),
        counters_(&counters) {}

  static TrackerConfig tracker_config(const LineConfig& config, std::size_t capacity,
                                      const FunctionFor<K>& function) {
    const auto bytes = function.state_bytes();
    TrackerConfig tracker{.capacity = capacity,
                          .state_bytes = bytes.originator,
                          .timeouts = config.timeouts,
                          .interval_ms = config.interval_ms,
                          .pages = config.pages,
                          .secret = config.secret};
    if (bytes.replies) tracker.reply_state_bytes = bytes.reply;
    return tracker;
  }

  static bool is_empty(Burst& burst) {
    const auto& lanes = burst.lanes<K>();
    return lanes.originator.size == 0 && lanes.reply.size == 0;
  }

  template <class Each>
  static void for_each_side(Burst& burst, Each&& each) {
    auto& lanes = burst.lanes<K>();
    each(Side::originator, lanes.originator);
    each(Side::reply, lanes.reply);
  }

  /// What nobody tracks finds no place.
  static void refuse_all(Burst& burst, const Lane<K>& lane) {
    for (unsigned i = 0; i < lane.size; ++i) burst.verdict[lane.packet[i]] = Verdict::table_full;
  }

  /// Opens the connection of the lane's packet `i`; true when the function has to be asked.
  bool admit(Burst& burst, Lane<K>& lane, unsigned i, Opening<K>& opening) {
    burst.verdict[lane.packet[i]] = Verdict::table_full;
    const Insertion in = tracker_->open(lane.key[i], lane.hash[i], burst.now);
    lane.connection[i] = in.id;
    if (in.outcome == Insertion::Outcome::full) counters_->refused.add(1);
    if (in.outcome != Insertion::Outcome::inserted) return false;
    opening.packet = lane.packet[i];
    opening.attempt = 0;
    opening.connection = in.id;
    opening.key = lane.key[i];
    opening.state = tracker_->originators().state(in.id);
    return true;
  }

  /// Acts on the function's answers. Openings whose reply collided move to the front; returns how
  /// many.
  unsigned settle(Burst& burst, Lane<K>& lane, std::span<Opening<K>> openings) {
    unsigned again = 0;
    for (Opening<K>& opening : openings) {
      if (opening.answer == Opening<K>::Answer::refused) {
        if (opening.attempt > 0) function_->abandoned(opening.state);
        give_up(burst, lane, opening, opening.refusal);
        continue;
      }
      const auto linked = link(burst, opening);
      if (linked == Insertion::Outcome::inserted) {
        tracker_->confirm(opening.connection);
        counters_->opened.add(1);
      } else if (linked == Insertion::Outcome::full) {
        function_->abandoned(opening.state);
        give_up(burst, lane, opening, Verdict::table_full);
      } else {
        counters_->collisions.add(1);
        ++opening.attempt;
        std::swap(openings[again++], opening);
      }
    }
    return again;
  }

  Insertion::Outcome link(const Burst& burst, const Opening<K>& opening) {
    if (opening.answer == Opening<K>::Answer::one_way) return Insertion::Outcome::inserted;
    return tracker_
        ->link(opening.connection, opening.reply_key, burst.now,
               std::span(opening.reply_state).first(function_->state_bytes().reply))
        .outcome;
  }

  /// A reply may stand in the very burst that opened its connection.
  void find_early_replies(Burst& burst) {
    Lane<K>& reply = burst.lanes<K>().reply;
    if (std::ranges::find(reply.connections(), ConnId::none) == reply.connections().end()) return;
    tracker_->find(Side::reply, reply.keys(), reply.hashes(), burst.now, reply.connections());
  }

  /// Takes an opening back; all packets of the burst that were to belong to it get its verdict.
  void give_up(Burst& burst, Lane<K>& lane, const Opening<K>& opening, Verdict why) {
    tracker_->abandon(opening.connection);
    counters_->refused.add(1);
    for (unsigned i = 0; i < lane.size; ++i) {
      if (lane.connection[i] != opening.connection) continue;
      lane.connection[i] = ConnId::none;
      burst.verdict[lane.packet[i]] = why;
    }
  }

  std::optional<TrackerType> tracker_;
  std::size_t capacity_;
  std::size_t live_ = 0;
  FunctionFor<K>* function_;
  WorkerCounters* counters_;
  std::array<Opening<K>, kBurstMax> openings_;
  Records<K> nothing_;
};

template <template <class> class Table, class Guards, class Ageing, class Probe = NoProbe>
class LineOf final : public Line {
 public:
  /// One line a function. Those of one address family use the same tables, which `guards()`, called
  /// once a family, makes the guards of.
  static Result<std::vector<std::unique_ptr<LineOf>>> create(const LineConfig& config,
                                                             const std::function<Guards()>& guards,
                                                             std::span<Function* const> functions) {
    std::vector<std::unique_ptr<WorkerCounters>> counters;
    for (std::size_t n = 0; n < functions.size(); ++n)
      counters.push_back(std::make_unique<WorkerCounters>());
    auto v4 = V4::create(config, config.capacity, guards, functions, counters);
    if (!v4) return std::unexpected(v4.error());
    auto v6 = V6::create(config, config.capacity_v6, guards, functions, counters);
    if (!v6) return std::unexpected(v6.error());
    std::vector<std::unique_ptr<LineOf>> lines;
    for (std::size_t n = 0; n < functions.size(); ++n) {
      lines.push_back(std::unique_ptr<LineOf>(
          new LineOf(config, std::move(counters[n]), std::move((*v4)[n]), std::move((*v6)[n]))));
    }
    return lines;
  }

  /// Three bursts are in flight: while one is served, the next one's records are on their way from
  /// memory, and the index lines of the one after. Before, what the one to be served still needs is
  /// asked for.
  void run(Port& port) override {
    const std::uint64_t waited_before = Guards::waited_ns();
    v4_.begin();
    v6_.begin();
    probe_.start();
    for (bool more = true; more;) {
      approach_stragglers(*bursts_[2]);
      more = enter(port, bursts_[0]);
      approach(bursts_[1]);
      serve(port, bursts_[2]);
      rotate();
    }
    for (unsigned left = 2; left > 0; --left) {
      approach_stragglers(*bursts_[2]);
      approach(bursts_[1]);
      serve(port, bursts_[2]);
      rotate();
    }
    v4_.end();
    v6_.end();
    counters_->waited_ns.add(Guards::waited_ns() - waited_before);
    port.finish();
  }

  const WorkerCounters& counters() const override { return *counters_; }
  TableReport report_v4() const override { return v4_.report(); }
  TableReport report_v6() const override { return v6_.report(); }
  Result<void> check_invariants() const override;
  const Probe& probe() const { return probe_; }

 private:
  using V4 = Family<Tracker<Table, Guards, Ageing, KeyV4>, KeyV4>;
  using V6 = Family<Tracker<Table, Guards, Ageing, KeyV6>, KeyV6>;

  LineOf(const LineConfig& config, std::unique_ptr<WorkerCounters> counters, V4 v4, V6 v6)
      : counters_(std::move(counters)),
        v4_(std::move(v4)),
        v6_(std::move(v6)),
        pass_unmatched_(config.pass_unmatched),
        catch_up_(config.catch_up),
        bursts_{std::make_unique<Burst>(), std::make_unique<Burst>(), std::make_unique<Burst>()} {}

  /// A new burst begins its way.
  bool enter(Port& port, std::unique_ptr<Burst>& burst) {
    const bool more = port.receive(*burst);
    probe_.done(Stage::receive);
    parse(*burst, port.link_type());
    probe_.done(Stage::parse);
    v4_.sides(*burst);
    v6_.sides(*burst);
    probe_.done(Stage::sides);
    v4_.prefetch(*burst);
    v6_.prefetch(*burst);
    return more;
  }

  /// Its index lines have arrived.
  void approach(std::unique_ptr<Burst>& burst) {
    v4_.prefetch_records(*burst);
    v6_.prefetch_records(*burst);
    probe_.done(Stage::prefetch);
  }

  /// So have those of stragglers.
  void approach_stragglers(Burst& burst) {
    v4_.prefetch_stragglers(burst);
    v6_.prefetch_stragglers(burst);
    probe_.done(Stage::prefetch);
  }

  /// Its records have arrived: the rest of its way.
  void serve(Port& port, std::unique_ptr<Burst>& burst) {
    age(burst->now);
    probe_.done(Stage::age);
    v4_.find(*burst);
    v6_.find(*burst);
    probe_.done(Stage::find);
    v4_.open(*burst);
    v6_.open(*burst);
    counters_->peak.raise_to(v4_.live() + v6_.live());
    probe_.done(Stage::open);
    v4_.process(*burst);
    v6_.process(*burst);
    probe_.done(Stage::process);
    // It keeps no id until the next `find`, and a port may wait.
    v4_.end();
    v6_.end();
    port.send(*burst, forwarded(*burst));
    v4_.begin();
    v6_.begin();
    burst->clear();
    probe_.done(Stage::send);
  }

  /// A bounded number of connections each burst, until nothing is left to do at that tick.
  void age(Tick now) {
    if (aged_ && now == aged_until_) return;
    do {
      aged_ = v4_.age(now);
      aged_ = v6_.age(now) && aged_;
    } while (!aged_ && catch_up_);
    aged_until_ = now;
  }

  static bool all_tracked(const Burst& burst) {
    unsigned others = 0;
    for (unsigned i = 0; i < burst.size; ++i) others += burst.verdict[i] != Verdict::tracked;
    return others == 0;
  }

  /// Counts the verdicts; the packets that go out, a bit each.
  std::uint64_t forwarded(const Burst& burst) {
    counters_->in.add(burst.size);
    if (all_tracked(burst)) [[likely]] {
      counters_->verdict[static_cast<std::size_t>(Verdict::tracked)].add(burst.size);
      counters_->out.add(burst.size);
      return burst.size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << burst.size) - 1;
    }
    std::array<std::uint32_t, kVerdicts> count{};
    std::uint64_t forward = 0;
    for (unsigned i = 0; i < burst.size; ++i) {
      const Verdict verdict = burst.verdict[i];
      ++count[static_cast<std::size_t>(verdict)];
      const bool drop = is_drop(verdict) || (!pass_unmatched_ && is_unmatched(verdict));
      forward |= std::uint64_t{!drop} << i;
    }
    for (std::size_t v = 0; v < kVerdicts; ++v) {
      if (count[v] != 0) counters_->verdict[v].add(count[v]);
    }
    counters_->out.add(static_cast<std::uint64_t>(std::popcount(forward)));
    return forward;
  }

  void rotate() { std::ranges::rotate(bursts_, bursts_.end() - 1); }

  std::unique_ptr<WorkerCounters> counters_;
  V4 v4_;
  V6 v6_;
  bool pass_unmatched_;
  bool catch_up_;
  bool aged_ = false;
  Tick aged_until_;
  std::array<std::unique_ptr<Burst>, 3> bursts_;
  [[no_unique_address]] Probe probe_;
};

template <template <class> class Table, class Guards, class Ageing, class Probe>
Result<void> LineOf<Table, Guards, Ageing, Probe>::check_invariants() const {
  if (v4_.tracks()) {
    if (auto ok = v4_.tracker().check_invariants(); !ok) return ok;
  }
  if (v6_.tracks()) return v6_.tracker().check_invariants();
  return {};
}

}  // namespace millrace
