// Connections on their way from one worker to another, or to another process on the same machine,
// so that their bytes go as they lie. What is told describes itself: which functions have a part in
// a connection, in which version, and how many bytes that is. So both processes may have other
// functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "conntrack/life.h"
#include "function/function.h"
#include "millrace/key.h"

namespace millrace {

/// Of what both sides must have one understanding: these structures, and what the states and proofs
/// in them mean. To be raised with any of them. What functions tell has versions of its own
/// (`Part`).
inline constexpr unsigned kCarriedVersion = 4;

/// What an entry holds now. It replaces what was told of the same entry of the same worker before.
/// Behind it stand the images of the connection, in the order of the parts that were told.
template <class K>
struct CarriedConnection {
  std::uint32_t entry = 0;
  std::uint16_t is_there = 0;   ///< 0: no connection any more, and the rest means nothing
  std::uint16_t has_reply = 0;  ///< 1: its replies come this way, too
  LifeImage life;
  K key;  ///< the originator's
};
static_assert(std::is_trivially_copyable_v<CarriedConnection<KeyV4>>);
static_assert(sizeof(CarriedConnection<KeyV4>) == 40 && sizeof(CarriedConnection<KeyV6>) == 64);

/// The stream is made of blocks: first the parts, then records of connections. One of no family
/// ends what is told at once; one that says why it breaks off has so many bytes of text.
inline constexpr std::uint32_t kCarriedRefusal = 1;
inline constexpr std::uint32_t kCarriedParts = 2;
struct CarriedBlock {
  std::uint32_t family = 0;  ///< of records 4, 6; 0: the end; `kCarriedRefusal`, `kCarriedParts`
  std::uint32_t worker = 0;  ///< that has the connections
  std::uint64_t count = 0;   ///< of records, parts, bytes of text
};
template <class K>
inline constexpr std::uint32_t kCarriedFamily = K::Address::kBytes == 4 ? 4 : 6;

/// A function's part in a family's connections.
struct CarriedPart {
  std::array<char, 20> function{};  ///< its name; the rest is 0
  std::uint32_t family = 0;
  std::uint32_t version = 0;
  std::uint32_t image_bytes = 0;

  std::string_view name() const {
    const std::string_view all(function.data(), function.size());
    return all.substr(0, all.find('\0'));
  }
  friend bool operator==(const CarriedPart&, const CarriedPart&) = default;
};
static_assert(sizeof(CarriedPart) == 32);

/// Adds the parts of a family's function.
inline void append(std::vector<CarriedPart>& all, std::uint32_t family,
                   std::span<const Part> parts) {
  for (const Part& part : parts) {
    CarriedPart& one = all.emplace_back(
        CarriedPart{.family = family, .version = part.version, .image_bytes = part.image_bytes});
    part.name.copy(one.function.data(), one.function.size() - 1);
  }
}

/// Adds a record; returns where its images are to be written.
template <class K>
std::byte* append_record(std::vector<std::byte>& to, const CarriedConnection<K>& record,
                         std::size_t image_bytes) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(record) + image_bytes);
  std::memcpy(&to[at], &record, sizeof(record));
  return to.data() + at + sizeof(record);
}

/// What a worker has told of one family's connections, and is about to tell.
template <class K>
struct CarryingFor {
  /// By entry: `Tracker::fingerprint`, or 0. It grows on a worker's thread, so without being
  /// copied.
  std::deque<std::uint32_t> told;
  std::vector<std::byte> changed;  ///< records with their images
  std::size_t count = 0;           ///< of those
};
struct Carrying {
  CarryingFor<KeyV4> v4;
  CarryingFor<KeyV6> v6;
};

/// Gives bytes to `take`, which says false where it wants no more; then this does, too.
using TakeBytes = std::function<bool(std::span<const std::byte>)>;

template <class K>
bool give(unsigned worker, CarryingFor<K>& carrying, const TakeBytes& take) {
  if (carrying.count == 0) return true;
  const CarriedBlock block{
      .family = kCarriedFamily<K>, .worker = worker, .count = std::exchange(carrying.count, 0)};
  const bool goes_on = take(std::as_bytes(std::span(&block, 1))) && take(carrying.changed);
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
/// Before connections are told.
inline bool give_parts(std::span<const CarriedPart> parts, const TakeBytes& take) {
  const CarriedBlock block{.family = kCarriedParts, .worker = 0, .count = parts.size()};
  return take(std::as_bytes(std::span(&block, 1))) && take(std::as_bytes(parts));
}
inline bool give_end(const TakeBytes& take) {
  const CarriedBlock end;
  return take(std::as_bytes(std::span(&end, 1)));
}

}  // namespace millrace
