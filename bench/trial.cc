#include "trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/limit.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

template <class Run>
double ns_each(std::size_t count, Run&& run) {
  const auto start = SteadyClock::now();
  run();
  return std::chrono::duration<double, std::nano>(SteadyClock::now() - start).count() /
         static_cast<double>(count);
}

}  // namespace

template <class K>
Result<bool> Trial<K>::run(const Progress& progress) {
  struct Phase {
    std::string_view name;
    Result<void> (Trial::*go)();
  };
  for (const Phase& phase :
       {Phase{"filling", &Trial::fill}, Phase{"checking results", &Trial::check_answers},
        Phase{"look-ups", &Trial::time_lookups}, Phase{"changes", &Trial::time_changes},
        Phase{"mix", &Trial::time_mix}, Phase{"insertions", &Trial::time_single_insertions},
        Phase{"checking invariants", &Trial::look_inside},
        Phase{"past the promised capacity", &Trial::time_past_the_promise}}) {
    if (!progress(phase.name)) return false;
    if (auto ok = (this->*phase.go)(); !ok) return std::unexpected(ok.error());
  }
  return true;
}

template <class K>
Result<void> Trial<K>::make(double headroom) {
  auto table = entrant_.make<K>()({.capacity = case_.promised(entrant_),
                                   .state_bytes = kStateBytes<K>,
                                   .pages = options_.pages,
                                   .secret = Secret::from_seed(options_.seed),
                                   .headroom = headroom});
  if (!table) {
    return std::unexpected(
        Error{fmt::format("{}: {}", entrant_.name, table.error().message), table.error().kind});
  }
  table_ = std::move(*table);
  return {};
}

template <class K>
Result<void> Trial<K>::fill() {
  if (auto ok = make(0); !ok) return ok;
  std::size_t in = 0;
  samples_.ns[{"fill", 32}].push_back(
      ns_each(work_.filling.size(), [&] { in = table_->insert(work_.filling, 32); }));
  if (in != table_->size()) return wrong("entries after filling", table_->size(), in);
  samples_.refused_below += work_.filling.size() - in;
  const std::size_t live = table_->churn(work_.first, work_.second);
  if (live != table_->size()) return wrong("entries after churn", table_->size(), live);
  samples_.refused_below += refused();
  return {};
}

/// Checks that each key of `second` that is found has an id of its own, whose record has this key,
/// that the table has no other entries, that few keys were refused, and that no erased key is
/// found.
template <class K>
Result<void> Trial<K>::check_answers() {
  const auto ids = table_->ids(work_.second);
  std::vector<bool> taken;
  present_.assign(ids.size(), false);
  std::size_t found = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == ConnId::none) continue;
    const std::size_t id = index(ids[i]);
    if (id >= taken.size()) taken.resize(std::max(id + 1, 2 * taken.size()), false);
    if (taken[id]) return wrong("keys of one id", 2, 1);
    if (table_->key(ids[i]) != work_.second[i]) return wrong("records with another key", 1, 0);
    taken[id] = present_[i] = true;
    ++found;
  }
  if (found != table_->size()) return wrong("keys found", found, table_->size());
  constexpr std::size_t kOneIn = 100;  // of so many keys one may be refused; refusals are reported
  if (refused() > work_.second.size() / kOneIn)
    return wrong("keys refused below the promised capacity (at most one in a hundred may be)",
                 refused(), work_.second.size() / kOneIn);
  const std::size_t gone = table_->find(work_.first, 32);
  if (gone != 0) return wrong("erased keys found", gone, 0);
  return {};
}

template <class K>
Result<void> Trial<K>::time_lookups() {
  constexpr std::size_t kStream = Workload<K>::kStream;
  std::size_t next = 0;
  for (const unsigned burst : options_.bursts) {
    const auto time = [&](std::string_view operation, std::span<const K> keys, std::size_t right,
                          auto run) -> Result<void> {
      std::size_t found = 0;
      const double ns = ns_each(keys.size(), [&] { found = run(keys); });
      samples_.ns[{operation, burst}].push_back(ns);
      if (found != right) return wrong(fmt::format("keys found by {}", operation), found, right);
      return {};
    };
    const auto find = [&](std::span<const K> keys) { return table_->find(keys, burst); };
    const auto touch = [&](std::span<const K> keys) { return table_->touch(keys, burst); };
    for (const std::string_view operation : {"touch", "hit"}) {
      const std::size_t from = next++ % Workload<K>::kStreams * kStream;
      const auto keys = std::span(work_.hits).subspan(from, kStream);
      std::size_t expected = 0;
      for (std::size_t i = 0; i < kStream; ++i) expected += present_[work_.hit_of[from + i]];
      auto ok = operation == "touch" ? time(operation, keys, expected, touch)
                                     : time(operation, keys, expected, find);
      if (!ok) return ok;
    }
    if (auto ok = time("miss", work_.misses, 0, find); !ok) return ok;
  }
  return {};
}

/// Times deletions and insertions, in turns of a hundredth of the keys (but 32 to 4096), so that
/// the load stays the same. The number of rounds is odd, so that `third` is in the table at the
/// end.
template <class K>
Result<void> Trial<K>::time_changes() {
  constexpr std::size_t kChanges = std::size_t{1} << 17;
  const std::size_t step = std::clamp<std::size_t>(work_.second.size() / 100, 32, 4096);
  std::span<const K> inside = work_.swapped();
  std::span<const K> outside = work_.third;
  const std::size_t rounds = kChanges / outside.size() | 1;
  const std::size_t changes = rounds * outside.size();
  double erase_ns = 0;
  double insert_ns = 0;
  std::size_t erased = 0;
  std::size_t inserted = 0;
  const std::size_t missing = refused();
  const std::size_t before = table_->size();
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < inside.size(); i += step) {
      const std::size_t count = std::min(step, inside.size() - i);
      const auto erase = [&] { erased += table_->erase(inside.subspan(i, count), 32); };
      const auto insert = [&] { inserted += table_->insert(outside.subspan(i, count), 32); };
      erase_ns += ns_each(1, erase);
      insert_ns += ns_each(1, insert);
    }
    std::swap(inside, outside);
  }
  samples_.ns[{"delete", 32}].push_back(erase_ns / static_cast<double>(changes));
  samples_.ns[{"insert", 32}].push_back(insert_ns / static_cast<double>(changes));
  if (table_->size() != before - erased + inserted)
    return wrong("entries after changes", table_->size(), before - erased + inserted);
  if (missing == 0 && refused() == 0) {
    if (erased != changes) return wrong("keys erased", erased, changes);
    if (inserted != changes) return wrong("keys inserted", inserted, changes);
  }
  return {};
}

template <class K>
Result<void> Trial<K>::time_mix() {
  const bool all_there = refused() == 0;
  std::pair<std::size_t, std::size_t> did;
  samples_.ns[{"mix", 32}].push_back(
      ns_each(work_.mix.lookups.size(), [&] { did = table_->mix(work_.mix); }));
  const std::size_t misses = work_.mix.lookups.size() - work_.mixed_hits;
  if (!all_there || case_.load_of(entrant_) > 0.75)
    return {};  // above that load, a few insertions may be refused
  if (did.first != work_.mixed_hits)
    return wrong("keys touched in the mix", did.first, work_.mixed_hits);
  if (did.second != misses) return wrong("keys inserted in the mix", did.second, misses);
  if (refused() != 0) return wrong("entries after the mix", table_->size(), work_.second.size());
  return {};
}

template <class K>
Result<void> Trial<K>::time_single_insertions() {
  const auto ns = table_->insertion_ns(work_.coming, work_.leaving);
  samples_.insertion_ns.insert(samples_.insertion_ns.end(), ns.begin(), ns.end());
  return {};
}

template <class K>
Result<void> Trial<K>::look_inside() {
  const bool first = samples_.index_bytes == 0;
  samples_.index_bytes = table_->index_bytes();
  samples_.record_bytes = table_->record_bytes();
  const std::size_t largest = std::max(samples_.index_bytes, samples_.record_bytes);
  samples_.pages = std::max(samples_.pages, pages_under(largest, table_->pages()));
  return first ? table_->check_invariants() : Result<void>{};  // once: the check walks the table
}

/// If the load is the one that the table promises, times insertions from the promised capacity up
/// to a fifth more, in a table with records for a quarter more.
template <class K>
Result<void> Trial<K>::time_past_the_promise() {
  if (case_.load) return {};
  table_.reset();
  if (auto ok = make(0.25); !ok) return ok;
  table_->insert(work_.filling, 32);
  std::size_t in = 0;
  samples_.beyond_ns.push_back(
      ns_each(work_.beyond.size(), [&] { in = table_->insert(work_.beyond, 32); }));
  samples_.refused_beyond += work_.beyond.size() - in;
  return {};
}

template <class K>
std::unexpected<Error> Trial<K>::wrong(std::string_view what, std::size_t got,
                                       std::size_t expected) const {
  return std::unexpected(Error{fmt::format("{} gives wrong results: {}: {} instead of {}",
                                           entrant_.name, what, got, expected)});
}

template class Trial<KeyV4>;
template class Trial<KeyV6>;

}  // namespace millrace::bench
