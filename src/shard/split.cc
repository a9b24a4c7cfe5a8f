#include "shard/split.h"

#include <array>

#include "parse/capture_bursts.h"

namespace millrace {
namespace {

using Shards = std::array<std::uint16_t, Burst::kMax>;

template <class K>
void note(const Spread& spread, const Indirection& indirection, const Steering& steering,
          const Lane<K>& lane, Shards& shards) {
  std::array<std::uint32_t, Burst::kMax> hashes;
  spread.hash(steering.steer(lane.keys()), lane.keys(), std::span(hashes).first(lane.size));
  for (unsigned i = 0; i < lane.size; ++i)
    shards[lane.packet[i]] = static_cast<std::uint16_t>(indirection.shard_of(hashes[i]));
}

}  // namespace

Result<std::vector<std::uint16_t>> shards_of(const Capture& capture, const Spread& spread,
                                             const Indirection& indirection,
                                             const Steering& steering) {
  std::vector<std::uint16_t> all;
  all.reserve(capture.size());
  auto done = for_each_burst(capture, [&](Burst& burst) -> Result<void> {
    Shards shards{};
    note(spread, indirection, steering, burst.v4, shards);
    note(spread, indirection, steering, burst.v6, shards);
    note(spread, indirection, steering, burst.quoted_v4, shards);
    note(spread, indirection, steering, burst.quoted_v6, shards);
    all.insert(all.end(), shards.begin(), shards.begin() + burst.size);
    return {};
  });
  if (!done) return std::unexpected(done.error());
  return all;
}

std::vector<CapturePart> split(std::span<const std::uint16_t> shards,
                               const Indirection& indirection, unsigned workers) {
  std::vector<CapturePart> parts(workers);
  for (unsigned worker = 0; worker < workers; ++worker) parts[worker].number = worker;
  for (std::uint32_t position = 0; position < shards.size(); ++position)
    parts[indirection.worker_of(shards[position])].positions.push_back(position);
  return parts;
}

}  // namespace millrace
