// Which worker has a connection, where each has tables of its own.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "shard/indirection.h"
#include "shard/spread.h"

namespace millrace {

/// Immutable; any thread may ask.
class Owners {
 public:
  /// Without `spread`, whoever receives a packet serves it.
  Owners(std::unique_ptr<const Spread> spread, Indirection indirection)
      : spread_(std::move(spread)), indirection_(std::move(indirection)) {}

  /// By a key of either side of the connection, as a function steers it.
  template <class K>
  std::optional<unsigned> of(const Steered& steered, const K& key) const {
    if (spread_ == nullptr) return std::nullopt;
    std::uint32_t hash = 0;
    spread_->hash(steered, std::span(&key, 1), {&hash, 1});
    return indirection_.worker_of(indirection_.entry_of(hash));
  }

  const Spread* spread() const { return spread_.get(); }
  const Indirection& indirection() const { return indirection_; }

 private:
  std::unique_ptr<const Spread> spread_;
  Indirection indirection_;
};

}  // namespace millrace
