// Keeps DPDK's interrupt thread from changing a memif while a worker polls it. Linux only.
//
// DPDK (22.11) handles the events of a memif's other end, such as connect and disconnect, on its
// interrupt thread. That thread unmaps rings and shared memory even while a worker receives or
// sends by them. So the interrupt thread must wait, between hearing of an event and handling it,
// until no worker receives or sends by a memif. The place to make it wait is its call of
// `epoll_wait`, which this file defines for the whole process.
//
// This file also defines `sendmsg`. If the other end disconnects before the driver has sent its
// greeting, the driver closes a descriptor that the interrupt thread still waits for, and DPDK then
// ends the process. Therefore `sendmsg` reports success to the interrupt thread in that case. The
// driver sees the disconnect at the next event, and cleans up in order.
#pragma once

#include <atomic>

namespace millrace {

/// Shows whether a worker is receiving or sending by one queue: the interrupt thread waits
/// meanwhile. One thread at a time uses a passage; any thread may make and destroy it.
class alignas(64) Passage {
 public:
  Passage();
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  /// Begins receiving or sending. False: it must not begin, as the interrupt thread is handling an
  /// event, which takes some microseconds for a memif. After true, no event is handled until
  /// `leave`.
  bool enter();
  void leave() { is_inside_.store(false, std::memory_order_release); }

 private:
  friend class ControlGate;
  std::atomic<bool> is_inside_ = false;
};

}  // namespace millrace
