// Makes a contender of any table.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "bench/clock.h"
#include "bench/contender.h"

namespace millrace::bench {

template <class Table, class K>
class ContenderOf final : public Contender<K> {
 public:
  static Result<std::unique_ptr<Contender<K>>> create(const TableConfig& config) {
    auto table = Table::create(config);
    if (!table) return std::unexpected(table.error());
    return std::make_unique<ContenderOf>(std::move(*table));
  }
  explicit ContenderOf(Table table) : table_(std::move(table)) {}

  std::size_t size() const override { return table_.size(); }
  std::size_t index_bytes() const override { return table_.memory_bytes() - record_bytes(); }
  std::size_t record_bytes() const override { return table_.records().memory_bytes(); }
  Pages pages() const override { return table_.pages(); }
  Result<void> check_invariants() const override { return table_.check_invariants(); }

  std::size_t find(std::span<const K> keys, unsigned burst) override {
    std::size_t found = 0;
    const auto serve = [&](Flight& f) {
      find_in(f);
      found +=
          f.keys.size() - static_cast<std::size_t>(std::ranges::count(f.found(), ConnId::none));
    };
    fly(keys, burst, [this](Flight& f) { approach(f); }, serve);
    return found;
  }

  std::size_t touch(std::span<const K> keys, unsigned burst) override {
    std::size_t found = 0;
    const auto serve = [&](Flight& f) {
      if (Table::kKeyInRecord || burst == 1) find_in(f);
      found += update_found(f);
    };
    fly(keys, burst, [this](Flight& f) { approach_to_update(f); }, serve);
    return found;
  }

  std::size_t insert(std::span<const K> keys, unsigned burst) override {
    std::size_t inserted = 0;
    fly(
        keys, burst, [this](Flight& f) { approach_to_open(f); },
        [&](Flight& f) { inserted += insert_in(f); });
    return inserted;
  }

  std::size_t erase(std::span<const K> keys, unsigned burst) override {
    std::size_t erased = 0;
    fly(keys, burst, [this](Flight& f) { approach(f); }, [&](Flight& f) { erased += erase_in(f); });
    return erased;
  }

  std::size_t churn(std::span<const K> leaving, std::span<const K> coming) override {
    std::size_t live = table_.size();
    for (std::size_t i = 0; i < coming.size(); i += 32) {
      const std::size_t count = std::min<std::size_t>(32, coming.size() - i);
      live -= erase(leaving.subspan(i, count), 32);
      live += insert(coming.subspan(i, count), 32);
    }
    return live;
  }

  std::pair<std::size_t, std::size_t> mix(const Mix<K>& mix) override {
    std::size_t touched = 0;
    std::size_t inserted = 0;
    std::size_t entered = 0;
    std::size_t looked_up = 0;
    std::size_t served = 0;
    std::size_t left = 0;
    std::array<Flight, 3> leaving;  // keys to erase; erased one burst behind the lookups
    const auto approach_both = [&](Flight& f) {
      if constexpr (Table::kKeyInRecord) {
        approach_to_open(f);
      } else {
        approach_to_update(f);
      }
      looked_up += f.keys.size();
      const std::size_t until = mix.left_after[(looked_up - 1) / Mix<K>::kStep];
      Flight& next = leaving[entered++ % 3];
      next.keys = std::span(mix.leaving).subspan(left, until - left);
      left = until;
      enter_flight(next);
    };
    const auto serve = [&](Flight& f) {
      if constexpr (Table::kKeyInRecord) find_in(f);
      touched += update_found(f);
      for (std::size_t i = 0; i < f.keys.size(); ++i) {
        if (f.ids[i] != ConnId::none) continue;
        const ConnId id = table_.insert(f.keys[i], f.hashes[i], KeepAll{}).id;
        if (id == ConnId::none) continue;
        begin(id);
        ++inserted;
      }
      approach(leaving[served % 3]);
      if (served > 0) erase_in(leaving[(served - 1) % 3]);
      approach_stragglers(leaving[served % 3]);
      ++served;
    };
    fly(std::span<const K>(mix.lookups), 32, approach_both, serve);
    if (served > 0) erase_in(leaving[(served - 1) % 3]);
    return {touched, inserted};
  }

  std::vector<float> insertion_ns(std::span<const K> coming, std::span<const K> leaving) override {
    std::vector<float> all;
    all.reserve(coming.size());
    const CycleClock clock;
    for (std::size_t i = 0; i < coming.size(); ++i) {
      const ConnId gone = table_.erase(leaving[i], table_.hasher()(leaving[i]));
      if (gone != ConnId::none) table_.release(gone);  // the key's insertion may have been refused
      const Hash hash = table_.hasher()(coming[i]);
      const auto start = clock.begin();
      const Insertion in = table_.insert(coming[i], hash, KeepAll{});
      asm volatile("" : : "r"(in.id) : "memory");
      all.push_back(static_cast<float>(clock.ns_since(start)));
    }
    return all;
  }

  std::vector<ConnId> ids(std::span<const K> keys) override {
    std::vector<ConnId> all;
    all.reserve(keys.size());
    const auto serve = [&](Flight& f) {
      find_in(f);
      all.insert(all.end(), f.found().begin(), f.found().end());
    };
    fly(keys, 32, [this](Flight& f) { approach(f); }, serve);
    return all;
  }
  const K& key(ConnId id) const override { return table_.records().header(id).key; }

 private:
  /// A burst in the pipeline.
  struct Flight {
    std::span<const K> keys;
    std::array<Hash, Contender<K>::kBurstMax> hashes{};
    std::array<ConnId, Contender<K>::kBurstMax> ids{};
    Stragglers stragglers;
    std::span<const Hash> hashed() const { return std::span(hashes).first(keys.size()); }
    std::span<ConnId> found() { return std::span(ids).first(keys.size()); }
  };

  /// The state that each packet updates, as in a connection tracker, behind the record's header.
  struct State {
    std::uint32_t packets;
    std::uint32_t bytes;
    std::uint32_t seen;
  };
  static_assert(sizeof(State) <= kStateBytes<K>);

  /// Passes bursts through three steps (enter, approach, serve), with three bursts in flight.
  /// Bursts of 1 are hashed and served, without a pipeline.
  template <class Approach, class Serve>
  void fly(std::span<const K> keys, unsigned burst, Approach&& approach, Serve&& serve) {
    std::array<Flight, 3> flights;
    if (burst == 1) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        flights[0].keys = keys.subspan(i, 1);
        flights[0].hashes[0] = table_.hasher()(keys[i]);
        serve(flights[0]);
      }
      return;
    }
    Flight* entering = &flights[0];
    Flight* approaching = &flights[1];
    Flight* served = &flights[2];
    const std::size_t bursts = (keys.size() + burst - 1) / burst;
    for (std::size_t n = 0; n < bursts + 2; ++n) {
      if (n > 1) approach_stragglers(*served);
      if (n < bursts) {
        entering->keys =
            keys.subspan(n * burst, std::min<std::size_t>(burst, keys.size() - n * burst));
        enter_flight(*entering);
      }
      if (n > 0 && n <= bursts) approach(*approaching);
      if (n > 1) serve(*served);
      Flight* const last = served;
      served = approaching;
      approaching = entering;
      entering = last;
    }
  }

  void enter_flight(Flight& f) {
    table_.hasher()(f.keys, std::span(f.hashes).first(f.keys.size()));
    table_.prefetch(f.hashed());
  }
  void approach(Flight& f) {
    if constexpr (Table::kKeyInRecord) f.stragglers = table_.prefetch_records(f.keys, f.hashed());
  }
  void approach_stragglers(const Flight& f) {
    table_.prefetch_stragglers(f.keys, f.hashed(), f.stragglers);
  }
  void approach_to_open(Flight& f) { f.stragglers = prefetch_to_open(table_, f.keys, f.hashed()); }
  void approach_to_update(Flight& f) {
    if constexpr (Table::kKeyInRecord) {
      approach(f);
    } else {
      find_in(f);
      for (const ConnId id : f.found()) {
        if (id != ConnId::none) table_.records().prefetch(id);
      }
    }
  }

  std::size_t update_found(Flight& f) {
    std::size_t updated = 0;
    for (const ConnId id : f.found()) {
      if (id == ConnId::none) continue;
      update(id);
      ++updated;
    }
    return updated;
  }

  // Out of line, as in the tracker's stage: inlined, `find` would lack registers.
  [[gnu::noinline]] void find_in(Flight& f) {
    table_.find(f.keys, f.hashed(), f.found(), f.stragglers);
  }
  std::size_t insert_in(Flight& f) {
    std::size_t inserted = 0;
    for (std::size_t i = 0; i < f.keys.size(); ++i) {
      const Insertion in = table_.insert(f.keys[i], f.hashes[i], KeepAll{});
      if (in.id != ConnId::none) begin(in.id);
      inserted += in.outcome == Insertion::Outcome::inserted;
    }
    return inserted;
  }
  std::size_t erase_in(Flight& f) {
    for (std::size_t i = 0; i < f.keys.size(); ++i) {
      if (const ConnId id = table_.erase(f.keys[i], f.hashes[i]); id != ConnId::none)
        draining_.push_back(id);
    }
    for (const ConnId id : draining_) table_.release(id);
    const std::size_t erased = draining_.size();
    draining_.clear();
    return erased;
  }

  void begin(ConnId id) {
    std::memset(table_.records().state(id), 0, sizeof(State));
    table_.records().header(id).last_seen = {};
  }
  void update(ConnId id) {
    auto& header = table_.records().header(id);
    auto& state = *reinterpret_cast<State*>(table_.records().state(id));
    header.last_seen = Tick{now_};
    ++state.packets;
    state.bytes += 64;
    state.seen |= 1;
  }

  Table table_;
  std::vector<ConnId> draining_;
  std::uint32_t now_ = 1;
};

}  // namespace millrace::bench
