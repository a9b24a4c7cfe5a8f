#include "shard/split.h"

#include <array>
#include <utility>

#include "parse/capture_bursts.h"

namespace millrace {
namespace {

using Entries = std::array<std::uint16_t, Burst::kMax>;

template <class K>
void note(const Spread& spread, const Indirection& indirection, Side side, const Lane<K>& lane,
          Entries& entries) {
  std::array<std::uint32_t, Burst::kMax> hashes;
  spread.hash(side, lane.keys(), std::span(hashes).first(lane.size));
  for (unsigned i = 0; i < lane.size; ++i)
    entries[lane.packet[i]] = static_cast<std::uint16_t>(indirection.entry_of(hashes[i]));
}

}  // namespace

Result<std::vector<CapturePart>> split(const Capture& capture, const Spread& spread,
                                       const Indirection& indirection, unsigned workers,
                                       const Sides& sides) {
  std::vector<CapturePart> parts(workers);
  for (unsigned worker = 0; worker < workers; ++worker) parts[worker].number = worker;
  std::size_t position = 0;
  auto done = for_each_burst(capture, [&](Burst& burst) -> Result<void> {
    Entries entries{};
    // Packets that concern no service are spread, too, and know no sides.
    note(spread, indirection, Side::originator, burst.v4.originator, entries);
    note(spread, indirection, Side::originator, burst.v6.originator, entries);
    sides(burst);
    note(spread, indirection, Side::reply, burst.v4.reply, entries);
    note(spread, indirection, Side::reply, burst.v6.reply, entries);
    for (unsigned i = 0; i < burst.size; ++i) {
      const unsigned worker = indirection.worker_of(entries[i]);
      parts[worker].positions.push_back(static_cast<std::uint32_t>(position++));
    }
    return {};
  });
  if (!done) return std::unexpected(done.error());
  return parts;
}

}  // namespace millrace
