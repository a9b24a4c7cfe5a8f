// Tables of one worker alone: nothing to guard, and what drains is free when its burst ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "conntrack/sharing/table_pair.h"
#include "millrace/types.h"

namespace millrace {

class SettleAtOnce {
 public:
  /// More ids than promised, for those that drain longer than a burst.
  static std::size_t more_ids(unsigned) { return 0; }
  static Result<SettleAtOnce> create(unsigned) { return SettleAtOnce{}; }

  static void begin(unsigned) {}
  static void end(unsigned) {}
  static void note_draining() {}

  template <class Table, class Writing>
  void end_burst(unsigned, TablePair<Table>& pair, Writing&&) {
    pair.originators.settle();
    if (pair.replies) pair.replies->settle();
  }
};

struct Alone {
  static constexpr bool kShared = false;
  using Settling = SettleAtOnce;

  struct Guard {};
  static Guard reading() { return {}; }
  static Guard writing() { return {}; }
  static std::uint64_t waited_ns() { return 0; }
};

}  // namespace millrace
