// Public ends of forwards that a reload has taken away. They rest for 120 s: no customer gets them
// but the one that had them (RFC 6888, REQ-8).
//
// One thread makes the list by `find`. Then workers may call `keeps` at any time, also while that
// thread calls `begin`.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/elapsed.h"
#include "function/nat/forwards.h"
#include "millrace/types.h"

namespace millrace {

class GoneForwards {
 public:
  static constexpr std::uint32_t kRestMs = 120'000;

  /// `was`: the forwards by the settings before, with the list `before` of the ends that were gone
  /// then; `is`: the present forwards.
  void find(const NatForwards& was, const GoneForwards& before, const NatForwards& is) {
    const State state = before.state_.load(std::memory_order_acquire);
    std::vector<NatForward> gone;
    const auto add = [&](const NatForwards& all) {
      for (const NatForward& one : all.all()) {
        if (is.to(one.address, one.port, one.protocol) == nullptr) gone.push_back(one);
      }
    };
    add(was);
    state_ = gone.empty() ? state : State::waits;
    since_ = before.since_;
    if (state != State::over) add(before.all_);
    all_ = NatForwards(std::move(gone));
  }

  /// Begins the rest of ends that `find` has added. Until then no time ends it.
  void begin(Tick now) {
    if (state_.load(std::memory_order_relaxed) != State::waits) return;
    since_ = now;
    state_.store(State::rests, std::memory_order_release);
  }

  bool is_empty() const { return all_.all().empty(); }
  /// True if the customer must not get that end yet.
  bool keeps(const AddressV4& address, std::uint16_t port, std::uint8_t protocol,
             CustomerNumber customer, Tick now) const {
    if (is_empty()) return false;
    const State state = state_.load(std::memory_order_acquire);
    if (state == State::over) return false;
    if (state == State::rests && elapsed_ms(since_, now) >= kRestMs) {
      state_.store(State::over, std::memory_order_release);
      return false;
    }
    const NatForward* const was = all_.to(address, port, protocol);
    return was != nullptr && was->customer != customer;
  }
  /// True if the whole address was a forward.
  bool has_whole(const AddressV4& address) const {
    const NatForward* const was = all_.to(address, 0, 0);
    return was != nullptr && was->is_whole();
  }

 private:
  enum class State : std::uint8_t { waits, rests, over };

  NatForwards all_;
  Tick since_;  // valid in the state `rests`
  mutable std::atomic<State> state_ = State::over;
};

}  // namespace millrace
