// Connections on their way from one process to another on the same machine, so that their bytes go
// as they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "conntrack/life.h"
#include "millrace/key.h"

namespace millrace {

/// Of what both sides must have one understanding: this record, and what the states and proofs in
/// it mean. To be raised with any of them.
inline constexpr unsigned kCarriedVersion = 2;

/// What an entry holds now. It replaces what was told of the same entry of the same worker before.
template <class K>
struct CarriedConnection {
  std::uint32_t entry = 0;
  std::uint16_t is_there = 0;   ///< 0: no connection any more, and the rest means nothing
  std::uint16_t has_reply = 0;  ///< 1: its replies come this way, too
  LifeImage life;
  K key;         ///< the originator's
  K translated;  ///< as its packets leave; with a next hop that was chosen as the destination, so
                 ///< that a backend is named by its address
};
static_assert(std::is_trivially_copyable_v<CarriedConnection<KeyV4>>);
static_assert(sizeof(CarriedConnection<KeyV4>) == 56 && sizeof(CarriedConnection<KeyV6>) == 104);

/// The stream is made of blocks of them. One of no family ends what is told at once; one that says
/// why it breaks off has so many bytes of text.
inline constexpr std::uint32_t kCarriedRefusal = 1;
struct CarriedBlock {
  std::uint32_t family = 0;  ///< 4, 6; 0: the end; `kCarriedRefusal`
  std::uint32_t worker = 0;  ///< that has them
  std::uint64_t count = 0;
};
template <class K>
inline constexpr std::uint32_t kCarriedFamily = K::Address::kBytes == 4 ? 4 : 6;

/// What a worker has told of one family's connections, and is about to tell.
template <class K>
struct CarryingFor {
  /// By entry: `Tracker::fingerprint`, or 0. It grows on a worker's thread, so without being
  /// copied.
  std::deque<std::uint32_t> told;
  std::vector<CarriedConnection<K>> changed;
};
struct Carrying {
  CarryingFor<KeyV4> v4;
  CarryingFor<KeyV6> v6;
};

/// Gives bytes to `take`, which says false where it wants no more; then this does, too.
using TakeBytes = std::function<bool(std::span<const std::byte>)>;

template <class K>
bool give(unsigned worker, CarryingFor<K>& carrying, const TakeBytes& take) {
  if (carrying.changed.empty()) return true;
  const CarriedBlock block{
      .family = kCarriedFamily<K>, .worker = worker, .count = carrying.changed.size()};
  const bool goes_on =
      take(std::as_bytes(std::span(&block, 1))) && take(std::as_bytes(std::span(carrying.changed)));
  carrying.changed.clear();
  return goes_on;
}
/// What a worker is about to tell.
inline bool give(unsigned worker, Carrying& carrying, const TakeBytes& take) {
  return give(worker, carrying.v4, take) && give(worker, carrying.v6, take);
}
inline void give_refusal(std::string_view why, const TakeBytes& take) {
  const CarriedBlock block{.family = kCarriedRefusal, .worker = 0, .count = why.size()};
  static_cast<void>(take(std::as_bytes(std::span(&block, 1))) &&
                    take(std::as_bytes(std::span(why))));
}
inline bool give_end(const TakeBytes& take) {
  const CarriedBlock end;
  return take(std::as_bytes(std::span(&end, 1)));
}

}  // namespace millrace
