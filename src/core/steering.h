// Steering: decides, from a packet's key alone, which end of its connection is hashed to choose the
// worker.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millrace/key.h"

namespace millrace {

/// The result for at most 64 keys, a bit for each: the end that is hashed, which functions do not
/// rewrite, or an owner in place of both ends. A key has no bit if no function rewrites either end:
/// `client_of` then takes the lesser end.
struct Steered {
  std::uint64_t by_source = 0;       ///< keys whose source is hashed
  std::uint64_t by_destination = 0;  ///< keys whose destination is hashed
  /// Keys whose owner is hashed, all of whose connections are to have one worker. Goes before the
  /// other bits.
  std::uint64_t by_owner = 0;
  /// Keys in `by_owner` whose owner's number is their hash.
  std::uint64_t by_number = 0;
  std::array<AddressV4, 64> owner;  ///< valid for keys in `by_owner`, which are IPv4's

  bool is_by_source(unsigned i) const { return (by_source >> i & 1) != 0; }
  bool is_by_owner(unsigned i) const { return (by_owner >> i & 1) != 0; }
  bool is_by_number(unsigned i) const { return (by_number >> i & 1) != 0; }
  bool is_by_destination(unsigned i) const { return (by_destination >> i & 1) != 0; }
};

/// Implemented by functions. Called by the worker that owns the function, or between two of that
/// worker's bursts.
class Steering {
 public:
  virtual ~Steering() = default;
  virtual Steered steer(std::span<const KeyV4> keys) const = 0;
  virtual Steered steer(std::span<const KeyV6> keys) const = 0;
};

}  // namespace millrace
