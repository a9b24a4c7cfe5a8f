// The contract of an ageing scheme: how idle connections are found. Each worker uses an instance of
// its own.
//
// The tracker writes `last_seen` into the record of every entry that a packet meets; a scheme reads
// it, through `Lives`, when it wants to know whether a connection is still in use.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

struct AgeingConfig {
  std::size_t ids = 0;             ///< ids are below this
  std::uint32_t interval_ms = 10;  ///< how finely deadlines are told apart, 1 to 1000
  Pages pages = Pages::huge;
};

/// What a scheme may ask about a connection.
template <class L>
concept Lives = requires(const L lives, ConnId id) {
  { lives.deadline(id) } -> std::same_as<Tick>;  // when it ends if no packet comes
  { lives.prefetch(id) } -> std::same_as<void>;
};

/// Stands for a tracker in the contract below.
struct AnyLives {
  static Tick deadline(ConnId) { return {}; }
  static void prefetch(ConnId) {}
};

template <class A>
concept Ageing =
    requires(A ageing, const A view, ConnId id, Tick tick, AnyLives lives, void (*expire)(ConnId)) {
      { A::kName } -> std::convertible_to<std::string_view>;
      /// One for each worker. Workers that share tables share the ids; an id is one worker's, from
      /// `born` to `gone` or `expire`.
      { A::create(AgeingConfig{}, 1U) } -> std::same_as<Result<std::vector<A>>>;
      /// A connection was opened now; its first deadline.
      { ageing.born(id, tick, tick) } -> std::same_as<void>;
      /// It was removed by someone else than `sweep`.
      { ageing.gone(id) } -> std::same_as<void>;
      /// Calls `expire` for connections whose deadline is at or before now; it must remove them,
      /// and must not call `gone`. Looks at `budget` connections at most. True when nothing is left
      /// to do at that time.
      { ageing.sweep(tick, 64U, lives, expire) } -> std::same_as<bool>;
      { view.memory_bytes() } -> std::same_as<std::size_t>;
      { view.check_invariants() } -> std::same_as<Result<void>>;
    };

}  // namespace millrace
