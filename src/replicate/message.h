// Messages between the two copies of a shard (copy.h), in the form in which they travel: a head of
// 32 bytes, its members in little-endian order, and its payload behind it. A datagram carries one
// or more messages.
//
// Rules for a later version, so that it and this one understand each other:
//
// 1. The heads of messages and records stay as they are. Unknown flags are ignored.
// 2. A payload of fixed size may grow at its end: a longer one is read by the bytes that the reader
//    knows. Of `hello`, the bytes that an older version lacks are 0 (pair.h).
// 3. A message of an unknown kind is skipped, and the rest of its datagram read: any message may be
//    lost. Its payload has `kMostPayload` bytes at most. Kind 0 is never used.
// 4. A record of an unknown kind from `kMayBeSkipped` on is skipped, and acknowledged like others.
//    So such a kind may tell only what the receiver can do without for good. A record of another
//    unknown kind makes its message malformed, and the stream does not go on: such a kind may be
//    sent only to a process whose hello shows that it knows the kind.
// 5. What connections are told in has rules of its own (line/carried.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace millrace {

/// A process of a server in the cluster. A process that starts anew is another member.
enum class Member : std::uint64_t { none = 0 };

/// The workers of a process send under numbers of their own, which differ from that of the process,
/// whose last byte is 0, in the last byte.
inline constexpr std::uint64_t kWorkersOfMember = 256;
constexpr Member process_of(Member sender) {
  return Member{static_cast<std::uint64_t>(sender) / kWorkersOfMember * kWorkersOfMember};
}
constexpr Member sender_of(Member process, unsigned worker) {
  return Member{static_cast<std::uint64_t>(process) + worker};
}

/// Number of an assignment of a shard: its master and its slave. The store raises it by one
/// compare-and-swap with every assignment, so no two assignments of a shard have the same.
using Epoch = std::uint64_t;

/// Kinds of records in the payload of `records`.
enum class RecordKind : std::uint8_t {
  change,     ///< a connection as it is now, or its end: bytes that only `ShardCopy::Records` reads
  told_all,   ///< all that there was when the stream began has been told
  granted,    ///< the sender has that grant of ports: its number, 4 bytes
  withdrawn,  ///< the sender no longer has that grant
};
/// Records of kinds from here on, all of which only later versions know, may be skipped.
inline constexpr unsigned kMayBeSkipped = 128;

struct MessageHead {
  enum class Kind : std::uint8_t {
    /// A stream begins: the record `number` comes first. Repeated until it is acknowledged.
    open = 1,
    records,       ///< `count` records, the first of them with that `number`
    acknowledged,  ///< all records before `number` are applied
    newer_epoch,   ///< the receiver's message was of an older epoch than `epoch`
    hello,         ///< one server to another: about all shards
    /// A packet of the shard, as a frame, for the receiver to serve: it came on the link `count`
    /// from the customer `number`. `epoch` is that of the shard at the sender.
    packet,
  };
  /// In `open`: the receiver, the master until now, need not be told what it told (`GoingOn`).
  static constexpr std::uint8_t kGoesOn = 1;
  /// In `acknowledged`: records from `number` on are missing, though later ones have come.
  static constexpr std::uint8_t kGap = 1;
  /// In `acknowledged`: the sender cannot go on from what it had; it must be told everything.
  static constexpr std::uint8_t kNeedsAll = 2;

  Kind kind{};
  std::uint8_t flags = 0;
  std::uint16_t count = 0;
  std::uint32_t bytes = 0;  ///< size of the payload
  std::uint32_t shard = 0;
  std::uint32_t stream = 0;  ///< number of the stream, from 1 on; a new one is greater
  Epoch epoch = 0;
  std::uint64_t number = 0;
};
static_assert(std::is_trivially_copyable_v<MessageHead> && sizeof(MessageHead) == 32);
static_assert(std::endian::native == std::endian::little,
              "messages are sent as they lie in memory");

/// True if this version has that kind of messages.
constexpr bool is_known(MessageHead::Kind kind) {
  return kind >= MessageHead::Kind::open && kind <= MessageHead::Kind::packet;
}

/// The most bytes of a packet's frame: that of the largest MTU that a port may have.
inline constexpr std::size_t kMostFrame = 9618;
/// The most bytes of the payload of another message: with all heads a datagram fits into 1,400
/// bytes.
inline constexpr std::size_t kMostPayload = 1200;
constexpr std::size_t most_payload(MessageHead::Kind kind) {
  return kind == MessageHead::Kind::packet ? kMostFrame : kMostPayload;
}
/// The most bytes of a record's body.
inline constexpr std::size_t kMostRecord = 512;

/// Payload of `open` with `kGoesOn`, or its beginning: how far the sender has followed the
/// receiver's stream.
struct GoingOn {
  Epoch epoch = 0;
  std::uint64_t number = 0;  ///< all records before it are applied
};

struct Message {
  MessageHead head;
  std::span<const std::byte> payload;
};

/// Takes the first message off a datagram, and those before it that are to be skipped. Returns none
/// at the datagram's end, and if the rest is malformed (then `datagram` is not empty).
inline std::optional<Message> take_message(std::span<const std::byte>& datagram) {
  Message message;
  while (datagram.size() >= sizeof(message.head)) {
    std::memcpy(&message.head, datagram.data(), sizeof(message.head));
    const auto rest = datagram.subspan(sizeof(message.head));
    const MessageHead::Kind kind = message.head.kind;
    if (message.head.bytes > most_payload(kind) || message.head.bytes > rest.size()) break;
    message.payload = rest.first(message.head.bytes);
    datagram = rest.subspan(message.head.bytes);
    if (is_known(kind) || kind == MessageHead::Kind{}) return message;
  }
  return std::nullopt;
}

/// Head of a record in a payload.
struct RecordHead {
  std::uint16_t bytes = 0;  ///< size of the body
  RecordKind kind{};
  std::uint8_t unused = 0;
};
static_assert(sizeof(RecordHead) == 4);

/// Calls `each(kind, body)` for the records of a payload, in their order, except those that are to
/// be skipped. Returns false, and calls nothing, if the payload is malformed.
template <class Each>
bool for_each_record(const Message& message, Each&& each) {
  const auto walk = [&message](auto&& act) {
    std::span<const std::byte> left = message.payload;
    for (unsigned n = 0; n < message.head.count; ++n) {
      RecordHead head;
      if (left.size() < sizeof(head)) return false;
      std::memcpy(&head, left.data(), sizeof(head));
      left = left.subspan(sizeof(head));
      if (head.bytes > left.size()) return false;
      const bool is_skipped = static_cast<unsigned>(head.kind) >= kMayBeSkipped;
      if (!is_skipped && !act(head.kind, left.first(head.bytes))) return false;
      left = left.subspan(head.bytes);
    }
    return left.empty();
  };
  const auto has_its_size = [](RecordKind kind, std::span<const std::byte> body) {
    switch (kind) {
      case RecordKind::change:
        return true;
      case RecordKind::told_all:
        return body.empty();
      case RecordKind::granted:
      case RecordKind::withdrawn:
        return body.size() == sizeof(std::uint32_t);
    }
    return false;
  };
  if (!walk(has_its_size)) return false;
  return walk([&each](RecordKind kind, std::span<const std::byte> body) {
    each(kind, body);
    return true;
  });
}

}  // namespace millrace
