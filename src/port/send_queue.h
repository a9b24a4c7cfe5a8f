// Where a worker's frames go out: a send queue of one of DPDK's devices, its own or one that
// several workers take turns at. Those that find it in use wait aside, so that the worker goes on
// with others: through the kernel, sending takes long.
//
// One worker uses it; what its frames were called are DPDK's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "port/control_gate.h"

struct rte_mbuf;

namespace millrace {

class alignas(64) SendQueue {
 public:
  /// Frames that wait, at most; with more the worker waits, too.
  static constexpr std::size_t kWaitMost = 512;

  SendQueue(std::uint16_t device, std::uint16_t queue) : device_(device), queue_(queue) {}
  /// Others use it, too, each a copy with that lock, which outlives it.
  void share(std::mutex& lock) { lock_ = &lock; }
  /// What is sent while that is closed is lost. It outlives this, and is of this one alone.
  void go_through(Passage& passage) { passage_ = &passage; }

  /// Sends those that wait, and then these, a burst of them at most, or has them wait. How many
  /// were not taken, and are freed.
  unsigned send(std::span<rte_mbuf*> frames);
  /// Sends those that wait, whoever uses it. The same.
  unsigned drain();
  bool has_waiting() const { return !waiting_.empty(); }

 private:
  unsigned send_now(std::span<rte_mbuf*> frames) const;
  unsigned send_waiting();

  std::uint16_t device_;
  std::uint16_t queue_;
  std::mutex* lock_ = nullptr;  // null: nobody else uses it
  Passage* passage_ = nullptr;  // null: it is always open
  std::vector<rte_mbuf*> waiting_;
};

}  // namespace millrace
