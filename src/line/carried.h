// The format of connections that go to another worker, another process on the same machine, or
// another server's copy of the shard: integers are in the machine's byte order. A process tells
// another one the layout of its records first, the `CarriedPart`s: the functions that have a part
// in a connection, with the version and size of their images, and the size of the records' heads.
// So the two may have different functions, and be of different versions (carried_layout.h).
//
// Rules for a later version, so that it and this one read each other's records:
//
// 1. A record's head and an image may grow at their ends, without a new version. A reader takes the
//    bytes that it knows; those that the writer does not know are 0, which must mean that nothing
//    is known of them.
// 2. `kCarriedVersion` and `Part::version` are raised if the meaning of bytes changes that were
//    there before, or if a reader that does not know the new ones would do harm. Then the two
//    versions take no connections from each other: an upgrade ends them.
// 3. An image of a function that the reader does not have is dropped, if the function is not needed
//    or the image is all 0 (`Part::is_needed`). Else the reader does not take the connection.
// 4. Blocks, and the 32 bytes of a `CarriedPart`, stay as they are. A reader ignores parts of
//    families that it does not know.
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

/// Version of this format, which both processes must share: raised when the meaning of something in
/// these structures changes, such as states and proofs (rule 2). Functions' images have versions of
/// their own (`Part`).
inline constexpr unsigned kCarriedVersion = 5;

/// Record of a connection, or rather its head: the images stand behind it, in the order of the
/// parts. New members come last, and have 0 as their default. In a stream to another process,
/// `entry` and the block's worker identify the connection: a record replaces the earlier record
/// with the same entry and worker. To another server's copy (replicate) the key identifies the
/// connection, and `entry` is the family, 4 or 6.
template <class K>
struct CarriedConnection {
  std::uint32_t entry = 0;
  /// 0: the worker no longer has the connection, and the members below are unused.
  std::uint16_t is_there = 0;
  std::uint16_t has_reply = 0;  ///< 1: the connection has a reply's entry
  LifeImage life;
  K key;  ///< the originator's key
};
static_assert(std::is_trivially_copyable_v<CarriedConnection<KeyV4>>);
static_assert(sizeof(CarriedConnection<KeyV4>) == 40 && sizeof(CarriedConnection<KeyV6>) == 64);
/// Size of the smallest head that there ever was: that of a process that does not tell its own.
constexpr std::size_t least_head(std::uint32_t family) { return family == 4 ? 40 : 64; }

/// Kinds of blocks other than records (`CarriedBlock::family`).
inline constexpr std::uint32_t kCarriedRefusal = 1;
inline constexpr std::uint32_t kCarriedParts = 2;
/// Head of a block. A stream is one round of records: a block with parts, blocks with records, and
/// a block of family 0. A block of family `kCarriedRefusal` ends the stream early, with a text that
/// says why. A parcel, which carries a part of a shard to another worker, has only blocks with
/// records.
struct CarriedBlock {
  /// 4 or 6: records of that family; 0: the end of a round; else `kCarriedRefusal` or
  /// `kCarriedParts`.
  std::uint32_t family = 0;
  std::uint32_t worker = 0;  ///< for records in a stream: the worker that has the connections
  std::uint64_t count = 0;   ///< number of records, of parts, or of bytes of text
};
template <class K>
inline constexpr std::uint32_t kCarriedFamily = K::Address::kBytes == 4 ? 4 : 6;

/// Added to a family: the part tells the size of the head of that family's records, in
/// `image_bytes`, and is no function's.
inline constexpr std::uint32_t kCarriedHead = 0x100;

/// A function's part in the connections of one family.
struct CarriedPart {
  std::array<char, 20> function{};  ///< the function's name, padded with 0
  std::uint32_t family = 0;
  std::uint16_t version = 0;
  std::uint16_t is_needed = 0;  ///< 1: `Part::is_needed`
  std::uint32_t image_bytes = 0;

  std::string_view name() const {
    const std::string_view all(function.data(), function.size());
    return all.substr(0, all.find('\0'));
  }
  friend bool operator==(const CarriedPart&, const CarriedPart&) = default;
};
static_assert(sizeof(CarriedPart) == 32);

/// Appends the parts of a function in a family's connections.
inline void append(std::vector<CarriedPart>& all, std::uint32_t family,
                   std::span<const Part> parts) {
  for (const Part& part : parts) {
    CarriedPart& one = all.emplace_back(
        CarriedPart{.family = family,
                    .version = part.version,
                    .is_needed = part.is_needed ? std::uint16_t{1} : std::uint16_t{0},
                    .image_bytes = part.image_bytes});
    part.name.copy(one.function.data(), one.function.size() - 1);
  }
}

/// Appends the part that tells the size of the head of a family's records.
template <class K>
void append_head(std::vector<CarriedPart>& all) {
  all.push_back(
      {.family = kCarriedHead + kCarriedFamily<K>, .image_bytes = sizeof(CarriedConnection<K>)});
}

/// Appends a record, with room for `image_bytes` behind it. Returns the address of that room, valid
/// until `to` grows.
template <class K>
std::byte* append_record(std::vector<std::byte>& to, const CarriedConnection<K>& record,
                         std::size_t image_bytes) {
  const std::size_t at = to.size();
  to.resize(at + sizeof(record) + image_bytes);
  std::memcpy(&to[at], &record, sizeof(record));
  return to.data() + at + sizeof(record);
}

/// The records of one family that a worker is about to send, and fingerprints of the connections
/// whose records the worker has made.
template <class K>
struct CarryingFor {
  /// Fingerprints by entry: `Tracker::fingerprint` of the connection when its record was last made;
  /// 0: there was no connection. A deque, since it grows on the worker's thread, which has no time
  /// to copy the elements.
  std::deque<std::uint32_t> told;
  std::vector<std::byte> changed;  ///< records with their images
  std::size_t count = 0;           ///< number of records in `changed`
};
struct Carrying {
  CarryingFor<KeyV4> v4;
  CarryingFor<KeyV6> v6;
};

/// Consumer of the stream's bytes. Returns false if the consumer wants no more.
using TakeBytes = std::function<bool(std::span<const std::byte>)>;

/// Passes a worker's records of one family to `take` as a block, and clears them. Returns what
/// `take` returned; true if there are no records.
template <class K>
bool give(unsigned worker, CarryingFor<K>& carrying, const TakeBytes& take) {
  if (carrying.count == 0) return true;
  const CarriedBlock block{
      .family = kCarriedFamily<K>, .worker = worker, .count = std::exchange(carrying.count, 0)};
  const bool goes_on = take(std::as_bytes(std::span(&block, 1))) && take(carrying.changed);
  carrying.changed.clear();
  return goes_on;
}
/// Passes the records of both families to `take`. False: `take` wants no more.
inline bool give(unsigned worker, Carrying& carrying, const TakeBytes& take) {
  return give(worker, carrying.v4, take) && give(worker, carrying.v6, take);
}
/// Passes a refusal with its reason to `take`.
inline void give_refusal(std::string_view why, const TakeBytes& take) {
  const CarriedBlock block{.family = kCarriedRefusal, .worker = 0, .count = why.size()};
  static_cast<void>(take(std::as_bytes(std::span(&block, 1))) &&
                    take(std::as_bytes(std::span(why))));
}
/// Passes the parts to `take`. They must precede all records of the stream.
inline bool give_parts(std::span<const CarriedPart> parts, const TakeBytes& take) {
  const CarriedBlock block{.family = kCarriedParts, .worker = 0, .count = parts.size()};
  return take(std::as_bytes(std::span(&block, 1))) && take(std::as_bytes(parts));
}
/// Passes the block that ends a round of records to `take`.
inline bool give_end(const TakeBytes& take) {
  const CarriedBlock end;
  return take(std::as_bytes(std::span(&end, 1)));
}

}  // namespace millrace
