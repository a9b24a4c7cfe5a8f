// Copies of the packets that somebody wants to see: as they came, and as they left.
//
// One worker records, and never waits: what finds no room is counted. One other thread takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/burst.h"
#include "core/counter.h"
#include "core/outgoing.h"
#include "live/filter.h"
#include "port/ring.h"

namespace millrace {

struct TracedPacket {
  static constexpr std::size_t kMost = 2048;  ///< bytes that are kept

  std::uint64_t time_ns = 0;  ///< since 1970
  unsigned link = 0;          ///< on which it came, or left
  bool sent = false;          ///< as it left
  Verdict verdict = Verdict::tracked;
  std::uint32_t wire_length = 0;
  std::uint16_t length = 0;
  std::array<std::byte, kMost> bytes;

  std::span<const std::byte> data() const { return {bytes.data(), length}; }
};

class Tracer {
 public:
  /// Packets that may wait to be taken, or to leave.
  static constexpr unsigned kRoom = 4095;

  /// Errors (failed): no memory.
  static Result<std::unique_ptr<Tracer>> create(const ConnectionFilter& filter);

  /// @name The worker
  /// @{
  /// The burst's packets have come, `link_of(handle)` says where; its keys are filed.
  void received(const Burst& burst, const std::function<unsigned(Handle)>& link_of);
  /// A packet that was received goes to another worker, which will have received it.
  void forget(Handle packet);
  /// And have been served: those whose bit in `forward` is set leave as `out` says.
  void served(const Burst& burst, std::uint64_t forward, std::span<const Outgoing> out);
  /// @}

  /// The next one, or null; it is the tracer's again with the next call.
  const TracedPacket* take();
  std::uint64_t lost() const { return lost_.value(); }

 private:
  Tracer(const ConnectionFilter& filter, PointerRing free, PointerRing full)
      : filter_(filter), free_(std::move(free)), full_(std::move(full)) {}

  TracedPacket* slot();
  void give(TracedPacket* packet);
  void keep(TracedPacket& slot, std::span<const std::byte> bytes, std::uint32_t wire_length) const;

  struct Pending {
    Handle handle;
    TracedPacket* packet;
    bool is_sure;  // to be wanted, whatever serving it shows
  };

  ConnectionFilter filter_;
  std::vector<std::unique_ptr<TracedPacket>> all_;
  PointerRing free_;  // from the other thread to the worker
  PointerRing full_;  // and back
  // The worker's:
  std::vector<Pending> pending_;
  std::vector<TracedPacket*> spare_;
  // The other thread's:
  TracedPacket* taken_ = nullptr;
  Counter lost_;
};

}  // namespace millrace
