// A port that replays a capture: its packets arrive in bursts, and forwarded packets are written to
// a file.
//
// One worker owns a replay port, or one thread receives while another sends. Several ports may
// replay one capture at a time, each the whole of it or a part. The capture must outlive the port,
// and is never written: the first `kOffered` bytes of each packet are copied into the port's own
// memory, since no header that is read reaches further. On output the remaining bytes come from the
// capture.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "port/capture.h"
#include "port/capture_output.h"
#include "port/port.h"

namespace millrace {

/// The clock that `burst.now` follows.
enum class Clock : std::uint8_t {
  capture,  ///< packets' timestamps: two replays of a capture give equal output
  wall,     ///< the machine's steady clock, read once a burst
};

struct ReplayOptions {
  /// Packets a burst, 1 to 64. Larger bursts hide more memory latency.
  unsigned burst = 32;
  /// Number of times that the capture is replayed, 1 or more. Each loop brings the same packets
  /// again, and advances time by the capture's span and one average gap.
  std::uint32_t loops = 1;
  Clock clock = Clock::capture;
  /// Capture clock only: time advances in whole steps of this many milliseconds, 1 or more, and no
  /// burst crosses a step. So a packet's time does not depend on the other packets in its burst.
  unsigned step_ms = 10;
  /// Number of bursts with packets that are valid at the same time, `kBurstsInFlight` or more.
  unsigned in_flight = kBurstsInFlight;
  /// Set from outside (a signal handler) to end `receive`. Must outlive the port.
  const std::atomic<bool>* stop = nullptr;
};

/// The part of a capture that one of several ports replays. If memory allows, the port copies its
/// packets one behind another, as they lie in a NIC's receive queue: fetching a packet from among
/// other workers' packets costs twice as much.
struct CapturePart {
  unsigned number = 0;                   ///< the port's number, from 0
  std::vector<std::uint32_t> positions;  ///< places of its packets in the capture, ascending
};

/// Returns the latest time of a packet after `loops` loops (1 or more), in nanoseconds; 2^64 - 1 if
/// it does not fit into 64 bits.
std::uint64_t latest_timestamp_ns(const Capture& capture, std::uint32_t loops);

class ReplayPort final : public Port {
 public:
  /// Bytes of a packet that are offered at most: `length` is the smaller of this and the captured
  /// bytes. If the capture's wire length is smaller than `length`, `wire_length` is `length`.
  static constexpr std::size_t kOffered = 512;
  static_assert(kOffered >= kOfferedBytes);
  static constexpr std::size_t kHeadroom = 128;
  /// Largest step of time from one burst to the next (12 days), so that differences of ticks keep
  /// their sign. Empty bursts bridge a longer gap of the capture.
  static constexpr std::uint64_t kLongestStepMs = std::uint64_t{1} << 30;

  /// Makes a port. `output` may be null; otherwise it must outlive the port. Without `part` the
  /// port replays the whole capture, alone. Errors: usage (options out of their ranges, or so many
  /// loops that times, where they matter, exceed 64 bits; the message names every fault).
  static Result<ReplayPort> create(const Capture& capture, const ReplayOptions& options,
                                   CaptureOutput* output = nullptr,
                                   std::optional<CapturePart> part = std::nullopt);

  LinkType link_type() const override { return link_type_; }
  /// Sets `handle` to loop << 32 | position in the capture. Returns false at the
  /// end: with the capture's clock, once time has reached the end of the whole capture; with the
  /// wall clock, after the port's last packet; and early if stopped or if the output has failed.
  bool receive(Burst& burst) override;
  /// Fills the burst with the next packets, `most` (0 to 64) at most, fewer at the end of a loop.
  /// The caller sets the pace: the function does not set `now`, and ignores the clock and
  /// `options.stop`. False at the end.
  bool receive_up_to(Burst& burst, unsigned most);
  bool can_place() const override { return true; }
  void place(Burst& burst, unsigned at, Handle handle) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void finish() override;

  /// True once `receive` has ended because of `options.stop`.
  bool stopped() const { return stopped_; }
  /// Returns the nanoseconds spent on the output so far, in `send` and `finish`: not part of a
  /// packet's own cost.
  std::uint64_t output_ns() const { return output_ns_; }

 private:
  struct alignas(64) Slot {
    std::array<std::byte, kHeadroom + kOffered> bytes;
  };

  ReplayPort(const Capture& capture, const ReplayOptions& options, CaptureOutput* output,
             std::optional<CapturePart> part);

  unsigned number() const { return part_ ? part_->number : 0; }
  std::size_t size() const { return part_ ? part_->positions.size() : capture_->size(); }
  std::size_t position(std::size_t i) const { return part_ ? part_->positions[i] : i; }
  const Capture::Packet& packet(std::size_t i) const {
    return part_ ? gathered_[i] : capture_->packet(i);
  }
  void gather();
  /// Returns how many of the next `most` packets may share one burst: those up to the first with
  /// another link type or another shift of the clock. In a uniform capture, as most are, these are
  /// all.
  unsigned alike(unsigned most) { return capture_->is_uniform() ? most : alike_of(most); }
  unsigned alike_of(unsigned most);
  std::uint64_t ms_at(std::uint64_t time_ns, std::uint64_t loop) const;
  std::uint64_t end_ms() const;
  bool is_at_end() const { return loop_ == options_.loops; }
  bool time_is_over() const;
  bool step_time(Burst& burst);
  std::uint64_t step_end() const;
  void fill(Burst& burst, unsigned most, std::uint64_t until);
  static void offer(Burst& burst, unsigned at, Slot& slot, const Capture::Packet& packet);
  CaptureOutput::Packet leaving(const Burst& burst, unsigned i) const;

  const Capture* capture_;
  ReplayOptions options_;
  CaptureOutput* output_;
  std::optional<CapturePart> part_;
  std::vector<Capture::Packet> gathered_;  // packets of the part
  std::vector<std::byte> gathered_bytes_;
  std::unique_ptr<Slot[]> slots_;
  LinkType link_type_;  // link type of the last received burst
  // The group of slots, one of `in_flight`, for the next burst. As many groups behind those are for
  // bursts of placed packets.
  unsigned ring_ = 0;
  unsigned placed_ring_ = 0;      // the same, for the last burst of placed packets
  std::uint64_t sent_up_to_ = 0;  // what `output_` has been promised
  std::size_t next_ = 0;          // next packet, below `size()`
  std::uint64_t period_ns_;       // advance of time in one loop
  std::uint32_t loop_;
  std::uint64_t now_ms_ = 0;
  std::optional<std::chrono::steady_clock::time_point> start_;
  std::uint64_t output_ns_ = 0;
  bool stopped_ = false;
};

}  // namespace millrace
