#include "core/burst.h"

#include <bit>

namespace millrace {
namespace {

/// The place, among those that stay, of the one at `at`.
unsigned new_place(std::uint64_t out, unsigned at) {
  const std::uint64_t before = (std::uint64_t{1} << at) - 1;
  return at - static_cast<unsigned>(std::popcount(out & before));
}

template <class K>
void take_out(Lane<K>& lane, std::uint64_t out) {
  unsigned kept = 0;
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    if ((out >> packet & 1) != 0) continue;
    lane.packet[kept] = static_cast<std::uint8_t>(new_place(out, packet));
    lane.key[kept] = lane.key[i];
    ++kept;
  }
  lane.size = kept;
}

template <class K>
void take_out(Lanes<K>& lanes, std::uint64_t out) {
  take_out(lanes.originator, out);
  take_out(lanes.reply, out);
}

template <class K>
void unfile(Lane<K>& lane, std::uint64_t out) {
  unsigned kept = 0;
  for (unsigned i = 0; i < lane.size; ++i) {
    if ((out >> lane.packet[i] & 1) != 0) continue;
    lane.packet[kept] = lane.packet[i];
    lane.key[kept++] = lane.key[i];
  }
  lane.size = kept;
}

template <class K>
void unfile(Lanes<K>& lanes, std::uint64_t out) {
  unfile(lanes.originator, out);
  unfile(lanes.reply, out);
}

}  // namespace

void unfile(Burst& burst, std::uint64_t out) {
  if (out == 0) return;
  unfile(burst.v4, out);
  unfile(burst.v6, out);
  unfile(burst.quoted_v4, out);
  unfile(burst.quoted_v6, out);
}

void take_out(Burst& burst, std::uint64_t out) {
  if (out == 0) return;
  take_out(burst.v4, out);
  take_out(burst.v6, out);
  take_out(burst.quoted_v4, out);
  take_out(burst.quoted_v6, out);
  unsigned kept = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if ((out >> i & 1) != 0) continue;
    burst.data[kept] = burst.data[i];
    burst.length[kept] = burst.length[i];
    burst.wire_length[kept] = burst.wire_length[i];
    burst.handle[kept] = burst.handle[i];
    burst.entry[kept] = burst.entry[i];
    burst.headers[kept] = burst.headers[i];
    burst.signal[kept] = burst.signal[i];
    burst.verdict[kept] = burst.verdict[i];
    ++kept;
  }
  burst.size = kept;
}

}  // namespace millrace
