#include "core/burst.h"

#include <algorithm>
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

/// Moves the keys of the packets from place `count` in the burst on to `tail`.
template <class K>
void move_lane(Lane<K>& lane, unsigned count, Lane<K>& tail) {
  unsigned kept = 0;
  while (kept < lane.size && lane.packet[kept] < count) ++kept;
  tail.size = lane.size - kept;
  for (unsigned i = 0; i < tail.size; ++i) {
    tail.packet[i] = static_cast<std::uint8_t>(lane.packet[kept + i] - count);
    tail.key[i] = lane.key[kept + i];
  }
  lane.size = kept;
}

}  // namespace

void unfile(Burst& burst, std::uint64_t out) {
  if (out != 0) leave_out_of_lanes(burst, out, [](unsigned packet) { return packet; });
}

void take_out(Burst& burst, std::uint64_t out) {
  if (out == 0) return;
  leave_out_of_lanes(burst, out, [out](unsigned packet) { return new_place(out, packet); });
  unsigned kept = 0;
  std::uint64_t of_host = 0;
  std::uint64_t from_customer = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if ((out >> i & 1) != 0) continue;
    of_host |= (burst.of_host >> i & 1) << kept;
    from_customer |= (burst.from_customer >> i & 1) << kept;
    burst.customer[kept] = burst.customer[i];
    burst.data[kept] = burst.data[i];
    burst.length[kept] = burst.length[i];
    burst.wire_length[kept] = burst.wire_length[i];
    burst.handle[kept] = burst.handle[i];
    burst.link[kept] = burst.link[i];
    burst.shard[kept] = burst.shard[i];
    burst.headers[kept] = burst.headers[i];
    burst.signal[kept] = burst.signal[i];
    burst.verdict[kept] = burst.verdict[i];
    ++kept;
  }
  burst.size = kept;
  burst.of_host = of_host;
  burst.from_customer = from_customer;
}

void split_off(Burst& burst, unsigned count, Burst& tail) {
  const unsigned moved = burst.size - count;
  const auto move = [&](auto Burst::* column) {
    std::copy_n((burst.*column).begin() + count, moved, (tail.*column).begin());
  };
  move(&Burst::data);
  move(&Burst::length);
  move(&Burst::wire_length);
  move(&Burst::handle);
  move(&Burst::link);
  move(&Burst::customer);
  move(&Burst::shard);
  move(&Burst::headers);
  move(&Burst::signal);
  move(&Burst::verdict);
  move_lane(burst.v4, count, tail.v4);
  move_lane(burst.v6, count, tail.v6);
  move_lane(burst.quoted_v4, count, tail.quoted_v4);
  move_lane(burst.quoted_v6, count, tail.quoted_v6);
  const std::uint64_t stay = bits_below(count);
  const auto move_bits = [&](std::uint64_t Burst::* set) {
    tail.*set = count == Burst::kMax ? 0 : (burst.*set) >> count;
    burst.*set &= stay;
  };
  move_bits(&Burst::of_host);
  move_bits(&Burst::from_customer);
  move_bits(&Burst::fragments);
  tail.now = burst.now;
  tail.size = moved;
  burst.size = count;
}

}  // namespace millrace
