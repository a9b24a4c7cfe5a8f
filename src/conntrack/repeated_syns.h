// Keeps SYNs that meet a living connection until they are answered: only the answer shows whether
// the other end accepts another connection.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "millrace/types.h"

namespace millrace {

/// Keeps the last such SYN of a few thousand connections. A newer SYN may replace that of another
/// connection, whose reopening is then not followed. Thread rule: any thread.
class RepeatedSyns {
 public:
  struct Syn {
    std::uint32_t next;  ///< the sequence number behind it
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
  // A slot's number is the lower part of an id; the rest of it stands above the SYN.
  static constexpr unsigned kSlotBits = 12;
  static constexpr unsigned kIdShift = 36;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // of no id
  using Slots = std::array<std::atomic<std::uint64_t>, 1 << kSlotBits>;

  static std::uint64_t of(ConnId id) { return std::uint64_t{index(id) >> kSlotBits} << kIdShift; }
  std::atomic<std::uint64_t>& slot_of(ConnId id) const {
    return (*slots_)[index(id) % (1 << kSlotBits)];
  }

  std::unique_ptr<Slots> slots_;
};

}  // namespace millrace
