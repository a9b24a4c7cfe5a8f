// `keyed`: the keyed hash of tables, under a secret of its own, of the client's address, port and
// protocol. Whoever does not know the secret cannot aim connections at one worker.
#pragma once

#include <algorithm>

#include "shard/client.h"
#include "shard/spread.h"

namespace millrace {

class KeyedSpread final : public Spread {
 public:
  explicit KeyedSpread(const Secret& secret) : hasher_(secret) {}

  void hash(Side side, std::span<const KeyV4> keys,
            std::span<std::uint32_t> hashes) const override {
    hash_all(side, keys, hashes);
  }
  void hash(Side side, std::span<const KeyV6> keys,
            std::span<std::uint32_t> hashes) const override {
    hash_all(side, keys, hashes);
  }

 private:
  template <class K>
  void hash_all(Side side, std::span<const K> keys, std::span<std::uint32_t> hashes) const {
    std::ranges::transform(keys, hashes.begin(), [&](const K& key) {
      const auto client = client_of(side, key);
      K end;
      end.source = client.address;
      end.source_port = client.port;
      end.protocol = key.protocol;
      end.zone = key.zone;
      return static_cast<std::uint32_t>(hasher_(end));
    });
  }

  Hasher hasher_;
};

}  // namespace millrace
