// Numbers connections in the order of their first packets. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/flat_hash_map.h"
#include "core/of_family.h"
#include "millrace/hash.h"
#include "millrace/key.h"

namespace millrace::bench {

class Numbers {
 public:
  struct Number {
    std::uint32_t is;
    bool is_new;
  };
  /// Returns the key's number, from 0; a key that is seen for the first time gets the next one.
  template <class K>
  Number of(const K& key) {
    const auto [place, is_new] =
        numbers<K>().try_emplace(key, static_cast<std::uint32_t>(v4_.size() + v6_.size()));
    return {place->second, is_new};
  }

  std::size_t v4() const { return v4_.size(); }
  std::size_t v6() const { return v6_.size(); }

 private:
  template <class K>
  struct KeyHash {
    std::size_t operator()(const K& key) const { return static_cast<std::size_t>(hasher(key)); }
    Hasher hasher{Secret::from_seed(1)};
  };
  template <class K>
  auto& numbers() {
    return of_family<K>(v4_, v6_);
  }

  absl::flat_hash_map<KeyV4, std::uint32_t, KeyHash<KeyV4>> v4_;
  absl::flat_hash_map<KeyV6, std::uint32_t, KeyHash<KeyV6>> v6_;
};

}  // namespace millrace::bench
