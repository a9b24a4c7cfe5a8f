// Computes how long packets wait in a queue of limited length at which they arrive at a constant
// rate. Works on numbers, without a clock. One thread uses each object.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::bench {

/// A receive queue. Packet n, counted from 0, arrives `n * ns_each` after packet 0. A packet that
/// finds no room is lost.
class ArrivalQueue {
 public:
  /// `offered`: packets that arrive in all. `room`: packets that may wait, 1 or more.
  ArrivalQueue(std::uint64_t offered, double ns_each, unsigned room)
      : offered_(offered), ns_each_(ns_each), room_(room), runs_(room) {}

  /// Adds the packets that arrive until `ns` after the first packet; none if an earlier call had a
  /// later time. Counts packets taken out since the previous call as gone before any added packet
  /// arrives.
  void arrive(double ns) {
    const auto by_then = static_cast<std::uint64_t>(std::max(ns, 0.0) / ns_each_) + 1;
    const std::uint64_t came = std::max(std::min(by_then, offered_), arrived_) - arrived_;
    const auto stay = static_cast<unsigned>(std::min<std::uint64_t>(came, room_ - waiting_));
    if (stay > 0) enqueue(stay);
    arrived_ += came;
    lost_ += came - stay;
  }
  unsigned waiting() const { return waiting_; }
  /// Takes the first waiting packet out; there must be one. Returns the time of its arrival, in ns
  /// after the first of all packets.
  double take() {
    Run& run = runs_[first_];
    const double ns = static_cast<double>(run.next++) * ns_each_;
    if (--run.left == 0) {
      first_ = (first_ + 1) % runs_.size();
      --count_;
    }
    --waiting_;
    return ns;
  }

  /// Takes the first `count` waiting packets out, if their times are not wanted; so many must wait.
  void skip(unsigned count) {
    waiting_ -= count;
    while (count > 0) {
      Run& run = runs_[first_];
      const auto now = static_cast<unsigned>(std::min<std::uint64_t>(count, run.left));
      run.next += now;
      run.left -= now;
      count -= now;
      if (run.left != 0) return;
      first_ = (first_ + 1) % runs_.size();
      --count_;
    }
  }

  std::uint64_t offered() const { return offered_; }
  std::uint64_t arrived() const { return arrived_; }
  std::uint64_t lost() const { return lost_; }
  /// True if all packets have arrived and none waits.
  bool is_over() const { return arrived_ == offered_ && waiting_ == 0; }

 private:
  /// Waiting packets that arrived one after the other, with none lost in between.
  struct Run {
    std::uint64_t next = 0;
    std::uint64_t left = 0;
  };

  void enqueue(unsigned stay) {
    waiting_ += stay;
    if (count_ > 0) {
      Run& last = runs_[(first_ + count_ - 1) % runs_.size()];
      if (last.next + last.left == arrived_) {
        last.left += stay;
        return;
      }
    }
    runs_[(first_ + count_++) % runs_.size()] = {arrived_, stay};
  }

  std::uint64_t offered_;
  double ns_each_;
  unsigned room_;
  std::vector<Run> runs_;  // a ring; each run has a packet, so `room_` runs are enough
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  unsigned waiting_ = 0;
  std::uint64_t arrived_ = 0;
  std::uint64_t lost_ = 0;
};

/// Counts of packets by the time that they took, a bin for each microsecond. The last bin counts
/// all packets that took `kBeyond` microseconds or more.
class LatencyBins {
 public:
  static constexpr std::size_t kBeyond = 4096;

  void add(double ns) {
    const double us = std::clamp(ns / 1000, 0.0, static_cast<double>(kBeyond));
    ++counts_[static_cast<std::size_t>(us)];
  }
  void add(const LatencyBins& other) {
    for (std::size_t us = 0; us <= kBeyond; ++us) counts_[us] += other.counts_[us];
  }

  const std::vector<std::uint64_t>& counts() const { return counts_; }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts_) sum += count;
    return sum;
  }
  /// Returns the time in microseconds that `percent` % of the packets do not exceed, as if the
  /// packets of a bin were spread evenly over the bin; `kBeyond` if the time is `kBeyond` or more,
  /// 0 if there are no packets.
  double percentile(double percent) const {
    double left = percent / 100 * static_cast<double>(total());
    for (std::size_t us = 0; us < kBeyond; ++us) {
      const auto count = static_cast<double>(counts_[us]);
      if (count > 0 && left <= count) return static_cast<double>(us) + left / count;
      left -= count;
    }
    return total() == 0 ? 0 : static_cast<double>(kBeyond);
  }

 private:
  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(kBeyond + 1);
};

}  // namespace millrace::bench
