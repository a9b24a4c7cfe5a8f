#include "core/burst.h"

#include <bit>

namespace millrace {
namespace {

/// Returns the new place of the packet at `at`, once the packets in `out` are removed.
unsigned new_place(std::uint64_t out, unsigned at) {
  const std::uint64_t before = (std::uint64_t{1} << at) - 1;
  return at - static_cast<unsigned>(std::popcount(out & before));
}

/// Removes the packets in `out` (bits by place in the burst) from a lane. `place(packet)` returns
/// the new place in the burst of a packet that stays.
template <class K, class Place>
void leave_out(Lane<K>& lane, std::uint64_t out, Place&& place) {
  unsigned kept = 0;
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    if ((out >> packet & 1) != 0) continue;
    lane.packet[kept] = static_cast<std::uint8_t>(place(packet));
    lane.key[kept] = lane.key[i];
    lane.hash[kept] = lane.hash[i];
    ++kept;
  }
  lane.size = kept;
}

template <class Place>
void leave_out_of_lanes(Burst& burst, std::uint64_t out, Place&& place) {
  leave_out(burst.v4, out, place);
  leave_out(burst.v6, out, place);
  leave_out(burst.quoted_v4, out, place);
  leave_out(burst.quoted_v6, out, place);
}

}  // namespace

void unfile(Burst& burst, std::uint64_t out) {
  if (out != 0) leave_out_of_lanes(burst, out, [](unsigned packet) { return packet; });
}

void take_out(Burst& burst, std::uint64_t out) {
  if (out == 0) return;
  leave_out_of_lanes(burst, out, [out](unsigned packet) { return new_place(out, packet); });
  unsigned kept = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if ((out >> i & 1) != 0) continue;
    burst.data[kept] = burst.data[i];
    burst.length[kept] = burst.length[i];
    burst.wire_length[kept] = burst.wire_length[i];
    burst.handle[kept] = burst.handle[i];
    burst.shard[kept] = burst.shard[i];
    burst.headers[kept] = burst.headers[i];
    burst.signal[kept] = burst.signal[i];
    burst.verdict[kept] = burst.verdict[i];
    ++kept;
  }
  burst.size = kept;
}

}  // namespace millrace
