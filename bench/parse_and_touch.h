// Lower bounds for a function's line: parsing alone, and parsing with the least that a tracker must
// do. One thread uses an object.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/burst.h"
#include "millrace/race.h"
#include "parse/parse.h"
#include "port/port.h"

namespace millrace::bench {

/// Receives and parses only. Counts keys, so that the compiler cannot remove the work.
struct ParseOnly {
  std::uint64_t keys = 0;

  void run(Port& port) {
    auto burst = std::make_unique<Burst>();
    for (bool more = true; more;) {
      burst->size = 0;
      more = port.receive(*burst);
      parse(*burst, port.link_type());
      keys += burst->v4.size + burst->v6.size;
      port.send(*burst, all_of(*burst));
    }
  }
};

/// Parses, then does the least that a tracker must do: finds each packet's connection in `race` and
/// updates its record. The pipeline is that of a line.
class ParseAndTouch {
 public:
  static Result<ParseAndTouch> create(std::size_t capacity_v4, std::size_t capacity_v6,
                                      std::size_t state_v4, std::size_t state_v6, Pages pages) {
    auto v4 = Race<KeyV4>::create({capacity_v4, state_v4, pages, Secret::from_seed(1)});
    if (!v4) return std::unexpected(v4.error());
    auto v6 = Race<KeyV6>::create({capacity_v6, state_v6, pages, Secret::from_seed(1)});
    if (!v6) return std::unexpected(v6.error());
    return ParseAndTouch(std::move(*v4), std::move(*v6));
  }

  void run(Port& port) {
    std::array<std::unique_ptr<Burst>, 3> bursts{
        std::make_unique<Burst>(), std::make_unique<Burst>(), std::make_unique<Burst>()};
    for (unsigned left = 3; left > 0;) {
      prefetch_stragglers(v4_, bursts[2]->v4);
      prefetch_stragglers(v6_, bursts[2]->v6);
      bursts[0]->size = 0;
      if (left < 3 || !port.receive(*bursts[0])) --left;
      parse(*bursts[0], port.link_type());
      prefetch(v4_, bursts[0]->v4);
      prefetch(v6_, bursts[0]->v6);
      prefetch_records(v4_, bursts[1]->v4);
      prefetch_records(v6_, bursts[1]->v6);
      touch(v4_, bursts[2]->v4, bursts[2]->now);
      touch(v6_, bursts[2]->v6, bursts[2]->now);
      port.send(*bursts[2], all_of(*bursts[2]));
      std::ranges::rotate(bursts, bursts.end() - 1);
    }
  }

  std::uint64_t live() const { return v4_.size() + v6_.size(); }
  std::uint64_t touched() const { return touched_; }

 private:
  ParseAndTouch(Race<KeyV4> v4, Race<KeyV6> v6) : v4_(std::move(v4)), v6_(std::move(v6)) {}

  template <class K>
  static void prefetch(const Race<K>& table, Lane<K>& lane) {
    table.hasher()(lane.keys(), std::span(lane.hash));
    table.prefetch(lane.hashes());
  }

  template <class K>
  static void prefetch_records(const Race<K>& table, Lane<K>& lane) {
    lane.stragglers = table.prefetch_records(lane.keys(), lane.hashes());
  }

  template <class K>
  static void prefetch_stragglers(const Race<K>& table, const Lane<K>& lane) {
    table.prefetch_stragglers(lane.keys(), lane.hashes(), lane.stragglers);
  }

  template <class K>
  void touch(Race<K>& table, Lane<K>& lane, Tick now) {
    table.find(lane.keys(), lane.hashes(), lane.connections(), lane.stragglers);
    for (unsigned i = 0; i < lane.size; ++i) {
      ConnId id = lane.connection[i];
      if (id == ConnId::none) [[unlikely]] {
        id = table.insert(lane.key[i], lane.hash[i], KeepAll{}).id;
        if (id == ConnId::none) continue;
      }
      table.records().header(id).last_seen = now;
      ++touched_;
    }
  }

  Race<KeyV4> v4_;
  Race<KeyV6> v6_;
  std::uint64_t touched_ = 0;
};

}  // namespace millrace::bench
