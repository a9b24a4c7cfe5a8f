// The tracker: where table, sharing scheme and ageing scheme meet, for one address family.
//
// It has two instances of the same table: originators' entries, which hold a connection's state,
// and replies' entries, which are short and know what reply packets need. The entries of a
// connection name each other as `peer`, age together and go together. They age where they were
// opened: each worker has a tracker, with an ageing scheme of its own, over tables that may be
// shared.
//
// A connection's way: `open` inserts the originator's entry, `link` the reply's if there is one,
// `confirm` hands it to ageing; `sweep` or `close` ends it. What was opened and not confirmed in
// the same burst must be abandoned. Ids that are removed during a burst stay readable until
// `settle`, and under sharing until every worker has settled since.
//
// One worker uses an instance. Where tables are shared, its stages stand under guards: `reading()`
// while it looks up, `writing()` from an `open` to its `confirm` or `abandon`, and while it sweeps.
// So nobody sees a connection half made. What others may write meanwhile, when it was last seen, is
// accessed atomically.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "conntrack/ageing/ageing.h"
#include "conntrack/sharing/table_pair.h"
#include "millrace/table.h"

namespace millrace {

/// Idle time after which a connection ends, by IP protocol number.
struct Timeouts {
  std::array<std::uint32_t, 256> ms{};

  static Timeouts all(std::uint32_t ms) {
    Timeouts timeouts;
    timeouts.ms.fill(ms);
    return timeouts;
  }
};

struct TrackerConfig {
  std::size_t capacity = 0;                      ///< connections promised
  std::size_t state_bytes = 0;                   ///< function's state in the originator's record
  std::optional<std::size_t> reply_state_bytes;  ///< and in the reply's; none: no reply entries
  Timeouts timeouts;
  std::uint32_t interval_ms = 10;  ///< of ageing
  Pages pages = Pages::huge;
  Secret secret;
};

template <template <class> class TableOf, class GuardsType, Ageing AgeingScheme, class K>
  requires ConnectionTable<TableOf<K>, K>
class Tracker {
 public:
  using Table = TableOf<K>;
  using Guards = GuardsType;
  using AgeingType = AgeingScheme;

  /// Those of `workers`, over the same tables; more than one where the guards are made for sharing.
  static Result<std::vector<Tracker>> create(const TrackerConfig& config, Guards guards,
                                             unsigned workers);
  /// The only one over its tables.
  static Result<Tracker> create(const TrackerConfig& config) {
    auto trackers = create(config, Guards{}, 1);
    if (!trackers) return std::unexpected(trackers.error());
    return std::move(trackers->front());
  }

  const Hasher& hasher() const { return table().hasher(); }
  const Records<K>& originators() const { return table().records(); }
  const Records<K>& replies() const { return table_of(Side::reply).records(); }
  bool has_replies() const { return pair().replies.has_value(); }

  const Table& table() const { return pair().originators; }
  std::size_t live() const { return table().size(); }
  std::size_t memory_bytes() const {
    return table().memory_bytes() + (has_replies() ? pair().replies->memory_bytes() : 0) +
           ageing_.memory_bytes();
  }

  /// @name Guards
  /// @{
  auto reading() const { return shared_->guards.reading(); }
  auto writing() const { return shared_->guards.writing(); }
  /// Its worker begins, and ends: others wait for it only in between.
  void begin() { shared_->settling.begin(worker_); }
  void end() { shared_->settling.end(worker_); }
  /// @}

  /// The pipeline of ConnectionTable, on one side's entries.
  void prefetch(Side side, std::span<const Hash> hashes) const {
    if (has(side)) table_of(side).prefetch(hashes);
  }
  Stragglers prefetch_records(Side side, std::span<const K> keys,
                              std::span<const Hash> hashes) const {
    if (!has(side)) return {};
    if (side == Side::originator) return prefetch_to_open(table(), keys, hashes);
    return table_of(side).prefetch_records(keys, hashes);
  }
  void prefetch_stragglers(Side side, std::span<const K> keys, std::span<const Hash> hashes,
                           Stragglers stragglers) const {
    if (has(side)) table_of(side).prefetch_stragglers(keys, hashes, stragglers);
  }

  /// Finds a burst's entries and marks those found as seen now.
  void find(Side side, std::span<const K> keys, std::span<const Hash> hashes, Tick now,
            std::span<ConnId> ids, Stragglers stragglers = {}) {
    if (!has(side)) {
      std::ranges::fill(ids.first(keys.size()), ConnId::none);
      return;
    }
    const Table& table = table_of(side);
    table.find(keys, hashes, ids, stragglers);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (ids[i] != ConnId::none) see(table.records().header(ids[i]).last_seen, now);
    }
  }

  /// Inserts the originator's entry. Where another packet of the burst did so before, it is
  /// `present`.
  Insertion open(const K& key, Hash hash, Tick now) {
    const Insertion in = pair().originators.insert(key, hash, KeepAll{});
    if (in.outcome == Insertion::Outcome::inserted) {
      auto& header = originators().header(in.id);
      see(header.last_seen, now);
      header.peer = ConnId::none;
    }
    return in;
  }

  /// Inserts the reply's entry of a connection that was opened in this burst: `inserted`, `present`
  /// where the key belongs to another connection, or `full`.
  Insertion link(ConnId originator, const K& reply_key, Tick now,
                 std::span<const std::byte> state) {
    const Insertion in = pair().replies->insert(reply_key, hasher()(reply_key), KeepAll{});
    if (in.outcome == Insertion::Outcome::inserted) {
      auto& header = replies().header(in.id);
      see(header.last_seen, now);
      header.peer = originator;
      std::memcpy(replies().state(in.id), state.data(), state.size());
      originators().header(originator).peer = in.id;
    }
    return in;
  }

  /// The connection stays: from now on it ages.
  void confirm(ConnId id) { ageing_.born(id, seen(originators().header(id)), deadline(id)); }

  /// Undoes `open` (and `link`).
  void abandon(ConnId id) { erase(id); }

  /// Ends a connection that it has confirmed.
  void close(ConnId id) {
    ageing_.gone(id);
    abandon(id);
  }

  /// Ends connections that were idle too long, a bounded number; `closed(id)` is called with the
  /// records still readable. True when nothing is left to do at that time.
  template <class Closed>
  bool sweep(Tick now, unsigned budget, Closed&& closed) {
    return ageing_.sweep(now, budget, *this, [&](ConnId id) {
      closed(id);
      erase(id);
    });
  }

  /// Ends the burst: its worker keeps no id that was removed.
  void settle() {
    shared_->settling.end_burst(worker_, pair(), [this] { return writing(); });
  }

  /// Lives: what an ageing scheme asks. The stamps of both entries become the later one, so that
  /// neither grows so old that it seems to lie in the future; looks are days apart at most.
  Tick deadline(ConnId id) const {
    auto& header = originators().header(id);
    Tick latest = seen(header);
    if (header.peer != ConnId::none) {
      auto& reply = replies().header(header.peer);
      if (seen(reply) - latest > 0) latest = seen(reply);
      see(header.last_seen, latest);
      see(reply.last_seen, latest);
    }
    return latest + timeouts_.ms[header.key.protocol];
  }
  void prefetch(ConnId id) const { originators().prefetch(id); }

  /// The worst kind of pages among its tables.
  Pages pages() const { return std::max(table().pages(), table_of(Side::reply).pages()); }

  Result<void> check_invariants() const;

 private:
  using Settling = typename Guards::Settling;
  struct Shared {
    [[no_unique_address]] Guards guards;
    TablePair<Table> pair;
    [[no_unique_address]] Settling settling;
  };

  Tracker(const TrackerConfig& config, std::shared_ptr<Shared> shared, AgeingScheme ageing,
          unsigned worker)
      : timeouts_(config.timeouts),
        shared_(std::move(shared)),
        ageing_(std::move(ageing)),
        worker_(worker) {}

  TablePair<Table>& pair() const { return shared_->pair; }
  bool has(Side side) const { return side == Side::originator || has_replies(); }
  const Table& table_of(Side side) const {
    return side == Side::reply && has_replies() ? *pair().replies : pair().originators;
  }

  static Tick seen(const RecordHeader<K>& header) {
    auto& ms = const_cast<std::uint32_t&>(header.last_seen.ms);
    return {std::atomic_ref(ms).load(std::memory_order_relaxed)};
  }
  static void see(Tick& last_seen, Tick now) {
    std::atomic_ref(last_seen.ms).store(now.ms, std::memory_order_relaxed);
  }

  void erase(ConnId id) {
    const auto& header = originators().header(id);
    if (header.peer != ConnId::none) {
      const K& reply_key = replies().header(header.peer).key;
      pair().replies->erase(reply_key, hasher()(reply_key));
    }
    pair().originators.erase(header.key, hasher()(header.key));
    shared_->settling.note_draining();
  }

  Timeouts timeouts_;
  std::shared_ptr<Shared> shared_;
  AgeingScheme ageing_;
  unsigned worker_;
};

template <template <class> class TableOf, class Guards, Ageing AgeingScheme, class K>
  requires ConnectionTable<TableOf<K>, K>
auto Tracker<TableOf, Guards, AgeingScheme, K>::create(const TrackerConfig& config, Guards guards,
                                                       unsigned workers)
    -> Result<std::vector<Tracker>> {
  const auto make_table = [&](std::size_t state_bytes) {
    return Table::create(
        {config.capacity + Settling::more_ids(workers), state_bytes, config.pages, config.secret});
  };
  auto originators = make_table(config.state_bytes);
  if (!originators) return std::unexpected(originators.error());
  TablePair<Table> pair{std::move(*originators), std::nullopt};
  if (config.reply_state_bytes) {
    auto replies = make_table(*config.reply_state_bytes);
    if (!replies) return std::unexpected(replies.error());
    pair.replies = std::move(*replies);
  }
  auto settling = Settling::create(workers);
  if (!settling) return std::unexpected(settling.error());
  auto ageing = AgeingScheme::create(
      {pair.originators.records().count(), config.interval_ms, config.pages}, workers);
  if (!ageing) return std::unexpected(ageing.error());

  auto shared = std::make_shared<Shared>(std::move(guards), std::move(pair), std::move(*settling));
  std::vector<Tracker> trackers;
  for (unsigned worker = 0; worker < workers; ++worker)
    trackers.push_back(Tracker(config, shared, std::move((*ageing)[worker]), worker));
  return trackers;
}

template <template <class> class TableOf, class Guards, Ageing AgeingScheme, class K>
  requires ConnectionTable<TableOf<K>, K>
Result<void> Tracker<TableOf, Guards, AgeingScheme, K>::check_invariants() const {
  if (auto ok = table().check_invariants(); !ok) return ok;
  if (auto ok = ageing_.check_invariants(); !ok) return ok;
  if (!has_replies()) return {};
  const Table& reply_table = *pair().replies;
  if (auto ok = reply_table.check_invariants(); !ok) return ok;
  std::size_t linked = 0;
  bool mutual = true;
  for (auto at = Cursor::begin; at != Cursor::end;) {
    at = table().walk(at, 64, [&](ConnId id) {
      const ConnId peer = originators().header(id).peer;
      if (peer == ConnId::none) return;
      ++linked;
      mutual = mutual && replies().header(peer).peer == id;
    });
  }
  if (!mutual || linked != reply_table.size()) {
    return std::unexpected(Error{"tracker: the entries of a connection do not name each other"});
  }
  return {};
}

}  // namespace millrace
