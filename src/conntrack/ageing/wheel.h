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
// Workers that share tables share the links, too, and each has slots of its own: an id is in the
// ring of the worker that filed it, and nobody else touches the links of a ring.
//
// Invariants:
//  1. Every id is in exactly one ring: a slot's, or its own alone (not filed).
//  2. Links are mutual: links[links[x].next].prev == x.
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

namespace millrace {

class Wheel final : public Ageing {
 public:
  static constexpr std::string_view kName = "wheel";
  static constexpr std::string_view kSummary =
      "timer wheel, deadlines read again when a slot fires; the default";
  static constexpr std::uint32_t kSlots = 4096;  // of each level

  static Result<AgeingOfWorkers> create(const AgeingConfig& config, unsigned workers) {
    const std::size_t links = config.ids + std::size_t{kHeads} * workers;
    auto mapped = Memory::map(links * sizeof(Link), config.pages);
    if (!mapped) return std::unexpected(mapped.error());
    const auto memory = std::make_shared<Memory>(std::move(*mapped));
    auto* const all = reinterpret_cast<Link*>(memory->data());
    for (std::uint32_t i = 0; i < links; ++i) all[i] = {i, i};
    AgeingOfWorkers wheels;
    for (unsigned worker = 0; worker < workers; ++worker) {
      wheels.push_back(std::unique_ptr<Wheel>(
          new Wheel(memory, config, static_cast<std::uint32_t>(links), worker)));
    }
    return wheels;
  }

  void born(ConnId id, Tick now, Tick deadline) override {
    advance(now);
    file(index(id), deadline);
  }

  void gone(ConnId id) override { unlink(index(id)); }

  bool sweep(Tick now, unsigned budget, Connections& connections) override {
    advance(now);
    const std::uint64_t due = elapsed_ms_ / interval_ms_;  // slots whose interval has passed whole
    std::uint64_t steps = std::uint64_t{kStepsPerLook} * std::max(budget, 1U);
    while (fired_ < due && budget > 0 && steps-- > 0) {
      unsigned looked = 0;
      if (fired_ % kSlots == 0) looked = look(coarse_head(fired_ / kSlots), budget, connections);
      if (looked == 0) looked = look(fine_head(fired_), budget, connections);
      budget -= looked;
      if (looked == 0) fired_ = next_to_fire(due);
    }
    return fired_ == due;
  }

  std::size_t memory_bytes() const override { return memory_->bytes(); }

  Result<void> check_invariants() const override {
    std::size_t filed = 0;
    for (std::uint32_t head = ids_; head < links_; ++head) {
      for (std::uint32_t at = link(head).next; at != head; at = link(at).next) {
        if (at >= ids_ || ++filed > ids_) return broken("1: a ring does not close");
      }
    }
    std::size_t alone = 0;
    for (std::uint32_t at = 0; at < links_; ++at) {
      if (link(link(at).next).prev != at) return broken("2: a link is not mutual");
      alone += at < ids_ && link(at).next == at;
    }
    if (filed + alone != ids_) return broken("1: an id is in no ring");
    return {};
  }

 private:
  struct Link {
    std::uint32_t next;
    std::uint32_t prev;
  };
  static constexpr std::uint32_t kHeads = 2 * kSlots;
  static constexpr unsigned kBatch = 16;
  static constexpr unsigned kStepsPerLook = 8;  // an empty slot is cheaper than a connection

  Wheel(std::shared_ptr<Memory> memory, const AgeingConfig& config, std::uint32_t links,
        unsigned worker)
      : memory_(std::move(memory)),
        ids_(static_cast<std::uint32_t>(config.ids)),
        links_(links),
        heads_(ids_ + kHeads * worker),
        interval_ms_(std::max(config.interval_ms, 1U)) {}

  static std::unexpected<Error> broken(std::string_view what) {
    return std::unexpected(Error{"wheel: " + std::string(what)});
  }

  void advance(Tick now) {
    if (!started_) now_ = now;
    started_ = true;
    if (now - now_ <= 0) return;
    elapsed_ms_ += now.ms - now_.ms;
    now_ = now;
  }

  Link& link(std::uint32_t at) const { return reinterpret_cast<Link*>(memory_->data())[at]; }

  void unlink(std::uint32_t at) {
    const Link l = link(at);
    link(l.prev).next = l.next;
    link(l.next).prev = l.prev;
    link(at) = {at, at};
  }

  // Slots are numbered from the beginning of time; heads stand behind the ids, worker by worker.
  std::uint32_t fine_head(std::uint64_t slot) const {
    return heads_ + static_cast<std::uint32_t>(slot % kSlots);
  }
  std::uint32_t coarse_head(std::uint64_t turn) const {
    return heads_ + kSlots + static_cast<std::uint32_t>(turn % kSlots);
  }

  /// The next slot that may hold anything, or `due`: long sleeps are skipped, not counted through.
  std::uint64_t next_to_fire(std::uint64_t due) const {
    if (fired_ < latest_fine_) return fired_ + 1;
    const std::uint64_t turn = fired_ / kSlots;
    return turn < latest_coarse_ ? std::min(due, (turn + 1) * kSlots) : due;
  }

  /// Files under the first slot that fires at or after the deadline, or the turn that it lies in.
  void file(std::uint32_t at, Tick deadline) {
    const std::int64_t left = std::max(deadline - now_, 0);
    const std::uint64_t when = elapsed_ms_ + static_cast<std::uint64_t>(left);
    const std::uint64_t slot = std::max((when + interval_ms_ - 1) / interval_ms_, fired_ + 1) - 1;
    if (slot < fired_ + kSlots) {
      latest_fine_ = std::max(latest_fine_, slot);
      return append(fine_head(slot), at);
    }
    const std::uint64_t turn = std::min(slot / kSlots, fired_ / kSlots + kSlots - 1);
    latest_coarse_ = std::max(latest_coarse_, turn);
    append(coarse_head(turn), at);
  }

  void append(std::uint32_t head, std::uint32_t at) {
    const std::uint32_t last = link(head).prev;
    link(at) = {head, last};
    link(last).next = at;
    link(head).prev = at;
  }

  /// Looks at some connections of a ring, records fetched together; returns how many.
  unsigned look(std::uint32_t head, unsigned budget, Connections& connections) {
    std::array<ConnId, kBatch> batch;
    unsigned count = 0;
    for (; count < std::min(budget, kBatch) && link(head).next != head; ++count) {
      batch[count] = ConnId{link(head).next};
      connections.prefetch(batch[count]);
      unlink(link(head).next);
    }
    for (const ConnId id : std::span(batch.data(), count)) {
      const Tick deadline = connections.deadline(id);
      if (deadline - now_ > 0) {
        file(index(id), deadline);
      } else {
        connections.expire(id);
      }
    }
    return count;
  }

  std::shared_ptr<Memory> memory_;  // all workers' links
  std::uint32_t ids_;
  std::uint32_t links_;
  std::uint32_t heads_;  // this worker's
  std::uint32_t interval_ms_;
  bool started_ = false;
  Tick now_;                       // the latest seen
  std::uint64_t elapsed_ms_ = 0;   // since the first seen; does not wrap
  std::uint64_t fired_ = 0;        // slots that have fired
  std::uint64_t latest_fine_ = 0;  // slot, and turn, beyond which nothing is filed
  std::uint64_t latest_coarse_ = 0;
};

}  // namespace millrace
