// SYNs and INITs that arrived for a live connection, kept because only the answer shows whether the
// opposite side accepts a new connection.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "millrace/types.h"

namespace millrace {

/// Keeps the latest such SYN of up to 4096 connections; of an SCTP association, the latest INIT, or
/// INIT ACK that answers it. A SYN may replace the SYN of another connection; if that other
/// connection is then reopened, the tracker does not notice. Thread rule: any thread.
class RepeatedSyns {
 public:
  struct Syn {
    /// The sequence number after the SYN; of an INIT or INIT ACK the initiate tag.
    std::uint32_t next;
    /// Encoded as in `Segment`; of an INIT or INIT ACK a step of the handshake, below 16
    /// (tracker_associations.h).
    std::uint8_t window_scale;
  };

  RepeatedSyns() : slots_(std::make_unique<Slots>()) {
    for (auto& slot : *slots_) slot.store(kEmpty, std::memory_order_relaxed);
  }

  void note(ConnId id, Syn syn) {
    slot_of(id).store(of(id) | std::uint64_t{syn.window_scale} << 32 | syn.next,
                      std::memory_order_relaxed);
  }
  std::optional<Syn> find(ConnId id) const {
    const std::uint64_t slot = slot_of(id).load(std::memory_order_relaxed);
    if ((slot ^ of(id)) >> kIdShift != 0) return std::nullopt;
    return Syn{static_cast<std::uint32_t>(slot), static_cast<std::uint8_t>(slot >> 32 & 15)};
  }

 private:
  // The low 12 bits of an id pick its slot. A slot holds the other 20 bits from bit 36 on, the
  // window scale in bits 32 to 35, and the sequence number in the low 32 bits.
  static constexpr unsigned kSlotBits = 12;
  static constexpr unsigned kIdShift = 36;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // matches no id
  using Slots = std::array<std::atomic<std::uint64_t>, 1 << kSlotBits>;

  static std::uint64_t of(ConnId id) { return std::uint64_t{index(id) >> kSlotBits} << kIdShift; }
  std::atomic<std::uint64_t>& slot_of(ConnId id) const {
    return (*slots_)[index(id) % (1 << kSlotBits)];
  }

  std::unique_ptr<Slots> slots_;
};

}  // namespace millrace
