// What is known of a packet's key without looking it up: which end of its connection it comes from.
#pragma once

#include <cstdint>
#include <span>

#include "millrace/key.h"

namespace millrace {

/// A bit for each of some keys, at most 64. Nothing rewrites an end of those with neither bit.
struct Steered {
  /// Their source is the end that nothing rewrites: it says which worker has the connection.
  std::uint64_t by_source = 0;
  /// Their destination is.
  std::uint64_t by_destination = 0;

  bool is_by_source(unsigned i) const { return (by_source >> i & 1) != 0; }
  bool is_by_destination(unsigned i) const { return (by_destination >> i & 1) != 0; }
};

/// Told by a function; by the worker that owns it, or between two of its bursts.
class Steering {
 public:
  virtual ~Steering() = default;
  virtual Steered steer(std::span<const KeyV4> keys) const = 0;
  virtual Steered steer(std::span<const KeyV6> keys) const = 0;
};

}  // namespace millrace
