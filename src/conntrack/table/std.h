// `std`: std::unordered_map as a connection table. The baseline: what a program without a table of
// its own would use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "conntrack/table/id_pool.h"
#include "millrace/table.h"

namespace millrace {

/// A key with the hash that its caller computed, so that a library need not hash it again.
template <class K>
struct HashedKey {
  K key;
  Hash hash;
  friend bool operator==(const HashedKey& a, const HashedKey& b) { return a.key == b.key; }
  struct Hasher {
    std::size_t operator()(const HashedKey& k) const { return k.hash; }
  };
};

template <class K>
class Std {
 public:
  static constexpr std::string_view kName = "std";
  static constexpr std::string_view kSummary = "std::unordered_map, the baseline";
  static constexpr double kMaxLoad = 1.0;  // entries per bucket; more would only lengthen chains
  static constexpr bool kKeyInRecord = false;

  static Result<Std> create(const TableConfig& config) {
    if (config.capacity == 0 || config.capacity >= 0xffffffff) {
      return std::unexpected(Error{"the capacity of a table is from 1 to 4,294,967,294, not " +
                                       std::to_string(config.capacity),
                                   Error::Kind::usage});
    }
    auto records = Records<K>::create(config.capacity, config.state_bytes, config.pages);
    if (!records) return std::unexpected(records.error());
    return Std(config, std::move(*records));
  }

  const Hasher& hasher() const { return hasher_; }

  /// A node's place is known only by following its bucket's chain: there is nothing to prefetch.
  void prefetch(std::span<const Hash>) const {}
  void prefetch_records(std::span<const K>, std::span<const Hash>) const {}

  void find(std::span<const K> keys, std::span<const Hash> hashes, std::span<ConnId> ids) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = map_.find({keys[i], hashes[i]});
      ids[i] = at == map_.end() ? ConnId::none : at->second;
    }
  }

  template <WorthFunction W>
  Insertion insert(const K& key, Hash hash, const W& worth) {
    using enum Insertion::Outcome;
    const HashedKey<K> hashed{key, hash};
    if (const auto at = map_.find(hashed); at != map_.end()) {
      if (worth(at->second) != 0) return {at->second, present, ConnId::none};
      return {at->second, inserted, at->second};
    }
    ConnId displaced = ConnId::none;
    ConnId id = ids_.take();
    if (id == ConnId::none) id = displaced = displace(hashed, worth);
    if (id == ConnId::none) return {};
    map_.emplace(hashed, id);
    records_.header(id).key = key;
    return {id, inserted, displaced};
  }

  ConnId erase(const K& key, Hash hash) {
    const auto at = map_.find({key, hash});
    if (at == map_.end()) return ConnId::none;
    const ConnId id = at->second;
    map_.erase(at);
    ids_.give_back(id);
    return id;
  }

  void settle() { ids_.settle(); }

  /// Chains are visited whole, bucket after bucket; the map is created at its final size, so an
  /// entry never changes its bucket.
  template <class Visit>
  Cursor walk(Cursor cursor, std::size_t about, Visit&& visit) const {
    auto bucket = static_cast<std::size_t>(cursor);
    for (std::size_t visited = 0; bucket < map_.bucket_count() && visited < about;
         ++bucket, ++visited) {
      for (auto at = map_.begin(bucket); at != map_.end(bucket); ++at, ++visited) visit(at->second);
    }
    return bucket == map_.bucket_count() ? Cursor::end : Cursor{bucket};
  }

  const Records<K>& records() const { return records_; }
  std::size_t size() const { return map_.size(); }
  std::size_t capacity() const { return records_.count(); }
  std::size_t slots() const { return records_.count(); }
  /// Nodes as glibc's allocator rounds them, live ones only.
  std::size_t memory_bytes() const {
    constexpr std::size_t kNode = (sizeof(void*) + sizeof(std::pair<HashedKey<K>, ConnId>) +
                                   sizeof(std::size_t) + sizeof(void*) + 15) /
                                  16 * 16;
    return records_.memory_bytes() + ids_.memory_bytes() + map_.bucket_count() * sizeof(void*) +
           map_.size() * kNode;
  }
  Pages pages() const { return records_.pages(); }

  Result<void> check_invariants() const {
    if (map_.size() + ids_.free() + ids_.draining() != records_.count()) {
      return std::unexpected(Error{"std: live, free and draining ids do not add up"});
    }
    for (const auto& [hashed, id] : map_) {
      if (records_.header(id).key != hashed.key)
        return std::unexpected(Error{"std: a record has another key"});
      if (hasher_(hashed.key) != hashed.hash)
        return std::unexpected(Error{"std: a hash is not the key's"});
    }
    return {};
  }

 private:
  Std(const TableConfig& config, Records<K> records)
      : hasher_(config.secret), records_(std::move(records)), ids_(config.capacity) {
    map_.reserve(config.capacity);
  }

  /// Takes the least worthy entry of the newcomer's bucket out of the map.
  template <WorthFunction W>
  ConnId displace(const HashedKey<K>& newcomer, const W& worth) {
    const std::size_t bucket = map_.bucket(newcomer);
    std::uint8_t least_worth = worth(ConnId::none);
    auto least = map_.end(bucket);
    for (auto at = map_.begin(bucket); at != map_.end(bucket); ++at) {
      if (const std::uint8_t w = worth(at->second); w < least_worth) {
        least = at;
        least_worth = w;
      }
    }
    if (least == map_.end(bucket)) return ConnId::none;
    const ConnId id = least->second;
    map_.erase(HashedKey<K>(least->first));
    return id;
  }

  Hasher hasher_;
  Records<K> records_;
  IdPool ids_;
  std::unordered_map<HashedKey<K>, ConnId, typename HashedKey<K>::Hasher> map_;
};

static_assert(ConnectionTable<Std<KeyV4>, KeyV4> && ConnectionTable<Std<KeyV6>, KeyV6>);

}  // namespace millrace
