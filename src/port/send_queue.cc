#include "port/send_queue.h"

#include <rte_config.h>  // first of DPDK's

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>

#include "core/burst.h"

namespace millrace {

/// Counts frames as accepted, or as not accepted although they have been counted.
void SendQueue::count_of(std::span<rte_mbuf* const> frames, bool accepted) const {
  if (by_link_.empty()) [[likely]]
    return;
  for (const rte_mbuf* frame : frames) {
    Counter& of_link = by_link_[frame->port & 0xff];
    accepted ? of_link.add(1) : of_link.subtract(1);
  }
}

unsigned SendQueue::send_now(std::span<rte_mbuf*> frames) const {
  std::uint16_t sent = 0;
  count_of(frames, true);  // now: the driver frees the frames that it accepts
  if (passage_ == nullptr || passage_->enter()) {
    sent =
        rte_eth_tx_burst(device_, queue_, frames.data(), static_cast<std::uint16_t>(frames.size()));
    if (passage_ != nullptr) passage_->leave();
  }
  const auto left = frames.subspan(sent);
  count_of(left, false);
  if (!left.empty()) rte_pktmbuf_free_bulk(left.data(), static_cast<unsigned>(left.size()));
  return static_cast<unsigned>(left.size());
}

/// Sends all waiting frames. The caller holds the lock.
unsigned SendQueue::send_waiting() {
  unsigned lost = 0;
  for (std::size_t at = 0; at < waiting_.size(); at += Burst::kMax)
    lost += send_now(
        std::span(waiting_).subspan(at, std::min<std::size_t>(Burst::kMax, waiting_.size() - at)));
  waiting_.clear();
  return lost;
}

unsigned SendQueue::send(std::span<rte_mbuf*> frames) {
  if (lock_ == nullptr) return frames.empty() ? 0 : send_now(frames);
  if (frames.empty() && waiting_.empty()) return 0;
  std::unique_lock guard(*lock_, std::try_to_lock);
  if (!guard && waiting_.size() + frames.size() <= kWaitMost) {
    waiting_.insert(waiting_.end(), frames.begin(), frames.end());
    return 0;
  }
  if (!guard) guard.lock();
  const unsigned lost = send_waiting();
  return lost + (frames.empty() ? 0 : send_now(frames));
}

unsigned SendQueue::drain() {
  if (waiting_.empty()) return 0;
  const std::lock_guard guard(*lock_);
  return send_waiting();
}

}  // namespace millrace
