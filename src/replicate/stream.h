// A stream of records from one copy of a shard to the other: numbered, acknowledged, sent again
// where they were lost, applied in order and once. There is no clock, socket or thread here, and
// nothing allocates after the stream was made.
//
// Records are packed into messages. What is not acknowledged is kept as it was sent, and sent again
// from the first missing message on (go-back-N): between servers of a cluster loss is rare, and the
// receiver then need not keep what came too early.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "millrace/types.h"
#include "replicate/message.h"

namespace millrace {

/// The sending half. Used by one thread.
class SendingStream {
 public:
  /// Messages that may wait for their acknowledgement.
  static constexpr unsigned kMessages = 64;
  /// Messages that may be on their way, at least: more where nothing is lost, half as many after a
  /// loss (as TCP's congestion window, RFC 5681).
  static constexpr unsigned kLeastOnTheWay = 4;
  /// Ticks after which what is not acknowledged is sent again. Each further time takes twice as
  /// long, up to `kSlowest`.
  static constexpr std::int32_t kAgain = 20;
  static constexpr std::int32_t kSlowest = 640;

  SendingStream() : kept_(kMessages) {}

  /// Begins a stream: nothing of an earlier one is sent any more. Numbers go on.
  void open(Tick now) {
    ++stream_;
    on_the_way_ = kMessages / 4;
    state_ = State::opening;
    begin_ = first_ = next_;
    unsent_ = end_ = oldest_ = 0;
    is_filling_ = false;
    gap_ = kNoGap;
    is_due_ = true;
    begin_to_wait(now);
  }
  void close() { state_ = State::closed; }

  bool is_closed() const { return state_ == State::closed; }
  /// True if the receiver has acknowledged the beginning.
  bool is_open() const { return state_ == State::open; }
  /// True if a record of `kMostRecord` bytes may be appended.
  bool has_room() const {
    return is_open() && (end_ - oldest_ < kMessages || (is_filling_ && fits(kMostRecord)));
  }
  /// Number of the next record.
  std::uint64_t next() const { return next_; }
  /// Number of the stream's first record.
  std::uint64_t begin() const { return begin_; }
  /// All records of the stream before this number are applied at the receiver.
  std::uint64_t acknowledged() const { return first_; }
  /// True if all records are applied at the receiver.
  bool is_empty() const { return is_open() && first_ == next_; }
  /// Returns for how many ticks the receiver has acknowledged nothing new, though it should have.
  std::int32_t silent_for(Tick now) const { return is_closed() || is_empty() ? 0 : now - heard_; }

  /// Appends a record. There must be room.
  void append(RecordKind kind, std::span<const std::byte> body, Tick now) {
    assert(has_room() && body.size() <= kMostRecord);
    if (is_empty()) begin_to_wait(now);
    if (!is_filling_ || !fits(body.size())) {
      Kept& added = kept(end_++);
      added.number = next_;
      added.bytes = 0;
      added.count = 0;
      is_filling_ = true;
    }
    Kept& to = kept(end_ - 1);
    const RecordHead head{.bytes = static_cast<std::uint16_t>(body.size()), .kind = kind};
    std::memcpy(to.payload.data() + to.bytes, &head, sizeof(head));
    if (!body.empty())
      std::memcpy(to.payload.data() + to.bytes + sizeof(head), body.data(), body.size());
    to.bytes += static_cast<std::uint32_t>(sizeof(head) + body.size());
    ++to.count;
    ++next_;
  }

  /// Calls `send(head, payload)` for what is to be sent now. The head lacks shard and epoch.
  /// `opening`: flags and payload of `open`.
  template <class Send>
  void send(Tick now, std::uint8_t flags, std::span<const std::byte> opening, Send&& send) {
    if (is_closed()) return;
    if (!is_empty() && now - since_ >= again_) go_back(now);
    if (state_ == State::opening) {
      if (!is_due_) return;
      is_due_ = false;
      return send(MessageHead{.kind = MessageHead::Kind::open,
                              .flags = flags,
                              .bytes = static_cast<std::uint32_t>(opening.size()),
                              .stream = stream_,
                              .number = begin_},
                  opening);
    }
    for (; unsent_ != end_ && unsent_ - oldest_ < on_the_way_; ++unsent_) {
      is_filling_ = is_filling_ && unsent_ + 1 != end_;
      const Kept& one = kept(unsent_);
      send(MessageHead{.kind = MessageHead::Kind::records,
                       .count = one.count,
                       .bytes = one.bytes,
                       .stream = stream_,
                       .number = one.number},
           std::span(one.payload).first(one.bytes));
    }
  }

  /// Takes note of an acknowledgement of this epoch. Returns true if it is the first one of the
  /// stream.
  bool acknowledge(const MessageHead& head, Tick now) {
    if (is_closed() || head.stream != stream_ || head.number > next_) return false;
    const bool is_first = state_ == State::opening;
    state_ = State::open;
    if (is_first || head.number > first_) begin_to_wait(now);
    for (; oldest_ != end_; ++oldest_) {
      const Kept& one = kept(oldest_);
      if (one.number + one.count > head.number) break;
      first_ = one.number + one.count;
      on_the_way_ = std::min(on_the_way_ + 1, kMessages);
    }
    unsent_ = std::max(unsent_, oldest_);
    if (oldest_ == end_) {
      // The same few messages are filled again, as long as nobody is behind: they stay in the
      // cache.
      oldest_ = unsent_ = end_ = 0;
      is_filling_ = false;
    }
    // Each gap is answered once: the other messages that were on their way show the same one.
    if ((head.flags & MessageHead::kGap) != 0 && head.number == first_ && gap_ != first_) {
      gap_ = first_;
      send_less();
    }
    return is_first;
  }

 private:
  enum class State : std::uint8_t { closed, opening, open };
  struct Kept {
    std::uint64_t number = 0;
    std::uint32_t bytes = 0;
    std::uint16_t count = 0;
    std::array<std::byte, kMostPayload> payload;
  };

  Kept& kept(std::uint64_t at) { return kept_[at % kMessages]; }
  bool fits(std::size_t body) const {
    return kept_[(end_ - 1) % kMessages].bytes + sizeof(RecordHead) + body <= kMostPayload;
  }
  void begin_to_wait(Tick now) {
    since_ = heard_ = now;
    again_ = kAgain;
  }
  void go_back(Tick now) {
    since_ = now;
    again_ = std::min(2 * again_, kSlowest);
    gap_ = kNoGap;
    is_due_ = true;
    send_less();
  }
  /// Sends again from the oldest message on, and fewer messages at a time.
  void send_less() {
    unsent_ = oldest_;
    on_the_way_ = std::max(on_the_way_ / 2, kLeastOnTheWay);
  }

  static constexpr std::uint64_t kNoGap = UINT64_MAX;

  State state_ = State::closed;
  std::uint32_t stream_ = 0;
  std::uint64_t begin_ = 0;  // number of the stream's first record
  std::uint64_t first_ = 0;  // number of the first record that is not acknowledged
  std::uint64_t next_ = 0;
  // Positions of messages, modulo `kMessages` in `kept_`: the oldest that is not acknowledged, the
  // next to be sent, the end.
  std::uint64_t oldest_ = 0;
  std::uint64_t unsent_ = 0;
  std::uint64_t end_ = 0;
  unsigned on_the_way_ = kMessages / 4;  // messages that may be sent and not acknowledged
  bool is_filling_ = false;  // the last message has not been sent, and may get more records
  bool is_due_ = false;      // `open` is to be sent
  std::uint64_t gap_ = kNoGap;
  Tick heard_{};  // since then an acknowledgement is awaited
  Tick since_{};  // `heard_`, or when all was last sent again
  std::int32_t again_ = kAgain;
  std::vector<Kept> kept_;
};

/// The receiving half. Used by one thread.
class ReceivingStream {
 public:
  enum class Taken : std::uint8_t {
    began,    ///< a new stream
    applied,  ///< the records were the next ones
    known,    ///< they were applied before
    gap,      ///< others must come first
    old,      ///< an earlier stream's, or one's that has not been opened: no answer
    malformed,
  };

  /// Forgets the stream: the next one is of another epoch.
  void reset() { *this = {}; }

  /// All records before this number are applied.
  std::uint64_t next() const { return next_; }
  std::uint32_t stream() const { return stream_; }

  /// Takes `open` or `records`; calls `apply(kind, body)` for the records that are next.
  template <class Apply>
  Taken take(const Message& message, Apply&& apply) {
    const MessageHead& head = message.head;
    if (head.kind == MessageHead::Kind::open) {
      if (head.stream == 0) return Taken::malformed;
      if (head.stream < stream_) return Taken::old;
      if (head.stream == stream_) return Taken::known;
      stream_ = head.stream;
      next_ = head.number;
      return Taken::began;
    }
    if (head.stream != stream_ || stream_ == 0) return Taken::old;
    if (head.number > next_) return Taken::gap;
    if (head.number < next_)
      return head.number + head.count <= next_ ? Taken::known : Taken::malformed;
    if (!for_each_record(message, apply)) return Taken::malformed;
    next_ += head.count;
    return Taken::applied;
  }

 private:
  std::uint32_t stream_ = 0;  // 0: none has begun
  std::uint64_t next_ = 0;
};

}  // namespace millrace
