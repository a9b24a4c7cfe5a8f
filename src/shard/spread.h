// Spreading: the hash that chooses a packet's worker, by way of an indirection table
// (indirection.h). It is a hash of what all packets of a connection have in common.
//
// To add a way of spreading, write its header, and add a line to the list in spread.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/steering.h"
#include "millrace/hash.h"
#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

/// Immutable once made; any thread may use it.
class Spread {
 public:
  virtual ~Spread() = default;
  /// Sets `hashes[i]` to the hash of `keys[i]`. The client's end of a key is its source or its
  /// destination or its owner as `steered` says; if `steered` says nothing, the lesser of the two
  /// ends (client.h). The spans must have equal length, 64 at most.
  virtual void hash(const Steered& steered, std::span<const KeyV4> keys,
                    std::span<std::uint32_t> hashes) const = 0;
  virtual void hash(const Steered& steered, std::span<const KeyV6> keys,
                    std::span<std::uint32_t> hashes) const = 0;
};

struct SpreadKind {
  std::string_view name;
  std::string_view what;  ///< summary in one line, for `millrace schemes`
  /// True: the hash depends on the client's end and not on the opposite one, so all packets of a
  /// connection have the same hash, whatever a function rewrites.
  bool by_client;
  std::unique_ptr<Spread> (*create)(const Secret& secret);
};

std::span<const SpreadKind> spreads();
std::vector<std::string> spread_names();
/// Returns the kind of that name, or null.
const SpreadKind* spread_named(std::string_view name);

}  // namespace millrace
