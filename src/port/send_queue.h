// A worker's access to a send queue of one of DPDK's devices: the worker's own queue, or one that
// several workers share. A worker that finds a shared queue in use puts its frames aside and goes
// on, because sending through the kernel takes long.
//
// One worker uses a `SendQueue`. Frames are DPDK's mbufs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/counter.h"
#include "port/control_gate.h"

struct rte_mbuf;

namespace millrace {

class alignas(64) SendQueue {
 public:
  /// Largest number of frames that may wait; a worker with more frames waits for the queue.
  static constexpr std::size_t kWaitMost = 512;

  SendQueue(std::uint16_t device, std::uint16_t queue) : device_(device), queue_(queue) {}
  /// Makes the queue a shared one: each worker uses a copy of this object with the same lock, which
  /// must outlive the copies.
  void share(std::mutex& lock) { lock_ = &lock; }
  /// Makes the queue a memif's: frames that are sent while DPDK's interrupt thread handles an event
  /// are lost (control_gate.h). The passage must belong to this copy alone, and outlive it.
  void go_through(Passage& passage) { passage_ = &passage; }
  /// Counts the frames that the device accepts by their links, which their `Devices::kOfLink` marks
  /// name. The counters must belong to this copy alone, and outlive it.
  void count(std::span<Counter> by_link) { by_link_ = by_link; }

  /// Sends the waiting frames and then `frames`, one burst at most, or puts `frames` aside. Returns
  /// the number of frames that the device did not accept; those are freed.
  unsigned send(std::span<rte_mbuf*> frames);
  /// Sends the waiting frames; waits for the lock. Returns the number of frames that the device did
  /// not accept; those are freed.
  unsigned drain();
  bool has_waiting() const { return !waiting_.empty(); }

 private:
  unsigned send_now(std::span<rte_mbuf*> frames) const;
  void count_of(std::span<rte_mbuf* const> frames, bool accepted) const;
  unsigned send_waiting();

  std::uint16_t device_;
  std::uint16_t queue_;
  std::mutex* lock_ = nullptr;  // null: the queue is not shared
  Passage* passage_ = nullptr;  // null: the device is not a memif
  std::span<Counter> by_link_;  // empty: nothing is counted
  std::vector<rte_mbuf*> waiting_;
};

}  // namespace millrace
