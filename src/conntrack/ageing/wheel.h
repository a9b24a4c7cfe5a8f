// `wheel`: a hierarchical timer wheel (Varghese and Lauck, SOSP 1987, scheme 7) of two levels: 4096
// slots of one interval each, and 4096 of one turn of those each. At 10 ms that is 41 s and 46 h;
// later deadlines wait in the farthest slot.
//
// A connection is filed under its deadline when it is born and then left alone: packets move the
// deadline, not the timer. When the slot fires, the deadline is read again; what is not due is
// filed anew.
//
// Slack: no connection is removed before its deadline, and an idle one at most one interval after
// it, plus what the budget of `sweep` leaves for later.
//
// Slots are numbered from tick 0, so that they fire at the same ticks for all workers.
//
// Workers that share tables share the rings' memory, too, and each has slots of its own: an id is
// in the ring of the worker that filed it, and nobody else touches the links of a ring.
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
#include "conntrack/rings.h"

namespace millrace {

class Wheel final : public Ageing {
 public:
  static constexpr std::string_view kName = "wheel";
  static constexpr std::string_view kSummary =
      "timer wheel, deadlines read again when a slot fires; the default";
  static constexpr std::uint32_t kSlots = 4096;  // of each level
  /// How long after its deadline a connection may still be there, if budgets suffice.
  static std::uint32_t slack_ms(std::uint32_t interval_ms) { return interval_ms; }

  static Result<AgeingOfWorkers> create(const AgeingConfig& config, unsigned workers) {
    auto made = Rings::create(config.ids, std::size_t{kRings} * workers, config.pages);
    if (!made) return std::unexpected(made.error());
    const auto rings = std::make_shared<Rings>(std::move(*made));
    AgeingOfWorkers wheels;
    for (unsigned worker = 0; worker < workers; ++worker)
      wheels.push_back(std::unique_ptr<Wheel>(new Wheel(rings, config, worker)));
    return wheels;
  }

  void born(ConnId id, Tick now, Tick deadline) override {
    advance(now);
    file(id, deadline);
  }

  void gone(ConnId id) override { rings_->unlink(id); }

  bool sweep(Tick now, unsigned budget, Connections& connections) override {
    advance(now);
    const std::uint64_t due = time_.ms() / interval_ms_;  // slots whose interval has passed whole
    std::uint64_t steps = std::uint64_t{kStepsPerLook} * std::max(budget, 1U);
    while (fired_ < due && budget > 0 && steps-- > 0) {
      unsigned looked = 0;
      if (fired_ % kSlots == 0) looked = look(coarse_ring(fired_ / kSlots), budget, connections);
      if (looked == 0) looked = look(fine_ring(fired_), budget, connections);
      budget -= looked;
      if (looked == 0) fired_ = next_to_fire(due);
    }
    return fired_ == due;
  }

  std::size_t memory_bytes() const override { return rings_->memory_bytes(); }
  Result<void> check_invariants() const override { return rings_->check_invariants(); }

 private:
  static constexpr std::uint32_t kRings = 2 * kSlots;
  static constexpr unsigned kBatch = 16;
  static constexpr unsigned kStepsPerLook = 8;  // an empty slot is cheaper than a connection

  Wheel(std::shared_ptr<Rings> rings, const AgeingConfig& config, unsigned worker)
      : rings_(std::move(rings)),
        first_ring_(kRings * worker),
        interval_ms_(std::max(config.interval_ms, 1U)) {}

  void advance(Tick now) {
    const bool starts = !time_.has_started();
    time_.advance(now);
    if (starts) fired_ = time_.ms() / interval_ms_;
  }

  std::uint32_t fine_ring(std::uint64_t slot) const {
    return first_ring_ + static_cast<std::uint32_t>(slot % kSlots);
  }
  std::uint32_t coarse_ring(std::uint64_t turn) const {
    return first_ring_ + kSlots + static_cast<std::uint32_t>(turn % kSlots);
  }

  /// The next slot that may hold anything, or `due`: long sleeps are skipped, not counted through.
  std::uint64_t next_to_fire(std::uint64_t due) const {
    if (fired_ < latest_fine_) return fired_ + 1;
    const std::uint64_t turn = fired_ / kSlots;
    return turn < latest_coarse_ ? std::min(due, (turn + 1) * kSlots) : due;
  }

  /// Files under the first slot that fires at or after the deadline, or the turn that it lies in.
  void file(ConnId id, Tick deadline) {
    const std::int64_t left = std::max(deadline - time_.now(), 0);
    const std::uint64_t when = time_.ms() + static_cast<std::uint64_t>(left);
    const std::uint64_t slot = std::max((when + interval_ms_ - 1) / interval_ms_, fired_ + 1) - 1;
    if (slot < fired_ + kSlots) {
      latest_fine_ = std::max(latest_fine_, slot);
      return rings_->append(fine_ring(slot), id);
    }
    const std::uint64_t turn = std::min(slot / kSlots, fired_ / kSlots + kSlots - 1);
    latest_coarse_ = std::max(latest_coarse_, turn);
    rings_->append(coarse_ring(turn), id);
  }

  /// Looks at some connections of a ring, records fetched together; returns how many.
  unsigned look(std::uint32_t ring, unsigned budget, Connections& connections) {
    std::array<ConnId, kBatch> batch;
    unsigned count = 0;
    for (; count < std::min(budget, kBatch) && !rings_->is_empty(ring); ++count) {
      batch[count] = rings_->first(ring);
      connections.prefetch(batch[count]);
      rings_->unlink(batch[count]);
    }
    expire_due(std::span(batch).first(count), time_.now(), connections,
               [this](ConnId id, Tick deadline) { file(id, deadline); });
    return count;
  }

  std::shared_ptr<Rings> rings_;  // all workers'
  std::uint32_t first_ring_;      // of this worker
  std::uint32_t interval_ms_;
  Elapsed time_;
  std::uint64_t fired_ = 0;        // slots that have fired
  std::uint64_t latest_fine_ = 0;  // slot, and turn, beyond which nothing is filed
  std::uint64_t latest_coarse_ = 0;
};

}  // namespace millrace
