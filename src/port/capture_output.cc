#include "port/capture_output.h"

#include <algorithm>
#include <utility>

namespace millrace {

CaptureOutput::CaptureOutput(CaptureWriter writer, unsigned ports)
    : writer_(std::move(writer)), ports_(ports) {}

void CaptureOutput::write(unsigned port, std::span<const Packet> packets,
                          std::uint64_t complete_up_to) {
  if (ports_.size() == 1) {
    for (const Packet& packet : packets) put(packet);
    return;
  }
  std::unique_lock lock(mutex_);
  PortState& own = ports_[port];
  for (const Packet& packet : packets) {
    own.waiting.push_back({packet.order,
                           packet.timestamp_ns,
                           packet.wire_length,
                           {packet.head.begin(), packet.head.end()},
                           packet.tail,
                           packet.link});
  }
  own.complete_up_to = complete_up_to;
  write_what_is_next();
  // One port always goes on (invariant 3), so this wait ends.
  written_.wait(lock, [&own] { return own.waiting.size() <= kMostWaiting; });
}

void CaptureOutput::end(unsigned port) {
  const std::lock_guard lock(mutex_);
  ports_[port].complete_up_to = UINT64_MAX;
  written_.notify_all();  // before `write_what_is_next`, which may run out of memory
  write_what_is_next();
}

Result<void> CaptureOutput::finish() { return writer_.finish(); }

void CaptureOutput::put(const Packet& packet) {
  writer_.write(packet.timestamp_ns, packet.wire_length, packet.head, packet.tail, packet.link);
  if (writer_.failed()) failed_.store(true, std::memory_order_relaxed);
}

/// True if no other port can still write a packet that precedes this port's first waiting packet.
bool CaptureOutput::is_next(unsigned port) const {
  const std::uint64_t order = ports_[port].waiting.front().order;
  return std::ranges::all_of(ports_, [order](const PortState& other) {
    return other.waiting.empty() ? other.complete_up_to > order
                                 : other.waiting.front().order >= order;
  });
}

void CaptureOutput::write_what_is_next() {
  for (bool more = true; more;) {
    more = false;
    for (unsigned port = 0; port < ports_.size(); ++port) {
      auto& waiting = ports_[port].waiting;
      while (!waiting.empty() && is_next(port)) {
        const Waiting& first = waiting.front();
        put({first.order, first.timestamp_ns, first.wire_length, first.head, first.tail,
             first.link});
        waiting.pop_front();
        more = true;
      }
    }
  }
  written_.notify_all();
}

}  // namespace millrace
