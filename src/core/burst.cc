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
/// the new place in the burst of a packet that stays. `is_served`: the lane has changes, too.
template <class K, class Place>
void leave_out(Lane<K>& lane, std::uint64_t out, bool is_served, Place&& place) {
  unsigned kept = 0;
  std::uint64_t replies = 0;
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    if ((out >> packet & 1) != 0) continue;
    lane.packet[kept] = static_cast<std::uint8_t>(place(packet));
    lane.key[kept] = lane.key[i];
    lane.hash[kept] = lane.hash[i];
    if (is_served) {
      lane.connection[kept] = lane.connection[i];
      lane.changed[kept] = lane.changed[i];
      lane.target[kept] = lane.target[i];
      replies |= (lane.replies >> i & 1) << kept;
    }
    ++kept;
  }
  lane.size = kept;
  if (is_served) lane.replies = replies;
}

template <class Place>
void leave_out_of_lanes(Burst& burst, std::uint64_t out, bool is_served, Place&& place) {
  leave_out(burst.v4, out, is_served, place);
  leave_out(burst.v6, out, is_served, place);
  leave_out(burst.quoted_v4, out, is_served, place);
  leave_out(burst.quoted_v6, out, is_served, place);
}

/// Removes those bits of a set that stand for the packets in `out`, and closes the gaps.
std::uint64_t without(std::uint64_t set, std::uint64_t out, unsigned size) {
  std::uint64_t left = 0;
  for_each_bit(bits_below(size) & ~out,
               [&](unsigned i) { left |= (set >> i & 1) << new_place(out, i); });
  return left;
}

/// Removes the packets in `out`, of which those in lanes have left their lanes, from the columns
/// that the port and the parser write.
void leave_out_of_columns(Burst& burst, std::uint64_t out) {
  unsigned kept = 0;
  for_each_bit(all_of(burst) & ~out, [&](unsigned i) {
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
  });
  for (std::uint64_t Burst::* const set :
       {&Burst::of_host, &Burst::from_customer, &Burst::came_again}) {
    if (burst.*set != 0) burst.*set = without(burst.*set, out, burst.size);
  }
  burst.size = kept;
}

/// Adds the lane's packets in `again` to the lane of another burst, in which they stand one behind
/// the other, with the keys with which they leave.
template <class K>
void bring_again(const Lane<K>& lane, std::uint64_t again, Lane<K>& to) {
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    if ((again >> packet & 1) == 0) continue;
    to.packet[to.size] = static_cast<std::uint8_t>(new_place(~again, packet));
    to.key[to.size] = lane.leaving(i);
    ++to.size;
  }
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
  if (out != 0) leave_out_of_lanes(burst, out, false, [](unsigned packet) { return packet; });
}

void take_out(Burst& burst, std::uint64_t out) {
  if (out == 0) return;
  leave_out_of_lanes(burst, out, false, [out](unsigned packet) { return new_place(out, packet); });
  leave_out_of_columns(burst, out);
}

void take_out_served(Burst& burst, std::uint64_t out) {
  if (out == 0) return;
  leave_out_of_lanes(burst, out, true, [out](unsigned packet) { return new_place(out, packet); });
  for_each_bit(burst.has_next_hop & ~out, [&](unsigned i) {
    burst.next_hop_v4[new_place(out, i)] = burst.next_hop_v4[i];
    burst.next_hop_v6[new_place(out, i)] = burst.next_hop_v6[i];
  });
  for (std::uint64_t Burst::* const set :
       {&Burst::has_next_hop, &Burst::to_customer, &Burst::again})
    burst.*set = without(burst.*set, out, burst.size);
  leave_out_of_columns(burst, out);
}

void bring_again(const Burst& burst, std::uint64_t again, Burst& to) {
  to.now = burst.now;
  for_each_bit(again, [&](unsigned i) {
    const unsigned at = to.size++;
    to.data[at] = burst.data[i];
    to.length[at] = burst.length[i];
    to.wire_length[at] = burst.wire_length[i];
    to.handle[at] = burst.handle[i];
    to.link[at] = burst.link[i];
    to.shard[at] = burst.shard[i];
    to.headers[at] = burst.headers[i];
    to.signal[at] = burst.signal[i];
    to.verdict[at] = burst.verdict[i] == Verdict::related ? Verdict::icmp_error : Verdict::tracked;
  });
  to.came_again = all_of(to);
  bring_again(burst.v4, again, to.v4);
  bring_again(burst.v6, again, to.v6);
  bring_again(burst.quoted_v4, again, to.quoted_v4);
  bring_again(burst.quoted_v6, again, to.quoted_v6);
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
  move_bits(&Burst::came_again);
  move_bits(&Burst::fragments);
  tail.now = burst.now;
  tail.size = moved;
  burst.size = count;
}

}  // namespace millrace
