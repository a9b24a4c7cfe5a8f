// The contract of a sharing scheme: whether workers use the same tables, what guards them, and when
// an id that was removed may be given out again.
//
// To add a scheme, write its header as `mutex.h` has it, and name it in the list of schemes.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "conntrack/sharing/table_pair.h"
#include "millrace/types.h"

namespace millrace {

/// What guards the stages of a burst. `reading()` and `writing()` give objects that guard while
/// they live: stages that look up, and those that open, link and remove.
template <class G>
concept Guards = requires(const G guards) {
  /// Several workers may have the same tables.
  { G::kShared } -> std::convertible_to<bool>;
  /// Some read while one changes them, or several change them at once: tables see to that.
  { G::kConcurrent } -> std::convertible_to<bool>;
  guards.reading();
  guards.writing();
  typename G::Settling;
};

/// When removed ids are released. Each worker has an instance of its own.
template <class S>
concept Settles = requires(S settling, const S view, Side side, ConnId id) {
  /// Ids beyond those promised, for those that drain longer than a burst.
  { S::more_ids(1U) } -> std::same_as<std::size_t>;
  { S::create(1U) } -> std::same_as<Result<std::vector<S>>>;
  /// Its worker begins, and ends: others wait for it only in between.
  settling.begin();
  settling.end();
  /// The id was erased in that side's table.
  settling.add(side, id);
  /// Whether a sweep's ids may be added.
  { view.has_room() } -> std::same_as<bool>;
  /// Whether none drains.
  { view.is_empty() } -> std::same_as<bool>;
  // And, as a template: end_burst(TablePair<Table>&, writing): the worker uses nothing any more
  // that it found in this burst; `writing()` gives the guard under which tables may be changed.
};

/// A sharing scheme.
template <class S>
concept Sharing = requires {
  { S::kName } -> std::convertible_to<std::string_view>;
  { S::kSummary } -> std::convertible_to<std::string_view>;
  typename S::Guards;
  { S::create() } -> std::same_as<typename S::Guards>;
  // And, as a template: `Form<TableScheme<...>>`, the form of that table that it uses; void where
  // it does not go with it.
};

}  // namespace millrace
