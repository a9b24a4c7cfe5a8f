#include "core/burst.h"

#include <array>
#include <bit>
#include <cstdint>
#include <span>

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

/// Calls `each(column)` for each column that the port and the parser write.
template <class Each>
void for_each_column(Each&& each) {
  each(&Burst::data);
  each(&Burst::length);
  each(&Burst::wire_length);
  each(&Burst::handle);
  each(&Burst::link);
  each(&Burst::customer);
  each(&Burst::shard);
  each(&Burst::headers);
  each(&Burst::signal);
  each(&Burst::verdict);
}

/// The sets of packets that the port and the parser write.
constexpr std::array kSets{&Burst::of_host, &Burst::from_customer, &Burst::came_again,
                           &Burst::hopped, &Burst::fragments};

/// Copies the packets in `which` to a burst, from its first place on. The burst may be their own.
void copy_columns(const Burst& from, std::uint64_t which, Burst& to) {
  for_each_column([&](auto Burst::* column) {
    unsigned at = 0;
    for_each_bit(which, [&](unsigned i) { (to.*column)[at++] = (from.*column)[i]; });
  });
}

/// Removes the packets in `out`, of which those in lanes have left their lanes, from the columns
/// and sets that the port and the parser write.
void leave_out_of_columns(Burst& burst, std::uint64_t out) {
  const std::uint64_t stay = all_of(burst) & ~out;
  copy_columns(burst, stay, burst);
  for (std::uint64_t Burst::* const set : kSets) {
    if (burst.*set != 0) burst.*set = without(burst.*set, out, burst.size);
  }
  burst.size = static_cast<unsigned>(std::popcount(stay));
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
  to.size = static_cast<unsigned>(std::popcount(again));
  copy_columns(burst, again, to);
  for (Verdict& verdict : std::span(to.verdict).first(to.size))
    verdict = verdict == Verdict::related ? Verdict::icmp_error : Verdict::tracked;
  to.came_again = all_of(to);
  bring_again(burst.v4, again, to.v4);
  bring_again(burst.v6, again, to.v6);
  bring_again(burst.quoted_v4, again, to.quoted_v4);
  bring_again(burst.quoted_v6, again, to.quoted_v6);
}

void split_off(Burst& burst, unsigned count, Burst& tail) {
  const std::uint64_t stay = bits_below(count);
  copy_columns(burst, all_of(burst) & ~stay, tail);
  move_lane(burst.v4, count, tail.v4);
  move_lane(burst.v6, count, tail.v6);
  move_lane(burst.quoted_v4, count, tail.quoted_v4);
  move_lane(burst.quoted_v6, count, tail.quoted_v6);
  for (std::uint64_t Burst::* const set : kSets) {
    tail.*set = count == Burst::kMax ? 0 : (burst.*set) >> count;
    burst.*set &= stay;
  }
  tail.now = burst.now;
  tail.size = burst.size - count;
  burst.size = count;
}

}  // namespace millrace
