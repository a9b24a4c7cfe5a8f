// `keyed`: the hash that tables use, with a secret of its own, of the client's address and port,
// the protocol and, if no function rewrites packets, the zone. A sender that does not know the
// secret cannot aim connections at one worker.
#pragma once

#include "shard/client.h"
#include "shard/spread.h"

namespace millrace {

class KeyedSpread final : public Spread {
 public:
  explicit KeyedSpread(const Secret& secret) : hasher_(secret) {}

  void hash(const Steered& steered, std::span<const KeyV4> keys,
            std::span<std::uint32_t> hashes) const override {
    hash_all(steered, keys, hashes);
  }
  void hash(const Steered& steered, std::span<const KeyV6> keys,
            std::span<std::uint32_t> hashes) const override {
    hash_all(steered, keys, hashes);
  }

 private:
  template <class K>
  void hash_all(const Steered& steered, std::span<const K> keys,
                std::span<std::uint32_t> hashes) const {
    for (unsigned i = 0; i < keys.size(); ++i) {
      if (const auto given = hash_given(steered, i)) {
        hashes[i] = *given;
        continue;
      }
      const auto client = client_of(steered, i, keys[i]);
      K end;
      end.source = client.address;
      end.source_port = client.port;
      // An owner's connections of all protocols have one worker.
      if (!steered.is_by_owner(i)) end.protocol = keys[i].protocol;
      // Packets of a connection that a function rewrites may have different zones.
      const bool is_steered =
          steered.is_by_owner(i) || steered.is_by_source(i) || steered.is_by_destination(i);
      if (!is_steered) end.zone = keys[i].zone;
      hashes[i] = static_cast<std::uint32_t>(hasher_(end));
    }
  }

  Hasher hasher_;
};

}  // namespace millrace
