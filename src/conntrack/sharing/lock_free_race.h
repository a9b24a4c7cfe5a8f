// `lock-free-race`: one `race` table for all workers. Readers never wait; writers of one bucket
// exclude each other by a bit in the bucket.
#pragma once

#include <string_view>
#include <type_traits>

#include "conntrack/sharing/unguarded.h"
#include "conntrack/table_scheme.h"
#include "millrace/race.h"

namespace millrace {

struct LockFreeRace {
  static constexpr std::string_view kName = "lock-free-race";
  static constexpr std::string_view kSummary =
      "one race table for all workers: readers never wait, writers of a bucket do";
  using Guards = Unguarded;
  template <class Table>
  using Form =
      std::conditional_t<std::is_same_v<Table, TableScheme<Race>>, TableScheme<SharedRace>, void>;
  static Guards create() { return {}; }
};

}  // namespace millrace
