// The contract of a sharing scheme. A scheme says if workers use the same tables, guards these
// tables, and reclaims removed ids.
//
// To add a scheme, write a header like `mutex.h`, and name the scheme in the list of schemes.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "conntrack/sharing/table_pair.h"
#include "millrace/types.h"

namespace millrace {

/// Guards of the stages of a burst. `reading()` returns an object that guards lookups while it
/// lives; `writing()` returns an object that guards `open`, `link` and removal.
template <class G>
concept Guards = requires(const G guards) {
  /// True if several workers may use the same tables.
  { G::kShared } -> std::convertible_to<bool>;
  /// True if workers read while a worker changes the tables, or several change them at once: the
  /// tables themselves are safe for that.
  { G::kConcurrent } -> std::convertible_to<bool>;
  guards.reading();
  guards.writing();
  typename G::Reclaiming;
};

/// Reclaims removed ids. Each worker has an instance of its own.
template <class S>
concept Reclaims = requires(S reclaiming, const S view, Side side, ConnId id) {
  /// Returns how many ids to add to the tables' capacity, for ids that drain longer than a burst.
  { S::more_ids(1U) } -> std::same_as<std::size_t>;
  { S::create(1U) } -> std::same_as<Result<std::vector<S>>>;
  /// Begins the worker's use of the tables. Grace periods wait for the worker until `end`.
  reclaiming.begin();
  /// Ends the worker's use of the tables.
  reclaiming.end();
  /// Adds an id that was erased in that side's table.
  reclaiming.add(side, id);
  /// True if the ids of a sweep and a burst may be added.
  { view.has_room() } -> std::same_as<bool>;
  /// True if no id is draining.
  { view.is_empty() } -> std::same_as<bool>;
  // A scheme has a template end_burst(TablePair<Table>&, writing), too: it ends the worker's use of
  // the entries that it found in this burst, and releases ids. `writing()` returns the guard under
  // which tables may be changed.
};

/// A sharing scheme.
template <class S>
concept Sharing = requires {
  { S::kName } -> std::convertible_to<std::string_view>;
  { S::kSummary } -> std::convertible_to<std::string_view>;
  typename S::Guards;
  { S::create() } -> std::same_as<typename S::Guards>;
  // A scheme has a template `Form<TableScheme<...>>`, too: the form of the table that the scheme
  // uses; void if the scheme does not go with the table.
};

}  // namespace millrace
