// Keeps apart those who poll a memif and DPDK's thread that changes it. Linux only.
//
// What a memif's other end does, as to connect or to end, DPDK (22.11) hears on its interrupt
// thread, which then takes rings and shared memory away under whoever is receiving or sending just
// then. So that thread waits, between hearing of something and doing it, until all have left; it
// is met where it waits for events, in `epoll_wait`, which this file defines for all of the
// process. So it does `sendmsg`: where the other end has gone again before it was greeted, the
// driver closes what that thread still waits for, which DPDK answers by ending the process. To that
// thread the greeting is sent; that nobody is there it hears next, and takes leave in order.
#pragma once

#include <atomic>

namespace millrace {

/// Of one queue; used by one thread at a time, made and destroyed by any.
class alignas(64) Passage {
 public:
  Passage();
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  /// False: DPDK's thread is doing something, with a memif for some microseconds. Else until
  /// `leave` nothing is.
  bool enter();
  void leave() { is_inside_.store(false, std::memory_order_release); }

 private:
  friend class ControlGate;
  std::atomic<bool> is_inside_ = false;
};

}  // namespace millrace
