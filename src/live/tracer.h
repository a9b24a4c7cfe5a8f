// Copies packets to be shown to a user, as they arrived and as they left.
//
// One worker records, and never waits: a copy for which there is no room is counted as lost. One
// other thread takes the copies.
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
  static constexpr std::size_t kMost = 2048;  ///< most bytes of a packet that are kept

  std::uint64_t time_ns = 0;  ///< since 1970
  unsigned link = 0;          ///< link on which the packet arrived or left
  bool sent = false;          ///< true: the packet as it left; false: as it arrived
  Verdict verdict = Verdict::tracked;
  Zone customer = 0;  ///< behind a tunnel: whose packet it is; 0: nobody's
  std::uint32_t wire_length = 0;
  std::uint16_t length = 0;
  std::array<std::byte, kMost> bytes;

  std::span<const std::byte> data() const { return {bytes.data(), length}; }
};

class Tracer {
 public:
  /// Number of copies that may wait: for their packet to be served, or to be taken.
  static constexpr unsigned kRoom = 4095;

  /// Makes a tracer. `hides_sources`: functions rewrite sources, so a reply shows its originator
  /// only once it is served. Errors: failed (no memory).
  static Result<std::unique_ptr<Tracer>> create(const ConnectionFilter& filter, bool hides_sources);

  /// @name Called by the worker
  /// @{
  /// Records the packets that may match, of a burst that has arrived and whose keys are in lanes.
  void received(const Burst& burst);
  /// Drops the copy of a packet that this worker does not serve: the worker that gets the packet
  /// records it.
  void forget(Handle packet);
  /// Records those packets of the burst after they have been served. Those with their bit in
  /// `forward` set leave as `out` says.
  void served(const Burst& burst, std::uint64_t packets, std::uint64_t forward,
              std::span<const Outgoing> out);
  /// @}

  /// Returns the next copy, or null. The copy is valid until the next call.
  const TracedPacket* take();
  std::uint64_t lost() const { return lost_.value(); }

 private:
  Tracer(const ConnectionFilter& filter, bool hides_sources, PointerRing free, PointerRing full)
      : filter_(filter),
        hides_sources_(hides_sources),
        free_(std::move(free)),
        full_(std::move(full)) {}

  TracedPacket* slot();
  void give(TracedPacket* packet);
  void keep(TracedPacket& slot, std::span<const std::byte> bytes, std::uint32_t wire_length) const;

  struct Pending {
    Handle handle;
    TracedPacket* packet;
    bool is_sure;  // true: the packet matches, whatever is known once it is served
  };

  ConnectionFilter filter_;
  bool hides_sources_;
  std::vector<std::unique_ptr<TracedPacket>> all_;
  PointerRing free_;  // empty copies, from the taking thread to the worker
  PointerRing full_;  // filled copies, from the worker to the taking thread
  // Used by the worker:
  std::vector<Pending> pending_;
  std::vector<TracedPacket*> spare_;
  // Used by the thread that takes the copies:
  TracedPacket* taken_ = nullptr;
  Counter lost_;
};

}  // namespace millrace
