// Maglev consistent hashing (Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load
// Balancer", NSDI 2016, section 3.4), with weights.
//
// All machines with the same key, table size, backends and weights send a five-tuple to the same
// backend, in whatever order they list the backends: a backend is known by its address and port. A
// table does not change after `build`; any thread may read it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "millrace/hash.h"
#include "millrace/key.h"

namespace millrace {

/// The key by which several machines, or one before and after a restart, agree on backends. A
/// sender that knows the key can aim connections at one backend, so operators should set a key of
/// their own.
using BalanceKey = std::array<std::uint8_t, 16>;
/// The ASCII text "millracemillrace".
inline constexpr BalanceKey kDefaultBalanceKey{'m', 'i', 'l', 'l', 'r', 'a', 'c', 'e',
                                               'm', 'i', 'l', 'l', 'r', 'a', 'c', 'e'};

/// Returns the hash of five-tuples and of backends under that key. The hash of connection tables
/// has a secret of its own.
Hasher balance_hasher(const BalanceKey& key);

class Maglev {
 public:
  /// Default number of entries, the paper's small table. With 100 entries or more for each backend,
  /// the shares of backends of equal weight differ by at most 1 % of a share.
  static constexpr std::uint32_t kDefaultSize = 65537;
  static constexpr std::uint32_t kMaxSize = 16'777'213;

  /// A backend: two independent hashes of its address and port, and its weight.
  struct Member {
    Hash offset = 0;
    Hash skip = 0;
    std::uint32_t weight = 1;

    friend bool operator==(const Member&, const Member&) = default;
  };
  template <class A>
  static Member member(const Hasher& hash, const A& address, std::uint16_t port,
                       std::uint32_t weight) {
    Key<A> key{.source = address, .destination = {}, .source_port = port, .destination_port = 1};
    const Hash offset = hash(key);
    key.destination_port = 2;
    return {offset, hash(key), weight};
  }

  Maglev() = default;
  /// Builds a table. `size` must be a prime up to `kMaxSize`, and at least the number of members,
  /// which is at most 65536. Takes about 2 ms for 65537 entries. Members of weight 0 get no entry.
  static Maglev build(std::span<const Member> members, std::uint32_t size = kDefaultSize);

  /// Returns the index into `members` (of `build`) of the backend for a five-tuple's hash.
  /// Undefined if all weights are 0.
  std::uint16_t pick(Hash hash) const { return entries_[((hash >> 32) * entries_.size()) >> 32]; }

  std::span<const std::uint16_t> entries() const { return entries_; }

 private:
  std::vector<std::uint16_t> entries_;
};

/// True if `n` is a prime, as the size of a Maglev table must be.
bool is_prime(std::uint64_t n);

}  // namespace millrace
