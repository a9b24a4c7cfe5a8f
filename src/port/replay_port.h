// A capture as a port: its packets arrive in bursts, and what is forwarded is written to a file.
//
// One worker owns a replay port; several may walk one capture at a time. The capture outlives the
// port and is never written: packets are copied into the port's own memory, their first
// `kOffered` bytes that is, since no header that is read reaches further; on the way out the rest
// comes from the capture.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "port/capture.h"
#include "port/capture_writer.h"
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
  /// Capture clock only: a burst ends before a packet that is more than this many milliseconds
  /// later than its first, so that no packet's time is wrong by more.
  unsigned max_step_ms = 10;
  /// Set from outside (a signal handler) to end after the burst at hand. Outlives the port.
  const std::atomic<bool>* stop = nullptr;
};

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
  /// 64 bits; all of them named. `output` may be none.
  static Result<ReplayPort> create(const Capture& capture, const ReplayOptions& options,
                                   std::optional<CaptureWriter> output = std::nullopt);

  LinkType link_type() const override { return capture_->link_type(); }
  /// `handle` is loop << 32 | position in the capture. Ends early when stopped or when the output
  /// has failed.
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;

  /// True once `receive` has ended because of `options.stop`.
  bool stopped() const { return stopped_; }
  /// Time spent on the output so far, within `send`: no part of the packet's way.
  std::uint64_t output_ns() const { return output_ns_; }
  /// Ends the output file, if there is one. To be called once, at the end. Error (failed): it could
  /// not be written whole, and is gone.
  Result<void> finish();

 private:
  struct alignas(64) Slot {
    std::array<std::byte, kHeadroom + kOffered> bytes;
  };

  ReplayPort(const Capture& capture, const ReplayOptions& options,
             std::optional<CaptureWriter> output);

  bool ended();
  bool step_time(Burst& burst);
  void fill(Burst& burst);
  void write(const Burst& burst, unsigned i);

  const Capture* capture_;
  ReplayOptions options_;
  std::optional<CaptureWriter> output_;
  std::unique_ptr<Slot[]> slots_;
  unsigned ring_ = 0;  // which burst's slots are next
  std::size_t position_ = 0;
  std::uint32_t loop_ = 0;
  std::uint64_t period_ns_;  // by which a loop advances time
  std::uint64_t now_ms_ = 0;
  std::optional<std::chrono::steady_clock::time_point> start_;
  std::uint64_t output_ns_ = 0;
  bool stopped_ = false;
};

}  // namespace millrace
