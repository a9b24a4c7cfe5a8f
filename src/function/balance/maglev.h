// Maglev consistent hashing (Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load
// Balancer", NSDI 2016, section 3.4), with weights.
//
// Every machine that is given the same key and the same backends, in whatever order, builds the
// same table: a backend is known by its address and port. Immutable after `build`; any thread may
// read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "millrace/hash.h"
#include "millrace/key.h"

namespace millrace {

/// What several machines, or one before and after a restart, must share to agree on backends.
/// Whoever knows it can aim connections at one backend, so operators set their own.
using BalanceKey = std::array<std::uint8_t, 16>;
/// "millracemillrace" in ASCII.
inline constexpr BalanceKey kDefaultBalanceKey{'m', 'i', 'l', 'l', 'r', 'a', 'c', 'e',
                                               'm', 'i', 'l', 'l', 'r', 'a', 'c', 'e'};

/// The hash under that key, of five-tuples and of backends. Not the secret of the tables.
Hasher balance_hasher(const BalanceKey& key);

class Maglev {
 public:
  /// Entries. The paper's small table: at least 100 times the backends keep their shares within 1
  /// %.
  static constexpr std::uint32_t kDefaultSize = 65537;
  static constexpr std::uint32_t kMaxSize = 16'777'213;

  /// A backend: two independent hashes of its address and port, and its share relative to others'.
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
  /// `size` is a prime, no smaller than the number of members, of whom there are at most 65536.
  /// Takes some 2 ms for 65537 entries. Members of weight 0 get no entry.
  static Maglev build(std::span<const Member> members, std::uint32_t size = kDefaultSize);

  /// Index into `members` of the backend for a five-tuple's hash. Undefined where no member has
  /// weight.
  std::uint16_t pick(Hash hash) const { return entries_[((hash >> 32) * entries_.size()) >> 32]; }

  std::span<const std::uint16_t> entries() const { return entries_; }

 private:
  std::vector<std::uint16_t> entries_;
};

/// Whether `n` may be the size of a Maglev table.
bool is_prime(std::uint64_t n);

}  // namespace millrace
