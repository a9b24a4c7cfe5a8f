#include "shard/toeplitz.h"

#include <rte_thash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "shard/client.h"

namespace millrace {
namespace {

/// The hash's input, in network order.
class Input {
 public:
  template <class A>
  void add(const A& address) {
    std::memcpy(&bytes_[size_], address.bytes.data(), address.bytes.size());
    size_ += address.bytes.size();
  }
  void add(std::uint16_t port) {
    bytes_[size_++] = static_cast<std::uint8_t>(port >> 8);
    bytes_[size_++] = static_cast<std::uint8_t>(port);
  }
  std::span<const std::uint8_t> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<std::uint8_t, 36> bytes_{};
  std::size_t size_ = 0;
};

/// True if the processor has the vector instructions that `rte_thash_gfni` needs. DPDK's own check
/// is not used: it returns false unless EAL has allowed 512-bit vectors.
bool has_vectors() {
#ifdef RTE_THASH_GFNI_DEFINED
  return __builtin_cpu_supports("gfni") != 0 && __builtin_cpu_supports("avx512bw") != 0;
#else
  return false;
#endif
}

}  // namespace

ToeplitzSpread::RssKey ToeplitzSpread::random_key(const Secret& secret) {
  RssKey key;
  std::copy_n(secret.bytes.begin(), key.size(), key.begin());
  return key;
}

ToeplitzSpread::RssKey ToeplitzSpread::symmetric_key() {
  RssKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = i % 2 == 0 ? 0x6d : 0x5a;
  return key;
}

ToeplitzSpread::ToeplitzSpread(const RssKey& key, Ends ends)
    : ends_(ends), vectorised_(has_vectors()) {
  for (std::size_t i = 0; i < key.size(); ++i) key_[i] = key[i - i % 4 + 3 - i % 4];
  if (vectorised_) rte_thash_complete_matrix(matrices_.data(), key.data(), kKeyBytes);
}

void ToeplitzSpread::hash(const Steered& steered, std::span<const KeyV4> keys,
                          std::span<std::uint32_t> hashes) const {
  hash_all(steered, keys, hashes);
}
void ToeplitzSpread::hash(const Steered& steered, std::span<const KeyV6> keys,
                          std::span<std::uint32_t> hashes) const {
  hash_all(steered, keys, hashes);
}

template <class K>
void ToeplitzSpread::hash_all(const Steered& steered, std::span<const K> keys,
                              std::span<std::uint32_t> hashes) const {
  for (unsigned i = 0; i < keys.size(); ++i) {
    const K& key = keys[i];
    if (const auto given = hash_given(steered, i)) {
      hashes[i] = *given;
      continue;
    }
    Input input;
    if (ends_ == Ends::client) {
      const auto client = client_of(steered, i, key);
      input.add(client.address);
      input.add(client.port);
    } else {
      input.add(key.source);
      input.add(key.destination);
      input.add(key.source_port);
      input.add(key.destination_port);
    }
    hashes[i] = hash_bytes(input.bytes());
  }
}

std::uint32_t ToeplitzSpread::hash_bytes(std::span<const std::uint8_t> input) const {
#ifdef RTE_THASH_GFNI_DEFINED
  if (vectorised_) {
    return rte_thash_gfni(matrices_.data(), input.data(), static_cast<int>(input.size()));
  }
#endif
  return hash_bytes_portable(input);
}

std::uint32_t ToeplitzSpread::hash_bytes_portable(std::span<const std::uint8_t> input) const {
  std::array<std::uint32_t, kInputMost / 4> words{};
  for (std::size_t i = 0; i < input.size(); ++i)
    words[i / 4] |= std::uint32_t{input[i]} << (24 - 8 * (i % 4));
  const auto length = static_cast<std::uint32_t>((input.size() + 3) / 4);
  return rte_softrss_be(words.data(), length, key_.data());
}

}  // namespace millrace
