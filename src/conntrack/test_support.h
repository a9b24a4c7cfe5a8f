// Support for the tests of tables, ageing and trackers: keys, and the combinations to test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/test_seed.h"
#include "millrace/key.h"
#include "millrace/table.h"

namespace millrace::test {

#ifdef MILLRACE_COVERING
inline constexpr bool kCovering = true;
#else
inline constexpr bool kCovering = false;
#endif

/// The key type of tests that run with one key size for each table: IPv4 or IPv6, in turn by the
/// table's position in the list. Builds that compile few combinations use the opposite size, so
/// that both builds together test both sizes.
template <std::size_t place>
using KeyOf = std::conditional_t<(place % 2 == 0) == kCovering, KeyV4, KeyV6>;

/// Returns the combinations to test: all of those given. Builds that compile few combinations
/// divide the list into groups of `group`, and test one of each: the first of the first group, the
/// second of the second, and so on, and after the last place again the first.
template <class T>
std::vector<T> in_turn(std::vector<T> combinations, std::size_t group) {
  if (!kCovering) return combinations;
  std::vector<T> chosen;
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    if (i % group == i / group % group) chosen.push_back(std::move(combinations[i]));
  }
  return chosen;
}

/// Returns the n-th of a set of distinct keys.
template <class K>
K nth_key(std::uint64_t n, std::uint8_t protocol = 17) {
  K key;
  std::memcpy(key.source.bytes.data(), &n, 4);
  key.destination.bytes.back() = static_cast<std::uint8_t>(n >> 48);
  key.source_port = static_cast<std::uint16_t>(n >> 32);
  key.destination_port = 443;
  key.protocol = protocol;
  return key;
}

template <class K>
K random_key(std::mt19937_64& random) {
  return nth_key<K>(random());
}

/// A table that remembers its draining ids and releases them in one call.
template <class Table>
class Reclaiming : public Table {
 public:
  explicit Reclaiming(Table table) : Table(std::move(table)) {}

  static Result<Reclaiming> create(const TableConfig& config) {
    auto made = Table::create(config);
    if (!made) return std::unexpected(made.error());
    return Reclaiming(std::move(*made));
  }
  template <class K, class... Timer>
  ConnId erase(const K& key, Hash hash, Timer... timer) {
    const ConnId id = Table::erase(key, hash, timer...);
    if (id != ConnId::none) draining_.push_back(id);
    return id;
  }
  template <class K, WorthFunction W, class... Timer>
  Insertion insert(const K& key, Hash hash, const W& worth, Timer... timer) {
    const Insertion in = Table::insert(key, hash, worth, timer...);
    if (in.displaced != ConnId::none && in.displaced != in.id) draining_.push_back(in.displaced);
    return in;
  }
  /// Releases up to `oldest` draining ids, the oldest first.
  void reclaim(std::size_t oldest = SIZE_MAX) {
    const auto end =
        draining_.begin() + static_cast<std::ptrdiff_t>(std::min(oldest, draining_.size()));
    std::for_each(draining_.begin(), end, [this](ConnId id) { Table::release(id); });
    draining_.erase(draining_.begin(), end);
  }
  std::size_t draining() const { return draining_.size(); }

 private:
  std::vector<ConnId> draining_;
};

}  // namespace millrace::test
