#include "shard/split.h"

#include <array>

#include "parse/capture_bursts.h"

namespace millrace {
namespace {

using Entries = std::array<std::uint16_t, Burst::kMax>;

template <class K>
void note(const Spread& spread, const Indirection& indirection, const Steering& steering,
          const Lane<K>& lane, Entries& entries) {
  std::array<std::uint32_t, Burst::kMax> hashes;
  spread.hash(steering.steer(lane.keys()), lane.keys(), std::span(hashes).first(lane.size));
  for (unsigned i = 0; i < lane.size; ++i)
    entries[lane.packet[i]] = static_cast<std::uint16_t>(indirection.entry_of(hashes[i]));
}

}  // namespace

Result<std::vector<std::uint16_t>> entries_of(const Capture& capture, const Spread& spread,
                                              const Indirection& indirection,
                                              const Steering& steering) {
  std::vector<std::uint16_t> all;
  all.reserve(capture.size());
  auto done = for_each_burst(capture, [&](Burst& burst) -> Result<void> {
    Entries entries{};
    note(spread, indirection, steering, burst.v4, entries);
    note(spread, indirection, steering, burst.v6, entries);
    note(spread, indirection, steering, burst.quoted_v4, entries);
    note(spread, indirection, steering, burst.quoted_v6, entries);
    all.insert(all.end(), entries.begin(), entries.begin() + burst.size);
    return {};
  });
  if (!done) return std::unexpected(done.error());
  return all;
}

std::vector<CapturePart> split(std::span<const std::uint16_t> entries,
                               const Indirection& indirection, unsigned workers) {
  std::vector<CapturePart> parts(workers);
  for (unsigned worker = 0; worker < workers; ++worker) parts[worker].number = worker;
  for (std::uint32_t position = 0; position < entries.size(); ++position)
    parts[indirection.worker_of(entries[position])].positions.push_back(position);
  return parts;
}

}  // namespace millrace
