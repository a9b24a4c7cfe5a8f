// The clock of a capture, by which its connections age. The clock follows the packets' timestamps,
// which may step back or far ahead.
//
// One thread adds the packets in their order; afterwards any number of threads may read.
//
// Rules. Time never goes back.
//  1. A timestamp less than a second before the latest time: packets came out of order. Time stands
//     still.
//  2. A timestamp a second or more before the latest time: the capturing machine's clock was set
//     back. Time stands still until a timestamp has caught up, or until the timestamps since then
//     have advanced by a second. In the latter case time goes on from where it stood, by as much as
//     the timestamps advance.
//  3. A timestamp ahead of the latest time, however far: that time has passed. Exception: a step of
//     a day or more is undone if a packet takes back more than half of it before timestamps have
//     advanced by another second.
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
  /// Latest possible time, in nanoseconds since 1970 (year 2262).
  static constexpr std::uint64_t kLatest = INT64_MAX;
  /// Smallest differences between the timestamps of two successive packets that are reported as a
  /// step.
  static constexpr std::uint64_t kStepBack = kSecond / 10;
  static constexpr std::uint64_t kStepAhead = 86'400 * kSecond;

  /// Adds the next packet's timestamp, at most `kLatest`.
  void add(std::uint64_t timestamp_ns) {
    // If the timestamp is below the previous one, the difference wraps and also exceeds a second.
    if (!steady_ || timestamp_ns - previous_ >= kSecond) [[unlikely]]
      return add_step(timestamp_ns);
    previous_ = timestamp_ns;
    if (timestamp_ns > latest_) latest_ = timestamp_ns;
    ++packets_;
  }

  /// The first packet's timestamp, and the latest time of any packet, in nanoseconds; 0 without
  /// packets.
  std::uint64_t first_ns() const { return first_; }
  std::uint64_t latest_ns() const { return latest_; }

  /// True if the time of each packet is its timestamp.
  bool is_plain() const { return shifts_.empty(); }
  /// Returns the time of packet `i`, which has this timestamp. The result may be below an earlier
  /// packet's time: time then stands still.
  std::uint64_t time_ns(std::size_t i, std::uint64_t timestamp_ns) const {
    return is_plain() ? timestamp_ns : shifted(timestamp_ns, shift_at(i).ns);
  }
  /// Returns the timestamp that corresponds to `time_ns` by the shift that holds for packet `i`.
  std::uint64_t timestamp_ns(std::size_t i, std::uint64_t time_ns) const {
    return is_plain() ? time_ns : unshifted(time_ns, shift_at(i).ns);
  }
  /// Returns the first packet after `i` for which another shift holds; SIZE_MAX if there is none.
  std::size_t alike_until(std::size_t i) const { return is_plain() ? SIZE_MAX : shift_at(i).end; }

  /// Returns one line that reports the first step and the number of steps; empty without steps.
  /// Packets are counted from 1.
  std::string steps() const;

 private:
  /// Time minus timestamp, for the packets from the previous shift's `end` up to before this `end`.
  struct Shift {
    std::size_t end;
    std::int64_t ns;
  };
  struct Jump {
    std::size_t at;  // number of the packet that jumps, from 0
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

  bool steady_ = false;  // a packet less than a second after the last one needs no check
  std::size_t packets_ = 0;
  std::uint64_t first_ = 0;
  std::uint64_t latest_ = 0;
  std::uint64_t previous_ = 0;  // the previous packet's timestamp
  std::int64_t shift_ = 0;      // the shift of the next packet
  std::vector<Shift> shifts_;   // empty: no packet is shifted; else the last shift ends at SIZE_MAX
  std::optional<Jump> jump_;    // a step far ahead, as long as a packet may undo it
  // Smallest timestamp since time began to stand still by rule 2.
  std::optional<std::uint64_t> behind_since_;

  std::size_t steps_back_ = 0;
  std::size_t steps_ahead_ = 0;
  std::size_t first_step_ = 0;  // number of the packet at the first step, from 1
  std::uint64_t first_step_ns_ = 0;
  bool first_is_back_ = false;
};

}  // namespace millrace
