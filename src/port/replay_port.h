// A capture as a port: its packets arrive in bursts, and what is forwarded is written to a file.
//
// One worker owns a replay port, or one thread receives while another sends; several may walk one
// capture at a time, each the whole of it or a part. The capture outlives the port and is never
// written: packets are copied into the port's own memory, their first `kOffered` bytes that is,
// since no header that is read reaches further; on the way out the rest comes from the capture.
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

/// What `burst.now` follows.
enum class Clock : std::uint8_t {
  capture,  ///< timestamps: the same input gives the same output
  wall,     ///< the machine's steady clock, read once a burst
};

struct ReplayOptions {
  /// Packets a burst, 1 to 64. Larger ones hide more memory latency.
  unsigned burst = 32;
  /// How often the capture is walked, 1 or more: the same connections again, time advanced by the
  /// capture's span and one average gap.
  std::uint32_t loops = 1;
  Clock clock = Clock::capture;
  /// Capture clock only: time (`CaptureClock`) advances in whole steps of so many milliseconds, 1
  /// or more, and a burst ends with its step. So a packet's time is the same whatever else is in
  /// its burst.
  unsigned step_ms = 10;
  /// Bursts whose packets stay valid at once, `kBurstsInFlight` or more.
  unsigned in_flight = kBurstsInFlight;
  /// Set from outside (a signal handler) to end after the burst at hand. Outlives the port.
  const std::atomic<bool>* stop = nullptr;
};

/// What one of several ports walks of a capture. The port lays its packets out one behind the
/// other, as a NIC brings them to a worker's queue, where memory allows: among others' packets each
/// costs twice as much to fetch.
struct CapturePart {
  unsigned number = 0;                   ///< of the port, from 0
  std::vector<std::uint32_t> positions;  ///< of its packets, ascending
};

/// Returns the latest timestamp of so many loops (1 or more), in nanoseconds; 2^64 - 1 where it
/// does not fit into 64 bits.
std::uint64_t latest_timestamp_ns(const Capture& capture, std::uint32_t loops);

class ReplayPort final : public Port {
 public:
  /// Bytes of a packet that are offered at most; `length` is the smaller of this and what was
  /// captured. A capture whose wire lengths contradict it is corrected: `wire_length` is `length`
  /// or more.
  static constexpr std::size_t kOffered = 512;
  static_assert(kOffered >= kOfferedBytes);
  static constexpr std::size_t kHeadroom = 128;
  /// Time passes by at most this much (12 days) from one burst to the next, in empty bursts where
  /// the capture's gap is longer, so that differences of ticks keep their sign.
  static constexpr std::uint64_t kLongestStepMs = std::uint64_t{1} << 30;

  /// Error (usage): an option out of its range, or loops whose times, where they matter, go beyond
  /// 64 bits; all of them named. `output` may be none, else it outlives the port. Without a part it
  /// is the whole capture's only port.
  static Result<ReplayPort> create(const Capture& capture, const ReplayOptions& options,
                                   CaptureOutput* output = nullptr,
                                   std::optional<CapturePart> part = std::nullopt);

  LinkType link_type() const override { return link_type_; }
  /// `handle` is loop << 32 | position in the capture. Ends when time has reached the end of the
  /// whole capture; early when stopped or when the output has failed.
  bool receive(Burst& burst) override;
  /// The next packets at the pace of who asks: so many at most, 0 to 64, fewer where a walk of the
  /// capture ends. Sets no time, and looks at neither clock nor `options.stop`. False at the end.
  bool receive_up_to(Burst& burst, unsigned most);
  void send(const Burst& burst, std::uint64_t forward) override;
  void finish() override;

  /// True once `receive` has ended because of `options.stop`.
  bool stopped() const { return stopped_; }
  /// Time spent on the output so far, within `send`: no part of the packet's way.
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
  /// Returns how many of the next `most` packets may stand in one burst: they have one link type,
  /// and the clock adds the same to their timestamps. Most captures are uniform, and are not
  /// searched.
  unsigned alike(unsigned most) { return capture_->is_uniform() ? most : alike_of(most); }
  unsigned alike_of(unsigned most);
  std::uint64_t ms_at(std::uint64_t time_ns, std::uint64_t loop) const;
  std::uint64_t end_ms() const;
  bool is_at_end() const { return loop_ == options_.loops; }
  bool time_is_over() const;
  bool step_time(Burst& burst);
  std::uint64_t step_end() const;
  void fill(Burst& burst, unsigned most, std::uint64_t until);
  CaptureOutput::Packet leaving(const Burst& burst, unsigned i) const;

  const Capture* capture_;
  ReplayOptions options_;
  CaptureOutput* output_;
  std::optional<CapturePart> part_;
  std::vector<Capture::Packet> gathered_;  // those of the part
  std::vector<std::byte> gathered_bytes_;
  std::unique_ptr<Slot[]> slots_;
  LinkType link_type_;       // of the burst that was received last
  unsigned ring_ = 0;        // which burst's slots are next
  std::size_t next_ = 0;     // of `size()`
  std::uint64_t period_ns_;  // by which a loop advances time
  std::uint32_t loop_;
  std::uint64_t now_ms_ = 0;
  std::optional<std::chrono::steady_clock::time_point> start_;
  std::uint64_t output_ns_ = 0;
  bool stopped_ = false;
};

}  // namespace millrace
