// Drives every table of the list by arbitrary operations on few keys, and compares it with a map.
// The stages of a burst are operations of their own, so that any other operation may come between
// them.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <type_traits>

#include "conntrack/schemes.h"

using namespace millrace;

namespace {

using enum Insertion::Outcome;

void require(bool holds) {
  if (!holds) std::abort();
}

KeyV4 key_of(std::uint8_t n) {
  KeyV4 key;
  key.source.bytes[3] = n;
  key.protocol = 17;
  return key;
}

/// Rates ids from 0 (dead) to 3, and the newcomer 2.
struct Salted {
  std::uint8_t salt;
  std::uint8_t operator()(ConnId id) const {
    return id == ConnId::none ? 2 : static_cast<std::uint8_t>((index(id) + salt) % 4);
  }
};

template <class Table>
class Run {
 public:
  explicit Run(std::size_t capacity)
      : table_(*Table::create({capacity, 8, Pages::small, Secret::from_seed(1)})) {
    begin_burst(0);
  }

  void step(std::uint8_t operation, std::uint8_t n) {
    switch (operation % 9) {
      case 0:
        insert(n, KeepAll{});
        break;
      case 1:
        insert(n, Salted{operation});
        break;
      case 2:
        erase(n);
        break;
      case 3:
        begin_burst(n);
        stragglers_ = table_.prefetch_records(keys_, hashes_);
        break;
      case 4:
        begin_burst(n);
        stragglers_ =
            prefetch_to_open(table_, std::span<const KeyV4>(keys_), std::span<const Hash>(hashes_));
        break;
      case 5:
        table_.prefetch_stragglers(keys_, hashes_, stragglers_);
        break;
      case 6:
        find_burst();
        break;
      case 7:
        walk(n);
        break;
      default:
        reclaim();
    }
    require(table_.size() == live_.size());
  }
  void end() {
    find_burst();
    require(table_.check_invariants().has_value());
  }

 private:
  static constexpr std::size_t kBurst = 16;

  ConnId id_of(std::uint8_t n) const {
    const auto known = live_.find(n);
    return known == live_.end() ? ConnId::none : known->second;
  }
  void gone(ConnId id) {
    require(owners_.contains(id));
    live_.erase(owners_.at(id));
    owners_.erase(id);
    unseen_.erase(id);
  }

  template <WorthFunction W>
  void insert(std::uint8_t n, const W& worth) {
    const ConnId known = id_of(n);
    const Insertion in = table_.insert(key_of(n), table_.hasher()(key_of(n)), worth);
    if (known != ConnId::none && worth(known) != 0) {
      require(in.outcome == present && in.id == known && in.displaced == ConnId::none);
      return;
    }
    require(in.outcome != present);
    if (known != ConnId::none) require(in.outcome == inserted && in.displaced == known);
    if (in.outcome == full) {
      require(in.id == ConnId::none && in.displaced == ConnId::none);
      return;
    }
    if (in.displaced != ConnId::none) {
      require(worth(in.displaced) < worth(ConnId::none));
      gone(in.displaced);
    }
    require(index(in.id) < table_.records().count());
    require(!owners_.contains(in.id) && !draining_.contains(in.id));
    require(table_.records().header(in.id).key == key_of(n));
    live_[n] = in.id;
    owners_[in.id] = n;
  }
  void erase(std::uint8_t n) {
    const ConnId known = id_of(n);
    require(table_.erase(key_of(n), table_.hasher()(key_of(n))) == known);
    if (known == ConnId::none) return;
    gone(known);
    draining_[known] = n;
  }
  void reclaim() {
    for (const auto& [id, n] : draining_) require(table_.records().header(id).key == key_of(n));
    for (const auto& [id, n] : draining_) table_.release(id);
    draining_.clear();
  }

  void begin_burst(std::uint8_t first) {
    for (std::size_t i = 0; i < kBurst; ++i) {
      burst_[i] = static_cast<std::uint8_t>(first + i);
      keys_[i] = key_of(burst_[i]);
      hashes_[i] = table_.hasher()(keys_[i]);
    }
    table_.prefetch(hashes_);
  }
  void find_burst() const {
    std::array<ConnId, kBurst> found;
    found.fill(ConnId{0xdead});
    table_.find(keys_, hashes_, found, stragglers_);
    for (std::size_t i = 0; i < kBurst; ++i) require(found[i] == id_of(burst_[i]));
  }

  void walk(std::uint8_t about) {
    if (walk_ == Cursor::begin) {
      for (const auto& [id, n] : owners_) unseen_.insert(id);
    }
    walk_ = table_.walk(walk_, about, [this](ConnId id) {
      require(owners_.contains(id));
      unseen_.erase(id);
    });
    if (walk_ != Cursor::end) return;
    require(unseen_.empty());
    walk_ = Cursor::begin;
  }

  Table table_;
  std::map<std::uint8_t, ConnId> live_;
  std::map<ConnId, std::uint8_t> owners_;
  std::map<ConnId, std::uint8_t> draining_;
  Cursor walk_ = Cursor::begin;
  std::set<ConnId> unseen_;  // live since the walk began, not visited yet

  std::array<std::uint8_t, kBurst> burst_{};
  std::array<KeyV4, kBurst> keys_{};
  std::array<Hash, kBurst> hashes_{};
  Stragglers stragglers_;
};

template <class... T>
void run_all(SchemeList<T...>, std::span<const std::uint8_t> input) {
  const auto run_one = [input]<class One>(std::type_identity<One>) {
    Run<typename One::template Of<KeyV4>> run(1 + input[0] % 64);
    for (std::size_t i = 1; i + 1 < input.size(); i += 2) run.step(input[i], input[i + 1]);
    run.end();
  };
  (run_one(std::type_identity<T>{}), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) run_all(TableSchemes{}, {data, size});
  return 0;
}
