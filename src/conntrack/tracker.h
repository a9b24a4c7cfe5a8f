// The tracker: where table, sharing scheme and ageing scheme meet, for one address family.
//
// It keeps two instances of the same table: originators' entries, which hold a connection's state,
// and replies' entries, which are short and know what reply packets need. The entries of a
// connection name each other as `peer`, age together and go together.
//
// A connection's way: `open` inserts the originator's entry, `link` the reply's if there is one,
// `confirm` hands it to ageing; `sweep` or `close` ends it. What was opened and not confirmed in
// the same burst must be abandoned. Ids that are removed during a burst stay readable until
// `settle`.
//
// One worker uses an instance; the sharing scheme guards what it shares with others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "conntrack/ageing/ageing.h"
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

template <template <class> class TableOf, class SharingScheme, Ageing AgeingScheme, class K>
  requires ConnectionTable<TableOf<K>, K>
class Tracker {
 public:
  using Table = TableOf<K>;
  using Sharing = SharingScheme;
  using AgeingType = AgeingScheme;

  static Result<Tracker> create(const TrackerConfig& config);

  const Hasher& hasher() const { return originators_.hasher(); }
  const Records<K>& originators() const { return originators_.records(); }
  const Records<K>& replies() const { return table_of(Side::reply).records(); }
  bool has_replies() const { return replies_.has_value(); }

  const Table& table() const { return originators_; }
  std::size_t live() const { return originators_.size(); }
  std::size_t memory_bytes() const {
    return originators_.memory_bytes() + (replies_ ? replies_->memory_bytes() : 0) +
           ageing_.memory_bytes();
  }

  /// The pipeline of ConnectionTable, on one side's entries.
  void prefetch(Side side, std::span<const Hash> hashes) const {
    if (has(side)) table_of(side).prefetch(hashes);
  }
  Stragglers prefetch_records(Side side, std::span<const K> keys,
                              std::span<const Hash> hashes) const {
    if (!has(side)) return {};
    if (side == Side::originator) return prefetch_to_open(originators_, keys, hashes);
    return replies_->prefetch_records(keys, hashes);
  }
  void prefetch_stragglers(Side side, std::span<const K> keys, std::span<const Hash> hashes,
                           Stragglers stragglers) const {
    if (has(side)) table_of(side).prefetch_stragglers(keys, hashes, stragglers);
  }

  /// Finds a burst's entries and marks those found as seen now.
  void find(Side side, std::span<const K> keys, std::span<const Hash> hashes, Tick now,
            std::span<ConnId> ids, Stragglers stragglers = {}) {
    [[maybe_unused]] const auto guard = sharing_.reading();
    if (!has(side)) {
      std::ranges::fill(ids.first(keys.size()), ConnId::none);
      return;
    }
    const Table& table = table_of(side);
    table.find(keys, hashes, ids, stragglers);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (ids[i] != ConnId::none) table.records().header(ids[i]).last_seen = now;
    }
  }

  /// Inserts the originator's entry. Where another packet of the burst did so before, it is
  /// `present`.
  Insertion open(const K& key, Hash hash, Tick now) {
    [[maybe_unused]] const auto guard = sharing_.writing();
    const Insertion in = originators_.insert(key, hash, KeepAll{});
    if (in.outcome == Insertion::Outcome::inserted) {
      auto& header = originators().header(in.id);
      header.last_seen = now;
      header.peer = ConnId::none;
    }
    return in;
  }

  /// Inserts the reply's entry of a connection that was opened in this burst: `inserted`, `present`
  /// where the key belongs to another connection, or `full`.
  Insertion link(ConnId originator, const K& reply_key, Tick now,
                 std::span<const std::byte> state) {
    [[maybe_unused]] const auto guard = sharing_.writing();
    const Insertion in = replies_->insert(reply_key, hasher()(reply_key), KeepAll{});
    if (in.outcome == Insertion::Outcome::inserted) {
      auto& header = replies().header(in.id);
      header.last_seen = now;
      header.peer = originator;
      std::memcpy(replies().state(in.id), state.data(), state.size());
      originators().header(originator).peer = in.id;
    }
    return in;
  }

  /// The connection stays: from now on it ages.
  void confirm(ConnId id) { ageing_.born(id, originators().header(id).last_seen, deadline(id)); }

  /// Undoes `open` (and `link`).
  void abandon(ConnId id) {
    [[maybe_unused]] const auto guard = sharing_.writing();
    erase(id);
  }

  /// Ends a confirmed connection.
  void close(ConnId id) {
    ageing_.gone(id);
    abandon(id);
  }

  /// Ends connections that were idle too long, a bounded number; `closed(id)` is called with the
  /// records still readable. True when nothing is left to do at that time.
  template <class Closed>
  bool sweep(Tick now, unsigned budget, Closed&& closed) {
    [[maybe_unused]] const auto guard = sharing_.writing();
    return ageing_.sweep(now, budget, *this, [&](ConnId id) {
      closed(id);
      erase(id);
    });
  }

  /// Ends the burst: ids removed in it may be given out again.
  void settle() {
    originators_.settle();
    if (replies_) replies_->settle();
  }

  /// Lives: what an ageing scheme asks. The stamps of both entries become the later one, so that
  /// neither grows so old that it seems to lie in the future; looks are days apart at most.
  Tick deadline(ConnId id) const {
    auto& header = originators().header(id);
    if (header.peer != ConnId::none) {
      Tick& reply_seen = replies().header(header.peer).last_seen;
      if (reply_seen - header.last_seen > 0) header.last_seen = reply_seen;
      reply_seen = header.last_seen;
    }
    return header.last_seen + timeouts_.ms[header.key.protocol];
  }
  void prefetch(ConnId id) const { originators().prefetch(id); }

  /// The worst kind of pages among its tables.
  Pages pages() const { return std::max(originators_.pages(), table_of(Side::reply).pages()); }

  Result<void> check_invariants() const;

 private:
  Tracker(const TrackerConfig& config, Table originators, std::optional<Table> replies,
          AgeingScheme ageing)
      : timeouts_(config.timeouts),
        originators_(std::move(originators)),
        replies_(std::move(replies)),
        ageing_(std::move(ageing)) {}

  bool has(Side side) const { return side == Side::originator || replies_.has_value(); }
  const Table& table_of(Side side) const {
    return side == Side::reply && replies_ ? *replies_ : originators_;
  }

  void erase(ConnId id) {
    const auto& header = originators().header(id);
    if (header.peer != ConnId::none) {
      const K& reply_key = replies().header(header.peer).key;
      replies_->erase(reply_key, hasher()(reply_key));
    }
    originators_.erase(header.key, hasher()(header.key));
  }

  Timeouts timeouts_;
  [[no_unique_address]] Sharing sharing_;
  Table originators_;
  std::optional<Table> replies_;
  AgeingScheme ageing_;
};

template <template <class> class TableOf, class SharingScheme, Ageing AgeingScheme, class K>
  requires ConnectionTable<TableOf<K>, K>
auto Tracker<TableOf, SharingScheme, AgeingScheme, K>::create(const TrackerConfig& config)
    -> Result<Tracker> {
  const auto table_config = [&config](std::size_t state_bytes) {
    return TableConfig{config.capacity, state_bytes, config.pages, config.secret};
  };
  auto originators = Table::create(table_config(config.state_bytes));
  if (!originators) return std::unexpected(originators.error());
  std::optional<Table> replies;
  if (config.reply_state_bytes) {
    auto table = Table::create(table_config(*config.reply_state_bytes));
    if (!table) return std::unexpected(table.error());
    replies = std::move(*table);
  }
  auto ageing =
      AgeingScheme::create({originators->records().count(), config.interval_ms, config.pages});
  if (!ageing) return std::unexpected(ageing.error());
  return Tracker(config, std::move(*originators), std::move(replies), std::move(*ageing));
}

template <template <class> class TableOf, class SharingScheme, Ageing AgeingScheme, class K>
  requires ConnectionTable<TableOf<K>, K>
Result<void> Tracker<TableOf, SharingScheme, AgeingScheme, K>::check_invariants() const {
  if (auto ok = originators_.check_invariants(); !ok) return ok;
  if (auto ok = ageing_.check_invariants(); !ok) return ok;
  if (!replies_) return {};
  if (auto ok = replies_->check_invariants(); !ok) return ok;
  std::size_t linked = 0;
  bool mutual = true;
  for (auto at = Cursor::begin; at != Cursor::end;) {
    at = originators_.walk(at, 64, [&](ConnId id) {
      const ConnId peer = originators().header(id).peer;
      if (peer == ConnId::none) return;
      ++linked;
      mutual = mutual && replies().header(peer).peer == id;
    });
  }
  if (!mutual || linked != replies_->size()) {
    return std::unexpected(Error{"tracker: the entries of a connection do not name each other"});
  }
  return {};
}

}  // namespace millrace
