// `wheel`: a hierarchical timer wheel (Varghese and Lauck, SOSP 1987, scheme 7) of two levels. A
// turn is 4096 intervals. The fine level has a slot for each interval of the present turn and of
// the next one; the coarse level has 4096 slots of a turn each. With intervals of 10 ms a turn is
// 41 s and the coarse level 46 h; later deadlines wait in the farthest coarse slot. During a turn
// the sweeps move the connections of the next turn's coarse slot to fine slots, some with each
// sweep.
//
// A new connection goes into the slot of its deadline and stays there: packets move the deadline,
// not the timer. When the slot fires, the deadline is read again, and a connection that is not due
// goes into a later slot. `sooner` moves a connection to an earlier slot.
//
// Slack: no connection is removed before its deadline. An expired connection is removed at most one
// interval after its deadline, plus the delay if the budgets of `sweep` do not suffice. Without a
// call of `sooner`, a deadline that comes forward is noticed only when the slot fires.
//
// Slots are numbered from tick 0, so that they fire at the same ticks for all workers.
//
// Workers that share tables share the memory of the slots, too, but each worker has slots of its
// own: an id is in the slots of one worker at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "conntrack/ageing/ageing.h"
#include "conntrack/ageing/slots.h"

namespace millrace {

class Wheel final : public Ageing {
 public:
  static constexpr std::string_view kName = "wheel";
  static constexpr std::string_view kSummary =
      "timer wheel: reads the deadlines of a slot again when the slot fires; the default";
  static constexpr std::uint32_t kSlots = 4096;  // fine slots in a turn; also all coarse slots
  /// Returns the time in ms after its deadline for which a connection may stay, if budgets suffice.
  static std::uint32_t slack_ms(std::uint32_t interval_ms) { return interval_ms; }

  static Result<AgeingOfWorkers> create(const AgeingConfig& config, unsigned workers) {
    auto made =
        SlotMemory::create(config.ids, config.connections, kBothLevels, workers, config.pages);
    if (!made) return std::unexpected(made.error());
    const auto memory = std::make_shared<SlotMemory>(std::move(*made));
    AgeingOfWorkers wheels;
    for (unsigned worker = 0; worker < workers; ++worker)
      wheels.push_back(std::unique_ptr<Wheel>(new Wheel(memory, config)));
    return wheels;
  }

  void born(ConnId id, Tick now, Tick deadline) override {
    advance(now);
    file(id, deadline);
  }

  void approach(ConnId id) const override { slots_.prefetch_place(id); }

  /// Does nothing if the connection's slot fires early enough: the deadline is read then.
  void sooner(ConnId id, Tick now, Tick deadline) override {
    advance(now);
    if (fires_by(slots_.slot_of(id), deadline)) return;
    slots_.remove(id);
    file(id, deadline);
  }

  void gone(ConnId id) override { slots_.remove(id); }

  bool sweep(Tick now, unsigned budget, Connections& connections) override {
    advance(now);
    const std::uint64_t due = time_.ms() / interval_ms_;  // slots whose interval is over
    std::uint64_t steps = std::uint64_t{kStepsPerLook} * std::max(budget, 1U);
    while (fired_ < due && budget > 0 && steps-- > 0) {
      // After a long sleep the turn's coarse slot may still hold connections.
      unsigned scanned = scan(coarse_slot(fired_ / kSlots), budget, connections);
      if (scanned == 0) scanned = scan(fine_slot(fired_), budget, connections);
      budget -= scanned;
      if (scanned == 0) fired_ = next_to_fire(due);
    }
    const std::uint32_t next_turn = coarse_slot(fired_ / kSlots + 1);
    if (budget > 0) scan(next_turn, std::min(budget, kComeDown), connections);
    slots_.prefetch(fine_slot(fired_));
    return fired_ == due && slots_.is_empty(next_turn);
  }

  std::size_t memory_bytes() const override { return slots_.memory_bytes(); }
  Result<void> check_invariants() const override { return slots_.check_invariants(); }

 private:
  static constexpr std::uint32_t kFineSlots = 2 * kSlots;
  static constexpr std::uint32_t kBothLevels = kFineSlots + kSlots;
  static constexpr unsigned kComeDown = 16;  // connections that a sweep moves to fine slots
  /// Slots that a sweep may pass for each connection of its budget: an empty slot is cheap.
  static constexpr unsigned kStepsPerLook = 8;

  Wheel(std::shared_ptr<SlotMemory> memory, const AgeingConfig& config)
      : slots_(std::move(memory), kBothLevels), interval_ms_(std::max(config.interval_ms, 1U)) {}

  void advance(Tick now) {
    const bool starts = !time_.has_started();
    time_.advance(now);
    if (starts) fired_ = time_.ms() / interval_ms_;
  }

  static std::uint32_t fine_slot(std::uint64_t slot) {
    return static_cast<std::uint32_t>(slot % kFineSlots);
  }
  static std::uint32_t coarse_slot(std::uint64_t turn) {
    return kFineSlots + static_cast<std::uint32_t>(turn % kSlots);
  }

  /// Returns the next slot that may hold a connection, or `due`, so that a sweep after a long sleep
  /// does not pass every slot.
  std::uint64_t next_to_fire(std::uint64_t due) const {
    if (fired_ < latest_fine_) return fired_ + 1;
    const std::uint64_t turn = fired_ / kSlots;
    return turn < latest_coarse_ ? std::min(due, (turn + 1) * kSlots) : due;
  }

  /// Returns the first slot that fires at or after the deadline.
  std::uint64_t slot_for(Tick deadline) const {
    const std::int64_t left = std::max(deadline - time_.now(), 0);
    const std::uint64_t when = time_.ms() + static_cast<std::uint64_t>(left);
    return std::max((when + interval_ms_ - 1) / interval_ms_, fired_ + 1) - 1;
  }

  /// True if slot `filed` fires, or its connections are moved to fine slots, no later than the slot
  /// of `deadline` fires.
  bool fires_by(std::uint32_t filed, Tick deadline) const {
    const std::uint64_t slot = slot_for(deadline);
    if (filed < kFineSlots)
      return (filed + kFineSlots - fired_ % kFineSlots) % kFineSlots <= slot - fired_;
    const std::uint64_t turn = fired_ / kSlots;
    return (filed - kFineSlots + kSlots - turn % kSlots) % kSlots <= slot / kSlots - turn;
  }

  /// Puts a connection into the fine slot of its deadline or, if the deadline is after the next
  /// turn, into a coarse slot.
  void file(ConnId id, Tick deadline) {
    const std::uint64_t slot = slot_for(deadline);
    if (slot / kSlots < fired_ / kSlots + 2) {
      latest_fine_ = std::max(latest_fine_, slot);
      return slots_.append(fine_slot(slot), id);
    }
    const std::uint64_t turn = std::min(slot / kSlots, fired_ / kSlots + kSlots - 1);
    latest_coarse_ = std::max(latest_coarse_, turn);
    slots_.append(coarse_slot(turn), id);
  }

  /// Checks up to `budget` connections of a slot, `kMostAtOnce` at most; returns how many.
  unsigned scan(std::uint32_t slot, unsigned budget, Connections& connections) {
    std::array<ConnId, kMostAtOnce> ids;
    const unsigned count = slots_.take(slot, std::span(ids).first(std::min(budget, kMostAtOnce)));
    for (unsigned i = 0; i < count; ++i) slots_.prefetch_place(ids[i]);
    expire_due(std::span(ids).first(count), time_.now(), connections,
               [this](ConnId id, Tick deadline) { file(id, deadline); });
    return count;
  }

  Slots slots_;
  std::uint32_t interval_ms_;
  Elapsed time_;
  std::uint64_t fired_ = 0;          // number of slots that have fired, counted from tick 0
  std::uint64_t latest_fine_ = 0;    // the latest slot that was ever put on the fine level
  std::uint64_t latest_coarse_ = 0;  // the latest turn that was ever put on the coarse level
};

}  // namespace millrace
