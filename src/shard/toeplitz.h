// `toeplitz` and `toeplitz-symmetric`: the hash of NICs (receive-side scaling), by DPDK's
// rte_thash, in its vectorised form where the processor has it.
//
// `toeplitz` hashes the client's address and port under a random key, as a NIC does that hashes
// only sources at one port and only destinations at the other. `toeplitz-symmetric`, for
// comparison, hashes both ends under the well-known key of a repeated 16-bit pattern, so that both
// directions have the same hash. With that key anyone can aim all connections at one worker, and
// the hashes of the two directions differ if a function rewrites an end.
//
// The hash chooses a worker, never a bucket of a table: it is linear, so a sender that knows some
// hashes can aim.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shard/spread.h"

namespace millrace {

class ToeplitzSpread final : public Spread {
 public:
  /// Bytes of a key: the longest input, two IPv6 addresses and two ports, and four more.
  static constexpr std::size_t kKeyBytes = 40;
  using RssKey = std::array<std::uint8_t, kKeyBytes>;
  enum class Ends : std::uint8_t { client, both };

  static RssKey random_key(const Secret& secret);
  /// Returns the key 6d5a, repeated.
  static RssKey symmetric_key();

  ToeplitzSpread(const RssKey& key, Ends ends);

  void hash(const Steered& steered, std::span<const KeyV4> keys,
            std::span<std::uint32_t> hashes) const override;
  void hash(const Steered& steered, std::span<const KeyV6> keys,
            std::span<std::uint32_t> hashes) const override;

  /// Returns the hash of `input`, at most 36 bytes in network order.
  std::uint32_t hash_bytes(std::span<const std::uint8_t> input) const;
  /// Returns what `hash_bytes` returns, computed without vector instructions.
  std::uint32_t hash_bytes_portable(std::span<const std::uint8_t> input) const;

 private:
  template <class K>
  void hash_all(const Steered& steered, std::span<const K> keys,
                std::span<std::uint32_t> hashes) const;

  static constexpr std::size_t kInputMost = 36;

  Ends ends_;
  bool vectorised_;
  alignas(4) RssKey key_;  // in the processor's byte order, word by word
  std::array<std::uint64_t, kKeyBytes> matrices_{};
};

}  // namespace millrace
