// The implementation of `Line`, written once for every combination of table and guards.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "fragments/fragments.h"
#include "line/family.h"
#include "line/line.h"
#include "line/line_copied.h"
#include "line/probe.h"
#include "parse/check.h"
#include "parse/parse.h"
#include "parse/rewrite.h"

namespace millrace {

template <template <class> class Table, Guards GuardsType, class Probe = NoProbe>
class LineOf final : public Line {
 public:
  /// Makes a line for each function, all over the same tables. `guards()` makes the guards of a
  /// family's tables, and is called once for each family. Errors: as `make_lines`.
  static Result<std::vector<std::unique_ptr<LineOf>>> create(const LineConfig& config,
                                                             MakeAgeing& ageing,
                                                             GuardsType (*guards)(),
                                                             std::span<Function* const> functions) {
    std::vector<std::unique_ptr<WorkerCounters>> counters;
    for (std::size_t n = 0; n < functions.size(); ++n)
      counters.push_back(std::make_unique<WorkerCounters>());
    auto v4 = V4::create(config, config.capacity, ageing, guards(), functions, counters);
    if (!v4) return std::unexpected(v4.error());
    auto v6 = V6::create(config, config.capacity_v6, ageing, guards(), functions, counters);
    if (!v6) return std::unexpected(v6.error());
    std::vector<std::unique_ptr<LineOf>> lines;
    for (std::size_t n = 0; n < functions.size(); ++n) {
      lines.push_back(
          std::unique_ptr<LineOf>(new LineOf(config, *functions[n], std::move(counters[n]),
                                             std::move((*v4)[n]), std::move((*v6)[n]))));
    }
    return lines;
  }

  /// Keeps three bursts in flight. While one burst is served, the records of the next burst are
  /// fetched from memory, and the *index lines* of the burst after that: the cache lines of the
  /// tables' indexes where its keys may be. Before a burst is served, what its stragglers
  /// (millrace/stragglers.h) still need is prefetched.
  void run(Port& port) override {
    const Present present(*this);
    port_ = &port;
    has_ended_ = false;
    probe_.start();
    for (bool more = true; more;) {
      approach_stragglers(*bursts_[2]);
      more = enter(port, bursts_[0]);
      approach(bursts_[1]);
      serve(port, bursts_[2]);
      rotate();
      mailbox().serve();
      do_between(*bursts_[2], *bursts_[1]);
    }
    for (unsigned left = 2; left > 0; --left) {
      approach_stragglers(*bursts_[2]);
      approach(bursts_[1]);
      serve(port, bursts_[2]);
      rotate();
    }
    wait_until_reclaimed();
    port_ = nullptr;
    port.finish();
  }

  bool pack(unsigned shard, std::size_t most, std::vector<std::byte>& parcel) override {
    const bool is_last = v4_.pack(shard, most, now_, parcel);
    return v6_.pack(shard, most, now_, parcel) && is_last;
  }
  void unpack(unsigned shard, const Line& from, std::span<const std::byte> parcel) override {
    const auto& other = static_cast<const LineOf&>(from);
    v4_.continue_from(other.v4_);
    v6_.continue_from(other.v6_);
    for_each_block(parcel, [](auto& family, std::size_t count, auto records) {
      return family.approach(count, records);
    });
    for_each_block(parcel, [&](auto& family, std::size_t count, auto records) {
      return family.unpack(shard, count, records, now_);
    });
  }
  std::uint64_t without_connection(const Burst& burst, std::uint64_t packets) const override {
    return without(v4_, burst.v4, packets) | without(v4_, burst.quoted_v4, packets) |
           without(v6_, burst.v6, packets) | without(v6_, burst.quoted_v6, packets);
  }

  ShardCopy::Records& copied(unsigned shard) override { return *copied_[shard]; }
  void assign(unsigned shard, CopyRole role) override {
    v4_.assign(shard, role, now_);
    v6_.assign(shard, role, now_);
  }
  void set_layouts(unsigned shard, const CarriedLayouts* theirs) override {
    copied_[shard]->set_layouts(theirs);
  }
  bool give_up(unsigned shard, std::size_t most) override {
    const bool is_empty = v4_.give_up(shard, most);
    return v6_.give_up(shard, most) && is_empty;
  }
  void allow_copying(std::size_t most) override { may_copy_ = most; }
  void set_deferring(unsigned shard, bool defers) override {
    v4_.set_deferring(shard, defers);
    v6_.set_deferring(shard, defers);
    defers_ |= defers;
  }
  void note_copies(const CopiesState& state) override { function_->note_copies(state, now_); }

  LineCursor visit(const LineCursor& from, const VisitConnection& visit) override {
    return step(from,
                [&](auto& family, std::size_t id) { return family.visit(id, now_, visit, port_); });
  }
  LineCursor review(const LineCursor& from) override {
    const auto review = [&] {
      std::size_t ended = from.ended;
      LineCursor next =
          step(from, [&](auto& family, std::size_t id) { return family.review(id, port_, ended); });
      next.ended = ended;
      return next;
    };
    if (port_ != nullptr) return review();
    const Present present(*this);
    const LineCursor next = review();
    wait_until_reclaimed();
    return next;
  }
  std::optional<ListedConnection> find(const AnyKey& key) const override {
    if (const auto* v4 = std::get_if<KeyV4>(&key)) return v4_.find(*v4, now_);
    return v6_.find(std::get<KeyV6>(key), now_);
  }
  void set_timeouts(const Timeouts& timeouts) override {
    v4_.set_timeouts(timeouts);
    v6_.set_timeouts(timeouts);
  }

  LineCursor carry(const LineCursor& from, std::size_t most, Carrying& carrying) override {
    return step(from, [&](auto& family, std::size_t id) {
      if constexpr (std::is_same_v<decltype(family), V4&>) {
        return family.carry(id, most, now_, carrying.v4);
      } else {
        return family.carry(id, most, now_, carrying.v6);
      }
    });
  }
  std::vector<CarriedPart> carried_parts() const override {
    std::vector<CarriedPart> all;
    append(all, 4, function_->family<KeyV4>().parts());
    append(all, 6, function_->family<KeyV6>().parts());
    append_head<KeyV4>(all);
    append_head<KeyV6>(all);
    return all;
  }
  ConnId resume(const CarriedConnection<KeyV4>& carried, Images images, unsigned shard) override {
    return v4_.resume(carried, images, now_, shard);
  }
  ConnId resume(const CarriedConnection<KeyV6>& carried, Images images, unsigned shard) override {
    return v6_.resume(carried, images, now_, shard);
  }
  void forget(std::type_identity<KeyV4>, ConnId id) override { forget(v4_, id); }
  void forget(std::type_identity<KeyV6>, ConnId id) override { forget(v6_, id); }

  const WorkerCounters& counters() const override { return *counters_; }
  TableReport report_v4() const override { return v4_.report(); }
  TableReport report_v6() const override { return v6_.report(); }
  const FragmentTable& fragments() const override { return fragments_.table(); }
  Live live() const override { return {v4_.live(), v6_.live()}; }
  Result<void> check_invariants() const override;
  const Probe& probe() const { return probe_; }

 private:
  using V4 = Family<Tracker<Table, GuardsType, KeyV4>, KeyV4>;
  using V6 = Family<Tracker<Table, GuardsType, KeyV6>, KeyV6>;

  LineOf(const LineConfig& config, Function& function, std::unique_ptr<WorkerCounters> counters,
         V4 v4, V6 v6)
      : function_(&function),
        checks_(function.checks_packets()),
        guards_host_(function.guards_host()),
        counters_(std::move(counters)),
        v4_(std::move(v4)),
        v6_(std::move(v6)),
        fragments_(config.fragments != nullptr ? config.fragments
                                               : std::make_shared<FragmentTable>(config.secret)),
        pass_unmatched_(config.pass_unmatched),
        catch_up_(config.catch_up),
        bursts_{std::make_unique<Burst>(), std::make_unique<Burst>(), std::make_unique<Burst>()},
        again_(std::make_unique<Burst>()) {
    for (unsigned shard = 0; config.copies && shard < config.shards_that_move; ++shard)
      copied_.push_back(std::make_unique<Copied>(shard, v4_, v6_, now_, may_copy_));
  }

  /// Calls `work(family, id)` for the cursor's family and id. `work` returns the id to go on with,
  /// none at the family's end. Returns the cursor to go on with.
  template <class Work>
  LineCursor step(const LineCursor& from, Work&& work) {
    using At = LineCursor::At;
    const auto next = from.at == At::v4 ? work(v4_, from.id) : work(v6_, from.id);
    if (next) return {from.at, *next};
    return {from.at == At::v4 ? At::v6 : At::end, 0};
  }
  /// Calls `each(family, count, records)` for each block of a parcel. `each` returns the bytes
  /// behind the block.
  template <class Each>
  void for_each_block(std::span<const std::byte> parcel, Each&& each) {
    while (!parcel.empty()) {
      CarriedBlock block;
      std::memcpy(&block, parcel.data(), sizeof(block));
      parcel = parcel.subspan(sizeof(block));
      parcel = block.family == kCarriedFamily<KeyV4> ? each(v4_, block.count, parcel)
                                                     : each(v6_, block.count, parcel);
    }
  }
  /// Returns those of the lane's packets in `packets` that have no connection. `packets` and the
  /// result are bits by place in the burst.
  template <class FamilyType, class K>
  std::uint64_t without(const FamilyType& family, const Lane<K>& lane,
                        std::uint64_t packets) const {
    std::uint64_t places = 0;
    for (unsigned i = 0; i < lane.size; ++i) places |= (packets >> lane.packet[i] & 1) << i;
    std::uint64_t found = 0;
    for_each_bit(family.without_connection(lane, places, now_),
                 [&](unsigned i) { found |= std::uint64_t{1} << lane.packet[i]; });
    return found;
  }
  template <class FamilyType>
  void forget(FamilyType& family, ConnId id) {
    const Present present(*this);
    family.forget(id);
    wait_until_reclaimed();
  }

  /// Begins a time in which workers over the same tables wait for this one before they reuse ids.
  void join() {
    v4_.begin();
    v6_.begin();
  }
  /// Ends the time that `join` has begun.
  void leave() {
    v4_.end();
    v6_.end();
  }
  /// Waits until all ids that this worker has removed are reusable. Reclaims ids of both families
  /// in each round, since other workers may wait for this one in either family.
  void wait_until_reclaimed() {
    detail::Backoff others;
    for (bool reclaimed = false; !reclaimed; others.wait()) {
      reclaimed = v4_.reclaim();
      reclaimed = v6_.reclaim() && reclaimed;
    }
  }
  /// Calls `join` when it is made, and `leave` when it is destroyed.
  class Present {
   public:
    explicit Present(LineOf& line) : line_(line) { line_.join(); }
    ~Present() { line_.leave(); }
    Present(const Present&) = delete;
    Present& operator=(const Present&) = delete;

   private:
    LineOf& line_;
  };

  /// Receives and parses a burst, or takes one that waits behind fragments, and prefetches its
  /// index lines. False if there is no further burst.
  bool enter(Port& port, std::unique_ptr<Burst>& burst) {
    if (fragments_.has_waiting()) [[unlikely]] {
      fragments_.next(burst, port);
    } else {
      has_ended_ = !port.receive(*burst);
      probe_.done(Stage::receive);
      if (!port.receives_parsed()) parse(*burst, port.link_type());
    }
    probe_.done(Stage::parse);
    if (fragments_.concerns(*burst)) [[unlikely]]
      fragments_.follow(*burst, port);
    if (has_ended_) [[unlikely]]
      fragments_.give_up();
    port.filed(*burst, *function_);
    if (checks_) check_headers(*burst);
    if (guards_host_) function_->guard(*burst);
    v4_.prefetch(*burst);
    v6_.prefetch(*burst);
    return !has_ended_ || fragments_.has_waiting();
  }

  /// Prefetches the records of a burst whose index lines have arrived.
  void approach(std::unique_ptr<Burst>& burst) {
    v4_.prefetch_records(*burst);
    v6_.prefetch_records(*burst);
    probe_.done(Stage::prefetch);
  }

  /// Prefetches the records of a burst's stragglers, whose further index lines have arrived by now.
  void approach_stragglers(Burst& burst) {
    v4_.prefetch_stragglers(burst);
    v6_.prefetch_stragglers(burst);
    probe_.done(Stage::prefetch);
  }

  /// Does the rest for a burst, from ageing to `send`, after its records have arrived.
  void serve(Port& port, std::unique_ptr<Burst>& burst) {
    age(burst->now);
    if (burst->now - now_ > 0) now_ = burst->now;
    probe_.done(Stage::age);
    decide(port, *burst);
    send(port, *burst);
    if (again_->size != 0) [[unlikely]]
      serve_again(port);
  }

  /// Looks a burst up whose records have arrived, and serves it, except that the packets that come
  /// again are not in it any more.
  void decide(Port& port, Burst& burst) {
    v4_.find(burst);
    v6_.find(burst);
    probe_.done(Stage::find);
    const bool has_unknown = v4_.has_unknown(burst) || v6_.has_unknown(burst);
    const std::uint64_t refused =
        has_unknown && !guards_host_ ? port.looked_up(burst, *function_) : 0;
    if (has_unknown && !copied_.empty()) port.number_shards(burst, *function_);
    v4_.open(burst, refused);
    v6_.open(burst, refused);
    v4_.open_by_replies(burst);
    v6_.open_by_replies(burst);
    counters_->peak.raise_to(v4_.live() + v6_.live());
    probe_.done(Stage::open);
    v4_.follow(burst);
    v6_.follow(burst);
    probe_.done(Stage::follow);
    v4_.serve(burst);
    v6_.serve(burst);
    if (guards_host_) function_->guard_errors(burst);
    if (burst.has_mss != 0) [[unlikely]]
      clamp_mss(burst);
    if (burst.again != 0) [[unlikely]]
      set_apart(port, burst);
    probe_.done(Stage::process);
  }

  /// Takes the packets that come again out of the burst: the port has them then, or `again_`.
  void set_apart(Port& port, Burst& burst) {
    std::uint64_t again = 0;
    for_each_bit(burst.again, [&](unsigned i) {
      if (!is_served(burst.verdict[i])) return;
      if ((burst.came_again >> i & 1) != 0) burst.verdict[i] = Verdict::no_mapping;
      again |= std::uint64_t{is_served(burst.verdict[i])} << i;
    });
    if (again == 0) return;
    if (!port.take_again(burst, again)) bring_again(burst, again, *again_);
    take_out_served(burst, again);
  }

  /// Serves the packets that come again and that the port has not taken. Their keys are known, so
  /// neither the parser nor `fragments_` sees them a second time.
  void serve_again(Port& port) {
    Burst& burst = *again_;
    v4_.prefetch(burst);
    v6_.prefetch(burst);
    v4_.prefetch_records(burst);
    v6_.prefetch_records(burst);
    v4_.prefetch_stragglers(burst);
    v6_.prefetch_stragglers(burst);
    decide(port, burst);
    send(port, burst);
  }

  /// Sends a burst that has been served, and makes it empty.
  void send(Port& port, Burst& burst) {
    const std::uint64_t forward = port.route(burst, allowed(burst));
    count(burst, forward);
    if (defers_) [[unlikely]] {
      v4_.find_deferred(burst);
      v6_.find_deferred(burst);
    }
    // The worker keeps no id until the next `find`. A port may wait in `send`, and other workers
    // need not wait for that.
    leave();
    port.send(burst, forward);
    join();
    burst.clear();
    probe_.done(Stage::send);
  }

  /// Expires a bounded number of connections, with `catch_up` all that are due. Does nothing if an
  /// earlier call has left nothing to do at that tick.
  void age(Tick now) {
    if (aged_ && now == aged_until_) return;
    function_->note_time(now);
    do {
      aged_ = v4_.age(now);
      aged_ = v6_.age(now) && aged_;
    } while (!aged_ && catch_up_);
    aged_until_ = now;
  }

  bool is_allowed(Verdict verdict) const {
    return !is_drop(verdict) && (pass_unmatched_ || !is_unmatched(verdict));
  }

  /// Returns the packets that may leave by their verdicts and `pass_unmatched`, bits by place in
  /// the burst.
  std::uint64_t allowed(const Burst& burst) const {
    if (has_one_verdict(burst)) [[likely]]
      return is_allowed(burst.verdict[0]) ? all_of(burst) : 0;
    std::uint64_t forward = 0;
    for (unsigned i = 0; i < burst.size; ++i)
      forward |= std::uint64_t{is_allowed(burst.verdict[i])} << i;
    return forward;
  }

  void count(const Burst& burst, std::uint64_t forward) {
    counters_->in.add(burst.size);
    counters_->out.add(static_cast<std::uint64_t>(std::popcount(forward)));
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < burst.size; ++i) bytes += burst.wire_length[i];
    counters_->bytes_in.add(bytes);
    for (std::uint64_t left = ~forward & all_of(burst); left != 0; left &= left - 1)
      bytes -= burst.wire_length[static_cast<unsigned>(std::countr_zero(left))];
    counters_->bytes_out.add(bytes);
    if (has_one_verdict(burst)) [[likely]] {
      counters_->verdict[static_cast<std::size_t>(burst.verdict[0])].add(burst.size);
      return;
    }
    std::array<std::uint32_t, kVerdicts> count{};
    for (unsigned i = 0; i < burst.size; ++i) ++count[static_cast<std::size_t>(burst.verdict[i])];
    for (std::size_t v = 0; v < kVerdicts; ++v) {
      if (count[v] != 0) counters_->verdict[v].add(count[v]);
    }
  }

  void rotate() { std::ranges::rotate(bursts_, bursts_.end() - 1); }

  Function* function_;
  bool checks_;
  bool guards_host_;
  std::unique_ptr<WorkerCounters> counters_;
  V4 v4_;
  V6 v6_;
  Fragments fragments_;
  bool pass_unmatched_;
  bool catch_up_;
  Port* port_ = nullptr;    // null unless `run` is under way
  bool has_ended_ = false;  // the port of `run` has no more packets
  bool aged_ = false;
  Tick aged_until_;
  Tick now_;  // the latest tick of a burst
  std::array<std::unique_ptr<Burst>, 3> bursts_;
  std::unique_ptr<Burst> again_;  // packets of the burst being served that come again
  using Copied = LineCopied<V4, V6>;
  std::vector<std::unique_ptr<Copied>> copied_;  // by shard
  bool defers_ = false;                          // some shard has deferred packets by now
  std::size_t may_copy_ = 0;  // connections that may be looked at to tell all, or to end some
  [[no_unique_address]] Probe probe_;
};

template <template <class> class Table, Guards GuardsType, class Probe>
Result<void> LineOf<Table, GuardsType, Probe>::check_invariants() const {
  if (v4_.tracks()) {
    if (auto ok = v4_.tracker().check_invariants(); !ok) return ok;
  }
  if (v6_.tracks()) return v6_.tracker().check_invariants();
  return {};
}

}  // namespace millrace
