// A port with packets that arrive at a constant rate, however fast the worker is: like a NIC's
// receive queue, which drops packets when it is full. For one thread.
//
// A loss costs an arrival, not a packet of the capture: the next arrival that finds room gets the
// packet that the lost arrival would have had. Packets therefore follow each other in memory, as a
// NIC places them, and connections take turns as they do without loss.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "bench/arrivals.h"
#include "port/replay_port.h"

namespace millrace::bench {

/// Number and rate of the packets that arrive at a port, and the limits of the port.
struct Pace {
  std::uint64_t packets = 0;  ///< number of arrivals
  double ns_each = 1;         ///< nanoseconds between two arrivals
  unsigned queue = 1024;      ///< packets that may wait at the port
  unsigned burst = 32;        ///< packets a burst
};

/// `ClockType` is `CycleClock`, or a test's clock.
template <class ClockType>
class PacedPort final : public Port {
 public:
  /// `port` must repeat the capture as often as needed; `clock` must outlive the object.
  PacedPort(ReplayPort port, const Pace& pace, const ClockType& clock)
      : port_(std::move(port)),
        queue_(pace.packets, pace.ns_each, pace.queue),
        burst_(pace.burst),
        clock_(&clock) {}

  LinkType link_type() const override { return port_.link_type(); }
  /// Receives packets that have arrived. The first packet arrives at the first call.
  bool receive(Burst& burst) override {
    if (!start_) start_ = clock_->begin();
    const double ns = clock_->ns_since(*start_);
    burst.now = Tick{static_cast<std::uint32_t>(ns / 1e6)};
    queue_.arrive(ns);
    if (queue_.is_over()) return false;
    if (!port_.receive_up_to(burst, std::min(burst_, queue_.waiting()))) return false;
    if (burst.size == 0) return true;
    auto& arrived_ns = arrived_ns_[received_++ % arrived_ns_.size()];
    for (unsigned i = 0; i < burst.size; ++i) arrived_ns[i] = queue_.take();
    taken_ += burst.size;
    return true;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    if (burst.size == 0) return;
    const auto& arrived_ns = arrived_ns_[sent_++ % arrived_ns_.size()];
    const double ns = clock_->ns_since(*start_);
    for (; forward != 0; forward &= forward - 1)
      latency_.add(ns - arrived_ns[static_cast<unsigned>(std::countr_zero(forward))]);
  }

  std::uint64_t offered() const { return queue_.offered(); }
  std::uint64_t lost() const { return queue_.lost(); }
  std::uint64_t taken() const { return taken_; }
  /// Returns the times from arrival to send of forwarded packets.
  const LatencyBins& latency() const { return latency_; }

 private:
  ReplayPort port_;
  ArrivalQueue queue_;
  unsigned burst_;
  const ClockType* clock_;
  std::optional<std::uint64_t> start_;
  std::array<std::array<double, Burst::kMax>, std::size_t{2} * kBurstsInFlight> arrived_ns_;
  std::size_t received_ = 0;  // bursts with packets
  std::size_t sent_ = 0;      // bursts with packets
  std::uint64_t taken_ = 0;
  LatencyBins latency_;
};

}  // namespace millrace::bench
