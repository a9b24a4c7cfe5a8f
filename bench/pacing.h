// Sets the rate at which packets arrive at the ports of running workers, and the slice under which
// the packets' latency is recorded.
#pragma once

#include <atomic>
#include <chrono>
#include <climits>

#include "bench/arrivals.h"

namespace millrace::bench {

/// The rate and the slice. One thread changes them; ports read them. Must outlive the ports.
class Pacing {
 public:
  static constexpr unsigned kNone = UINT_MAX;
  /// Packets that may wait at each port.
  static constexpr unsigned kQueue = 4096;

  explicit Pacing(unsigned slices) : slices_(slices) {}

  /// Sets the time between two packets, over all ports; 0: packets arrive as fast as workers
  /// receive them.
  void set_ns_each(double ns) { ns_each_.store(ns, std::memory_order_relaxed); }
  double ns_each() const { return ns_each_.load(std::memory_order_relaxed); }
  /// Records the latency of packets sent from now on under `slice`, which must be below `slices()`;
  /// `kNone`: records no latency.
  void record(unsigned slice) { slice_.store(slice, std::memory_order_relaxed); }
  unsigned slice() const { return slice_.load(std::memory_order_relaxed); }
  unsigned slices() const { return slices_; }
  /// Returns the time in ns since this object was made. Any thread may call it.
  double now_ns() const {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  unsigned slices_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<double> ns_each_ = 0;
  std::atomic<unsigned> slice_ = kNone;
};

/// Times of packets from arrival to send: their distribution and mean.
class Latency {
 public:
  void add(double ns) {
    bins_.add(ns);
    sum_us_ += ns / 1000;
  }
  void add(const Latency& other) {
    bins_.add(other.bins_);
    sum_us_ += other.sum_us_;
  }
  std::uint64_t total() const { return bins_.total(); }
  /// Returns the mean in microseconds; needs at least one packet.
  double mean() const { return sum_us_ / static_cast<double>(total()); }
  double percentile(double percent) const { return bins_.percentile(percent); }

 private:
  LatencyBins bins_;
  double sum_us_ = 0;
};

struct SliceLatency {
  Latency all;
  Latency moving;  ///< latency of packets received while their shard was moving

  void add(double ns, bool is_moving) {
    all.add(ns);
    if (is_moving) moving.add(ns);
  }
};

}  // namespace millrace::bench
