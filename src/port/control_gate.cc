#include "port/control_gate.h"

#include <rte_config.h>  // first of DPDK's

#include <rte_interrupts.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <mutex>
#include <vector>

namespace millrace {

class ControlGate {
 public:
  void add(Passage* passage) {
    const std::lock_guard guard(mutex_);
    passages_.push_back(passage);
  }
  void remove(Passage* passage) {
    const std::lock_guard guard(mutex_);
    std::erase(passages_, passage);
  }

  bool is_closed() const { return is_closed_; }
  void open() { is_closed_ = false; }
  /// Keeps workers from entering, and waits until none is between `enter` and `leave`. Yields
  /// meanwhile, as such a worker may be waiting for this processor.
  void close() {
    const std::lock_guard guard(mutex_);
    is_closed_ = true;
    for (const Passage* const passage : passages_) {
      while (passage->is_inside_) ::sched_yield();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Passage*> passages_;
  std::atomic<bool> is_closed_ = false;
};

namespace {

ControlGate& gate() {
  static ControlGate& one = *new ControlGate;  // DPDK's thread outlives `main`
  return one;
}

}  // namespace

Passage::Passage() { gate().add(this); }
Passage::~Passage() { gate().remove(this); }

bool Passage::enter() {
  is_inside_ = true;
  if (!gate().is_closed()) return true;
  leave();
  return false;
}

}  // namespace millrace

/// Replaces libc's `epoll_wait` for the process. Only DPDK's interrupt thread sees a difference.
extern "C" int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  const bool changes_devices = rte_thread_is_intr() != 0;
  if (changes_devices) millrace::gate().open();  // the events of the last call have been handled
  const int count = ::epoll_pwait(epoll, events, most, timeout_ms, nullptr);
  if (changes_devices && count > 0) millrace::gate().close();
  return count;
}

/// Replaces libc's `sendmsg` for the process. Only DPDK's interrupt thread sees a difference.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  mmsghdr one{.msg_hdr = *message, .msg_len = 0};
  if (::sendmmsg(socket, &one, 1, flags) == 1) return one.msg_len;
  if ((errno != EPIPE && errno != ECONNRESET) || rte_thread_is_intr() == 0) return -1;
  ssize_t length = 0;
  for (std::size_t n = 0; n < message->msg_iovlen; ++n)
    length += static_cast<ssize_t>(message->msg_iov[n].iov_len);
  return length;
}
