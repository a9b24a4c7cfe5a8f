// The worker of each connection, where each worker has tables of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/burst.h"
#include "core/steering.h"
#include "shard/indirection.h"
#include "shard/moving.h"
#include "shard/spread.h"

namespace millrace {

/// Any thread may call the const functions, also while shards move.
class Owners {
 public:
  /// If `spread` is null, each packet is served by the worker that receives it.
  Owners(std::unique_ptr<const Spread> spread, const Indirection& first, unsigned workers)
      : spread_(std::move(spread)), moves_(first, workers) {}

  const Spread* spread() const { return spread_.get(); }
  unsigned shards() const { return moves_.shards(); }
  unsigned shard_of(std::uint32_t hash) const { return hash & (moves_.shards() - 1); }

  /// Returns the shard of a connection, by the key of a packet of either direction and how a
  /// function steers it; none without `spread`.
  template <class K>
  std::optional<unsigned> shard_of(const Steered& steered, const K& key) const {
    if (spread_ == nullptr) return std::nullopt;
    std::uint32_t hash = 0;
    spread_->hash(steered, std::span(&key, 1), {&hash, 1});
    return shard_of(hash);
  }
  /// Writes `Burst::shard` for the packets in lanes, also for ICMP errors. Only with `spread`.
  void number_shards(Burst& burst, const Steering& steering) const {
    number_shards(burst, burst.v4, steering);
    number_shards(burst, burst.v6, steering);
    number_shards(burst, burst.quoted_v4, steering);
    number_shards(burst, burst.quoted_v6, steering);
  }
  /// Returns the worker that has the shard.
  unsigned worker_of(unsigned shard) const { return moves_.worker_of(shard); }

  ShardMoves& moves() { return moves_; }

 private:
  template <class K>
  void number_shards(Burst& burst, const Lane<K>& lane, const Steering& steering) const {
    if (lane.size == 0) return;
    std::array<std::uint32_t, Burst::kMax> hashes;
    spread_->hash(steering.steer(lane.keys()), lane.keys(), std::span(hashes).first(lane.size));
    for (unsigned i = 0; i < lane.size; ++i)
      burst.shard[lane.packet[i]] = static_cast<std::uint16_t>(shard_of(hashes[i]));
  }

  std::unique_ptr<const Spread> spread_;
  ShardMoves moves_;
};

}  // namespace millrace
