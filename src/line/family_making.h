// Makes families. A part of family.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "line/family.h"

namespace millrace {

namespace detail {

inline unsigned largest(const Part& part) {
  return std::max({part.originator_bytes, part.reply_bytes, part.image_bytes});
}
inline Error too_large(const Part& part) {
  return {"the functions keep " + std::to_string(largest(part)) +
              " bytes in an entry or an image of each connection, more than " +
              std::to_string(Part::kMost) + ": leave one out of the chain",
          Error::Kind::usage};
}

}  // namespace detail

template <class TrackerType, class K>
auto Family<TrackerType, K>::create(const LineConfig& config, std::size_t capacity,
                                    MakeAgeing& ageing, Guarding guards,
                                    std::span<Function* const> functions,
                                    std::span<const std::unique_ptr<WorkerCounters>> counters)
    -> Result<std::vector<Family>> {
  const auto count = static_cast<unsigned>(functions.size());
  std::vector<std::optional<TrackerType>> trackers(count);
  const Part part = functions.front()->family<K>().part();
  if (detail::largest(part) > Part::kMost) return std::unexpected(detail::too_large(part));
  if (functions.front()->stateful()) {
    auto made =
        TrackerType::create(tracker_config(config, capacity, ageing, functions.front()->family<K>(),
                                           functions.front()->checks_packets()),
                            std::move(guards), count);
    if (!made) return std::unexpected(made.error());
    std::ranges::move(*made, trackers.begin());
  }
  std::vector<Family> families;
  for (unsigned n = 0; n < count; ++n) {
    families.push_back(
        Family(std::move(trackers[n]), config, capacity, *functions[n], *counters[n]));
  }
  return families;
}

template <class TrackerType, class K>
Family<TrackerType, K>::Family(std::optional<TrackerType> tracker, const LineConfig& config,
                               std::size_t capacity, Function& function, WorkerCounters& counters)
    : tracker_(std::move(tracker)),
      capacity_(capacity),
      expires_(config.ageing != NoAgeing::kName),
      checks_(function.checks_packets()),
      has_idle_packets_(function.family<K>().has_idle_packets()),
      replaces_half_open_(config.evicts && function.needs_entries()),
      sources_(config.sources),
      function_(&function.family<K>()),
      counters_(&counters) {
  for (const Part& part : function_->parts()) image_bytes_.push_back(part.image_bytes);
  images_.resize(image_bytes_.size());
  if (config.copies && tracker_) copied_.resize(config.shards_that_move);
}

template <class TrackerType, class K>
TrackerConfig Family<TrackerType, K>::tracker_config(const LineConfig& config, std::size_t capacity,
                                                     MakeAgeing& ageing,
                                                     const FunctionFor<K>& function, bool checks) {
  const Part part = function.part();
  TrackerConfig tracker{
      .capacity = capacity,
      .state_bytes = part.originator_bytes,
      .state_alignment = part.alignment,
      .follows = true,
      .checks = checks,
      .timeouts = config.timeouts,
      .ageing = &ageing,
      .interval_ms = config.interval_ms,
      .shards = Guarding::kShared ? 0 : config.shards_that_move,
      .half_open = config.half_open_percent == 100
                       ? std::size_t{INT64_MAX}
                       : std::max<std::size_t>(capacity * config.half_open_percent / 100, 1),
      .copies = !Guarding::kShared && config.copies,
      .evicts = config.evicts,
      .pages = config.pages,
      .secret = config.secret};
  if (part.replies) tracker.reply_state_bytes = part.reply_bytes;
  return tracker;
}

}  // namespace millrace
