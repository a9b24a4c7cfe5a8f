// Which worker a packet belongs to: a hash of something that all packets of its connection have in
// common, and an indirection table from the hash to a worker, as NICs have one.
//
// To add a way to spread: a header, and a line in the list of spread.cc.
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
  /// `hashes[i]` becomes that of `keys[i]`: of its destination as the client's end where `steered`
  /// says so, of its source where it says that, else
  /// of the lesser end. The spans are of equal length, of 64 keys at most.
  virtual void hash(const Steered& steered, std::span<const KeyV4> keys,
                    std::span<std::uint32_t> hashes) const = 0;
  virtual void hash(const Steered& steered, std::span<const KeyV6> keys,
                    std::span<std::uint32_t> hashes) const = 0;
};

struct SpreadKind {
  std::string_view name;
  std::string_view what;  ///< in one line, for `millrace schemes`
  /// Its hash depends on the client's end only, so that a connection stays together whatever a
  /// function rewrites at the other end.
  bool by_client;
  std::unique_ptr<Spread> (*create)(const Secret& secret);
};

std::span<const SpreadKind> spreads();
std::vector<std::string> spread_names();
/// The one of that name, or null.
const SpreadKind* spread_named(std::string_view name);

}  // namespace millrace
