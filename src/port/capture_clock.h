// The time by which connections of a capture age. Its timestamps tell it, which may step back or
// far ahead.
//
// Packets are added in their order, by one thread; afterwards any number of threads may read.
//
// Rules. Time never goes back.
//  1. Behind the latest packet by less than a second: packets came out of order. Time stays.
//  2. Behind by more: somebody has set the clock. Time stays until the clock has caught up, or
//     until the packets' own times have advanced by a second. Then time goes on from where it
//     stayed, by as much as the packets' own times advance.
//  3. Ahead, however far: that time has passed. But a step of a day or more does not count if
//     packets take more than half of it back within a second of their own times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

class CaptureClock {
 public:
  static constexpr std::uint64_t kSecond = 1'000'000'000;
  /// Time never goes beyond (the year 2262).
  static constexpr std::uint64_t kLatest = INT64_MAX;
  /// From one packet's timestamp to the next, a step is reported from these sizes on.
  static constexpr std::uint64_t kStepBack = kSecond / 10;
  static constexpr std::uint64_t kStepAhead = 86'400 * kSecond;

  /// Takes the next packet's timestamp, `kLatest` at most.
  void add(std::uint64_t timestamp_ns) {
    // The difference from a later timestamp wraps, so it is more than a second, too.
    if (!steady_ || timestamp_ns - previous_ >= kSecond) [[unlikely]]
      return add_step(timestamp_ns);
    previous_ = timestamp_ns;
    if (timestamp_ns > latest_) latest_ = timestamp_ns;
    ++packets_;
  }

  /// The first packet's timestamp, and the latest time of any packet; 0 without packets.
  std::uint64_t first_ns() const { return first_; }
  std::uint64_t latest_ns() const { return latest_; }

  /// True where time is what the timestamps say.
  bool is_plain() const { return shifts_.empty(); }
  /// Returns the time of packet `i`, whose timestamp that is; it may be below an earlier packet's,
  /// where time stays.
  std::uint64_t time_ns(std::size_t i, std::uint64_t timestamp_ns) const {
    return is_plain() ? timestamp_ns : shifted(timestamp_ns, shift_at(i).ns);
  }
  /// Returns the timestamp at which, by the clock of packet `i`, it is `time_ns`.
  std::uint64_t timestamp_ns(std::size_t i, std::uint64_t time_ns) const {
    return is_plain() ? time_ns : unshifted(time_ns, shift_at(i).ns);
  }
  /// Returns the first packet behind `i` to whose timestamp another difference is added; at most
  /// SIZE_MAX.
  std::size_t alike_until(std::size_t i) const { return is_plain() ? SIZE_MAX : shift_at(i).end; }

  /// Returns one line that reports the first step, and how many there are. Empty if there are none.
  /// Packets are counted from 1.
  std::string steps() const;

 private:
  /// The difference between time and timestamp, for packets from the end of the previous shift to
  /// before `end`.
  struct Shift {
    std::size_t end;
    std::int64_t ns;
  };
  struct Jump {
    std::size_t at;  // packet
    std::uint64_t timestamp_ns;
    std::uint64_t latest_before;
    std::uint64_t latest_after;
  };

  static std::uint64_t shifted(std::uint64_t timestamp_ns, std::int64_t by);
  static std::uint64_t unshifted(std::uint64_t time_ns, std::int64_t by);
  const Shift& shift_at(std::size_t i) const;
  void add_step(std::uint64_t timestamp_ns);
  static bool is_taken_back(const Jump& jump, std::uint64_t timestamp_ns);
  void count_step(std::uint64_t timestamp_ns);
  void undo_jump();
  void shift_from(std::size_t packet, std::int64_t ns);

  bool steady_ = false;  // a packet soon after the last one tells the time as it is
  std::size_t packets_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t latest_ = 0;
  std::uint64_t previous_ = 0;  // timestamp
  std::int64_t shift_ = 0;      // of the packets at hand
  std::vector<Shift> shifts_;   // empty: all 0; else the last one has no end
  std::optional<Jump> jump_;    // far ahead, as long as it may be taken back
  // Timestamp of the first packet that is behind, while time stays.
  std::optional<std::uint64_t> behind_since_;

  std::size_t steps_back_ = 0;
  std::size_t steps_ahead_ = 0;
  std::size_t first_step_ = 0;  // packet, from 1
  std::uint64_t first_step_ns_ = 0;
  bool first_is_back_ = false;
};

}  // namespace millrace
