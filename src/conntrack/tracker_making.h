// The part of the tracker that makes trackers and checks their invariants.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "conntrack/tracker.h"

namespace millrace {

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
auto Tracker<TableOf, GuardsType, K>::create(const TrackerConfig& config, Guarding guards,
                                             unsigned workers) -> Result<std::vector<Tracker>> {
  const auto make_table = [&](std::size_t entries, std::size_t state_bytes) {
    return Table::create({entries, state_bytes, config.pages, config.secret});
  };
  const std::size_t one_side = config.capacity + Reclaiming::more_ids(workers);
  const std::size_t reply_bytes = config.reply_state_bytes.value_or(0);
  const bool has_both = config.follows && config.reply_state_bytes;
  auto originators =
      has_both ? make_table(2 * one_side + kDrainingRoom,
                            config.state_offset() + std::max(config.state_bytes, reply_bytes))
               : make_table(one_side, config.state_offset() + config.state_bytes);
  if (!originators) return std::unexpected(originators.error());
  TablePair<Table> pair{std::move(*originators), std::nullopt};
  if (config.reply_state_bytes && !has_both) {
    auto replies = make_table(one_side, reply_bytes);
    if (!replies) return std::unexpected(replies.error());
    pair.replies = std::move(*replies);
  }
  set_all_unconfirmed(pair.originators);
  if (pair.replies) set_all_unconfirmed(*pair.replies);
  auto reclaiming = Reclaiming::create(workers);
  if (!reclaiming) return std::unexpected(reclaiming.error());
  const std::size_t ids = pair.originators.records().count();
  // The limit of connections, those being opened included: with both sides in one table, each
  // connection may need two ids.
  const std::size_t most = has_both ? std::max(ids / 2 + Stragglers::kMax, config.capacity) : ids;
  // Workers that share tables may together exceed `most`, up to almost twice: each worker first
  // compares only its own connections with `most` / `workers`.
  auto ageing = config.ageing({.ids = ids,
                               .connections = workers > 1 ? ids : std::min(ids, most + 1),
                               .interval_ms = config.interval_ms,
                               .pages = config.pages},
                              workers);
  if (!ageing) return std::unexpected(ageing.error());

  auto shared = std::make_shared<Shared>(std::move(guards), std::move(pair), ShardedCount(workers),
                                         static_cast<std::int64_t>(most), ShardedCount(workers),
                                         config.half_open, workers);
  std::vector<Tracker> trackers;
  for (unsigned n = 0; n < workers; ++n) {
    std::optional<Rings> shards;
    if (config.shards > 0) {
      auto made =
          Rings::create(shared->pair.originators.records().count(), config.shards, config.pages);
      if (!made) return std::unexpected(made.error());
      shards = std::move(*made);
    }
    std::optional<CopiedShards> copied;
    if (config.copies) {
      auto made = CopiedShards::create(ids, config.shards, config.pages);
      if (!made) return std::unexpected(made.error());
      copied = std::move(*made);
    }
    trackers.push_back(Tracker(config, static_cast<std::uint8_t>(n), shared,
                               std::move((*reclaiming)[n]), std::move((*ageing)[n]),
                               std::move(shards), std::move(copied)));
  }
  return trackers;
}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
Tracker<TableOf, GuardsType, K>::Tracker(const TrackerConfig& config, std::uint8_t worker,
                                         std::shared_ptr<Shared> shared, Reclaiming reclaiming,
                                         std::unique_ptr<Ageing> ageing,
                                         std::optional<Rings> shards,
                                         std::optional<CopiedShards> copied)
    : follows_(config.follows),
      checks_(config.checks),
      evicts_(config.evicts),
      worker_(worker),
      capacity_(config.capacity),
      timeouts_(config.timeouts),
      least_timeout_(config.timeouts.least()),
      own_bytes_(config.state_offset()),
      state_bytes_(config.state_bytes),
      reply_state_bytes_(config.reply_state_bytes.value_or(0)),
      has_replies_(config.reply_state_bytes.has_value()),
      shared_(std::move(shared)),
      reclaiming_(std::move(reclaiming)),
      ageing_(std::move(ageing)),
      leaves_expired_(!Guarding::kShared && ageing_->leaves_expired()),
      shards_(std::move(shards)),
      copied_(std::move(copied)) {}

template <template <class> class TableOf, Guards GuardsType, class K>
  requires ConnectionTable<TableOf<K>, K>
Result<void> Tracker<TableOf, GuardsType, K>::check_invariants() const {
  if (auto ok = table().check_invariants(); !ok) return ok;
  if (auto ok = ageing_->check_invariants(); !ok) return ok;
  if (shards_) {
    if (auto ok = shards_->check_invariants(); !ok) return ok;
  }
  std::int64_t half_open = 0;
  for_each([&](ConnId id) { half_open += follows_ && proof_of(id) == Proof::none ? 1 : 0; });
  if (follows_ && half_open != shared_->half_open.total())
    return std::unexpected(Error{"tracker: half-open connections are not as many as counted"});
  if (pair().replies) {
    if (auto ok = pair().replies->check_invariants(); !ok) return ok;
  }
  std::size_t originators_there = 0;
  std::size_t linked = 0;
  bool mutual = true;
  for_each([&](ConnId id) {
    ++originators_there;
    const ConnId peer = originators().header(id).peer;
    if (peer == ConnId::none || peer == kUnconfirmed) return;
    ++linked;
    mutual =
        mutual && replies().header(peer).peer == id && (!follows_ || side_of(peer) == Side::reply);
  });
  if (originators_there != connections())
    return std::unexpected(Error{"tracker: connections are not as many as counted"});
  const std::size_t replies_there =
      pair().replies ? pair().replies->size() : table().size() - originators_there;
  if (!mutual || linked != replies_there) {
    return std::unexpected(Error{"tracker: the entries of a connection do not name each other"});
  }
  return {};
}

}  // namespace millrace
