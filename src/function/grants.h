// Public ports that the servers of a cluster may give their customers.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/address_numbers.h"
#include "core/elapsed.h"
#include "millrace/hash.h"
#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

/// Public ports that the servers of a cluster may give, by shard. A public address belongs to one
/// shard. A grant is 1,024 ports of all of a shard's addresses, which the store gives to one of the
/// shard's two copies.
///
/// The worker that has a shard calls the functions that are not const; any thread may call the
/// others.
class Grants {
 public:
  static constexpr unsigned kOfShard = 64;
  static constexpr unsigned kPorts = 65'536 / kOfShard;
  using Bits = std::uint64_t;  ///< a bit for each grant of a shard
  /// Time for which a port rests before another customer gets it (RFC 6888, REQ-8).
  static constexpr std::uint32_t kRestMs = 120'000;

  /// Returns the bits of the grants from `first` to `last`.
  static constexpr Bits range(unsigned first, unsigned last) {
    return (~Bits{0} >> (kOfShard - 1 - last)) & (~Bits{0} << first);
  }

  /// `shards`: a power of two. `secret`: all servers have the same.
  Grants(unsigned shards, const Secret& secret) : hasher_(secret), shards_(shards) {}

  unsigned shards() const { return static_cast<unsigned>(shards_.size()); }
  /// Returns the shard of a public address: addresses that follow one another are spread evenly,
  /// and a change of pools gives no address another shard.
  unsigned shard_of(const AddressV4& address) const { return number_of(address) & (shards() - 1); }

  /// Returns the shard of a customer whose public address is not settled beforehand.
  unsigned shard_of_customer(std::uint32_t number) const {
    const Hash hash = hasher_(KeyV4{.source = address_with(number), .destination = {}});
    return static_cast<unsigned>(hash & (shards() - 1));
  }

  /// Sets the grants with which the copy here may open connections. Of the new ones, others may
  /// have had those in `rest`.
  void set(unsigned shard, Bits usable, Bits rest, Tick now) {
    OfShard& of = shards_[shard];
    const Bits added = usable & ~of.usable.load(std::memory_order_relaxed);
    for (Bits left = added; left != 0; left &= left - 1)
      of.since[static_cast<unsigned>(std::countr_zero(left))].store(now.ms,
                                                                    std::memory_order_relaxed);
    of.rest.store((of.rest.load(std::memory_order_relaxed) & ~added) | (rest & added),
                  std::memory_order_relaxed);
    of.usable.store(usable, std::memory_order_release);
    if (added != 0) changes_.fetch_add(1, std::memory_order_release);
  }
  /// Returns for how long the copy here could use a grant; 0 if it cannot.
  std::uint32_t had_for_ms(unsigned shard, unsigned number, Tick now) const {
    const OfShard& of = shards_[shard];
    if ((of.usable.load(std::memory_order_relaxed) >> number & 1) == 0) return 0;
    return elapsed_ms(Tick{of.since[number].load(std::memory_order_relaxed)}, now);
  }
  /// Returns how many grants of the shard the copy here may use that do not rest.
  unsigned ready(unsigned shard) const {
    const OfShard& of = shards_[shard];
    return static_cast<unsigned>(std::popcount(of.usable.load(std::memory_order_acquire) &
                                               ~of.rest.load(std::memory_order_acquire)));
  }
  /// Lets time pass. `is_sure`: no other server can have a connection that has ended here, or that
  /// is not known here.
  void pass(unsigned shard, bool is_sure, Tick now) {
    OfShard& of = shards_[shard];
    if (!is_sure) {
      of.unsure_at.store(now.ms, std::memory_order_relaxed);
      of.was_unsure.store(true, std::memory_order_release);
    }
    Bits rests = of.rest.load(std::memory_order_relaxed);
    for (Bits left = rests; left != 0; left &= left - 1) {
      const auto number = static_cast<unsigned>(std::countr_zero(left));
      auto& since = of.since[number];
      if (!is_sure) {
        since.store(now.ms, std::memory_order_relaxed);
      } else if (elapsed_ms(Tick{since.load(std::memory_order_relaxed)}, now) >= kRestMs) {
        rests &= ~range(number, number);
      }
    }
    if (of.rest.exchange(rests, std::memory_order_acq_rel) != rests)
      changes_.fetch_add(1, std::memory_order_release);
  }

  /// True if connections may be opened with all of these ports of the address.
  bool may_use(const AddressV4& address, std::uint16_t first, std::uint16_t last) const {
    const Bits needed = with(first, last);
    return (shards_[shard_of(address)].usable.load(std::memory_order_acquire) & needed) == needed;
  }
  /// True if no other server can have given some of these ports to a customer since `kRestMs`.
  bool have_rested(const AddressV4& address, std::uint16_t first, std::uint16_t last) const {
    return (shards_[shard_of(address)].rest.load(std::memory_order_acquire) & with(first, last)) ==
           0;
  }
  /// True if since `kRestMs` no other server can have had a connection that is not known here.
  bool has_been_sure(const AddressV4& address, Tick now) const {
    const OfShard& of = shards_[shard_of(address)];
    return !of.was_unsure.load(std::memory_order_acquire) ||
           elapsed_ms(Tick{of.unsure_at.load(std::memory_order_relaxed)}, now) >= kRestMs;
  }
  /// Returns a number that grows whenever a copy here may give more ports.
  std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  struct OfShard {
    std::atomic<Bits> usable = 0;
    std::atomic<Bits> rest = 0;  ///< others may have had them since `kRestMs`
    /// Ticks: when it became usable; of those in `rest`, when it began to rest.
    std::array<std::atomic<std::uint32_t>, kOfShard> since{};
    std::atomic<std::uint32_t> unsure_at = 0;  ///< the latest tick at which it was not sure
    std::atomic<bool> was_unsure = false;
  };

  /// Returns the grants that have these ports.
  static Bits with(std::uint16_t first, std::uint16_t last) {
    return range(first / kPorts, last / kPorts);
  }

  Hasher hasher_;
  std::vector<OfShard> shards_;
  std::atomic<std::uint64_t> changes_ = 0;
};

}  // namespace millrace
